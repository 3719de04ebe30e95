"""The public parameters that PeGaSus has alone and in a hierarchy: the Perturber's part, the threshold, the groups."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from tidegate.exact import ExactLike, exact, one_of, positive, proper, whole
from tidegate.mechanisms.pegasus.grouper import LONGEST, SMOOTHERS

if TYPE_CHECKING:
    from tidegate.mechanisms.pegasus.hierarchical_pegasus import HierarchicalPeGaSus
    from tidegate.mechanisms.pegasus.pegasus import PeGaSus


def share(name: str, value: ExactLike) -> Fraction:
    """Read a part of the budget: above 0 and below 1."""
    return proper(name, exact(name, value), f'write for example {name}="0.8"')


def check(mechanism: PeGaSus | HierarchicalPeGaSus) -> None:
    """Check the split, the threshold, the smoother and the cap."""
    read = {
        "perturber_share": share("perturber_share", mechanism.perturber_share),
        "threshold_factor": positive("threshold_factor", mechanism.threshold_factor),
        "longest_group": whole("longest_group", mechanism.longest_group, most=LONGEST),
    }
    if mechanism.threshold is not None:
        read["threshold"] = positive("threshold", mechanism.threshold)
    for name, value in read.items():
        object.__setattr__(mechanism, name, value)
    one_of("smoother", mechanism.smoothing, SMOOTHERS, "write 'median'")


def limit(mechanism: PeGaSus | HierarchicalPeGaSus) -> int:
    """The threshold θ in grid units, rounded up: as given, or a number of noise scales of the Grouper."""
    if mechanism.threshold is not None:
        return math.ceil(Fraction(mechanism.threshold) / Fraction(mechanism.grid))
    factor = Fraction(mechanism.threshold_factor)
    return math.ceil(factor * mechanism.sensitivity / Fraction(mechanism.grouping.epsilon))


def noise_left(smoother: str, shared: bool) -> float:
    """What a smoother leaves of the variance of a mean of equal values, at most.

    The median of Laplace noise has half of it; that of noise which steps share may have three times as much. James and
    Stein's estimate lies between the mean and the measurement, and is taken to have all of the noise.
    """
    return {"average": 1.0, "median": 3.0 if shared else 1.0}.get(smoother, math.inf)
