"""kvledger: an executable law of who owns which KV row and page, and a kit that checks an engine against it."""

__version__ = "0.1.0"
