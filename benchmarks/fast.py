"""Speed of FAST, RescueDP and Blocks, one thread: rates, and ratios to writing the output and drawing the noise.

A wide stream is at best as fast as reading the input once (it is checked), writing the output once, and the bare
noise of the measured cells.

    python benchmarks/fast.py [--rounds 2] [--full] [--small]
"""

from __future__ import annotations

import argparse

from sizes import scaled

from timing import best  # isort: skip  sets the number of threads first

import numpy as np

import tidegate as tg
from tidegate.core.session import Session
from tidegate.mechanisms import Blocks, Fast, Mechanism, RescueDP, Sample, Uniform
from tidegate.noise import current, laplace

W = 120


def scalar(steps: int) -> np.ndarray:
    generator = np.random.default_rng(2)
    return (500 + 300 * np.sin(np.arange(steps) / 200) + generator.normal(0, 20, steps)).astype(np.int64)[
        :, None
    ]


def wide(steps: int, columns: int) -> np.ndarray:
    generator = np.random.default_rng(1)
    level = np.floor(40 * generator.pareto(1.5, columns) + 1)
    swing = 1.2 + np.sin(np.arange(steps) / 144 * 2 * np.pi)
    return (level * swing[:, None]).astype(np.int64)


def bench_scalar(steps: int, rounds: int) -> None:
    rows, policy = scalar(steps), tg.WEvent(epsilon="1", window=W)
    rivals: dict[str, Mechanism] = {
        "Uniform": Uniform(policy, noise="laplace"),
        "Sample": Sample(policy),
        "Fast": Fast(policy, noise="laplace"),
        "Fast, shared noise": Fast(policy),
        "Fast, no filter": Fast(policy, filter=False, noise="laplace"),
        "Fast, blocks": Fast(policy, blocks=True, noise="laplace"),
        "Blocks of Uniform": Blocks(Uniform(tg.User(epsilon="1/2", horizon=W), noise="laplace")),
        "RescueDP": RescueDP(policy),
    }
    times = best({name: lambda m=m: Session(m).push_batch(rows) for name, m in rivals.items()}, rounds)
    for name, seconds in times.items():
        print(f"scalar, {steps:,} steps: {name:18} {steps / seconds / 1e6:7.2f} million steps/s", flush=True)


def bench_wide(steps: int, columns: int, rounds: int) -> None:
    rows, policy = wide(steps, columns), tg.WEvent(epsilon="1", window=W)
    for mechanism in (Fast(policy, columns=columns, noise="laplace"), RescueDP(policy, columns=columns)):
        measured = int(Session(mechanism).push_batch(rows).fresh.sum())

        def floor(measured: int = measured) -> None:
            rows.max()
            np.empty(rows.shape)[:] = 1.0
            for step in range(measured):
                laplace(current(), "bench", step, 50.0, (columns,))

        times = best({"release": lambda m=mechanism: Session(m).push_batch(rows), "floor": floor}, rounds)
        print(
            f"{steps:,} × {columns:,}: {type(mechanism).__name__:9} {times['release']:.3f} s, {measured} steps measured, "
            f"{times['release'] / times['floor']:.2f} × reading, writing and bare noise",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=scaled(5, 1, 2))
    parser.add_argument("--full", action="store_true", help="5 rounds")
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    bench_scalar(scaled(100_000 if arguments.small else 1_000_000, 2_000), arguments.rounds)
    bench_wide(
        *((scaled(300, 150), scaled(5000, 200)) if arguments.small else (1442, 25_936)), arguments.rounds
    )
    rows = scalar(scaled(200_000, 2_000))
    for window in (120, 12_000):
        policy = tg.WEvent(epsilon="1", window=window)
        seconds = best(
            {"fast": lambda p=policy: Session(Fast(p, noise="laplace")).push_batch(rows)}, arguments.rounds
        )["fast"]
        print(f"w = {window:,}: Fast {len(rows) / seconds / 1e6:.2f} million steps/s")


if __name__ == "__main__":
    main()
