"""Compiled loops of the mechanisms; each is checked against a readable reference in the tests."""
