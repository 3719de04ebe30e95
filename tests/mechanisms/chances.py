"""The exact distribution of adaptive samples, for proofs by enumeration."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.optstream.l1_sampling import L1Sampling, line_score

Floats = npt.NDArray[np.float64]


def sample_chances(rule: L1Sampling, stream: Sequence[int]) -> dict[tuple[int, ...], float]:
    """The probability of every set of samples of one period, summed over the noise of the threshold.

    Examples
    --------
    >>> from fractions import Fraction
    >>> chances = sample_chances(L1Sampling(4, 3, Fraction(1), 1, 2), (5, 5, 5, 5))
    >>> sorted(chances), round(sum(chances.values()), 9)
    ([(1, 2, 4), (1, 3, 4)], 1.0)
    """
    values = [int(value) for value in stream]
    if not rule.tests:
        certain = range(1, rule.length + 1) if rule.samples == rule.length else (1, rule.length)
        return {tuple(certain): 1.0}
    scale, test = rule.sparse_vector.threshold_scale, rule.sparse_vector.question_scale
    reach = math.ceil(60 * scale)
    q, r = math.exp(-1 / scale), math.exp(-1 / test)
    rho = np.arange(-reach, reach + 1)

    def hit(margin: npt.NDArray[np.int64]) -> Floats:
        """P(ν ≥ margin)."""
        above, below = r ** np.maximum(margin, 0), 1 + r - r ** np.maximum(1 - margin, 0)
        return np.asarray(np.where(margin > 0, above, below) / (1 + r))

    found: dict[tuple[int, ...], float] = {}
    paths: list[tuple[tuple[int, ...], Floats]] = [((1,), (1 - q) / (1 + q) * q ** np.abs(rho))]
    for position in range(2, rule.length + 1):
        further = []
        for times, mass in paths:
            left = rule.samples - len(times)
            if _certain(rule, times, position, left):
                further.append(((*times, position), mass))
            elif left == rule.certain - 1:
                further.append((times, mass))
            else:
                score = math.floor(line_score(values[times[-1] - 1 : position]))
                chance = hit(rule.limit + rho - score)
                further += [((*times, position), mass * chance), (times, mass * (1 - chance))]
        paths = further
    for times, mass in paths:
        found[times] = found.get(times, 0.0) + float(mass.sum())
    return found


def _certain(rule: L1Sampling, times: tuple[int, ...], position: int, left: int) -> bool:
    """Whether a step is a sample whatever its score is."""
    if rule.certain == 1:  # as printed: the steps that are left are counted after a hit only
        return left > 0 and rule.length - times[-1] <= left
    return position == rule.length or rule.length - position + 1 <= left != 1
