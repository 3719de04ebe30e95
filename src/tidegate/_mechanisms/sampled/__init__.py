"""Adaptive sampling with a filter, on the new core: FAST and RescueDP."""
