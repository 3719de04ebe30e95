"""No file that is written is one that is read, or another that is written: the configuration and every command."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tidegate.cli import main
from tidegate.config import ConfigError, parse_queries, read_queries
from tidegate.config.file_conflicts import check_output
from tidegate.errors import InvalidParameter

SOURCE = '[source]\nlocation = "ev.csv"\ntime = "time"\nunit = "who"\ncolumn = "where"\n'
STEPS = '[steps]\nstart = "2026-03-02T00:00"\nlength = "1h"\ncount = 4\n'
QUERY = '{header}\naggregate = "count"\nhierarchy = "tree.csv"\nlookup = "lookup.csv"\n'
OTHER = '[[query]]\nname = "second"\naggregate = "count"\ncolumns = ["a"]\nshare = "1/4"\n'
PROTECT = '[protect]\nepsilon = "1"\nwindow = 2\n'
READ = ("ev.csv", "tree.csv", "lookup.csv", "st.toml", "st.geojson", "st.alarms.toml", "st.key")
KEPT = ("st.ledger", "st.ledger-wal", "st.ledger.lock", "st.tuned.ledger", "st.hooks.json", "st.spool")
# the sections that can name a file to be written, and what they write besides
WRITERS: dict[str, Callable[[str], str]] = {
    "status": lambda name: f'[sink]\nlocation = "out.csv"\n[run]\nstatus = "{name}"\n',
    "archives": lambda name: f'[sink]\nlocation = "out.csv"\n[run]\narchives = "{name}"\n',
    "receipt": lambda name: f'[sink]\nlocation = "out.csv"\nreceipt = "{name}"\n',
    "sink": lambda name: f'[sink]\nlocation = "{name}"\nformat = "csv"\n',
    "answer": lambda name: (
        f'[sink]\nlocation = "out.csv"\n[[answer]]\nname = "x"\nkind = "average"\nlocation = "{name}"\n'
    ),
    "ledger": lambda name: f'ledger = "{name}"\n[sink]\nlocation = "out.csv"\n',
}


def text_of(rest: str, *, query: str = "[query]", more: str = "") -> str:
    """A configuration that reads a source, a lookup and a hierarchy; `rest` follows [protect]."""
    return SOURCE + STEPS + QUERY.format(header=query) + more + PROTECT + rest


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with everything that is read."""
    (tmp_path / "ev.csv").write_text("time,who,where\n2026-03-02T00:10,a,x\n2026-03-02T01:10,b,y\n")
    (tmp_path / "lookup.csv").write_text("code,place\nx,a\ny,b\n")
    (tmp_path / "tree.csv").write_text("child,parent\na,all\nb,all\n")
    return tmp_path


@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_that_is_written_is_anything_else(home: Path, writer: str) -> None:
    """Every key that names an output, at every other place of the stream, by its name and by a link."""
    (home / "linked").symlink_to(home)
    taken = {*READ, *KEPT} if writer != "ledger" else {*READ, "out.csv", "out.csv.receipt", "st.hooks.json"}
    if writer not in ("sink", "ledger"):
        taken |= {"out.csv"}
    if writer in ("status", "archives"):
        taken |= {"out.csv.receipt"}
    for name in taken:
        for spelt in (name, f"../{home.name}/{name}", f"linked/{name}", str(home / name)):
            if writer == "answer" and not name.endswith(".csv"):
                continue
            with pytest.raises(ConfigError, match=r"at once|place of something else"):
                parse_queries(text_of(WRITERS[writer](spelt)), home / "st.toml")


def test_the_same_configuration_with_places_of_their_own_is_taken(home: Path) -> None:
    """Otherwise the test before shows nothing."""
    for writer, section in WRITERS.items():
        fresh = "fresh.csv" if writer != "archives" else "archives"
        assert parse_queries(text_of(section(fresh)), home / "st.toml").parts, writer


def test_a_hard_link_and_a_file_in_the_folder_that_is_read_are_refused(home: Path) -> None:
    """A status file there would be read as events."""
    os.link(home / "ev.csv", home / "other.csv")
    with pytest.raises(ConfigError, match="the status file and the source"):
        parse_queries(text_of(WRITERS["status"]("other.csv")), home / "st.toml")
    (home / "events").mkdir()
    text = text_of(WRITERS["status"]("events/status.json"))
    folder = text.replace('"ev.csv"', '"events/"')
    with pytest.raises(ConfigError, match=r"line 20: .*the status file and the source"):
        parse_queries(folder, home / "st.toml")
    only = folder.replace('time = "time"', 'time = "time"\npattern = "*.csv"')
    assert parse_queries(only, home / "st.toml").parts


def test_an_output_of_another_query_is_refused(home: Path) -> None:
    """Also its receipt."""
    own = '[[query]]\nname = "first"\nshare = "1/4"'
    for name in ("out-first.csv", "out-second.csv", "out-second.csv.receipt"):
        text = text_of(WRITERS["status"](name), query=own, more=OTHER)
        with pytest.raises(ConfigError, match="at once"):
            parse_queries(text, home / "st.toml")


def test_reports_and_cards_are_refused_before_anything_is_charged(home: Path) -> None:
    """Also at a place where nothing is yet, and both at one."""
    file = home / "st.toml"
    file.write_text(text_of(WRITERS["status"]("status.json")))
    for name in (*READ, *KEPT, "out.csv", "out.csv.receipt", "status.json"):
        with pytest.raises(InvalidParameter, match="of its own"):
            check_output("report", home / name, read_queries(file).parts)
        for option in ("--report", "--card"):
            assert main(["release", str(file), option, str(home / name)]) == 2
        assert main(["preview", str(file), "--level", "5", "--report", str(home / name)]) == 2
    both = str(home / "both")
    assert main(["release", str(file), "--report", both, "--card", both]) == 2
    assert not (home / "st.ledger").exists()


def test_other_commands_replace_nothing_else(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`init`, `plan`, `audit`, `bench` and `datasets` with a file that holds something else."""
    data, before = str(home / "ev.csv"), (home / "ev.csv").read_bytes()
    (home / "compared.csv").write_text("a\n1\n2\n")
    (home / "events.csv").write_text("mine\n")
    commands = [
        [
            "init",
            data,
            "--out",
            data,
            "--unit",
            "who",
            "--yes",
            "--force",
            "--start",
            "2026-03-02",
            "--count",
            "9",
        ],
        ["audit", "Uniform", "--save", data],
        ["bench", str(home / "compared.csv"), "--out", str(home)],
        ["datasets", "make", "campus", "--out", str(home), "--weeks", "1", "--devices", "10"],
    ]
    for command in commands:
        assert main(command) in (1, 2), command
        assert "name another" in (said := capsys.readouterr().err) or "of its own" in said, (command, said)
    assert (home / "ev.csv").read_bytes() == before
    assert (home / "events.csv").read_text() == "mine\n"
    assert (home / "compared.csv").read_text() == "a\n1\n2\n"
    assert not list(home.glob("*.toml"))
