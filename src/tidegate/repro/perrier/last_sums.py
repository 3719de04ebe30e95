"""The error of the last running sum over many runs, without running through 25 million steps each time.

The last sum of a plain tree has the noise of the few nodes that make it up, and what clipping loses depends on the
threshold alone. So a run releases its threshold with the mechanism's own code, and draws the noise of those nodes and
of the first sum at the mechanism's own scales. `complete` runs the mechanism itself, to check this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from tidegate.datasets.shapes import spendings, trip_minutes
from tidegate.mechanisms import BinaryTree, ClippedSum
from tidegate.mechanisms.clipping.clip_parameters import ClipParameters, optimise
from tidegate.noise import current, laplace
from tidegate.policy import Event
from tidegate.repro.perrier.common import BETA, DELTA, P_MAX, STREAMS, Floats, Integers, values_of

LAG = 50_000
BATCH = 1_000_000


@dataclass(frozen=True)
class Plan:
    """A clipped sum with the p and r that its bound of the outlier error is stated for.

    Attributes
    ----------
    mechanism
        The clipped sum, with the papers' plain tree.
    p, multiplier, missed
        p, r and β_out of equation 16.
    printed
        Whether threshold and scales are the printed ones: one level short, first sum not clipped. Not private.
    """

    mechanism: ClippedSum
    p: float
    multiplier: float
    missed: float
    printed: bool = False


@dataclass(frozen=True)
class Errors:
    """Over runs: the errors of the last sum, the clips, what clipping lost, and what equation 16 foresaw."""

    errors: Floats
    clips: Floats
    lost: Floats
    foreseen: Floats


class Stream:
    """What the error of the last sum needs to know of a stream."""

    def __init__(self, name: str, count: int | None = None) -> None:
        values = values_of(name, count)
        self.count, self.bound = len(values), STREAMS[name].bound
        self.values = values
        self._losses = _losses(values, self.bound)

    def lost(self, clip: int, first: int = 0) -> int:
        """Σ max(0, x − clip) over the values after the first ones."""
        early = self.values[:first]
        return int(self._losses[min(clip, self.bound)]) - int(np.maximum(early - clip, 0).sum())


def _losses(values: Integers, bound: int) -> Integers:
    counts = np.bincount(values, minlength=bound + 1)
    above = np.cumsum(counts[::-1])[::-1]  # how many values are at least v
    losses: Integers = np.zeros(bound + 1, dtype=np.int64)
    losses[:-1] = np.cumsum(above[:0:-1])[::-1]
    return losses


@lru_cache(maxsize=8)
def parameters(name: str, count: int, lag: int = LAG) -> ClipParameters:
    """The optimised parameters from a public sample: another draw of the generated shape."""
    make = trip_minutes if name == "train trips" else spendings
    policy = Event(epsilon=1, delta=Fraction(DELTA), max_change=STREAMS[name].bound)
    return optimise(make(lag, 101), policy, horizon=count, lag=lag, beta=BETA)


def plans(name: str, count: int, lag: int = LAG) -> dict[str, Plan]:
    """The paper's mechanism with sound and with printed constants, and the default of this library."""
    bound = STREAMS[name].bound
    approximate = Event(epsilon=1, delta=Fraction(DELTA), max_change=bound)
    default = ClippedSum(Event(epsilon=1, max_change=bound), horizon=count, estimator="plain")
    found: dict[str, Plan] = {}
    if name in ("train trips", "supermarket"):
        chosen = parameters(name, count, lag)
        made = chosen.mechanism(approximate)
        if isinstance(made, ClippedSum):
            found["smooth threshold"] = Plan(
                replace(made, estimator="plain"), chosen.exceeding, chosen.multiplier, chosen.chances["out"]
            )
        # Tables I and II, m = 50,000
        r, shrink, share, low, out = (
            ("1.63", 0.85, "0.8", 0.3, 0.09) if name == "train trips" else ("1", 0.81, "0.82", 0.19, 0.19)
        )
    else:  # nothing public to optimise on: the middle of what the paper recommends
        r, shrink, share, low, out = "1.5", 0.85, "0.85", 0.2, 0.1
    recommended = ClippedSum(
        approximate,
        horizon=count,
        lag=lag,
        threshold="smooth",
        exceeding=Fraction(P_MAX * shrink).limit_denominator(10**6),
        multiplier=r,
        share=share,
        too_low=low * BETA,
        estimator="plain",
    )
    if "smooth threshold" not in found:
        found["smooth threshold"] = Plan(recommended, P_MAX, float(r), out * BETA)
    assert default.above is not None or not default.waits
    exceeding = (default.above or 1) / max(default.waits, 1)
    found["pure quantile (default here)"] = Plan(
        default, exceeding, float(Fraction(default.multiplier or 1)), BETA / 5
    )
    found["as printed (not private)"] = Plan(recommended, P_MAX, float(r), out * BETA, printed=True)
    return found


def tree_of(name: str, count: int) -> BinaryTree:
    """The plain tree with noise scaled to B."""
    return BinaryTree(Event(epsilon=1, max_change=STREAMS[name].bound), horizon=count, estimator="plain")


def tree_errors(tree: BinaryTree, runs: int, *, printed: bool = False) -> Floats:
    """Errors of the last sum of a plain tree; the printed scale is one level short."""
    scale = tree.scale
    if printed:
        scale *= math.log2(tree.length) / tree.levels
    nodes = int(sum(tree.digits(tree.length, tree.levels)))
    drawn = laplace(current(), "repro last sum", tree.length, scale, (runs, nodes))
    errors: Floats = drawn.sum(axis=1).astype(np.float64)
    return errors


def last_sums(plan: Plan, stream: Stream, runs: int) -> Errors:
    """Many runs of a clipped sum, as far as its last sum is concerned."""
    mechanism, lag = plan.mechanism, plan.mechanism.waits
    sample = np.sort(stream.values[:lag])  # their order does not matter, and sorted ones are sorted faster
    finder = replace(mechanism.finder, calibration="paper") if plan.printed else mechanism.finder
    quantile = float(sample[finder.rank - 1])
    spread = math.sqrt(plan.p**plan.multiplier * stream.count) + math.sqrt(math.log(1 / plan.missed))
    foreseen = quantile / -math.log(plan.p) * spread**2
    errors, clips, lost = np.zeros(runs), np.zeros(runs), np.zeros(runs)
    for run in range(runs):
        clip = mechanism.clip_of(finder.draw(sample, current(), lag).grid_units)
        first_scale = mechanism.first_scale(clip)
        noise = float(laplace(current(), "repro first sum", lag, first_scale, (1,))[0])
        noise += float(tree_errors(mechanism.tree(clip), 1, printed=plan.printed)[0])
        lost[run] = stream.lost(clip, lag if plan.printed else 0)
        errors[run], clips[run] = noise - lost[run], clip
    return Errors(errors, clips, lost, np.full(runs, foreseen))


def complete(mechanism: ClippedSum | BinaryTree, stream: Stream, runs: int) -> Floats:
    """The same by running through the whole stream."""
    true, errors = int(stream.values.sum()), np.zeros(runs)
    for number in range(runs):
        run = mechanism.start()
        for start in range(0, stream.count, BATCH):
            releases = run.push_batch(stream.values[start : start + BATCH, np.newaxis])
        errors[number] = float(releases.values[-1, 0]) - true
    return errors
