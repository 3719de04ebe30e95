"""Speed of Tide and of the state-space filter, one thread: steps or cells for each second of processor time.

python benchmarks/tide.py [--rounds 3] [--steps 1000000] [--columns 100000]
"""

from __future__ import annotations

import argparse
import tracemalloc

from sizes import scaled

from timing import bar, best  # isort: skip  sets the number of threads first

import numpy as np

import tidegate as tg
from tidegate.core.session import Session
from tidegate.mechanisms import Tide
from tidegate.queries.state_space import StateSpace
from tidegate.releases import Releases, Status


def scalar(steps: int) -> np.ndarray:
    generator = np.random.default_rng(2)
    day = np.sin(np.arange(steps) / 48 * 2 * np.pi)
    values = 5000 + 3000 * day + generator.normal(0, 5, steps).cumsum() + generator.normal(0, 20, steps)
    return np.rint(np.abs(values)).astype(np.int64)[:, np.newaxis]


def bench_scalar(steps: int, rounds: int) -> None:
    matrix = scalar(steps)
    rivals = {}
    for epsilon in ("0.1", "10"):
        for delay in (0, 120):
            mechanism = Tide(tg.WEvent(epsilon=epsilon, window=120), periods=(48, 336), delay=delay)
            label = f"ε={epsilon}, {'smoothed as well' if delay else 'causal only'}"
            rivals[label] = lambda m=mechanism: Session(m).push_batch(matrix)
    for name, seconds in best(rivals, rounds).items():
        text = f"scalar   Tide, 48 states, {name:28s} {steps / seconds / 1e6:.2f} million steps/s"
        if "causal" in name:
            bar(text, steps / seconds >= 300_000, "0.3")
        else:
            print(text, flush=True)


def bench_filter(steps: int, rounds: int) -> None:
    noisy = scalar(steps) + np.random.default_rng(3).laplace(0, 500, (steps, 1))
    ones = np.ones(steps, dtype=np.int64)
    releases = Releases(1, noisy, np.full(steps, Status.FRESH, dtype=np.int8), None, 500.0 * ones, ones, 1)
    seconds = best({"f": lambda: StateSpace(periods=(48, 336), harmonics=5).push_batch(releases)}, rounds)[
        "f"
    ]
    print(f"filter   StateSpace, every step measured        {steps / seconds / 1e6:.2f} million steps/s")


def bench_wide(columns: int, rounds: int) -> None:
    generator = np.random.default_rng(1)
    level = np.floor(40 * generator.pareto(1.5, columns) + 1)
    swing = 1.2 + np.sin(np.arange(60) / 24 * 2 * np.pi)
    matrix = np.rint(level * swing[:, np.newaxis]).astype(np.int64)
    mechanism = Tide(tg.WEvent(epsilon="0.1", window=24), columns=columns, periods=(24, 168), delay=0)
    run = Session(mechanism)
    run.push_batch(matrix)  # past its beginning

    def go() -> None:
        run.push_batch(matrix)

    seconds = best({"w": go}, rounds)["w"]
    rate = matrix.size / seconds / 1e6
    bar(f"wide     Tide, {columns:,} columns: {rate:.1f} million cells/s", rate >= 10, "10")


def bench_smoothed(columns: int, steps: int, wanted: int, rounds: int) -> None:
    """With smoothed values as by default, in batches; estimates of hyper-parameters are a part of it."""
    generator = np.random.default_rng(1)
    swing = 1.2 + np.sin(np.arange(steps) / 24 * 2 * np.pi)
    level = np.floor(40 * generator.pareto(1.5, columns) + 1)
    matrix = generator.poisson(level * swing[:, np.newaxis]).astype(np.int64)
    runs = {}
    for epsilon in ("0.1", "1"):
        run = Session(Tide(tg.WEvent(epsilon=epsilon, window=24), columns=columns, periods=(24, 168)))
        for _ in range(3):
            run.push_batch(matrix)  # past its beginning
        runs[epsilon] = lambda run=run: run.push_batch(matrix)
    for epsilon, seconds in best(runs, rounds).items():
        text = f"smoothed Tide, {columns:,} columns, ε={epsilon}: {steps / seconds:,.0f} steps/s"
        bar(text, steps / seconds >= wanted, f"{wanted:,}")


def bench_memory() -> None:
    mechanism = Tide(tg.WEvent(epsilon="0.1", window=120), periods=(48, 336))
    sizes = []
    for steps in (scaled(10_000, 5_000), scaled(100_000, 5_000)):
        run = Session(mechanism)
        tracemalloc.start()
        for start in range(0, steps, 5000):
            run.push_batch(scalar(5000) + start % 7)
        sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    print(f"memory   {sizes[0]:,} bytes after 10,000 steps, {sizes[1]:,} after 100,000")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=scaled(5, 1, 2))
    parser.add_argument("--full", action="store_true", help="5 rounds")
    parser.add_argument("--steps", type=int, default=scaled(1_000_000, 1_000))
    parser.add_argument("--columns", type=int, default=scaled(100_000, 50))
    arguments = parser.parse_args()
    bench_wide(arguments.columns, arguments.rounds)
    bench_smoothed(scaled(100, 20), scaled(1_000, 100), 50_000, arguments.rounds)
    bench_smoothed(scaled(10_000, 40), scaled(240, 48), 1_000, arguments.rounds)
    bench_scalar(arguments.steps, arguments.rounds)
    bench_filter(arguments.steps // 5, arguments.rounds)
    bench_memory()
