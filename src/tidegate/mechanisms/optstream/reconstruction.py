"""From samples back to all steps: a curve through public times, as weights of four neighbouring samples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
CURVES = ("line", "curve")


class Curve(Protocol):
    """A reconstruction of one's own, for ``OptStream(reconstruction=…)``: post-processing of noisy samples.

    It may use public data and what it is given, which is noisy: its answer costs no budget. It must never see the stream.
    Final values have no finite intervals: what a curve of one's own misses is not known.
    """

    def curve(self, times: Integers, points: Floats, length: int) -> Floats:
        """The first `length` steps of a period (length × columns), from samples in the values' unit.

        `points` (samples + 1 × columns) begins with the last sample of the period before, which stands at position 0;
        `times` are the positions of the others.
        """
        ...

    def describe(self) -> Any:
        """What identifies the reconstruction in the configuration of a log, as JSON."""
        ...


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """How each of the first `length` steps of a period follows from known points.

    Point 0 is the last sample of the period before, which stands at position 0; point j is the j-th sample.

    Attributes
    ----------
    segment
        For each step the number of the point at or before it.
    weights
        For each step the weights of that point's predecessor, itself, and the two points after it.
    """

    segment: Integers
    weights: Floats
    points: int

    @classmethod
    def through(cls, times: npt.NDArray[np.int64], length: int, kind: str = "line") -> Reconstruction:
        """Straight lines ("line") or cubic Hermite pieces ("curve") through samples at ascending positions ≥ 1.

        Steps after the last sample hold it.
        """
        knots = np.concatenate([[0], times]).astype(np.int64)
        steps = np.arange(1, length + 1)
        segment = np.searchsorted(knots, steps, side="left") - 1
        weights = np.zeros((length, 4))
        inside = segment < len(knots) - 1
        weights[~inside, 1] = 1.0
        at = segment[inside]
        width = (knots[at + 1] - knots[at]).astype(np.float64)
        share = (steps[inside] - knots[at]) / width
        weights[inside, 1], weights[inside, 2] = 1.0 - share, share
        if kind == "curve" and len(at):
            weights[inside] += _bends(knots, at, width, share)
        return cls(segment, weights, len(knots))

    @cached_property
    def columns(self) -> Integers:
        """The points that the four weights of each step belong to (steps × 4)."""
        return np.asarray(np.clip(self.segment[:, np.newaxis] + np.arange(-1, 3), 0, self.points - 1))

    @cached_property
    def matrix(self) -> Floats:
        """The weights of all points (steps × points)."""
        matrix = np.zeros((len(self.segment), self.points))
        np.add.at(matrix, (np.arange(len(self.segment))[:, np.newaxis], self.columns), self.weights)
        return matrix

    @cached_property
    def spread(self) -> Floats:
        """Cov(step, sum of all steps) for samples of variance 1: what each step contributes to the sum's variance.

        Neighbouring steps share samples, so their errors add up; a weight of one over this variance makes the
        sum of all steps exactly as trustworthy as it is.
        """
        totals = np.bincount(self.columns.ravel(), self.weights.ravel(), self.points)
        spread = (self.weights * totals[self.columns]).sum(axis=1)
        least = float(np.mean(spread)) / 100 if len(spread) else 1.0
        return np.asarray(np.maximum(spread, least))

    def apply(self, points: Floats) -> Floats:
        """The curve through given points."""
        return np.asarray(self.matrix @ points)


def _bends(knots: Integers, at: Integers, width: Floats, share: Floats) -> Floats:
    """What a Hermite piece adds to the straight line, as weights of four points.

    The slope at a point is that of the parabola through it and its two neighbours; at both ends the chord's.
    """
    left = share * (1 - share) ** 2  # × width × (slope at the left end − slope of the chord)
    right = -(share**2) * (1 - share)  # × width × (slope at the right end − slope of the chord)
    bends = np.zeros((len(at), 4))
    before = np.where(at > 0, knots[at] - knots[np.maximum(at - 1, 0)], 1).astype(np.float64)
    factor = np.where(
        at > 0, left * width / (before + width), 0.0
    )  # the chord before counts width/(before + width)
    # slope − chord = width/(before + width) · (chord before − chord)
    bends[:, 0] -= factor * width / before
    bends[:, 1] += factor * width * (1 / before + 1 / width)
    bends[:, 2] -= factor
    last = at + 2 < len(knots)
    after = np.where(last, knots[np.minimum(at + 2, len(knots) - 1)] - knots[at + 1], 1).astype(np.float64)
    factor = np.where(last, right * width / (after + width), 0.0)
    bends[:, 1] += factor
    bends[:, 2] -= factor * width * (1 / after + 1 / width)
    bends[:, 3] += factor * width / after
    return bends
