"""Speed of the ledgers: charges, batches, verification, and opening a ledger of ten million steps.

Run with ``python benchmarks/ledger.py`` (one thread); each number is the least processor time of at least five, but for
commits, which wait for a disk. ``--steps`` sets the length of the long ledgers, a million or with ``--full`` ten.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sizes import scaled

from timing import bar  # isort: skip  sets the number of threads first

import numpy as np

from tidegate.ledger import MemoryLedger
from tidegate.ledger.replay import verify_file
from tidegate.ledger.rows import Row, chained
from tidegate.ledger.sqlite import SQLiteLedger
from tidegate.policy import WEvent

POLICY = WEvent(epsilon="1", w=24)


def best(
    action: Callable[[], object], repeats: int = 5, clock: Callable[[], float] = time.process_time
) -> float:
    times = []
    for _ in range(repeats):
        begin = clock()
        action()
        times.append(clock() - begin)
    return min(times)


def scalar_charges(count: int = 200_000) -> float:
    ledger = MemoryLedger(POLICY, 24)

    def charge() -> None:
        for step in range(ledger.step + 1, ledger.step + count + 1):
            ledger.charge(step, 1)

    return count / best(charge)


def batch_charge(window: int) -> float:
    ledger, units = MemoryLedger(WEvent(epsilon="1", w=window), window), np.ones(10**6, dtype=np.int64)
    return best(lambda: ledger.charge_batch(ledger.step + 1, units), 9)


def durable_charges(path: Path, count: int = 300) -> float:
    with SQLiteLedger(path, POLICY, 24) as ledger:

        def charge() -> None:
            for step in range(ledger.step + 1, ledger.step + count + 1):
                ledger.charge(step, 1)

        return count / best(charge, clock=time.perf_counter)


def write_single_rows(path: Path, steps: int) -> None:
    """As many single charges as a long run would have left; written in bulk to save the benchmark's time."""
    with SQLiteLedger(path, POLICY, 24) as ledger, ledger.transaction():
        ledger._account.place_batch(1, np.ones(steps, dtype=np.int64))

        def rows() -> object:
            for step in range(1, steps + 1):
                row = Row("step", step, step, 1, "", "", None)
                ledger._digest = chained(ledger._digest, row.message())
                yield (step, *row, ledger._digest)

        ledger.connection.executemany("INSERT INTO charges VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows())
        ledger._rows = steps


def write_batches(path: Path, steps: int, size: int = 10_000) -> None:
    units = np.ones(size, dtype=np.int64)
    with SQLiteLedger(path, POLICY, 24) as ledger, ledger.transaction():
        for first in range(1, steps + 1, size):
            ledger.charge_batch(first, units)


def long_ledger(name: str, path: Path, verify_repeats: int) -> None:
    opened = best(lambda: SQLiteLedger(path, POLICY, 24).close())
    verdict = verify_file(path)
    taken = best(lambda: verify_file(path), verify_repeats)
    size = path.stat().st_size / 2**20
    bar(f"{name}: {size:.1f} MiB, opens in {opened * 1e3:.1f} ms", opened <= 2, "2000 ms")
    rate = max(verdict.rows, verdict.steps) / taken
    text = f"  verify: {verdict.rows / taken:,.0f} rows/s, {verdict.steps / taken:,.0f} steps/s"
    bar(text, rate >= 500_000, "500,000 rows or steps/s")
    print(f"  {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=scaled(10**7, 10**4, 10**6))
    parser.add_argument("--full", action="store_true", help="ten million steps")
    steps = parser.parse_args().steps
    print(f"charge, in memory: {scalar_charges():,.0f} a second", flush=True)
    for window in (24, 100_000):
        print(f"charge_batch of 10^6 steps, w = {window}: {batch_charge(window) * 1e3:.2f} ms")
    with tempfile.TemporaryDirectory() as folder:
        print(
            f"charge, on disk, one commit each, by the wall: {durable_charges(Path(folder, 'few.db')):,.0f} a second"
        )
        write_batches(Path(folder, "batches.db"), steps)
        long_ledger(f"{steps:,} steps in batches of 10,000", Path(folder, "batches.db"), 5)
        million = min(steps, 10**6)
        write_single_rows(Path(folder, "million.db"), million)
        long_ledger(f"{million:,} single steps", Path(folder, "million.db"), 5)
        if steps > million:
            write_single_rows(Path(folder, "single.db"), steps)
            long_ledger(f"{steps:,} single steps", Path(folder, "single.db"), 1)


if __name__ == "__main__":
    main()
