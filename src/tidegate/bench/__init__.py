"""Errors of mechanisms on a stream: what `tidegate bench` prints and the experiments of the papers measure."""
