"""Speed of the exact noise, as ratios to rivals measured in the same run, one thread.

Rivals: numpy's floating-point Laplace and normal (fast, unsafe for privacy) and OpenDP's exact vector Laplace
(the ``bench`` extra). Everything is warmed up; rivals are interleaved; the best of several rounds counts.

    python benchmarks/noise.py [--rounds 5] [--full] [--json]
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable
from typing import Any

from sizes import scaled

from timing import MISSED, best  # isort: skip  sets the number of threads first

import numpy as np

from tidegate.noise import current, gaussian, laplace, laplace_one

N = scaled(1_000_000, 2_000)
OPENDP_N = scaled(5_000, 20)
SINGLE = scaled(20_000, 100)
SCALES = {"1": 1.0, "2": 2.0, "10": 10.0, "1000": 1000.0, "2^20": 2.0**20, "2^30": 2.0**30, "2^40": 2.0**40}


def opendp_laplace(scale: float) -> Callable[[], Any] | None:
    """OpenDP's exact discrete Laplace on a vector of integers, or None if it is not installed."""
    try:
        dp = importlib.import_module("opendp.prelude")
    except ImportError:
        return None
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=dp.i64), size=OPENDP_N), dp.l1_distance(T=dp.i64)
    measurement = dp.m.make_laplace(*space, scale=scale)
    zeros = [0] * OPENDP_N
    return lambda: measurement(zeros)


def single_draws() -> None:
    source = current()
    for step in range(SINGLE):
        laplace_one(source, "benchmark", step, 0, 3.0)


def one_row() -> None:
    source = current()
    for step in range(SINGLE):
        laplace(source, "benchmark", step, 3.0, (1,))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=scaled(15, 1, 5), help="rounds of which the best counts, at least 5"
    )
    parser.add_argument("--full", action="store_true", help="15 rounds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    rounds = max(5, options.rounds)
    source, generator = current(), np.random.default_rng()
    found: dict[str, dict[str, float]] = {}
    failed = []

    def report(name: str, numbers: dict[str, float], held: bool) -> None:
        found[name] = numbers
        if not held:
            failed.append(name)
        if not options.json:
            shown = "  ".join(f"{key} {value:.3g}" for key, value in numbers.items())
            print(f"{name:24} {shown}  {'ok' if held else MISSED}", flush=True)

    for label, scale in SCALES.items():
        rivals: dict[str, Callable[[], Any]] = {
            "tidegate": lambda scale=scale: laplace(source, "benchmark", 0, scale, (N,)),
            "numpy": lambda scale=scale: generator.laplace(0.0, scale, N),
        }
        exact = opendp_laplace(scale)
        if exact is not None:
            rivals["opendp"] = exact
        times = best(rivals, rounds)
        numbers = {"ms": times["tidegate"] * 1e3, "×numpy": times["tidegate"] / times["numpy"]}
        held = numbers["×numpy"] <= 1.2
        if exact is not None:
            numbers["speed/opendp"] = times["opendp"] / OPENDP_N / (times["tidegate"] / N)
            held = held and numbers["speed/opendp"] >= 300
        report(f"laplace {label}", numbers, held)
    for label, scale in SCALES.items():
        times = best(
            {
                "tidegate": lambda scale=scale: gaussian(source, "benchmark", 0, scale, (N,)),
                "numpy": lambda scale=scale: generator.normal(0.0, scale, N),
            },
            rounds,
        )
        numbers = {"ms": times["tidegate"] * 1e3, "×numpy": times["tidegate"] / times["numpy"]}
        report(f"gaussian {label}", numbers, numbers["×numpy"] <= 5)
    each = np.geomspace(1.0, 2.0**40, N)
    times = best(
        {
            "laplace": lambda: laplace(source, "benchmark", 0, each, (N,)),
            "numpy laplace": lambda: generator.laplace(0.0, each),
            "gaussian": lambda: gaussian(source, "benchmark", 0, each, (N,)),
            "numpy normal": lambda: generator.normal(0.0, each),
        },
        rounds,
    )
    for name, rival, bar in (("laplace", "numpy laplace", 1.2), ("gaussian", "numpy normal", 5.0)):
        numbers = {"ms": times[name] * 1e3, "×numpy": times[name] / times[rival]}
        report(f"{name} own scales", numbers, numbers["×numpy"] <= bar)
    times = best({"laplace_one": single_draws, "laplace (1,)": one_row}, rounds)
    for name, seconds in times.items():
        report(name, {"µs": seconds / SINGLE * 1e6}, True)
    if options.json:
        print(json.dumps({"measured": found, "missed": failed}, ensure_ascii=False))


if __name__ == "__main__":
    main()
