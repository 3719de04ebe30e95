"""Names, numbers and times that some part could stumble over: the right output, or one clear sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from tests.runtime.helpers import release, settings

from tidegate.cli import main
from tidegate.config.errors import ConfigError
from tidegate.errors import InvalidParameter
from tidegate.exact import exact

ODD = [
    "revision",
    "column",
    "[/b]",
    "$\\frac$",
    "[bold]x",
    "value",
    "low",
    "a/b\tc",
    "x" * 200,
    "Zürich 🚲",
    "__class__",
]


@pytest.mark.parametrize("layout", ["wide", "long"])
@pytest.mark.parametrize("name", ["out.csv", "out.jsonl", "out.parquet", "parts/"])
def test_columns_may_have_odd_names(tmp_path: Path, name: str, layout: str) -> None:
    """Every sink and the report; a Parquet file has numbers under every label."""
    labels = ", ".join('"' + label.replace("\\", "\\\\").replace("\t", "\\t") + '"' for label in ODD)
    settings(
        tmp_path,
        ('"north", "south"', f'{labels}, "north"'),
        (f'location = "{tmp_path}/out.csv"', f'location = "{tmp_path}/{name}"\nlayout = "{layout}"'),
    )
    report = ["--report", str(tmp_path / "report.html")] if (name, layout) == ("out.csv", "wide") else []
    assert main(["release", str(tmp_path / "tidegate.toml"), *report]) == 0
    assert main(["ledger", "show", str(tmp_path / "tidegate.ledger")]) == 0
    if name in ("out.parquet", "parts/"):
        place = tmp_path / name
        frame = pl.read_parquet(place if place.is_file() else place / "*.parquet")
        numbers = ODD if layout == "wide" else ["value"]
        assert {frame[label].dtype for label in numbers} == {pl.Float64()}


@pytest.mark.parametrize("taken", ["time", "step", "status", "scale", "spent", "north low"])
def test_reserved_names_are_one_sentence(
    tmp_path: Path, taken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the wide layout only; the sentence names the layout that has room for them."""
    settings(tmp_path, ('"south"', f'"{taken}"'))
    assert main(["release", str(tmp_path / "tidegate.toml")]) == 2
    shown = capsys.readouterr().err
    assert taken in shown
    assert 'layout = "long"' in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize("number", ["1e999999999", "1e-999999999", "1E+0099999", "9" * 5000])
def test_endless_numbers_are_refused_at_once(tmp_path: Path, number: str) -> None:
    """Before anything is computed with them."""
    with pytest.raises(InvalidParameter, match="1000 digits"):
        exact("epsilon", number)
    with pytest.raises(ConfigError, match=r"line \d+: epsilon="):
        settings(tmp_path, ('epsilon = "1"', f'epsilon = "{number}"'))
    assert exact("epsilon", "1e-6") * 10**6 == 1


def test_years_that_no_calendar_has_are_refused(tmp_path: Path) -> None:
    """A stream whose last step nobody could write down."""
    with pytest.raises(ConfigError, match="before the year 9999"):
        settings(tmp_path, ("count = 12", "count = 99999999"))


LIMITED = """
import resource, sys
from tidegate.cli import main
from tidegate.sinks import parquet

write = parquet.write_parquet

def limited(*arguments, **more):  # only the sink's files, not the ledger's
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    try:
        return write(*arguments, **more)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

parquet.write_parquet = limited
sys.exit(main(["release", sys.argv[1]]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["out.parquet", "parts/"])
def test_parquet_files_that_may_not_grow(tmp_path: Path, name: str) -> None:
    """A real limit of the system on the size of files: one sentence, no rest, and at the next start all is there."""
    config = settings(tmp_path, (f"{tmp_path}/out.csv", f"{tmp_path}/{name}"), ("count = 12", "count = 4000"))
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "tidegate.toml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert "cannot be written (File too large); nothing is lost" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("*.tmp"))
    assert release(config).step == 4000
    place = tmp_path / name
    assert pl.read_parquet(place if place.is_file() else place / "*.parquet").height == 4000
