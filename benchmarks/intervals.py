"""How often 90 % intervals hold the truth, by mechanism and kind of stream: of values at once, and of revised ones.

    python benchmarks/intervals.py [--runs 5] [MECHANISM …]

Made-up streams of 200 steps, for w = 8 and 24 and ε = 0.1, 1 and 20: still, a slow wave, a walk, and counts that scatter
around a level by chance. Every run has a stream of its own; the documentation has the means of 40 (--full).
"""

from __future__ import annotations

import argparse

import numpy as np
from sizes import scaled

from tidegate import WEvent
from tidegate.core.session import Session
from tidegate.mechanisms import catalogue
from tidegate.mechanisms.mechanism import Mechanism

STEPS = scaled(200, 60)
COLUMNS = {"RescueDP": 4}
KEPT = ("Sample", "BudgetDistribution", "BudgetAbsorption", "Fast", "RescueDP", "OptStream", "Fourier")


def streams(random: np.random.Generator, columns: int) -> dict[str, np.ndarray]:
    """One of each kind, steps × columns."""
    shape = (STEPS, columns)
    wave = 300 + 100 * np.sin(np.arange(STEPS)[:, np.newaxis] / 40)
    return {
        "still": np.full(shape, 100),
        "wave": np.broadcast_to(np.rint(wave).astype(np.int64), shape),
        "walk": np.abs(np.rint(200 + np.cumsum(random.normal(0, 3, shape), axis=0))).astype(np.int64),
        "count 50": random.poisson(50, shape),
        "count 1000": random.poisson(1000, shape),
    }


def held(mechanism: Mechanism, rows: np.ndarray) -> tuple[float, float]:
    """The shares of intervals that hold the truth, where there are any: at once, and revised."""
    releases = Session(mechanism).push_batch(rows)
    shares = []
    for found in (releases, releases.revised):
        if found is None:
            shares.append(np.nan)
            continue
        radius = np.broadcast_to(found.radius(0.9), found.values.shape)
        known = np.isfinite(radius)
        off = np.abs(found.values - rows[: len(found)])
        shares.append(float((off <= radius + 1e-9)[known].mean()))
    return shares[0], shares[1]


def main() -> None:
    """Print one line for each mechanism and setting."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mechanisms", nargs="*", default=KEPT)
    parser.add_argument("--runs", type=int, default=scaled(40, 1, 5))
    parser.add_argument("--full", action="store_true", help="40 runs")
    arguments = parser.parse_args()
    for name in arguments.mechanisms:
        for w in (8, 24):
            for epsilon in ("0.1", "1", "20"):
                mechanism = catalogue()[name](WEvent(epsilon=epsilon, window=w), columns=COLUMNS.get(name, 1))
                random = np.random.default_rng(7)
                found = [
                    [held(mechanism, rows) for rows in streams(random, mechanism.columns).values()]
                    for _ in range(arguments.runs)
                ]
                cells = [
                    f"{kind} {100 * first:5.1f}" + ("" if np.isnan(revised) else f" ({100 * revised:5.1f})")
                    for kind, (first, revised) in zip(streams(random, 1), np.mean(found, axis=0), strict=True)
                ]
                print(f"{name:18} w = {w:2} ε = {epsilon:4}", *cells, sep="  ", flush=True)


if __name__ == "__main__":
    main()
