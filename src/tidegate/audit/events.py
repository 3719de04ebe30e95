"""Events: sets of transcripts that one neighbour produces more often than the other, learnt from examples.

An additive logistic regression on binned features estimates how much likelier a transcript is under the
first stream than under the second (Neyman and Pearson: the best event is a half-line of that ratio; Bichsel et
al., DP-Sniper, 2021, learn it by a classifier). Which half-line proves most is chosen on transcripts
that the classifier has not seen. What the event then proves is counted on fresh ones, elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate.audit import bounds, features, kernels
from tidegate.audit.features import Features, Floats
from tidegate.policy import Budget, ZeroConcentrated

THRESHOLDS = 160
SWEEPS = 10
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
    """

    features: Features
    weights: Floats
    threshold: float
    sign: int
    reach: float = 0.0

    def scores(self, transcripts: Floats) -> Floats:
        """How much likelier each transcript is under the stream that the event is likelier under."""
        return scores(self.features, self.weights, transcripts) * self.sign

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
    """

    event: Distinguisher
    promise: float
    estimate: float


def scores(fitted: Features, weights: Floats, transcripts: Floats) -> Floats:
    """How much likelier each transcript is under the first stream (a logarithm, up to a constant)."""
    out = np.empty(len(transcripts))
    kernels.add_up(fitted.codes(transcripts), weights, out)
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
) -> Learnt:
    """Learn the event that a final test of `trials` transcripts a side would prove most with.

    Half of the transcripts train the classifier, the other half choose the half-line of its scores. `width`,
    `shown` and `steps` say how a transcript is laid out; see `features.fit`.
    """
    half = len(first) // 2
    fitted = features.fit(first[:half], second[:half], width, shown, steps)
    if not fitted.count:
        empty = Distinguisher(fitted, np.zeros((0, 1)), 0.0, 1)
        return Learnt(empty, 0.0, 0.0)
    codes = fitted.codes(np.concatenate([first[:half], second[:half]]))
    labels = np.repeat([1.0, 0.0], [half, half])
    weights = np.zeros((fitted.count, 256))
    rate = min(1.0, 3.0 / np.sqrt(fitted.count))
    kernels.boost(codes, labels, SWEEPS, 2.0, rate, weights, np.zeros(2 * half))
    return choose(fitted, weights, first[half:], second[half:], budget, trials, error)


def choose(
    fitted: Features,
    weights: Floats,
    first: Floats,
    second: Floats,
    budget: Budget,
    trials: int,
    error: float,
) -> Learnt:
    """The half-line of the scores that promises most, in either direction; for zCDP perhaps their mean."""
    one, other = scores(fitted, weights, first), scores(fitted, weights, second)
    seen = len(one)
    best = Learnt(Distinguisher(fitted, weights, np.inf, 1), 0.0, 0.0)
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
            event = Distinguisher(fitted, weights, float(marks[at]), sign, reach)
            best = Learnt(event, promise, max(estimate, promise if concentrated else 0.0))
    return best


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
