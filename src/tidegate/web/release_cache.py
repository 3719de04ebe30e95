"""What readers see of one stream: its releases, the newest in memory and older ones from the log."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tidegate.config import Config
from tidegate.errors import InvalidParameter
from tidegate.pipeline.public_account import Transcript
from tidegate.sinks.chunks import Chunk, columns_of_found, joined, newest
from tidegate.web.alarms import Alarms

Values = npt.NDArray[np.float64]
KEPT_CELLS = 2**20  # values of one stream that stay in memory
TOGETHER = 256  # small chunks that become one
EARLIER_CELLS = 2**18  # values from before an amendment
MOST_CELLS = 4 * 2**20  # values in one answer

WARM = 1000  # releases that are in memory after a start


class OlderReleases(Protocol):
    """Opens the log for reading."""

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
    numbers
        Their places in the feed; 0 for those from before an amendment, which have none.
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

    @property
    def size(self) -> int:
        """Bytes that it takes, about."""
        return (24 * len(self.columns) + 64) * len(self)

    def open_places(self, index: int, parts: int) -> list[tuple[int, str, int, float]]:
        """Where categories are found: the columns of a release that are open; see `columns_of_found`."""
        return columns_of_found(self.chunk.categories, index, self.answers.shape[1], parts)

    def of_category(self, name: str, parts: int) -> Selection:
        """One category alone, with nothing where it is not open."""
        values = [np.full((len(self), 1), np.nan) for _ in range(3)]
        for index in range(len(self)):
            for place, known, *_ in self.open_places(index, parts):
                if known == name:
                    for kept, each in zip(values, (self.answers, self.low, self.high), strict=True):
                        kept[index, 0] = each[index, place]
        return Selection(self.chunk, self.numbers, (0,), *values)

    def picked(self, rows: npt.NDArray[np.int64]) -> Selection:
        """Some of the releases."""
        values = self.answers[rows], self.low[rows], self.high[rows]
        return Selection(self.chunk.picked(rows), self.numbers[rows], self.columns, *values)

    def followed_by(self, later: Selection) -> Selection:
        """These releases, and later ones of the same columns."""
        if not len(later):
            return self
        numbers = np.concatenate([self.numbers, later.numbers])
        pairs = zip((self.answers, self.low, self.high), (later.answers, later.low, later.high), strict=True)
        values = (np.concatenate(each) for each in pairs)
        return Selection(joined([self.chunk, later.chunk], 0), numbers, self.columns, *values)


class ReleaseCache:
    """The releases of one stream; one thread adds, any may read.

    Parameters
    ----------
    config
        The stream's configuration.
    past
        Opens the log for reading, for what is no longer in memory.
    alarms
        What is raised by releases.
    first
        The first step of these releases.
    before
        Reads what the query has released from a step on before an amendment: one release a step, up to the first step.
    """

    def __init__(
        self,
        config: Config,
        past: OlderReleases,
        alarms: Alarms | None = None,
        *,
        first: int = 1,
        before: Callable[[int], Chunk] | None = None,
    ) -> None:
        self.config, self.first = config, first
        self._read_before, self._before_lock = before, threading.Lock()
        self._before: Chunk | None = None  # read when it is asked for
        self.labels = config.query.answer_labels
        self.alarms = alarms or Alarms()
        self._past = past
        self.columns = (
            config.query.parts if config.query.discovers else len(self.labels)
        )  # that have values now
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
            self._append(replace(fresh, errors=None))
            self.number, self.step = fresh.last, max(self.step, int(fresh.step.max()))
            while len(self._tail) > 1 and self._cells - _cells(self._tail[0]) >= KEPT_CELLS:
                self._cells -= _cells(self._tail.popleft())

    def summary(self) -> dict[str, Any]:
        """What follows from all releases up to now, ready for JSON; `resume` continues from it."""
        return {"transcript": self.transcript.digest.hex(), "alarms": self.alarms.summary()}

    def resume(self, number: int, known: dict[str, Any], chunks: Iterable[Chunk]) -> None:
        """Resume from what was stored at a release.

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
                self._append(replace(old, errors=None))
                self.number, self.step = old.last, max(self.step, int(old.step.max()))
            self.add(chunk)

    def _append(self, fresh: Chunk) -> None:
        """Keep releases; many small chunks become one, which takes less room than they do."""
        self._tail.append(fresh)
        if fresh.categories is not None:
            self.columns = self.config.query.parts * (1 + int((fresh.categories.opened[-1] > 0).sum()))
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

        With `last`, as of the release of that number. Steps before an amendment have one release each.
        """
        chosen = self.positions(columns)
        steps = since or 1, self.step if until is None else min(until, self.step)
        found = self._between(*steps, chosen)
        if steps[0] < self.first and self._read_before is not None:
            end = self.first - 1 if until is None else min(until, self.first - 1)
            earlier = self._within([self._earlier()], steps[0], end, chosen)
            found = replace(earlier, numbers=np.zeros_like(earlier.numbers)).followed_by(found)
        if last is not None and len(found) and int(found.numbers.max()) > last:
            found = found.picked(np.flatnonzero(found.numbers <= last))
        if revision == "latest":
            found = found.picked(newest(found.chunk.step, found.chunk.revision))
        return found

    def positions(self, columns: Iterable[str] | None) -> tuple[int, ...]:
        """The positions of named columns; a name that is not there is refused."""
        if columns is None:
            return tuple(range(len(self.labels)))
        if self.config.query.discovers:
            raise InvalidParameter(
                "columns",
                "given",
                "absent where categories are found, which come and go",
                "ask for all of them",
            )
        known = {label: at for at, label in enumerate(self.labels)}
        found = []
        for name in columns:
            if name not in known:
                raise InvalidParameter(
                    "columns", name[:60], "columns of this stream", "ask for the stream to see them"
                )
            found.append(known[name])
        return tuple(dict.fromkeys(found))

    def _earlier(self) -> Chunk:
        """What was released before an amendment: as much as may stay in memory."""
        assert self._read_before is not None
        with self._before_lock:
            if self._before is None:
                width = self.config.mechanism.outputs
                self._before = self._read_before(max(1, self.first - EARLIER_CELLS // width))
            return self._before

    def _between(self, first: int, last: int, columns: tuple[int, ...]) -> Selection:
        with self._lock:
            tail = list(self._tail)
        if not tail:
            return self._within([], first, last, columns)
        firsts = tail[0].step[tail[0].revision == 0]
        # a step is released before it is revised, so from this step on everything is in memory
        covered = tail[0].first == 1 or (len(firsts) > 0 and int(firsts.min()) <= first)
        if covered:
            return self._within(tail, first, last, columns)
        with self._past(steps=(first, last)) as older:
            return self._within(older, first, last, columns)

    def _within(self, chunks: Iterable[Chunk], first: int, last: int, columns: tuple[int, ...]) -> Selection:
        """Releases of some steps: of each chunk only the columns that are asked for stay in memory."""
        found, numbers, cells, pick = [], [np.zeros(0, dtype=np.int64)], 0, list(columns)
        values: list[list[Values]] = [[np.zeros((0, len(pick)))] for _ in range(3)]
        for chunk in chunks:
            inside = np.flatnonzero((chunk.step >= first) & (chunk.step <= last))
            if not len(inside):
                continue
            cells += len(inside) * max(1, len(pick))
            if cells > MOST_CELLS:
                raise InvalidParameter(
                    "since",
                    first,
                    f"so late that at most {MOST_CELLS:,} values are asked for",
                    "narrow the range",
                )
            part = chunk.picked(inside)
            for kept, each in zip(values, bounds(self.config, part), strict=True):
                kept.append(each[:, pick])
            found.append(replace(part, values=part.values[:, :0].copy(), radius=None))
            numbers.append(chunk.first + inside)
        answers, low, high = (np.concatenate(each) for each in values)
        return Selection(joined(found, 0), np.concatenate(numbers), columns, answers, low, high)


def _cells(chunk: Chunk) -> int:
    """How much room releases take, counted in values."""
    found = chunk.categories
    named = 0 if found is None else found.names.size // 8 + 2 * found.opened.size
    return chunk.values.size + 8 * len(chunk) + named


def _first(most: int, chunks: Iterable[Chunk]) -> list[Chunk]:
    """Chunks with at most so many releases together."""
    found: list[Chunk] = []
    for chunk in chunks:
        found.append(chunk[:most] if len(chunk) > most else chunk)
        most -= len(found[-1])
        if most <= 0:
            break
    return found


def bounds(config: Config, chunk: Chunk) -> tuple[Values, Values, Values]:
    """The answers of releases, and the ends of the intervals around them at 90 %; NaN where none is known."""
    answers = np.asarray(config.query.answers(chunk.values), dtype=np.float64)
    return answers, *config.query.intervals(chunk.values, chunk.radius)
