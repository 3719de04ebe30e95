"""Noise shared by the steps of a window: less of it for the same guarantee.

Independent noise protects a step as if it were alone. Within a window the change that one unit can make is a
vector of which every entry is bounded, and noise that is shaped like the set of these vectors is smaller.
Two laws: the *cube* on groups of consecutive steps, and the *semiorder*, which slides. Both are exact.

The state of a run (the radius of an open group, the arrivals of steps to come) is as secret as raw values.
See docs/mechanisms/noise.md, and docs/proofs/noise_cube.md and noise_semiorder.md.
"""
