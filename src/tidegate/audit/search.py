"""The statistical tester: look for the pair and the event that prove most, then prove it on fresh transcripts.

The search may look at as much as it likes, because it decides nothing: the few events that it proposes are
tested on transcripts nobody has seen, and the error is divided among these final tests (union bound).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np

from tidegate.audit import bounds, events, moments, neighbours
from tidegate.audit.events import Distinguisher, Learnt
from tidegate.audit.neighbours import Choose, Pair
from tidegate.audit.proving import Proof, prove
from tidegate.audit.subjects import Failure, Floats, Stopwatch, Subject
from tidegate.policy import Budget

FINALS = 2  # events that are tested
ROUNDS = 40  # of variations
SLOW = 600_000  # transcripts in all: a subject that gives fewer tests one event, with all the time there is
FEWEST, FEW = 5, 30  # pairs that are looked at where transcripts are few
MOST_LEARNT = 60_000  # transcripts a side from which an event is learnt: more would teach it nothing
PLAIN = 1.3  # a promise of so many times the claim needs no better pair
MOST_PROBED = 2048  # transcripts a side by which the speed is measured
FAR = 0.2  # of how far scores are apart is added to what a pair promises below the claim
SEEMING = 0.9  # times the claim must be seen by an event that is doubted
KNOWN_FIRST = 4  # known pairs before any others
SILENT = 8  # pairs after which a subject that has shown nothing is left alone
PROMISING = 3  # pairs that are handed on to a later search
SCOUTED, MOST_SCOUTED = (
    400,
    1200,
)  # transcripts a side with which a pair is looked at where the test comes later
FEWEST_SCOUTED = 4  # pairs
# pairs whose means are looked at: in what part of the time, with how many transcripts, how many, and how many are kept
MOVED_SHARE, MOVED, ENOUGH_MOVED, MOST_MOVED, MOVED_KEPT = 0.15, (200, 3000), 60, 1000, 6
MOVED_BEGIN, LONG_ENOUGH = 8, 0.002  # transcripts, and seconds, by which the speed is measured
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
    moments
        Steps after which something public happens: streams change there as well.
    fewest
        Transcripts a side of the final tests, at least, however long they take.
    later
        Seconds of a later search that tests the most promising pair. This one only looks for it: pairs are ranked by what
        they promise then, and nothing is tested now unless it is plain. 0: there is none.
    settled
        Whether pairs are given that another search has found: most of the time goes to the final test.
    doubted
        Whether there is no test unless the event that was learnt seems to show more than the claim.

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
    moments: tuple[int, ...] = ()
    fewest: int = 2000
    later: float = 0.0
    settled: bool = False
    doubted: bool = False


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
    promising
        The best pairs with what they promise, best first.
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
    promising: list[tuple[float, Pair]] = field(default_factory=list)

    def take(self, proof: Proof, pair: Pair, event: Distinguisher, claim: float, error: float) -> bool:
        """Add a proof; whether it is the best so far."""
        self.transcripts += 2 * proof.trials
        reached = proof.estimate - proof.loss  # what confidence costs at these counts
        power = (claim + reached) / proof.estimate if proof.estimate > 0 else float("inf")
        self.power = min(self.power, power)
        if proof.loss <= self.loss and self.pair is not None:
            return False
        self.loss, self.estimate, self.by_mean = proof.loss, proof.estimate, proof.by_mean
        self.pair, self.event = pair, event
        self.counts, self.trials, self.error = proof.counts, proof.trials, error
        return True


class FailureAt(Exception):
    """A failure and the stream on which it happened."""

    def __init__(self, failure: Failure, pair: Pair, side: int) -> None:
        super().__init__(str(failure))
        self.failure, self.pair, self.side = failure, pair, side


def rank(learnt: Learnt, claim: float) -> float:
    """What a pair promises; below the claim also how far apart its streams seem, which few transcripts show."""
    if learnt.promise > claim:
        return learnt.promise
    return learnt.promise + min(FAR * learnt.apart, claim / 2) * (1 - learnt.promise / claim)


def candidates(
    subject: Subject, steps: int, effort: Effort, choose: Choose, stored: Sequence[Pair] = ()
) -> list[Pair]:
    """Pairs to be looked at, in this order: given ones, some known ones, then tied, placed, known and other ones in turn.

    Where something happens to a run at a step, pairs that differ there have two of three turns.
    """
    policy, columns = subject.policy, subject.columns
    pairs = list(stored)
    if len(pairs) >= effort.pairs:
        return pairs
    known = neighbours.library(policy, columns, steps)
    first = neighbours.known_pairs(known)
    rest = sorted(known[first:], key=lambda _: choose(1 << 30))
    placed = sorted(
        neighbours.placed(policy, columns, steps, effort.levels),
        key=lambda pair: (not neighbours.passes(pair, policy, effort.levels), choose(1 << 30)),
    )
    compared = [pair for pair in placed if neighbours.AFTER_FIRST in pair.origin and pair.begins]
    wanted = range(effort.pairs // 2)
    made = [
        neighbours.tied_pair(policy, columns, steps, choose, effort.levels, effort.moments) for _ in wanted
    ]
    tied = list({pair.key: pair for pair in made if pair is not None}.values())
    first = min(first, effort.pairs // 2)  # others have a chance as well
    others = _in_turn(compared, placed, known[KNOWN_FIRST:first], rest)
    short = placed if len(placed) <= effort.pairs // 2 else []  # then there is time for all of them
    ordered = [*known[: min(first, KNOWN_FIRST)], *short, *_in_turn(tied, others)]
    at = [step - 1 for step in subject.moments(steps) if step <= steps]
    if at:
        there = [bool(np.any(pair.first[at] != pair.second[at])) for pair in ordered]
        near = [pair for pair, is_there in zip(ordered, there, strict=True) if is_there]
        other = [pair for pair, is_there in zip(ordered, there, strict=True) if not is_there]
        ordered = _in_turn(near[::2], near[1::2], other)
    if not getattr(subject, "signed", False):
        ordered = [pair for pair in ordered if not pair.below_zero]
    pairs += ordered[: max(effort.pairs * 3 // 4, 1)]
    for _ in range(4 * effort.pairs):
        if len(pairs) >= effort.pairs:
            break
        drawn = neighbours.random_pair(policy, columns, steps, choose)
        if drawn is not None:
            pairs.append(drawn)
    return list({pair.key: pair for pair in pairs}.values())


def _in_turn(*lists: list[Pair]) -> list[Pair]:
    """One of each list after the other, as long as it has any."""
    return [pair for some in zip_longest(*lists) for pair in some if pair is not None]


def most_moved(
    subject: Subject, steps: int, pairs: Sequence[Pair], budget: Budget, seconds: float, choose: Choose
) -> list[tuple[float, Pair]]:
    """Pairs whose means move, with the loss that this may suggest, most first: given ones, and more as there is time for.

    A unit is tried at every place of a quiet stream, and then in all patterns.
    """
    policy, watch = subject.policy, Stopwatch()
    known = {pair.key for pair in pairs}
    every = neighbours.everywhere(policy, subject.columns, steps)
    more = [pair for pair in neighbours.library(policy, subject.columns, steps) if pair.key not in known]
    more.sort(key=lambda _: choose(1 << 30))
    tried = _in_turn(every, list(pairs), more)
    if not getattr(subject, "signed", False):
        tried = [pair for pair in tried if not pair.below_zero]
    count, moved = 0, list[tuple[float, Pair]]()
    for at, pair in enumerate(tried[:MOST_MOVED]):
        if at >= 2 and watch.seconds() > seconds:
            break
        try:
            if not count:
                subject.sample(pair.first, 2)  # also compiles
                some, took = MOVED_BEGIN, 0.0
                while took < LONG_ENOUGH and some <= MOVED[1]:  # many at once may take as long as one
                    watch = Stopwatch()
                    subject.sample(pair.first, some)
                    took, some = max(watch.seconds(), 1e-5), 8 * some
                each = 8 * took / some
                if 2 * each * MOVED[0] > seconds:
                    return []  # it takes too long for that
                count = int(np.clip(seconds / (2 * each * ENOUGH_MOVED), *MOVED))
            one, other = subject.sample(pair.first, count), subject.sample(pair.second, count)
        except Failure as failure:
            raise FailureAt(failure, pair, 0) from failure
        if one.shape[1] == other.shape[1]:
            marks = subject.layout(steps).marks(one.shape[1])
            moved.append((moments.suggested(one, other, budget, marks).most, pair))
    moved.sort(key=lambda entry: -entry[0])
    return [(lost, pair) for lost, pair in moved if lost > 0]


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
        self._silent = True  # whether all transcripts are the same
        self._judged = effort.trials  # transcripts a side of the test by which pairs are judged

    def run(self) -> Found:
        """Scan, climb, learn, and prove."""
        looked = self._scan()
        if not self.effort.settled:
            looked = self._climb(looked)
        self.found.promising = looked[:PROMISING]
        plain = bool(looked) and looked[0][0] > PLAIN * self.claim
        if self.effort.later and not plain:
            self.found.estimate, self.found.seconds = looked[0][0] if looked else 0.0, self.watch.seconds()
            return self.found
        finalists = self._learn(looked[: 1 if plain else 2 * self._finals])
        for pair, learnt in finalists[: self._finals]:
            if self.effort.doubted and learnt.estimate < SEEMING * self.claim:
                continue
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
        self._silent = self._silent and not np.ptp(np.concatenate([one, other]), axis=0).any()
        return one, other

    def _look(self, pair: Pair, count: int, share: float = 1.0, *, thorough: bool = True) -> Learnt:
        return self._learnt(pair, *self._draw(pair, count, share), self._judged, thorough=thorough)

    def _learnt(
        self, pair: Pair, one: Floats, other: Floats, trials: int, *, thorough: bool = True
    ) -> Learnt:
        fewer = min(len(one), len(other))
        shown, width, steps = self.subject.layout(len(pair.first))
        width = width or max(1, one.shape[1] // len(pair.first))
        self.found.width = one.shape[1]
        error = self.error / self._finals
        both = one[:fewer], other[:fewer]
        return events.learn(*both, width, self.budget, trials, error, shown, steps, thorough=thorough)

    def _rates(self, pair: Pair) -> tuple[float, float]:
        """About how many transcripts a second are looked at, and how many are tested."""
        count = 64 if self.effort.later else 256
        while True:  # until it takes long enough to be measured
            begun, before = self.watch.seconds(), self.found.transcripts
            one, other = self._draw(pair, count)
            drawn, middle = self.found.transcripts - before, self.watch.seconds()
            if middle - begun > 0.03 or count >= MOST_PROBED:
                learnt = self._learnt(pair, one, other, self._judged, thorough=False)
                end = self.watch.seconds()
                learnt.event.scores(one)
                tested = middle - begun + 2 * (self.watch.seconds() - end)
                return drawn / max(end - begun, 1e-3), drawn / max(tested, 1e-3)
            count *= 4

    def _scan(self) -> list[tuple[float, Pair]]:
        """Look at every pair a little; a slow subject with fewer transcripts."""
        pairs = candidates(self.subject, self.steps, self.effort, self.choose, self.stored)
        if not pairs:
            return []
        self._draw(pairs[0], 64)  # also compiles
        looking, testing = self._rates(pairs[0])
        pairs = self._moved_first(pairs)
        pairs = self._planned(pairs, looking * self.effort.seconds, testing)
        looked: list[tuple[float, Pair]] = []
        if self.effort.settled and len(pairs) == 1:
            return [(0.0, pairs[0])]
        fewest, end = (FEWEST_SCOUTED, 0.6) if self.effort.later else (FEWEST, 0.35)
        for at, pair in enumerate(pairs):
            if at == SILENT and self._silent:
                return []  # nothing is released in so few steps
            if (at >= fewest and self._late(end)) or (at >= 2 and self._late(1.0)):
                break
            self.progress(f"looking at pair {at + 1} of {len(pairs)}", 0.3 * at / len(pairs))
            learnt = self._look(pair, self._count, thorough=self._slow)
            if (
                learnt.promise > PLAIN * self.claim
            ):  # a lucky look must not end the search: one with fresh transcripts says so too
                learnt = self._look(pair, 2 * self._count, thorough=self._slow)
            looked.append((rank(learnt, self.claim), pair))
            self.found.pairs_tried += 1
            if learnt.promise > PLAIN * self.claim:
                break
        return sorted(looked, key=lambda entry: -entry[0])

    def _moved_first(self, pairs: list[Pair]) -> list[Pair]:
        """Those first whose means move most, of many more pairs than can be looked at otherwise."""
        if self.effort.settled or self.effort.later or len(self.stored) >= self.effort.pairs:
            return pairs
        seconds = MOVED_SHARE * self.effort.seconds
        moved = most_moved(self.subject, self.steps, pairs, self.budget, seconds, self.choose)
        self.found.pairs_tried += len(moved)
        first = [pair for _, pair in moved[:MOVED_KEPT]]
        ordered = [*self.stored, *_in_turn(first, pairs[len(self.stored) :])]
        return list({pair.key: pair for pair in ordered}.values())

    def _planned(self, pairs: list[Pair], in_all: float, testing: float) -> list[Pair]:
        """Divide the transcripts that there is time for: which pairs are looked at, how often, and how many prove."""
        effort = self.effort
        self._slow, fewest = in_all < SLOW, effort.fewest
        looking = 0.2
        if effort.settled:
            self._finals, looking, proving = 1, 0.2, 0.5
        elif effort.later:
            looking, proving, self._finals = 0.6, 0.4, 1
            pairs = pairs[: int(np.clip(0.5 * in_all / (2 * SCOUTED), FEWEST_SCOUTED, effort.pairs))]
        else:
            proving = 0.4
            if self._slow:
                pairs, self._finals = pairs[: int(np.clip(0.2 * in_all / 600, FEWEST, FEW))], 1
        least = min(300, fewest // (10 if effort.later else 6))
        most = min(effort.scan, MOST_SCOUTED) if effort.later else effort.scan
        self._count = int(np.clip(looking * in_all / (2 * len(pairs)), least, most))
        tested = testing * effort.seconds
        self._trials = int(np.clip(proving * tested / (2 * self._finals), fewest, effort.trials))
        self._judged = int(np.clip(0.5 * testing * effort.later / 2, self._trials, effort.trials))
        return pairs

    def _climb(self, looked: list[tuple[float, Pair]]) -> list[tuple[float, Pair]]:
        """Look again at the best with more transcripts, and at their variations."""
        count = (2 if self._slow else 4) * self._count if looked else 0
        seen = {pair.key for _, pair in looked}
        best: list[tuple[float, Pair]] = []
        for seen_before, pair in looked[: 3 if self._slow else 6]:
            if best and best[0][0] > PLAIN * self.claim:
                break
            # what it has seen of them must do
            if self._slow and self._late(0.8 if self.effort.later else 0.45):
                best.append((seen_before, pair))
                continue
            learnt = self._look(pair, count, 0.9 if self.effort.later else 0.5)
            best.append((rank(learnt, self.claim), pair))
        rounds = 0
        if best and max(promise for promise, _ in best) > PLAIN * self.claim:
            rounds = ROUNDS
        end = 0.8 if self.effort.later else 0.4 if self._slow else 0.5
        while best and not self._late(end) and rounds < ROUNDS:
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
            best.append((rank(self._look(near, count, end + 0.1), self.claim), near))
        best.sort(key=lambda entry: -entry[0])
        return best

    def _learn(self, best: list[tuple[float, Pair]]) -> list[tuple[Pair, Learnt]]:
        """Learn the finalists' events from many transcripts."""
        finalists: list[tuple[Pair, Learnt]] = []
        part = 2 if self.effort.settled else 3
        count = int(np.clip(self._trials // part, self.effort.fewest // 2, MOST_LEARNT)) if best else 0
        for at, (_, pair) in enumerate(best):
            self.progress("learning events", 0.5 + 0.1 * at / max(len(best), 1))
            if finalists and self._late(0.7):
                break
            drawn = self._draw(pair, count, 0.6 + 0.05 * at)
            finalists.append((pair, self._learnt(pair, *drawn, self._trials)))
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
        self.found.take(proof, Pair(*streams, pair.origin), event, self.claim, self.error)
