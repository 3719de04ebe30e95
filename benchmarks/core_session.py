"""Speed of sessions: single steps, batches against plain numpy, and commits on disk.

Run it with ``python benchmarks/core_session.py [--quick] [--only single,batch,sqlite,postgres] [--postgres URL]``.
Rivals are interleaved, and a number is the median of 15 ratios of processor time. Commits on disk are also measured by
the clock on the wall, against bare commits of one row.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from timing import bar  # isort: skip  sets the number of threads first

import numpy as np

import tidegate as tg
from tidegate.core.postgres_log import Group
from tidegate.core.session import Session
from tidegate.core.sqlite_log import SQLiteLog
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.tide.tide import Tide
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.mechanisms.w_event.budget_distribution import BudgetDistribution

W = 24
POLICY = tg.WEvent(epsilon="1", window=W)
ROUNDS = 15


def compared(
    one: Callable[[], Any], other: Callable[[], Any], clock: Callable[[], float] = time.process_time
) -> tuple[float, float, float]:
    """(seconds of one, seconds of the other, median of their ratios), interleaved."""
    times: list[tuple[float, float]] = []
    one(), other()  # warm
    for number in range(ROUNDS):
        found = [0.0, 0.0]
        for which in (0, 1) if number % 2 else (1, 0):
            start = clock()
            (one, other)[which]()
            found[which] = clock() - start
        times.append((found[0], found[1]))
    first, second = (statistics.median(column) for column in zip(*times, strict=True))
    return first, second, statistics.median(a / b for a, b in times)


def pushes(target: Any, row: Any, count: int) -> Callable[[], None]:
    push = target.push

    def run() -> None:
        for _ in range(count):
            push(row)

    return run


def single(count: int) -> None:
    """One step at a time, in memory."""
    cases: list[tuple[str, Any]] = [
        ("Uniform, Laplace", Uniform(POLICY, noise="laplace")),
        ("Uniform, default", Uniform(POLICY)),
        ("Uniform, default, 3 columns", Uniform(POLICY, columns=3)),
    ]
    for columns in (1, 100):
        cases.append((f"BA, {columns} columns", BudgetAbsorption(POLICY, columns=columns)))
        cases.append((f"BD, {columns} columns", BudgetDistribution(POLICY, columns=columns)))
    for name, mechanism in cases:
        row = 5 if mechanism.columns == 1 else np.full(mechanism.columns, 5)
        work = pushes(Session(mechanism), row, count)
        work()
        begin = time.process_time()
        work()
        print(f"push, {name}: {count / (time.process_time() - begin):,.0f}/s")


def numpy_absorption(rows: Any, window: int, epsilon: float) -> Any:
    """Budget Absorption in ten lines, with floating-point noise."""
    rng, (steps, columns) = np.random.default_rng(), rows.shape
    share, last, latest, taken = epsilon / (2 * window), np.zeros(columns), 0, 1
    out, tests = np.empty((steps, columns)), rng.laplace(0, 2 * window / epsilon, steps)
    for step in range(1, steps + 1):
        waited = step - latest
        shares = 0 if waited < taken else min(waited - taken + 1, window)
        if shares and np.abs(rows[step - 1] - last).sum() + tests[step - 1] > columns / (shares * share):
            last = rows[step - 1] + rng.laplace(0, 1 / (shares * share), columns)
            latest, taken = step, shares
        out[step - 1] = last
    return out


def numpy_distribution(rows: Any, window: int, epsilon: float) -> Any:
    """Budget Distribution in ten lines, with floating-point noise."""
    rng, (steps, columns) = np.random.default_rng(), rows.shape
    spent, last = np.zeros(steps), np.zeros(columns)
    out, tests = np.empty((steps, columns)), rng.laplace(0, 2 * window / epsilon, steps)
    for step in range(steps):
        amount = (epsilon / 2 - spent[max(0, step - window + 1) : step].sum()) / 2
        if np.abs(rows[step] - last).sum() + tests[step] > columns / amount:
            last, spent[step] = rows[step] + rng.laplace(0, 1 / amount, columns), amount
        out[step] = last
    return out


def batch(steps: int) -> None:
    """Many steps in one commit, in memory."""
    rng = np.random.default_rng(1)
    for columns, wanted in ((100, 5.0), (10_000, 2.0)):
        count = max(50, steps * 100 // columns)
        rows = rng.poisson(200, (count, columns))
        for name, new, plain in (
            ("BA", BudgetAbsorption(POLICY, columns=columns), numpy_absorption),
            ("BD", BudgetDistribution(POLICY, columns=columns), numpy_distribution),
        ):
            session = Session(new)
            theirs, mine, ratio = compared(
                partial(plain, rows, W, 1.0),
                partial(session.push_batch, rows),
            )
            bar(
                f"push_batch, {name}, {columns} columns: {count / mine:,.0f} steps/s, numpy {count / theirs:,.0f}, "
                f"{ratio:.2f} times numpy",
                ratio >= wanted,
                f"{wanted}",
            )


def on_sqlite(count: int) -> None:
    """Durable commits of one step, in a file."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        bare = sqlite3.connect(Path(folder, "bare.db"), isolation_level=None)
        bare.execute("PRAGMA journal_mode = WAL")
        bare.execute("PRAGMA synchronous = FULL")
        bare.execute("CREATE TABLE log (number INTEGER PRIMARY KEY, content BLOB)")

        def inserts() -> None:
            for _ in range(count):
                bare.execute("INSERT INTO log (content) VALUES (?)", (bytes(200),))

        for columns, wanted in ((1, 3000), (100, 3000), (10_000, 1000)):
            path = Path(folder, f"{columns}.db")
            session = Session(BudgetAbsorption(POLICY, columns=columns), SQLiteLog(path))
            run = pushes(session, 5 if columns == 1 else np.full(columns, 5), count)
            mine, _, _ = compared(run, lambda: None)
            bar(f"SQLite, BA, {columns} columns: {count / mine:,.0f} commits per second of processor time",
                count / mine >= wanted, f"{wanted:,}")  # fmt: skip
            _, _, ratio = compared(inserts, run, time.perf_counter)
            text = f"SQLite, BA, {columns} columns: {ratio:.2f} times the bare INSERT commits per second, by the wall"
            if columns <= 100:
                bar(text, ratio >= 0.8, "0.8")
            else:
                print(text)
            session.close()
        tide = Session(Tide(POLICY, columns=100), SQLiteLog(Path(folder, "tide.db")))
        tide.push(np.full(100, 5))
        loaded = tide._log.load()
        assert loaded is not None
        print(f"Tide, 100 columns: a state of {len(loaded.secret):,} bytes per commit")
        tide.close()
        bare.close()


def on_postgres(url: str, count: int) -> None:
    """A hundred streams of one database, which share commits, against one stream."""
    group = Group(url)
    unique = f"{time.time_ns():x}"
    streams = [Session(Uniform(POLICY), group.log(f"bench_{unique}_{number}")) for number in range(100)]

    def drive(stream: Session) -> None:
        for _ in range(count):
            stream.push(5)

    streams[0].push(5)
    start = time.perf_counter()
    drive(streams[0])
    alone = count / (time.perf_counter() - start)
    before = time.process_time()
    start = time.perf_counter()
    threads = [threading.Thread(target=drive, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together, used = time.perf_counter() - start, time.process_time() - before
    print(
        f"PostgreSQL: one stream {alone:,.0f} commits/s; 100 streams {100 * count / together:,.0f} by the wall, "
        f"{100 * count / used:,.0f} per second of this process"
    )
    group.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="single,batch,sqlite,postgres")
    parser.add_argument("--postgres", metavar="URL")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",")
    if arguments.quick:
        ROUNDS = 5
    size = 10 if arguments.quick else 1
    if "single" in chosen:
        single(5_000 // size)
    if "batch" in chosen:
        batch(5_000 // size)
    if "sqlite" in chosen:
        on_sqlite(400 // size)
    if "postgres" in chosen and arguments.postgres:
        on_postgres(arguments.postgres, 200 // size)
