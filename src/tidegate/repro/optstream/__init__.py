"""Fioretto, Van Hentenryck, OptStream: Releasing time series privately (JAIR 2019), Figures 2 to 11."""
