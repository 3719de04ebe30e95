"""Copies of a ledger: made while it is written, put back only where nothing that was spent is forgotten."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime.helpers import release, settings

import tidegate as tg
from tidegate.cli import main
from tidegate.errors import InvalidParameter, LedgerCorrupt, LedgerError
from tidegate.ledger import SQLiteLedger
from tidegate.runtime.copies import back_up, restore
from tidegate.runtime.errors import AnotherStream, LedgerIsOlder
from tidegate.runtime.heads import Head, check_head, read_head
from tidegate.runtime.store import open_durable, verify_target

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operation.md"


def steps(folder: Path, count: int) -> Any:
    """A stream of so many steps; more of them at a later call."""
    return settings(folder, ("count = 12", f"count = {count}"))


def names(folder: Path) -> set[str]:
    """What is in a folder, hidden files included."""
    return {path.name for path in folder.iterdir()}


def test_a_copy_of_a_live_ledger_has_what_its_log_holds(tmp_path: Path) -> None:
    """The plain copy of the file lacks the last charges; the backup has them, and every copy verifies."""
    mechanism = tg.mechanisms.Uniform(tg.WEvent(epsilon="1", w=24))
    with tg.open(mechanism, tmp_path / "live.ledger") as run:
        for count in range(30):
            run.push(count)
        shutil.copy(tmp_path / "live.ledger", tmp_path / "plain")
        copied = back_up(str(tmp_path / "live.ledger"), tmp_path / "copy")
        run.push(31)
        assert verify_target(tmp_path / "plain").steps < 30
        assert (copied.head.rows, copied.verdict.steps, copied.verdict.releases) == (30, 30, 30)
        assert run.step == 31
    assert names(tmp_path) == {"live.ledger", "live.ledger.lock", "plain", "copy"} | {
        name for name in names(tmp_path) if name.startswith("plain-")
    }
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600
    with tg.open(mechanism, tmp_path / "copy") as run:
        assert run.step == 30
        run.push(1)


@pytest.mark.slow
def test_copies_are_consistent_while_a_writer_goes_on(tmp_path: Path) -> None:
    """Twenty copies beside a thread that commits all the time; each is a sound beginning of the account."""
    mechanism = tg.mechanisms.Uniform(tg.WEvent(epsilon="1", w=24))
    with tg.open(mechanism, tmp_path / "live.ledger") as run:
        run.push(1)
        ended = threading.Event()

        def write() -> None:
            while not ended.is_set():
                run.push_batch(np.ones((3, 1)))

        thread = threading.Thread(target=write)
        thread.start()
        try:
            copies = []
            for number in range(20):
                copies.append(back_up(str(tmp_path / "live.ledger"), tmp_path / f"copy-{number}"))
                while thread.is_alive() and run.step < 3 * number:  # a busy machine may let it wait
                    time.sleep(0.001)
        finally:
            ended.set()
            thread.join()
        with open_durable(tmp_path / "live.ledger", read_only=True) as ledger:
            rows = [check_head(ledger, copy.head) for copy in copies]
    assert rows == sorted(rows, reverse=True)
    assert len(set(rows)) > 1


def test_copies_in_a_folder_are_named_by_their_last_row(tmp_path: Path) -> None:
    """A second call without new charges writes nothing; a new charge gives a second copy."""
    release(steps(tmp_path, 6))
    place = tmp_path / "backups"
    place.mkdir()
    first = back_up(str(tmp_path / "tidegate.ledger"), place)
    again = back_up(str(tmp_path / "tidegate.ledger"), place)
    assert (first.made, again.made, again.path) == (True, False, first.path)
    release(steps(tmp_path, 9))
    second = back_up(str(tmp_path / "tidegate.ledger"), place)
    assert names(place) == {first.path.name, second.path.name}
    assert sorted(names(place)) == [first.path.name, second.path.name]


def test_a_copy_is_put_back_and_the_stream_goes_on(tmp_path: Path) -> None:
    """The output is the one of an uninterrupted stream: nothing comes twice and nothing is refused."""
    release(steps(tmp_path, 6))
    before = (tmp_path / "out.csv").read_bytes()
    back_up(str(tmp_path / "tidegate.ledger"), tmp_path / "copy")
    for path in tmp_path.glob("tidegate.ledger*"):
        path.unlink()
    receipt = read_head(str(tmp_path / "out.csv.receipt"))
    assert receipt.step == 6
    restore(tmp_path / "copy", tmp_path / "tidegate.ledger", [receipt])
    assert release(steps(tmp_path, 12)).step == 12
    assert (tmp_path / "out.csv").read_bytes().startswith(before)


def test_an_older_copy_is_refused_with_what_is_lost(tmp_path: Path) -> None:
    """By a receipt, by a written head and by another stream's head; nothing is left where it would have gone."""
    release(steps(tmp_path, 6))
    back_up(str(tmp_path / "tidegate.ledger"), tmp_path / "copy")
    release(steps(tmp_path, 9))
    with SQLiteLedger(tmp_path / "tidegate.ledger", read_only=True) as ledger:
        kept = f"{ledger.head[0]}:{ledger.head[1]}"
    before = names(tmp_path)
    for head in (str(tmp_path / "out.csv.receipt"), kept):
        with pytest.raises(LedgerIsOlder, match=r"ends at row 1, step 6.*1 row of charges.*--begin-anew"):
            restore(tmp_path / "copy", tmp_path / "elsewhere", [read_head(head)])
    with pytest.raises(LedgerIsOlder, match="3 steps that were released up to step 9"):
        restore(tmp_path / "copy", tmp_path / "elsewhere", [read_head(str(tmp_path / "out.csv.receipt"))])
    with pytest.raises(LedgerIsOlder, match="the two have parted"):
        restore(tmp_path / "copy", tmp_path / "elsewhere", [Head(1, "0" * 64)])
    with pytest.raises(AnotherStream, match="belongs to another ledger"):
        restore(tmp_path / "copy", tmp_path / "elsewhere", [Head(1, "0" * 64, "another")])
    assert names(tmp_path) == before


def test_a_copy_is_not_gone_on_with_while_nobody_knows_whether_it_is_the_newest(tmp_path: Path) -> None:
    """A receipt that was moved away with the lost ledger must come back, or a head be given."""
    release(steps(tmp_path, 6))
    back_up(str(tmp_path / "tidegate.ledger"), tmp_path / "older")
    release(steps(tmp_path, 9))
    back_up(str(tmp_path / "tidegate.ledger"), tmp_path / "newest")
    receipt, ledger = tmp_path / "out.csv.receipt", tmp_path / "tidegate.ledger"

    def put_back(name: str, *heads: Head) -> None:
        for path in tmp_path.glob("tidegate.ledger*"):
            path.unlink()
        restore(tmp_path / name, ledger, heads)

    receipt.rename(tmp_path / "lost")
    for name in ("older", "newest"):
        put_back(name)
        for _ in range(2):
            with pytest.raises(LedgerIsOlder, match=r"receipt .* is missing; put the receipt back"):
                release(steps(tmp_path, 12))
    (tmp_path / "lost").rename(receipt)
    assert release(steps(tmp_path, 9)).step == 9
    receipt.unlink()  # a ledger that was compared is like any other
    assert release(steps(tmp_path, 12)).step == 12


@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal"])
def test_nothing_is_written_over(tmp_path: Path, ending: str) -> None:
    """Neither a ledger nor the log of one, which SQLite would apply to the copy."""
    release(steps(tmp_path, 6))
    back_up(str(tmp_path / "tidegate.ledger"), tmp_path / "copy")
    taken = tmp_path / f"place{ending}"
    taken.write_bytes(b"something")
    with pytest.raises(InvalidParameter, match=re.escape(str(taken))):
        restore(tmp_path / "copy", tmp_path / "place")
    with pytest.raises(InvalidParameter, match=re.escape(str(taken))):
        back_up(str(tmp_path / "tidegate.ledger"), tmp_path / "place")
    assert taken.read_bytes() == b"something"


def test_a_damaged_ledger_is_not_copied_and_a_damaged_copy_not_put_back(tmp_path: Path) -> None:
    """A release that was changed is found before the copy has a name."""
    release(steps(tmp_path, 6))
    shutil.copy(tmp_path / "tidegate.ledger", tmp_path / "bad")
    with sqlite3.connect(tmp_path / "bad") as connection:
        connection.execute("UPDATE links SET rows = 77")
    connection.close()
    before = names(tmp_path)
    with pytest.raises(LedgerCorrupt, match="no copy of it was made"):
        back_up(str(tmp_path / "bad"), tmp_path / "copy")
    with pytest.raises(LedgerCorrupt):
        restore(tmp_path / "bad", tmp_path / "place")
    assert names(tmp_path) == before


def test_a_planted_name_is_not_followed(tmp_path: Path) -> None:
    """A link that dangles where the copy goes is taken for something that is there."""
    release(steps(tmp_path, 6))
    (tmp_path / "copy").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidParameter):
        back_up(str(tmp_path / "tidegate.ledger"), tmp_path / "copy")
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_for_copies_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What ends with / is a folder from the first copy on, as the help has it, and the second copy goes there too."""
    ledger, folder = str(tmp_path / "tidegate.ledger"), tmp_path / "kept" / "copies"
    for count in (3, 6):
        release(steps(tmp_path, count))
        assert main(["ledger", "backup", ledger, f"{folder}/"]) == 0
    assert len([path for path in folder.iterdir() if path.suffix == ".ledger"]) == 2
    assert folder.stat().st_mode & 0o077 == 0
    capsys.readouterr()


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Backup, head, verify and restore from the command line; a rollback ends with exit code 1 or 2."""
    release(steps(tmp_path, 6))
    ledger, copy = str(tmp_path / "tidegate.ledger"), str(tmp_path / "copy")
    assert main(["ledger", "backup", ledger, copy]) == 0
    assert "backed up" in capsys.readouterr().out
    assert main(["ledger", "head", ledger]) == 0
    old = capsys.readouterr().out.strip()
    release(steps(tmp_path, 9))
    receipt = str(tmp_path / "out.csv.receipt")
    assert main(["ledger", "verify", ledger, "--head", old, "--head", receipt, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["heads_compared"] == 2
    assert main(["ledger", "verify", copy, "--head", receipt]) == 1
    assert "NOT verified" in capsys.readouterr().out
    assert main(["ledger", "restore", copy, str(tmp_path / "new"), "--head", receipt]) == 2
    assert "3 steps that were released" in capsys.readouterr().err
    assert main(["ledger", "verify", copy, "--head", "nonsense"]) == 2
    assert main(["ledger", "restore", copy, str(tmp_path / "new"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == 6
    account = tmp_path / "account.json"
    with SQLiteLedger(ledger, read_only=True) as opened:
        rows, digest = opened.head
        account.write_text(json.dumps({"rows": rows, "head": digest, "genesis": opened.identity * 2}))
    assert main(["ledger", "verify", ledger, "--head", str(account)]) == 0
    assert main(["ledger", "verify", copy, "--head", str(account)]) == 1


@pytest.mark.slow
def test_the_drill_of_the_page(tmp_path: Path) -> None:
    """Its lines run as they are printed, and the output goes on."""
    settings(tmp_path, (f'location = "{tmp_path}/out.csv"', 'location = "released.csv"'))
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "tidegate"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tidegate "$@"\n')
    program.chmod(0o755)
    drill = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(drill) == 1
    script = "set -euo pipefail\ntidegate release tidegate.toml\n" + drill[0]
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing new: all 12 steps" in done.stdout
    assert len((tmp_path / "released.csv").read_text().splitlines()) == 13


def test_postgresql_is_copied_by_its_own_tools(tmp_path: Path, postgres: Any) -> None:
    """The sentence names them; what pg_dump has written and psql read again verifies, and an older dump is found."""
    url = postgres.new_stream()
    with pytest.raises(LedgerError, match="pg_dump --schema=stream_"):
        back_up(url, tmp_path / "copy")
    name, address = url.partition("#")[2], url.partition("#")[0]

    def stream(count: int) -> Any:
        return settings(
            tmp_path, ("count = 12", f"count = {count}"), ("window = 4", f'window = 4\nledger = "{url}"')
        )

    def tool(program: str, *arguments: str, text: str | None = None) -> str:
        command = [str(postgres.programs / program), *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout

    release(stream(6))
    old = tool("pg_dump", f"--schema={name}", address)
    release(stream(9))
    receipt = str(tmp_path / "out.csv.receipt")
    new = tool("pg_dump", f"--schema={name}", address)
    for dump, code in ((old, 1), (new, 0)):
        tool("psql", "-q", address, text=f"DROP SCHEMA {name} CASCADE")
        tool("psql", "-q", "--set=ON_ERROR_STOP=1", "--single-transaction", address, text=dump)
        assert main(["ledger", "verify", url, "--head", receipt]) == code
    assert release(stream(12)).step == 12
