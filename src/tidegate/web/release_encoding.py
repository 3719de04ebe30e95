"""Releases as bytes: JSON, CSV, Parquet and Arrow; the same bytes whenever the same is asked."""

from __future__ import annotations

import io
import json
import zoneinfo
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.config import Config
from tidegate.exact import show
from tidegate.releases import Status
from tidegate.sinks.chunks import CONFIDENCE
from tidegate.web.release_cache import ReleaseCache, Selection, bounds

FORMATS = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.file",
}
PAGE_CELLS = 2**13  # values of text that are made together
_LABELS = {int(status): status.label for status in Status}
_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class Encoder:
    """How the releases of one stream read.

    Parameters
    ----------
    name
        The stream's name in addresses.
    config
        Its configuration.
    unit
        The exact value of one budget unit.
    query
        The name of the query, where the stream has several.
    """

    def __init__(self, name: str, config: Config, unit: Fraction, query: str = "") -> None:
        self.config, self.unit = config, unit
        self.names = {"stream": name, "query": query} if query else {"stream": name}
        self.labels = config.query.answer_labels
        self.stream = f"{config.fingerprint[:12]}-{query}" if query else config.fingerprint[:12]
        self._zone = zoneinfo.ZoneInfo(config.steps.zone)

    def time(self, step: int) -> str:
        """When a step begins, in the stream's zone with its offset."""
        return self.config.steps.begin(step).astimezone(self._zone).isoformat(timespec="seconds")

    def objects(self, found: Selection) -> list[dict[str, Any]]:
        """One object a release; values in the order of the columns."""
        chunk = found.chunk
        rows = zip(
            found.numbers.tolist(),
            chunk.step.tolist(),
            chunk.revision.tolist(),
            chunk.status.tolist(),
            chunk.units.tolist(),
            chunk.scale.tolist(),
            numbers(found.answers),
            numbers(found.low),
            numbers(found.high),
            strict=True,
        )
        releases = [
            {
                "number": number or None,
                "id": f"{self.stream}-{step}.{revision}",
                "step": step,
                "revision": revision,
                "time": self.time(step),
                "status": _LABELS[status],
                "spent": show(units * self.unit) if number else None,
                "scale": scale,
                "values": values,
                "low": low,
                "high": high,
            }
            for number, step, revision, status, units, scale, values, low, high in rows
        ]
        if self.config.query.discovers:
            for index, each in enumerate(releases):
                self._name(each, found, index)
        return releases

    def _name(self, release: dict[str, Any], found: Selection, index: int) -> None:
        """Where categories are found: only open ones, by name, since when they are open, and the rest as the last."""
        places = found.open_places(index, self.config.query.parts)
        for key in ("values", "low", "high"):
            release[key] = [release[key][place] for place, *_ in places]
        release["categories"] = [name for _, name, *_ in places]
        release["opened"] = [self.time(opened) if opened else None for _, _, opened, _ in places]
        release["units"] = [_number(units) for *_, units in places]

    def _after(self, board: ReleaseCache, number: int, most: int) -> list[dict[str, Any]]:
        chunk = board.after(number, most)
        if not len(chunk):
            return []
        answers, low, high = bounds(self.config, chunk)
        counted = np.arange(chunk.first, chunk.last + 1)
        everything = tuple(range(len(self.labels)))
        return self.objects(Selection(chunk, counted, everything, answers, low, high))

    def alarms(self, board: ReleaseCache, number: int) -> list[dict[str, Any]]:
        """The alarms that a release has raised or cleared."""
        return [
            {
                "id": f"{self.stream}-{event['alarm']}-{event['column']}-{event['step']}",
                **self.names,
                **event,
                "value": _number(event["value"]),
                "time": self.time(event["step"]),
            }
            for event in board.alarms.events.get(number, [])
        ]

    def event(self, board: ReleaseCache, number: int, most: int) -> list[tuple[int, bytes]]:
        """Releases after a number as server-sent events, each with its number; alarms come before their release."""
        found = []
        for each in self._after(board, number, most):
            raised = [
                f"event: alarm\ndata: {_compact(alarm)}\n\n" for alarm in self.alarms(board, each["number"])
            ]
            release = f"id: {each['number']}\nevent: release\ndata: {_compact(each)}\n\n"
            found.append((each["number"], "".join([*raised, release]).encode()))
        return found

    def messages(
        self, board: ReleaseCache, number: int, most: int, *, releases: bool
    ) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """What a webhook is sent about each release after a number."""
        for each in self._after(board, number, most):
            events = [{"type": "alarm", **alarm} for alarm in self.alarms(board, each["number"])]
            if releases:
                columns = each.get("categories") or list(self.labels)
                events.append({"type": "release", **self.names, "columns": columns, **each})
            yield each["number"], events

    def encode(self, kind: str, found: Selection, last: int) -> bytes:
        """The body of an answer."""
        return b"".join(self.pages(kind, found, last))

    def pages(self, kind: str, found: Selection, last: int) -> Iterator[bytes]:
        """The body of an answer in pieces; of text none is large, files are one piece."""
        if kind == "parquet":
            yield _written(self.table(found).write_parquet)
        elif kind == "arrow":
            yield _written(lambda file: self.table(found).write_ipc(file, compression="lz4"))
        elif kind == "csv":
            for number, part in enumerate(_parts(found)):
                yield self.table(part).write_csv(include_header=number == 0).encode()
        else:
            yield from self._json(found, last)

    def _json(self, found: Selection, last: int) -> Iterator[bytes]:
        document = {
            **self.names,
            "columns": None if self.config.query.discovers else [self.labels[at] for at in found.columns],
            "confidence": CONFIDENCE,
            "last": last,
            "releases": [],
        }
        yield _compact(document).encode().removesuffix(b"]}")
        for number, part in enumerate(_parts(found)):
            text = _compact(self.objects(part)).encode()[1:-1]
            yield b"," + text if number and text else text
        yield b"]}"

    def table(self, found: Selection) -> pl.DataFrame:
        """One row for each release and column; where categories are found, for each open one and the rest."""
        if self.config.query.discovers:
            return self._table_of_found(found)
        chunk, width = found.chunk, len(found.columns)
        names = [self.labels[at] for at in found.columns]
        counted = zip(found.numbers.tolist(), chunk.units.tolist(), strict=True)
        spent = [show(units * self.unit) if number else None for number, units in counted]

        def spread(values: Any) -> pl.Series:
            return pl.Series(np.repeat(np.asarray(values), width))

        return pl.DataFrame(
            {
                "number": spread(found.numbers).replace(0, None),
                "time": pl.Series(
                    [text for text in map(self.time, chunk.step.tolist()) for _ in range(width)],
                    dtype=pl.String,
                ),
                "step": spread(chunk.step),
                "revision": spread(chunk.revision),
                "column": pl.Series(names * len(chunk), dtype=pl.String),
                "value": pl.Series(found.answers.ravel()).fill_nan(None),
                "low": pl.Series(found.low.ravel()).fill_nan(None),
                "high": pl.Series(found.high.ravel()).fill_nan(None),
                "status": pl.Series(
                    [_LABELS[status] for status in chunk.status.tolist() for _ in range(width)],
                    dtype=pl.String,
                ),
                "scale": spread(chunk.scale),
                "spent": pl.Series([text for text in spent for _ in range(width)], dtype=pl.String),
            }
        )

    def _table_of_found(self, found: Selection) -> pl.DataFrame:
        fields = ("number", "time", "step", "revision")
        rows = [
            {
                **{name: each[name] for name in fields},
                "column": column,
                "value": value,
                "low": low,
                "high": high,
                **{name: each[name] for name in ("status", "scale", "spent")},
                "opened": opened,
                "units": units,
            }
            for each in self.objects(found)
            for column, value, low, high, opened, units in zip(
                *(each[name] for name in ("categories", "values", "low", "high", "opened", "units")),
                strict=True,
            )
        ]
        kinds: dict[str, Any] = {
            "number": pl.Int64,
            "time": pl.String,
            "step": pl.Int64,
            "revision": pl.Int32,
        }
        kinds |= {"column": pl.String, "value": pl.Float64, "low": pl.Float64, "high": pl.Float64}
        kinds |= {"status": pl.String, "scale": pl.Float64, "spent": pl.String}
        return pl.DataFrame(rows, schema=kinds | {"opened": pl.String, "units": pl.Float64})


def _parts(found: Selection) -> Iterator[Selection]:
    """Releases, some at a time; at least once."""
    most = max(1, PAGE_CELLS // max(1, len(found.columns)))
    for begin in range(0, max(1, len(found)), most):
        yield found.picked(np.arange(begin, min(begin + most, len(found))))


def _written(write: Callable[[io.BytesIO], object]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def numbers(values: npt.NDArray[np.float64]) -> list[list[Any]]:
    """Rows of numbers for JSON: whole ones without a point, unknown ones as null."""
    rows: list[list[float]] = values.tolist()
    return [[_number(value) for value in row] for row in rows]


def _number(value: float) -> int | float | None:
    if value != value or value in (float("inf"), float("-inf")):
        return None
    if value.is_integer() and abs(value) < 2.0**53:
        return int(value)
    return value
