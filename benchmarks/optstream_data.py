"""Load data for OptStream's experiments, and how their errors are measured and printed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

import tidegate as tg
from tidegate.audit import direct
from tidegate.mechanisms import Mechanism
from tidegate.mechanisms.optstream.feature_trees import parts_of_day, whole_period
from tidegate.queries import Hierarchy

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Rows = dict[str, list[Floats]]
ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("TIDEGATE_DATA") or ROOT / "data")
W = 48
DAY = (parts_of_day(W), whole_period(W))
REGIONS = {
    "ile_de_france": "Île-de-France",
    "hauts_de_france": "Hauts-de-France",
    "nouvelle_aquitaine": "Nouvelle-Aquitaine",
    "provence_alpes_cote_d_azur": "Provence-Alpes-Côte d'Azur",
}
MONTHS = {"February": (2, 1), "June": (6, 5), "October": (10, 9)}  # and the public month before


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


def policy(epsilon: str, alpha: int = 1, mobility: str = "moving") -> tg.WEvent:
    return tg.WEvent(epsilon=epsilon, window=W, max_change=alpha, mobility=mobility)


def errors(mechanism: Mechanism, rows: Integers, runs: int, *, final: bool = True) -> Floats:
    """The mean absolute error of the released values in each of some runs, negative ones taken as 0."""
    found = []
    for _ in range(runs):
        releases = direct.released(mechanism, rows)
        values = releases.final.values if final else releases.values
        found.append(np.abs(np.maximum(values, 0) - rows[: len(values)]).mean())
    return np.array(found)


def cell(found: Floats) -> str:
    """Mean ± standard error over runs; one number where there is nothing random."""
    mean = f"{found.mean():,.0f}"
    if len(found) == 1:
        return mean
    error = found.std(ddof=1) / np.sqrt(len(found))
    return f"{mean} ± {error:.1f}" if error < 9.95 else f"{mean} ± {error:,.0f}"


def print_table(title: str, columns: list[str], rows: Rows) -> None:
    print(f"\n### {title}\n\n| | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name, values in rows.items():
        print(f"| {name} | {' | '.join(map(cell, values))} |", flush=True)
