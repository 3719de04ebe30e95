"""How a release reads: rows and JSON objects, the same bytes whenever they are made from the same release."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import zoneinfo
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import show
from tidegate.releases import Status
from tidegate.sinks.chunks import Chunk, columns_of_found
from tidegate.sinks.rounding import rounded

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_STATUS = {int(status): status.label for status in Status}
_MISSING = Status.MISSING.label
FOUND = ("opened", "units")  # of a row, where categories are found
Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Layout:
    """Turns chunks into text.

    Parameters
    ----------
    labels
        The names of the values.
    boundary
        When a step begins, in microseconds since 1970.
    zone
        The time zone in which times are written.
    unit
        The exact value of one budget unit.
    stream
        The beginning of every release's id.
    form
        "wide": one row a release. "long": one row for each release and column.
    revised
        Whether a step can have several releases; then rows carry their revision.
    answers
        Post-processing of the released vectors, for example sums and counts into means.
    bounds
        The ends of the intervals around answers, from released vectors and their radius.
    intervals
        Whether rows carry `low` and `high`; not so where a stream was begun before they did.
    rounds
        Whether digits are left out that the noise has made meaningless; not so where a stream was begun with all.
    guarantee
        The fingerprint of the configuration that was promised, for sinks that name it beside each release.
    since
        The last step before those of this part of the stream, for sinks that have the releases of earlier parts as well.
    found
        Where categories are found, in how many columns each stands: 1, or 2 for a mean and its count. A step then has
        rows for each that is open, and for all others. Rows say when their category opened, and how many units its last
        test has seen. 0 where columns are listed.
    """

    labels: tuple[str, ...]
    boundary: Callable[[int], int] = field(repr=False)
    zone: str
    unit: Fraction
    stream: str
    form: str = "wide"
    revised: bool = False
    answers: Callable[[Values], Values] = field(default=np.asarray, repr=False)
    bounds: Callable[[Values, Values | None], tuple[Values, Values]] = field(
        default=lambda values, radius: around(values, radius), repr=False
    )
    intervals: bool = True
    rounds: bool = False
    guarantee: str = ""
    since: int = 0
    found: int = 0

    def __post_init__(self) -> None:
        others = {*self._before, *self._after, *self._ends}
        taken = next((label for label in self.labels if label in others), None)
        if self.form == "wide" and taken is not None:
            raise InvalidParameter(
                "columns",
                taken,
                "different from the columns that say when and how",
                'write layout = "long" in [sink]',
            )

    @property
    def _before(self) -> tuple[str, ...]:
        return ("time", "step", "revision") if self.revised else ("time", "step")

    @property
    def _after(self) -> tuple[str, ...]:
        return ("status", "scale", "spent")

    @property
    def header(self) -> tuple[str, ...]:
        """The names of a row's fields."""
        middle = self.labels if self.form == "wide" else ("column", "value")
        return (*self._before, *middle, *self._ends, *self._after, *(FOUND if self.found else ()))

    @property
    def _ends(self) -> tuple[str, ...]:
        """The names of the ends of intervals."""
        if not self.intervals:
            return ()
        if self.form == "long":
            return ("low", "high")
        return tuple(f"{label} {end}" for label in self.labels for end in ("low", "high"))

    @property
    def kinds(self) -> tuple[str, ...]:
        """What each field holds: "text", "whole" numbers or "number"."""
        before = ("text", "whole", "whole")[: len(self._before)]
        middle = ("number",) * len(self.labels) if self.form == "wide" else ("text", "number")
        ends = ("number",) * len(self._ends)
        return (
            *before,
            *middle,
            *ends,
            "text",
            "number",
            "text",
            *(("text", "number") if self.found else ()),
        )

    @cached_property
    def _zone(self) -> zoneinfo.ZoneInfo:
        return zoneinfo.ZoneInfo(self.zone)

    @cached_property
    def _spent(self) -> dict[int, str]:
        return {}

    def time(self, step: int) -> str:
        """When a step begins, in ISO 8601 with offset."""
        moment = _EPOCH + datetime.timedelta(microseconds=self.boundary(step))
        return moment.astimezone(self._zone).isoformat(timespec="seconds")

    def spent(self, units: int) -> str:
        """An exact budget as text."""
        found = self._spent.get(units)
        if found is None:
            if len(self._spent) > 10_000:
                self._spent.clear()
            found = self._spent[units] = show(units * self.unit)
        return found

    def identity(self, step: int, revision: int) -> str:
        """The id of a release: the same whenever it is sent, different from all others."""
        return f"{self.stream}-{step}.{revision}"

    def rows(self, chunk: Chunk) -> Iterator[list[Any]]:
        """Rows of numbers and words, in the order of the header; None where there is no value."""
        return (row for _, _, row in self._labelled(chunk))

    def _labelled(self, chunk: Chunk) -> Iterator[tuple[int, str, list[Any]]]:
        """Rows, and which release and which column each is about; of wide ones all columns."""
        answers = self.answers(chunk.values)
        ends = self.bounds(chunk.values, chunk.radius)
        if self.rounds and len(chunk):
            answers, *ends = rounded(answers, *ends, chunk.scale)  # type: ignore[assignment]
        numbers = plain(answers)
        low, high = (plain(end) for end in ends)
        columns = (chunk.step, chunk.revision, chunk.status, chunk.scale, chunk.units)
        for index, (values, least, most, step, revision, status, scale, units) in enumerate(
            zip(numbers, low, high, *(column.tolist() for column in columns), strict=True)
        ):
            before = [self.time(step), step, revision] if self.revised else [self.time(step), step]
            after = [_STATUS[status], scale, self.spent(units)]
            pairs = list(zip(least, most, strict=True)) if self.intervals else [()] * len(values)
            if self.form == "wide":
                yield index, "", [*before, *values, *(end for pair in pairs for end in pair), *after]
                continue
            for place, label, more in self._places(chunk, index):
                value = values[place]
                how = after if value is not None else [_MISSING, *after[1:]]
                yield index, label, [*before, label, value, *pairs[place], *how, *more]

    def _places(self, chunk: Chunk, index: int) -> Iterator[tuple[int, str, tuple[Any, ...]]]:
        """The columns of a release that are written: column, name, and what is said of it besides."""
        if not self.found:
            yield from ((place, label, ()) for place, label in enumerate(self.labels))
            return
        for place, name, opened, units in columns_of_found(
            chunk.categories, index, len(self.labels), self.found
        ):
            yield place, name, (self.time(opened), _plain(units)) if opened else (None, None)

    def csv_header(self) -> bytes:
        """The first line of a CSV file."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(self.header)
        return text.getvalue().encode()

    def csv(self, chunk: Chunk) -> bytes:
        """Lines of CSV."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self.rows(chunk))
        return text.getvalue().encode()

    def csv_file(self, chunk: Chunk) -> bytes:
        """A whole CSV file."""
        return self.csv_header() + self.csv(chunk)

    def objects(self, chunk: Chunk) -> Iterator[bytes]:
        """One JSON object a row, each on a line of its own."""
        return (line for _, _, line in self.messages(chunk))

    def messages(self, chunk: Chunk) -> Iterator[tuple[int, str, bytes]]:
        """The same, and which release and which column each is about; of wide ones all columns."""
        identities = [
            self.identity(step, revision)
            for step, revision in zip(chunk.step.tolist(), chunk.revision.tolist(), strict=True)
        ]
        encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
        for index, label, row in self._labelled(chunk):
            found: dict[str, Any] = {"id": identities[index]}
            if self.form == "wide":
                head, tail, width = len(self._before), len(self._after), len(self.labels)
                found |= dict(zip(self._before, row[:head], strict=True))
                found["values"] = dict(zip(self.labels, row[head : head + width], strict=True))
                if self.intervals:
                    ends = row[head + width : -tail]
                    found["low"] = dict(zip(self.labels, ends[::2], strict=True))
                    found["high"] = dict(zip(self.labels, ends[1::2], strict=True))
                found |= dict(zip(self._after, row[-tail:], strict=True))
            else:
                found |= dict(zip(self.header, row, strict=True))
            yield index, label, encode(found).encode() + b"\n"

    def json_lines(self, chunk: Chunk) -> bytes:
        """Lines of JSON."""
        return b"".join(self.objects(chunk))


def plain(values: Values) -> list[list[Any]]:
    """Numbers as people write them: whole ones without a point, None for none. The same for one row as for many."""
    if values.size <= 32:  # one small step: calls of numpy would cost more than the numbers
        rows: list[list[float]] = values.tolist()
        return [[_plain(value) for value in row] for row in rows]
    whole = np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 2.0**53)
    if whole.all():
        found: list[list[Any]] = values.astype(np.int64).tolist()
        return found
    return [
        [int(value) if at else _plain(value) for value, at in zip(row, flags, strict=True)]
        for row, flags in zip(values.tolist(), whole.tolist(), strict=True)
    ]


def around(values: Values, radius: Values | None) -> tuple[Values, Values]:
    """Intervals around values; NaN where none is known."""
    half = np.broadcast_to(np.nan if radius is None else radius, values.shape)
    return values - half, values + half


def _plain(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None  # no reading and no value in its place, or an interval without an end
    return int(value) if value.is_integer() and abs(value) < 2.0**53 else value
