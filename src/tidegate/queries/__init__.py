"""Questions to releases: pure functions and small online operators. Post-processing: they cost no budget."""
