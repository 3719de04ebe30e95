"""The whole attack on one configuration: its account, and releases from every angle.

An angle is a length of the streams and a course, or an intruder. First, means and covariances say from which angle
some pair seems to lose more than is claimed; what they suggest is put to the test at once. Then all angles are tried
for a short time, those that look worst for longer, from the pairs of streams that looked worst, and in the time that
is left the worst of all is put to the test. Where transcripts are few, angles and pairs are in one race (`racing`).
What withstood all that is attacked once more with another ε: decisions with too little noise show more where noise is
small, and events that are too rare to be counted are common where ε is small. The error is divided among all tests in
advance.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from tests.audit import discovered, levels
from tests.audit.courses import COURSES
from tests.audit.enumeration import enumerated
from tests.audit.intrusions import Intruded
from tests.audit.racing import Race

from tidegate.audit import bounds, moments, neighbours
from tidegate.audit.auditor import audit, finding, verdict_of
from tidegate.audit.neighbours import Pair
from tidegate.audit.search import Effort, FailureAt, candidates, most_moved
from tidegate.audit.subjects import Configured, Failure, Stopwatch, Subject, longest
from tidegate.audit.verdicts import CLEAN, Finding
from tidegate.errors import TidegateError
from tidegate.mechanisms.discovery.discover import Discover
from tidegate.mechanisms.w_event.pan_private import ANNOUNCED
from tidegate.mechanisms.w_event.publishing import Publishing
from tidegate.policy import Swellfish, ZeroConcentrated

SECOND = 5  # angles that are tried again, for longer
FIRST_SHARE, SECOND_SHARE = 0.4, 0.25  # of the time, for all angles together, and for those
FEW = 400_000  # transcripts in all: with fewer of them angles and pairs are in one race
PROBES, MOST_PROBES, LONG_ENOUGH = 16, 4096, 0.03  # transcripts and seconds by which that is measured
LARGEST_SHARE = 6.0  # of the time, against 1, for streams of the usual length
LATE_SHARE = 2.0  # the same for long ones
FINAL_ERROR = 0.5  # of the error, for the last test
HANDED_ON = 2  # pairs that the next angle with streams of the same length begins with
FEWEST = 1200  # transcripts a side of a final test, at least
OTHERS = ((2, Fraction(4)), (10**9, Fraction(3, 2)))  # the other ε, for claims up to so much
OTHER_SHARE = 0.35  # of the time and of the error, for the attack with it
STRIKE_SHARE, STRIKES, STRIKE_ERROR = (
    0.12,
    (0.3, 0.15),
    0.3,
)  # of the time: to look at means, for each test; of the error
STRUCK, SUGGESTED = 4, 1.05  # pairs of an angle, and how many times the claim must be suggested
SURE_OF_IT = ((1000, 16), (6000, 6))  # transcripts that say so again, and of how many
NEARLY = 0.93  # of what is suggested is left where steps are left out
SLOWEST, ENOUGH, LEAST_SURE, EACH_SHARE = (
    2000,
    100_000,
    200,
    0.03,
)  # a second; transcripts; of the time for each
LEAST_LEFT = 0.02  # of the time, for the angles that are left, however late it is
FAR = 64  # steps of a stream, where runs are fast
SHORTEST = 8  # steps of a stream on which something happens: what is lost after it adds up over several


@dataclass(frozen=True)
class Angle:
    """One way to look at a mechanism.

    Attributes
    ----------
    name
        In words.
    subject
        What is sampled.
    steps
        The length of the streams.
    share
        Its part of the time, against 1 for an ordinary angle.
    """

    name: str
    subject: Subject
    steps: int
    share: float = 1.0


_Looked = tuple[float, Angle, list[tuple[float, Pair]]]  # what an angle promises, and its best pairs


def attack(
    mechanism: Any,
    *,
    error: float = 1e-6,
    seconds: float = 40.0,
    name: str = "",
    steps: int | None = None,
    seed: int | str = 7,
) -> Finding:
    """Try to refute a mechanism's claim from every angle.

    Parameters
    ----------
    mechanism
        The configuration.
    error
        The chance that a mechanism which keeps its promise is accused by any of the audits.
    seconds
        About how long all of them take.
    name
        For the verdict.
    steps
        The usual length of the streams; others are tried as well.
    """
    watch = Stopwatch()
    name = name or type(mechanism).__name__
    if isinstance(mechanism, Discover):
        return discovered.attack(mechanism, seconds=seconds, name=name)
    usual = min(steps or neighbours.default_steps(mechanism.policy), longest(mechanism))
    usual = _speaking(mechanism, usual)
    worst = audit(mechanism, testers=("replay",), steps=steps, seconds=seconds / 20, error=error, name=name)
    if worst.outcome == CLEAN:
        exactly = enumerated(mechanism, seconds=seconds / 20, steps=steps, name=name)
        worst = exactly if exactly.outcome != CLEAN else worst
    worst.angle = "account"
    if worst.outcome != CLEAN:
        return worst
    left = max(seconds - watch.seconds(), seconds / 2)
    other = with_another_budget(mechanism)
    if other is None:
        return _searched(mechanism, usual, worst, error, left, name, seed)
    share = 1 - OTHER_SHARE
    worst = _searched(mechanism, usual, worst, share * error, share * left, name, seed)
    if worst.outcome != CLEAN:
        return worst
    nothing = finding(Configured(other), CLEAN, 0.0, "none", error)
    left = max(seconds - watch.seconds(), OTHER_SHARE * seconds)
    again = _searched(other, usual, nothing, OTHER_SHARE * error, left, name, seed)
    again.angle += f", with ε = {again.claim:g} in place of {worst.claim:g}"
    return again if again.outcome != CLEAN else worst


def _speaking(mechanism: Any, usual: int) -> int:
    """A length at which something is released, the usual one if it is: nothing may be before a sample is complete."""
    plain = Configured(mechanism)
    for steps in (usual, *(each for each in levels.lengths(mechanism, usual) if each > usual)):
        try:
            drawn = plain.sample(np.zeros((steps, plain.columns), dtype=np.int64), PROBES)
        except Failure:
            break  # reported where it is sampled again
        if np.ptp(drawn, axis=0).any():
            return steps
    return usual


def with_another_budget(mechanism: Any) -> Any:
    """The same mechanism with another ε, larger or smaller; None where there is no such one."""
    policy = mechanism.policy
    if isinstance(policy.budget, ZeroConcentrated) or isinstance(policy, Swellfish):
        return None
    epsilon = next(other for most, other in OTHERS if policy.budget.total <= most)
    try:
        changed = replace(policy, epsilon=epsilon)
        if hasattr(mechanism, "with_policy"):
            return mechanism.with_policy(changed)
        return replace(mechanism, policy=changed)
    except (TidegateError, TypeError, ValueError):
        return None


def _searched(
    mechanism: Any, usual: int, worst: Finding, error: float, seconds: float, name: str, seed: int | str
) -> Finding:
    rounds = _Rounds(mechanism, usual, worst, error, seconds, name, seed)
    few = rounds.few()
    struck = rounds.strike()
    if struck.outcome != CLEAN:
        return struck
    return rounds.race() if few else rounds.run()


class _Rounds:
    """All angles, then the worst of them, then the worst one."""

    def __init__(
        self,
        mechanism: Any,
        usual: int,
        worst: Finding,
        error: float,
        seconds: float,
        name: str,
        seed: int | str,
    ) -> None:
        self.every = list(angles(mechanism, usual))
        self.worst, self.name, self.seed = worst, name, seed
        self.error, self.seconds = error, seconds
        self.levels = _levels(mechanism, usual)
        self.moments = tuple(levels.moments(mechanism))
        self.later = (1 - FIRST_SHARE - SECOND_SHARE) * seconds
        self.transcripts = self.looks = 0

    def strike(self) -> Finding:
        """What means and covariances suggest, put to the test at once where it is more than the claim."""
        watch = Stopwatch()
        seconds, error = self.seconds, self.error
        for at, suggested in enumerate(self._suggested()[: len(STRIKES)]):
            if self.worst.outcome == CLEAN:
                angle, pair = suggested
                with suppress(Failure):  # reported where it is sampled again
                    angle, pair = self._shortened(*suggested)
                effort = Effort(
                    STRIKES[at] * seconds,
                    levels=self.levels,
                    moments=self.moments,
                    fewest=FEWEST,
                    pairs=1,
                    settled=True,
                    doubted=True,
                )
                self._look(angle, effort, STRIKE_ERROR / len(STRIKES) * error, [pair])
        self.error = (1 - STRIKE_ERROR) * error
        self.seconds = max(seconds - watch.seconds(), seconds / 4)
        self.later = (1 - FIRST_SHARE - SECOND_SHARE) * self.seconds
        return self.worst

    def _suggested(self) -> list[tuple[Angle, Pair]]:
        """Angles and pairs of which means and covariances say that they lose more than is claimed; by halves."""
        watch, found, failing = Stopwatch(), list[tuple[float, Angle, Pair]](), list[tuple[Angle, Pair]]()
        budget = bounds.promised(self.every[0].subject.policy)
        claim = float(bounds.claimed(budget))
        choose = neighbours.chooser(f"{self.seed} strike")
        shares = sum(angle.share**0.5 for angle in self.every)
        for angle in self.every:
            effort = Effort(levels=self.levels, moments=self.moments)
            seconds = STRIKE_SHARE * self.seconds * angle.share**0.5 / shares
            try:
                known = [pair for _, other, pair in found if other.steps == angle.steps][:HANDED_ON]
                pairs = candidates(angle.subject, angle.steps, effort, choose, known)
                moved = most_moved(angle.subject, angle.steps, pairs, budget, seconds, choose)
            except FailureAt as failed:
                failing.append((angle, failed.pair))  # reported where it is sampled again
                continue
            found += [(lost, angle, pair) for lost, pair in moved[:STRUCK]]
            found.sort(key=lambda each: -each[0])
        rates = dict.fromkeys((angle.name for angle in self.every), SLOWEST)
        for count, most in SURE_OF_IT:
            last, again = (count, most) == SURE_OF_IT[-1], list[tuple[float, Angle, Pair]]()
            for lost, angle, pair in found[:most]:
                if lost <= SUGGESTED * claim or watch.seconds() > 2 * STRIKE_SHARE * self.seconds:
                    break
                begun = watch.seconds()
                some = int(np.clip(EACH_SHARE * self.seconds * rates[angle.name], LEAST_SURE, count))
                try:
                    drawn = [angle.subject.sample(side, some) for side in (pair.first, pair.second)]
                except Failure:
                    failing.append((angle, pair))
                    continue
                rates[angle.name] = rate = some / max(watch.seconds() - begun, 1e-4)
                marks = angle.subject.layout(angle.steps).marks(drawn[0].shape[1])
                told = moments.suggested(drawn[0], drawn[1], budget, marks)
                if not last:
                    again.append((told.most, angle, pair))
                elif told.least > SUGGESTED * claim:
                    # a little less that is seen much faster is proved sooner
                    often = min(rate, ENOUGH) ** 0.5
                    again.append(((min(told.least / claim, 2.0) - 1) * often, angle, pair))
            found = sorted(again, key=lambda each: -each[0])
        return [*failing, *((angle, pair) for _, angle, pair in found)]

    def _shortened(self, angle: Angle, pair: Pair) -> tuple[Angle, Pair]:
        """The same without the steps at the end that show nothing more: they take time."""
        budget = bounds.promised(angle.subject.policy)
        last = int(np.flatnonzero((pair.first != pair.second).any(axis=1))[-1]) + 1
        lengths = sorted({last, last + 1, (last + angle.steps) // 2, angle.steps})
        told: list[tuple[float, int]] = []
        for steps in reversed([each for each in lengths if each <= angle.steps]):
            watch = Stopwatch()
            streams = pair.first[:steps], pair.second[:steps]
            angle.subject.sample(streams[0], LEAST_SURE)  # its layout is looked at once
            some = LEAST_SURE * EACH_SHARE * self.seconds / max(watch.seconds(), 1e-4)
            drawn = [
                angle.subject.sample(side, int(np.clip(some / 2, LEAST_SURE, SURE_OF_IT[-1][0])))
                for side in streams
            ]
            marks = angle.subject.layout(steps).marks(drawn[0].shape[1])
            told.append((moments.suggested(drawn[0], drawn[1], budget, marks).least, steps))
        steps = min(steps for least, steps in told if least >= NEARLY * told[0][0])
        shorter = Pair(pair.first[:steps], pair.second[:steps], pair.origin)
        if steps == angle.steps or angle.subject.policy.distance(shorter.first, shorter.second) != 1:
            return angle, pair
        return Angle(f"{angle.name}, {steps} of {angle.steps} steps", angle.subject, steps), shorter

    def run(self) -> Finding:
        """The verdict of all rounds."""
        looked = self._second(self._first())
        for _, angle, found in looked[:1]:
            if self.worst.outcome == CLEAN:
                effort = Effort(
                    self.later, levels=self.levels, moments=self.moments, fewest=FEWEST, pairs=1, settled=True
                )
                self._look(angle, effort, FINAL_ERROR * self.error, [found[0][1]])
        self.worst.transcripts = self.transcripts
        return self.worst

    def few(self) -> bool:
        """Whether there is time for few transcripts only, so that rounds would choose by chance."""
        plain = next(angle for angle in self.every if angle.share == LARGEST_SHARE)
        stream = np.zeros((plain.steps, plain.subject.columns), dtype=np.int64)
        count, took = PROBES, 0.0
        try:
            plain.subject.sample(stream, 4)  # also compiles
            while took < LONG_ENOUGH and count < MOST_PROBES:  # many at once may take as long as one
                count *= 4
                watch = Stopwatch()
                plain.subject.sample(stream, count)
                took = watch.seconds()
        except Failure:
            return False  # reported where it is sampled again
        return count * self.seconds < FEW * took

    def race(self) -> Finding:
        """The verdict of a race of all angles."""
        race = Race(self.every, self.seconds, self.error, self.levels, self.moments, self.seed)
        found = verdict_of(self.every[0].subject, race.run, self.error)
        found.name = self.name
        found.angle = getattr(race.angle, "name", "")
        self.worst = _worse(self.worst, found)
        self.worst.transcripts = race.found.transcripts
        return self.worst

    def _first(self) -> list[_Looked]:
        """Every angle for a short time; streams that look bad from one are tried from the next."""
        watch, looked = Stopwatch(), list[_Looked]()
        for at, angle in enumerate(self.every):
            left = max(FIRST_SHARE * self.seconds - watch.seconds(), LEAST_LEFT * self.seconds)
            whole = left / sum(each.share for each in self.every[at:])
            known = [each for each in looked if each[1].steps == angle.steps]
            pairs = [pair for _, _, own in _ranked(known)[:HANDED_ON] for _, pair in own[:1]]
            effort = Effort(
                whole * angle.share, levels=self.levels, moments=self.moments, fewest=FEWEST, later=self.later
            )
            looked.append(self._scouted(angle, effort, pairs))
            if self.worst.outcome != CLEAN:
                break
        return _ranked(looked)

    def _second(self, looked: list[_Looked]) -> list[_Looked]:
        """The worst angles again, from the streams that looked worst."""
        again = looked[:SECOND]
        seen: list[_Looked] = []
        for _, angle, pairs in again:
            if self.worst.outcome != CLEAN:
                break
            seconds = SECOND_SHARE * self.seconds / len(again)
            effort = Effort(
                seconds,
                levels=self.levels,
                moments=self.moments,
                fewest=FEWEST,
                pairs=len(pairs),
                later=self.later,
            )
            seen.append(self._scouted(angle, effort, [pair for _, pair in pairs]))
        return _ranked(seen)

    def _scouted(self, angle: Angle, effort: Effort, pairs: list[Pair]) -> _Looked:
        share = (1 - FINAL_ERROR) * self.error / (len(self.every) + SECOND)
        found = self._look(angle, effort, share, pairs)
        return (found.promising[0][0] if found.promising else 0.0), angle, found.promising

    def _look(self, angle: Angle, effort: Effort, error: float, pairs: list[Pair]) -> Finding:
        found = audit(
            angle.subject,
            testers=("statistical",),
            steps=angle.steps,
            seconds=effort.seconds,
            effort=effort,
            error=error,
            name=self.name,
            seed=f"{self.seed} {self.looks}",
            pairs=pairs,
        )
        found.name, found.angle = self.name, angle.name
        self.looks += 1
        self.transcripts += found.transcripts
        self.worst = _worse(self.worst, found)
        return found


def _ranked(looked: list[_Looked]) -> list[_Looked]:
    """Those that promise most first."""
    return sorted((each for each in looked if each[2]), key=lambda each: -each[0])


def angles(mechanism: Any, usual: int) -> Iterator[Angle]:
    """All angles: lengths from one step to more than two cycles, courses of a stream, intruders."""
    usual = min(usual, longest(mechanism))
    plain = Configured(mechanism)
    if isinstance(mechanism, Publishing) and mechanism.pan_private:
        yield from _intruders(mechanism, usual)
    every = levels.lengths(mechanism, usual)
    for steps in every:
        yield Angle(
            f"{steps} steps" if steps > 1 else "one step",
            plain,
            steps,
            _share(steps, usual, every, getattr(mechanism, "independent_period", 0)),
        )
    late = levels.late(mechanism, usual)
    if late:
        yield Angle(f"{late} steps", plain, late, LATE_SHARE)
    if (
        plain.way == "columns" and longest(mechanism) >= FAR
    ):  # what grows slowly; so many runs at once take no time
        yield Angle(f"{FAR} steps", plain, FAR)
    for course in COURSES:
        steps = every[-1] if course.long else max(min(SHORTEST, every[-1]), usual)
        yield Angle(course.name, Configured(mechanism, course=course), steps)


def _share(steps: int, usual: int, every: list[int], period: int) -> float:
    """The most for the usual length, or for one period where many of them are sampled in one run."""
    if period in every:
        return LARGEST_SHARE if steps == period else 2.0 if steps == 2 * period else 1.0
    return LARGEST_SHARE if steps == usual else 2.0 if steps == every[-1] else 1.0


def _intruders(mechanism: Publishing, usual: int) -> Iterator[Angle]:
    for at in sorted({1, 2, usual}):
        yield Angle(f"seen after step {at} arrived", Intruded(mechanism, at), max(usual, at))
        yield Angle(
            f"seen before step {at} arrives", Intruded(mechanism, at, after=False, before=0), max(usual, at)
        )
    yield Angle("seen between arrivals", Intruded(mechanism, 2, after=False), max(usual, 2))
    if mechanism.pan_private == ANNOUNCED:
        yield Angle("seen three times in a step", Intruded(mechanism, 1, earlier=2), usual)


def _levels(mechanism: Any, steps: int) -> tuple[int, ...]:
    """Public thresholds, and where decisions turn."""
    turns: list[int] = []
    try:
        turns = levels.decision_levels(Configured(mechanism), steps)
    except Exception:  # whatever fails here is reported when it is sampled
        turns = []
    unit = Configured(mechanism).unit
    public = levels.public_levels(mechanism)
    return tuple(dict.fromkeys([*turns, *public, *(round(level / unit) for level in public if unit != 1)]))


def _worse(one: Finding, other: Finding) -> Finding:
    """The one that accuses, else the one that proved more; the better power goes with it."""
    if other.outcome != CLEAN or (one.outcome == CLEAN and other.loss > one.loss):
        other.power = min(one.power, other.power)
        return other
    one.power = min(one.power, other.power)
    return one
