"""Mechanisms without decisions: every step, or every so many steps, is measured."""
