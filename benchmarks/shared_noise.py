"""Error and speed of noise shared by steps.

The error of Uniform is measured as a part of wΔ/ε, that of Laplace noise. Speed: ratios to exact Laplace draws measured
in the same run, one thread. The cube may take 6 times as long as independent noise, the semiorder 200 ns a value, and
Uniform takes 100,000 single pushes a second. Everything is warmed up; rivals are interleaved; the best of several
rounds counts. Single draws and the making of orders are printed without a bar.

    python benchmarks/shared_noise.py [--rounds 5] [--full] [--json]

The table of docs/mechanisms/noise.md: the mean absolute error of every mechanism that shares noise over that with
Laplace noise, on streams of a folder (negative values are not cut off), and on a made-up one if there is none:

    python benchmarks/shared_noise.py mechanisms [FOLDER] [--runs 5]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sizes import scaled

from timing import MISSED, best  # isort: skip  sets the number of threads first

import numpy as np
import polars as pl

from tidegate.core.session import Session
from tidegate.mechanisms import BudgetAbsorption, BudgetDistribution, Fast, PeGaSus, Sample, Uniform
from tidegate.noise import current, laplace, laplace_one
from tidegate.noise.shared.cube import Cube
from tidegate.noise.shared.orders import Order
from tidegate.noise.shared.semiorder import Semiorder
from tidegate.policy import WEvent

N = scaled(200_000, 2_000)
SINGLE = scaled(5_000, 50)
CUBES = {
    "cube 8": Cube(24.0, (8,)),
    "cube 8,8,8,8,8,7": Cube(24.0, (8, 8, 8, 8, 8, 7)),
    "cube 20": Cube(24.0, (20,)),
    "cube 8, 100 copies": Cube(24.0, (8,), copies=100),
    "cube 8, scale 2^30": Cube(2.0**30, (8,)),
    "cube 5, 2 columns": Cube(24.0, (5,), columns=2),
}
ERRORS = {
    (8, 1): 0.70, (16, 1): 0.64, (48, 1): 0.64, (120, 1): 0.60, (240, 1): 0.57, (16, 2): 0.83, (16, 3): 0.89,
}  # fmt: skip
SEMIORDERS = {
    "semiorder 2": Semiorder(100.0, 2),
    "semiorder 8": Semiorder(100.0, 8),
    "semiorder 16": Semiorder(100.0, 16),
    "semiorder 16, scale 2^24": Semiorder(2.0**24, 16),
    "semiorder 16, 3 classes": Semiorder(100.0, 16, classes=3),
    "semiorder 8, 2 columns": Semiorder(100.0, 8, columns=2),
    "semiorder 16, 100 copies": Semiorder(100.0, 16, copies=100),
}


def batch(law: Any) -> Callable[[], Any]:
    steps = N // (law.columns * law.copies)
    return lambda: law.draw(current(), "benchmark", 0, law.start(), steps)


def single(law: Any) -> Callable[[], None]:
    def run() -> None:
        source, state = current(), law.start()
        for step in range(SINGLE):
            _, state = law.draw(source, "benchmark", step, state)

    return run


def pushing(w: int) -> Callable[[], None]:
    run = Session(Uniform(WEvent(epsilon="1", window=w)))

    def push() -> None:
        for _ in range(SINGLE):
            run.push(5)

    return push


def measured_error(w: int, columns: int) -> float:
    """The mean absolute error of many windows over wΔ/ε."""
    mechanism = Uniform(WEvent(epsilon="1/10", window=w), columns=columns)
    values = Session(mechanism).push_batch(np.zeros((scaled(2000, 5) * w, columns), dtype=np.int64)).values
    return float(np.abs(values).mean() / (10 * w))


def streams(folder: Path | None) -> dict[str, np.ndarray]:
    """Public streams of one column, or a made-up one of people who come and go by day."""
    if folder is None:
        hours = np.arange(scaled(3000, 300))
        level = 200 + 120 * np.sin(2 * np.pi * hours / 24)
        return {"made up": np.random.default_rng(1).poisson(level).astype(np.int64)}
    people = pl.read_csv(folder / "calit2_people_30min.csv.gz").filter(pl.col("flow") == "in")["count"]
    web = pl.read_parquet(folder / "worldcup98_requests_per_minute.parquet")["requests"]
    jobs = pl.read_csv(folder / "unemployment_478_months.csv")["unemployed"]
    found = {"unemployed": jobs, "web requests": web, "people at a door": people}
    return {
        name: stream.cast(pl.Float64).fill_nan(None).fill_null(strategy="forward").fill_null(0)
        .round().cast(pl.Int64).to_numpy()[:5000]
        for name, stream in found.items()
    }  # fmt: skip


def compare(folder: Path | None, runs: int) -> None:
    """Print the table of docs/mechanisms/noise.md."""
    kinds: dict[str, Callable[..., Any]] = {
        "Uniform": Uniform,
        "Sample, 8 a window": lambda policy, noise: Sample(policy, every=policy.window // 8, noise=noise),
        "PeGaSus": PeGaSus,
        "Fast": Fast,
        "BudgetDistribution": BudgetDistribution,
        "BudgetAbsorption": BudgetAbsorption,
    }
    print(f"| stream, w, ε | {' | '.join(kinds)} |")
    print(f"|---|{'---|' * len(kinds)}")
    for name, stream in streams(folder).items():
        rows = stream[:, np.newaxis]
        for w, epsilon in ((24, "0.1"), (24, "1"), (120, "0.1"), (120, "1"))[: scaled(4, 1)]:
            cells = []
            for kind in kinds.values():
                errors = {}
                for noise in ("laplace", "auto"):
                    mechanism = kind(WEvent(epsilon=epsilon, window=w), noise=noise)
                    made = [Session(mechanism).push_batch(rows).values - rows for _ in range(runs)]
                    errors[noise] = float(np.mean(np.abs(made)))
                ratio = errors["auto"] / errors["laplace"]
                cells.append(f"{errors['laplace']:.3g} → {errors['auto']:.3g} ({ratio:.2f})")
            print(f"| {name}, {w}, {epsilon} | {' | '.join(cells)} |", flush=True)


def single_laplace() -> None:
    source = current()
    for step in range(SINGLE):
        laplace_one(source, "benchmark", step, 0, 100.0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=scaled(15, 1, 5), help="rounds of which the best counts, at least 5"
    )
    parser.add_argument("--full", action="store_true", help="15 rounds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "what", nargs="?", choices=["laws", "mechanisms"], default="laws", help="what to measure"
    )
    parser.add_argument("folder", nargs="?", type=Path, help="where the streams of `mechanisms` are")
    parser.add_argument("--runs", type=int, default=5, help="runs of each mechanism")
    options = parser.parse_args()
    if options.what == "mechanisms":
        compare(options.folder, options.runs)
        return
    found: dict[str, dict[str, float]] = {}
    failed = []

    def report(name: str, numbers: dict[str, float], held: bool = True) -> None:
        found[name] = numbers
        if not held:
            failed.append(name)
        if not options.json:
            shown = "  ".join(f"{key} {value:.3g}" for key, value in numbers.items())
            print(f"{name:28} {shown}  {'ok' if held else MISSED}", flush=True)

    rivals = {"laplace": lambda: laplace(current(), "benchmark", 0, 100.0, (N,))}
    rivals |= {name: batch(law) for name, law in (CUBES | SEMIORDERS).items()}
    times = best(rivals, max(5, options.rounds))
    for name, seconds in times.items():
        numbers = {"ns a value": seconds / N * 1e9, "×laplace": seconds / times["laplace"]}
        held = name not in CUBES or numbers["×laplace"] <= 6
        report(name, numbers, held and (name not in SEMIORDERS or numbers["ns a value"] <= 200))
    ones = {"laplace, single": single_laplace}
    ones |= {f"{name}, single": single(law) for name, law in (("cube 8", CUBES["cube 8"]), *SEMIORDERS.items())
             if law.columns * law.copies == 1}  # fmt: skip
    for name, seconds in best(ones, 5).items():
        report(name, {"µs": seconds / SINGLE * 1e6})
    pushes = {f"Uniform, w = {w}, single push": pushing(w) for w in (8, 24, 240)}
    for name, seconds in best(pushes, 5).items():
        report(name, {"a second": SINGLE / seconds}, SINGLE / seconds >= 100_000)
    for (w, columns), bar in ERRORS.items():
        part = measured_error(w, columns)
        report(f"error of Uniform, w = {w}, d = {columns}", {"of wΔ/ε": part, "bar": bar}, part <= bar)
    for width, columns in ((8, 1), (16, 1), (8, 2), (8, 3)):
        start = time.process_time()
        _ = Order(width, columns).boundaries
        report(f"order {width}, {columns} columns", {"s": time.process_time() - start})
    if options.json:
        print(json.dumps({"measured": found, "missed": failed}, ensure_ascii=False))


if __name__ == "__main__":
    main()
