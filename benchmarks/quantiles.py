"""Quantiles of a day's flights and receipts, or of made-up ones without TIDEGATE_DATA: how well their method is chosen.

python benchmarks/quantiles.py [--full]    how often the error is at most 1.1 times that of the better method
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import polars as pl
from sizes import scaled
from timing import data_file

from tidegate.ingest.levels import NODES, Levels
from tidegate.ingest.quantiles import METHODS, Quantiles, Range, best_method, parts_over

FILES = (
    ("flight_durations_2013", pl.col("sched_dep_local").dt.date(), "air_time_min", 720),
    ("tafeng_baskets", pl.col("date"), "spend_twd", 5000),
)
BINS = (8, 12, 16, 24, 32, 48, 64, 100, 150, 256, 1000)[: scaled(11, 3)]
NOISE = (1, 4, 12, 24)
PARTS = ("1/10", "1/4", "1/2", "3/4", "9/10")
DAYS, REPEATS = scaled(120, 10), scaled(60, 1, 10)  # with few repeats chance alone is above 1.1


def main() -> None:
    """All settings."""
    random, found = np.random.default_rng(1), []
    for file, day, value, end in FILES:
        path = data_file(f"{file}.parquet")
        if path is None:
            file, own = "made-up values", random.poisson(800, DAYS)
            days = REPEATS * [random.gamma(2.6, end / 12, size).round() for size in own]
        else:
            table = pl.read_parquet(path).drop_nulls(value)
            by_day = table.group_by(day.alias("day")).agg(value).sort("day").head(DAYS)
            days = REPEATS * [np.array(each, dtype=float) for each in by_day[value]]
        truths = {
            Fraction(part): np.array(
                [np.quantile(np.clip(each, 0, end), float(Fraction(part))) for each in days]
            )
            for part in PARTS
        }
        for bins in BINS:
            print(f"{file} in {bins} bins", flush=True)
            edges, tree = np.linspace(0, end, bins + 1), parts_over(Range.of(0, end, bins).labels)
            counts = np.array([np.histogram(np.clip(each, 0, end - 1e-9), edges)[0] for each in days], float)
            for noise in NOISE:
                drawn = random.laplace(0, noise, (len(counts), len(tree.names)))
                read = {"histogram": counts + drawn[:, list(tree.leaves)]}  # the same chance for all methods
                for method, (own, above) in METHODS.items():
                    if above:
                        levels = Levels(tree, NODES, NODES, weights=(above, own))
                        read[method] = levels.consistent(levels.expanded(counts) + levels.factor * drawn)
                for part, truth in truths.items():
                    quantile, chosen = Quantiles((part,), edges), best_method(bins, (part,))
                    off = {
                        method: float(np.abs(quantile.read(read[method])[:, 0] - truth).mean())
                        for method in ("histogram", "parts", chosen)
                    }
                    found.append(off[chosen] / min(off["histogram"], off["parts"]))
                    if found[-1] > 1.1:
                        print(f"{found[-1]:.3f} for {part} of {file} in {bins} bins with noise {noise}")
    good = sum(each <= 1.1 for each in found)
    print(f"{good} of {len(found)} at most 1.1, worst {max(found):.2f}, mean {np.mean(found):.3f}")


if __name__ == "__main__":
    main()
