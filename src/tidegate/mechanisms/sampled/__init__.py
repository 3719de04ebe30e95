"""Adaptive sampling with a filter: FAST (Fan and Xiong 2014) and RescueDP (Wang et al. 2016)."""
