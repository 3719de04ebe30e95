"""Where transcripts are few: angles and pairs of streams in one race, by halves.

A runner is an angle together with a pair. Each is looked at with a few transcripts; those that look worst are looked at
again with twice as many, the ones that were drawn before being kept, until one is left, which is put to the test with the
rest of the time (successive halving: Jamieson and Talwalkar, 2016). A runner is judged by what such a test of it would
prove, so that an angle whose runs take long must show more. The error is divided among all tests in advance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tidegate.audit import bounds, events, features, neighbours
from tidegate.audit.events import Learnt
from tidegate.audit.neighbours import Choose, Pair
from tidegate.audit.proving import prove
from tidegate.audit.search import Effort, FailureAt, Found, candidates, rank
from tidegate.audit.subjects import Failure, Floats, Stopwatch, Subject
from tidegate.policy import Pure

BEGIN = 200  # transcripts a side with which every runner begins,
FEWEST = 32  # or fewer, where an angle had no time for several pairs else
SEVERAL = 8
SEEN_AT_LEAST, OVERTIME = (
    3,
    0.45,
)  # pairs of every angle, also where it takes longer, up to this part of the time
FIRST, RACE, LAST = (
    0.3,
    0.5,
    0.65,
)  # of the time, by when all have begun, the best is known, and its event is learnt
HALVING = 0.15  # of the time at least, for what is between
ROUNDS = 3  # between the first and the end of the race, each with as much of the time
KEPT = 0.4  # of the runners go on to the next round
MOST = 40  # pairs of an angle
VARIED = 3  # variations of the best pairs join once few runners are left
FEW = 12
EARLY, EARLY_PART, PLAIN = (
    6,
    0.1,
    1.15,
)  # tests before the end, of what part of the time, and what they must promise
LEAST = 150  # transcripts a side of a test: as many as can prove what is exact
AT_LAST = 0.15  # of the time that the last test has, however late it is
TRIALS, MOST_LEARNT = 500_000, 100_000


class Angle(Protocol):
    """What is sampled, how long streams are, and how much of the time it has against other angles."""

    @property
    def subject(self) -> Subject:
        """What is sampled."""
        ...

    @property
    def steps(self) -> int:
        """The length of the streams."""
        ...

    @property
    def share(self) -> float:
        """Its part of the time."""
        ...


@dataclass
class Runner:
    """One angle and one pair, with all transcripts that were drawn of them."""

    angle: Angle
    pair: Pair
    rate: float
    drawn: tuple[Floats, Floats] | None = None
    learnt: Learnt | None = None
    rank: float = 0.0
    tested: bool = False
    begun: int = BEGIN

    @property
    def silent(self) -> bool:
        """Whether all transcripts are the same."""
        return self.drawn is not None and not any(np.ptp(side, axis=0).any() for side in self.drawn)


@dataclass
class Race:
    """The race of all angles of one subject.

    Attributes
    ----------
    every
        The angles.
    seconds, error
        How long all of it takes, and the chance that any of its tests errs.
    levels, moments, seed
        Where the subject decides, after which steps something public happens, and what pairs are chosen by.
    found, angle
        What was proved, and from which angle.
    """

    every: Sequence[Angle]
    seconds: float
    error: float
    levels: tuple[int, ...] = ()
    moments: tuple[int, ...] = ()
    seed: int | str = 0
    found: Found = field(default_factory=Found)
    angle: Angle | None = None
    watch: Stopwatch = field(default_factory=Stopwatch)

    def __post_init__(self) -> None:
        """Take budget and claim from what is attacked; all angles have the same."""
        self.budget = bounds.promised(self.every[0].subject.policy)
        self.claim = float(bounds.claimed(self.budget))
        self.choose: Choose = neighbours.chooser(self.seed)
        self._early = 0
        self._pure = isinstance(self.budget, Pure)

    def run(self) -> Found:
        """Begin, halve, test."""
        left = self._begun()
        begun = max(FIRST, self.watch.seconds() / self.seconds)
        for turn in range(1, ROUNDS + 1):
            if self._refuted:
                break
            end = begun + (max(RACE, begun + HALVING) - begun) * turn / ROUNDS
            left = left[: max(2, int(np.ceil(KEPT * len(left))))]
            if len(left) <= FEW:
                left += self._variations(left)
            for runner in left:
                if self._late(end) or self._refuted:
                    break
                self._look(runner, runner.begun << turn)
            left.sort(key=lambda runner: -runner.rank)
        if left and not self._refuted:
            self._last(left[:2])
        self.found.seconds = self.watch.seconds()
        return self.found

    @property
    def _refuted(self) -> bool:
        return self.found.loss > self.claim

    def _late(self, share: float) -> bool:
        return self.watch.seconds() > share * self.seconds

    def _begun(self) -> list[Runner]:
        """Pairs of every angle, as many as its share of the time allows, after a first look at each.

        The pair that looks worst so far is tried first from the other angles with streams of its length.
        """
        runners: list[Runner] = []
        shares, given = sum(angle.share for angle in self.every), 0.0
        for angle in sorted(self.every, key=lambda angle: -angle.share):
            given += angle.share
            known = [runner for runner in runners if runner.angle.steps == angle.steps]
            pairs = [max(known, key=lambda runner: runner.rank).pair] if known else []
            effort = Effort(levels=self.levels, moments=self.moments)
            pairs = candidates(angle.subject, angle.steps, effort, self.choose, pairs)
            count, silent = 0, True
            for at, pair in enumerate(pairs[:MOST]):
                enough = at >= SEEN_AT_LEAST or self._late(OVERTIME)
                if self._refuted or (at and enough and self._late(FIRST * given / shares)):
                    break
                runner = Runner(angle, pair, 0.0)
                if not at:
                    self._draw(runner, FEWEST)
                    part = FIRST * self.seconds * angle.share / shares
                    count = int(np.clip(part * runner.rate / (2 * SEVERAL), FEWEST, BEGIN))
                runner.begun = count
                runners.append(runner)
                self._look(runner, count)
                silent = silent and runner.silent
                if silent and at + 1 >= SEEN_AT_LEAST:
                    break  # nothing is released yet in so few steps
        return sorted(runners, key=lambda runner: -runner.rank)

    def _variations(self, runners: list[Runner]) -> list[Runner]:
        """Pairs near the best ones."""
        seen = {runner.pair.key for runner in runners}
        joined: list[Runner] = []
        for _ in range(4 * VARIED):
            near = runners[self.choose(min(3, len(runners)))]
            pair = neighbours.varied(near.angle.subject.policy, near.pair, self.choose, self.levels)
            if pair is not None and pair.key not in seen and len(joined) < VARIED:
                seen.add(pair.key)
                joined.append(Runner(near.angle, pair, near.rate, begun=near.begun))
        return joined

    def _draw(self, runner: Runner, count: int) -> None:
        """Draw as many transcripts as are missing."""
        have = 0 if runner.drawn is None else len(runner.drawn[0])
        if count <= have:
            return
        begun, sides = self.watch.seconds(), []
        for side, stream in enumerate((runner.pair.first, runner.pair.second)):
            try:
                sides.append(runner.angle.subject.sample(stream, count - have))
            except Failure as failure:
                raise FailureAt(failure, runner.pair, side) from failure
        if sides[0].shape[1] != sides[1].shape[1]:
            shapes = (
                f"{sides[0].shape[1]} numbers for the first stream and {sides[1].shape[1]} for the second"
            )
            raise FailureAt(Failure("shape", f"it returned {shapes}"), runner.pair, 1)
        fewer = min(map(len, sides))
        new = sides[0][:fewer], sides[1][:fewer]
        runner.rate = 2 * fewer / max(self.watch.seconds() - begun, 1e-4)
        self.found.transcripts += 2 * fewer
        if runner.drawn is not None:
            new = np.concatenate([runner.drawn[0], new[0]]), np.concatenate([runner.drawn[1], new[1]])
        runner.drawn = new

    def _learn(self, runner: Runner, trials: int, error: float) -> Learnt:
        assert runner.drawn is not None
        one, other = runner.drawn
        shown, _, steps = runner.angle.subject.layout(runner.angle.steps)
        return events.learn(one, other, self._width(runner), self.budget, trials, error, shown, steps)

    def _width(self, runner: Runner) -> int:
        """Numbers of a step."""
        assert runner.drawn is not None
        width = runner.angle.subject.layout(runner.angle.steps).width
        return width or max(1, runner.drawn[0].shape[1] // runner.angle.steps)

    def _trials(self, runner: Runner, share: float) -> int:
        """Transcripts a side of a test that takes a share of the time."""
        return int(np.clip(0.8 * share * self.seconds * runner.rate / 2, LEAST, TRIALS))

    def _look(self, runner: Runner, count: int) -> None:
        """Judge a runner by so many transcripts a side; what is plain is tested at once."""
        self._draw(runner, count)
        self.found.pairs_tried += 1
        runner.learnt = learnt = self._learn(runner, self._trials(runner, 1 - LAST), self.error / 2)
        runner.rank = rank(learnt, self.claim)
        if self._pure and runner.drawn is not None:
            runner.rank = max(runner.rank, by_values(*runner.drawn, self._width(runner)))
        if learnt.promise <= PLAIN * self.claim or runner.tested or self._early >= EARLY:
            return
        trials, error = self._trials(runner, EARLY_PART), self.error / (2 * EARLY)
        soon = self._learn(runner, trials, error)
        if soon.promise > PLAIN * self.claim:
            runner.tested = True
            self._early += 1
            self._prove(runner, soon, trials, error)

    def _last(self, best: list[Runner]) -> None:
        """Learn the events of the best two from more transcripts, and test the better one with the time that is left."""
        for at, runner in enumerate(best):
            share = RACE + (LAST - RACE) * (at + 1) / len(best)
            left = max(share * self.seconds - self.watch.seconds(), 0.0)
            have = 0 if runner.drawn is None else len(runner.drawn[0])
            self._draw(runner, have + int(min(0.8 * left * runner.rate / 2, MOST_LEARNT)))
            runner.learnt = self._learn(runner, self._trials(runner, 1 - LAST), self.error / 2)
        runner = max(best, key=lambda each: each.learnt.promise if each.learnt is not None else 0.0)
        assert runner.learnt is not None
        left = max(1 - self.watch.seconds() / self.seconds, AT_LAST)
        self._prove(runner, runner.learnt, self._trials(runner, left), self.error / 2)

    def _prove(self, runner: Runner, learnt: Learnt, trials: int, error: float) -> None:
        """Count a fixed event on fresh transcripts."""
        pair, event = runner.pair, learnt.event
        subject = runner.angle.subject
        assert subject.policy.distance(pair.first, pair.second) == 1, "only neighbours prove anything"
        assert runner.drawn is not None
        streams = (pair.first, pair.second) if event.sign > 0 else (pair.second, pair.first)
        width = runner.drawn[0].shape[1]
        try:
            proof = prove(subject, streams, event, trials, error, self.budget, width)
        except Failure as failure:
            raise FailureAt(failure, Pair(*streams, pair.origin), failure.side) from failure
        if self.found.take(proof, Pair(*streams, pair.origin), event, self.claim, self.error):
            self.angle, self.found.width = runner.angle, width


def by_values(first: Floats, second: Floats, width: int) -> float:
    """How much likelier one value of a number with few values, such as a decision, seems on one side: a logarithm.

    Less twice the standard error of both counts, so that few transcripts say little. It only ranks.
    """
    count = min(len(first), len(second))
    both = features.cleaned(np.concatenate([first[:count], second[:count]]))
    coded = [np.unique(column, return_inverse=True) for column in both.T]
    few = [np.asarray(codes) for values, codes in coded if 1 < len(values) <= features.FEW_VALUES]
    repeats = features._pattern(both, tuple((at, at - width) for at in range(width, both.shape[1]))[:60])
    few += [np.unique(repeats, return_inverse=True)[1]] if repeats.any() else []
    if not few:
        return 0.0
    together = np.unique(np.stack(few), axis=1, return_inverse=True)[1].reshape(-1)  # decisions of all steps
    best = 0.0
    for codes in [*few, together]:
        a, b = (np.bincount(side, minlength=int(codes.max()) + 1) for side in (codes[:count], codes[count:]))
        for more, fewer in ((a, b), (b, a)):
            ratio = (more - 2 * np.sqrt(more + 1.0)) / (fewer + 2 * np.sqrt(fewer + 1.0) + 1.0)
            best = max(best, float(np.log(np.maximum(ratio, 1.0)).max()))
    return best
