"""Accuracy of Tide on public streams, against the papers' mechanisms with the best parameters in hindsight.

    python benchmarks/tide_accuracy.py [DATA_FOLDER] [--only NAME] [--skip NAME] [--epsilon 0.1 1] [--window 24 120]
    python benchmarks/tide_accuracy.py [DATA_FOLDER] --rho 0.0001 0.02
    python benchmarks/tide_accuracy.py [DATA_FOLDER] --delta 1e-6 --epsilon 0.1 1

Without a folder, or with --made-up, the stream is a generated one, of which two windows are looked at.

For each stream, ε and w: mean absolute error (values cut at 0 for all) of Tide at once and smoothed, of Uniform, of the
best causal rival and of the best delayed one. Rivals' parameters are chosen in hindsight, which nobody has; Tide knows
the periods (day and week in steps) and nothing else. Then the medians of the ratios, the worst ratio to Uniform, and how
many steps the 90 % intervals cover. --hindsight adds what the same model could reach if it knew everything:
hyper-parameters from the raw stream, and the best even schedule. DATA_FOLDER holds the public streams, on which a run
takes hours; none of them is part of the project. Rivals are slow to run: --rivals FILE keeps their errors.
--wide takes six streams of 20 to 100 columns instead, of which --half 0 has every second column and --half 1 the others:
what is settled by looking at one half is judged by the other.
--rho takes budgets of zCDP instead of ε: everybody has Gaussian noise, and rivals are Uniform, Sample and Fast.
--delta compares Tide with the ρ that implies (ε, δ) with Tide that has ε alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

from timing import bar  # isort: skip  sets the number of threads first

import numpy as np
import polars as pl

import tidegate as tg
from tidegate.core.session import Session
from tidegate.errors import TidegateError
from tidegate.mechanisms import (
    BudgetAbsorption,
    BudgetDistribution,
    Fast,
    Mechanism,
    OptStream,
    PeGaSus,
    RescueDP,
    Sample,
    Tide,
    Uniform,
)
from tidegate.noise.fixed import FixedEntropy
from tidegate.noise.shared.choice import best_choice
from tidegate.plan.predict import concentrated_policy
from tidegate.structures.kernels import state_space, tracking
from tidegate.structures.state_space_model import Prior, Size, Structure, estimate, parameters_of
from tidegate.structures.state_space_tracker import Tracker

STEPS = 6000
WIDE_STEPS = 1464  # of streams with many columns, where --wide is given
FAR = 2.0  # times the least error, after which a rival is not run again
Stream = tuple[np.ndarray, tuple[int, ...]]


def filled(frame: pl.DataFrame) -> np.ndarray:
    """Gaps repeat the last value: these are experiments, not releases."""
    plain = frame.fill_null(strategy="forward").fill_null(0).to_numpy()
    return np.ascontiguousarray(np.rint(plain).astype(np.int64)[:STEPS])


def streams(folder: Path) -> Iterator[tuple[str, Stream]]:
    load = pl.read_parquet(folder / "rte_load_2016_30min.parquet")
    for name in ("ile_de_france", "provence_alpes_cote_d_azur"):
        yield f"load 2016 {name}", (filled(load.select(name)), (48, 336))
    web = pl.read_parquet(folder / "worldcup98_requests_per_minute.parquet")
    yield "web requests", (filled(web.select("requests")), (1440, 10080))
    regions = pl.read_parquet(folder / "rte_load_12_regions_2026_15min.parquet")
    for name in regions.columns[1:]:
        yield f"load 2026 {name}", (filled(regions.select(name)), (96, 672))
    zones = pl.read_parquet(folder / "gefcom2012_load_hourly.parquet").sort("zone_id", "date", "hour_ending")
    for zone in range(1, 21):
        own = zones.filter(pl.col("zone_id") == zone).select(pl.coalesce("load_kw", "load_kw_solution"))
        yield f"zone {zone}", (filled(own), (24, 168))
    for name, file in (("taxi", "nyc_taxi_od_900_hourly"), ("bus", "montevideo_bus_675_hourly")):
        wide = filled(pl.read_parquet(folder / f"{file}.parquet").drop("ts_local"))
        yield f"{name} sum", (wide.sum(axis=1, keepdims=True), (24, 168))
        yield f"{name} wide", (wide, (24, 168))
    trips = pl.read_parquet(folder / "citibike_trips.parquet").select(pl.col("start_ts").dt.truncate("1h"))
    hours = trips.group_by("start_ts").len().sort("start_ts").upsample("start_ts", every="1h")
    yield "bike trips", (filled(hours.select(pl.col("len").fill_null(0))), (24, 168))
    people = pl.read_csv(folder / "calit2_people_30min.csv.gz")
    for flow in ("in", "out"):
        yield f"people {flow}", (filled(people.filter(pl.col("flow") == flow).select("count")), (48, 336))
    rooms = pl.read_csv(folder / "wifi_rooms_5min.csv.gz")
    for room in sorted(rooms["room"].unique().to_list()):
        yield f"wifi {room}", (filled(rooms.filter(pl.col("room") == room).select("associated")), (288, 2016))


def wide_streams(folder: Path, half: int) -> Iterator[tuple[str, Stream]]:
    """Hours and weeks of zones, stops and stations, days of buildings; of the 20 loads each half is another time."""
    taxi = filled(pl.read_parquet(folder / "nyc_taxi_od_900_hourly.parquet").drop("ts_local"))
    busiest = taxi[:, np.argsort(-taxi.sum(axis=0), kind="stable")[:160]]
    bus = filled(pl.read_parquet(folder / "montevideo_bus_675_hourly.parquet").drop("ts_local"))
    trips = pl.read_parquet(folder / "citibike_trips.parquet").with_columns(
        hour=pl.col("start_ts").dt.truncate("1h")
    )
    counts = trips.group_by("hour", "start_station_id").len().sort("hour", "start_station_id")
    hours = counts.pivot(on="start_station_id", index="hour", values="len").sort("hour")
    bikes = filled(hours.upsample("hour", every="1h").drop("hour").fill_null(0))
    rooms = pl.read_parquet(folder / "wifi_buildings_10min.parquet").sort("ts_local", "building_id")
    spread = rooms.pivot(on="building_id", index="ts_local", values="occupancy").sort("ts_local")
    buildings = filled(spread.drop("ts_local").cast(pl.Float64))
    zones = pl.read_parquet(folder / "gefcom2012_load_hourly.parquet").sort("zone_id", "date", "hour_ending")
    loads = [
        filled(zones.filter(pl.col("zone_id") == z).select(pl.coalesce("load_kw", "load_kw_solution")))[:, 0]
        for z in range(1, 21)
    ]
    begin = half * WIDE_STEPS
    yield "zones", (np.stack(loads, axis=1)[begin : begin + WIDE_STEPS] // 1000, (24, 168))
    day, week = (144,), (24, 168)
    for name, matrix, periods in (
        ("taxi busiest", busiest, week),
        ("taxi", taxi, week),
        ("bus", bus, week),
        ("bikes", bikes, week),
        ("buildings", buildings, day),
    ):
        part = matrix[:WIDE_STEPS, half::2]
        some = np.linspace(0, part.shape[1] - 1, min(part.shape[1], 100)).astype(np.int64)
        yield name, (np.ascontiguousarray(part[:, some]), periods)


def made_up() -> Iterator[tuple[str, Stream]]:
    """Hours with days and weeks, a slow level and a rough residual, for whoever has no public streams."""
    generator = np.random.default_rng(1)
    hours = np.arange(1500)
    shape = np.sin(2 * np.pi * hours / 24) + 0.4 * np.cos(4 * np.pi * hours / 24) - 0.3 * (hours % 168 >= 120)
    values = (
        5000
        + 1500 * shape
        + generator.normal(0, 10, hours.size).cumsum()
        + generator.normal(0, 50, hours.size)
    )
    yield "made up", (np.maximum(np.rint(values), 0).astype(np.int64)[:, np.newaxis], (24, 168))


def some(window: int) -> list[int]:
    """Numbers of measurements that rivals may choose from."""
    return sorted(
        {max(1, round(window / gap)) for gap in (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 48, 96, window)}
    )


def sampling_rivals(policy: tg.WEvent, columns: int, noise: str = "auto") -> Iterator[tuple[str, Mechanism]]:
    """Those that take ρ as well."""
    w, wide = policy.window, columns > 16
    yield "Uniform", Uniform(policy, columns=columns, noise=noise)
    for k in some(w):
        yield f"Sample {k}", Sample(policy, columns=columns, every=-(-w // k), noise=noise)
        if not wide or k in (1, 2, 4):
            yield f"Fast {k}", Fast(policy, columns=columns, samples=k, noise=noise)
            still = Fast(policy, columns=columns, samples=k, adaptive=False, noise=noise)
            yield f"Fast {k} still", still


def causal_rivals(policy: tg.WEvent, columns: int, noise: str = "laplace") -> Iterator[tuple[str, Mechanism]]:
    yield from sampling_rivals(policy, columns, noise)
    yield "BD", BudgetDistribution(policy, columns=columns, noise=noise)
    yield "BA", BudgetAbsorption(policy, columns=columns, noise=noise)
    yield "RescueDP", RescueDP(policy, columns=columns)  # its groups of columns share nothing
    yield "PeGaSus", PeGaSus(policy, columns=columns, noise=noise)


def sharing_rivals(policy: tg.WEvent, columns: int) -> Iterator[tuple[str, Mechanism]]:
    """The same with noise that steps share: no paper has it."""
    return causal_rivals(policy, columns, "auto")


def delayed_rivals(policy: tg.WEvent, columns: int) -> Iterator[tuple[str, Mechanism]]:
    for k in some(policy.window):
        plain = OptStream(policy, columns=columns, samples=k, nonnegative=True, noise="laplace")
        yield f"OptStream {k}", plain
        if columns == 1 and k > 2:
            yield f"OptStream {k} curve", dataclasses.replace(plain, reconstruction="curve")
    try:
        from tidegate.mechanisms import Fourier
    except ImportError:
        return
    for k in some(policy.window):
        if k <= policy.window // 2:
            yield f"Fourier {k}", Fourier(policy, columns=columns, coefficients=k, nonnegative=True)


def error(releases: tg.Releases, matrix: np.ndarray) -> float:
    """Mean absolute error of the steps that were released, cut at 0."""
    begin = releases.first_step - 1
    true = matrix[begin : begin + len(releases.values)]
    return float(np.abs(np.maximum(releases.values, 0) - true).mean())


def of_rivals(
    rivals: Callable[[tg.WEvent, int], Iterator[tuple[str, Mechanism]]],
    policy: tg.WEvent,
    matrix: np.ndarray,
    runs: int,
) -> dict[str, float]:
    """Their mean errors; who is far from the best one after a first run has no other."""
    errors: dict[str, list[float]] = {}
    for number in range(runs):
        least = min((each[0] for each in errors.values()), default=np.inf)
        for name, mechanism in rivals(policy, matrix.shape[1]):
            if number and (name not in errors or (errors[name][0] > FAR * least and name != "Uniform")):
                continue
            try:
                each = error(Session(mechanism).push_batch(matrix).final, matrix)
            except TidegateError:  # this rival does not take these parameters
                continue
            errors.setdefault(name, []).append(each)
    return {name: float(np.mean(each)) for name, each in errors.items()}


class Hindsight:
    """The model of Tide with hyper-parameters from the raw stream, which nobody has: what it could reach at best."""

    def __init__(self, stream: Stream) -> None:
        matrix, periods = stream
        self.true = matrix.astype(np.float64)
        self.structure = Structure(periods)
        steps = np.arange(1, len(matrix) + 1)
        mean = float(self.true.mean())
        noise = np.full(len(matrix), max(1.0, (1e-3 * mean) ** 2))  # next to nothing
        self.prior = Prior(mean, 100 * mean * mean)
        size = Size(max(1.0, mean * mean))
        self.searched = estimate(self.structure, steps, self.true, noise, False, self.prior, size, None, 12)

    def error(self, policy: tg.WEvent, *, shared: bool = False) -> float:
        """The least mean absolute error over all even schedules, each with noise of its own, or with the best law."""
        return min(self._of_schedule(policy, k, shared) for k in some(policy.window))

    def _of_schedule(self, policy: tg.WEvent, k: int, shared: bool) -> float:
        gap = (policy.window + 1) / k if k < policy.window else 1.0
        measured = np.arange(0, len(self.true), gap).astype(np.int64)
        drawn, variance = self._noise(policy.epsilon, k, len(measured), shared)
        noise, given = np.full(len(self.true), -1.0), self.true.copy()
        noise[measured] = variance
        given[measured] += drawn
        tracker = Tracker(self.structure, 1, laplace=not shared or best_choice(k).law == "laplace")
        tracker.memory["parameters"][0] = parameters_of(self.searched, self.prior)
        state_space.begin(
            tracker.memory["parameters"][0], self.structure.weight, tracker.memory["covariance"][0]
        )
        tracker.memory["state"][0, 0] = self.prior.mean  # the level; everything else begins at 0
        tracker.memory["clock"][[tracking.NEXT_FIT, tracking.FITTED]] = 2**60
        values, deviations = np.empty(given.shape), np.empty(given.shape)
        fixed = (tracker.book[:], tracker.season[:], tracker.room[:])
        tracking.track(1, given, noise, 0, *fixed, values, deviations)
        return float(np.abs(np.maximum(values, 0) - self.true).mean())

    @staticmethod
    def _noise(epsilon: Fraction, k: int, count: int, shared: bool) -> tuple[np.ndarray, float]:
        """Noise of so many measurements, k in a window, and its variance; where it is shared, of the best law."""
        choice = best_choice(k)
        if not shared or choice.law == "laplace":
            scale = k / float(epsilon)
            return np.random.default_rng(5).laplace(0, scale, (count, 1)), 2 * scale * scale
        law = (choice.cube if choice.law == "cube" else choice.semiorder)(Fraction(1), epsilon)
        drawn, _ = law.draw(FixedEntropy("hindsight"), "hindsight", 0, law.start(), count)
        return drawn.astype(np.float64), law.variance()


def covered(releases: tg.Releases, matrix: np.ndarray) -> float:
    """The share of values inside their 90 % intervals."""
    begin = releases.first_step - 1
    true = matrix[begin : begin + len(releases.values)]
    low, high = releases.interval(0.9)
    return float(((low <= true) & (true <= high)).mean())


def of_tide(policy: tg.WEvent, stream: Stream, runs: int) -> dict[str, float]:
    """Errors at once, of smoothed values, and of smoothed values when the schedule is made for them."""
    matrix, periods = stream
    rows = []
    for _ in range(runs):
        tide = Tide(policy, columns=matrix.shape[1], periods=periods, nonnegative=True)
        releases = Session(tide).push_batch(matrix)
        later = Session(dataclasses.replace(tide, aim="revised")).push_batch(matrix)
        rows.append(
            {
                "causal": error(releases, matrix),
                "both": error(releases.final, matrix),
                "smoothed": error(later.final, matrix),
                "covered": covered(releases, matrix),
                "covered smoothed": covered(later.final, matrix),
                "fresh": float(releases.fresh.mean()),
            }
        )
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def with_rho(found: Iterator[tuple[str, Stream]], rhos: list[str], windows: list[int], runs: int) -> None:
    """Tide and its rivals with Gaussian noise: the ratios of errors, and what intervals cover."""
    rows = []
    for name, stream in found:
        for rho, w in itertools.product(rhos, windows):
            policy = tg.WEvent(rho=rho, window=w)
            ours = of_tide(policy, stream, runs)
            rivals = of_rivals(sampling_rivals, policy, stream[0], runs)
            winner = min(rivals, key=rivals.__getitem__)
            row = ours["causal"] / rivals[winner], ours["causal"] / rivals["Uniform"], ours["covered"]
            rows.append((float(Fraction(rho)), *row))
            print(
                f"{name:32s} ρ={rho:6s} w={w:3d}  Tide {ours['causal']:9.4g} / {ours['smoothed']:9.4g}  "
                f"Uniform {rivals['Uniform']:9.4g}  best {rivals[winner]:9.4g} ({winner:13s})  ratios "
                f"{row[0]:.2f} {row[1]:.2f}  covered {ours['covered']:.2f} {ours['covered smoothed']:.2f}  "
                f"measured {ours['fresh']:.2f}",
                flush=True,
            )
    table = np.array(rows)
    for rho in sorted(set(table[:, 0])):
        rival, uniform, _ = table[table[:, 0] == rho, 1:].T
        bar(
            f"ρ = {rho:g}: {rival.size} cells, Tide / best rival {np.median(rival):.2f} (worst {rival.max():.2f}), "
            f"/ Uniform {np.median(uniform):.2f} (worst {uniform.max():.3f})",
            uniform.max() <= 1.10,
            "1.10 at worst",
        )
    print(f"covered: {table[:, 3].min():.2f} to {table[:, 3].max():.2f}, median {np.median(table[:, 3]):.2f}")


def with_delta(found: Iterator[tuple[str, Stream]], given: argparse.Namespace) -> None:
    """What an (ε, δ) gains that is promised by ρ, against ε alone."""
    ratios: dict[tuple[str, int], list[float]] = {}
    for name, stream in found:
        for epsilon, w in itertools.product(given.epsilon, given.window):
            other = concentrated_policy(tg.WEvent(epsilon=epsilon, delta=given.delta, window=w))
            policies = other, tg.WEvent(epsilon=epsilon, window=w)
            gaussian, pure = (of_tide(policy, stream, given.runs)["causal"] for policy in policies)
            ratios.setdefault((epsilon, w), []).append(gaussian / pure)
            print(
                f"{name:32s} ε={epsilon:5s} w={w:3d}  ρ={float(other.rho):g} {gaussian:9.4g}  "
                f"ε alone {pure:9.4g}  ratio {gaussian / pure:.2f}",
                flush=True,
            )
    for (epsilon, w), each in ratios.items():
        print(
            f"ε = {epsilon}, w = {w}: median {np.median(each):.2f}, from {min(each):.2f} to {max(each):.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--made-up", action="store_true", help="a generated stream instead")
    parser.add_argument("--only", default="", help="streams whose name contains this")
    parser.add_argument("--skip", help="no streams whose name contains this, such as wide")
    parser.add_argument("--wide", action="store_true", help="streams of 20 to 100 columns")
    parser.add_argument("--half", type=int, choices=(0, 1), default=1, help="which of their columns")
    parser.add_argument("--epsilon", nargs="+", default=["0.01", "0.1", "1"])
    parser.add_argument("--rho", nargs="+", help="budgets of zCDP instead, and Gaussian noise")
    parser.add_argument("--delta", help="compare ε alone with the ρ that implies it with this δ")
    parser.add_argument("--window", nargs="+", type=int)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--hindsight", action="store_true", help="and the model with all knowledge")
    parser.add_argument("--rivals", type=Path, help="where errors of rivals are kept")
    parser.add_argument("--known", action="store_true", help="only cells whose rivals are kept")
    parser.add_argument("--cells", type=Path, help="write all cells there, as JSON")
    given = parser.parse_args()
    given.made_up |= given.folder is None
    given.window = given.window or ([24, 120] if given.made_up else [24, 48, 120, 240])
    known = json.loads(given.rivals.read_text()) if given.rivals and given.rivals.exists() else {}
    cells = []
    if given.wide and not given.made_up:
        everything = wide_streams(given.folder, given.half)
    else:
        everything = made_up() if given.made_up else streams(given.folder)
    wanted = (
        (name, stream)
        for name, stream in everything
        if given.only in name and not (given.skip and given.skip in name)
    )
    if given.rho:
        with_rho(wanted, given.rho, given.window, given.runs)
        return
    if given.delta:
        with_delta(wanted, given)
        return
    for name, stream in wanted:
        knowing = Hindsight(stream) if given.hindsight and stream[0].shape[1] == 1 else None
        for epsilon in given.epsilon:
            for w in given.window:
                policy = tg.WEvent(epsilon=epsilon, window=w)
                key = f"{name}|{epsilon}|{w}"
                if given.known and key not in known:
                    continue
                if "sharing" not in known.get(key, {}):
                    runs = 1 if stream[0].shape[1] > 1 else given.runs
                    known[key] = {
                        "causal": of_rivals(causal_rivals, policy, stream[0], runs),
                        "delayed": of_rivals(delayed_rivals, policy, stream[0], runs),
                        "sharing": of_rivals(sharing_rivals, policy, stream[0], runs),
                    }
                    if given.rivals:
                        given.rivals.write_text(json.dumps(known))
                cell = {"stream": name, "epsilon": epsilon, "w": w, **of_tide(policy, stream, given.runs)}
                cell["hindsight"] = knowing.error(policy) if knowing else float("nan")
                cell["hindsight, shared noise"] = (
                    knowing.error(policy, shared=True) if knowing else float("nan")
                )
                rivals = known[key]
                cell["Uniform"] = rivals["causal"]["Uniform"]
                cell["Uniform, shared noise"] = rivals["sharing"]["Uniform"]
                for kind in ("causal", "delayed", "sharing"):
                    winner = min(rivals[kind], key=rivals[kind].__getitem__)
                    cell[f"best {kind}"], cell[f"winner {kind}"] = rivals[kind][winner], winner
                cells.append(cell)
                print(
                    f"{name:32s} ε={epsilon:5s} w={w:3d}  "
                    f"Tide {cell['causal']:9.4g} / {cell['smoothed']:9.4g}  "
                    f"Uniform {cell['Uniform']:9.4g}  "
                    f"best causal {cell['best causal']:9.4g} ({cell['winner causal']:13s})  "
                    f"delayed {cell['best delayed']:9.4g} ({cell['winner delayed']})  ratios "
                    f"{cell['causal'] / cell['best causal']:.2f} {cell['smoothed'] / cell['best delayed']:.2f} "
                    f"{cell['causal'] / cell['Uniform']:.2f}  shared noise {cell['best sharing']:9.4g} "
                    f"({cell['winner sharing']})  hindsight {cell['hindsight']:9.4g} "
                    f"(shared noise {cell['hindsight, shared noise']:9.4g})  covered {cell['covered']:.2f} "
                    f"{cell['covered smoothed']:.2f}  measured {cell['fresh']:.2f}",
                    flush=True,
                )
    summary(cells, judged=not given.made_up)
    if given.cells:
        given.cells.write_text(json.dumps(cells))


def summary(cells: list[dict], judged: bool) -> None:
    """Medians, worst cells and coverage; bars are those of the public streams."""

    def say(text: str, found: float, most: float) -> None:
        if judged:
            bar(text, found <= most, f"{most}")
        else:
            print(text)

    small = [cell for cell in cells if float(Fraction(cell["epsilon"])) <= 0.1]
    for label, mine, rival, most in (
        ("causal", "causal", "best causal", 0.72),
        ("smoothed", "smoothed", "best delayed", 0.84),
        ("causal, by the model in hindsight", "hindsight", "best causal", 0.6),
        ("causal, by it with shared noise", "hindsight, shared noise", "best causal", 0.65),
        ("causal, against the same rivals with shared noise", "causal", "best sharing", 1.0),
    ):
        ratios = [cell[mine] / cell[rival] for cell in small if not np.isnan(cell[mine])]
        if not ratios:
            continue
        median = float(np.nanmedian(ratios))
        say(f"median ratio at ε ≤ 0.1, {label}: {median:.3f} over {len(ratios)} cells", median, most)
    large = [cell["causal"] / cell["best causal"] for cell in cells if cell not in small]
    if large:
        median = float(np.median(large))
        say(f"median ratio at larger ε, causal: {median:.3f} over {len(large)} cells", median, 0.68)
    worst = max(cells, key=lambda cell: cell["causal"] / cell["Uniform"])
    ratio, cell = worst["causal"] / worst["Uniform"], "({stream}, ε={epsilon}, w={w})"
    say(f"worst ratio to Uniform: {ratio:.3f} {cell.format(**worst)}", ratio, 1.15)
    worst = max(cells, key=lambda cell: cell["causal"] / cell["Uniform, shared noise"])
    ratio = worst["causal"] / worst["Uniform, shared noise"]
    say(f"worst ratio to Uniform with shared noise: {ratio:.3f} {cell.format(**worst)}", ratio, 1.10)
    for kind in ("covered", "covered smoothed"):
        by = {
            name: np.nanmean([c[kind] for c in cells if c["stream"] == name])
            for name in {c["stream"] for c in cells}
        }
        out = {
            name: round(float(value), 3) for name, value in sorted(by.items()) if not 0.85 <= value <= 0.95
        }
        print(f"{kind}: from {min(by.values()):.3f} to {max(by.values()):.3f}; outside 0.85–0.95: {out}")


if __name__ == "__main__":
    main()
