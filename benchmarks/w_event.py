"""Speed of the w-event mechanisms, as rates and as ratios to rivals measured in the same run, one thread.

Wide streams have the shapes of the w-event paper's data sets (Rome: 1,442 × 25,936; World Cup: 1,320 × 89,997). The
rival is one warm numpy pass np.abs(a − b).sum(axis=1) over the same matrix plus the bare noise of the published cells.
Memory beyond input and output: the last release is one vector of d, and what intervals are learnt from six (Walk.rows),
twice, because intervals of a batch are made from its beginning when somebody asks for them: 13, and a little.

    python benchmarks/w_event.py [--rounds 3] [--full] [--small]
"""

from __future__ import annotations

import argparse
import tracemalloc

from sizes import scaled

from timing import bar, best  # isort: skip  sets the number of threads first

import numpy as np

import tidegate as tg
from tidegate.core.session import Session
from tidegate.mechanisms import BudgetAbsorption, BudgetDistribution, Sample, Uniform
from tidegate.noise import current, laplace

W = 120
SHAPES = {"Rome": (1442, 25_936), "World Cup": (1320, 89_997)}


def wide(steps: int, columns: int) -> np.ndarray:
    """Counts with a daily swing, a few loud columns and many quiet ones; generated in blocks to save memory."""
    generator = np.random.default_rng(1)
    level = np.floor(40 * generator.pareto(1.5, columns) + 1)
    swing = 1.2 + np.sin(np.arange(steps) / 144 * 2 * np.pi)
    matrix = np.empty((steps, columns), dtype=np.int64)
    for step in range(steps):
        matrix[step] = level * swing[step]
    return matrix


def scalar(steps: int) -> np.ndarray:
    generator = np.random.default_rng(2)
    return (500 + 300 * np.sin(np.arange(steps) / 200) + generator.normal(0, 20, steps)).astype(np.int64)[
        :, None
    ]


def bench_wide(name: str, steps: int, columns: int, rounds: int) -> None:
    matrix = wide(steps, columns)
    other = np.roll(matrix, 1, axis=0)
    for kind in (BudgetAbsorption, BudgetDistribution):
        mechanism = kind(tg.WEvent(epsilon="1", window=W), columns=columns, noise="laplace")
        published = int(Session(mechanism).push_batch(matrix).fresh.sum())

        def release(mechanism=mechanism) -> None:
            Session(mechanism).push_batch(matrix)

        def noise(published=published) -> None:
            for step in range(published):
                laplace(current(), "bench", step, 50.0, (columns,))

        times = best(
            {"release": release, "numpy": lambda: np.abs(matrix - other).sum(axis=1), "noise": noise}, rounds
        )
        ratio = times["release"] / (times["numpy"] + times["noise"])
        bar(
            f"{name:10s} {kind.__name__:19s} {steps:,} × {columns:,}, {published} published: {times['release']:.3f} s = "
            f"{ratio:.2f} × (numpy pass {times['numpy']:.3f} s + noise {times['noise']:.3f} s)",
            ratio <= 3,
            "3",
        )
        tracemalloc.start()
        run = Session(mechanism)
        output = run.push_batch(matrix)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        columns_of_output = (output.values, output.status, output.source, output.scale, output.units)
        beyond = (peak - sum(array.nbytes for array in columns_of_output)) / (8 * columns)
        text = f"{'':10s} {kind.__name__:19s} memory beyond input and output: {beyond:.1f} vectors of d"
        bar(text, beyond <= 14, "14")


def bench_scalar(rounds: int) -> None:
    steps = scaled(1_000_000, 2_000)
    matrix = scalar(steps)
    mechanisms = {
        kind.__name__: kind(tg.WEvent(epsilon="1", window=W), noise="laplace")
        for kind in (Uniform, Sample, BudgetDistribution, BudgetAbsorption)
    }
    mechanisms |= {
        f"{kind.__name__}, shared": kind(tg.WEvent(epsilon="1", window=W))
        for kind in (BudgetDistribution, BudgetAbsorption)
    }
    times = best({n: (lambda m=m: Session(m).push_batch(matrix)) for n, m in mechanisms.items()}, rounds)
    for name, seconds in times.items():
        text = f"scalar     {name:26s} {steps / seconds / 1e6:.1f} million steps/s"
        if name.startswith("Budget"):
            wanted = 1.0 if "shared" in name else 3.0
            bar(text, steps / seconds >= wanted * 1e6, f"{wanted}")
        else:
            print(text, flush=True)


def bench_growth(rounds: int) -> None:
    """Time a step against the length of the stream and against w."""
    for kind in (BudgetAbsorption, BudgetDistribution):
        parts = {}
        for steps in (10_000, 100_000, 1_000_000)[: scaled(3, 1)]:
            matrix = scalar(steps)
            mechanism = kind(tg.WEvent(epsilon="1", window=W))
            seconds = best({"t": lambda m=mechanism, x=matrix: Session(m).push_batch(x)}, rounds)["t"]
            parts[f"T={steps:,}"] = seconds / steps * 1e9
        matrix = scalar(scaled(300_000, 2_000))
        for w in (1, 100, 10_000, 1_000_000)[: scaled(4, 2)]:
            mechanism = kind(tg.WEvent(epsilon="1", window=w))
            seconds = best({"t": lambda m=mechanism, x=matrix: Session(m).push_batch(x)}, rounds)["t"]
            parts[f"w={w:,}"] = seconds / len(matrix) * 1e9
        print(
            f"growth     {kind.__name__:19s} ns a step: "
            + ", ".join(f"{k} {v:.0f}" for k, v in parts.items()),
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=scaled(5, 1, 3))
    parser.add_argument("--full", action="store_true", help="5 rounds, and both wide streams in full")
    parser.add_argument("--small", action="store_true", help="a twentieth of the columns")
    arguments = parser.parse_args()
    bench_scalar(arguments.rounds)
    bench_growth(arguments.rounds)
    for name, (steps, columns) in SHAPES.items():
        bench_wide(
            name,
            scaled(steps, 150),
            scaled(columns // 20 if arguments.small else columns, 200, columns // 4),
            arguments.rounds,
        )
