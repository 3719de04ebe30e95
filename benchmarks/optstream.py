"""OptStream on real load data, and how fast it is.

``python benchmarks/optstream.py speed`` prints periods a second of CPU time (one thread, best of five, warm). The other
parts need the data folder (TIDEGATE_DATA): ``tables`` prints the tables of docs/optstream.md, ``forecast``
its table of forecasts, ``pictures`` draws its pictures. ``--runs`` sets how many times everything is
released.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

import tidegate as tg
from tidegate.mechanisms import Fourier, HierarchicalOptStream, Mechanism, OptStream, PeGaSus, Sample, Uniform
from tidegate.mechanisms.deviation import whole_deviation
from tidegate.mechanisms.feature_trees import parts_of_day, whole_period
from tidegate.mechanisms.reconstruction import Reconstruction
from tidegate.mechanisms.sparse_vector import SparseVector
from tidegate.noise import current, laplace
from tidegate.queries import Hierarchy

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("TIDEGATE_DATA") or ROOT.parent / "shared" / "data")
W = 48
DAY = (parts_of_day(W), whole_period(W))
MONTHS = {"February": (2, 1), "June": (6, 5), "October": (10, 9)}  # and the public month before


def best(action: Callable[[], object], repeats: int = 5) -> float:
    action()
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        action()
        times.append(time.process_time() - begin)
    return min(times)


# speed ---------------------------------------------------------------------------------------------------------


def waves(periods: int, w: int, columns: int = 1) -> Integers:
    wave = 5000 + 1000 * np.sin(2 * np.pi * np.arange(periods * w) / w)
    return np.repeat(np.rint(wave).astype(np.int64)[:, None], columns, axis=1)


def speed() -> None:
    print("| w | equally spaced, periods/s | ns a step | L1, periods/s | ns a step |\n|---|---|---|---|---|")
    for w in (48, 96, 192, 480, 1440):
        policy, features = tg.WEvent(epsilon="0.1", w=w), (parts_of_day(w), whole_period(w))
        rates = []
        for adaptive, steps in ((False, 960_000), (True, 48_000)):
            mechanism = OptStream(policy, samples=w // 4, features=features, adaptive=adaptive)
            rows, run = waves(steps // w, w), mechanism.start()
            seconds = best(lambda run=run, rows=rows: run.push_batch(rows))  # type: ignore[misc]
            rates += [f"{len(rows) // w / seconds:,.0f}", f"{seconds / len(rows) * 1e9:.0f}"]
        print(f"| {w} | {' | '.join(rates)} |", flush=True)
    tree = Hierarchy.from_parents({"all": None, **{f"r{number}": "all" for number in range(12)}})
    regions = HierarchicalOptStream(tg.WEvent(epsilon="0.1", w=W), hierarchy=tree, samples=10, features=DAY)
    for label, rows in (("loads", waves(365, W, 12)), ("values near 0", waves(365, W, 12) // 500)):
        seconds = best(lambda rows=rows: regions.start().push_batch(rows))  # type: ignore[misc]
        print(f"12 regions × 365 days, {label}: {seconds:.2f} s")
    run = OptStream(tg.WEvent(epsilon="0.1", w=W), samples=12).start()
    print(f"one push: {best(lambda: [run.push(5000) for _ in range(480)]) / 480 * 1e6:.0f} µs")


# data ----------------------------------------------------------------------------------------------------------


def regions_2016() -> Iterator[tuple[str, str, Integers, Integers]]:
    """(region, month, the public month before, the month)."""
    table = pl.read_parquet(DATA / "rte_load_2016_30min.parquet")
    for region in table.columns[1:5]:
        for name, (month, public) in MONTHS.items():
            both = [
                table.filter(pl.col("ts_local").dt.month() == number)[region].to_numpy()
                for number in (public, month)
            ]
            yield region, name, *(values[: len(values) // W * W, None].astype(np.int64) for values in both)


def hierarchy_2026() -> tuple[Hierarchy, Integers, Integers]:
    """12 regions on the half-hour grid: 31 public days and the rest; a gap holds the value before it."""
    table = pl.read_parquet(DATA / "rte_load_12_regions_2026_15min.parquet")
    names = [name for name, kind in table.schema.items() if kind.is_numeric() and name != "national"]
    filled = table.select(pl.col(names).forward_fill().backward_fill()).to_numpy()[::2].astype(np.int64)
    filled = filled[: len(filled) // W * W]
    tree = Hierarchy.from_parents({"France": None, **dict.fromkeys(names, "France")})
    return tree, filled[: 31 * W], filled[31 * W :]


def error(mechanism: Mechanism, rows: Integers, runs: int, *, final: bool = True) -> float:
    """Mean absolute error of the released values, negative ones taken as 0."""
    found = []
    for _ in range(runs):
        releases = mechanism.start().push_batch(rows)
        values = releases.final.values if final else releases.values
        found.append(np.abs(np.maximum(values, 0) - rows[: len(values)]).mean())
    return float(np.mean(found))


def policy(epsilon: str, alpha: int = 1) -> tg.WEvent:
    return tg.WEvent(epsilon=epsilon, w=W, max_change=alpha)


def contenders(p: tg.WEvent, public: Integers) -> dict[str, Mechanism]:
    k = 5 if p.max_change == 100 else 10  # the paper's choice
    threshold = {"adaptive": True, "threshold": 1000}
    return {
        "Laplace": Uniform(p),
        "Sample": Sample(p),
        "PeGaSus": PeGaSus(p),
        "Fourier, K = 10": Fourier(p, coefficients=k),
        "OptStream ES, k = 10": OptStream(p, samples=k, features=DAY),
        "OptStream L1, k = 10": OptStream(p, samples=k, features=DAY, **threshold),
        "Fourier, chosen": Fourier.from_profile(p, public),
        "OptStream, chosen": OptStream.from_profile(p, public, candidates=[(), (whole_period(W),), DAY]),
        "printed ES (not private)": OptStream(p, samples=k, features=DAY, calibration="paper"),
        "printed L1 (not private)": OptStream(p, samples=k, features=DAY, calibration="paper", **threshold),
    }


def print_table(title: str, columns: list[str], rows: dict[str, list[float]]) -> None:
    print(f"\n### {title}\n\n| | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name, values in rows.items():
        print(f"| {name} | {' | '.join(f'{value:,.0f}' for value in values)} |", flush=True)


# tables --------------------------------------------------------------------------------------------------------


def errors_by_budget(runs: int) -> None:
    data = list(regions_2016())
    for title, policies in (
        ("Mean absolute error in MW by ε (α = 1)", {f"ε = {e}": policy(e) for e in ("1", "0.1", "0.01")}),
        ("Mean absolute error in MW by α (ε = 1)", {f"α = {a}": policy("1", a) for a in (1, 10, 50, 100)}),
    ):
        rows: dict[str, list[float]] = {}
        for p in policies.values():
            sums: dict[str, list[float]] = {}
            for _, _, public, month in data:
                for name, mechanism in contenders(p, public).items():
                    sums.setdefault(name, []).append(error(mechanism, month, runs))
            for name, found in sums.items():
                rows.setdefault(name, []).append(float(np.mean(found)))
        print_table(title, list(policies), rows)


def errors_by_region(runs: int) -> None:
    rows: dict[str, list[float]] = {}
    titles, p = [], policy("0.1")
    for region, month, public, values in regions_2016():
        titles.append(f"{region} {month}")
        chosen = OptStream.from_profile(p, public)
        for name, mechanism in (
            ("Laplace", Uniform(p)), ("OptStream, chosen", chosen),
            ("OptStream, slope ≤ 1200", OptStream.from_slope(p, 1200)),
            ("chosen, at the step itself", chosen),
            ("chosen, last period", OptStream.from_profile(p, public, causal="last period")),
        ):  # fmt: skip
            at_once = name.startswith("chosen")
            rows.setdefault(name, []).append(error(mechanism, values, runs, final=not at_once))
        rows.setdefault("samples chosen", []).append(chosen.sample_count)
    print_table("Each region and month at ε = 0.1, α = 1", titles, rows)


def ablation(runs: int) -> None:
    rows: dict[str, list[float]] = {}
    p, columns = policy("0.1"), ["sound ES", "sound L1", "printed ES", "printed L1"]
    parts = {"⟨P,∘,∘⟩": (W, ()), "⟨P,∘,O⟩": (W, DAY), "⟨P,S,∘⟩": (10, ()), "⟨P,S,O⟩": (10, DAY)}
    data = list(regions_2016())
    for name, (k, features) in parts.items():
        for calibration in ("sound", "paper"):
            for adaptive in (False, True):
                mechanism = OptStream(
                    p,
                    samples=k,
                    features=features,
                    adaptive=adaptive,
                    threshold=1000,
                    calibration=calibration,
                )
                found = [error(mechanism, month, runs) for _, _, _, month in data]
                rows.setdefault(name, []).append(float(np.mean(found)))
    print_table("Ablation at ε = 0.1, α = 1", columns, rows)


def thresholds(runs: int) -> None:
    """L1 sampling at the threshold that is best on the protected data themselves, which nobody may choose."""
    rows: dict[str, list[float]] = {}
    data, titles = list(regions_2016()), []
    for epsilon in ("1", "0.1", "0.01"):
        for k in (6, 10, 16):
            titles.append(f"ε = {epsilon}, k = {k}")
            p = policy(epsilon)
            spaced = [error(OptStream(p, samples=k), month, runs) for *_, month in data]
            rows.setdefault("equally spaced", []).append(float(np.mean(spaced)))
            for calibration in ("sound", "paper"):
                best_of = min(
                    float(np.mean([
                        error(OptStream(p, samples=k, adaptive=True, threshold=cut, calibration=calibration), month, runs)
                        for *_, month in data
                    ]))
                    for cut in (0, 300, 1000, 3000, 10_000, 30_000)
                )  # fmt: skip
                rows.setdefault(f"L1, best of six thresholds, {calibration}", []).append(best_of)
    print_table("L1 sampling with the best threshold, no features, α = 1", titles, rows)


def hierarchy(runs: int) -> None:
    tree, public, rows = hierarchy_2026()
    nodes, leaves = tree.sum(rows), list(tree.leaves)
    found: dict[str, list[float]] = {}
    titles = []
    for epsilon in ("1", "0.1", "0.01"):
        titles += [f"national, ε = {epsilon}", f"regional, ε = {epsilon}"]
        p, half = policy(epsilon), policy(str(Fraction(epsilon) / 2))
        levels = {
            "Laplace": [Uniform(half), Uniform(half, columns=12)],
            "Fourier, K = 10": [Fourier(half, coefficients=10), Fourier(half, columns=12, coefficients=10)],
        }
        for name, (root, regions) in levels.items():
            found.setdefault(name, []).append(error(root, nodes[:, :1], runs))
            found[name].append(error(regions, rows, runs))
        for name, mechanism in {
            "OptStream ES, k = 10": HierarchicalOptStream(p, hierarchy=tree, samples=10, features=DAY),
            "OptStream L1, k = 10": HierarchicalOptStream(p, hierarchy=tree, samples=10, features=DAY, adaptive=True,
                                                          threshold=10_000),
            "OptStream, chosen": HierarchicalOptStream.from_profile(p, public, hierarchy=tree),
        }.items():  # fmt: skip
            errors = [np.abs(mechanism.start().push_batch(rows).final.values - nodes) for _ in range(runs)]
            found.setdefault(name, []).append(float(np.mean([each[:, 0].mean() for each in errors])))
            found[name].append(float(np.mean([each[:, leaves].mean() for each in errors])))
    print_table("Hierarchy: 12 regions and France, 15 April to August 2026", titles, found)


def grouped_samples(p: tg.WEvent, k: int, threshold: int, rows: Integers, *, curve: str = "line") -> Floats:
    """Section 7's question: L1 sampling with PeGaSus's deviation from the mean in place of the distance from a line.

    A group of n ≤ w − k + 1 counts deviates by at most 2Δn more or less between neighbours.
    """
    plain = OptStream(p, samples=k, adaptive=True)
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
    rows: dict[str, list[float]] = {}
    budgets = ("100", "10", "1", "0.1")
    for epsilon in budgets:
        p = policy(epsilon)
        found: dict[str, list[float]] = {}
        for _, _, _, month in regions_2016():
            spaced, lines = OptStream(p, samples=10), OptStream(p, samples=10, adaptive=True, threshold=1000)
            found.setdefault("equally spaced", []).append(error(spaced, month, runs))
            found.setdefault("L1: distance from the line ≥ 1000", []).append(error(lines, month, runs))
            for limit in (1000, 4000):
                groups = [
                    np.abs(grouped_samples(p, 10, limit, month) - month).mean()
                    for _ in range(max(1, runs // 5))
                ]
                found.setdefault(f"Grouper: deviation ≥ {limit}", []).append(float(np.mean(groups)))
        for name, each in found.items():
            rows.setdefault(name, []).append(float(np.mean(each)))
    print_table(
        "Samples by PeGaSus's Grouper, k = 10, α = 1", [f"ε = {epsilon}" for epsilon in budgets], rows
    )


def forecasts(runs: int) -> None:
    from tidegate.queries.forecast import forecast

    table = pl.read_parquet(DATA / "rte_load_2016_30min.parquet")
    load = table["ile_de_france"].to_numpy().astype(np.int64)[: 366 * W, None]
    first = {"February": 31, "June": 152, "October": 274}
    rows: dict[str, list[float]] = {}
    for epsilon in ("0.1", "0.01"):
        p = policy(epsilon)
        for day in first.values():
            public = load[(day - 31) * W : day * W]
            releases: dict[str, list[Floats]] = {"real data": [load.astype(np.float64)]}
            for name, mechanism in {
                "Laplace": Uniform(p), "Fourier, chosen": Fourier.from_profile(p, public),
                "OptStream L1, k = 10": OptStream(p, samples=10, features=DAY, adaptive=True, threshold=1000),
                "OptStream, chosen": OptStream.from_profile(p, public),
            }.items():  # fmt: skip
                releases[name] = [
                    np.maximum(mechanism.start().push_batch(load).final.values, 0) for _ in range(runs)
                ]
            for name, streams in releases.items():
                errors = []
                for values in streams:
                    for today in range(day, day + 28, 4):
                        ahead = forecast(values[: today * W], W, train=28 * W, method="hannan_rissanen")
                        errors.append(np.abs(ahead - load[today * W : (today + 1) * W]).mean())
                rows.setdefault(name, []).append(float(np.mean(errors)))
    columns = [f"{month}, ε = {epsilon}" for epsilon in ("0.1", "0.01") for month in first]
    print_table("Next-day forecast by ARMA(1, 1) on four weeks of releases, Île-de-France", columns, rows)


# pictures ------------------------------------------------------------------------------------------------------


def pictures() -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    data = [each for each in regions_2016() if each[0] == "ile_de_france" and each[1] == "February"]
    _, _, public, month = data[0]
    week = slice(0, 7 * W)
    figure, axes = plt.subplots(3, 3, figsize=(12, 7), sharex=True, sharey="row")
    for line, epsilon in zip(axes, ("1", "0.1", "0.01"), strict=True):
        p = policy(epsilon)
        chosen = OptStream.from_profile(p, public)
        lowest = Fourier.from_profile(p, public)
        shown: dict[str, Mechanism] = {
            "Laplace": Uniform(p),
            f"Fourier, K = {lowest.coefficients}": lowest,
            f"OptStream, k = {chosen.samples}": chosen,
        }
        for axis, (name, mechanism) in zip(line, shown.items(), strict=True):
            values = np.maximum(mechanism.start().push_batch(month).final.values, 0)
            axis.plot(np.arange(7 * W) / W, month[week, 0] / 1000, color="0.6", lw=1)
            axis.plot(np.arange(7 * W) / W, values[week, 0] / 1000, color="tab:red", lw=0.9)
            mean = np.abs(values - month).mean()
            axis.set_title(f"{name}: {mean:,.0f} MW", fontsize=9)
            axis.set_ylim(0, 15)
        line[0].set_ylabel(f"ε = {epsilon}\nGW")
    for axis in axes[-1]:
        axis.set_xlabel("day of February 2016")
    figure.suptitle(
        "Load of Île-de-France (grey) and what is released (red); mean absolute error", fontsize=10
    )
    figure.tight_layout()
    folder = ROOT / "docs" / "pictures"
    figure.savefig(folder / "optstream_week.png", dpi=90)
    plt.close(figure)

    figure, axis = plt.subplots(figsize=(7, 4))
    numbers = [1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48]
    for epsilon, color in (("1", "tab:green"), ("0.1", "tab:blue"), ("0.01", "tab:orange")):
        mechanisms = [OptStream(policy(epsilon), samples=k) for k in numbers]
        axis.plot(numbers, [error(m, month, 10) for m in mechanisms], "o", color=color, ms=4)
        axis.plot(
            numbers, [m.predicted_error(public) for m in mechanisms], color=color, label=f"ε = {epsilon}"
        )
        best_k = OptStream.from_profile(policy(epsilon), public)
        axis.plot(best_k.sample_count, error(best_k, month, 10), "*", color=color, ms=13, mec="black")
    axis.set(
        xscale="log", yscale="log", xlabel="samples k of a day (w = 48)", ylabel="mean absolute error, MW"
    )
    axis.set_xticks([1, 2, 4, 8, 16, 48], ["1", "2", "4", "8", "16", "48"])
    axis.set_title(
        "Predicted on January (lines), measured in February (dots), chosen times (stars)", fontsize=9
    )
    axis.legend()
    figure.tight_layout()
    figure.savefig(folder / "optstream_samples.png", dpi=90)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["speed", "tables", "forecast", "pictures"])
    parser.add_argument("--runs", type=int, default=30)
    arguments = parser.parse_args()
    if arguments.part == "speed":
        speed()
        return
    if not DATA.is_dir():
        raise SystemExit("the data folder is absent; set TIDEGATE_DATA to a folder that has the load data.")
    if arguments.part == "pictures":
        pictures()
    elif arguments.part == "forecast":
        forecasts(max(1, arguments.runs // 10))
    else:
        for table in (errors_by_budget, errors_by_region, ablation):
            table(arguments.runs)
        hierarchy(max(1, arguments.runs // 5))
        grouper(arguments.runs)
        thresholds(max(1, arguments.runs // 15))


if __name__ == "__main__":
    main()
