"""PeGaSus (Chen et al. 2017) and AdaPub (Wang et al. 2019): perturb, group, smooth; alone and on hierarchies."""
