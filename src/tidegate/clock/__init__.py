"""The public clock: steps, calendars and durations, one reading of each."""
