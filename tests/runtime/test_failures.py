"""Full disks, folders that cannot be written, and what must never be in any output."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.helpers import open_one, release, settings, verified, write_events

from tidegate.cli import main
from tidegate.pipeline.errors import LogUnavailable
from tidegate.sinks.errors import SinkError

Mount = Callable[[str], Path]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mounts a small file system of its own; skips where that is not allowed."""
    made = []

    def mounted(options: str) -> Path:
        place = tmp_path / f"small{len(made)}"
        place.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, check=False
        )
        if os.getuid() != 0 or done.returncode != 0:
            pytest.skip("a small file system cannot be mounted here; run the tests as root to see this one.")
        made.append(place)
        return place

    yield mounted
    for place in made:
        subprocess.run(["umount", str(place)], check=True)


def test_full_disk_of_the_ledger(tmp_path: Path, mount: Mount) -> None:
    """One sentence, nothing is lost: with more room the stream continues and ends as it should."""
    small = mount("size=256k")
    change = ("window = 4", f'window = 4\nledger = "{small}/stream.ledger"')
    config = settings(tmp_path, change, ("count = 12", "count = 100000"), ('length = "1h"', 'length = "1s"'))
    with pytest.raises(LogUnavailable, match=r"stream\.ledger cannot be (written|used) .*full"):
        release(config)
    part = (tmp_path / "out.csv").read_bytes()  # blocks that were committed before
    subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
    release(config)
    assert (tmp_path / "out.csv").read_bytes().startswith(part)
    assert len((tmp_path / "out.csv").read_bytes().splitlines()) == 100_001
    assert verified(config.ledger).ok


@pytest.mark.slow
def test_every_size_of_a_full_disk(tmp_path: Path, mount: Mount) -> None:
    """Wherever the log finds the disk full, it says so in one sentence, and with more room everything is released."""
    small = mount("size=600k")
    change = ("window = 4", f'window = 4\nledger = "{small}/stream.ledger"')
    said = set()
    for left in (*range(40, 300, 20), 110, 130):
        for path in (*small.iterdir(), *tmp_path.glob("out.csv*")):
            path.unlink()
        config = settings(tmp_path, change, ("count = 12", "count = 160"), ('"Uniform"', '"Tide"'))
        (small / "filler").write_bytes(bytes((600 - left) * 1024))
        try:
            release(config)
        except LogUnavailable as error:
            said.add(str(error).partition("; ")[2])
        (small / "filler").unlink()
        release(config)
        assert len((tmp_path / "out.csv").read_bytes().splitlines()) == 161
        assert verified(config.ledger).ok
    assert len(said) >= 3


def test_full_disk_of_the_sink(tmp_path: Path, mount: Mount) -> None:
    """What was committed is sent at the next start, after the half line that the full disk has left."""
    small = mount("size=64k")
    config = settings(tmp_path, (f"{tmp_path}/out.csv", f"{small}/out.csv"), ("count = 12", "count = 3000"))
    with pytest.raises(SinkError, match=r"No space left on device.*nothing is lost"):
        release(config)
    part = (small / "out.csv").read_bytes()
    assert verified(config.ledger).step % 1000 == 0
    subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
    release(config)
    whole = (small / "out.csv").read_bytes()
    assert whole.startswith(part)
    assert len(whole.splitlines()) == 3001


def test_read_only_folders(tmp_path: Path, mount: Mount) -> None:
    """Of the sink and of the ledger: one sentence that names the file."""
    small = mount("size=1m")
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    with pytest.raises(SinkError, match=r"out.csv cannot be written \(Read-only file system\)"):
        open_one(settings(tmp_path, (f"{tmp_path}/out.csv", f"{small}/out.csv")))
    assert not (tmp_path / "tidegate.ledger").exists()
    change = ("window = 4", f'window = 4\nledger = "{small}/stream.ledger"')
    with pytest.raises(LogUnavailable, match=r"stream\.ledger"):
        open_one(settings(tmp_path, change))


def test_a_device_is_no_sink(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command says one line and ends with 2; the next start delivers elsewhere."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full.")
    device = ('location = "/dev/full"', 'location = "/dev/full"\nformat = "csv"')
    settings(tmp_path, (f"{tmp_path}/out.csv", "/dev/full"), device)
    assert main(["release", str(tmp_path / "tidegate.toml")]) == 2
    shown = capsys.readouterr().err
    assert "/dev/full is not a regular file" in shown
    assert Path("/dev/full").is_char_device()
    assert shown.count("\n") == 1
    settings(tmp_path)
    assert main(["release", str(tmp_path / "tidegate.toml")]) == 0


# a test greps all outputs -----------------------------------------------------------------------------------

UNITS = [f"walrus{number:03d}zq" for number in range(40)]
PLACES = ("north", "south")
SECRET_PLACE = "basilisk-cellar"  # a category that is not public
HOURS = 12


def marked_events(folder: Path) -> dict[str, str]:
    """Events whose ids, times, values and dropped categories can be recognised; and what to search for."""
    lines = ["time,unit,place,value"]
    for hour in range(HOURS):
        for number, unit in enumerate(UNITS):
            place = SECRET_PLACE if number % 10 == 9 else PLACES[number % 2]
            lines.append(f"2026-03-02T{hour:02d}:{number:02d}:37,{unit},{place},{7777001 + 13 * number}")
    lines += [f"2031-01-01T00:00:00,{UNITS[0]},north,5"] * 31_337  # dropped: after the end
    (folder / "events.csv").write_text("\n".join(lines) + "\n")
    return {
        "unit": r"walrus\d{3}zq",
        "value": r"(?<![\d.])7777\d{3}(?!\d)",  # alone: longer numbers of noise hold any four digits now and then
        "category": "basilisk",
        "time": r":\d\d:37\b",
        "number of dropped": r"(?<![\d.,_])31[,_]?3(?:37|85)(?!\d)",
    }


def texts(folder: Path) -> Iterator[tuple[str, str]]:
    """All files of a run but its input, as text."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in ("events.csv", "tidegate.toml"):
            yield path.name, path.read_bytes().decode("latin-1")


@pytest.mark.parametrize("mechanism", ["Uniform", "BudgetAbsorption", "PeGaSus"])
@pytest.mark.parametrize("aggregate", ["distinct", "sum"])
def test_no_mark_in_any_output(
    mechanism: str,
    aggregate: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Ids, values, categories, times and counts of dropped records: in no file, report, state, log or message."""
    caplog.set_level(logging.DEBUG)
    marks = marked_events(tmp_path)
    query = 'aggregate = "sum"\nclip = ["0", "8000000"]' if aggregate == "sum" else 'aggregate = "distinct"'
    changes = (
        ('aggregate = "distinct"', query),
        ('column = "place"', 'column = "place"\nvalue = "value"'),
        ('name = "Uniform"', f'name = "{mechanism}"'),
    )
    settings(tmp_path, *changes)
    toml = str(tmp_path / "tidegate.toml")
    assert main(["release", toml, "--report", str(tmp_path / "report.html")]) == 0
    assert main(["release", toml, "--json"]) == 0
    assert main(["ledger", "show", str(tmp_path / "tidegate.ledger")]) == 0
    assert main(["ledger", "verify", str(tmp_path / "tidegate.ledger"), "--json"]) == 0
    # a refused input: the same file with a bad record in its midst
    bad = (tmp_path / "events.csv").read_text().replace("2026-03-02T05:00:37", "the5th:37", 1)
    (tmp_path / "events.csv").write_text(bad)
    settings(
        tmp_path,
        *changes,
        (f"{tmp_path}/out.csv", f"{tmp_path}/again.csv"),
        ("window = 4", 'window = 4\nledger = "again.ledger"'),
    )
    assert main(["release", toml]) == 2
    shown = capfd.readouterr()
    outputs = [("stdout", shown.out), ("stderr", shown.err), ("log", caplog.text), *texts(tmp_path)]
    assert {name for name, _ in outputs} >= {"out.csv", "report.html", "tidegate.ledger"}
    assert not list(tmp_path.glob("again*"))  # a refused start leaves nothing at all
    found = [
        (where, what) for where, text in outputs for what, mark in marks.items() if re.search(mark, text)
    ]
    assert found == []


def test_the_search_for_marks_finds_them(tmp_path: Path) -> None:
    """The negative control: the curator's comparison does show true values, and says that it must stay inside."""
    write_events(tmp_path)
    settings(tmp_path)
    report = tmp_path / "inside.html"
    toml = str(tmp_path / "tidegate.toml")
    assert main(["release", toml, "--report", str(report), "--compare-truth"]) == 0
    text = report.read_text()
    assert "Not for publication" in text
    assert "<title>NOT FOR PUBLICATION" in text
    assert (report.stat().st_mode & 0o777) == 0o600
    assert re.search(r"<td>north<td>3\.0<td>", text)  # the true mean of the north
    public = tmp_path / "report.html"
    assert main(["release", toml, "--report", str(public)]) == 0
    assert "Not for publication" not in public.read_text()


@pytest.mark.slow
def test_an_unexpected_error_shows_no_record(tmp_path: Path) -> None:
    """A process of its own that fails inside of the loop: neither traceback nor data on stderr."""
    marked_events(tmp_path)
    settings(tmp_path)
    code = (
        "import sys, tidegate.pipeline.pipeline as s\n"
        "def broken(self, edition, blocks, part): raise KeyError(repr(blocks[0].units.tolist()))\n"
        "s.Pipeline.stage = broken\n"
        "from tidegate.cli import main\n"
        f"sys.exit(main(['release', {str(tmp_path / 'tidegate.toml')!r}]))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TIDEGATE_TRACEBACK"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 1
    assert (
        done.stderr == "tidegate: unexpected KeyError; set TIDEGATE_TRACEBACK=1 to see where it came from.\n"
    )
    shutil.rmtree(tmp_path)


def test_nobody_else_can_read_a_file_that_a_stream_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ledger, side files, locks and temporary files are private from the moment they are made."""
    config = settings(tmp_path)
    seen: dict[str, int] = {}

    def look() -> None:
        for path in tmp_path.iterdir():
            if path.name not in ("events.csv", "tidegate.toml", "out.csv"):
                seen[path.name] = seen.get(path.name, 0) | path.stat().st_mode & 0o777

    opened = sqlite3.connect

    def connect(*arguments: Any, **more: Any) -> sqlite3.Connection:
        look()
        connection: sqlite3.Connection = opened(*arguments, **more)
        look()
        connection.set_trace_callback(lambda _statement: look())
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect)
    before = os.umask(0)
    try:
        release(config)
    finally:
        os.umask(before)
    assert {f"tidegate.ledger{side}" for side in ("", "-wal", "-shm", ".lock")} <= set(seen)
    assert {name: mode for name, mode in seen.items() if mode & 0o077} == {}
