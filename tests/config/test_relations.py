"""Which relations a configuration implies: those that hold for bounded values of whatever records, and no others."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tidegate.config import parse_queries
from tidegate.config.relations import relations, signs
from tidegate.report.truth import true_values

HEAD = """
[source]
location = "events.csv"
complete = true
time = "time"
unit = "unit"
value = "amount"
[steps]
start = "2026-03-02"
length = "1h"
count = 40
[protect]
epsilon = "1"
window = 4
[mechanism]
name = "Uniform"
[sink]
location = "out.csv"
"""
PLACES = 'column = "place"\ncolumns = ["a", "b", "c"]\n'
QUERIES = {
    "count1": 'aggregate = "count"\n',
    "weekly": 'aggregate = "distinct"\nover = 7\n',
    "monthly": 'aggregate = "distinct"\nover = 30\n',
    "weeklyplaced": 'aggregate = "distinct"\nover = 7\n' + PLACES,
    "weeklyplaced2": 'aggregate = "distinct"\nover = 7\nmost = 2\n' + PLACES,
    "count2": 'aggregate = "count"\nmost = 2\n',
    "shared": 'aggregate = "count"\nmost = 2\nweighting = "share"\ngrid = "1/2"\n',
    "placed1": 'aggregate = "count"\n' + PLACES,
    "placed3": 'aggregate = "count"\nmost = 3\n' + PLACES,
    "one": 'aggregate = "count"\nmost = 2\ncolumn = "place"\ncolumns = ["a"]\n',
    "units": 'aggregate = "distinct"\n',
    "units1": 'aggregate = "distinct"\nmost = 1\n' + PLACES,
    "units3": 'aggregate = "distinct"\nmost = 3\n' + PLACES,
    "unitsone": 'aggregate = "distinct"\ncolumn = "place"\ncolumns = ["a"]\n',
    "large": 'aggregate = "count"\nmost = 2\nwhere = "amount > 120"\n',
    "largeunits": 'aggregate = "distinct"\nwhere = "amount > 120"\n',
    "bins": 'aggregate = "histogram"\nedges = ["0", "50", "200"]\n',
    "revenue": 'aggregate = "sum"\nclip = ["0", "100"]\n',
    "balance": 'aggregate = "sum"\nclip = ["-100", "100"]\n',
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of few units, so that every bound bites."""
    rng = np.random.default_rng(7)
    lines = ["time,unit,place,amount"]
    for minute in np.sort(rng.integers(0, 40 * 60, 1500)).tolist():
        day, rest = divmod(minute, 24 * 60)
        moment = f"2026-03-{2 + day:02d}T{rest // 60:02d}:{rest % 60:02d}:00"
        lines.append(f"{moment},u{rng.integers(12)},{'abcd'[rng.integers(4)]},{rng.integers(-20, 150)}")
    path = tmp_path_factory.mktemp("records")
    (path / "events.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def parsed(folder: Path, *names: str):
    """A configuration with some of the queries."""
    text = HEAD + "".join(
        f'[[query]]\nname = "{name}"\nshare = "1/{len(QUERIES)}"\n{QUERIES[name]}' for name in names
    )
    return parse_queries(text, folder / "tidegate.toml").parts


def test_what_is_implied_holds_for_bounded_values(folder: Path) -> None:
    """All relations of all queries, on records that every bound cuts; and signs."""
    parts = parsed(folder, *QUERIES)
    truth = [true_values(part, 40) for part in parts]
    row = np.concatenate(truth, axis=1)
    known = relations(parts)
    assert len(known) > 15
    for relation in known:
        assert (row[:, list(relation.lower)].sum(axis=1) <= row[:, relation.upper]).all(), relation.words
    for part, values in zip(parts, truth, strict=True):
        assert (values[:, signs(part)] >= 0).all(), part.name
    assert not any(signs(part)[0] for part in parts if part.name == "balance")


@pytest.mark.parametrize(
    ("lower", "upper", "words"),
    [
        ("units", "count1", "units is at most count1"),
        ("placed1", "count1", "placed1 in all columns together is at most count1"),
        ("units1", "units", "units1 in all columns together is at most units"),
        ("units3", "units", "each column of units3 is at most units"),
        ("placed3", "count1", None),
        ("unitsone", "one", "unitsone is at most one"),
        ("largeunits", "large", "largeunits is at most large"),
        ("bins", "count1", "bins in all columns together is at most count1"),
        ("units", "shared", None),
        ("units", "large", None),
        ("units", "unitsone", None),
        ("count1", "units", None),
        ("revenue", "count1", None),
    ],
)
def test_what_is_implied_and_what_is_not(folder: Path, lower: str, upper: str, words: str | None) -> None:
    """Orders and sums by what is counted of whom; nothing where weights, conditions or columns forbid it."""
    known = {relation.words for relation in relations(parsed(folder, lower, upper))}
    found = {said for said in known if said.endswith(f" is at most {upper}")}
    assert found == (set() if words is None else {words})


def test_what_is_not_implied_is_broken_by_records(folder: Path) -> None:
    """Were it claimed, bounded values themselves would contradict it: so it is not overcautious either."""
    for lower, upper in (("units", "shared"), ("units", "large"), ("count2", "units"), ("placed3", "count1")):
        low, high = (true_values(part, 40) for part in parsed(folder, lower, upper))
        assert (low.sum(axis=1) > high.sum(axis=1)).any(), (lower, upper)


def test_no_column_has_more_than_is_implied(folder: Path) -> None:
    """Units by place against records by place: the records that are kept may be of other places."""
    for lower, upper in product(("units1", "units3"), ("placed1", "placed3")):
        assert relations(parsed(folder, lower, upper)) == []
