"""Dissimilarities: how far a step is from the last publication, with their sensitivity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.exact import whole

Row = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Dissimilarity:
    """A score of two vectors in grid units, with what privacy and the decision need to know of it.

    Parameters
    ----------
    name
        A word for configurations and fingerprints.
    score
        A function of (values, last publication), both int64 vectors, that returns a whole number.
    sensitivity
        By how much the score can change when the values change by 1 in L1 (a whole number of at least 1, as for both
        below: noise is scaled to it).
    expected
        The score that publication noise of scale 1 itself would cause in d columns; a publication pays
        only if the score exceeds that.

    Examples
    --------
    >>> L1.score(np.array([3, 0]), np.array([1, 1]))
    3
    >>> LARGEST.score(np.array([3, 0]), np.array([1, 1]))
    2
    """

    name: str
    score: Callable[[Row, Row], int]
    sensitivity: int
    expected: Callable[[int], float]

    def __post_init__(self) -> None:
        whole("sensitivity", self.sensitivity)  # 0 would compare without noise

    def describe(self) -> str:
        """The name, as the configuration shows it."""
        return self.name


def _l1(values: Row, last: Row) -> int:
    return int(np.abs(values - last).sum())


def _largest(values: Row, last: Row) -> int:
    return int(np.abs(values - last).max())


def _harmonic(columns: int) -> float:
    """The expected maximum of d absolute Laplace values of scale 1: 1 + 1/2 + … + 1/d."""
    return float(np.sum(1.0 / np.arange(1, columns + 1)))


L1 = Dissimilarity("l1", _l1, 1, float)
LARGEST = Dissimilarity("largest", _largest, 1, _harmonic)
BUILT_IN = {measure.name: measure for measure in (L1, LARGEST)}
