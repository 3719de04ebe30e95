"""The version, where every room can read it."""

__version__ = "1.0.0a1"
