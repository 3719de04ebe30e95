"""Perrier, Asghar, Kaafar, Private continual release of real-valued data streams (NDSS 2019): tables and figures."""
