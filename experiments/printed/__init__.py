"""Mechanisms as papers print them, where that is not private. No session runs them."""
