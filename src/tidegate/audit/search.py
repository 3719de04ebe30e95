"""The statistical tester: look for the pair and the event that prove most, then prove it on fresh transcripts.

The search may look at as much as it likes, because it decides nothing: the few events that it proposes are
tested on transcripts nobody has seen, and the error is divided among these final tests (union bound).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tidegate.audit import bounds, events, neighbours
from tidegate.audit.events import Distinguisher, Learnt
from tidegate.audit.neighbours import Pair
from tidegate.audit.proving import prove
from tidegate.audit.subjects import Failure, Floats, Stopwatch, Subject
from tidegate.policy import Budget

FINALS = 2  # events that are tested
ROUNDS = 40  # of variations
SLOW = 600_000  # transcripts in all: a subject that gives fewer tests one event, with all the time there is
FEWEST, FEW = 5, 30  # pairs that are looked at where transcripts are few
LEARNING = 3  # an event is learnt in so many times the time in which it is looked for in as many transcripts
PLAIN = 1.3  # a promise of so many times the claim needs no better pair
HOPELESS = 0.5  # of the claim: a pair that promises less is not worth a proof in a quick search
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Effort:
    """How much work an audit may be.

    Attributes
    ----------
    seconds
        About how long the whole search takes.
    trials
        Transcripts a side of the final tests, at most.
    scan
        Transcripts a side with which each pair is looked at first.
    pairs
        How many pairs are looked at.
    levels
        Where the subject decides: values at which streams are placed as well.
    fewest
        Transcripts a side of the final tests, at least, however long they take.
    quick
        Whether a search ends without a final test where the best pair promises less than half of the claim.

    Examples
    --------
    >>> Effort(seconds=5).trials
    1000000
    """

    seconds: float = 20.0
    trials: int = 1_000_000
    scan: int = 6000
    pairs: int = 60
    levels: tuple[int, ...] = ()
    fewest: int = 2000
    quick: bool = False


@dataclass
class Found:
    """What a statistical audit has found.

    Attributes
    ----------
    loss
        The loss that is proved, in the budget's own measure.
    estimate
        The loss that the same counts suggest.
    power
        With all noise smaller by this factor the claim would have been refuted.
    pair, event
        Where: the streams, first the one that the event is likelier under.
    counts, trials, error
        How often the event happened under each, of how many, and the chance that the proof errs.
    by_mean
        Whether the mean of the event's scores proved more than the event (zCDP).
    """

    loss: float = 0.0
    estimate: float = 0.0
    power: float = float("inf")
    pair: Pair | None = None
    event: Distinguisher | None = None
    counts: tuple[int, int] = (0, 0)
    trials: int = 0
    error: float = 1.0
    pairs_tried: int = 0
    transcripts: int = 0
    width: int = 0
    seconds: float = 0.0
    by_mean: bool = False
    promised: list[tuple[str, float]] = field(default_factory=list)


class FailureAt(Exception):
    """A failure and the stream on which it happened."""

    def __init__(self, failure: Failure, pair: Pair, side: int) -> None:
        super().__init__(str(failure))
        self.failure, self.pair, self.side = failure, pair, side


class Search:
    """One statistical audit."""

    def __init__(
        self,
        subject: Subject,
        budget: Budget,
        error: float,
        effort: Effort,
        steps: int | None = None,
        pairs: Sequence[Pair] = (),
        progress: Progress | None = None,
        seed: int | str = 0,
    ) -> None:
        self.subject, self.budget, self.error, self.effort = subject, budget, error, effort
        self.steps = steps or neighbours.default_steps(subject.policy)
        self.stored = list(pairs)
        self.progress: Progress = progress or (lambda words, share: None)
        self.choose = neighbours.chooser(seed)
        self.found = Found()
        self.watch = Stopwatch()
        self.claim = float(bounds.claimed(budget))
        # until its speed is known
        self._finals, self._trials, self._count, self._slow = FINALS, effort.trials, 0, False

    def run(self) -> Found:
        """Scan, climb, learn, and prove."""
        looked = self._scan()
        looked = self._climb(looked)
        if self.effort.quick and looked and looked[0][0] < HOPELESS * self.claim:
            self.found.estimate, self.found.seconds = looked[0][0], self.watch.seconds()
            return self.found
        plain = looked and looked[0][0] > PLAIN * self.claim
        finalists = self._learn(looked[: 1 if plain else 2 * self._finals])
        for pair, learnt in finalists[: self._finals]:
            self._prove(pair, learnt)
            if self.found.loss > self.claim:
                break
        self.found.seconds = self.watch.seconds()
        return self.found

    def _after(self, seconds: float) -> Callable[[], bool]:
        return lambda: self.watch.seconds() > seconds

    def _late(self, share: float) -> bool:
        """Whether a share of the whole time is over."""
        return self.watch.seconds() > share * self.effort.seconds

    def _draw(self, pair: Pair, count: int, share: float = 1.0) -> tuple[Floats, Floats]:
        """Transcripts of both streams, fewer if they take longer than until a share of the whole time is over."""
        drawn = []
        for side, stream in enumerate((pair.first, pair.second)):
            begun, end = self.watch.seconds(), share * self.effort.seconds
            middle = begun + (end - begun) / (2 - side)
            try:
                drawn.append(self.subject.sample(stream, count, self._after(middle)))
            except Failure as failure:
                raise FailureAt(failure, pair, side) from failure
        one, other = drawn
        if one.shape[1] != other.shape[1]:
            shapes = f"{one.shape[1]} numbers for the first stream and {other.shape[1]} for the second"
            raise FailureAt(Failure("shape", f"it returned {shapes}"), pair, 1)
        self.found.transcripts += len(one) + len(other)
        return one, other

    def _look(self, pair: Pair, count: int, share: float = 1.0) -> Learnt:
        return self._learnt(pair, *self._draw(pair, count, share))

    def _learnt(self, pair: Pair, one: Floats, other: Floats) -> Learnt:
        fewer = min(len(one), len(other))
        shown, width, steps = self.subject.layout(len(pair.first))
        width = width or max(1, one.shape[1] // len(pair.first))
        self.found.width = one.shape[1]
        error, trials = self.error / self._finals, self._trials
        return events.learn(one[:fewer], other[:fewer], width, self.budget, trials, error, shown, steps)

    def _candidates(self) -> list[Pair]:
        policy, columns = self.subject.policy, self.subject.columns
        pairs = list(self.stored)
        if len(pairs) >= self.effort.pairs:
            return pairs
        known = neighbours.library(policy, columns, self.steps)
        first = neighbours.known_pairs(known)
        placed = neighbours.placed(policy, columns, self.steps, self.effort.levels)
        rest, placed = self._shuffled(known[first:]), self._shuffled(placed)
        mixed = [pair for both in zip(placed, rest, strict=False) for pair in both]
        mixed += [*placed[len(rest) :], *rest[len(placed) :]]
        pairs += [*known[:first], *mixed][: max(self.effort.pairs * 3 // 4, 1)]
        for _ in range(4 * self.effort.pairs):
            if len(pairs) >= self.effort.pairs:
                break
            made = neighbours.random_pair(policy, columns, self.steps, self.choose)
            if made is not None:
                pairs.append(made)
        return pairs

    def _rate(self, pair: Pair) -> float:
        """About how many transcripts are drawn and scored in a second."""
        count = 64 if self.effort.quick else 256
        while True:  # until it takes long enough to be measured
            begun, before = self.watch.seconds(), self.found.transcripts
            one, other = self._draw(pair, count)
            drawn, middle = self.found.transcripts - before, self.watch.seconds()
            if middle - begun > 0.03 or count >= 1 << 14:
                self._learnt(pair, one, other)
                scored = (self.watch.seconds() - middle) / LEARNING
                return drawn / max(middle - begun + scored, 1e-3)
            count *= 4

    def _shuffled(self, pairs: Sequence[Pair]) -> list[Pair]:
        return sorted(pairs, key=lambda _: self.choose(1 << 30))

    def _scan(self) -> list[tuple[float, Pair]]:
        """Look at every pair a little; a slow subject with fewer transcripts."""
        pairs = self._candidates()
        if not pairs:
            return []
        self._draw(pairs[0], 64)  # also compiles
        in_all = self._rate(pairs[0]) * self.effort.seconds
        self._slow, fewest = in_all < SLOW, self.effort.fewest
        if self._slow:
            pairs, self._finals = pairs[: int(np.clip(0.2 * in_all / 600, FEWEST, FEW))], 1
        least = min(300, fewest // (10 if self.effort.quick else 6))
        self._count = count = int(np.clip(0.2 * in_all / (2 * len(pairs)), least, self.effort.scan))
        self._trials = int(np.clip(0.4 * in_all / (2 * self._finals), fewest, self.effort.trials))
        looked = []
        for at, pair in enumerate(pairs):
            if at >= FEWEST and self._late(0.35):
                break
            self.progress(f"looking at pair {at + 1} of {len(pairs)}", 0.3 * at / len(pairs))
            learnt = self._look(pair, count)
            looked.append((learnt.promise + 1e-3 * learnt.estimate, pair))
            self.found.pairs_tried += 1
            if learnt.promise > PLAIN * self.claim:
                break
        return sorted(looked, key=lambda entry: -entry[0])

    def _climb(self, looked: list[tuple[float, Pair]]) -> list[tuple[float, Pair]]:
        """Look again at the best with more transcripts, and at their variations."""
        count = (2 if self._slow else 4) * self._count if looked else 0
        seen = {pair.key for _, pair in looked}
        best: list[tuple[float, Pair]] = []
        for seen_before, pair in looked[: 3 if self._slow else 6]:
            if best and best[0][0] > PLAIN * self.claim:
                break
            if self._slow and self._late(0.45):  # what it has seen of them must do
                best.append((seen_before, pair))
                continue
            learnt = self._look(pair, count, 0.5)
            best.append((learnt.promise, pair))
        rounds = 0
        if best and max(promise for promise, _ in best) > PLAIN * self.claim:
            rounds = ROUNDS
        while best and not self._late(0.4 if self._slow else 0.5) and rounds < ROUNDS:
            rounds += 1
            self.progress(f"varying the best pairs, round {rounds}", 0.3 + 0.2 * rounds / ROUNDS)
            best.sort(key=lambda entry: -entry[0])
            near = neighbours.varied(
                self.subject.policy,
                best[self.choose(min(3, len(best)))][1],
                self.choose,
                self.effort.levels,
            )
            if near is None or near.key in seen:
                continue
            seen.add(near.key)
            self.found.pairs_tried += 1
            best.append((self._look(near, count, 0.55).promise, near))
        best.sort(key=lambda entry: -entry[0])
        self.found.promised = [(pair.origin, promise) for promise, pair in best[:8]]
        return best

    def _learn(self, best: list[tuple[float, Pair]]) -> list[tuple[Pair, Learnt]]:
        """Learn the finalists' events from many transcripts."""
        finalists: list[tuple[Pair, Learnt]] = []
        count = int(np.clip(self._trials // 3, self.effort.fewest // 2, 150_000)) if best else 0
        for at, (_, pair) in enumerate(best):
            self.progress("learning events", 0.5 + 0.1 * at / max(len(best), 1))
            if finalists and self._late(0.7):
                break
            finalists.append((pair, self._look(pair, count, 0.6 + 0.05 * at)))
        return sorted(finalists, key=lambda entry: -entry[1].promise)

    def _prove(self, pair: Pair, learnt: Learnt) -> None:
        """Count a fixed event on fresh transcripts."""
        assert self.subject.policy.distance(pair.first, pair.second) == 1, "only neighbours prove anything"
        event = learnt.event
        streams = (pair.first, pair.second) if event.sign > 0 else (pair.second, pair.first)
        wanted = self._trials  # fixed before the first of them is seen

        def show(share: float) -> None:
            self.progress(f"proving on {wanted:,} fresh transcripts a side", 0.6 + 0.4 * share)

        try:
            proof = prove(
                self.subject,
                streams,
                event,
                wanted,
                self.error / self._finals,
                self.budget,
                self.found.width,
                show,
            )
        except Failure as failure:
            raise FailureAt(failure, Pair(*streams, pair.origin), failure.side) from failure
        found = self.found
        found.transcripts += 2 * wanted
        reached = proof.estimate - proof.loss  # what confidence costs at these counts
        power = (self.claim + reached) / proof.estimate if proof.estimate > 0 else float("inf")
        found.power = min(found.power, power)
        if proof.loss > found.loss or found.pair is None:
            found.loss, found.estimate = proof.loss, proof.estimate
            found.pair = Pair(*streams, pair.origin)
            found.event, found.counts, found.trials = event, proof.counts, proof.trials
            found.error, found.by_mean = self.error, proof.by_mean
