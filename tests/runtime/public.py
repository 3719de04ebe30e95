"""Everything that a stream makes public, as bytes; and the same bytes made from configuration and releases alone.

Two inputs that differ in one record, or in nothing but the order of records, must not be told apart by anything but
released values. So a test runs a stream over both under fixed entropy and compares `surface`. Where values differ,
`recomputed` is what the surface has to be: a stream that never sees the input, but only what was released.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tidegate.config import Queries, parse_queries
from tidegate.ingest import Intake, StepBlock
from tidegate.pipeline import Pipeline, open_pipeline
from tidegate.pipeline.status import StatusReporter
from tidegate.report.card import write_card
from tidegate.report.numbers import write_table
from tidegate.report.report import released_numbers, write_report
from tidegate.sinks.chunks import Chunk, joined
from tidegate.testing.entropy import fixed_entropy, zero_noise
from tidegate.web import Service, Settings

Write = Callable[[Path, list[tuple[str, str, str]]], str]
Surface = dict[str, bytes]
Event = tuple[str, str, str]  # time, unit, place
HOURS = 24
AFTER = 1_900_000_000.0  # a moment after the last step of everything here
_MOMENT = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d UTC")  # at which a report was written
MADE = ("*.csv", "*.jsonl", "*.parquet", "*.receipt", "*.html", "*.json")
TEXT = """\
[source]
location = "{location}"
time = "time"
unit = "unit"
column = "place"

[steps]
start = "2026-03-02T00:00"
length = "1h"
zone = "UTC"
count = 24

[query]
aggregate = "distinct"
columns = ["north", "south"]

[protect]
epsilon = "1"
window = 4

[mechanism]
name = "Uniform"

[sink]
location = "{folder}/out/released.csv"
"""


def base() -> list[Event]:
    """Four units in each of the first six hours, and nobody after them."""
    return [
        (f"2026-03-02T{hour:02d}:{10 * k:02d}:00Z", f"walrus{k}", "south" if k == 3 else "north")
        for hour in range(6)
        for k in range(4)
    ]


def swapped() -> list[Event]:
    """The same records; one of them is out of order, by hours."""
    events = base()
    return [*events[:2], events[20], *events[2:20], *events[21:]]


def doubled() -> list[Event]:
    """One record more, of a unit that was counted already in this hour."""
    return [*base(), ("2026-03-02T05:59:00Z", "walrus0", "north")]


def outside() -> list[Event]:
    """One record more, from after the last step."""
    return [*base(), ("2026-03-09T05:59:00Z", "walrus0", "north")]


def elsewhere() -> list[Event]:
    """One record more, at a place that is no column, in the eighteenth hour."""
    return [*base(), ("2026-03-02T17:10:00Z", "walrus0", "nowhere")]


def moved() -> list[Event]:
    """One record in the eighteenth hour, and not in the sixth: values differ, and nothing else may."""
    return [*base()[:-1], ("2026-03-02T17:10:00Z", "walrus3", "south")]


SAME_VALUES: dict[str, Callable[[], list[Event]]] = {
    each.__name__: each for each in (swapped, doubled, outside, elsewhere)
}


def prepare(folder: Path, location: str, *changes: tuple[str, str]) -> Queries:
    """The stream at its beginning: nothing was released, and there is no ledger."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    (folder / "out").mkdir(parents=True)
    text = TEXT.format(folder=folder, location=location)
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    (folder / "out" / "hall.toml").write_text(text)
    (folder / "out" / "hall.key").write_text(
        "A" * 43 + "=\n"
    )  # one key for all, so that heads are comparable
    return parse_queries(text, folder / "out" / "hall.toml")


def run(
    queries: Queries, moments: Sequence[float] = (), arrive: Callable[[float], None] | None = None
) -> Surface:
    """Release a stream under fixed entropy; what is public then.

    Parameters
    ----------
    queries
        As `prepare` made them.
    moments
        Of a followed stream: what the clock says at each of its starts, which end when all that has closed is released.
    arrive
        Lets records arrive up to a moment, before the start.
    """
    with fixed_entropy(7):
        for now in moments or (None,):
            if arrive is not None and now is not None:
                arrive(now)
            clock = None if now is None else lambda now=now: now
            with open_pipeline(queries, follow=now is not None, backfill=True, clock=clock) as streams:
                _drive(
                    streams,
                    streams.queries.open(
                        streams.position, follow=now is not None, clock=clock, once=now is not None
                    ),
                )
    return surface(queries, live=bool(moments))


def _drive(streams: Pipeline, intake: Intake) -> None:
    with closing(intake):
        streams.drive(intake)
        streams.finish()


def surface(queries: Queries, *, live: bool = False, fixed: bool = True) -> Surface:
    """All public bytes of a stream that has ended, without times and the signatures of times."""
    folder = queries.first.path.parent
    found: Surface = {}
    entropy = partial(fixed_entropy, 7) if fixed else nullcontext
    with entropy(), open_pipeline(queries, follow=live, backfill=True, clock=lambda: AFTER) as streams:
        verification = streams.verify()
        assert verification.ok
        reporter = StatusReporter(streams.queries.first, live=False)
        reporter.begin(streams)
        found["status"] = _json(reporter.facts(), "time")
        found["head"] = streams.session.head
        found["verdict"] = str(verification).encode()
        read = [streams.released[part.name] for part in queries.parts]
        write_report(folder / "report.html", read, verification)
        write_table(folder / "table.csv", released_numbers(read))
        write_card(folder / "card.json", queries.parts, streams.history)
    for pattern in MADE:
        found |= {path.name: _MOMENT.sub(b"", path.read_bytes()) for path in sorted(folder.rglob(pattern))}
    with entropy():
        service = Service([queries], Settings(clock=lambda: AFTER, backfill=True, tokens=folder / "tokens"))
    try:
        found |= asyncio.run(_answers(service, list(_paths(queries))))
    finally:
        for driver in service.drivers.values():
            driver.join()
    return found


async def _answers(service: Service, paths: list[str]) -> Surface:
    """What the service says to anybody; its streams are open and not driven."""
    found = {}
    transport = httpx.ASGITransport(service.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for path in paths:
            answer = await client.get(path)
            assert answer.status_code == 200, (path, answer.text)
            text = re.sub(r"process_start_time_seconds [\d.]+", "", answer.text)
            found[path] = _json(json.loads(text), "time", "signature") if text[0] in "{[" else text.encode()
            if path.endswith("/rows"):  # which come in pages, and from archives
                rows = answer.json()["rows"]
                while more := (await client.get(f"{path}?after={len(rows)}")).json()["rows"]:
                    rows += more
                found[path] = _json(rows)
                found["charges"] = _json([row[:5] for row in rows])  # without digests
    return found


def _paths(queries: Queries) -> Iterator[str]:
    yield from ("/streams", "/streams/hall", "/metrics", "/streams/hall/account")
    names = [f"/{part.name}" for part in queries.parts] if queries.listed else [""]
    for name in names:
        for route in ("account", "account/rows", "account/transcript", "releases?revision=all&format=csv"):
            yield f"/streams/hall{name}/{route}"


def _json(found: Any, *masked: str) -> bytes:
    if isinstance(found, dict):
        found = {name: value for name, value in found.items() if name not in masked}
    return json.dumps(found, sort_keys=True, indent=1).encode()


def differing(one: Surface, other: Surface) -> dict[str, tuple[bytes, bytes]]:
    """What is not the same, with the first place where it is not."""
    found = {}
    for name in {*one, *other}:
        mine, its = one.get(name, b""), other.get(name, b"")
        if mine != its:
            at = next((i for i, (a, b) in enumerate(zip(mine, its, strict=False)) if a != b), 0)
            found[name] = (mine[max(0, at - 60) : at + 60], its[max(0, at - 60) : at + 60])
    return found


def released(queries: Queries) -> list[Chunk]:
    """What was released, of each query."""
    with fixed_entropy(7), open_pipeline(queries, follow=False, sink=False) as streams:
        read = [streams.released[part.name] for part in queries.parts]
        return [joined(each.chunks(), each.mechanism.outputs) for each in read]


class Pretended(Intake):
    """An intake that has read nothing: it delivers given vectors, in blocks that follow from the configuration."""

    vectors: np.ndarray[Any, Any]
    size: int

    def __iter__(self) -> Iterator[StepBlock]:
        for step in range(1, len(self.vectors) + 1, self.size):
            units = self.vectors[step - 1 : step - 1 + self.size]
            last = step + len(units) - 1
            yield StepBlock(step, units, Fraction(1), {"step": last, "source": None})


def recomputed(queries: Queries, vectors: np.ndarray[Any, Any], *, size: int, live: bool = False) -> Surface:
    """What is public of a stream that has released these vectors, or that decides as these vectors make it decide.

    Parameters
    ----------
    queries
        As `prepare` made them.
    vectors
        In place of an input; nothing is added to them.
    size
        The number of steps in a block, which is public.
    live
        Whether the stream is followed.
    """
    with zero_noise(), open_pipeline(queries, follow=live, backfill=True, clock=lambda: AFTER) as streams:
        first = streams.queries.first
        # nothing of this source is ever read
        intake = Pretended(None, first.schema, first.steps, streams.queries.counted, follow=live)  # type: ignore[arg-type]
        intake.vectors, intake.size = vectors.astype(np.int64), size
        intake.close = lambda: None  # type: ignore[method-assign]
        _drive(streams, intake)
    return surface(queries, live=live)
