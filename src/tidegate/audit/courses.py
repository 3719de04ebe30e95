"""Courses of a run: all at once, step by step, restored, begun again, interrupted, beside others on the same ledger.

What is claimed holds for all that is released about a stream, whatever becomes of the run and of its process. Each course
is something that may happen to a user who does nothing wrong; what the ledger refuses is part of the transcript.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.audit.neighbours import Counts
from tidegate.errors import TidegateError
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.noise import Source, current, install
from tidegate.noise.entropy import Elements, Words
from tidegate.releases import Release, Releases, Status

Floats = npt.NDArray[np.float64]
MARKS = 3  # numbers of a step that are no values: its status, what it was charged, its noise scale


@dataclass(frozen=True)
class Refused:
    """So many steps that were not released."""

    steps: int


Part = Releases | Release | Refused
Drive = Callable[[Mechanism, Counts], list[Part]]


@dataclass(frozen=True)
class Course:
    """What happens to a run.

    Attributes
    ----------
    name
        In words.
    drive
        Runs a mechanism on a stream and gives back all that was released and refused, in that order.
    long
        Whether it needs streams of more than two cycles to show anything.
    moments
        Steps of a stream of some length just before or after which something happens; none where it does everywhere.
    """

    name: str
    drive: Drive
    long: bool = False
    moments: Callable[[int], tuple[int, ...]] = lambda steps: ()

    def transcript(self, mechanism: Mechanism, stream: Counts, *, marks: bool) -> Floats:
        """One run: steps × numbers, or all numbers in one row where steps differ in how many they have."""
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


def at_once(mechanism: Mechanism, stream: Counts) -> list[Part]:
    """One batch."""
    return [mechanism.start().push_batch(stream)]


def step_by_step(mechanism: Mechanism, stream: Counts) -> list[Part]:
    """One push after the other."""
    run = mechanism.start()
    return [run.push(row) for row in stream]


def restored(mechanism: Mechanism, stream: Counts) -> list[Part]:
    """In pieces of one, two, three, … steps, restored from a snapshot between them."""
    run: Any = mechanism.start()
    seen: list[Part] = []
    done = 0
    for piece in _pieces(stream):
        if seen and (run := _again(mechanism, run)) is None:
            return [*seen, Refused(len(stream) - done)]
        seen.append(run.push_batch(piece) if len(piece) > 1 else run.push(piece[0]))
        done += len(piece)
    return seen


def restored_often(mechanism: Mechanism, stream: Counts) -> list[Part]:
    """Restored from a snapshot before every step but the first."""
    run: Any = mechanism.start()
    seen: list[Part] = []
    for done, row in enumerate(stream):
        if seen and (run := _again(mechanism, run)) is None:
            return [*seen, Refused(len(stream) - done)]
        seen.append(run.push(row))
    return seen


def restored_once(mechanism: Mechanism, stream: Counts) -> list[Part]:
    """Restored after one step, while all that begins with it is open, and then a long batch."""
    run = mechanism.start()
    seen: list[Part] = [run.push_batch(stream[:1])]
    again = _again(mechanism, run)
    return [*seen, _pushed(again, stream[1:], 1)] if len(stream) > 1 else seen


def with_gaps(mechanism: Mechanism, stream: Counts) -> list[Part]:
    """Readings are missing after the first step, then now and then: the same ones whatever the others are."""
    rows = np.array(stream, dtype=np.float64)
    rows[1::3] = np.nan
    return [mechanism.start().push_batch(rows)]


def takes_gaps(mechanism: Mechanism) -> bool:
    """Whether a reading may be missing."""
    try:
        with_gaps(mechanism, np.zeros((2, mechanism.columns), dtype=np.int64))
    except Exception:
        return False
    return True


def begun_again(mechanism: Mechanism, stream: Counts) -> list[Part]:
    """The state is lost twice and the ledger is not: new runs begin on it, the first after one step."""
    run: Any = mechanism.start()
    ledger = run.ledger
    seen: list[Part] = []
    done = 0
    for stop in sorted({1, (len(stream) + 1) // 2, len(stream)}):
        run = _begun(mechanism, ledger) if done else run
        seen += _from_where_it_stands(run, stream, done, stop)
        done = stop
    return seen


def interrupted(mechanism: Mechanism, stream: Counts) -> list[Part]:
    """Batches are interrupted while they draw noise, at once and later; the run goes on, or a new one does."""
    source = _Interrupting(current())
    with install(source):
        run: Any = mechanism.start()
        ledger, steps = run.ledger, len(stream)
        seen: list[Part] = []
        done = 0
        for stop, strike in zip((1, steps // 2, 3 * steps // 4, steps), (0, 1, 2, 0), strict=True):
            if stop <= done:
                continue
            source.strike = strike
            with suppress(_Interruption):
                seen.append(_pushed(run, stream[done:stop], done))
                done = stop
                continue
            source.strike = 0
            after = _from_where_it_stands(run, stream, done, stop)
            if isinstance(after[-1], Refused):
                run = _begun(mechanism, ledger)
                after = _from_where_it_stands(run, stream, done, stop)
            seen += after
            done = stop
    return seen


def side_by_side(mechanism: Mechanism, stream: Counts) -> list[Part]:
    """Two runs on one ledger, as far as it lets them; one that is refused begins again in the middle of the stream."""
    first: Any = mechanism.start()
    ledger, half = first.ledger, (len(stream) + 1) // 2
    runs: list[Any] = [first, _begun(mechanism, ledger)]
    seen = [part for run in runs for part in _from_where_it_stands(run, stream, 0, half)]
    if half < len(stream):
        runs = [run if run is not None and run.step == half else _begun(mechanism, ledger) for run in runs]
        seen += [part for run in runs for part in _from_where_it_stands(run, stream, half, len(stream))]
    return seen


def taken_back(mechanism: Mechanism, stream: Counts) -> list[Part]:
    """Charges are rolled back with a caller's transaction, another run is charged, and the first run goes on."""
    run: Any = mechanism.start()
    ledger, half = run.ledger, max(1, len(stream) // 2)
    with suppress(_Interruption, TidegateError), ledger.transaction(unseen=True):
        run.push_batch(stream[:half])
        raise _Interruption
    other = _begun(mechanism, ledger)
    seen = [_pushed(other, stream[:half], 0)]
    if half < len(stream):
        seen += [_pushed(run, stream[half:], half), _pushed(other, stream[half:], half)]
    return seen


def restored_together(mechanism: Mechanism, stream: Counts) -> list[Part]:
    """Two runs that share a ledger in memory, the second begun in the middle, are both restored from snapshots."""
    first: Any = mechanism.start()
    half = max(1, len(stream) // 2)
    seen = [_pushed(first, stream[:half], 0)]
    second = _begun(mechanism, first.ledger)
    for run in [run and _again(mechanism, run) for run in (first, second)]:
        seen += _from_where_it_stands(run, stream, half, len(stream))
    return seen


def _after_the_first(steps: int) -> tuple[int, ...]:
    return 1, 2


def _halfway(steps: int) -> tuple[int, ...]:
    return max(1, steps // 2), steps // 2 + 1


AT_ONCE = Course("at once", at_once)
COURSES = (
    Course("step by step", step_by_step),
    Course("restored between pieces", restored),
    Course("restored before every step", restored_often),
    Course("restored once", restored_once, long=True, moments=_after_the_first),
    Course("begun again on its ledger", begun_again, long=True, moments=_after_the_first),
    Course("interrupted", interrupted, long=True),
    Course("side by side on one ledger", side_by_side, moments=_halfway),
    Course("charges taken back", taken_back, moments=_halfway),
    Course("restored together", restored_together, moments=_halfway),
)
WITH_GAPS = Course("readings are missing", with_gaps)


def _begun(mechanism: Mechanism, ledger: Any) -> Any:
    """A new run on a ledger that others have used; None where it is refused."""
    with suppress(TidegateError):
        return mechanism.start(ledger)
    return None


def _again(mechanism: Mechanism, run: Any) -> Any:
    """The run restored from its snapshot; None where that is refused, as where noise is shared by all steps."""
    with suppress(TidegateError):
        return mechanism.start(state=run.snapshot())
    return None


def _from_where_it_stands(run: Any, stream: Counts, done: int, stop: int) -> list[Part]:
    """What a run releases of the steps after `done` up to `stop`; it may stand later than they begin."""
    begin = stop if run is None else min(max(run.step, done), stop)
    refused: list[Part] = [Refused(begin - done)] if begin > done else []
    return [*refused, _pushed(run, stream[begin:stop], begin)] if begin < stop else refused


def _pushed(run: Any, rows: Counts, step: int) -> Part:
    """The releases of the steps after `step`, if the run stands there and may release them."""
    if run is None or run.step != step:
        return Refused(len(rows))
    try:
        released: Part = run.push_batch(rows)
        return released
    except TidegateError:
        return Refused(len(rows))


def _pieces(stream: Counts) -> Iterator[Counts]:
    start, size = 0, 1
    while start < len(stream):
        yield stream[start : start + size]
        start, size = start + size, size + 1


class _Interruption(Exception):
    """Raised in the middle of a batch."""


class _Interrupting:
    """A source that interrupts when it is asked for noise the `strike`-th time from now; 0: never."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.name, self.marked, self.strike = source.name, source.marked, 0

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """Words, or an interruption."""
        self._count()
        return self._source.words(stream, step, draws, elements, first, count)

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """A word, or an interruption."""
        self._count()
        return self._source.word(stream, step, draw, index)

    def _count(self) -> None:
        if self.strike:
            self.strike -= 1
            if not self.strike:
                raise _Interruption
