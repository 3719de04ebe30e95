"""Categories that nobody has listed: found by a private test at the end of each public epoch."""
