"""Adaptive sampling: FAST (Fan and Xiong 2014), DSAT (Li et al. 2015) and RescueDP (Wang et al. 2016)."""
