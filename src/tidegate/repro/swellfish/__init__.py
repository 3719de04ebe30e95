"""Tex, Schäler, Böhm, Swellfish privacy: publishing continuous private sum aggregates, Experiments 1 and 2."""
