"""Courses of a stream: all at once, step by step, opened again, with steps passed over, and halted.

What is claimed holds for all that is released about a stream, whatever becomes of its session. Each course is something
that may happen to a user who does nothing wrong; what is refused is part of the transcript. Kills, second writers and
copied logs do not depend on a mechanism: the model check of the session has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.audit import direct
from tidegate.audit.neighbours import Counts
from tidegate.core.errors import Halted, SessionClosed
from tidegate.core.log import MemoryLog
from tidegate.core.session import Session
from tidegate.errors import TidegateError
from tidegate.noise import Source, current, install
from tidegate.noise.entropy import Elements, Words
from tidegate.releases import Release, Releases, Status

Floats = npt.NDArray[np.float64]
MOST_REQUESTS = 3  # of noise, of which the last fails: with a pool of words there are few
MARKS = 3  # numbers of a step that are no values: its status, what it was charged, its noise scale


@dataclass(frozen=True)
class Refused:
    """So many steps that were not released."""

    steps: int


Part = Releases | Release | Refused
Drive = Callable[[Any, Counts], list[Part]]


@dataclass(frozen=True)
class Course:
    """What happens to a stream.

    Attributes
    ----------
    name
        In words.
    drive
        Pushes a stream to a mechanism and gives back all that was released and refused, in that order.
    long
        Whether it needs streams of more than two cycles to show anything.
    moments
        Steps of a stream of some length just before or after which something happens; none where it does everywhere.
    """

    name: str
    drive: Drive
    long: bool = False
    moments: Callable[[int], tuple[int, ...]] = lambda steps: ()

    def transcript(self, mechanism: Any, stream: Counts, *, marks: bool) -> Floats:
        """Once: steps × numbers, or all numbers in one row where steps differ in how many they have."""
        seen = laid_out(self.drive(mechanism, stream), mechanism.outputs, marks=marks)
        return seen.rows if not len(seen.rest) else np.concatenate([seen.rows.reshape(-1), seen.rest])[None]


class Seen(NamedTuple):
    """Numbers of a transcript: steps × numbers, and what does not fit into them, because steps differ in it."""

    rows: Floats
    rest: Floats


def laid_out(parts: list[Part], outputs: int, *, marks: bool) -> Seen:
    """All that several parts show, each step with as many numbers as the others."""
    seen = [_seen(part, outputs, marks, apart=False) for part in parts]
    if any(len(each.rest) for each in seen) or len({each.rows.shape[1] for each in seen}) > 1:
        seen = [_seen(part, outputs, marks, apart=True) for part in parts]
    rows, rest = zip(*seen, strict=True)
    return Seen(np.concatenate(rows), np.concatenate(rest))


def _seen(part: Part, outputs: int, marks: bool, apart: bool) -> Seen:
    if isinstance(part, Refused):
        return Seen(np.full((part.steps, outputs + MARKS * marks), np.nan), np.zeros(0))
    return _looked_at(part, marks, apart)


def visible(released: Releases | Release, *, marks: bool = False) -> Floats:
    """All that a release shows, steps × numbers: its values, and the measurements and groups behind them.

    With `marks` also, last, the status of each step, what it was charged, and its noise scale, or 0 where nothing was
    measured. Where other numbers than values are there for fewer or more steps than values, all are in one row: the
    values and marks of all steps, then the others.
    """
    seen = _looked_at(released, marks, apart=False)
    return seen.rows if not len(seen.rest) else np.concatenate([seen.rows.reshape(-1), seen.rest])[None]


def _looked_at(released: Releases | Release, marks: bool, apart: bool) -> Seen:
    """Values and marks of each step and, in the same rows or apart, what else is shown."""
    values = np.atleast_2d(released.values)
    others: list[Floats] = []
    better = released.final if isinstance(released, Releases) else released.revised
    if better is not None and better is not released:
        others.append(np.atleast_2d(better.values))
    if (measured := released.measured) is not None:
        others += [np.atleast_2d(measured.noisy), np.atleast_2d(measured.groups.astype(np.float64))]
    apart = apart or any(len(other) != len(values) for other in others)
    parts = [values] if apart else [values, *others]
    if marks:
        status, units, scale = (
            np.atleast_1d(np.asarray(each)) for each in (released.status, released.units, released.scale)
        )
        spent = units * float(released.unit)
        fresh = (status == Status.FRESH) | (status == Status.PARTIAL)
        scales = np.where(fresh, scale, 0.0)
        parts.append(np.stack([status, spent, scales], axis=1).astype(np.float64))
    rest = [other.reshape(-1) for other in others] if apart else []
    return Seen(np.concatenate(parts, axis=1), np.concatenate([np.zeros(0), *rest]))


def at_once(mechanism: Any, stream: Counts) -> list[Part]:
    """One batch, without a session: a broken mechanism may charge more than an account allows."""
    return [direct.released(mechanism, stream)]


def in_a_batch(mechanism: Any, stream: Counts) -> list[Part]:
    """One batch of a session."""
    return [Session(mechanism).push_batch(stream)]


def step_by_step(mechanism: Any, stream: Counts) -> list[Part]:
    """One push after the other."""
    session = Session(mechanism)
    return [session.push(row) for row in stream]


def reopened(mechanism: Any, stream: Counts) -> list[Part]:
    """A session of its own for every step."""
    log = MemoryLog()
    return [Session(mechanism, log).push(row) for row in stream]


def reopened_once(mechanism: Any, stream: Counts) -> list[Part]:
    """One step, then another session and a long batch."""
    log = MemoryLog()
    seen: list[Part] = [Session(mechanism, log).push_batch(stream[:1])]
    return [*seen, Session(mechanism, log).push_batch(stream[1:])] if len(stream) > 1 else seen


def passed_over(mechanism: Any, stream: Counts) -> list[Part]:
    """Every third step is passed over, whatever is in it."""
    session, seen = Session(mechanism), list[Part]()
    for at, row in enumerate(stream):
        seen.append(Refused(1) if at % 3 == 1 else _pushed(session, row, at + 1))
    return seen


def halted(mechanism: Any, stream: Counts) -> list[Part]:
    """Noise fails once, early: the step is charged and not released; the log is opened again and continues."""
    log, seen = MemoryLog(), list[Part]()
    with install(_FailingOnce(current())):
        session = Session(mechanism, log)
        for at, row in enumerate(stream):
            try:
                seen.append(session.push(row, step=at + 1))
            except Halted:
                seen.append(Refused(1))
                session = Session(mechanism, log)
            except SessionClosed:
                seen.append(Refused(1))
    return seen


def _pushed(session: Session, row: Counts, step: int) -> Part:
    try:
        released: Part = session.push(row, step=step)
    except TidegateError:
        return Refused(1)
    return released


class _FailingOnce:
    """A source that fails when it is asked for noise the third time, and never again."""

    def __init__(self, source: Source) -> None:
        self._source, self._left = source, MOST_REQUESTS
        self.name, self.marked = source.name, source.marked

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """Words, or a failure."""
        self._count()
        return self._source.words(stream, step, draws, elements, first, count)

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """A word, or a failure."""
        self._count()
        return self._source.word(stream, step, draw, index)

    def _count(self) -> None:
        self._left -= 1
        if not self._left:
            raise RuntimeError("no noise")


def _after_the_first(steps: int) -> tuple[int, ...]:
    return 1, 2


AT_ONCE = Course("at once", at_once)
COURSES = (
    Course("in a session", in_a_batch),
    Course("step by step", step_by_step),
    Course("a session for every step", reopened),
    Course("opened again once", reopened_once, long=True, moments=_after_the_first),
    Course("steps passed over", passed_over, long=True),
    Course("halted", halted, long=True, moments=_after_the_first),
)
