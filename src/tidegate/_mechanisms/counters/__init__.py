"""Counters: running, decayed and sliding sums."""
