"""What checks run a mechanism of the core with: input, sources of words, and sessions whose commits are read again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.core import arrays
from tidegate.core.account import Account
from tidegate.core.charges import Charges
from tidegate.core.commit import PUSHED, Row
from tidegate.core.log import MemoryLog
from tidegate.core.mechanism import Mechanism, Output
from tidegate.core.rows import Draws
from tidegate.core.session import Session, charges_of
from tidegate.core.values import Matrix, ValueReader
from tidegate.errors import TidegateError
from tidegate.noise.entropy import SYSTEM, Elements, Source, Words, current
from tidegate.noise.fixed import FixedEntropy
from tidegate.testing.entropy import ZeroEntropy

STEPS = 60
MARKED = ("values", "status", "source", "scale", "units")  # what every step has


@dataclass(frozen=True)
class Subject:
    """A mechanism, and what is pushed to it.

    Parameters
    ----------
    mechanism
        The configuration.
    stream
        What gives so many steps of input, by index; None: `plain_stream`.
    """

    mechanism: Any
    stream: Callable[[int], Any] | None = None
    name: str = field(default="")

    @property
    def plain(self) -> bool:
        """Whether it reads plain columns."""
        return not hasattr(self.mechanism, "reader") or isinstance(self.mechanism.reader(), ValueReader)

    @property
    def window(self) -> int | None:
        """The steps of a window; the longest, where units ask for windows of their own."""
        known = self.mechanism.account() if hasattr(self.mechanism, "account") else self.mechanism.policy
        found: int | None = known.window
        return found

    @property
    def judged_by_units(self) -> bool:
        """Whether its account is that of units per window."""
        return not hasattr(self.mechanism, "account") or type(self.mechanism.account()) is Account

    def rows(self, steps: int = STEPS) -> Any:
        """Input of so many steps, or of as many as it takes."""
        steps = self.length(steps)
        return plain_stream(self.mechanism, steps) if self.stream is None else self.stream(steps)

    def times(self, factor: int, rows: Any) -> Any:
        """The same input so many times as large, on the grid; input that is no plain columns stays as it is."""
        if not self.plain:
            return rows
        per_one = Fraction(self.mechanism.grid).denominator
        return np.rint(np.rint(rows * per_one) * factor) / per_one

    def others(self, rows: Any) -> list[Any]:
        """Input that is huge, and input that is nothing, where it reads plain columns."""
        return [self.times(1000, rows), 0 * rows] if self.plain else []

    def length(self, steps: int) -> int:
        """How many steps it takes, up to a number; mechanisms and streams may end."""
        most = min(steps, self.mechanism.policy.horizon or steps)
        least = 0
        while least < most:  # halves: what takes many steps takes fewer
            tried = (least + most + 1) // 2
            least, most = (tried, most) if self._takes(tried) else (least, tried - 1)
        return least

    def _takes(self, steps: int) -> bool:
        try:
            self.mechanism.public(self.mechanism.begin(1), 1, steps)
        except TidegateError:
            return False
        return True

    def read(self, rows: Any) -> Matrix:
        """Input in grid units, as a session reads it."""
        mechanism = self.mechanism
        if hasattr(mechanism, "reader"):
            found: Matrix = mechanism.reader().rows(rows)
            return found
        clamp = None if mechanism.clamp is None else Fraction(mechanism.clamp)
        return ValueReader(mechanism.columns, Fraction(mechanism.grid), mechanism.rounding, clamp).rows(rows)


def plain_stream(mechanism: Mechanism, steps: int) -> npt.NDArray[np.float64]:
    """A stream that moves, stands still, is empty for a while and jumps, on the mechanism's grid.

    Examples
    --------
    >>> import tidegate as tg
    >>> plain_stream(tg.mechanisms.Uniform(tg.Event(epsilon="1")), 3).tolist()
    [[400.0], [48.0], [55.0]]
    """
    time = np.arange(steps)[:, np.newaxis]
    column = np.arange(mechanism.columns)[np.newaxis, :]
    wave = 40 + 30 * np.sin(2 * np.pi * (time + 5 * column) / 24)
    still = np.where((time // 20) % 3 == 1, 25.0, wave)
    empty = np.where((time // 10) % 6 == 4, 0.0, still)
    jumping = np.where(time % 37 == 0, 400.0, empty)
    per_one = Fraction(mechanism.grid).denominator
    return np.floor(jumping * per_one + 0.5) / per_one


# sources of words ----------------------------------------------------------------------------------------------------


class Numbered:
    """Words by their number in the order in which they are asked for; some of them may be others.

    Parameters
    ----------
    changed
        The numbers of words that are others.
    """

    name = "numbered"
    marked = True

    def __init__(self, changed: frozenset[int] = frozenset()) -> None:
        self.asked: list[range] = []  # the numbers of each request
        self._at, self._changed = 0, changed
        self._usual, self._other = FixedEntropy("usual"), FixedEntropy("other")

    def _next(self, count: int) -> Words:
        numbers = range(self._at, self._at + count)
        self._at += count
        self.asked.append(numbers)
        found: Words = self._usual.words("numbered", 0, 1, numbers, 0, 1)[0]
        for number in self._changed:
            if number in numbers:
                found[number - numbers.start] = self._other.word("numbered", number, 0, 0)
        return found

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """The next words."""
        return self._next(count * len(elements)).reshape(count, len(elements))

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """The next word."""
        return int(self._next(1)[0])


class Failing:
    """The system's words, and an error instead of one request for them.

    Parameters
    ----------
    request
        Which one.
    """

    name = "failing"
    marked = True

    def __init__(self, request: int) -> None:
        self.left = request

    def _count(self) -> None:
        self.left -= 1
        if not self.left:
            raise RuntimeError("a value that must not be seen")

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """Fresh words, unless this is the request."""
        self._count()
        return SYSTEM.words(stream, step, draws, elements, first, count)

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """One fresh word, unless this is the request."""
        self._count()
        return SYSTEM.word(stream, step, draw, index)


class Loud(ZeroEntropy):
    """Words that make every draw about nine times its scale: no release equals its raw value.

    Where such words are rejected, others follow that are the same at every step.
    """

    name = "loud"

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """A small uniform number in word 0."""
        words = super().words(stream, step, draws, elements, first, count)
        words[words > 0] = 1 << 51
        for row in range(max(0, 2 - first), count):
            words[row] = [self._further(int(element) % draws, first + row) for element in elements]
        return words

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """One word."""
        return self._further(draw, index) if index > 1 else 0 if index else 1 << 51

    def _further(self, draw: int, index: int) -> int:
        return (draw + 1) * (2 * index + 1) * 0x9E3779B97F4A7C15 % 2**64


# runs ----------------------------------------------------------------------------------------------------------------


class Direct:
    """A mechanism that is called without a session, so that what it raises is seen, and its state.

    Parameters
    ----------
    subject
        What runs.
    source
        Where words come from; None: what is installed.
    first
        The first step.
    """

    def __init__(self, subject: Subject, source: Source | None = None, first: int = 1) -> None:
        self.subject, self.mechanism = subject, subject.mechanism
        self.state = self.mechanism.begin(first)
        self.draws = Draws(current() if source is None else source)
        self.next = first

    def public(self, count: int) -> Charges:
        """What the next steps cost at least."""
        found: Charges = self.mechanism.public(self.state, self.next, count)
        return found

    def push(self, rows: Matrix) -> Output:
        """Release the next steps, in grid units."""
        output: Output = self.mechanism.advance(self.state, rows, self.next, self.draws)
        self.next += len(rows)
        return output

    def stored(self) -> bytes:
        """The state as a commit has it."""
        return arrays.encode(arrays.flat(self.state))


class Seen(NamedTuple):
    """One commit: what it released and what it charged."""

    first: int
    values: Any
    status: Any
    source: Any
    scale: Any
    units: Any
    spans: Any
    more: list[Any]
    revised: list[Any]


class Trial:
    """A session in memory, and its log.

    Parameters
    ----------
    subject
        What runs.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject, self.log = subject, MemoryLog()
        self.session = Session(subject.mechanism, self.log)

    def reopen(self) -> None:
        """Continue in a session of its own."""
        self.session = Session(self.subject.mechanism, self.log)

    def secret_size(self) -> int:
        """Bytes of the state and the position that the last commit has."""
        loaded = self.log.load()
        return 0 if loaded is None else len(loaded.secret or b"")

    def seen(self) -> list[Seen]:
        """All that was committed."""
        return list(seen(self.log.rows(), self.subject.mechanism))

    def joined(self) -> dict[str, Any]:
        """All that was committed, whatever commits it came in."""
        return joined(self.seen())


def charged(row: Row) -> tuple[Any, Any]:
    """Units and spans of the one query of a commit."""
    ((_, charges),) = charges_of(row)
    return charges.units, charges.spans


def seen(rows: Iterator[Row], mechanism: Mechanism) -> Iterator[Seen]:
    """What the commits of a log released."""
    for row in rows:
        if row.kind != PUSHED or row.releases is None:
            continue
        values, status, source, scale, *further = arrays.decode(row.releases)
        units, spans = charged(row)
        more = len(mechanism.more)
        yield Seen(row.first, values, status, source, scale, units, spans, further[:more], further[more:])


def joined(parts: list[Seen]) -> dict[str, Any]:
    """Arrays by name, one row per step; spans as they were in the end."""
    found: dict[str, Any] = {
        "steps": [step for part in parts for step in range(part.first, part.first + len(part.units))]
    }
    for name in MARKED:
        found[name] = np.concatenate([getattr(part, name) for part in parts])
    for name in ("more", "revised"):
        for index in range(len(getattr(parts[0], name))):
            found[f"{name} {index}"] = np.concatenate([getattr(part, name)[index] for part in parts])
    spans = {}
    for part in parts:
        spans.update({tuple(row[:3]): row[2:] for row in part.spans.tolist() if row[4]})
    found["spans"] = spans
    return found


def difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    """The first name under which two have something else; empty where they are equal."""
    if set(one) != set(other):
        return "names"
    for name, left in one.items():
        right = other[name]
        if isinstance(left, np.ndarray):
            equal_nan = left.dtype.kind == "f"
            if left.dtype != right.dtype or not np.array_equal(left, right, equal_nan=equal_nan):
                return name
        elif left != right:
            return name
    return ""


def overspent(mechanism: Mechanism, found: dict[str, Any]) -> str:
    """Which window spends more than its units; empty where none does. By plain sums over every window."""
    window, steps = mechanism.policy.window, found["steps"]
    by_step: Counter[int] = Counter()
    for step, units in zip(steps, found["units"].tolist(), strict=True):
        if units < 0:
            return f"step {step} is charged less than nothing"
        by_step[step] += units
    spans = list(found["spans"].values())
    for last in steps:
        first = 1 if window is None else last - window + 1
        spent = sum(units for step, units in by_step.items() if first <= step <= last)
        spent += sum(units for begin, end, units in spans if begin <= last and end >= first)
        if spent > mechanism.units:
            return f"steps {first} to {last} spend {spent} of {mechanism.units} units"
    return ""
