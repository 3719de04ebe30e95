"""Swellfish privacy (Tex, Schäler and Böhm): noise that follows what is to be hidden, and when."""
