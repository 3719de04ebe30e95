"""OptStream on real load data: the tables of docs/experiments/optstream.md, each cell a mean ± its standard error."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import polars as pl
from optstream_data import (
    DATA,
    DAY,
    REGIONS,
    Floats,
    Integers,
    Rows,
    W,
    errors,
    hierarchy_2026,
    policy,
    print_table,
    regions_2016,
)

import tidegate as tg
from experiments.printed.optstream import PrintedOptStream
from tidegate.core.session import Session
from tidegate.mechanisms import Fourier, HierarchicalOptStream, Mechanism, OptStream, PeGaSus, Sample, Uniform
from tidegate.mechanisms.optstream.feature_trees import whole_period
from tidegate.mechanisms.optstream.per_leaf_opt_stream import PerLeafOptStream
from tidegate.mechanisms.optstream.reconstruction import Reconstruction
from tidegate.mechanisms.pegasus.deviation import whole_deviation
from tidegate.mechanisms.sparse_vector import SparseVector
from tidegate.noise import current, laplace


def contenders(p: tg.WEvent, public: Integers) -> dict[str, Mechanism]:
    k = 5 if p.max_change == 100 else 10  # the paper's choice
    threshold = {"adaptive": True, "threshold": 1000}
    return {
        "Laplace": Uniform(p, noise="laplace"),
        "Sample": Sample(p),
        "PeGaSus": PeGaSus(p),
        "Fourier, K = 10": Fourier(p, coefficients=k),
        "OptStream ES, k = 10": OptStream(p, samples=k, features=DAY, noise="laplace"),
        "OptStream L1, k = 10": OptStream(p, samples=k, features=DAY, noise="laplace", **threshold),
        "OptStream ES, default (k = 12, no features)": OptStream(p, noise="laplace"),
        "Fourier, chosen": Fourier.from_profile(p, public),
        "OptStream, chosen": OptStream.from_profile(
            p, public, candidates=[(), (whole_period(W),), DAY], noise="laplace"
        ),
        "OptStream ES, k = 10, shared noise": OptStream(p, samples=k, features=DAY),
        "OptStream L1, k = 10, shared noise": OptStream(p, samples=k, features=DAY, **threshold),
        "OptStream ES, default, shared noise": OptStream(p),
        "OptStream, chosen, shared noise": OptStream.from_profile(p, public),
        "printed ES (not private)": PrintedOptStream(p, samples=k, features=DAY, noise="laplace"),
        "printed L1 (not private)": PrintedOptStream(
            p, samples=k, features=DAY, noise="laplace", **threshold
        ),
    }


def errors_by_budget(runs: int) -> None:
    data = list(regions_2016())
    for title, policies in (
        ("Mean absolute error in MW by ε (α = 1)", {f"ε = {e}": policy(e) for e in ("1", "0.1", "0.01")}),
        ("Mean absolute error in MW by α (ε = 1)", {f"α = {a}": policy("1", a) for a in (1, 10, 50, 100)}),
    ):
        rows: Rows = {}
        for p in policies.values():
            found: Rows = {}
            for _, _, public, month in data:
                for name, mechanism in contenders(p, public).items():
                    found.setdefault(name, []).append(errors(mechanism, month, runs))
            for name, each in found.items():
                rows.setdefault(name, []).append(np.mean(each, axis=0))
        print_table(title, list(policies), rows)


def errors_by_region(runs: int) -> None:
    columns = [
        "Laplace",
        "OptStream, chosen",
        "at the step itself",
        "at the step itself, last period",
        "samples",
    ]
    rows: Rows = {}
    p = policy("0.1")
    for region, month, public, values in regions_2016():
        chosen = OptStream.from_profile(p, public, noise="laplace")
        last = OptStream.from_profile(p, public, causal="last period", noise="laplace")
        rows[f"{REGIONS[region]}, {month}"] = [
            errors(Uniform(p, noise="laplace"), values, runs),
            errors(chosen, values, runs),
            errors(chosen, values, runs, final=False),
            errors(last, values, runs, final=False),
            np.array([float(chosen.sample_count)]),
        ]
    print_table("Each region and month at ε = 0.1, α = 1", columns, rows)


def ablation(runs: int) -> None:
    rows: Rows = {}
    p, columns = policy("0.1"), ["sound ES", "sound L1", "printed ES", "printed L1"]
    parts = {"⟨P,∘,∘⟩": (W, ()), "⟨P,∘,O⟩": (W, DAY), "⟨P,S,∘⟩": (10, ()), "⟨P,S,O⟩": (10, DAY)}
    data = list(regions_2016())
    for name, (k, features) in parts.items():
        for kind in (OptStream, PrintedOptStream):
            for adaptive in (False, True):
                mechanism = kind(
                    p, samples=k, features=features, adaptive=adaptive, threshold=1000, noise="laplace"
                )
                found = [errors(mechanism, month, runs) for _, _, _, month in data]
                rows.setdefault(name, []).append(np.mean(found, axis=0))
    print_table("Ablation at ε = 0.1, α = 1", columns, rows)


def thresholds(runs: int) -> None:
    """L1 sampling at the threshold that is best on the protected data themselves, which nobody may choose."""
    rows: Rows = {}
    data, titles = list(regions_2016()), []
    for epsilon in ("1", "0.1", "0.01"):
        for k in (6, 10, 16):
            titles.append(f"ε = {epsilon}, k = {k}")
            p = policy(epsilon)
            spaced = [errors(OptStream(p, samples=k, noise="laplace"), month, runs) for *_, month in data]
            rows.setdefault("equally spaced", []).append(np.mean(spaced, axis=0))
            for name, form in (("sound", OptStream), ("printed (not private)", PrintedOptStream)):
                options = {"samples": k, "adaptive": True, "noise": "laplace"}
                tried = [
                    np.mean(
                        [errors(form(p, threshold=cut, **options), month, runs) for *_, month in data],
                        axis=0,
                    )
                    for cut in (0, 300, 1000, 3000, 10_000, 30_000)
                ]
                best_of = min(tried, key=lambda each: float(each.mean()))
                rows.setdefault(f"L1, best of six thresholds, {name}", []).append(best_of)
    print_table("L1 sampling with the best threshold, no features, α = 1", titles, rows)


def hierarchy(runs: int) -> None:
    tree, public, rows = hierarchy_2026()
    nodes, leaves = tree.sum(rows), list(tree.leaves)
    found: Rows = {}
    titles = []
    for epsilon in ("1", "0.1", "0.01"):
        titles += [f"national, ε = {epsilon}", f"regional, ε = {epsilon}"]
        p, half = policy(epsilon), policy(str(Fraction(epsilon) / 2))
        fixed = policy(epsilon, mobility="fixed")
        levels: dict[str, list[Mechanism]] = {
            "Laplace": [Uniform(half, noise="laplace"), Uniform(half, columns=12, noise="laplace")],
            "Fourier, K = 10": [Fourier(half, coefficients=10), Fourier(half, columns=12, coefficients=10)],
        }
        for name, (root, regions) in levels.items():
            found.setdefault(name, []).append(errors(root, nodes[:, :1], runs))
            found[name].append(errors(regions, rows, runs))
        options = {"hierarchy": tree, "samples": 10}
        for name, mechanism in {
            "OptStream ES, k = 10": HierarchicalOptStream(p, features=DAY, **options),
            "OptStream L1, k = 10": HierarchicalOptStream(
                p, features=DAY, adaptive=True, threshold=10_000, **options
            ),
            "OptStream L1 per region, fixed units, k = 10": PerLeafOptStream(
                fixed, features=DAY, threshold=1000, **options
            ),
            "the same without features": PerLeafOptStream(fixed, threshold=1000, **options),
            "OptStream ES without features, k = 10": HierarchicalOptStream(p, **options),
            "OptStream, chosen": HierarchicalOptStream.from_profile(p, public, hierarchy=tree),
        }.items():
            both = [np.abs(Session(mechanism).push_batch(rows).final.values - nodes) for _ in range(runs)]
            found.setdefault(name, []).append(np.array([each[:, 0].mean() for each in both]))
            found[name].append(np.array([each[:, leaves].mean() for each in both]))
    print_table("Hierarchy: 12 regions and France, 15 April to August 2026", titles, found)


def grouped_samples(p: tg.WEvent, k: int, threshold: int, rows: Integers, *, curve: str = "line") -> Floats:
    """Section 7's question: L1 sampling with PeGaSus's deviation from the mean in place of the distance from a line.

    A group of n ≤ w − k + 1 counts deviates by at most 2Δn more or less between neighbours.
    """
    plain = OptStream(p, samples=k, adaptive=True, noise="laplace")
    rule = SparseVector(plain.sampling.epsilon, 2 * plain.sensitivity * (W - k + 1), k - 2)
    source, values = current(), rows[:, 0].tolist()
    before, curves = None, []
    for period in range(len(values) // W):
        day = values[period * W : (period + 1) * W]
        limit = threshold + int(laplace(source, "threshold", period, rule.threshold_scale))
        tests = laplace(source, "tests", period, rule.question_scale, (W,)).tolist()
        times = [1]
        for position in range(2, W + 1):
            left = k - len(times)
            if position == W or (left > 1 and W - position + 1 <= left):
                times.append(position)
            elif left > 1:
                score = whole_deviation(day[times[-1] - 1 : position])
                if score + tests[position - 1] >= limit:
                    times.append(position)
        noise = laplace(source, "samples", period, plain.sample_scale, (k,))
        points = np.array([day[time - 1] for time in times]) + noise
        known = np.concatenate([[points[0] if before is None else before], points]).astype(np.float64)
        curves.append(Reconstruction.through(np.array(times), W, curve).apply(known))
        before = points[-1]
    return np.maximum(np.concatenate(curves), 0)[:, None]


def grouper(runs: int) -> None:
    rows: Rows = {}
    budgets = ("100", "10", "1", "0.1")
    for epsilon in budgets:
        p = policy(epsilon)
        found: Rows = {}
        for _, _, _, month in regions_2016():
            found.setdefault("equally spaced", []).append(
                errors(OptStream(p, samples=10, noise="laplace"), month, runs)
            )
            for limit in (1000, 4000):
                lines = OptStream(p, samples=10, adaptive=True, threshold=limit, noise="laplace")
                found.setdefault(f"L1: distance from the line ≥ {limit}", []).append(
                    errors(lines, month, runs)
                )
            for limit in (1000, 4000):
                groups = [np.abs(grouped_samples(p, 10, limit, month) - month).mean() for _ in range(runs)]
                found.setdefault(f"Grouper: deviation ≥ {limit}", []).append(np.array(groups))
        for name, each in found.items():
            rows.setdefault(name, []).append(np.mean(each, axis=0))
    print_table(
        "Samples by PeGaSus's Grouper, k = 10, α = 1, no features",
        [f"ε = {epsilon}" for epsilon in budgets],
        rows,
    )


def forecasts(runs: int) -> None:
    from tidegate.queries.forecast import forecast

    table = pl.read_parquet(DATA / "rte_load_2016_30min.parquet")
    load = table["ile_de_france"].to_numpy().astype(np.int64)[: 366 * W, None]
    first = {"February": 31, "June": 152, "October": 274}
    rows: Rows = {}
    for epsilon in ("0.1", "0.01"):
        p = policy(epsilon)
        for day in first.values():
            public = load[(day - 31) * W : day * W]
            releases: dict[str, list[Floats]] = {"real data": [load.astype(np.float64)]}
            for name, mechanism in {
                "Laplace": Uniform(p, noise="laplace"), "Fourier, chosen": Fourier.from_profile(p, public),
                "OptStream L1, k = 10": OptStream(
                    p, samples=10, features=DAY, adaptive=True, threshold=1000, noise="laplace"
                ),
                "OptStream, chosen": OptStream.from_profile(p, public, noise="laplace"),
            }.items():  # fmt: skip
                releases[name] = [
                    np.maximum(Session(mechanism).push_batch(load).final.values, 0) for _ in range(runs)
                ]
            for name, streams in releases.items():
                found = []
                for values in streams:
                    days = []
                    for today in range(day, day + 28, 4):
                        ahead = forecast(values[: today * W], W, train=28 * W)
                        days.append(np.abs(ahead - load[today * W : (today + 1) * W]).mean())
                    found.append(np.mean(days))
                rows.setdefault(name, []).append(np.array(found))
    columns = [f"{month}, ε = {epsilon}" for epsilon in ("0.1", "0.01") for month in first]
    title = "Next-day forecast by ARMA(1, 1) on four weeks of releases, Île-de-France (every fourth day)"
    print_table(title, columns, rows)


TABLES = {
    "budgets": errors_by_budget,
    "regions": errors_by_region,
    "ablation": ablation,
    "hierarchy": hierarchy,
    "grouper": grouper,
    "thresholds": thresholds,
    "forecast": forecasts,
}
