"""A process that releases and amends the three statistics of a shop, a hierarchy and answers, and gets killed.

Reads one JSON object a line from standard input and answers with one, as crash_worker.py does.
"""

from __future__ import annotations

import importlib
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
from tidegate.runtime import (
    pruning,  # FIXME
    stream,  # FIXME
    streams,  # FIXME
)
from tidegate.runtime.parts import amendments_of
from tidegate.runtime.store import open_durable

from tidegate.config import Queries, parse_queries
from tidegate.errors import TidegateError
from tidegate.pipeline import open_pipeline
from tidegate.pipeline.amend import amend
from tidegate.testing.entropy import fixed_entropy

PHASE = 20  # steps between two amendments
WINDOW = 6
HEAD = """[source]
location = "receipts.csv"
time = "time"
unit = "customer"
column = "shop"
value = "amount"
[steps]
start = "2026-03-02T00:00"
length = "1h"
count = {count}
[sink]
location = "released.csv"
[mechanism]
name = "Uniform"
"""
ORDERS = """[[query]]
name = "orders"
aggregate = "count"
hierarchy = { north = "both", south = "both" }
most = 2
share = "1/4"
"""
CUSTOMERS = """[[query]]
name = "customers"
aggregate = "distinct"
share = "1/4"
mechanism = "BudgetAbsorption"
"""
REVENUE = """[[query]]
name = "revenue"
aggregate = "sum"
clip = "learn"
learn = 3
bound = 5000
share = "1/2"
mechanism = "Tide"
"""
ANSWERS = """[[answer]]
name = "day"
query = "orders"
kind = "window"
window = 6
[[answer]]
name = "smoothed"
query = "revenue"
kind = "decayed"
half_life = 4
[[answer]]
name = "crowded"
query = "customers"
kind = "alarm"
threshold = 20
[[answer]]
name = "paid"
query = "revenue"
kind = "ratio"
by_query = "orders"
by = "both"
window = 6
"""
# at first, after the first amendment (less ε, another mechanism), and after the second (more ε, columns)
VARIANTS = (
    (ORDERS + CUSTOMERS + REVENUE, "1"),
    (ORDERS + CUSTOMERS + REVENUE.replace("Tide", "Sample"), "1/2"),
    (
        ORDERS.replace('"1/4"', '"1/8"')
        + CUSTOMERS.replace('"distinct"', '"distinct"\ncolumns = ["north", "south"]')
        + REVENUE,
        "1",
    ),
)


def receipts(folder: Path) -> None:
    """What the shop sold, the same each time."""
    path = folder / "receipts.csv"
    if path.exists():
        return
    rng = np.random.default_rng(4)
    lines = ["time,customer,shop,amount"]
    for minute in np.sort(rng.integers(0, 3 * PHASE * 60, 30_000)).tolist():
        day, rest = divmod(minute, 1440)
        shop = ("north", "south")[int(rng.integers(2))]
        time_ = f"2026-03-{2 + day:02d}T{rest // 60:02d}:{rest % 60:02d}:00"
        lines.append(f"{time_},c{rng.integers(5000)},{shop},{rng.integers(150)}")
    path.with_suffix(".tmp").write_text("\n".join(lines) + "\n", encoding="utf-8")
    path.with_suffix(".tmp").rename(path)


def variant(folder: Path, target: str, number: int, *, grows: bool = False) -> Queries:
    """The configuration of one phase; outputs that only grow are those of releases that may be archived."""
    queries, epsilon = VARIANTS[number]
    ledger = f'ledger = "{target}"\n' if target else ""
    protect = f'[protect]\nepsilon = "{epsilon}"\nwindow = {WINDOW}\n{ledger}'
    head = HEAD.format(count=PHASE * (number + 1))
    if grows:
        head = head.replace('"released.csv"', '"released.csv"\nrevisions = "all"')
    text = head + queries + ("" if grows else ANSWERS) + protect
    return parse_queries(text, folder / "tidegate.toml")


def known(queries: Queries, before: int = 1) -> int:
    """In which phase the stream is: how often it was amended; `before` counts what it was begun with."""
    try:
        with open_durable(queries.ledger, read_only=True) as ledger:
            return max(len(amendments_of(ledger)) - before, 0)
    except TidegateError:
        return 0


def work(order: dict[str, Any]) -> None:
    """One start: from wherever the stream is to its end, with an amendment before each later phase."""
    folder, target = Path(order["folder"]), order["target"]
    receipts(folder)
    with nullcontext() if order.get("fresh_noise") else fixed_entropy(11):
        for number in range(len(VARIANTS)):
            queries = variant(folder, target, number, grows="archives" in order)
            phase = known(queries)
            if phase > number:
                continue
            if phase < number:
                amend(queries)
            release(queries, folder / "archives" if order.get("archives") else None)


def work_on_old(order: dict[str, Any]) -> None:
    """One start of a stream that version 0.1.0 has begun with one query: amended to two, and released to its end."""
    folder = Path(order["folder"])
    text = (folder / "tidegate.toml").read_text(encoding="utf-8").replace("follow = true\n", "")
    begin, end = text.index("[query]"), text.index("[protect]")
    query = text[begin:end].replace("[query]", "[[query]]")
    both = "".join(f'{query}name = "{name}"\nshare = "1/2"\n' for name in ("first", "second"))
    with fixed_entropy(11):
        queries = parse_queries(text[:begin] + both + text[end:], folder / "tidegate.toml")
        if not known(queries, before=0):
            amend(queries)
        release(queries)


def release(queries: Queries, archives: Path | None = None) -> None:
    """Release everything up to the end of a phase, a few steps at a time, and archive what no window needs."""
    with open_pipeline(queries) as running:
        if archives is not None:
            archives.mkdir(exist_ok=True)
            running.archive_into(archives, keep=WINDOW)
        intake = running.queries.open(running.position)
        if hasattr(intake.source, "piece"):
            intake.source.piece = 15_000
        running.drive(intake)
        running.finish()
        intake.close()


def main() -> None:
    """Fork a child for every line of standard input."""
    stream.SYNC_EVERY = streams.SYNC_EVERY = (
        0.0  # record what sinks have taken at once, so that this is cut into, too
    )
    pruning.SPARE = 0  # nothing is spared for sinks, so that short streams are pruned
    with fixed_entropy(1):
        for number in range(len(VARIANTS)):
            for part in variant(Path(), "", number).parts:
                warm = part.mechanism.start()
                warm.push([1] * part.mechanism.columns)
                warm.push_batch(np.ones((3, part.mechanism.columns), dtype=np.int64))
    with suppress(ImportError):
        importlib.import_module("psycopg")  # not in every child anew
    follow = importlib.import_module("crash_worker").follow_orders
    follow(lambda order: (work_on_old if order.get("old") else work)(order))


if __name__ == "__main__":
    main()
