"""Discovery on streams: what is found, against the partition selections of other libraries with the same guarantee.

    python benchmarks/discovery_streams.py streams DATA     found, missing, spurious, time to open, error after opening
    python benchmarks/discovery_streams.py selection DATA   categories at the ends of epochs, against published rules
    python benchmarks/discovery_streams.py weights DATA     weights 1/√(number of a unit's categories), against none
    python benchmarks/discovery_streams.py columns DATA     one Tide for all columns, one for each, and Uniform

DATA is a folder with trips of a bike share system and boardings of buses; without it these two are made up, of the
same shape. Countries of invoices are always made up: as many customers, invoices, countries and weeks as a retailer's
public data set has (Chen, Sain and Guo 2012: 4,372 customers, 25,900 invoices, 38 countries, 53 weeks, nine in ten
customers in one country), the other countries by Zipf's law.

The rules of other libraries are reimplemented from what they publish. Each is given what a window loses: it meets two
epochs, and in each of them k categories of a unit may be gone and k others be there.

laplace   noise of scale K/ε, K = 2k, and the threshold 1 + (K/ε)·ln(k/(2δ)) (Google's and OpenDP's; Korolova and
          others 2009), with ε and δ divided by two epochs
gaussian  noise of L2 sensitivity √K and the threshold 1 + σ·Φ⁻¹((1 − δ/2)^(1/k)) (Google's; noise of
          Balle and Wang 2018), with ε and δ divided by two epochs
optimal   the truncated geometric rule (Desfontaines, Voss, Gipson and Mandayam 2020), with ε and δ divided by 4k
          selections; or with the optimal composition of these (Kairouz, Oh and Viswanath 2015), where that finds more
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

from sizes import SMALL

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np
import numpy.typing as npt
import polars as pl

import tidegate as tg
from tidegate.composition import largest_step
from tidegate.composition.gaussian import normal_delta, normal_tail
from tidegate.mechanisms import Discover, Tide, Uniform

WEEK, FOUR_WEEKS = 7, 28  # days
EPOCHS = 2  # that a window of the length of an epoch meets
Floats = npt.NDArray[np.float64]


# streams: step (a day, from 1), unit, category ---------------------------------------------------------------------


def bikes(folder: Path | None) -> pl.DataFrame:
    """Bikes at the stations at which their trips begin."""
    if folder is None:
        return made_up(days=70, units=380, categories=47, per_day=1.4, steep=0.7, seed=1)
    trips = pl.read_parquet(folder / "citibike_trips.parquet").sort("start_ts")
    day = (
        pl.col("start_ts").dt.truncate("1d") - pl.lit(trips["start_ts"].min()).dt.truncate("1d")
    ).dt.total_days()
    return trips.select(
        (day + 1).alias("step"), pl.col("bike_id").cast(pl.Int64).alias("unit"),
        pl.format("station {}", "start_station_id").alias("category"),
    )  # fmt: skip


def buses(folder: Path | None) -> pl.DataFrame:
    """Boardings at stops; nobody says whose they are, so each is a unit of its own."""
    if folder is None:
        return made_up(days=28, units=0, categories=675, per_day=8_000, steep=1.1, seed=2)
    wide = pl.read_parquet(folder / "montevideo_bus_675_hourly.parquet")
    daily = wide.group_by_dynamic("ts_local", every="1d").agg(pl.exclude("ts_local").sum())
    cells = daily.drop("ts_local").to_numpy().astype(np.int64)
    day, stop = np.nonzero(cells)
    many = cells[day, stop]
    names = np.array([f"stop {name}" for name in wide.columns[1:]])
    return pl.DataFrame(
        {"step": np.repeat(day + 1, many), "unit": np.arange(many.sum()), "category": np.repeat(names[stop], many)}
    )  # fmt: skip


def invoices(folder: Path | None) -> pl.DataFrame:
    """Customers by countries, made up: in one country nine of ten, in the others by Zipf's law."""
    generator = np.random.default_rng(3)
    sizes = np.maximum(1, np.round(422 / np.arange(1, 38) / (1 / np.arange(1, 38)).sum())).astype(int)
    country = np.repeat(np.arange(38), [4_372 - int(sizes.sum()), *sizes.tolist()])
    weight = generator.pareto(1.5, len(country)) + 1
    count = 25_900
    unit = generator.choice(len(country), count, p=weight / weight.sum())
    step = np.sort(generator.integers(1, 53 * WEEK + 1, count))
    names = np.array([f"country {at}" for at in range(38)])
    return pl.DataFrame({"step": step, "unit": unit, "category": names[country[unit]]})


def made_up(
    *, days: int, units: int, categories: int, per_day: float, steep: float, seed: int
) -> pl.DataFrame:
    """Records of units at categories of Zipf's law; without units each record is one."""
    generator = np.random.default_rng(seed)
    count = int(days * per_day * (units or 1))
    weight = (np.arange(categories) + 3.0) ** -steep
    place = generator.choice(categories, count, p=weight / weight.sum())
    names = np.array([f"place {at}" for at in range(categories)])
    unit = generator.integers(0, units, count) if units else np.arange(count)
    return pl.DataFrame(
        {"step": np.sort(generator.integers(1, days + 1, count)), "unit": unit, "category": names[place]}
    )


class Stream(NamedTuple):
    """A stream, and how it is released.

    Attributes
    ----------
    name, read
        Its name, and its records in a folder.
    epoch
        The days of an epoch and of a window.
    most, columns
        Categories of a unit in an epoch, and columns.
    """

    name: str
    read: Callable[[Path | None], pl.DataFrame]
    epoch: int
    most: int
    columns: int

    def policy(self, epsilon: str) -> tg.WEvent:
        """As much ε and δ for tests as for counts."""
        return tg.WEvent(epsilon=2 * Fraction(epsilon), delta="2e-6", window=self.epoch)


STREAMS = (
    Stream("bike stations", bikes, WEEK, 4, 64),
    Stream("bus stops", buses, WEEK, 1, 675),
    Stream("countries", invoices, FOUR_WEEKS, 1, 40),
)


def in_epochs(frame: pl.DataFrame, epoch: int, most: int) -> tuple[pl.DataFrame, int]:
    """The first categories of each unit in each epoch, and how many whole epochs there are."""
    count = int(frame["step"].max()) // epoch  # type: ignore[arg-type]
    rows = frame.filter(pl.col("step") <= count * epoch).sort("step", maintain_order=True)
    rows = rows.with_columns(((pl.col("step") - 1) // epoch).alias("epoch"))
    rows = rows.unique(["epoch", "unit", "category"], keep="first", maintain_order=True)
    return rows.filter(pl.int_range(pl.len()).over("epoch", "unit") < most), count


def numbers_of_units(frame: pl.DataFrame, epoch: int, most: int) -> list[dict[str, int]]:
    """Units of each category in each epoch."""
    rows, count = in_epochs(frame, epoch, most)
    counted = rows.group_by("epoch", "category").len()
    found: list[dict[str, int]] = [{} for _ in range(count)]
    for number, category, many in counted.iter_rows():
        found[number][category] = many
    return found


# published rules: the chance with which a category of n units is chosen ------------------------------------------------


def laplace_rule(epsilon: float, delta: float, most: int) -> Callable[[int], float]:
    """Laplace noise and a threshold."""
    scale = 2 * most / (epsilon / EPOCHS)
    threshold = 1 + scale * math.log(most / (2 * delta / EPOCHS))

    def chance(units: int) -> float:
        beyond = (threshold - units) / scale
        return 0.5 * math.exp(-beyond) if beyond > 0 else 1 - 0.5 * math.exp(beyond)

    return chance


def gaussian_rule(epsilon: float, delta: float, most: int) -> Callable[[int], float]:
    """Gaussian noise and a threshold, with half of δ each."""
    own, each = delta / EPOCHS / 2, epsilon / EPOCHS
    low, high = 0.01, 1e6
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (
            (middle, high) if normal_delta(math.sqrt(2 * most) / middle, each) > own else (low, middle)
        )
    threshold = 1 + high * NormalDist().inv_cdf((1 - own) ** (1 / most))
    return lambda units: _above((threshold - units) / high)


def _above(beyond: float) -> float:
    return normal_tail(beyond) if beyond > 0 else 1 - normal_tail(-beyond)


def optimal_rule(epsilon: float, delta: float, most: int) -> Callable[[int], float]:
    """The optimal rule for single categories, with the composition that finds more."""
    count = 2 * most * EPOCHS
    plain = _optimal(epsilon / count, delta / count)
    step = float(largest_step(count, Fraction(str(epsilon)), Fraction(str(delta)) / 2))
    composed = _optimal(step, delta / 2 / count)
    return plain if _needed(plain) <= _needed(composed) else composed


def _optimal(epsilon: float, delta: float) -> Callable[[int], float]:
    chances = [0.0]
    while chances[-1] < 1 - 1e-12 and len(chances) < 10**6:
        grows = math.exp(epsilon) * chances[-1] + delta
        falls = 1 - math.exp(-epsilon) * (1 - chances[-1] - delta)
        chances.append(min(grows, falls, 1.0))
    return lambda units: chances[min(units, len(chances) - 1)]


def _needed(rule: Callable[[int], float]) -> int:
    return next(units for units in range(1, 10**6) if rule(units) >= 0.5)


def expected(numbers: list[dict[str, int]], rule: Callable[[int], float]) -> Floats:
    """How many categories are chosen at the end of each epoch, on average."""
    known: dict[int, float] = {}
    sums = []
    for epoch in numbers:
        for many in epoch.values():
            if many not in known:
                known[many] = rule(many)
        sums.append(sum(known[many] for many in epoch.values()))
    return np.array(sums)


def selection(folder: Path | None) -> None:
    """Mean numbers of categories that are chosen at the end of an epoch, of fresh tests alone."""
    print(
        "| stream | ε | k | laplace | gaussian | optimal | here | epochs with fewer than the best of them |"
    )
    for stream in STREAMS:
        frame, most = stream.read(folder), stream.most
        numbers = numbers_of_units(frame, stream.epoch, most)
        for epsilon in ("1", "2", "4"):
            mechanism = Discover(stream.policy(epsilon), categories=most)
            rules = [laplace_rule, gaussian_rule, optimal_rule]
            others = np.array([expected(numbers, rule(float(epsilon), 1e-6, most)) for rule in rules])
            own = expected(numbers, mechanism.selection.chance)
            fewer = int((own < others.max(axis=0) - 1e-3).sum())
            shown = " | ".join(f"{each:.1f}" for each in [*others.mean(axis=1), own.mean()])
            print(f"| {stream.name} | {epsilon} | {most} | {shown} | {fewer} of {len(own)} |")


# runs ---------------------------------------------------------------------------------------------------------------


def streams(folder: Path | None, runs: int) -> None:
    """What is released, over all weeks."""
    print(
        "| stream | tests | k | opens with | open | missing | few | days to open | error, Uniform | error, Tide |"
    )
    for stream in STREAMS[:1] if SMALL else STREAMS:
        frame = stream.read(folder)
        ends = int(frame["step"].max()) // stream.epoch  # type: ignore[arg-type]
        steps = stream.epoch * (min(ends, 4) if SMALL else ends)
        pairs = pl.col("unit", "category")
        groups = {key[0]: rows.select(pairs) for key, rows in frame.group_by("step", maintain_order=True)}
        days = [groups.get(step, frame.clear().select(pairs)) for step in range(1, steps + 1)]
        kinds = [("at the end", stream.most, {}), ("early", stream.most, {"early": True})]
        if stream.most > 1:
            kinds.insert(1, ("weighted", 4 * stream.most, {"weighted": True}))
        for name, most, options in kinds:
            numbers = numbers_of_units(frame, stream.epoch, most)
            uniform = Discover(stream.policy("2"), columns=stream.columns, categories=most, **options)
            tide = replace(uniform, released_by="Tide")
            found, other = (
                np.nanmean([one_run(each, days, numbers) for _ in range(runs)], axis=0)
                for each in (uniform, tide)
            )
            open_, missing, few, wait, error = found
            print(
                f"| {stream.name} | {name} | {most} | {uniform.units_needed()} | {open_:.1f} | {missing:.1%} | {few:.2%} "
                f"| {wait:.0f} | {error:.1f} | {other[-1]:.1f} |",
                flush=True,
            )


def one_run(mechanism: Discover, days: list[pl.DataFrame], numbers: list[dict[str, int]]) -> list[float]:
    """Open categories, parts that are missing and that have few units, days from the first record to opening, error."""
    collector, session = mechanism.collector(), tg.open(mechanism)
    began: dict[str, int] = {}
    opened: dict[str, int] = {}
    rows, errors = [], []
    for step, pairs in enumerate(days, 1):
        release = session.push(collector.step(pairs))
        kept = pairs.unique("unit", keep="first", maintain_order=True)
        true = dict(kept.group_by("category").len().iter_rows())
        for category in pairs["category"].unique().to_list():
            began.setdefault(category, step)
        shown = {category: value for category, value in release.counts.items() if category != "other"}
        for category, value in shown.items():
            opened.setdefault(category, step)
            errors.append(abs(value - true.get(category, 0)))
        if step % mechanism.steps_per_epoch == 0:
            units = numbers[step // mechanism.steps_per_epoch - 1]
            few = sum(units.get(each, 0) < mechanism.selection.threshold / 10 for each in shown)
            missing = 1 - len(shown.keys() & units.keys()) / max(1, len(units))
            rows.append([len(shown), missing, few / max(1, len(shown))])
    wait = [opened[each] - began[each] + 1 for each in opened]
    nothing = float("nan")
    return [
        *np.mean(rows, axis=0).tolist(),
        float(np.mean(wait)) if wait else nothing,
        float(np.mean(errors)) if errors else nothing,
    ]


# parameters of one kind against those of another ----------------------------------------------------------------------


def weights(folder: Path | None) -> None:
    """Weights 1/√j of a unit with j ≤ k categories, with the same guarantee for a window of two epochs."""
    print("| stream | ε | categories | without weights: k, found | with weights: k, found |")
    for stream in STREAMS:
        frame, epoch = stream.read(folder), stream.epoch
        for epsilon in ("1", "4"):
            plain, weighted = [], []
            for most in (1, 2, 4, 8, 16):
                chosen = Discover(stream.policy(epsilon), categories=most).selection
                plain.append(
                    (float(expected(numbers_of_units(frame, epoch, most), chosen.chance).mean()), most)
                )
                weighted.append((weighted_found(frame, stream, epsilon, most), most))
            true = np.mean([len(each) for each in numbers_of_units(frame, epoch, 10**6)])
            best, other = max(plain), max(weighted)
            print(
                f"| {stream.name} | {epsilon} | {true:.1f} | {best[1]}, {best[0]:.1f} | {other[1]}, {other[0]:.1f} |"
            )


def weighted_found(frame: pl.DataFrame, stream: Stream, epsilon: str, most: int) -> float:
    """Categories that weighted counts choose at the end of an epoch, on average."""
    chosen = Discover(stream.policy(epsilon), categories=most, weighted=True).selection
    rows, count = in_epochs(frame, stream.epoch, most)
    rows = rows.with_columns((1 / pl.len().over("epoch", "unit").sqrt()).alias("weight"))
    sums = rows.group_by("epoch", "category").agg(pl.col("weight").sum())["weight"].to_numpy()
    missing = (chosen.threshold - sums) / chosen.sigma
    return sum(_above(each) for each in missing.tolist()) / count


def columns(folder: Path | None) -> None:
    """Errors of the largest bike stations as columns: a model for all of them, one for each, and none."""
    frame = bikes(folder)
    largest = frame.group_by("category").len().sort("len", descending=True)["category"].head(9).to_list()
    kept = frame.unique(["step", "unit"], keep="first", maintain_order=True)
    cells = np.zeros((int(frame["step"].max()), len(largest)), dtype=np.int64)  # type: ignore[arg-type]
    place = {name: at for at, name in enumerate(largest)}
    for step, category in kept.select("step", "category").iter_rows():
        if category in place:
            cells[step - 1, place[category]] += 1
    print("| ε of counts | Uniform | one Tide | a Tide for each, k = 1 | a Tide for each, k = 4 |")
    for epsilon in ("1", "4"):
        policy = tg.WEvent(epsilon=epsilon, window=WEEK)

        def error(mechanism: Any, values: Any) -> float:
            released = tg.open(mechanism).push_batch(values).values
            return float(np.abs(released - values)[len(values) // 10 :].mean())

        shape: dict[str, Any] = {"noise": "laplace", "delay": 0, "nonnegative": True}
        found = [
            error(Uniform(policy, columns=9, noise="laplace"), cells),
            error(Tide(policy, columns=9, **shape), cells),
        ]
        for most in (1, 4):
            part = replace(policy, epsilon=Fraction(epsilon) / (2 * EPOCHS * most))
            found.append(
                float(np.mean([error(Tide(part, **shape), cells[:, at : at + 1]) for at in range(9)]))
            )
        print(f"| {epsilon} | {' | '.join(f'{each:.1f}' for each in found)} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what", choices=["streams", "selection", "weights", "columns"], nargs="?", default="selection"
    )
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    if given.what == "streams":
        streams(given.data, 1 if SMALL else given.runs)
    else:
        {"selection": selection, "weights": weights, "columns": columns}[given.what](given.data)


if __name__ == "__main__":
    main()
