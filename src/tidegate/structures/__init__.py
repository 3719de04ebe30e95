"""What mechanisms and queries both stand on: ordered multisets, hierarchies, state-space models. No data, no budget."""
