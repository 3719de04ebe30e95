"""Mechanisms on the new core, private until all of them are here; the configurations are still those of `mechanisms`."""
