"""Specifications of secrets in the file, and what `tidegate explain` says of it and of other files."""

from __future__ import annotations

import json
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from typer.testing import CliRunner

from tidegate.cli import app
from tidegate.config import ConfigError, parse_config, read_queries
from tidegate.config.document import EXAMPLE, SEVERAL
from tidegate.config.queries import parse_queries
from tidegate.mechanisms.swellfish.swellfish import Swellfish
from tidegate.pipeline import open_pipeline, read_stream
from tidegate.report.explanation import explain
from tidegate.report.report import write_report

TEXT = """[source]
location = "load.csv"
time = "time"
value = "kW"

[steps]
start = "2026-01-05T00:00"
length = "15min"
zone = "Europe/Berlin"
count = 192

[query]
aggregate = "given"
grid = "0.1"

[protect]
policy = "swellfish"
specifications = "household.toml"

[sink]
location = "released.csv"
"""
TABLE = """class,event,height,duration,epsilon,hidden
household,at home,0.5,1 h,1,always
household,cooking,3,45 min,0.5,every weekday 21:00-24:00; every weekend 22:00-02:00
shop,open,5,2,1,always
"""


@pytest.fixture
def folder(tmp_path: Path, root: Path) -> Path:
    """Readings of two days, and the specification of the documentation."""
    times = pl.datetime_range(
        pl.datetime(2026, 1, 5), pl.datetime(2026, 1, 6, 23, 45), "15m", eager=True
    ).dt.to_string("%Y-%m-%dT%H:%M")
    pl.DataFrame({"time": times, "kW": [5000.5] * 192}).write_csv(tmp_path / "load.csv")
    (tmp_path / "household.toml").write_text((root / "docs/examples/household.toml").read_text())
    (tmp_path / "classes.csv").write_text(TABLE)
    (tmp_path / "tidegate.toml").write_text(TEXT)
    return tmp_path


def test_a_stream_of_secrets_from_a_file(folder: Path) -> None:
    """Released, verified, reported, and read again; its noise follows the hours."""
    queries = read_queries(folder / "tidegate.toml")
    assert isinstance(queries.first.mechanism, Swellfish)
    with open_pipeline(queries) as pipeline:
        pipeline.drive(queries.open(pipeline.position))
        pipeline.finish()
        verification = pipeline.verify()
        assert verification.ok
        write_report(folder / "report.html", list(pipeline.released.values()), verification)
    assert "Every secret has an account of its own" in (folder / "report.html").read_text()
    released = pl.read_csv(folder / "released.csv", infer_schema_length=None)
    assert released["scale"][4 * 21] > 2 * released["scale"][4 * 12]
    with read_stream(queries) as stream:
        assert stream.step == 192


def test_a_table_names_the_secrets_of_classes(folder: Path) -> None:
    """A line for each secret; the clock is that of the stream."""
    config = parse_config(TEXT.replace("household.toml", "classes.csv"), folder / "tidegate.toml")
    assert [each.label for each in config.policy.specifications] == ["household", "shop"]  # type: ignore[attr-defined]
    assert config.policy.window == 4


@pytest.mark.parametrize(
    ("old", "new", "key", "words"),
    [
        ('specifications = "household.toml"', "", "[protect]", "given for swellfish"),
        (
            'specifications = "household.toml"',
            'specifications = "x.toml"',
            "specifications",
            "cannot be read",
        ),
        ('length = "15min"', 'length = "1h"', "specifications", "the stream has another clock"),
        (
            'aggregate = "given"',
            'aggregate = "sum"\nclip = ["0", "5"]',
            "policy",
            'unless aggregate is "given"',
        ),
        ('policy = "swellfish"', 'policy = "swellfish"\nepsilon = 1', "epsilon", "each secret has its own"),
        ("[sink]", '[mechanism]\nname = "Uniform"\n\n[sink]', "name", "belong together"),
        (
            'policy = "swellfish"',
            'policy = "event"\nepsilon = 1\nmax_change = 1',
            "specifications",
            "absent for event",
        ),
        ('grid = "0.1"', "grid = 1", "[mechanism]", "multiple of the grid"),
        ("[sink]", "[mechanism]\nexperiment = true\n\n[sink]", "experiment", "nobody lives"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_line(
    folder: Path, old: str, new: str, key: str, words: str
) -> None:
    """Key, line and remedy."""
    text = TEXT.replace(old, new)
    with pytest.raises(ConfigError) as refused:
        parse_config(text, folder / "tidegate.toml")
    assert words in str(refused.value)
    expected = [number for number, line in enumerate(text.splitlines(), 1) if line.startswith(key)]
    assert refused.value.line in (*expected, None if not expected else expected[0])


@pytest.mark.parametrize(
    ("start", "accepted"),
    [
        ("2026-10-25T02:00+02:00", True),
        ("2026-10-25T02:00+01:00", False),  # the clock shows it a second time
        ("2026-10-25T02:45+01:00", False),
        ("2026-10-25T03:00+01:00", True),
    ],
)
def test_secrets_are_hidden_at_their_hours_wherever_a_stream_begins(
    start: str, accepted: bool, folder: Path
) -> None:
    """On the Monday after summer time has ended noise is largest from 21:00 on; a start that cannot say it is refused."""
    text = TEXT.replace("2026-01-05T00:00", start).replace("household.toml", "classes.csv")
    text = text.replace('specifications = "classes.csv"', 'specifications = "evening.csv"')
    (folder / "evening.csv").write_text("\n".join(TABLE.splitlines()[:3]) + "\n")
    if not accepted:
        with pytest.raises(ConfigError, match="shows once"):
            parse_config(text, folder / "tidegate.toml")
        return
    config = parse_config(text, folder / "tidegate.toml")
    assert isinstance(config.mechanism, Swellfish)
    scales = config.mechanism.scales(1, 192)
    begins = [config.steps.begin(step).astimezone(ZoneInfo("Europe/Berlin")) for step in range(1, 193)]
    monday = {moment.hour: scale for moment, scale in zip(begins, scales, strict=True) if moment.day == 26}
    assert monday[21] == monday[23] > monday[20]
    assert monday[20] == monday[12]


def test_explain_says_who_is_protected_when(folder: Path) -> None:
    """From the command line, as sentences and as JSON; nothing is made."""
    before = sorted(file.name for file in folder.iterdir())
    result = CliRunner().invoke(app, ["explain", str(folder / "tidegate.toml"), "--json"])
    assert result.exit_code == 0, result.output
    sentences = json.loads(result.output)["sentences"]
    assert 'house 12: "cooking late", at most 3 for at most 45 minutes, is hidden' in " ".join(sentences)
    assert "every weekday 21:00-24:00" in " ".join(sentences)
    assert (
        '"somebody is at home", at most 0.5 for at most 1 hour, is hidden at all times, with ε = 1'
        in " ".join(sentences)
    )
    assert sorted(file.name for file in folder.iterdir()) == before
    assert CliRunner().invoke(app, ["explain", str(folder / "tidegate.toml")]).exit_code == 0


def test_explain_knows_the_other_policies_too() -> None:
    """Windows, users, records, several queries, conditions and answers."""
    text = EXAMPLE.replace("[protect]", "where = 'device != 7'\nmost = 3\n\n[protect]")
    text += '\n[[answer]]\nname = "day"\nkind = "average"\n'
    found = " ".join(explain(parse_queries(text)))
    for words in (
        "Every hour, the number of devices in Library, Cafeteria is published with noise",
        "Only records count of which `device` != 7 holds.",
        "a device counts at most 3 times",
        "Protected is any device, any 24 hours, with ε = 1.",
        "a factor of 2.7 at most",
        "one device, a week: ε = 7",
        "day is computed; that costs nothing.",
        "We assume that steps close by a public clock",
    ):
        assert words in found, words
    several = " ".join(explain(parse_queries(SEVERAL)))
    assert "3 statistics are published under one budget of ε = 1" in several
    assert "revenue: every hour, the sum of amount" in several
    assert "Its part of the budget is 0.5." in several
    records = " ".join(
        explain(parse_queries(EXAMPLE.replace('unit = "device"\n', "").replace('"distinct"', '"count"')))
    )
    assert "each record is protected by itself" in records
