"""Statistical tests whose false alarms are budgeted and whose tails are exact.

A test counts how often some events happen in n independent draws and compares each count with its binomial
distribution, exactly, no approximation by a normal or chi-square distribution. The level is shared equally
among the events (Bonferroni), so a right sampler is refused with a chance of at most ALPHA. The whole suite
may make DECISIONS such tests: its chance of a false alarm stays below ALPHA · DECISIONS = 10^-6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

SUITE_ALPHA = 1e-6
DECISIONS = 1000
ALPHA = SUITE_ALPHA / DECISIONS


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of one test.

    Attributes
    ----------
    p_value
        An upper bound of the chance that a right sampler looks this bad or worse.
    event
        The event whose count is the least likely one.
    draws, count, expected
        The number of draws, how often that event happened and how often it should.
    """

    p_value: float
    event: str
    draws: int
    count: int
    expected: float

    @property
    def ok(self) -> bool:
        """Whether the sampler is accepted at level ALPHA."""
        return self.p_value >= ALPHA

    def __str__(self) -> str:
        return (
            f"p ≤ {self.p_value:.3g} at n = {self.draws}: {self.event} happened {self.count} times, "
            f"expected {self.expected:.1f}"
        )


def binomial_tails(count: int, draws: int, probability: float) -> float:
    """Twice the smaller exact tail, at most 1: the chance of a count this far off on either side."""
    lower = float(binom.cdf(count, draws, probability))
    upper = float(binom.sf(count - 1, draws, probability))
    return min(1.0, 2.0 * min(lower, upper))


def compare_counts(counts: Mapping[str, tuple[int, float]], draws: int) -> Comparison:
    """Compare how often each event happened with its probability, {event: (count, probability)}.

    Examples
    --------
    >>> compare_counts({"heads": (5_030, 0.5)}, 10_000).ok, compare_counts({"heads": (5_500, 0.5)}, 10_000).ok
    (True, False)
    """
    worst = Comparison(1.0, "nothing", draws, 0, 0.0)
    for event, (count, probability) in counts.items():
        p_value = min(1.0, binomial_tails(count, draws, probability) * len(counts))
        if p_value < worst.p_value or worst.event == "nothing":
            worst = Comparison(p_value, event, draws, count, probability * draws)
    return worst


def compare_integers(
    sample: npt.NDArray[np.int64],
    edges: npt.NDArray[np.int64],
    at_most: npt.NDArray[np.float64],
    extra: Mapping[str, tuple[npt.NDArray[np.bool_], float]] | None = None,
) -> Comparison:
    """Goodness of fit of integers: cells between edges, half-lines at edges, and extra events.

    Parameters
    ----------
    sample
        Independent draws.
    edges
        Ascending integers.
    at_most
        P(X ≤ edge) for each edge.
    extra
        {event: (whether it happened in each draw, its probability)}.
    """
    # searchsorted(left) of x is the first edge ≥ x: cell 0 is x ≤ edges[0], the last one x > edges[-1].
    cells = np.bincount(np.searchsorted(edges, sample, side="left"), minlength=edges.size + 1)
    counts: dict[str, tuple[int, float]] = {}
    below = np.cumsum(cells)
    for edge, count, probability in zip(edges.tolist(), below.tolist(), at_most.tolist(), strict=False):
        counts[f"X ≤ {edge}"] = (count, probability)
    mass = np.diff(at_most)
    for i, (count, probability) in enumerate(zip(cells[1:-1].tolist(), mass.tolist(), strict=True)):
        counts[f"{edges[i]} < X ≤ {edges[i + 1]}"] = (count, probability)
    for event, (happened, probability) in (extra or {}).items():
        counts[event] = (int(np.count_nonzero(happened)), probability)
    return compare_counts(counts, sample.size)


def laplace_at_most(edges: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.float64]:
    """P(X ≤ edge) of discrete Laplace noise: what `compare_integers` takes for a scale that is claimed, or planted.

    Examples
    --------
    >>> laplace_at_most(np.array([-1, 0]), 8.0).sum().round(12)
    np.float64(1.0)
    """
    q = np.exp(-1.0 / scale)
    found: npt.NDArray[np.float64] = np.where(
        edges < 0, q ** np.abs(edges) / (1 + q), 1 - q ** (np.abs(edges) + 1.0) / (1 + q)
    )
    return found
