"""Answers to standing questions, in a file that only ever grows."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.queries.standing import Known, Operator, RatioOfTwo, Row
from tidegate.releases import Errors
from tidegate.sinks.chunks import Chunk
from tidegate.sinks.errors import SinkError
from tidegate.sinks.file_writing import earlier_name
from tidegate.sinks.layout import plain
from tidegate.sinks.rounding import rounded
from tidegate.sinks.sink import Position
from tidegate.sinks.text import TextFileSink

HEADER = ("time", "step", "column", "value", "low", "high")


class AnswerFileSink(TextFileSink):
    """Asks a standing question of every release, and appends the answers.

    At every start the question is asked again from the first release on, and what the file holds is compared with the
    answers: after a crash only the missing bytes are written. Where they differ because the question was changed, or is
    computed in another way by another version, the file is set aside under another name and written again; a file
    that is no answer at all is refused.

    Parameters
    ----------
    path
        The file, .csv or .jsonl.
    ask
        Makes the operator.
    time
        When a step begins, in words.
    columns
        The number of columns of a released vector.
    beside
        Another query that the question is about as well.
    """

    whole = "drop [[answer]]"

    def __init__(
        self,
        path: str | Path,
        ask: Callable[[], Operator],
        time: Callable[[int], str],
        *,
        columns: int,
        beside: Beside | None = None,
    ) -> None:
        self._beside = beside
        self._ask, self._time = ask, time
        self._operator = ask()
        self._columns = columns
        self._fields = (*HEADER, *self._operator.extras)
        self._json = Path(path).suffix != ".csv"
        header = b"" if self._json else _csv([self._fields])
        super().__init__(path, header, self._answers)

    def resume(self, number: int, position: Position | None) -> int:
        """Ask for everything: an answer may depend on all releases before it."""
        self._operator = self._ask()
        if self._beside is not None:
            self._beside.begin()
        return super().resume(0, None)

    def refuse_occupied(self) -> None:
        """Refuse a file that is there before anything was released, unless a start that was killed has begun it."""
        if self.occupied():
            with self.path.open("rb") as file:
                begun = self._header.startswith(file.read(len(self._header) + 1))
            if not begun:
                raise self._foreign()

    def settled(self) -> None:
        """Set a file aside that holds more than there are answers."""
        try:
            super().settled()
        except SinkError:
            self._restart()

    def _append(self, data: bytes) -> None:
        try:
            super()._append(data)
        except SinkError:
            if self._offset == 0 or not self._comparing:  # not even the header is that of an answer
                raise
            self._restart()
            super()._append(data)

    def _restart(self) -> None:
        """Set the file aside, and begin another one with what both have in common."""
        assert self._file is not None
        self._file.seek(0)
        common = self._read(self._offset)
        self._file.close()
        self.path.rename(earlier_name(self.path))
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._file = os.fdopen(descriptor, "r+b", buffering=0)
        self._write_on(common)

    # what is written ----------------------------------------------------------------------------------------

    def _answers(self, chunk: Chunk) -> bytes:
        """The answers at the steps of a chunk; later words on earlier steps are taken in on the way."""
        found = asked(self._operator, chunk, self._beside)
        rows = [(step, row) for step, answers in found for row in answers]
        return self._written(rows) if rows else b""

    def _written(self, rows: list[tuple[int, Row]]) -> bytes:
        numbers = np.array([[row.value, row.low, row.high] for _, row in rows], dtype=np.float64)
        value, low, high = (numbers[:, at : at + 1] for at in range(3))
        shown = np.concatenate(rounded(value, low, high, np.zeros(len(rows))), axis=1)
        lines = [
            [self._time(row.about), step, row.column, *map(_digits, three), *row.more]
            for (step, row), three in zip(rows, plain(shown), strict=True)
        ]
        if not self._json:
            return _csv([[_word(cell) for cell in line] for line in lines])
        encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
        return b"".join(encode(dict(zip(self._fields, line, strict=True))).encode() + b"\n" for line in lines)


class Beside:
    """The releases of another query, as far as they were known when a step of the first one was released.

    Both queries are committed together, but each revises its steps as it likes. So that an answer depends on the
    releases alone, and not on how they were cut into blocks, the other query has always got exactly as far as its own
    first release of the step.

    Parameters
    ----------
    chunks
        Its committed releases after a number, in order.
    since
        The steps up to here are left out: one of the two queries was not there yet, or was another one.
    """

    def __init__(self, chunks: Callable[[int], Iterator[Chunk]], *, since: int = 0) -> None:
        self._chunks, self.since = chunks, since
        self.begin()

    def begin(self) -> None:
        """Begin with the first release."""
        self._taken = 0
        self._waiting: Iterator[tuple[Known, bool]] = iter(())

    def follow(self, operator: RatioOfTwo, step: int) -> None:
        """Let a question know all that the other query had said when it first released a step."""
        while True:
            for known, first in self._waiting:
                self._taken += 1
                if known.step <= self.since:
                    continue
                if first:
                    operator.take_beside(known)
                else:
                    operator.revise_beside(known)
                if first and known.step >= step:
                    return
            following = next(self._chunks(self._taken), None)
            if following is None:
                return
            self._waiting = read(following)


def asked(operator: Operator, chunk: Chunk, beside: Beside | None = None) -> Iterator[tuple[int, list[Row]]]:
    """What a question answers to each release of a chunk, with the release's step; nothing to a later word.

    Parameters
    ----------
    operator
        The question, which has been asked of all releases before.
    chunk
        Releases.
    beside
        As for :class:`AnswerFileSink`.
    """
    for known, first in read(chunk):
        if beside is not None and known.step <= beside.since:
            yield known.step, []
        elif first:
            if beside is not None:
                assert isinstance(operator, RatioOfTwo)
                beside.follow(operator, known.step)
            yield known.step, list(operator.push(known))
        else:
            operator.revise(known)
            yield known.step, []


def read(chunk: Chunk) -> Iterator[tuple[Known, bool]]:
    """What each release of a chunk says, and whether it is the first about its step."""
    radius = np.full((len(chunk), 1), np.nan) if chunk.radius is None else chunk.radius
    for at, step in enumerate(chunk.step.tolist()):
        values = chunk.values[at]
        errors = None if chunk.errors is None else Errors(*(part[at] for part in chunk.errors))
        wide = np.broadcast_to(radius[at], values.shape)
        yield Known(step, values, wide, errors, float(chunk.scale[at])), not chunk.revision[at]


def _digits(number: float | int | None) -> float | int | None:
    """A number without the digits that adding up in another order would change."""
    return float(f"{number:.12g}") if isinstance(number, float) else number


def _word(cell: Any) -> Any:
    return str(cell).lower() if isinstance(cell, bool) else cell


def _csv(lines: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue().encode()
