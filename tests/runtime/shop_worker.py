"""A process that releases and amends the three statistics of a shop, a hierarchy and answers, and gets killed.

Reads one JSON object a line from standard input and answers with one, as the pipeline's crash_worker.py does.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.pipeline.crash_worker import follow_orders

from tidegate.config import Queries, parse_queries
from tidegate.core.commit import AMENDED
from tidegate.core.session import Session
from tidegate.errors import TidegateError
from tidegate.ingest import blocks
from tidegate.pipeline import open_pipeline, pipeline
from tidegate.pipeline.amend import amend
from tidegate.pipeline.delivery import NullObserver
from tidegate.pipeline.logs import LogReader
from tidegate.sinks.chunks import Chunk
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
count = 60
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


def variant(folder: Path, target: str, number: int, *, archives: bool | None = None) -> Queries:
    """The configuration of one phase; outputs that only grow are those of releases that may be archived."""
    queries, epsilon = VARIANTS[number]
    ledger = f'ledger = "{target}"\n' if target else ""
    protect = f'[protect]\nepsilon = "{epsilon}"\nwindow = {WINDOW}\n{ledger}'
    head = HEAD
    if archives is not None:
        head = head.replace('"released.csv"', '"released.csv"\nrevisions = "all"')
    if archives:
        (folder / "archives").mkdir(exist_ok=True)
        protect += f'[run]\narchives = "archives"\nkeep = {WINDOW}\n'
    text = head + queries + ("" if archives is not None else ANSWERS) + protect
    return parse_queries(text, folder / "tidegate.toml")


def known(queries: Queries) -> int:
    """In which phase the stream is: how often it was amended."""
    try:
        with LogReader(queries.ledger) as log:
            return sum(row.kind == AMENDED for row in log.rows())
    except TidegateError:
        return 0


def work(order: dict[str, Any]) -> None:
    """One start: from wherever the stream is to its end, with an amendment before each later phase."""
    folder, target = Path(order["folder"]), order["target"]
    receipts(folder)
    with nullcontext() if order.get("fresh_noise") else fixed_entropy(11):
        for number in range(len(VARIANTS)):
            queries = variant(folder, target, number, archives=order.get("archives"))
            phase = known(queries)
            if phase > number:
                continue
            if phase < number:
                amend(queries)
            release(queries, PHASE * (number + 1))


class StopAt(NullObserver):
    """Stops an intake at a step."""

    def __init__(self, step: int) -> None:
        self.step, self.intake = step, None  # type: int, Any

    def released(self, chunk: Chunk) -> None:
        """Compare the step."""
        if chunk.step[-1] >= self.step:
            self.intake.stop()


def release(queries: Queries, step: int) -> None:
    """Release everything up to the end of a phase, a few steps at a time, and archive what no window needs."""
    observer = StopAt(step)
    with open_pipeline(queries, observers={part.name: observer for part in queries.parts}) as running:
        observer.intake = intake = running.queries.open(running.position)
        if running.step < step:
            running.drive(intake)
        running.finish()
        intake.close()


def main() -> None:
    """Load what children need, and follow orders."""
    blocks.BLOCK_STEPS = 4  # phases are multiples of it
    pipeline.SYNC_EVERY = 0.0  # record what sinks have taken at once, so that this is cut into, too
    with fixed_entropy(1):  # kernels are loaded once, and not in every child
        for number in range(len(VARIANTS)):
            for part in variant(Path(), "", number).parts:
                session = Session(part.mechanism)
                session.push([0] * part.mechanism.columns)
                session.push_batch(np.zeros((3, part.mechanism.columns), dtype=np.int64))
    with suppress(ImportError):
        importlib.import_module("psycopg")  # not in every child again
    follow_orders(work)


if __name__ == "__main__":
    main()
