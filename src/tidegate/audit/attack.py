"""The whole attack on one configuration: its account, and releases from every angle.

An angle is a length of the streams and a course of the run, or an intruder. All angles are tried for a short time; what
is left goes to those that look worst. The error is divided among all of these audits in advance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.audit import charges, levels, neighbours
from tidegate.audit.auditor import audit
from tidegate.audit.courses import AT_ONCE, COURSES, WITH_GAPS, takes_gaps
from tidegate.audit.intrusions import Intruded
from tidegate.audit.search import Effort
from tidegate.audit.subjects import Configured, Subject
from tidegate.audit.verdicts import CLEAN, Finding
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.w_event.pan_private import ANNOUNCED
from tidegate.mechanisms.w_event.publishing import Publishing

SECOND = 3  # angles that are tried again, for longer
FIRST_SHARE = 0.5  # of the time, for all angles together
FEWEST = 1200  # transcripts a side of a final test, at least
SHORTEST = 5  # steps of a stream on which something happens to a run


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


def attack(
    mechanism: Mechanism,
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
    name = name or type(mechanism).__name__
    usual = min(steps or neighbours.default_steps(mechanism.policy), levels.longest(mechanism))
    worst = audit(
        mechanism, testers=("replay", "exact"), steps=steps, seconds=seconds / 20, error=error, name=name
    )
    worst.angle = "account"
    if worst.outcome == CLEAN and mechanism.enforced:
        worst = charges.attack(mechanism, worst)
    if worst.outcome != CLEAN:
        return worst
    every = list(angles(mechanism, usual))
    share = error / (len(every) + SECOND)
    whole = FIRST_SHARE * seconds / sum(angle.share for angle in every)
    known = _levels(mechanism, usual)
    plan = [(angle, whole * angle.share) for angle in every]
    looked: list[tuple[float, Angle]] = []
    transcripts = at = 0
    while at < len(plan) and worst.outcome == CLEAN:
        angle, limit = plan[at]
        quick = at < len(every) and angle.share == 1.0
        found = _look(angle, limit, share, name, known, f"{seed} {at}", quick)
        transcripts += found.transcripts
        worst = _worse(worst, found)
        looked.append((found.estimate, angle))
        at += 1
        if at == len(every):  # what is left goes to those that look worst
            again = sorted(looked, key=lambda entry: -entry[0])[:SECOND]
            plan += [(angle, (1 - FIRST_SHARE) * seconds / len(again)) for _, angle in again]
    worst.transcripts = transcripts
    return worst


def angles(mechanism: Mechanism, usual: int) -> Iterator[Angle]:
    """All angles: lengths from one step to more than two cycles, courses of a run, intruders."""
    usual = min(usual, levels.longest(mechanism))
    if isinstance(mechanism, Publishing) and mechanism.pan_private:
        yield from _intruders(mechanism, usual)
    plain = Configured(mechanism)
    every = levels.lengths(mechanism, usual)
    for steps in every:
        yield Angle(
            f"{steps} steps" if steps > 1 else "one step",
            plain,
            steps,
            6.0 if steps == usual else 2.0 if steps == every[-1] else 1.0,
        )
    for course in (*COURSES, *([WITH_GAPS] if takes_gaps(mechanism) else [])):
        steps = every[-1] if course.long else max(min(SHORTEST, every[-1]), usual)
        yield Angle(course.name, Configured(mechanism, course=course), steps)
    if plain.way == "loop":  # the loop alone was sampled above
        yield Angle(f"{AT_ONCE.name}, run by run", _by_runs(mechanism), usual)


def _by_runs(mechanism: Mechanism) -> Configured:
    """A mechanism whose every transcript is that of a run through the front door."""
    subject = Configured(mechanism, course=COURSES[0])
    subject.course = AT_ONCE
    return subject


def _intruders(mechanism: Publishing, usual: int) -> Iterator[Angle]:
    for at in sorted({1, 2, usual}):
        yield Angle(f"seen after step {at} arrived", Intruded(mechanism, at), max(usual, at))
        yield Angle(
            f"seen before step {at} arrives", Intruded(mechanism, at, after=False, before=0), max(usual, at)
        )
    yield Angle("seen between arrivals", Intruded(mechanism, 2, after=False), max(usual, 2))
    if mechanism.pan_private == ANNOUNCED:
        yield Angle("seen three times in a step", Intruded(mechanism, 1, earlier=2), usual)


def _levels(mechanism: Mechanism, steps: int) -> tuple[int, ...]:
    """Public thresholds, and where decisions turn."""
    turns: list[int] = []
    try:
        turns = levels.decision_levels(Configured(mechanism), steps)
    except Exception:  # whatever fails here is reported when it is sampled
        turns = []
    return tuple(dict.fromkeys([*turns, *levels.public_levels(mechanism)]))


def _look(
    angle: Angle, seconds: float, error: float, name: str, known: tuple[int, ...], seed: str, quick: bool
) -> Finding:
    found = audit(
        angle.subject,
        testers=("statistical",),
        steps=angle.steps,
        seconds=seconds,
        effort=Effort(seconds, levels=known, fewest=FEWEST, quick=quick),
        error=error,
        name=name,
        seed=seed,
    )
    found.name, found.angle = name, angle.name
    return found


def _worse(one: Finding, other: Finding) -> Finding:
    """The one that accuses, else the one that proved more; the better power goes with it."""
    if other.outcome != CLEAN or (one.outcome == CLEAN and other.loss > one.loss):
        other.power = min(one.power, other.power)
        return other
    one.power = min(one.power, other.power)
    return one
