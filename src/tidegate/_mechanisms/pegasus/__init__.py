"""PeGaSus (Chen et al. 2017): perturb, group, smooth."""
