"""OptStream (Fioretto and Van Hentenryck 2019): sample a period, perturb, reconstruct, optimise."""
