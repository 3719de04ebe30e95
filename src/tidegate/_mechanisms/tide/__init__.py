"""Tide."""
