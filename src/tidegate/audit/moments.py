"""What means and covariances of transcripts say: about how much is lost if releases are sums of independent noise.

An event that shows a loss over many steps is rare, and to learn it takes many transcripts. A few hundred tell by how far
each number moves, in standard deviations of what earlier numbers leave of it: many small losses add up without any event.
That is right for Laplace and Gaussian noise and wrong for much else, so it decides nothing. It only says where to look.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.audit.features import cleaned
from tidegate.composition.gaussian import normal_delta
from tidegate.policy import Approximate, Budget, ZeroConcentrated

Floats = npt.NDArray[np.float64]

RIDGE = 1e-6
SURE = 2.5  # standard errors that a number must move to count
LARGEST = 1e7  # numbers beyond it would drown the others
DOUBT = 2.0  # standard errors that are taken off
FEWEST = 60  # transcripts a side, and for each number
EACH = 3
MOST = 160  # numbers
SPREAD = 1e-9
PATTERNS, RARE = 3, 0.05  # of marks that are looked at by themselves


@dataclass(frozen=True)
class Suggested:
    """About how much is lost, in the budget's own measure, less and more than the doubt about the means.

    Attributes
    ----------
    least, most
        Both are 0 where transcripts are too few to say.
    """

    least: float = 0.0
    most: float = 0.0


def suggested(first: Floats, second: Floats, budget: Budget, marks: Sequence[int] = ()) -> Suggested:
    """What transcripts of two streams suggest.

    Where scales of noise and what was measured differ from transcript to transcript, those are looked at by themselves as
    well that have the same of them: `marks` are the numbers that say so.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from tidegate.policy import Pure
    >>> drawn = np.random.default_rng(7).laplace(scale=2, size=(2, 4000, 3))
    >>> drawn[1] += 1  # three steps lose 1/2 each
    >>> found = suggested(*drawn, Pure(Fraction(1)))
    >>> 1.3 < found.least < 1.5 < found.most < 1.7
    True
    """
    count = min(len(first), len(second))
    first, second = first[:count], second[:count]
    found = _suggested(first, second, budget)
    if not marks:
        return found
    both = np.round(cleaned(np.concatenate([first, second])[:, list(marks)]), 6)
    _, pattern = np.unique(both, axis=0, return_inverse=True)
    pattern = np.asarray(pattern).reshape(-1)
    one, other = pattern[:count], pattern[count:]
    common = np.minimum(*(np.bincount(side, minlength=int(pattern.max()) + 1) for side in (one, other)))
    if common.max() == count:
        return found
    for each in np.argsort(-common)[:PATTERNS]:
        if common[each] >= count * RARE:
            alone = _suggested(first[one == each], second[other == each], budget)
            found = Suggested(max(found.least, alone.least), max(found.most, alone.most))
    return found


def _suggested(first: Floats, second: Floats, budget: Budget) -> Suggested:
    count = min(len(first), len(second))
    if count < FEWEST:
        return Suggested()
    one, other = (np.clip(cleaned(side[:count]), -LARGEST, LARGEST) for side in (first, second))
    steady = np.ptp(one, axis=0) < SPREAD
    steady &= np.ptp(other, axis=0) < SPREAD
    kept = np.flatnonzero(~steady)[:MOST]
    if not len(kept) or count < EACH * len(kept):
        return Suggested()
    moved, own = _innovations(one[:, kept], other[:, kept])
    error = math.sqrt(2.0 / count)
    sure = np.where(np.abs(moved) > SURE * error, np.abs(moved), 0.0)
    if isinstance(budget, ZeroConcentrated) or (isinstance(budget, Approximate) and budget.delta):
        distance = math.sqrt(float(np.maximum(sure**2 - error**2, 0.0).sum()))
        both = (max(distance - DOUBT * error, 0.0), distance + DOUBT * error)
        if isinstance(budget, Approximate):
            return Suggested(*(_gaussian(each, float(budget.delta)) for each in both))
        return Suggested(*(each**2 / 2 for each in both))
    # discrete Laplace noise of rate ε has the variance 1/(2 sinh²(ε/2)) in units of its grid
    units = np.maximum(np.abs(own), 1.0)
    lost = float((2 * units * np.arcsinh(sure / (math.sqrt(2.0) * units))).sum())
    doubt = DOUBT * error * math.sqrt(2.0 * max(int(np.count_nonzero(sure)), 1))
    return Suggested(max(lost - doubt, 0.0), lost + doubt)


def _innovations(one: Floats, other: Floats) -> tuple[Floats, Floats]:
    """By how much each number moves beyond what earlier ones foretell: in its standard deviations, and by itself."""
    count = len(one)
    scatter = sum((side - side.mean(axis=0)).T @ (side - side.mean(axis=0)) for side in (one, other))
    covariance = scatter / (2 * count - 2)
    spread = np.sqrt(np.maximum(np.diag(covariance), SPREAD**2))
    tied = covariance / np.outer(spread, spread)
    tied[np.diag_indices_from(tied)] = 1 + RIDGE
    shift = (one.mean(axis=0) - other.mean(axis=0)) / spread
    try:
        root = np.linalg.cholesky(tied)
    except np.linalg.LinAlgError:
        return np.zeros(len(shift)), np.zeros(len(shift))
    moved = np.linalg.solve(root, shift)
    return moved, moved * np.diag(root) * spread


def _gaussian(distance: float, delta: float) -> float:
    """The ε at δ of Gaussian noise under means so many standard deviations apart (Balle and Wang 2018)."""
    if distance <= 0:
        return 0.0
    low, high = 0.0, min(distance * distance / 2 + 8 * distance, 700.0)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if normal_delta(distance, middle) > delta else (low, middle)
    return high
