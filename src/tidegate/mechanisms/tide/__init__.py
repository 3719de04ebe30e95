"""Tide: our own. Measure when it pays, filter by a model, spend nothing on deciding."""
