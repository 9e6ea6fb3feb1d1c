"""Runs that are recorded beside a live engine, and judged later."""
