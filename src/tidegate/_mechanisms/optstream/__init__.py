"""OptStream (Fioretto and Van Hentenryck 2019): sample, perturb, reconstruct, optimise."""
