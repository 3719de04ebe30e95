"""Events: sets of transcripts that one neighbour produces more often than the other, learnt from examples.

An additive logistic regression on binned features estimates how much likelier a transcript is under the
first stream than under the second (Neyman and Pearson: the best event is a half-line of that ratio; Bichsel et
al., DP-Sniper, 2021, learn it by a classifier). Small trees add what features tell only together. Which half-line
proves most, of all features or of few, with trees or without, is chosen on transcripts that the classifier has not
seen. What the event then proves is counted on fresh ones, elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.audit import bounds, features, kernels
from tidegate.audit.features import Codes, Features, Floats
from tidegate.audit.trees import Trees, grow
from tidegate.policy import Budget, ZeroConcentrated

THRESHOLDS = 160
SWEEPS = 10
# ridge, how many of the best features, and whether trees are added: what few transcripts teach is little, and rules of
# many features learn their noise as well; fresh transcripts choose
MODELS = (
    (30.0, 999, False),
    (30.0, 999, True),
    (4.0, 8, False),
    (8.0, 5, True),
    (20.0, 8, True),
    (8.0, 3, False),
)
BRIEF = MODELS[2:3]
ALONE = 2.0  # ridge of a direction that is looked at alone
FARTHEST = 4.0  # scores are cut off there before they are averaged
LEAST_FOR_TREES = 200  # transcripts: fewer say nothing about several features together
REACHES = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0)


@dataclass(frozen=True)
class Distinguisher:
    """A fixed set of transcripts: score ≥ threshold, where the score is a sum of weights of bins.

    Attributes
    ----------
    features, weights
        What is looked at, and how much each bin counts.
    threshold
        From which score on a transcript belongs to the event.
    sign
        1: likelier under the first stream. −1: the score is negated, and it is likelier under the second.
    reach
        For zCDP: scores are cut off at ± this before they are averaged; 0: they are not averaged.
    trees
        What features add to the score together, if anything.
    """

    features: Features
    weights: Floats
    threshold: float
    sign: int
    reach: float = 0.0
    trees: Trees | None = None

    def scores(self, transcripts: Floats) -> Floats:
        """How much likelier each transcript is under the stream that the event is likelier under."""
        return scores(self.features, self.weights, transcripts, self.trees) * self.sign

    def __str__(self) -> str:
        """In words: the features whose weights differ most."""
        spread = np.ptp(self.weights, axis=1)
        names = self.features.names
        heaviest = [names[at] for at in np.argsort(spread)[::-1][:3]]
        return f"a score of at least {self.threshold:.4g}, made of {len(names)} features, above all {'; '.join(heaviest)}"

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "features": self.features.describe(),
            "weights": self.weights.tolist(),
            "threshold": self.threshold,
            "sign": self.sign,
            "reach": self.reach,
            "trees": None if self.trees is None else self.trees.describe(),
        }

    @classmethod
    def read(cls, described: dict[str, Any], width: int) -> Distinguisher:
        """What `describe` wrote; `width` is the number of values of a transcript."""
        return cls(
            Features.read(described["features"], width),
            np.array(described["weights"], dtype=np.float64),
            float(described["threshold"]),
            int(described["sign"]),
            float(described["reach"]),
            Trees.read(described["trees"]) if described.get("trees") else None,
        )


@dataclass(frozen=True)
class Learnt:
    """An event with what it seems to prove, before it is tested.

    Attributes
    ----------
    event
        The event.
    promise
        The loss that a final test of so many transcripts would prove if its chances were as estimated.
    estimate
        The loss that the estimated chances themselves imply.
    apart
        How far the mean scores of both sides are apart, less their standard error: what can be said of few transcripts.
    """

    event: Distinguisher
    promise: float
    estimate: float
    apart: float = 0.0


def scores(fitted: Features, weights: Floats, transcripts: Floats, trees: Trees | None = None) -> Floats:
    """How much likelier each transcript is under the first stream (a logarithm, up to a constant)."""
    out = np.empty(len(transcripts))
    codes = fitted.codes(transcripts)
    kernels.add_up(codes, weights, out)
    if trees is not None:
        trees.add(codes, out)
    return out


def learn(
    first: Floats,
    second: Floats,
    width: int,
    budget: Budget,
    trials: int,
    error: float,
    shown: int = 0,
    steps: int = 0,
    *,
    thorough: bool = True,
) -> Learnt:
    """Learn the event that a final test of `trials` transcripts a side would prove most with.

    Half of the transcripts train the classifier, the other half choose the half-line of its scores. `width`,
    `shown` and `steps` say how a transcript is laid out; see `features.fit`. Whoever only looks for a pair is not
    `thorough`, and tries one kind of rule only.
    """
    half = len(first) // 2
    fitted = features.fit(first[:half], second[:half], width, shown, steps)
    if not fitted.count:
        empty = Distinguisher(fitted, np.zeros((0, 1)), 0.0, 1)
        return Learnt(empty, 0.0, 0.0)
    codes = fitted.codes(np.concatenate([first[:half], second[:half]]))
    labels = np.repeat([1.0, 0.0], [half, half])
    fresh = first[half:], second[half:]
    order = _by_gain(codes, half)
    best: Learnt | None = None
    models = [(ridge, order[:most], trees) for ridge, most, trees in (MODELS if thorough else BRIEF)]
    if thorough:
        models += [(ALONE, order[order == at], False) for at in fitted.places_of_directions]
    for ridge, used, with_trees in models:
        weights, explained = np.zeros((fitted.count, 256)), np.zeros(2 * half)
        some = weights[used]
        rate = min(1.0, 3.0 / np.sqrt(len(used)))
        kernels.boost(np.ascontiguousarray(codes[used]), labels, SWEEPS, ridge, rate, some, explained)
        weights[used] = some
        trees = None
        if with_trees:
            if 2 * half < LEAST_FOR_TREES:
                continue
            trees = grow(codes, labels, explained)
        found = choose(fitted, weights, *fresh, budget, trials, error, trees)
        if best is None or (found.promise, found.apart) > (best.promise, best.apart):
            best = found
    assert best is not None
    return best


def _by_gain(codes: Codes, half: int) -> npt.NDArray[np.int64]:
    """Features by how far they tell both sides apart: χ² beyond what chance makes of so many bins, in its own spread."""
    gains = []
    for row in codes:
        a, b = (np.bincount(side, minlength=256) for side in (row[:half], row[half:]))
        freedom = max(int(np.count_nonzero(a + b)) - 1, 1)
        apart = float(np.sum((a - b) ** 2 / np.maximum(a + b, 1)))
        gains.append((apart - freedom) / np.sqrt(2.0 * freedom))
    return np.argsort(-np.array(gains), kind="stable")


def choose(
    fitted: Features,
    weights: Floats,
    first: Floats,
    second: Floats,
    budget: Budget,
    trials: int,
    error: float,
    trees: Trees | None = None,
) -> Learnt:
    """The half-line of the scores that promises most, in either direction; for zCDP perhaps their mean."""
    one, other = (scores(fitted, weights, side, trees) for side in (first, second))
    seen = len(one)
    apart = _apart(one, other)
    best = Learnt(Distinguisher(fitted, weights, np.inf, 1), 0.0, 0.0, apart)
    concentrated = isinstance(budget, ZeroConcentrated)
    share = error / 2 if concentrated else error
    for sign, a, b in ((1, np.sort(one), np.sort(other)), (-1, np.sort(-other), np.sort(-one))):
        marks = np.unique(
            np.concatenate(
                [np.quantile(side, np.linspace(0, 1, THRESHOLDS), method="nearest") for side in (a, b)]
            )
        )
        in_a = seen - np.searchsorted(a, marks, side="left")
        in_b = seen - np.searchsorted(b, marks, side="left")
        # a careful guess of the chances (the best of many half-lines looks better than it is), then the test
        share_a = np.maximum(in_a - 2.0 * np.sqrt(in_a + 1.0), 0.0) / seen
        share_b = (in_b + 2.0 * np.sqrt(in_b + 1.0) + 1.0) / seen
        promised = bounds.proved(
            np.minimum(share_a, 1.0) * trials, np.minimum(share_b, 1.0) * trials, trials, share, budget
        )
        at = int(np.argmax(promised))
        promise, reach = float(promised[at]), 0.0
        if concentrated:
            reach, averaged = _reach(a, b, trials, share)
            promise = max(promise, averaged)
        if promise > best.promise:
            estimate = float(bounds.implied(in_a[at] / seen, max(in_b[at], 0.5) / seen, budget))
            event = Distinguisher(fitted, weights, float(marks[at]), sign, reach, trees)
            best = Learnt(event, promise, max(estimate, promise if concentrated else 0.0), apart)
    return best


def _apart(one: Floats, other: Floats) -> float:
    one, other = np.clip(one, -FARTHEST, FARTHEST), np.clip(other, -FARTHEST, FARTHEST)
    error = np.sqrt((one.var() + other.var()) / max(len(one), 1))
    return max(float(one.mean() - other.mean() - error), 0.0)


def _reach(one: Floats, other: Floats, trials: int, error: float) -> tuple[float, float]:
    """Where to cut scores off so that their mean promises most, and what it promises."""
    best = (1.0, 0.0)
    for reach in REACHES:
        tally = bounds.Mean(reach)
        tally.add(0, one)
        tally.add(1, other)
        promise = tally.proved(error, trials, doubt=2.0)
        if promise > best[1]:
            best = (reach, promise)
    return best
