"""The version, where every package can read it."""

__version__ = "1.0.0a1"
