"""Compiled loops of the queries; each is checked against a readable reference in the tests."""
