"""Swellfish: speed of schedules, and the two experiments of the paper on 20 zones.

``python benchmarks/swellfish.py`` times schedules, the ledger and the optimal program (processor time, best of three,
warm). ``--full`` runs the experiments as well where the data are (TIDEGATE_DATA), ``--pictures FOLDER`` draws them,
``--repeats`` sets how often each release is drawn.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sizes import scaled
from timing import data_file

import tidegate as tg
from experiments.truncation import SmoothWhereNoisy, truncate
from tidegate.core.session import Session
from tidegate.datasets import households
from tidegate.policy import Specification
from tidegate.policy.promises import Promises
from tidegate.releases import Releases

STEPS = scaled(157_680, 22 * 96)
DAYS = STEPS // 96 - 1
HOUSES = scaled(250, 3)
YEAR = scaled(365, 7) * 96
DELTA = Fraction(1, 117_716_237)
GRID = "0.01"
HIGHEST = 48  # kW: the most that a household can draw, for user-level privacy
# The size of each zone, rounded from the mean load of these very data: fine for an experiment on public data, but a
# release about people would need numbers that are published elsewhere. A day's average is used where the noise is above
# a fifth of it, and errors are relative to the load or, where meters failed, to a hundredth of it.
SIZES = (20, 170, 190, 0.5, 8, 180, 190, 4, 70, 30, 110, 130, 20, 20, 60, 30, 30, 210, 80, 90)  # MW
WEEKS = (
    slice(672),
    slice(2 * 672, None),
)  # the holiday's week, and those that no average over a day mixes with it
Values = npt.NDArray[np.float64]


def best(action: Callable[[], object], repeats: int = scaled(5, 1, 3)) -> float:
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        action()
        times.append(time.process_time() - begin)
    return min(times)


def speed(houses: tuple[Specification, ...]) -> None:
    declared, clock = households.declared(HOUSES)
    for name, policy in (
        ("recurring rules", tg.Swellfish(specifications=declared, clock=clock, horizon=STEPS)),
        ("recorded uses", tg.Swellfish(specifications=houses, horizon=STEPS, derived=True)),
    ):
        units = policy.window << 20
        Promises(policy, units).windowed(1, 1000)
        took = best(lambda p=policy, u=units: Promises(p, u).windowed(1, STEPS))
        print(
            f"schedule, {name}: {HOUSES} specifications, {policy.count:,} secrets, {STEPS:,} steps: {took:.2f} s"
        )
    mechanism = tg.mechanisms.Swellfish(policy, grid=GRID, experiment=True)
    zeros = np.zeros(STEPS)
    Session(mechanism).push_batch(zeros)
    took = best(lambda: Session(mechanism).push_batch(zeros))
    print(
        f"release of all steps, every placement checked by the ledger: {took:.2f} s, {STEPS / took:,.0f} steps/s"
    )
    run = Session(mechanism)
    run.push_batch(zeros[: scaled(1000, 100)])
    took = best(lambda: [run.push(0) for _ in range(scaled(200, 20))]) / scaled(200, 20)
    print(f"one push with 250 specifications: {took * 1e3:.2f} ms")
    year = tg.Swellfish(specifications=houses[:1], horizon=YEAR, derived=True)

    def optimal() -> Any:
        return tg.mechanisms.Swellfish(year, grid=GRID, experiment=True, schedule="optimal").scales(1, YEAR)

    begin = time.process_time()
    scales = optimal()
    took = time.process_time() - begin
    windowed = tg.mechanisms.Swellfish(year, grid=GRID, experiment=True).scales(1, YEAR)
    gain = np.mean(scales**2) / np.mean(windowed**2)
    print(f"optimal schedule of one household-year: {took:.1f} s, squared error {gain:.3f} of the windowed")
    print(f"largest memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


def zones() -> dict[int, Values] | None:
    """The loads of 20 zones, kW, hours interpolated to quarters."""
    import polars as pl

    path = data_file("gefcom2012_load_hourly.parquet")
    if path is None:
        return None
    table = pl.read_parquet(path).with_columns(
        load=pl.coalesce("load_kw", "load_kw_solution").cast(pl.Float64),
        hour=(pl.col("date") - pl.date(2004, 1, 1)).dt.total_days() * 24 + pl.col("hour_ending") - 1,
    )
    found = {}
    for zone in range(1, 21):
        part = table.filter(pl.col("zone_id") == zone).drop_nulls("load").sort("hour")
        hours, load = part["hour"].to_numpy(), part["load"].to_numpy()
        quarters = np.interp(np.arange(STEPS) / 4, hours, load)
        found[zone] = np.round(quarters, 2)
    return found


class Rivals:
    """The mechanisms of one experiment."""

    def __init__(self, policy: tg.Swellfish, optimal: bool) -> None:
        form = tg.mechanisms.Swellfish
        loose = replace(policy, delta=DELTA)
        w_event = policy.as_w_event()
        approximate = replace(w_event, delta=DELTA)
        epsilon = w_event.epsilon
        user = tg.User(epsilon=epsilon, horizon=STEPS, max_change=HIGHEST)
        uniform = tg.mechanisms.Uniform
        columns = len(SIZES)
        options: dict[str, Any] = {"grid": GRID, "experiment": True, "columns": columns}
        self.mechanisms: dict[str, Any] = {
            "Swellfish printed": form(policy, schedule="printed", **options),
            "Swellfish windowed": form(policy, **options),
            "Swellfish optimal": form(policy, schedule="optimal", **options) if optimal else None,
            "Swellfish approximate": form(loose, **options),
            "Uniform w-event": uniform(w_event, columns, GRID),
            "Uniform w-event approximate": uniform(approximate, columns, GRID),
            "Uniform user-level": uniform(user, columns, GRID),
            "Uniform user-level approximate": uniform(replace(user, delta=DELTA), columns, GRID),
            "RescueDP": tg.mechanisms.RescueDP(w_event, grid=GRID),
        }
        self.mechanisms = {name: each for name, each in self.mechanisms.items() if each is not None}
        print(
            f"  w = {w_event.window}, ε = {epsilon}, Δ = {float(w_event.max_change):g} kW, {policy.count:,} secrets"
        )

    def relative_errors(self, name: str, loads: dict[int, Values], repeats: int) -> dict[int, Values]:
        """Mean over repeats of |released − true| / true at each step, after the paper's post-processing.

        Zones are columns of one release, which has the noise in each of them that it would have alone; RescueDP, which
        adapts to the data and could group columns, gets each zone by itself.
        """
        mechanism = self.mechanisms[name]
        total = {zone: np.zeros(STEPS) for zone in loads}
        together = np.column_stack(list(loads.values()))
        for _ in range(repeats):
            releases = None if name == "RescueDP" else Session(mechanism).push_batch(together)
            for at, (zone, load) in enumerate(loads.items()):
                if releases is None:
                    answers = truncate(Session(mechanism).push_batch(load).values[:, 0])
                else:
                    alone = Releases(
                        1, releases.values[:, at : at + 1], releases.status, None, releases.scale, releases.units,
                        releases.unit,
                    )  # fmt: skip
                    answers = SmoothWhereNoisy(threshold=200.0 * SIZES[zone - 1]).push_batch(alone)[:, 0]
                total[zone] += np.abs(answers - load) / np.maximum(load, 10.0 * SIZES[zone - 1])
        return {zone: errors / repeats for zone, errors in total.items()}


def experiment(policy: tg.Swellfish, loads: dict[int, Values], repeats: int, optimal: bool) -> dict[str, Any]:
    rivals = Rivals(policy, optimal)
    found: dict[str, Any] = {}
    for name in rivals.mechanisms:
        begin = time.perf_counter()
        curves = rivals.relative_errors(name, loads, repeats)
        means = {zone: float(curve.mean()) for zone, curve in curves.items()}
        found[name] = {"means": means, "weeks": {zone: curve[: 12 * 672] for zone, curve in curves.items()}}
        average = np.mean(list(means.values()))
        spread = f"{min(means.values()):9.4%} to {max(means.values()):9.2%}"
        took = time.perf_counter() - begin
        print(
            f"  {name:31s} mean relative error {average:10.4%}   zones {spread}   ({took:.0f} s)", flush=True
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--full", action="store_true", help="the experiments as well")
    parser.add_argument("--no-speed", action="store_true", help="experiments only")
    parser.add_argument(
        "--no-optimal", action="store_true", help="without the optimal schedule of 250 households"
    )
    given = parser.parse_args()
    houses = households.recorded(HOUSES, DAYS)
    if not given.no_speed:
        speed(houses)
    loads = zones() if given.full or given.pictures else None
    if loads is None:
        return
    print("Experiment 1: every appliance use of 250 households")
    policy = tg.Swellfish(specifications=houses, horizon=STEPS, derived=True)
    one = experiment(policy, loads, given.repeats, not given.no_optimal)
    ratio = [
        one["Uniform w-event"]["means"][zone] / one["Swellfish windowed"]["means"][zone] for zone in loads
    ]
    print(
        f"  Uniform w-event / Swellfish windowed: {np.mean(ratio):.1f} on average, {min(ratio):.1f} at least"
    )
    print("Experiment 2: one holiday in the first week")
    holiday = households.dominant(height=str(float(Fraction(policy.max_change or 1))))
    first = replace(houses[0], secrets=(*houses[0].secrets, holiday))
    dominant = tg.Swellfish(specifications=(first, *houses[1:]), horizon=STEPS, derived=True)
    two = experiment(dominant, loads, given.repeats, False)
    for name in ("Swellfish windowed", "Swellfish approximate", "Uniform w-event", "RescueDP"):
        inside, after = (np.mean([w[part].mean() for w in two[name]["weeks"].values()]) for part in WEEKS)
        without = np.mean([w[WEEKS[1]].mean() for w in one[name]["weeks"].values()])
        print(
            f"  {name:31s} first week {inside:10.4%}   weeks 3 to 12 {after:10.4%}   without holiday {without:10.4%}"
        )
    if given.pictures:
        from swellfish_pictures import draw_all

        draw_all(given.pictures, one, two)


if __name__ == "__main__":
    main()
