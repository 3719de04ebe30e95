"""Courses of a stream: in a session, step by step, opened again, with steps passed over, and halted.

What is claimed holds for all that is released about a stream, whatever becomes of its session. Each course is something
that may happen to a user who does nothing wrong; what is refused is part of the transcript. Kills, second writers and
copied logs do not depend on a mechanism: the model check of the session has them.
"""

from __future__ import annotations

from typing import Any

from tidegate.audit.courses import SINGLY, Course, Part, Refused
from tidegate.audit.neighbours import Counts
from tidegate.core.errors import Halted, SessionClosed
from tidegate.core.log import MemoryLog
from tidegate.core.session import Session
from tidegate.errors import TidegateError
from tidegate.noise import Source, current, install
from tidegate.noise.entropy import Elements, Words

MOST_REQUESTS = 3  # of noise, of which the last fails: with a pool of words there are few


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


COURSES = (
    Course("in a session", in_a_batch),
    SINGLY,
    Course("step by step", step_by_step, alone=True),
    Course("a session for every step", reopened),
    Course("opened again once", reopened_once, long=True, moments=_after_the_first),
    Course("steps passed over", passed_over, long=True),
    # how much noise is asked for before it fails must not depend on copies, nor on what was drawn before
    Course("halted", halted, long=True, moments=_after_the_first, alone=True),
)
