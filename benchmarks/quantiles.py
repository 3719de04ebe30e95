"""Quantiles of a day's flights and receipts: how well their method is chosen (needs TIDEGATE_DATA).

python benchmarks/quantiles.py    how often the error is at most 1.1 times that of the better method
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import polars as pl
from sizes import scaled
from timing import data_file

from tidegate.ingest.levels import least_squares
from tidegate.ingest.quantiles import Quantiles, Range, parts_over, parts_pay

FILES = (
    ("flight_durations_2013", pl.col("sched_dep_local").dt.date(), "air_time_min", 720),
    ("tafeng_baskets", pl.col("date"), "spend_twd", 5000),
)
BINS = (8, 12, 16, 24, 32, 48, 64, 100, 150, 256, 1000)[: scaled(11, 3)]
NOISE = (1, 4, 12, 24)
PARTS = ("1/10", "1/4", "1/2", "3/4", "9/10")
DAYS, REPEATS = scaled(120, 10), scaled(24, 1)  # with few repeats chance alone is above 1.1


def main() -> None:
    """All settings."""
    random, found = np.random.default_rng(1), []
    for file, day, value, end in FILES:
        path = data_file(f"{file}.parquet")
        if path is None:
            continue
        table = pl.read_parquet(path).drop_nulls(value)
        by_day = table.group_by(day.alias("day")).agg(value).sort("day").head(DAYS)
        days = REPEATS * [np.array(each, dtype=float) for each in by_day[value]]
        for bins in BINS:
            edges, tree = np.linspace(0, end, bins + 1), parts_over(Range.of(0, end, bins).labels)
            counts = np.array([np.histogram(np.clip(each, 0, end - 1e-9), edges)[0] for each in days], float)
            nodes = tree.sum(counts)
            for part in map(Fraction, PARTS):
                truth = np.array([np.quantile(np.clip(each, 0, end), float(part)) for each in days])
                quantile = Quantiles((part,), edges)
                for noise in NOISE:
                    plain = counts + random.laplace(0, noise, counts.shape)
                    both = least_squares(tree, nodes + random.laplace(0, 2 * noise, nodes.shape))
                    read = [quantile.read(each)[:, 0] for each in (plain, both[:, list(tree.leaves)])]
                    off = [float(np.abs(each - truth).mean()) for each in read]
                    found.append(off[parts_pay(bins, (part,))] / min(off))
    if not found:
        return
    good = sum(each <= 1.1 for each in found)
    print(f"{good} of {len(found)} at most 1.1, worst {max(found):.2f}, mean {np.mean(found):.3f}")


if __name__ == "__main__":
    main()
