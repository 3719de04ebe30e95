"""Speed of Uniform and of its ledger, against the bare noise, one thread; memory of a run over ten million steps.

Run it with ``python benchmarks/core.py [--rounds 7]``.
"""

from __future__ import annotations

import argparse
import resource

from sizes import scaled

from timing import best  # isort: skip  sets the number of threads first

import numpy as np

import tidegate as tg
from tidegate.mechanisms import Uniform
from tidegate.noise import current, laplace

STEPS = scaled(1_000_000, 2_000)
SINGLE = scaled(50_000, 100)


def bench_single(rounds: int) -> None:
    run = Uniform(tg.WEvent(epsilon="1", w=24)).start()

    def push() -> None:
        for _ in range(SINGLE):
            run.push(5)

    seconds = best({"push": push}, rounds)["push"]
    print(
        f"Uniform.push, scalar, in-memory ledger: {SINGLE / seconds:,.0f} steps/s   bar: 50,000, aim: 200,000"
    )


def bench_batch(rounds: int) -> None:
    matrix = np.zeros((STEPS, 1), dtype=np.int64)
    mechanism = Uniform(tg.WEvent(epsilon="1", w=24))
    times = best(
        {
            "batch": lambda: mechanism.start().push_batch(matrix),
            "noise": lambda: laplace(current(), "bench", 1, mechanism.scale, (STEPS, 1)),
        },
        rounds,
    )
    ratio = times["batch"] / times["noise"]
    print(
        f"Uniform.push_batch, 10^6 steps: {times['batch'] * 1e3:.2f} ms = {ratio:.2f} × the bare noise call "
        f"({times['noise'] * 1e3:.2f} ms)   bar: 1.5"
    )


def bench_memory() -> None:
    run = Uniform(tg.WEvent(epsilon="1", w=1000), columns=2).start()
    matrix = np.zeros((scaled(100_000, 1_000), 2), dtype=np.int64)
    run.push_batch(matrix)
    before, size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(run.snapshot())
    for _ in range(scaled(99, 3)):
        run.push_batch(matrix)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"memory after 10^5 and 10^7 steps: {before // 1024} and {after // 1024} MB; "
        f"snapshots of {size} and {len(run.snapshot())} bytes"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    bench_memory()
    bench_single(arguments.rounds)
    bench_batch(arguments.rounds)
