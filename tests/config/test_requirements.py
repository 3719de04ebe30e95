"""Requirements of units in a file: whose columns are whose, what is promised and predicted, and what is refused."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.runtime.helpers import release, verified
from typer.testing import CliRunner

from tidegate.bench.own_stream import compare
from tidegate.cli import app
from tidegate.config import Config, ConfigError, read_config, read_queries
from tidegate.config.document import EXAMPLE
from tidegate.config.tuning import shapes
from tidegate.core.errors import LogMismatch
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.ingest.requirements import BLANKS
from tidegate.mechanisms import PersonalAbsorption, PersonalDistribution, Sample, Uniform
from tidegate.mechanisms.w_event.personal import Requirement
from tidegate.pipeline import read_stream
from tidegate.pipeline.logs import LogReader
from tidegate.pipeline.summary import summary
from tidegate.plan import Description, make_plan
from tidegate.plan.requirements import PERSONAL, requirements_of
from tidegate.policy import WEvent
from tidegate.report.card import card
from tidegate.report.explanation import explain

STEPS, UNITS = 30, 40
BUILDINGS = ("Library", "Cafeteria")
TABLE = "device,epsilon,window\nd01,1/4,\nd02,,48\nd03,1/4,24\nd04,,48h\nd05,,\n"
WITH_TABLE = EXAMPLE.replace("count = 168", f"count = {STEPS}").replace(
    "window = 24", 'window = 24\nrequirements = "requirements.csv"'
)


def records() -> list[tuple[int, str, str]]:
    """Step, unit and building; a unit is in several of them in an hour, and in others at other times."""
    choose = np.random.default_rng(4)
    return [
        (int(step), f"d{unit:02d}", BUILDINGS[choose.integers(2)])
        for step in range(STEPS)
        for unit in choose.integers(1, UNITS, 60)
    ]


def written(folder: Path, text: str = WITH_TABLE, table: str = TABLE) -> Config:
    """The configuration, with its table and its input."""
    return read_config(file_of(folder, text, table))


def file_of(folder: Path, text: str, table: str) -> Path:
    """Its file."""
    (folder / "tidegate.toml").write_text(text)
    (folder / "requirements.csv").write_text(table)
    lines = [
        f"2026-03-{2 + step // 24:02d}T{step % 24:02d}:00,{unit},{name}" for step, unit, name in records()
    ]
    (folder / "sightings.csv").write_text("\n".join(["time,device,building", *lines]) + "\n")
    return folder / "tidegate.toml"


def pushed(config: Config) -> np.ndarray:
    """What the mechanism is given."""
    intake = config.open(None, follow=False)
    try:
        return np.concatenate([block.units for block in intake])
    finally:
        intake.close()


def test_units_are_in_the_columns_of_their_requirement(tmp_path: Path) -> None:
    """Counted again in plain Python; equal requirements are one, and who is not in the table has none."""
    config = written(tmp_path)
    expected = np.zeros((STEPS, 6), dtype=np.int64)
    asked = {"d01": 1, "d02": 2, "d03": 1, "d04": 2}
    seen = set()
    for step, unit, name in sorted(records(), key=lambda each: (each[0], BUILDINGS.index(each[2]))):
        if (step, unit) not in seen:
            seen.add((step, unit))
            expected[step, 2 * asked.get(unit, 0) + BUILDINGS.index(name)] += 1
    assert pushed(config).tolist() == expected.tolist()
    mechanism = config.mechanism
    assert isinstance(mechanism, PersonalAbsorption)
    assert mechanism.promises == [(1, 24), (Fraction(1, 4), 24), (1, 48)]
    assert mechanism.sizes.tolist() == [1, 2, 2]


@pytest.mark.parametrize("name", ["auto", "PersonalDistribution"])
def test_a_stream_with_requirements_is_released(name: str, tmp_path: Path) -> None:
    """A large budget shows that columns are those that were asked for; the account holds, also after a restart."""
    text = WITH_TABLE.replace('epsilon = "1"', 'epsilon = "100000"').replace('"auto"', f'"{name}"')
    config = written(tmp_path, text.replace("window = 24", "window = 24\npopulation = 45"))
    release(config)
    release(config)
    assert verified(config.ledger).ok
    found = pl.read_csv(tmp_path / "released.csv")
    truth = pushed(config).reshape(STEPS, 3, 2).sum(axis=1)
    assert found["step"].to_list() == list(range(1, STEPS + 1))
    for place, building in enumerate(BUILDINGS):
        # noise is nothing here; what is left are units that divide among requirements otherwise than in the table
        assert np.abs(found[building].to_numpy() - truth[:, place]).mean() < truth[:, place].mean() / 2


def test_ids_are_known_by_their_text(tmp_path: Path) -> None:
    """Whole numbers and text are in the same columns; 07 is another unit than 7."""
    config = written(tmp_path, table="unit,epsilon\n7,1/4\n07,1/2\n")
    table = config.query.requirements
    assert table is not None
    assert table.of(pl.Series([7, 70, None])).tolist() == [1, 0, 0]
    # blanks at the edges are taken off in the table, so they are in records
    found = table.of(pl.Series(["7", "07", " 7", "7\u00a0", "\x1f07\t", "0 7", None]))
    assert found.tolist() == [1, 2, 1, 1, 2, 0, 0]
    assert table.of(pl.Series([7, 8], dtype=pl.UInt64)).tolist() == [1, 0]
    assert table.of(pl.Series(["7", "x"], dtype=pl.Categorical)).tolist() == [1, 0]


def test_records_and_table_lose_the_same_blanks() -> None:
    """All that `str.strip` takes off."""
    assert set(BLANKS) == {chr(code) for code in range(0x10FFFF + 1) if chr(code).isspace()}


def test_no_window_is_said_to_have_spent_more_than_it_may(tmp_path: Path) -> None:
    """The most of any requirement at each step, added up over a window, is what none of them has spent."""
    table = "unit,epsilon,window\n" + "".join(f"d{unit:02d},1/2,33\n" for unit in range(30))
    config = written(tmp_path, WITH_TABLE.replace("window = 24", "window = 4"), table)
    release(config)
    with read_stream(read_queries(tmp_path / "tidegate.toml")) as stream:
        (released,) = stream.released.values()
        spent = released.spent_by(np.arange(1, STEPS + 1))
        assert 0 < spent.max() <= released.units
        with LogReader(config.ledger) as log:
            last = summary(log)["queries"]["query"]["spent_in_last_window"]
        assert Fraction(last) == int(spent[-1]) * released.unit


def test_shares_are_those_of_the_table_and_of_the_population(tmp_path: Path) -> None:
    """Whoever is not in the table asks for nothing; at least one such unit is expected."""
    table = written(tmp_path, table="unit,epsilon\na,1/4\nb,1/4\nc,1/2\n").query.requirements
    assert table is not None
    assert table.shares == (Fraction(1, 4), Fraction(1, 2), Fraction(1, 4))
    more = WITH_TABLE.replace("window = 24", "window = 24\npopulation = 10")
    table = written(tmp_path, more, "unit,epsilon\na,1/4\nb,1/4\nc,1/2\nd,\n").query.requirements
    assert table is not None
    assert table.shares == (Fraction(7, 10), Fraction(1, 5), Fraction(1, 10))


def test_what_is_promised_is_said(tmp_path: Path) -> None:
    """In the guarantee, the explanation and the card, of each requirement; nobody is named."""
    config = written(tmp_path)
    guarantee = str(config.guarantee)
    assert "1-differentially private for everything within any 24 consecutive steps" in guarantee
    assert "Units of requirement 1 lose at most 0.25 in any 24 consecutive steps." in guarantee
    assert "Units of requirement 2 lose at most 1 in any 48 consecutive steps." in guarantee
    assert "the table of requirements is public" in guarantee
    said = " ".join(explain(read_queries(tmp_path / "tidegate.toml")))
    assert "A public table names 5 devices." in said
    assert "1, of 2 devices: ε = 0.25 in any 24 hours; 2, of 2 devices: ε = 1 in any 2 days." in said
    privacy = card(config)["privacy"]
    assert privacy["requirements"][1] == {"units": 2, "epsilon": "1", "window_steps": 48}
    assert "d01" not in guarantee + said + json.dumps(card(config))


def test_nothing_is_asked_for(tmp_path: Path) -> None:
    """A table in which nobody asks for more is as good as none."""
    config = written(tmp_path, table="unit,epsilon\nd01,\nd02,1\n")
    assert config.mechanism.columns == config.mechanism.outputs == 2
    assert "requirement 1" not in str(config.guarantee)
    assert "beyond what all have: none." in " ".join(explain(read_queries(tmp_path / "tidegate.toml")))


def test_auto_takes_what_a_plan_predicts(tmp_path: Path) -> None:
    """With a level, one of the two that follow requirements; without it the first."""
    text = WITH_TABLE.replace('name = "auto"', 'name = "auto"\nlevel = 1000')
    assert isinstance(written(tmp_path, text).mechanism, PersonalAbsorption | PersonalDistribution)


def test_another_table_is_another_stream(tmp_path: Path) -> None:
    """It is neither continued nor amended."""
    release(written(tmp_path))
    changed = written(tmp_path, table=TABLE.replace("d01,1/4", "d01,1/2"))
    with pytest.raises(LogMismatch, match="requirements"):
        release(changed)
    found = CliRunner().invoke(app, ["amend", str(changed.path)])
    assert found.exit_code
    assert "cannot be amended" in str(found.exception)


LISTED = 'columns = ["Library", "Cafeteria"]'
REFUSED = [
    (('"auto"', '"Tide"'), TABLE, "Tide knows no requirements"),
    (('"distinct"', '"mean"\nclip = [0, 1]'), TABLE, "counts or clipped sums"),
    (('"distinct"', '"distinct"\nover = 3'), TABLE, "change over"),
    (('aggregate = "distinct"\ncolumns', 'aggregate = "given"\nfill = 0\ncolumns'), TABLE, "clipped sums"),
    ((LISTED, 'hierarchy = { Library = "campus", Cafeteria = "campus" }'), TABLE, "hierarchy"),
    (('policy = "w-event"', 'policy = "user"'), TABLE, "absent unless policy is w-event"),
    (('epsilon = "1"', 'rho = "1"'), TABLE, "absent unless policy is w-event"),
    (('window = 24', 'window = 24\ndelta = "1e-6"'), TABLE, "absent unless policy is w-event"),
    (('unit = "device"', ""), TABLE, "name the column of units"),
    (("[query]", '[[query]]\nname = "one"'), TABLE, "not divided among queries"),
    (("[query]", '[editions]\nafter = ["1h", "2h"]\n\n[query]'), TABLE, "not divided among queries"),
    (("window = 24", "window = 24\npopulation = 3"), TABLE, "at least 5"),
    (('requirements = "requirements.csv"', "population = 3"), TABLE, "absent without requirements"),
    (('"requirements.csv"', '"nowhere.csv"'), TABLE, "can be read"),
    (('"requirements.csv"', '"released.csv"'), TABLE, "can be read"),
    (('"auto"', '"PersonalAbsorption"\nrequirements = [["1/2", "1/4"]]'), TABLE, r"belong to \[protect\]"),
    (None, "", "with a header"),
    (None, "device\nd01\n", "with a header"),
    (None, "device,eps\nd01,1\n", "with a header"),
    (None, "device,epsilon,epsilon\nd01,1,1\n", "with a header"),
    (None, "device,epsilon\n", "1 to 1000000 units"),
    (None, "device,epsilon\nd01,2\n", "line 2 has a larger ε"),
    (None, "device,window\nd01,25\nd02,12\n", "line 3 has a larger ε or a shorter window"),
    (None, "device,window\nd01,90min\n", 'line 2 window='),
    (None, "device,window\nd01,1.5\n", 'line 2 window='),
    (None, "device,epsilon\nd01,-1\n", 'line 2 epsilon='),
    (None, "device,epsilon\nd01,some\n", 'line 2 epsilon='),
    (None, "device,epsilon\n\nd01,\nd01,1/2\n", "line 4 repeats one"),
    (None, "device,epsilon\n,1/2\n", "line 2 lacks one"),
    (None, "device,epsilon\nd01\n", "line 2 has other fields"),
    (None, 'device,epsilon\n"d01,1\n', "open quote"),
    (None, "device,epsilon,window\nd01,0.12345678901234567,1009\n", "common"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "table", "words"), REFUSED)
def test_what_is_refused(change: tuple[str, str] | None, table: str, words: str, tmp_path: Path) -> None:
    """One sentence, which names a line of the table and nobody in it."""
    text = WITH_TABLE if change is None else WITH_TABLE.replace(*change)
    assert change is None or text != WITH_TABLE
    file = file_of(tmp_path, text, table)
    with pytest.raises(ConfigError, match=words) as refused:
        read_queries(file)
    assert "d01" not in str(refused.value)


def test_tuning_is_refused(tmp_path: Path) -> None:
    """It would cost every unit the same, also those that ask for less."""
    written(tmp_path)
    with pytest.raises(InvalidInput, match="cost each of them the same"):
        shapes(read_queries(tmp_path / "tidegate.toml"), 100.0)


def test_a_plan_knows_requirements(tmp_path: Path) -> None:
    """It compares those that follow them, and says what the strictest for every unit would do."""
    table = written(tmp_path).query.requirements
    assert table is not None
    policy = WEvent(epsilon="1", window=24)
    kinds = {kind.__name__: kind for kind in (Uniform, PersonalAbsorption, Sample, PersonalDistribution)}
    asked = requirements_of(table)
    made = make_plan(policy, Description(level=200, columns=2), runs=1, kinds=kinds, requirements=asked)
    assert {each.name for each in made.predictions} == set(PERSONAL)
    assert made.strict is not None
    assert made.strict.mechanism.policy == WEvent(epsilon="1/4", window=48)
    assert any(
        "the strictest requirement for every unit, ε = 0.25, w = 48" in each for each in made.reasons()
    )


def test_bench_compares_with_the_strictest() -> None:
    """Units of the stream have requirements by chance; values that are no counts are refused."""
    values = np.random.default_rng(3).poisson(300, (60, 2)).astype(float)
    kinds = {kind.__name__: kind for kind in (Uniform, PersonalAbsorption)}
    given: dict[str, Any] = {"epsilons": ["1"], "windows": [8], "runs": 2}
    given["requirements"] = lambda least: (Requirement("1/4", least.epsilon / 5),)
    rows = {row["mechanism"]: row for row in compare(values, kinds, **given).rows}
    assert set(rows) == {"PersonalAbsorption", "Uniform, strictest"}
    assert 30 < rows["Uniform, strictest"]["error"] < 50
    with pytest.raises(InvalidParameter, match="counts of units"):
        compare(values, kinds, **given, grid="1/2")


@pytest.mark.slow
def test_commands_know_requirements(tmp_path: Path) -> None:
    """Plan, preview and bench, with a configuration and without one."""
    run, file = CliRunner(), str(written(tmp_path).path)
    table, counts = tmp_path / "of_steps.csv", tmp_path / "counts.csv"
    table.write_text(TABLE.replace("48h", "48"))
    counts.write_text("a,b\n" + "\n".join(f"{90 + step % 7},{step}" for step in range(60)))
    for command in (["plan", file], ["plan", "--requirements", str(table)]):
        found = run.invoke(app, [*command, "--quick", "--json"], catch_exceptions=False)
        assert {each["mechanism"] for each in json.loads(found.stdout)["predictions"]} == set(PERSONAL)
    made = ["preview", file, "--report", str(tmp_path / "made-up.html")]
    assert "Made up 30 steps" in run.invoke(app, made, catch_exceptions=False).stdout
    assert "Requirements beyond what all have" in (tmp_path / "made-up.html").read_text()
    given = ["--requirements", str(table), "--runs", "2", "--public"]
    given += ["--mechanisms", "PersonalAbsorption,Uniform"]
    found = run.invoke(app, ["bench", str(counts), *given, "--json"], catch_exceptions=False)
    rows = json.loads(found.stdout)["rows"]
    assert {row["mechanism"] for row in rows} == {"PersonalAbsorption", "Uniform, strictest"}
    for wrong in (["plan", file, "--requirements", str(table)], ["plan", file, "--target", "5%"]):
        assert run.invoke(app, wrong).exit_code
