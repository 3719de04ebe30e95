"""Streams to try things on: made up from a seed, or downloaded; never anybody's data."""
