"""OptStream: how fast it is, and its tables and pictures on real load data.

``python benchmarks/optstream.py speed`` prints periods a second of CPU time (one thread, best of three, or of five with
``--full``, warm). The other parts need the data folder (TIDEGATE_DATA): ``tables`` prints all tables of
docs/experiments/optstream.md, the name of one (for example ``forecast``) that one alone, ``pictures`` draws its
pictures. ``--runs`` sets how many times everything is released.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from optstream_data import DATA, DAY, Integers, W
from optstream_pictures import pictures
from optstream_tables import TABLES
from sizes import scaled

import tidegate as tg
from tidegate.core.session import Session
from tidegate.mechanisms import HierarchicalOptStream, OptStream, PerLeafOptStream
from tidegate.mechanisms.optstream.feature_trees import parts_of_day, whole_period
from tidegate.queries import Hierarchy


def best(action: Callable[[], object], repeats: int = scaled(5, 1, 3)) -> float:
    action()
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        action()
        times.append(time.process_time() - begin)
    return min(times)


def waves(periods: int, w: int, columns: int = 1) -> Integers:
    wave = 5000 + 1000 * np.sin(2 * np.pi * np.arange(periods * w) / w)
    return np.repeat(np.rint(wave).astype(np.int64)[:, None], columns, axis=1)


def speed() -> None:
    print("| w | equally spaced, periods/s | ns a step | L1, periods/s | ns a step |\n|---|---|---|---|---|")
    for w in (48, 96, 192, 480, 1440)[: scaled(5, 1)]:
        # the same noise at all w, so that values near 0 do not make long periods harder
        policy, features = tg.WEvent(epsilon=Fraction(w, 480), window=w), (parts_of_day(w), whole_period(w))
        rates = []
        for adaptive, steps in ((False, scaled(960_000, 960)), (True, scaled(48_000, 480))):
            mechanism = OptStream(policy, samples=w // 4, features=features, adaptive=adaptive)
            rows, run = waves(steps // w, w), Session(mechanism)
            seconds = best(lambda run=run, rows=rows: run.push_batch(rows))  # type: ignore[misc]
            rates += [f"{len(rows) // w / seconds:,.0f}", f"{seconds / len(rows) * 1e9:.0f}"]
        print(f"| {w} | {' | '.join(rates)} |", flush=True)
    tree = Hierarchy.from_parents({"all": None, **{f"r{number}": "all" for number in range(12)}})
    regions = HierarchicalOptStream(
        tg.WEvent(epsilon="0.1", window=W), hierarchy=tree, samples=10, features=DAY
    )
    for label, rows in (
        ("loads", waves(scaled(365, 4), W, 12)),
        ("values near 0", waves(scaled(365, 4), W, 12) // 500),
    ):
        seconds = best(lambda rows=rows: Session(regions).push_batch(rows))  # type: ignore[misc]
        print(f"12 regions × 365 days, {label}: {seconds:.2f} s")
    fixed = tg.WEvent(epsilon="1", window=W, mobility="fixed")
    options = {"hierarchy": tree, "samples": 10, "features": DAY, "adaptive": True}
    for label, each in (
        ("shared adaptive samples", HierarchicalOptStream(fixed, **options)),
        ("samples per leaf", PerLeafOptStream(fixed, **options)),
    ):
        for kind, rows in (
            ("loads", waves(scaled(365, 4), W, 12)),
            ("values near 0", waves(scaled(365, 4), W, 12) // 500),
        ):
            seconds = best(lambda each=each, rows=rows: Session(each).push_batch(rows))  # type: ignore[misc]
            print(f"12 regions × 365 days, {label}, {kind}: {seconds:.2f} s", flush=True)
    run = Session(OptStream(tg.WEvent(epsilon="0.1", window=W), samples=12))
    print(
        f"one push: {best(lambda: [run.push(5000) for _ in range(scaled(480, 48))]) / scaled(480, 48) * 1e6:.0f} µs"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", default="speed", choices=["speed", "tables", "pictures", *TABLES])
    parser.add_argument("--runs", type=int, default=scaled(30, 2))
    parser.add_argument("--full", action="store_true", help="speeds are the best of five instead of three")
    arguments = parser.parse_args()
    if arguments.part == "speed":
        speed()
        return
    if not DATA.is_dir():
        print(
            "the load data are not here; set TIDEGATE_DATA to a folder that has them, and tables are printed."
        )
        return
    if arguments.part == "pictures":
        pictures()
    else:
        for name, table in TABLES.items():
            if arguments.part in ("tables", name):
                table(arguments.runs)


if __name__ == "__main__":
    main()
