"""Compiled loops of this family; each is called by the file of its mechanism."""
