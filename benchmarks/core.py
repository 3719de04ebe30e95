"""Speed of Uniform in a session, against bare noise of the same law, one thread; memory over ten million steps.

Run it with ``python benchmarks/core.py [--rounds 5]``.
"""

from __future__ import annotations

import argparse
import resource
from typing import Any

from sizes import scaled

from timing import bar, best  # isort: skip  sets the number of threads first

import numpy as np

import tidegate as tg
from tidegate.core.session import Session
from tidegate.mechanisms import Uniform
from tidegate.noise import current, laplace

STEPS = scaled(1_000_000, 2_000)
SINGLE = scaled(20_000, 100)


def bench_single(rounds: int) -> None:
    """A step at a time: with noise of its own, and with noise that steps share, which is charged as a group."""
    wanted = 50_000
    for noise in ("laplace", "auto"):
        session = Session(Uniform(tg.WEvent(epsilon="1", window=24), noise=noise))

        def push(session: Any = session) -> None:
            for _ in range(SINGLE):
                session.push(5)

        rate = SINGLE / best({"push": push}, rounds)["push"]
        text = f"Uniform.push, scalar, in memory, noise={noise}: {rate:,.0f} steps/s"
        bar(text, rate >= wanted, f"{wanted:,}")


def bench_batch(rounds: int) -> None:
    """Many steps at once, over the time of bare draws of the same law."""
    matrix = np.zeros((STEPS, 1), dtype=np.int64)
    for noise in ("laplace", "auto"):
        mechanism = Uniform(tg.WEvent(epsilon="1", window=24), noise=noise)
        rivals = {"batch": lambda m=mechanism: Session(m).push_batch(matrix)}
        if mechanism.sharing is None:
            kind = "Laplace"
            rivals["noise"] = lambda m=mechanism: laplace(current(), "bench", 1, m.scale, (STEPS, 1))
        else:
            kind, law = mechanism.sharing.choice.law, mechanism.sharing.law
            rivals["noise"] = lambda law=law: law.draw(current(), "bench", 1, law.start(), STEPS)
        times = best(rivals, rounds)
        ratio = times["batch"] / times["noise"]
        bar(
            f"Uniform.push_batch, 10^6 steps, {kind}: {times['batch'] * 1e3:.2f} ms = {ratio:.2f} × bare draws of this "
            f"noise ({times['noise'] * 1e3:.2f} ms)",
            ratio <= 1.5,
            "1.5",
        )


def bench_memory() -> None:
    run = Session(Uniform(tg.WEvent(epsilon="1", window=1000), columns=2))
    matrix = np.zeros((scaled(100_000, 1_000), 2), dtype=np.int64)
    run.push_batch(matrix)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(scaled(99, 3)):
        run.push_batch(matrix)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"memory after 10^5 and 10^7 steps: {before // 1024} and {after // 1024} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    bench_memory()
    bench_single(arguments.rounds)
    bench_batch(arguments.rounds)
