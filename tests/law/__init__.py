"""The law held against itself: wrong answers beside right ones, idle guards, broken traces, tables."""
