"""Seconds of one core for the whole benchmark of each mechanism on one stream: 10,000 steps × 15 settings × 20 runs.

The settings are ε = 0.01, 0.1, 1 and w = 1, 24, 48, 120, 240. "20 runs": of the default choice of parameters in every
setting; by default one run is timed, and its time counts 20 times. "with choices", with --full only: as the benchmark
across papers does it, with a plan that tries every choice on a made-up stream, five runs of every choice for the oracle,
and 20 of the planned one. Every mechanism of the catalogue is measured; those that need another policy run on their own
first example that lasts 10,000 steps. Processor time, warm.

    python benchmarks/benchmark_cell.py [--only Tide Sample] [--runs 1] [--full]
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from fractions import Fraction

from sizes import FULL, scaled

from timing import bar  # isort: skip  sets the number of threads first

import numpy as np

from tidegate.bench import measure as benchmark
from tidegate.bench.measure import configured, errors
from tidegate.errors import TidegateError
from tidegate.mechanisms import Blocks, Fast, Mechanism, catalogue
from tidegate.mechanisms.plain.blocks import blocks_met
from tidegate.plan import Description
from tidegate.policy import User, WEvent

STEPS, SEASON, BAR, RUNS = scaled(10_000, 1_000), 24, 10.0, 20
SETTINGS = [(epsilon, w) for epsilon in benchmark.EPSILONS for w in benchmark.WINDOWS]


def stream(columns: int = 1) -> np.ndarray:
    """Days with a peak and some noise."""
    generator = np.random.default_rng(1)
    day = 500 + 300 * np.sin(np.arange(STEPS) * 2 * np.pi / SEASON)
    return np.maximum(day[:, None] + generator.normal(0, 20, (STEPS, columns)), 0).astype(np.int64)


def choices(kind: type[Mechanism], epsilon: str, w: int) -> list[Mechanism]:
    """What the benchmark across papers compares, or an example of the mechanism with its own policy."""
    if kind is Blocks:
        # the policy is that of the setting: a window meets two blocks, or one block of one step
        return [Blocks(Fast(User(epsilon=Fraction(epsilon) / blocks_met(w), horizon=w)))]
    found = configured(kind, WEvent(epsilon=epsilon, window=w), 1, SEASON, STEPS)
    return found or [example for example in map(longer, kind.examples()) if runs_through(example)][:1]


def longer(example: Mechanism) -> Mechanism:
    """The example with a horizon of all steps, where it has one."""
    if getattr(example, "horizon", None) is None:
        return example
    try:
        return dataclasses.replace(example, horizon=STEPS)
    except TidegateError:
        return example


def runs_through(mechanism: Mechanism) -> bool:
    try:
        errors(mechanism, stream(mechanism.columns))
    except TidegateError:
        return False
    return True


def measure(kind: type[Mechanism], runs: int) -> tuple[float, float, int]:
    """(seconds of the runs, seconds with plan and oracle, most choices in a setting)."""
    plain = whole = 0.0
    most = 0
    for epsilon, w in SETTINGS:
        found = choices(kind, epsilon, w)
        if not found:
            return np.nan, np.nan, 0
        truth = stream(found[0].columns)
        made_up = Description(level=300, columns=found[0].columns, season=SEASON).sample(
            benchmark.PLANNED_STEPS, 0
        )
        for mechanism in found:
            errors(mechanism, truth[:500])  # warm
        began = time.process_time()
        for _ in range(runs):
            errors(found[0], truth)
        plain += (time.process_time() - began) * RUNS / runs
        if len(found) > 1 and FULL:
            began = time.process_time()
            benchmark.compared(found, truth, made_up, benchmark.ORACLE_RUNS, runs)
            whole += time.process_time() - began
        most = max(most, len(found))
    return plain, whole, most


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--runs", type=int, default=scaled(RUNS, 1, 1))
    parser.add_argument("--full", action="store_true", help="20 runs, and every choice of parameters")
    options = parser.parse_args()
    benchmark.SECONDS = float("inf")  # no short cuts
    print(f"{'mechanism':24s} {'choices':>8s} {'20 runs':>10s} {'with choices':>14s}", flush=True)
    for name, kind in catalogue().items():
        if options.only is not None and name not in options.only:
            continue
        plain, whole, most = measure(kind, options.runs)
        told = f"{whole:12.1f} s" if whole else f"{'–':>14s}"
        if not most:
            print(f"{name:24s} has no example of {STEPS:,} steps", flush=True)
            continue
        bar(f"{name:24s} {most:8d} {plain:8.2f} s {told}", plain < BAR, f"{BAR:g} s")


if __name__ == "__main__":
    main()
