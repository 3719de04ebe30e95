"""What people see of a stream that was amended: all of it, from its first step on, and silent steps as silent."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from tests.pipeline.streams import places, release, settings

import tidegate as tg
from tidegate.cli import main
from tidegate.ingest import blocks as blocks_module
from tidegate.pipeline import open_pipeline, read_stream
from tidegate.pipeline.amend import amend
from tidegate.pipeline.earlier_releases import Recorded, ended_scopes, rebuilt
from tidegate.releases import Status
from tidegate.report.numbers import write_table
from tidegate.report.report import released_numbers, write_report

CHANGES = (('epsilon = "1"', 'epsilon = "2"'), ('["north", "south"]', '["south", "west"]'))


def amended(folder: Path, mechanism: str = "Uniform", *changes: tuple[str, str]) -> Path:
    """A stream of 20 steps that was amended after 10, with windows of 4; its report and table are beside it."""
    text = places(folder, mechanism, 20)
    release(settings(folder, text, ("count = 20", "count = 10")))
    queries = settings(folder, text, *(changes or CHANGES))
    amend(queries)
    release(queries)
    with read_stream(queries) as stream:
        found = list(stream.released.values())
        write_report(folder / "report.html", found, stream.verify())
        write_table(folder / "table.csv", released_numbers(found))
    return folder


def table(folder: Path) -> list[dict[str, str]]:
    """The rows of the table."""
    with (folder / "table.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_what_was_released_before_is_in_report_and_table(tmp_path: Path) -> None:
    """Of columns that both have; steps that windows leave no room for are silent, and nothing is called missing."""
    rows = table(amended(tmp_path))
    with (tmp_path / "out.csv").open(newline="") as file:
        before = [row["south"] for row in csv.DictReader(file)]
    with (tmp_path / "out.from-14.csv").open(newline="") as file:
        after = [row["south"] for row in csv.DictReader(file)]
    south = [row for row in rows if row["column"] == "south"]
    assert [int(row["step"]) for row in south] == list(range(1, 21))
    assert [row["value"] for row in south] == [*before, "", "", "", *after]
    assert [row["shown"] for row in south] == ["yes"] * 10 + ["silent"] * 3 + ["yes"] * 7
    assert all(row["low"] and row["high"] for row in south if row["value"])  # intervals, before as well
    west = [row["value"] for row in rows if row["column"] == "west"]
    assert west[:13] == [""] * 13
    report = (tmp_path / "report.html").read_text()
    assert "20 steps of 1 hour × 2 columns" in report
    assert "<p>3 of 20 steps are silent: 11 to 13.</p>" in report
    assert "around each value from step 14 on</span>" in report
    assert "readings" not in report
    assert (
        "Amended: the query is released by Uniform from step 14 on, after 3 silent steps; the budget is ε = 2 from step "
        "11 on, where it was ε = 1 before." in report
    )
    ((last, spent),) = re.findall(r"\(the fullest, steps \d+ to (\d+), spent ([\d./]+)\)", report)
    assert (int(last) >= 14, spent) == (True, "2")


@pytest.mark.parametrize("mechanism", ["auto", "PeGaSus", "BudgetAbsorption", "OptStream"])
def test_earlier_intervals_are_those_of_the_mechanism_of_then(mechanism: str, tmp_path: Path) -> None:
    """A mechanism is made again from its description: numbers before the amendment stay what they were."""
    text = places(tmp_path, mechanism, 20)
    queries = settings(tmp_path, text, ("count = 20", "count = 10"))
    with open_pipeline(queries) as pipeline:
        pipeline.drive(queries.open(pipeline.position))
        pipeline.checkpoint()  # and no end, which would be its last word
        (before,) = released_numbers([pipeline.released["query"]])
    queries = settings(tmp_path, text, ('epsilon = "1"', 'epsilon = "2"'))
    amend(queries)
    release(queries)
    with read_stream(queries) as stream:
        (after,) = released_numbers([stream.released["query"]])
    assert after.newest.step.tolist() == list(range(1, 21))
    for name in ("answers", "low", "high"):
        np.testing.assert_array_equal(getattr(after, name)[:10], getattr(before, name))


def test_another_statistic_is_not_joined(tmp_path: Path) -> None:
    """Counts are no continuation of distinct units: its steps begin where it does, and the page says so."""
    rows = table(amended(tmp_path, "Uniform", ('"distinct"', '"count"')))
    assert min(int(row["step"]) for row in rows) == 14
    report = (tmp_path / "report.html").read_text()
    assert "The query was another one before step 14" in report


def test_a_mechanism_that_cannot_be_made_again_is_read_without_intervals(tmp_path: Path) -> None:
    """Its shape is in the log."""
    text = places(tmp_path, "Uniform", 20)
    release(settings(tmp_path, text, ("count = 20", "count = 10")))
    queries = settings(tmp_path, text, *CHANGES)
    amend(queries)
    with read_stream(queries) as stream:
        (one,) = ended_scopes(stream.log.rows())
        assert rebuilt({**one.query["mechanism"], "columns": 3.5}) is None
        strange = one._replace(query={**one.query, "mechanism": {**one.query["mechanism"], "mechanism": "x"}})
        assert isinstance(strange._mechanism(stream.archives.rows), Recorded)
        for each in (one, strange):
            (chunk,) = each.chunks(stream.archives.rows)
            assert chunk.values.shape == (10, 2)
            assert (chunk.status == Status.FRESH).all()
            assert (chunk.radius is None) == (each is strange)
            (units,), worth = each.spent_by(stream.archives.rows, np.array([4]))
            assert int(units) * worth == 1


@pytest.mark.parametrize(
    "name", ["Uniform", "Sample", "BudgetAbsorption", "PeGaSus", "Tide", "OptStream", "Fast"]
)
def test_mechanisms_are_made_again_from_their_descriptions(name: str) -> None:
    """Exactly, or not at all."""
    kind = getattr(tg.mechanisms, name)
    made = kind(tg.WEvent(epsilon="1/3", window=24), columns=2)
    again = rebuilt(made.describe())
    assert again is not None
    assert again.describe() == made.describe()


def test_the_card_has_the_amendment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the report has it."""
    amended(tmp_path)
    assert main(["card", str(tmp_path / "tidegate.toml")]) == 0
    assert "after 3 silent steps" in capsys.readouterr().out


def test_archived_history_is_there_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases from before the amendment that are in files of their own."""
    monkeypatch.setattr(blocks_module, "BLOCK_STEPS", 3)
    (tmp_path / "old").mkdir()
    text = places(tmp_path, "Uniform", 20) + '\n[run]\narchives = "old"\nkeep = 4\n'
    queries = settings(tmp_path, text, ("count = 20", "count = 12"))
    release(queries)
    with read_stream(queries) as stream:
        (before,) = released_numbers([stream.released["query"]])
    queries = settings(tmp_path, text, *CHANGES)
    amend(queries)
    release(queries)
    with open_pipeline(queries) as pipeline:
        pipeline.archive()
        assert list((tmp_path / "old").iterdir())
        (after,) = released_numbers([pipeline.released["query"]])
    assert after.newest.step.tolist() == list(range(1, 21))
    np.testing.assert_array_equal(after.answers[:12, 0], before.answers[:, 1])  # south
