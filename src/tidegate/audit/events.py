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
import numpy.typing as npt

from tidegate.audit import bounds, features, kernels
from tidegate.audit.features import Features, Floats
from tidegate.policy import Budget

THRESHOLDS = 160
SWEEPS = 10


@dataclass(frozen=True)
class Event:
    """A fixed set of transcripts: score ≥ threshold, where the score is a sum of weights of bins.

    Attributes
    ----------
    features, weights
        What is looked at, and how much each bin counts.
    threshold
        From which score on a transcript belongs to the event.
    sign
        1: likelier under the first stream. −1: the score is negated, and it is likelier under the second.
    """

    features: Features
    weights: Floats
    threshold: float
    sign: int

    def contains(self, transcripts: Floats) -> npt.NDArray[np.bool_]:
        """Which transcripts belong to the event."""
        return scores(self.features, self.weights, transcripts) * self.sign >= self.threshold

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "features": self.features.describe(),
            "weights": self.weights.tolist(),
            "threshold": self.threshold,
            "sign": self.sign,
        }

    @classmethod
    def read(cls, described: dict[str, Any], width: int) -> Event:
        """What `describe` wrote; `width` is the number of values of a transcript."""
        return cls(
            Features.read(described["features"], width),
            np.array(described["weights"], dtype=np.float64),
            float(described["threshold"]),
            int(described["sign"]),
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

    event: Event
    promise: float
    estimate: float


def scores(fitted: Features, weights: Floats, transcripts: Floats) -> Floats:
    """How much likelier each transcript is under the first stream (a logarithm, up to a constant)."""
    out = np.empty(len(transcripts))
    kernels.add_up(fitted.codes(transcripts), weights, out)
    return out


def learn(first: Floats, second: Floats, width: int, budget: Budget, trials: int, error: float) -> Learnt:
    """Learn the event that a final test of `trials` transcripts a side would prove most with.

    Half of the transcripts train the classifier, the other half choose the half-line of its scores.
    """
    half = len(first) // 2
    pooled = np.concatenate([first[:half], second[:half]])
    fitted = features.fit(pooled, width)
    if not fitted.count:
        empty = Event(fitted, np.zeros((0, 1)), 0.0, 1)
        return Learnt(empty, 0.0, 0.0)
    codes = fitted.codes(pooled)
    labels = np.repeat([1.0, 0.0], [half, len(pooled) - half])
    weights = np.zeros((fitted.count, 256))
    rate = min(1.0, 3.0 / np.sqrt(fitted.count))
    kernels.boost(codes, labels, SWEEPS, 2.0, rate, weights, np.zeros(len(pooled)))
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
    """The half-line of the scores that promises most, in either direction."""
    one, other = scores(fitted, weights, first), scores(fitted, weights, second)
    seen = len(one)
    best = Learnt(Event(fitted, weights, np.inf, 1), 0.0, 0.0)
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
            np.minimum(share_a, 1.0) * trials, np.minimum(share_b, 1.0) * trials, trials, error, budget
        )
        at = int(np.argmax(promised))
        if promised[at] > best.promise:
            estimate = float(bounds.implied(in_a[at] / seen, max(in_b[at], 0.5) / seen, budget))
            best = Learnt(Event(fitted, weights, float(marks[at]), sign), float(promised[at]), estimate)
    return best
