"""Continual sums: speed; and with a word the closed forms, the paper's tables, real streams, pictures.

python benchmarks/counters.py [--full]   observations a second, memory, state
python benchmarks/counters.py errors     mean absolute errors at T = 10⁴ under ρ = ½, measured and by the closed form
python benchmarks/counters.py tables     Tables I and II of the paper on generated streams of their shape
python benchmarks/counters.py streams    improvement over a tree with B on real streams, 1,000 runs (needs TIDEGATE_DATA)
python benchmarks/counters.py learnt     the same with a clip on single values that is learnt first (needs TIDEGATE_DATA)
python benchmarks/counters.py ranges     ranges and windows: ToPS, ClippedSum, learnt clips (needs TIDEGATE_DATA)
python benchmarks/counters.py pictures   docs/pictures/sums_*.png
"""

from __future__ import annotations

import math
import sys
import time
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from sizes import scaled
from timing import best, data_file

from tidegate.core.session import Session
from tidegate.mechanisms import (
    BinaryTree,
    ClippedSum,
    EndlessSum,
    Factorization,
    GradualTree,
    HybridTree,
    ToPS,
    Uniform,
)
from tidegate.mechanisms.clipped_records import ClippedRecords
from tidegate.mechanisms.clipping.clip_parameters import optimise, suggested_lag
from tidegate.policy import Event
from tidegate.structures.value_bins import ValueBins

ROOT = Path(__file__).resolve().parent.parent
DELTA = Fraction(1, 2**20)
LEARN = 20_000  # steps from which a clip on single values is learnt
STREAMS = {
    "flights": ("flight_durations_2013.parquet", "air_time_min", 1440),
    "baskets": ("tafeng_baskets.parquet", "spend_twd", 10**6),
}
PRINTED = {  # improvement factor and r, λ, p, ε₁/ε of Tables I and II, by lag
    "train trips": {40_000: "1.00", 50_000: "2.32", 60_000: "2.80", 100_000: "3.69", 300_000: "4.34"},
    "supermarket": {40_000: "1.00", 50_000: "4.23", 60_000: "4.86", 100_000: "6.67"},
}


def train_trips(count: int) -> np.ndarray:
    """Durations in minutes: mean near 30, a light tail, bound 1,440."""
    return np.clip(np.random.default_rng(1).gamma(2.2, 13.5, count).round(), 1, 1440).astype(np.int64)


def supermarket(count: int) -> np.ndarray:
    """Amounts in dollars: mean near 40, an exponential tail, bound 3,000."""
    return np.clip(np.random.default_rng(2).gamma(0.9, 45.0, count).round(), 0, 3000).astype(np.int64)


def speed() -> None:
    count = scaled(4_000_000, 5_000, 2_000_000)
    stream = np.random.default_rng(3).integers(0, 50, (count, 1))
    event, concentrated = Event(epsilon="1", max_change=50), Event(rho="1/2", max_change=50)
    mechanisms = {
        "BinaryTree, n = 10⁹": BinaryTree(event, horizon=10**9),
        "BinaryTree, n = 10⁹, ρ": BinaryTree(concentrated, horizon=10**9),
        "HybridTree": HybridTree(event),
        "GradualTree, n = 10⁹": GradualTree(event, horizon=10**9),
        "Factorization, BLT of 5, n = 10⁷": Factorization(concentrated, horizon=10**7),
        "EndlessSum": EndlessSum(concentrated),
        "ClippedSum, n = 25·10⁶": ClippedSum(Event(epsilon="1", max_change=1440), horizon=25_000_000),
        "Uniform (every step alone)": Uniform(event),
    }
    times = best(
        {name: lambda m=m: Session(m).push_batch(stream) for name, m in mechanisms.items()},
        rounds=scaled(5, 1, 3),
    )
    for name, seconds in times.items():
        print(f"{name:36} {count / seconds / 1e6:7.1f} million/s", flush=True)
    for steps in (10**4, 10**5, 10**6)[: scaled(3, 1)]:
        part = stream[:steps]
        seconds = best({"tree": lambda p=part: Session(mechanisms["BinaryTree, n = 10⁹"]).push_batch(p)})[
            "tree"
        ]
        print(f"BinaryTree, {steps:>9,} steps              {seconds / steps * 1e9:7.1f} ns a step")
    clipped()


def clipped() -> None:
    stream = train_trips(scaled(25_000_000, 60_000, 5_000_000))[:, np.newaxis]
    run = Session(ClippedSum(Event(epsilon="1", max_change=1440), horizon=len(stream), lag=50_000))
    tracemalloc.start()
    start, peak = time.process_time(), 0
    for at in range(0, len(stream), 1_000_000):
        releases = run.push_batch(stream[at : at + 1_000_000])
        peak = max(peak, tracemalloc.get_traced_memory()[1] - releases.values.nbytes - releases.scale.nbytes)
    print(
        f"ClippedSum, {len(stream):,} in batches of a million: {time.process_time() - start:.1f} s, ", end=""
    )
    print(f"{peak / 1e6:.0f} MB beyond input and output")
    tracemalloc.stop()


def errors(runs: int = scaled(3000, 250)) -> None:
    policy, steps = Event(rho="1/2"), scaled(10_000, 1_000)
    rows = np.zeros((500, 250), dtype=np.int64)
    print(f"{'mechanism':34} {'closed form':>12} {f'{runs} runs':>12}")
    kinds: dict[str, Callable[[int], Any]] = {
        "Factorization, BLT of 5": lambda d: Factorization(policy, columns=d, horizon=steps),
        "Factorization, BLT of 3": lambda d: Factorization(policy, columns=d, horizon=steps, buffers=3),
        "Factorization, square root": lambda d: Factorization(
            policy, columns=d, horizon=steps, method="square-root"
        ),
        "Factorization, 400 bands": lambda d: Factorization(
            policy, columns=d, horizon=steps, method="banded", bands=scaled(400, 40)
        ),
        "BinaryTree, Honaker": lambda d: BinaryTree(policy, columns=d, horizon=steps),
        "BinaryTree, plain": lambda d: BinaryTree(policy, columns=d, horizon=steps, estimator="plain"),
        "BinaryTree, plain, 5 children": lambda d: BinaryTree(
            policy, columns=d, horizon=steps, estimator="plain", branching=5
        ),
        "HybridTree": lambda d: HybridTree(policy, columns=d),
        "EndlessSum": lambda d: EndlessSum(policy, columns=d),
    }
    for name, make in kinds.items():
        one = make(1)
        closed = math.sqrt(2 / math.pi) * float(
            Session(one).push_batch(np.zeros(steps, dtype=np.int64)).scale.mean()
        )
        measured = ""
        if "square" not in name and "bands" not in name:
            total = 0.0
            for _ in range(runs // 250):
                run = Session(make(250))
                total += sum(float(np.abs(run.push_batch(rows).values).sum()) for _ in range(steps // 500))
            measured = f"{total / (runs * steps):12.3f}"
        print(f"{name:34} {closed:12.3f} {measured}")
    every = math.sqrt(2 / math.pi) * float(np.mean(np.sqrt(np.arange(1, steps + 1))))
    print(f"{'Uniform, added up':34} {every:12.3f}")


def tables() -> None:
    shapes = {
        "train trips": (train_trips(300_000), 25_000_000, 1440),
        "supermarket": (supermarket(150_000), 150_000, 3000),
    }
    print(f"lag suggested by the heuristics at ε = 1, δ = 2⁻²⁰, β = 0.02: {suggested_lag(1.0, 2**-20):,}")
    for name, (sample, horizon, bound) in shapes.items():
        print(f"\n{name}: n = {horizon:,}, B = {bound}, ε = 1, δ = 2⁻²⁰, β = 0.02")
        print(
            f"{'m':>8} {'printed IF':>11} {'IF':>6} {'r':>5} {'λ':>5} {'p':>7} {'ε₁/ε':>5}  parts of β: qt lt lap out rt"
        )
        for lag, printed in list(PRINTED[name].items())[: scaled(9, 1)]:
            found = optimise(
                sample, Event(epsilon="1", delta=DELTA, max_change=bound), horizon=horizon, lag=lag
            )
            parts = " ".join(f"{found.chances[key] / 0.02:.2f}" for key in ("qt", "lt", "lap", "out", "rt"))
            print(
                f"{lag:8,} {printed:>11} {found.improvement:6.2f} {found.multiplier:5.2f} {found.shrink:5.2f} "
                f"{found.exceeding:7.4f} {found.share:5.2f}  {parts}"
            )


def load(name: str) -> np.ndarray:
    import polars as pl

    file, column, _ = STREAMS[name]
    path = data_file(file)
    if path is None:
        sys.exit()
    return pl.read_parquet(path)[column].drop_nulls().to_numpy().astype(np.int64)[:, np.newaxis]


def contenders(name: str, count: int) -> dict[str, Any]:
    """The default, a smooth threshold with parameters from a generated sample, and the tree with B."""
    bound = STREAMS[name][2]
    random = np.random.default_rng(4)
    public = random.gamma(2.6, 58.0, 60_000) if name == "flights" else random.lognormal(6.2, 1.1, 60_000)
    approximate = Event(epsilon="1", delta=DELTA, max_change=bound)
    found = optimise(public, approximate, horizon=count, lag=50_000)
    smooth = found.mechanism(approximate)
    return {
        "pure quantile (default)": ClippedSum(Event(epsilon="1", max_change=bound), horizon=count),
        f"smooth, optimised ({type(smooth).__name__})": smooth,
        "tree with B": BinaryTree(Event(epsilon="1", max_change=bound), horizon=count),
    }


def streams(runs: int = scaled(1000, 1)) -> None:
    for name in STREAMS:
        values = load(name)
        true = int(values.sum())
        tree = BinaryTree(Event(epsilon="1", max_change=STREAMS[name][2]), horizon=len(values))
        plain = tree.expected_error(len(values))
        print(
            f"\n{name}: n = {len(values):,}, B = {STREAMS[name][2]:,}, ε = 1, {runs} runs, error of the last sum"
        )
        for label, mechanism in contenders(name, len(values)).items():
            missed, clips = [], []
            for _ in range(runs):
                run = Session(mechanism)
                found = run.push_batch(values)
                missed.append(abs(float(found.values[-1, 0]) - true))
                learned = getattr(found, "clip", None)
                clips.append(STREAMS[name][2] if learned is None else float(learned[-1]))
            mean, margin = np.mean(missed), np.std(missed) / math.sqrt(runs)
            print(
                f"  {label:34} lag {getattr(mechanism, 'lag', 0):6} mean error {mean:14,.0f} ± {margin:10,.0f}  "
                f"improvement {plain / mean:6.2f}  clip {np.quantile(clips, 0.05):,.0f} … {np.median(clips):,.0f} … "
                f"{np.quantile(clips, 0.95):,.0f}"
            )


def learnt(runs: int = scaled(100, 1)) -> None:
    """One observation a step; the error of the last running sum against a tree with B, and the learnt clip."""
    for name, (_, _, bound) in STREAMS.items():
        values = load(name)[: scaled(10**9, 2_000)]
        policy, bins, count = Event(epsilon="1", max_change=bound), ValueBins(bound), len(values)
        tree = BinaryTree(policy, horizon=count)
        mechanism = ClippedRecords(
            policy,
            build=lambda policy, count=count: BinaryTree(policy, horizon=count),
            bins=bins,
            learn=scaled(LEARN, 500),
        )
        missed, clips = [], []
        parts = [bins.of_steps(values[at : at + 5_000].tolist()) for at in range(0, count, 5_000)]
        for _ in range(runs):
            run = Session(mechanism)
            for part in parts:
                last = run.push_batch(part)
            missed.append(abs(float(last.values[-1, 0]) - int(values.sum())))
            clips.append(float(last.clip[-1]))
        times = tree.expected_error(count) / np.mean(missed)  # of a tree with B, the closed form
        margin = times * np.std(missed) / np.mean(missed) / math.sqrt(runs)
        print(
            f"{name}: n = {count:,}, {runs} runs: {times:.2f} ± {margin:.2f} times smaller than with B = {bound:,}, "
            f"median clip {np.median(clips):,.0f}"
        )


def ranged(values: np.ndarray, bound: int) -> dict[str, Any]:
    """What releases running sums of clipped values, each with 50,000 steps to learn from at most."""
    count, policy = len(values), Event(epsilon="1", max_change=bound)
    lag = min(count // 10, 50_000)
    records = ClippedRecords(
        policy, build=lambda policy: BinaryTree(policy, horizon=count), bins=ValueBins(bound), learn=lag
    )
    return {
        "ClippedSum, binary tree": ClippedSum(policy, horizon=count, branching=2),
        "ClippedSum, 16 children": ClippedSum(policy, horizon=count, branching=16),
        "learnt clip (ClippedRecords), binary tree": records,
        "ToPS, as printed (balance, c = 60)": ToPS(policy, horizon=count, threshold="balance"),
        "ToPS, balance, c = B/20": ToPS(
            policy, horizon=count, threshold="balance", excess=Fraction(bound, 20)
        ),
        "ToPS, no groups": ToPS(policy, horizon=count, group=1),
        "ToPS": ToPS(policy, horizon=count),
    }


def ranges(runs: int = scaled(50, 1)) -> None:
    """Root mean square errors after the lag: 1,000 ranges with ends at random, and sums of the last 1,000 steps."""
    random, window = np.random.default_rng(7), scaled(1000, 100)
    streams: dict[str, Any] = {"made-up trips": (lambda: train_trips(scaled(250_000, 2_000)), 1440)}
    streams |= {name: (lambda name=name: load(name)[:, 0], bound) for name, (_, _, bound) in STREAMS.items()}
    for name, (read, bound) in streams.items():
        values = np.clip(read()[: scaled(10**9, 2_000)], 0, bound)
        lag, sums = min(len(values) // 10, 50_000), np.cumsum(values)
        ends = np.sort(random.integers(lag, len(values), (2, 1000)), axis=0)
        print(f"\n{name}: n = {len(values):,}, B = {bound:,}, ε = 1, {runs} runs; root mean square error")
        for label, mechanism in ranged(values, bound).items():
            apart = isinstance(mechanism, ClippedRecords)  # slow: its steps are records
            found = []
            for _ in range(max(1, runs // 10) if apart else runs):
                run = Session(mechanism)
                if apart:
                    steps = [values[at : at + 5_000].tolist() for at in range(0, len(values), 5_000)]
                    parts = [run.push_batch(mechanism.bins.of_steps([[v] for v in part])) for part in steps]
                    released, clip = np.concatenate([part.values[:, 0] for part in parts]), parts[-1].clip[-1]
                else:
                    releases = run.push_batch(values[:, np.newaxis])
                    released, clip = releases.values[:, 0], releases.clip[-1]
                missed = released - sums
                over = missed[ends[1]] - missed[ends[0]]
                last = missed[lag + window :] - missed[lag:-window]
                found.append((np.mean(over**2), np.mean(last**2), clip))
            mean = np.mean(found, axis=0)
            margin = np.std([each[0] for each in found]) / mean[0] / 2 / math.sqrt(len(found))
            print(
                f"  {label:42} ranges {math.sqrt(mean[0]):12,.0f} ± {margin:4.0%}  windows {math.sqrt(mean[1]):12,.0f}"
                f"  clip {np.median([each[2] for each in found]):10,.0f}"
            )


def pictures() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams |= {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    policy, steps = Event(rho="1/2"), 4096
    figure, axes = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
    zeros = np.zeros(steps, dtype=np.int64)
    lines = {
        "every step alone, added up": np.sqrt(np.arange(1, steps + 1)),
        "binary tree, plain": Session(BinaryTree(policy, horizon=steps, estimator="plain"))
        .push_batch(zeros)
        .scale,
        "hybrid tree (no horizon)": Session(HybridTree(policy)).push_batch(zeros).scale,
        "binary tree, Honaker": Session(BinaryTree(policy, horizon=steps)).push_batch(zeros).scale,
        "endless sum (no horizon)": Session(EndlessSum(policy)).push_batch(zeros).scale,
        "factorisation, BLT of 5 buffers": Session(Factorization(policy, horizon=steps))
        .push_batch(zeros)
        .scale,
    }
    colours = ["#aeb6c0", "#d9a441", "#8f6bb0", "#c0504d", "#3f9b6c", "#0b6e8f"]
    for (label, line), colour in zip(lines.items(), colours, strict=True):
        if "tree" in label:  # trees jump from step to step: their mean over a stretch
            smooth = np.convolve(line, np.ones(128) / 128, mode="valid")
            axes.plot(
                np.arange(64, 64 + len(smooth)), smooth, label=f"{label} (mean over 128 steps)", color=colour
            )
        else:
            axes.plot(np.arange(1, steps + 1), line, label=label, color=colour, linewidth=2)
    axes.set(xlabel="step", ylabel="standard deviation of the running sum", ylim=(0, 15), xlim=(0, steps))
    axes.set_title(
        "Error of every counter, known before anything is released (ρ = ½, Δ = 1)", loc="left", fontsize=9
    )
    axes.legend(frameon=False, ncols=2, loc="upper left", fontsize=8)
    figure.savefig(ROOT / "docs" / "pictures" / "sums_errors.png", dpi=130)
    plt.close(figure)
    averages(plt)


def averages(plt: Any) -> None:
    count = 200_000
    values = train_trips(count)[:, np.newaxis]
    true = np.cumsum(values) / np.arange(1, count + 1)
    policy = Event(epsilon="0.1", max_change=1440)
    clipped_sum = ClippedSum(policy, horizon=count)
    figure, axes = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
    at = np.arange(clipped_sum.waits - 1, count, 700)
    for label, mechanism, colour in (
        ("tree with B = 1,440", BinaryTree(policy, horizon=count), "#d9a441"),
        ("clipped sum", clipped_sum, "#0b6e8f"),
    ):
        run = Session(mechanism)
        releases = run.push_batch(values)
        steps = at + 1.0
        average, reach = releases.values[at, 0] / steps, 1.96 * releases.scale[at] / steps
        axes.fill_between(steps, average - reach, average + reach, color=colour, alpha=0.18, linewidth=0)
        axes.plot(steps, average, color=colour, linewidth=1, label=f"{label}, 95 % of its noise")
    axes.plot(at + 1, true[at], color="#1d2733", linewidth=1.2, label="true average")
    axes.axvline(clipped_sum.waits, color="#66717e", linewidth=0.8, linestyle=":")
    axes.set(xlabel="observation", ylabel="minutes", ylim=(0, 60), xlim=(0, count))
    axes.set_title(
        "Running average of generated trip times, ε = 0.1; dotted: the time lag", loc="left", fontsize=9
    )
    axes.legend(frameon=False, loc="upper right")
    figure.savefig(ROOT / "docs" / "pictures" / "sums_average.png", dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    {
        "speed": speed,
        "errors": errors,
        "tables": tables,
        "streams": streams,
        "learnt": learnt,
        "ranges": ranges,
        "pictures": pictures,
    }[next((word for word in sys.argv[1:] if word != "--full"), "speed")]()
