"""Real-valued streams (Perrier et al. 2019): learn a threshold, clip, then sum."""
