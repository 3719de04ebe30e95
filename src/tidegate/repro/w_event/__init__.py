"""Kellaris et al., Differentially private event sequences over infinite streams (PVLDB 2014), Figures 6 to 10."""
