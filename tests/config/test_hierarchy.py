"""A hierarchy in the file: what a unit can change, who measures it, and parents that are the sums of their children."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.helpers import release, verified

from tidegate.config import Config, ConfigError, parse_config, read_config
from tidegate.config.document import EXAMPLE
from tidegate.ingest.levels import LEAVES, NODES, Levels, better_measured, hierarchy_of, least_squares
from tidegate.structures.hierarchy import Hierarchy

COLUMNS = 'columns = ["Library", "Cafeteria"]'
REGIONS = "place,part of\nLibrary,north\nCafeteria,north\nGym,south\nPool,south\nnorth,campus\nsouth,campus\n"
EVENTS = "time,device,building\n" + "".join(
    f"2026-03-02T{hour:02d}:{unit:02d},{unit},{('Library', 'Cafeteria', 'Gym', 'Pool')[unit % 4]}\n"
    for hour in range(24)
    for unit in range(30)
)


def config_of(folder: Path, mechanism: str = 'name = "Uniform"', more: str = "") -> Config:
    """A campus of three levels."""
    text = EXAMPLE.replace(COLUMNS, f'hierarchy = "regions.csv"\n{more}').replace('name = "auto"', mechanism)
    (folder / "tidegate.toml").write_text(text.replace("count = 168", "count = 24"))
    (folder / "regions.csv").write_text(REGIONS)
    (folder / "sightings.csv").write_text(EVENTS)
    return read_config(folder / "tidegate.toml")


@pytest.mark.parametrize("more", ['levels = "leaves"', 'levels = "all"', ""])
@pytest.mark.parametrize(
    "mechanism", ["Uniform", "Tide", "BudgetAbsorption", "HierarchicalPeGaSus", "HierarchicalOptStream"]
)
def test_parents_are_the_sums_of_their_children(mechanism: str, more: str, tmp_path: Path) -> None:
    """To the last decimal that is written, for every mechanism and whatever is measured."""
    if mechanism.startswith("Hierarchical") and more:
        with pytest.raises(ConfigError, match="its own way"):
            config_of(tmp_path, f'name = "{mechanism}"', more)
        return
    config = config_of(tmp_path, f'name = "{mechanism}"', more)
    release(config)
    assert verified(config.ledger).ok
    released = pl.read_csv(tmp_path / "released.csv", infer_schema=False)
    nodes = ("campus", "north", "south", "Library", "Cafeteria", "Gym", "Pool")
    assert config.query.answer_labels == nodes
    for row in released.iter_rows(named=True):
        value = {name: Decimal(row[name]) for name in nodes}
        assert value["north"] == value["Library"] + value["Cafeteria"]
        assert value["campus"] == value["north"] + value["south"]
    assert released["step"].n_unique() == 24


def test_a_unit_is_in_every_level(tmp_path: Path) -> None:
    """Where all nodes are measured Δ is that of the leaves times the levels, also of given input; less is refused."""
    assert config_of(tmp_path, more='levels = "leaves"').policy.max_change == 1
    assert config_of(tmp_path, more='levels = "all"').policy.max_change == 3
    assert config_of(tmp_path, 'name = "HierarchicalPeGaSus"').policy.max_change == 1
    text = (tmp_path / "tidegate.toml").read_text()
    text = text.replace("HierarchicalPeGaSus", "Uniform").replace(
        "window = 24", "window = 24\nmax_change = 1"
    )
    text = text.replace('hierarchy = "regions.csv"', 'hierarchy = "regions.csv"\nlevels = "all"')
    with pytest.raises(ConfigError, match="at least 3"):
        parse_config(text, tmp_path / "tidegate.toml")
    given_text = """[source]
location = "load.csv"
time = "time"
column = "region"
value = "load"
[steps]
start = "2026-03-02"
length = "1h"
count = 3
[query]
aggregate = "given"
hierarchy = { north = "France", south = "France" }
levels = "all"
fill = "zero"
[protect]
epsilon = "1"
window = 3
max_change = "2"
[mechanism]
name = "Uniform"
"""
    (tmp_path / "load.csv").write_text(
        "time,region,load\n2026-03-02T00:10,north,5\n2026-03-02T01:10,south,7\n"
    )
    config = parse_config(given_text, tmp_path / "tidegate.toml")
    assert config.policy.max_change == Fraction(4)
    assert np.concatenate([block.units for block in config.open()]).tolist() == [
        [5, 5, 0],
        [7, 0, 7],
        [0, 0, 0],
    ]
    listed = given_text.replace("fill =", 'columns = ["France", "north", "south"]\nfill =')
    with pytest.raises(ConfigError, match="a unit in a child changes both"):
        parse_config(listed, tmp_path / "tidegate.toml")


@pytest.mark.parametrize(
    ("more", "mechanism", "words"),
    [
        ('columns = ["Library"]', 'name = "Uniform"', "among the columns"),
        ('columns = ["Library", "Cafeteria", "Gym", "Pool", "Attic"]', 'name = "Uniform"', "say its parent"),
        ('outside = "other"', 'name = "Uniform"', "without other"),
        ("", 'name = "HierarchicalPeGaSus"\nhierarchy = ["a/b"]', "belongs to [query]"),
    ],
)
def test_a_hierarchy_that_does_not_fit_is_refused(
    more: str, mechanism: str, words: str, tmp_path: Path
) -> None:
    """With its line; nothing is made."""
    with pytest.raises(ConfigError) as refused:
        config_of(tmp_path, mechanism, more)
    assert words in str(refused.value)
    assert refused.value.line is not None


def test_broken_links_are_refused(tmp_path: Path) -> None:
    """Cycles, repeated nodes, no file; levels without a hierarchy."""
    text = EXAMPLE.replace(COLUMNS, 'hierarchy = { a = "b", b = "a" }')
    with pytest.raises(ConfigError, match="cycles"):
        parse_config(text)
    with pytest.raises(ConfigError, match="No such file"):
        parse_config(EXAMPLE.replace(COLUMNS, 'hierarchy = "nowhere.csv"'))
    (tmp_path / "regions.csv").write_text("place,parent\na,b\na,c\n")
    with pytest.raises(ConfigError, match="line 3 repeats 'a'"):
        parse_config(EXAMPLE.replace(COLUMNS, 'hierarchy = "regions.csv"'), tmp_path / "tidegate.toml")
    with pytest.raises(ConfigError, match="absent without a hierarchy"):
        parse_config(EXAMPLE.replace(COLUMNS, COLUMNS + '\nlevels = "all"'))


@settings(max_examples=25)
@given(st.lists(st.floats(-100, 100), min_size=7, max_size=7))
def test_two_walks_are_least_squares(values: list[float]) -> None:
    """Compared with the normal equations, on a tree of three levels."""
    tree = hierarchy_of({"a": "x", "b": "x", "c": "y", "d": "y", "x": "all", "y": "all"})
    matrix = tree.sum(np.eye(4)).T
    expected = matrix @ np.linalg.lstsq(matrix, np.array(values), rcond=None)[0]
    assert least_squares(tree, np.array([values]))[0] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("wider", [1.0, 0.6])
def test_intervals_of_nodes_hold(wider: float) -> None:
    """2000 steps × 21 nodes of Laplace noise: at least 90 % hold for every node, α = 1e-8; 0.6 of the width does not."""
    tree = Hierarchy.balanced(16, fan_out=4)
    random = np.random.default_rng(7)
    truth = np.full((2000, 16), 1000.0)
    for levels, given_values in (
        (Levels(tree, LEAVES, LEAVES, True), truth + random.laplace(0, 5, truth.shape)),
        (Levels(tree, NODES, NODES, True), tree.sum(truth) + random.laplace(0, 5, (2000, 21))),
    ):
        half = levels.radius(np.full(given_values.shape, 5 * np.log(10)))
        off = np.abs(levels.answers(given_values, grid=1.0, positive=True) - tree.sum(truth))
        # binomial(2000, 0.9) falls six standard deviations below its mean less often than once in 1e8
        enough = (off <= wider * half).sum(axis=0) >= 1800 - 6 * np.sqrt(2000 * 0.09)
        assert enough.all() == (wider == 1.0) or levels.measured == NODES


def test_the_choice_of_what_is_measured_is_public() -> None:
    """Wide trees are measured at all levels, narrow ones at their leaves."""
    assert better_measured(Hierarchy.balanced(4)) == LEAVES
    assert better_measured(Hierarchy.balanced(1000, fan_out=1000)) == NODES
