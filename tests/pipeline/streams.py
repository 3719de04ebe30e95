"""Small configured streams, released by the pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidegate.config import Queries, parse_queries
from tidegate.pipeline import Pipeline, open_pipeline
from tidegate.pipeline.delivery import NullObserver
from tidegate.sinks.chunks import Chunk

HEAD = """\
[source]
location = "events.csv"
time = "time"
unit = "unit"
{columns}
[steps]
start = "2026-03-02T00:00"
length = "1h"
count = {steps}
"""
PLACES = """
[query]
aggregate = "distinct"
columns = ["north", "south"]

[protect]
epsilon = "1"
window = 4

[mechanism]
name = "{mechanism}"

[sink]
location = "out.csv"
"""
SHOP = """
[[query]]
name = "orders"
aggregate = "count"
most = 2
share = "1/4"

[[query]]
name = "revenue"
aggregate = "sum"
clip = ["0", "20"]
grid = "0.01"
share = "3/4"
mechanism = "BudgetAbsorption"

[protect]
epsilon = "1"
window = 6

[mechanism]
name = "Uniform"

[sink]
location = "out.csv"
"""
FOUND = """
[query]
columns = "discover"
most = 2

[protect]
epsilon = "8"
delta = "1/100"
window = 6

[mechanism]
columns = 3
epoch = 5
categories = 2

[sink]
location = "out.csv"
"""
BESIDE = """
[[query]]
name = "people"
aggregate = "distinct"
share = "1/4"
mechanism = "Uniform"

[[query]]
name = "stalls"
columns = "discover"
share = "3/4"

[query.mechanism]
name = "Discover"
columns = 3
epoch = 5
categories = 2

[protect]
epsilon = "12"
delta = "1/100"
window = 6

[sink]
location = "out.csv"
"""
READINGS = """
[source]
location = "events.csv"
time = "time"
column = "place"
value = "amount"

[steps]
start = "2026-03-02T00:00"
length = "1h"
count = {steps}

[query]
aggregate = "given"
columns = ["north", "south"]
fill = "missing"

[protect]
epsilon = "1"
window = 5
max_change = 1

[mechanism]
name = "{mechanism}"

[sink]
location = "out.csv"
"""


def places(folder: Path, mechanism: str = "BudgetAbsorption", steps: int = 40) -> str:
    """A configuration with one query, and its events."""
    lines = ["time,unit,place"]
    for step in range(steps):
        time = f"2026-03-{2 + step // 24:02d}T{step % 24:02d}:30"
        for place, size in (("north", 30 + 20 * (step % 7 == 3)), ("south", 5 + step)):
            lines += [f"{time},{place}{unit},{place}" for unit in range(size)]
    (folder / "events.csv").write_text("\n".join(lines) + "\n")
    return HEAD.format(columns='column = "place"', steps=steps) + PLACES.format(mechanism=mechanism)


def stalls(folder: Path, steps: int = 40) -> str:
    """Categories that nobody has listed: two that stay, one that comes and goes, and one that a single unit has."""
    lines = ["time,unit,place"]
    for step in range(steps):
        time = f"2026-03-{2 + step // 24:02d}T{step % 24:02d}:30"
        there = [("bakery", 40), ("Café", 30)] + [("stage", 60)] * (10 <= step < 20)
        for place, size in there:
            lines += [f"{time},{place[0]}{unit + step},{place}" for unit in range(size)]
            lines += [f"{time},{place[0]}{step},  {place} "]  # the same name
        lines += [f"{time},lone,the only one"]
    (folder / "events.csv").write_text("\n".join(lines) + "\n")
    return HEAD.format(columns='column = "place"', steps=steps) + FOUND


def stalls_and_people(folder: Path) -> Queries:
    """The same with a query beside them."""
    return settings(folder, stalls(folder).partition("\n[query]")[0] + BESIDE)


def shop(folder: Path, steps: int = 40) -> str:
    """Two queries with shares, one of them on a grid of cents."""
    lines = ["time,unit,amount"]
    for step in range(steps):
        time = f"2026-03-{2 + step // 24:02d}T{step % 24:02d}:30"
        lines += [f"{time},unit{unit},{unit * 7 % 23}.{unit % 10}7" for unit in range(10 + step % 5)]
    (folder / "events.csv").write_text("\n".join(lines) + "\n")
    return HEAD.format(columns='value = "amount"', steps=steps) + SHOP


def readings(folder: Path, mechanism: str = "BudgetAbsorption", steps: int = 40) -> str:
    """Values that somebody has measured, some of which are missing."""
    lines = ["time,place,amount"]
    for step in range(steps):
        time = f"2026-03-{2 + step // 24:02d}T{step % 24:02d}:30"
        if not (5 <= step < 9 or step == 20):
            lines.append(f"{time},north,{100 + step % 6}")
        if not 7 <= step < 12:
            lines.append(f"{time},south,{40 + 3 * step}")
    (folder / "events.csv").write_text("\n".join(lines) + "\n")
    return READINGS.format(steps=steps, mechanism=mechanism)


def settings(folder: Path, text: str, *changes: tuple[str, str]) -> Queries:
    """The configuration in a folder, with pieces of its text replaced."""
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    (folder / "tidegate.toml").write_text(text)
    return parse_queries(text, folder / "tidegate.toml")


class StopAfter(NullObserver):
    """Stops an intake after some blocks."""

    def __init__(self, blocks: int | None) -> None:
        self.left, self.intake = blocks, None  # type: Any, Any

    def released(self, chunk: Chunk) -> None:
        """One block less."""
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                self.intake.stop()


def release(queries: Queries, *, closed: bool = True, blocks: int | None = None, **more: Any) -> Pipeline:
    """Release everything, or some blocks; returns the pipeline."""
    observer = StopAfter(blocks)
    pipeline = open_pipeline(queries, observers={queries.parts[0].name: observer}, **more)
    try:
        observer.intake = intake = queries.open(pipeline.position)
        try:
            pipeline.drive(intake)
            pipeline.finish()
        finally:
            intake.close()
    except BaseException:
        pipeline.close()
        raise
    if closed:
        pipeline.close()
    return pipeline
