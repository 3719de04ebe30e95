"""Chen et al., PeGaSus: data-adaptive differentially private stream processing (CCS 2017), Figures 2 to 8."""
