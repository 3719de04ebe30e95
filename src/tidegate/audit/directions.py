"""Numbers that look at a whole transcript: likelihoods of known scales and of shared noise, and the best line.

All are fitted on training transcripts and are then fixed public functions of a transcript.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MOST_COLUMNS = 64  # of a transcript whose best line is looked for
MOST_STEPS, WIDTHS = (
    24,
    (2, 3, 4),
)  # of a transcript whose norms are looked at, and how many steps share noise in them
RIDGE = 1e-5  # small enough for noise that cancels in differences of running sums
LARGEST = 1e9  # numbers beyond it would drown the others


@dataclass(frozen=True)
class Laplace:
    """Σ (|x − b| − |x − a|)/scale over what was measured: how much likelier noise makes it around a than around b.

    Attributes
    ----------
    columns, scales
        Which numbers of a transcript are measured values, and where the scale of each is shown (0: not measured).
    before
        For each of them the same column of the step before (−1: none); a number that repeats it was not measured.
    first, second
        What each would be without noise under the two streams.
    """

    name: ClassVar[str] = "the likelihood of all measured numbers"
    columns: tuple[int, ...]
    scales: tuple[int, ...]
    before: tuple[int, ...]
    first: Floats
    second: Floats

    def __call__(self, clean: Floats) -> Floats:
        """The score of each transcript."""
        total = np.zeros(len(clean))
        for column, scale, before, a, b in zip(
            self.columns, self.scales, self.before, self.first, self.second, strict=True
        ):
            value, width = clean[:, column], clean[:, scale]
            fresh = width > 0 if before < 0 else (width > 0) & (value != clean[:, before])
            gain = (np.abs(value - b) - np.abs(value - a)) / np.where(fresh, width, 1.0)
            total += np.where(fresh, gain, 0.0)
        return total

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        plain = {name: list(getattr(self, name)) for name in ("columns", "scales", "before")}
        return {"kind": "laplace", **plain, "first": self.first.tolist(), "second": self.second.tolist()}


@dataclass(frozen=True)
class Line:
    """A weighted sum of the numbers of a transcript (Fisher's linear discriminant)."""

    name: ClassVar[str] = "a weighted sum of all numbers"
    weights: Floats
    centre: Floats

    def __call__(self, clean: Floats) -> Floats:
        """The score of each transcript."""
        near = np.clip(clean - self.centre, -LARGEST, LARGEST)
        total = np.zeros(len(near))
        for column, weight in zip(near.T, self.weights, strict=True):  # the same sum for every batch size
            total += weight * column
        return total

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return {"kind": "line", "weights": self.weights.tolist(), "centre": self.centre.tolist()}


@dataclass(frozen=True)
class Norm:
    """‖x − b‖ − ‖x − a‖, the likelihood of noise that steps share.

    The norm is the largest Σ|z_t| over steps that are at least `apart` steps from each other: all steps for noise that is
    drawn for each of them, the largest step for a radius that all of them share, and what is between for a window that
    slides.

    Attributes
    ----------
    columns
        Steps × numbers of a step: which numbers of a transcript are values.
    apart
        So many steps share noise.
    together
        Whether |z_t| is the sum over the columns; otherwise each column has a norm of its own.
    first, second
        What each would be without noise under the two streams.
    """

    name: ClassVar[str] = "the likelihood of noise that steps share"
    columns: tuple[tuple[int, ...], ...]
    apart: int
    together: bool
    first: Floats
    second: Floats

    def __call__(self, clean: Floats) -> Floats:
        """The score of each transcript."""
        return self._norm(clean, self.second) - self._norm(clean, self.first)

    def _norm(self, clean: Floats, centre: Floats) -> Floats:
        largest: list[Floats] = []
        for row, centres in zip(self.columns, centre, strict=True):
            size = np.minimum(np.abs(clean[:, list(row)] - centres), LARGEST)
            size = size.sum(axis=1, keepdims=True) if self.together else size
            before = largest[-self.apart] if len(largest) >= self.apart else 0.0
            largest.append(np.maximum(size + before, largest[-1]) if largest else size)
        total = np.zeros(len(clean))
        for column in largest[-1].T:  # the same sum for every batch size
            total += column
        return total

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        plain = {
            "columns": [list(row) for row in self.columns],
            "apart": self.apart,
            "together": self.together,
        }
        return {"kind": "norm", **plain, "first": self.first.tolist(), "second": self.second.tolist()}


Direction = Laplace | Line | Norm


def read(described: dict[str, Any]) -> Direction:
    """What `describe` wrote."""
    if described["kind"] == "norm":
        rows = tuple(tuple(map(int, row)) for row in described["columns"])
        first, second = np.array(described["first"]), np.array(described["second"])
        return Norm(rows, int(described["apart"]), bool(described["together"]), first, second)
    if described["kind"] == "line":
        return Line(np.array(described["weights"]), np.array(described["centre"]))
    columns, scales, before = (tuple(map(int, described[name])) for name in ("columns", "scales", "before"))
    return Laplace(columns, scales, before, np.array(described["first"]), np.array(described["second"]))


def laplace(first: Floats, second: Floats, width: int, values: int, steps: int = 0) -> Laplace | None:
    """From transcripts whose steps have so many numbers: first the released values, last the scale of the step.

    `steps` says how many of them a transcript begins with, where other numbers follow. Where noise is symmetric, the
    median of what was measured is what was measured without it.
    """
    found: list[tuple[int, int, int, float, float]] = []
    whole = first.shape[1] // width
    for start in range(0, min(steps or whole, whole) * width, width):
        scale = start + width - 1
        for column in range(start, start + values):
            before = column - width if start else -1
            centres = []
            for side in (first, second):
                fresh = side[:, scale] > 0
                if before >= 0:
                    fresh &= side[:, column] != side[:, before]
                centres.append(float(np.median(side[fresh, column])) if fresh.sum() > 20 else np.nan)
            if np.isfinite(centres).all() and centres[0] != centres[1]:
                found.append((column, scale, before, centres[0], centres[1]))
    if not found:
        return None
    columns, scales, befores, a, b = zip(*found, strict=True)
    return Laplace(columns, scales, befores, np.array(a), np.array(b))


def norms(first: Floats, second: Floats, rows: list[tuple[int, ...]]) -> list[Norm]:
    """Norms of what is left of released values without what they would be without noise (their medians)."""
    if not 1 <= len(rows) <= MOST_STEPS or len(rows) * len(rows[0]) > MOST_COLUMNS:
        return []
    a, b = (np.array([np.median(side[:, list(row)], axis=0) for row in rows]) for side in (first, second))
    if np.array_equal(a, b):
        return []
    widths = sorted({1, *(width for width in WIDTHS if width < len(rows)), len(rows)})
    kinds = [(width, together) for width in widths for together in (True, False)]
    if len(rows[0]) == 1:
        kinds = [(width, together) for width, together in kinds if together]
    kinds = [(width, together) for width, together in kinds if width > 1 or together]  # the same sum
    return [Norm(tuple(rows), width, together, a, b) for width, together in kinds]


def line(first: Floats, second: Floats) -> Line | None:
    """The weighted sum that tells two samples best apart, if their numbers were normal with one covariance."""
    if not 1 < first.shape[1] <= MOST_COLUMNS or len(first) < max(4 * first.shape[1], 20):
        return None
    centre = np.median(np.concatenate([first, second]), axis=0)
    one, other = (np.clip(side - centre, -LARGEST, LARGEST) for side in (first, second))
    moved = one.mean(axis=0) - other.mean(axis=0)
    covariance = (np.cov(one, rowvar=False) + np.cov(other, rowvar=False)) / 2
    spread = np.sqrt(np.diag(covariance))
    used = spread > 1e-9
    if used.sum() < 2:
        return None
    unit = np.where(used, spread, 1.0)
    scaled = covariance / np.outer(unit, unit) + RIDGE * np.eye(len(unit))
    weights = np.where(used, np.linalg.solve(scaled, moved / unit) / unit, 0.0)
    weights[~used] = 0.0
    return Line(weights, centre) if np.isfinite(weights).all() and np.any(weights) else None
