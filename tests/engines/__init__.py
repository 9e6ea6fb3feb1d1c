"""Backends that need no install, and what adapters are written to."""
