"""What readers see of one stream: its releases, the newest in memory and older ones from the store."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tidegate.config import Config
from tidegate.errors import InvalidParameter
from tidegate.ledger.published import Transcript
from tidegate.runtime import Chunk
from tidegate.runtime.chunks import joined, newest
from tidegate.web.alarms import Alarms

Values = npt.NDArray[np.float64]
KEPT_CELLS = 2**20  # values of one stream that stay in memory
TOGETHER = 256  # small chunks that become one
MOST_CELLS = 4 * 2**20  # values in one answer

WARM = 1000  # releases that are in memory after a start


class Past(Protocol):
    """Opens the store for reading."""

    def __call__(
        self, after: int = 0, steps: tuple[int, int] | None = None
    ) -> AbstractContextManager[Iterator[Chunk]]:
        """Releases after a number, in order; or some among which are all of steps from one to another."""


@dataclass(frozen=True)
class Selection:
    """Releases that somebody asked for, with their answers and intervals.

    Parameters
    ----------
    chunk
        The releases.
    columns
        Which of the answers, as positions.
    answers, low, high
        releases × columns.
    """

    chunk: Chunk
    numbers: npt.NDArray[np.int64]
    columns: tuple[int, ...]
    answers: Values
    low: Values
    high: Values

    def __len__(self) -> int:
        return len(self.chunk)


class Board:
    """The releases of one stream; one thread adds, any may read.

    Parameters
    ----------
    config
        The stream's configuration.
    past
        Opens the store for reading, for what is no longer in memory.
    alarms
        What is raised by releases.
    """

    def __init__(self, config: Config, past: Past, alarms: Alarms | None = None) -> None:
        self.config = config
        self.labels = config.query.answer_labels
        self.alarms = alarms or Alarms()
        self._past = past
        self._lock = threading.Lock()
        self._tail: deque[Chunk] = deque()
        self._cells = 0
        self._small = 0  # chunks at the end that are not yet put together
        self.number = 0  # of the last release
        self.step = 0  # the last step that was released
        self.transcript = Transcript()

    def add(self, chunk: Chunk) -> None:
        """Take releases that were committed; what is there already is left out."""
        fresh = chunk.after(self.number)
        if not len(fresh):
            return
        answers, low, high = bounds(self.config, fresh)
        self.alarms.follow(fresh, answers, low, high)
        transcript = self.transcript.after(fresh.first, fresh.step, fresh.revision, answers)
        with self._lock:
            self.transcript = transcript
            self._append(fresh)
            self.number, self.step = fresh.last, max(self.step, int(fresh.step.max()))
            while len(self._tail) > 1 and self._cells - _cells(self._tail[0]) >= KEPT_CELLS:
                self._cells -= _cells(self._tail.popleft())

    def summary(self) -> dict[str, Any]:
        """What follows from all releases up to now, ready for JSON; `resume` goes on from it."""
        return {"transcript": self.transcript.digest.hex(), "alarms": self.alarms.summary()}

    def resume(self, number: int, known: dict[str, Any], chunks: Iterable[Chunk]) -> None:
        """Go on from what a board has remembered at a release.

        Parameters
        ----------
        number, known
            The release, and the summary at it.
        chunks
            The last releases; all after the number, and some up to it, to have them in memory.
        """
        self.transcript = Transcript(number, bytes.fromhex(known["transcript"]))
        self.alarms.resume(known["alarms"])
        for chunk in chunks:
            old = chunk[: max(0, number - chunk.first + 1)]
            if len(old):
                self._append(old)
                self.number, self.step = old.last, max(self.step, int(old.step.max()))
            self.add(chunk)

    def _append(self, fresh: Chunk) -> None:
        """Keep releases; many small chunks become one, which takes less room than they do."""
        self._tail.append(fresh)
        self._cells += _cells(fresh)
        self._small = self._small + 1 if len(fresh) < TOGETHER else 0
        if self._small >= TOGETHER:
            pieces = [self._tail.pop() for _ in range(min(self._small, len(self._tail)))][::-1]
            self._tail.append(joined(pieces, fresh.values.shape[1]))
            self._small = 0

    def load(self, chunks: Iterable[Chunk]) -> None:
        """Take what was committed before this start."""
        for chunk in chunks:
            self.add(chunk)

    # reading ------------------------------------------------------------------------------------------------

    def after(self, number: int, most: int) -> Chunk:
        """At most so many releases after a number, in the order in which they left."""
        with self._lock:
            tail, last = list(self._tail), self.number
        width = tail[0].values.shape[1] if tail else 0
        if tail and tail[0].first <= number + 1:
            parts = _first(most, (chunk.after(number) for chunk in tail if chunk.last > number))
        elif tail and number < last:
            with self._past(number) as older:
                parts = _first(most, older)
        else:
            parts = []
        return joined(parts, width)

    def select(
        self,
        since: int | None = None,
        until: int | None = None,
        columns: Iterable[str] | None = None,
        revision: str = "latest",
        last: int | None = None,
    ) -> Selection:
        """Releases of steps `since` to `until`, of some columns, the last revision of each step or all.

        With `last`, as of the release of that number.
        """
        chosen = self.positions(columns)
        steps = since or 1, self.step if until is None else min(until, self.step)
        chunk, numbers = self._between(*steps, max(1, len(chosen)))
        if last is not None:
            chunk, numbers = chunk.picked(np.flatnonzero(numbers <= last)), numbers[numbers <= last]
        if revision == "latest":
            found = newest(chunk.step, chunk.revision)
            chunk, numbers = chunk.picked(found), numbers[found]
        answers, low, high = bounds(self.config, chunk)
        pick = list(chosen)
        return Selection(chunk, numbers, chosen, answers[:, pick], low[:, pick], high[:, pick])

    def positions(self, columns: Iterable[str] | None) -> tuple[int, ...]:
        """The positions of named columns; a name that is not there is refused."""
        if columns is None:
            return tuple(range(len(self.labels)))
        known = {label: at for at, label in enumerate(self.labels)}
        found = []
        for name in columns:
            if name not in known:
                raise InvalidParameter(
                    "columns", name[:60], "columns of this stream", "ask for the stream to see them"
                )
            found.append(known[name])
        return tuple(dict.fromkeys(found))

    def _between(self, first: int, last: int, width: int) -> tuple[Chunk, npt.NDArray[np.int64]]:
        with self._lock:
            tail = list(self._tail)
        if not tail:
            nothing = joined([], len(self.config.query.labels))
            return nothing, np.zeros(0, dtype=np.int64)
        firsts = tail[0].step[tail[0].revision == 0]
        # a step is released before it is revised, so from this step on everything is in memory
        covered = tail[0].first == 1 or (len(firsts) > 0 and int(firsts.min()) <= first)
        if covered:
            return _within(tail, first, last, width)
        with self._past(steps=(first, last)) as older:
            return _within(older, first, last, width)


def _cells(chunk: Chunk) -> int:
    """How much room releases take, counted in values."""
    return chunk.values.size + 8 * len(chunk)


def _first(most: int, chunks: Iterable[Chunk]) -> list[Chunk]:
    """Chunks with at most so many releases together."""
    found: list[Chunk] = []
    for chunk in chunks:
        found.append(chunk[:most] if len(chunk) > most else chunk)
        most -= len(found[-1])
        if most <= 0:
            break
    return found


def _within(
    chunks: Iterable[Chunk], first: int, last: int, width: int
) -> tuple[Chunk, npt.NDArray[np.int64]]:
    found, numbers, cells, columns = [], [], 0, 0
    for chunk in chunks:
        columns = chunk.values.shape[1]
        inside = np.flatnonzero((chunk.step >= first) & (chunk.step <= last))
        if not len(inside):
            continue
        cells += len(inside) * width
        if cells > MOST_CELLS:
            raise InvalidParameter(
                "since",
                first,
                f"so late that at most {MOST_CELLS:,} values are asked for",
                "narrow the range",
            )
        found.append(chunk.picked(inside))
        numbers.append(chunk.first + inside)
    together = joined(found, columns)
    return together, np.concatenate(numbers) if numbers else np.zeros(0, dtype=np.int64)


def bounds(config: Config, chunk: Chunk) -> tuple[Values, Values, Values]:
    """The answers of releases, and the ends of the intervals around them at 90 %; NaN where none is known."""
    answers = np.asarray(config.query.answers(chunk.values), dtype=np.float64)
    return answers, *config.query.intervals(chunk.values, chunk.radius)
