"""Every mechanism of the catalogue can be named in a file, or is refused by a sentence that says why."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import fields
from fractions import Fraction
from pathlib import Path

import polars as pl
import pytest
from tests.runtime.helpers import release, verified

from tidegate.config import Config, ConfigError, parse_config, read_config
from tidegate.config.document import EXAMPLE
from tidegate.mechanisms import catalogue
from tidegate.mechanisms.counters.factorization import Factorization
from tidegate.mechanisms.discovery.discover import Discover
from tidegate.mechanisms.plain.blocks import Blocks
from tidegate.mechanisms.sampled.fast import Fast
from tidegate.queries.decayed import Exponential

ONE_COLUMN = 'columns = ["Library"]'
TWO_COLUMNS = 'columns = ["Library", "Cafeteria"]'
W_EVENT = 'policy = "w-event"\nepsilon = "1"\nwindow = 24'
ONE_VALUE = {TWO_COLUMNS: ONE_COLUMN, W_EVENT: 'policy = "event"\nepsilon = "1"'}
CAMPUS = {TWO_COLUMNS: 'hierarchy = { Library = "campus", Cafeteria = "campus" }'}

# what is written in [mechanism], and what else is different from the example
NAMED: dict[str, tuple[str, dict[str, str]]] = {
    "AdaPub": ("threshold_factor = 80", {}),
    "BackwardSmoothing": ("", {}),
    "BinaryTree": ("", {}),
    "Blocks": ('mechanism = { name = "Fast", adaptive = { reach = 3.5 } }', {}),
    "BudgetAbsorption": ("", {}),
    "BudgetDistribution": ("groups = [[0], [1]]", {}),
    "ClippedAverage": ("lag = 100\nwindow = 5", ONE_VALUE),
    "ClippedDecay": ('lag = 100\nfactor = "0.9"', ONE_VALUE),
    "ClippedSum": ("", ONE_VALUE),
    "DSAT": ("publications = 3", {}),
    "EndlessSum": ("", {W_EVENT: 'policy = "event"\nrho = "1"'}),
    "Factorization": (
        'method = "banded"\ndecay = { exponential = "0.9" }',
        {W_EVENT: 'policy = "event"\nrho = "1"'},
    ),
    "Fast": ("filter = { fading = 0.9 }", {}),
    "Fourier": ("", {}),
    "GradualTree": ("growth = 1", {W_EVENT: 'policy = "event"\nepsilon = "1"\nhorizon = 200'}),
    "HierarchicalOptStream": ("", CAMPUS),
    "HierarchicalPeGaSus": ("", CAMPUS),
    "HybridTree": ("", {}),
    "OptStream": ("", {}),
    "PeGaSus": ("", {}),
    "PersonalAbsorption": ("", {}),
    "PersonalDistribution": ("", {}),
    "RescueDP": ("grouping = { recent = 4 }", {}),
    "Sample": ("", {}),
    "SlidingWindowTree": ("", {}),
    "Tide": ("", {}),
    "ToPS": (
        "group = 4",
        {TWO_COLUMNS: ONE_COLUMN, W_EVENT: 'policy = "event"\nepsilon = "1"\nhorizon = 200'},
    ),
    "Uniform": ("", {}),
}
# what has no place in a file yet, and the words of the refusal
REFUSED = {
    "ClippedHistogram": "columns",
    "Discover": 'columns = "discover"',
    "PerLeafOptStream": "mobility|hierarchy",
    "Swellfish": "belong together",
}


def written(name: str, more: str = "", changes: dict[str, str] | None = None) -> str:
    """The example with a mechanism."""
    text = EXAMPLE.replace('name = "auto"', f'name = "{name}"\n{more}')
    for old, new in (changes or {}).items():
        assert old in text
        text = text.replace(old, new)
    return text


def config_of(folder: Path, text: str) -> Config:
    """The configuration, with a small input beside it."""
    (folder / "tidegate.toml").write_text(text)
    (folder / "sightings.csv").write_text("time,device,building\n2026-03-02T00:10,1,Library\n")
    return read_config(folder / "tidegate.toml")


def test_the_whole_catalogue_is_here() -> None:
    """A new mechanism gets a line above."""
    assert {*NAMED, *REFUSED} == set(catalogue())
    assert not set(NAMED) & set(REFUSED)


@pytest.mark.parametrize("name", NAMED)
def test_a_file_names_it_and_a_stream_of_it_is_released(name: str, tmp_path: Path) -> None:
    """From the file to the released rows and an account that was kept."""
    config = config_of(tmp_path, written(name, *NAMED[name]))
    assert type(config.mechanism).__name__ == name
    release(config)
    assert verified(config.ledger).ok
    assert pl.read_csv(tmp_path / "released.csv", infer_schema_length=None)["step"].n_unique() == 168


FOUND = re.sub(r"columns = \[.*?\]", 'columns = "discover"', EXAMPLE, flags=re.DOTALL)
WITH_DELTA = FOUND.replace('epsilon = "1"', 'epsilon = "1"\ndelta = "1e-6"')


def test_columns_that_nobody_has_listed_are_found(tmp_path: Path) -> None:
    """With parameters of the mechanism, and durations for epochs."""
    assert 'delta = "1e-6"' in WITH_DELTA
    more = 'name = "Discover"\nepoch = "48h"\ncategories = 3\ncolumns = 20\nlength = 16\nshare = "1/3"\nearly = true'
    mechanism = config_of(tmp_path, WITH_DELTA.replace('name = "auto"', more)).mechanism
    assert isinstance(mechanism, Discover)
    assert (mechanism.epoch, mechanism.categories, mechanism.columns, mechanism.length) == (48, 3, 20, 16)
    assert (mechanism.share, mechanism.aggregate, mechanism.early) == (Fraction(1, 3), "distinct", True)
    plain = config_of(tmp_path, WITH_DELTA)
    assert plain.mechanism.describe()["epoch"] == plain.policy.window
    assert not any("given again" in clause for clause in plain.guarantee.assumptions)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("delta", "# delta"), "delta"),
        (('name = "auto"', 'name = "Tide"'), "needs Discover and not Tide"),
        (('name = "auto"', 'name = "Discover"\nepochs = 3'), "did you mean 'epoch'"),
        (('name = "auto"', 'name = "Discover"\nepoch = "90min"'), "whole number of steps"),
        (('name = "auto"', 'name = "Discover"\nearly = "soon"'), "True or False"),
        (('aggregate = "distinct"', 'aggregate = "quantile"\nclip = [0, 1]'), "columns"),
        (('aggregate = "distinct"', 'aggregate = "mean"\nclip = "learn"'), "learn"),
        (('unit = "device"', ""), "unit"),
        (('column = "building"', ""), "column"),
        (("window = 24", "window = 24\nmax_change = 5"), "most in"),
        (("[sink]", '[[answer]]\nname = "best"\nkind = "top"\ncount = 1\n\n[sink]'), "come and go"),
    ],
)
def test_what_does_not_fit_to_found_columns_is_refused(
    change: tuple[str, str], words: str, tmp_path: Path
) -> None:
    """In one sentence, with the line."""
    assert change[0] in WITH_DELTA
    with pytest.raises(ConfigError, match=words) as refused:
        config_of(tmp_path, WITH_DELTA.replace(*change))
    assert refused.value.line is not None


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_named_is_refused_with_a_reason(name: str, tmp_path: Path) -> None:
    """The file, the line and a sentence; nothing is left behind."""
    with pytest.raises(ConfigError, match=REFUSED[name]) as refused:
        config_of(tmp_path, written(name))
    assert refused.value.line is not None
    assert sorted(file.name for file in tmp_path.iterdir()) == ["sightings.csv", "tidegate.toml"]


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("HierarchicalPeGaSus", "", 'write for example hierarchy = "regions.csv" in [query]'),
        ("ClippedHistogram", "lag = 100\nbins = 3", "use it from Python"),
        ("Threshold", "", "Threshold is one release and no stream"),
        ("PersonalAbsorption", 'requirements = [["1/2", "1/4"]]', "belong to [protect]"),
        ("BudgetAbsorption", 'pan_private = "single"', "adds up its events before the mechanism sees them"),
        ("BudgetDistribution", 'pan_private = "announced"', "one by one from Python"),
        ("Fast", 'calibration = "paper"', "unknown key 'calibration' in [mechanism]"),
        ("Blocks", "", 'mechanism = { name = "Uniform" }'),
        ("Blocks", 'mechanism = { name = "Tyde" }', "did you mean 'Tide'?"),
        ("Blocks", 'mechanism = { name = "BudgetAbsorption" }', "WEvent or Event for BudgetAbsorption"),
        ("Fast", "adaptive = { range = 3.5 }", "unknown key 'range' in adaptive"),
        ("Fast", "adaptive = { reach = -1 }", "reach"),
        ("OptStream", "features = 3", "OptStream cannot read what features is set to"),
        ("BudgetAbsorption", 'groups = "all"', "BudgetAbsorption cannot read what groups is set to"),
    ],
)
def test_parameters_that_have_no_place_are_refused_by_name(name: str, more: str, words: str) -> None:
    """One sentence with the line of the key."""
    with pytest.raises(ConfigError) as refused:
        parse_config(written(name, more, ONE_VALUE if name == "ClippedHistogram" else None))
    assert words in str(refused.value)
    assert refused.value.line is not None


WRONG = (
    '"x"',
    "-1",
    "[1]",
    '["a/b", "a/c"]',
    "{a = 1}",
    "true",
    "0.5",
    "[]",
    "{}",
    "[[1, 2]]",
    "99999999999999999999",
)


@pytest.mark.parametrize("name", sorted({*NAMED, *REFUSED} - {"Blocks"}))
def test_no_value_of_any_parameter_ends_in_anything_but_a_sentence(name: str) -> None:
    """Whatever is written, it is taken or refused as a mistake of the file."""
    own = [item.name for item in fields(catalogue()[name]) if item.init]
    for parameter in set(own) - {"policy", "columns", "grid", "rounding"}:
        for value in WRONG:
            with suppress(ConfigError):
                parse_config(written(name, f"{parameter} = {value}", NAMED.get(name, ("", {}))[1]))


def test_what_is_said_in_a_file_is_what_is_built(tmp_path: Path) -> None:
    """Tables become settings, a horizon is the number of steps, and blocks share the budget of the window."""
    blocks = config_of(tmp_path, written("Blocks", *NAMED["Blocks"])).mechanism
    assert isinstance(blocks, Blocks)
    assert isinstance(blocks.inner, Fast)
    assert blocks.inner.adaptive.reach == 3.5  # type: ignore[union-attr]
    assert (blocks.inner.policy.epsilon, blocks.inner.policy.horizon) == (blocks.policy.epsilon / 2, 24)  # type: ignore[operator]
    decayed = config_of(tmp_path, written("Factorization", *NAMED["Factorization"])).mechanism
    assert isinstance(decayed, Factorization)
    assert (decayed.decay, decayed.horizon) == (Exponential("0.9"), 168)


def test_a_file_may_weigh_features_itself(tmp_path: Path) -> None:
    """Numbers for the curve and for each feature, as fractions."""
    day = ", ".join(str(hour) for hour in range(1, 25))
    more = f'samples = 6\nfeatures = [[[{day}]]]\nweights = [1, "1/2"]'
    mechanism = config_of(tmp_path, written("OptStream", more)).mechanism
    assert mechanism.weights == (1, Fraction(1, 2))
