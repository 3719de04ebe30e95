"""Speed of the exact noise, as ratios to rivals measured in the same run, one thread.

Rivals: numpy's floating-point Laplace and normal (fast, unsafe for privacy) and OpenDP's exact vector Laplace
(the ``bench`` extra). Everything is warm, rivals are interleaved, and the median processor time of several rounds counts.

    python benchmarks/noise.py [--rounds 15] [--full] [--json]
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from sizes import scaled

from timing import MISSED  # isort: skip  sets the number of threads first

import numpy as np

from tidegate.noise import current, gaussian, laplace, laplace_one

N = scaled(1_000_000, 2_000)
SIZES = scaled((100, 10_000, 100_000, 1_000_000), (100, 2_000))  # draws at once
AT_ONCE = scaled(200_000, 2_000)  # draws that are timed together, at least
OPENDP_N = scaled(5_000, 20)
SINGLE = scaled(20_000, 100)
SCALES = {
    "1": 1.0,
    "10": 10.0,
    "1000": 1000.0,
    "1500": 1500.0,
    "2^20": 2.0**20,
    "2^30": 2.0**30,
    "2^40": 2.0**40,
}
# What each law may cost, as a multiple of numpy's time: batches of 100, and larger ones.
BARS = {"laplace": (2.0, 1.0), "gaussian": (2.0, 1.0)}


def median(rivals: dict[str, Callable[[], Any]], rounds: int, times: int = 1) -> dict[str, float]:
    """The median processor time of a call of each rival in seconds, interleaved, after a warm-up."""
    found: dict[str, list[float]] = {name: [] for name in rivals}
    for function in rivals.values():
        function()
    for _ in range(rounds):
        for name, function in rivals.items():
            start = time.process_time()
            for _ in range(times):
                function()
            found[name].append((time.process_time() - start) / times)
    return {name: statistics.median(each) for name, each in found.items()}


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


def one_gaussian() -> None:
    source = current()
    for step in range(SINGLE):
        gaussian(source, "benchmark", step, 3.0, (1,))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=scaled(15, 1, 15), help="rounds, whose median counts")
    parser.add_argument("--full", action="store_true", help="as without it: for scripts that say it to all")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    rounds = options.rounds
    source, generator = current(), np.random.default_rng()
    found: dict[str, dict[str, float]] = {}
    failed = []

    def report(name: str, numbers: dict[str, float], held: bool) -> None:
        found[name] = numbers
        if not held:
            failed.append(name)
        if not options.json:
            shown = "  ".join(f"{key} {value:.3g}" for key, value in numbers.items())
            print(f"{name:26} {shown}  {'ok' if held else MISSED}", flush=True)

    laws = {"laplace": (laplace, generator.laplace), "gaussian": (gaussian, generator.normal)}
    for law, (draw, rival) in laws.items():
        for label, scale in SCALES.items():
            numbers, held = {}, True
            for size in SIZES:
                times = median(
                    {
                        "tidegate": partial(draw, source, "benchmark", 0, scale, (size,)),
                        "numpy": partial(rival, 0.0, scale, size),
                    },
                    rounds,
                    max(1, AT_ONCE // size),
                )
                ratio = times["tidegate"] / times["numpy"]
                numbers[f"×numpy at {size:,}"] = ratio
                held = held and ratio <= BARS[law][size > 100]
            numbers["ns"] = times["tidegate"] / size * 1e9
            exact = opendp_laplace(scale) if law == "laplace" else None
            if exact is not None:
                opendp = median({"opendp": exact}, min(rounds, 5))["opendp"]
                numbers["speed/opendp"] = opendp / OPENDP_N * 1e9 / numbers["ns"]
                held = held and numbers["speed/opendp"] >= 300
            report(f"{law} {label}", numbers, held)
    each = np.geomspace(1.0, 2.0**40, N)
    times = median(
        {
            "laplace": lambda: laplace(source, "benchmark", 0, each, (N,)),
            "numpy laplace": lambda: generator.laplace(0.0, each),
        },
        rounds,
    )
    numbers = {"ms": times["laplace"] * 1e3, "×numpy": times["laplace"] / times["numpy laplace"]}
    report("laplace own scales", numbers, numbers["×numpy"] <= 1.2)
    times = median(
        {"laplace_one": single_draws, "laplace (1,)": one_row, "gaussian (1,)": one_gaussian}, rounds
    )
    for name, seconds in times.items():
        report(name, {"µs": seconds / SINGLE * 1e6}, True)
    if options.json:
        print(json.dumps({"measured": found, "missed": failed}, ensure_ascii=False))


if __name__ == "__main__":
    main()
