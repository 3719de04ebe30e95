"""The proof: count a fixed event on fresh transcripts of both streams, and say what the counts imply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tidegate.audit import bounds
from tidegate.audit.events import Distinguisher
from tidegate.audit.neighbours import Counts
from tidegate.audit.subjects import Failure, Subject
from tidegate.policy import Budget, ZeroConcentrated

CHUNK = 100_000  # transcripts at once


@dataclass(frozen=True)
class Proof:
    """What was counted, and what it proves.

    Attributes
    ----------
    loss, estimate
        The loss that is proved, and the one that the same counts suggest.
    counts, trials
        How often the event happened under each stream, of how many transcripts.
    by_mean
        Whether the mean of the scores proved more than the event (zCDP).
    """

    loss: float
    estimate: float
    counts: tuple[int, int]
    trials: int
    by_mean: bool = False


def prove(
    subject: Subject,
    streams: tuple[Counts, Counts],
    event: Distinguisher,
    trials: int,
    error: float,
    budget: Budget,
    width: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Proof:
    """Draw `trials` fresh transcripts of each stream; the first is the one that the event is likelier under.

    Nothing about the test is chosen after the first of them is seen, so it errs with a chance of at most `error`.

    Raises
    ------
    Failure
        With `side` set, where the subject fails.
    """
    counted = np.zeros(2, dtype=np.int64)
    mean = bounds.Mean(event.reach)
    for start in range(0, trials, CHUNK):
        if progress is not None:
            progress(start / trials)
        for side, stream in enumerate(streams):
            try:
                drawn = subject.sample(stream, min(CHUNK, trials - start))
            except Failure as failure:
                failure.side = side
                raise
            if width and drawn.shape[1] != width:
                changed = Failure("shape", "it returned another number of values")
                changed.side = side
                raise changed
            scores = event.scores(drawn)
            counted[side] += int(np.count_nonzero(scores >= event.threshold))
            mean.add(side, scores)
    concentrated = isinstance(budget, ZeroConcentrated) and event.reach > 0
    share = error / 2 if concentrated else error
    loss = float(bounds.proved(counted[0], counted[1], trials, share, budget))
    estimate = float(bounds.implied(counted[0] / trials, max(int(counted[1]), 0.5) / trials, budget))
    by_mean = False
    if concentrated:
        averaged = mean.proved(share)
        by_mean = averaged > loss
        loss, estimate = max(loss, averaged), max(estimate, mean.estimate)
    return Proof(loss, estimate, (int(counted[0]), int(counted[1])), trials, by_mean)
