"""Report, table and card are functions of configuration and releases: records that change no release change no byte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.pipeline.streams import places, settings

from tidegate.pipeline import open_pipeline
from tidegate.report.card import write_card
from tidegate.report.numbers import write_table
from tidegate.report.report import released_numbers, write_report
from tidegate.testing.entropy import fixed_entropy

# a head commits to a salt that nobody knows; the moment is when the report was written
MASKED = re.compile(rb"<code>[0-9a-f]{16}</code>|\d{4}-\d\d-\d\d \d\d:\d\d UTC")


def shown(folder: Path, text: str, lines: list[str]) -> dict[str, bytes]:
    """What people see of a stream with these records."""
    folder.mkdir()
    (folder / "events.csv").write_text("\n".join(lines) + "\n")
    queries = settings(folder, text)
    with fixed_entropy(7), open_pipeline(queries) as pipeline:
        pipeline.drive(queries.open(pipeline.position))
        pipeline.finish()
        released = list(pipeline.released.values())
        write_report(folder / "report.html", released, pipeline.verify())
        write_table(folder / "table.csv", released_numbers(released))
        write_card(folder / "card.json", queries.parts, pipeline.history)
    names = ("report.html", "table.csv", "card.json")
    return {name: MASKED.sub(b"", (folder / name).read_bytes()) for name in names}


@pytest.mark.parametrize("mechanism", ["Uniform", "BudgetAbsorption", "Tide"])
def test_records_that_change_no_release_change_nothing_that_people_see(
    mechanism: str, tmp_path: Path
) -> None:
    """Another order within an hour, records of a unit that counts already, of no column and of no time of the stream."""
    text = places(tmp_path, mechanism, 20)
    header, *lines = (tmp_path / "events.csv").read_text().splitlines()
    first = shown(tmp_path / "one", text, [header, *lines])
    more = [
        "2026-03-02T03:30,north1,north",
        "2026-03-02T03:31,secret,nowhere",
        "2027-01-01T00:00,secret,north",
    ]
    hours: dict[str, list[str]] = {}
    for line in [*lines, *more]:
        hours.setdefault(line[:13], []).append(line)
    again = [line for hour in sorted(hours) for line in reversed(hours[hour])]
    assert shown(tmp_path / "two", text, [header, *again]) == first
    other = [line for line in lines if line.endswith("south")]
    assert shown(tmp_path / "three", text, [header, *other]) != first
