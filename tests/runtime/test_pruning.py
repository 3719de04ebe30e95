"""Pruning: an archive has what the ledger forgets, both verify, and everything goes on as if nothing had happened."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime.helpers import release, settings, write_events
from tests.runtime.test_editions import edited as with_editions
from tests.runtime.test_editions import released as released_editions
from tests.runtime.test_editions import until
from tests.runtime.test_queries import edited, shop

import tidegate as tg
from tidegate.cli import main
from tidegate.config.queries import one
from tidegate.errors import InvalidParameter, LedgerCorrupt, LedgerError, LedgerMismatch
from tidegate.ledger import SQLiteLedger
from tidegate.ledger.amendments import add_specification, specifications_of, withdraw_specification
from tidegate.policy import Secret, Specification
from tidegate.runtime import pruning
from tidegate.runtime.copies import back_up, restore
from tidegate.runtime.heads import Head, check_head, head_of
from tidegate.runtime.pruning import verify_archives
from tidegate.runtime.store import open_durable, open_store, verify_target
from tidegate.runtime.stream import Stream
from tidegate.runtime.streams import prune_streams
from tidegate.testing import fixed_entropy

POLICY = tg.WEvent(epsilon="1", w=6)
HOME = Secret(1, 1, "always", "1", "home")
HOUSES = tg.Swellfish(
    specifications=[Specification((HOME, Secret(4, 3, "always", "1/2", "oven")), "house")], longest=5
)
MECHANISMS = {
    "Uniform": lambda: tg.mechanisms.Uniform(POLICY, columns=2),
    "BudgetAbsorption": lambda: tg.mechanisms.BudgetAbsorption(POLICY, columns=2),
    "BudgetDistribution": lambda: tg.mechanisms.BudgetDistribution(POLICY, columns=2),
    "Sample": lambda: tg.mechanisms.Sample(POLICY, columns=2),
    "SlidingWindowTree": lambda: tg.mechanisms.SlidingWindowTree(POLICY, columns=2),
    "OptStream": lambda: tg.mechanisms.OptStream(POLICY, columns=2, samples=2),
    "Tide": lambda: tg.mechanisms.Tide(POLICY, columns=2),
    "Swellfish": lambda: tg.mechanisms.Swellfish(HOUSES, columns=2),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is spared for sinks, so that short streams can be pruned."""
    monkeypatch.setattr(pruning, "SPARE", 0)


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_pruned_run_releases_what_a_whole_one_would(tmp_path: Path, name: str) -> None:
    """With fixed noise, bit for bit; restarts and prunes at many places; archives and ledger are one account."""
    values = np.arange(120).reshape(60, 2) % 7
    (tmp_path / "archives").mkdir()
    with fixed_entropy("pruning"):
        with tg.open(MECHANISMS[name](), tmp_path / "whole.ledger") as run:
            whole = [run.push(row) for row in values]
        pruned = []
        for start in range(0, 60, 15):
            with tg.open(MECHANISMS[name](), tmp_path / "pruned.ledger") as run:
                pruned += [run.push(row) for row in values[start : start + 15]]
                run.prune(tmp_path / "archives", keep=8)
                assert run.verify().ok
    for left, right in zip(whole, pruned, strict=True):
        np.testing.assert_array_equal(left.values, right.values)
        assert (left.step, left.status, left.units) == (right.step, right.status, right.units)
    archives = sorted((tmp_path / "archives").iterdir())
    assert len(archives) >= 2
    assert verify_archives(archives, tmp_path / "pruned.ledger") == ""
    verdict, before = verify_target(tmp_path / "pruned.ledger"), verify_target(tmp_path / "whole.ledger")
    assert verdict.ok
    assert (verdict.steps, verdict.spent, verdict.releases) == (before.steps, before.spent, before.releases)
    assert verdict.archived > 0
    assert "are in archives" in str(verdict)


def a_pruned_run(folder: Path, steps: int = 40) -> tuple[Path, list[Path]]:
    """A ledger that was pruned twice, and its archives."""
    (folder / "archives").mkdir()
    path = folder / "run.ledger"
    with tg.open(MECHANISMS["Uniform"](), path) as run:
        for _ in range(2):
            for _ in range(steps // 2):
                run.push([1, 2])
            assert run.prune(folder / "archives", keep=6) is not None
    return path, sorted((folder / "archives").iterdir())


@pytest.mark.slow
def test_the_file_stays_as_small_as_it_is(tmp_path: Path) -> None:
    """Rows, links and releases of 40 rounds of 50 steps: no more than after the third."""
    (tmp_path / "archives").mkdir()
    with tg.open(MECHANISMS["Uniform"](), tmp_path / "run.ledger") as run:
        sizes = []
        for _ in range(40):
            for _ in range(50):
                run.push([1, 2])
            run.prune(tmp_path / "archives", keep=6)
            connection = run._store.ledger.connection
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            counts = [
                connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in ("charges", "releases", "links", "revisions")
            ]
            sizes.append((sum(counts), (tmp_path / "run.ledger").stat().st_size))
        assert run.step == 2000
    assert max(count for count, _ in sizes[3:]) <= 3 * (6 + 4)
    assert max(size for _, size in sizes[3:]) <= sizes[3][1]


def test_what_is_archived_is_asked_of_the_archive(tmp_path: Path) -> None:
    """Old releases, old charges and old heads are one sentence; the archive has them, and takes nothing."""
    path, archives = a_pruned_run(tmp_path)
    with tg.open(MECHANISMS["Uniform"](), path) as run:
        kept = run.releases(since=34)
        assert kept.steps.tolist() == list(range(35, 41))
        with pytest.raises(LedgerError, match=r"up to step 34 are in archives.*since=34"):
            run.releases()
        with pytest.raises(LedgerError, match="is in an archive"):
            run.spent(1, 3)
        assert run.spent(35, 40) == 1
    with SQLiteLedger(archives[0], read_only=True) as old:
        head = Head(3, str(old.hash_of(3)))
        assert check_head(old, head) > 0
        assert old.spent(1, 3) > 0
        with (
            pytest.raises(LedgerMismatch, match="in its archives"),
            open_durable(path, read_only=True) as now,
        ):
            check_head(now, head)
    with pytest.raises(LedgerMismatch, match="is an archive"):
        tg.open(MECHANISMS["Uniform"](), archives[0])
    with pytest.raises(LedgerMismatch, match="is an archive"):
        restore(archives[0], tmp_path / "new")
    with sqlite3.connect(archives[0]) as connection:
        assert connection.execute("SELECT state, position FROM stream").fetchone() == (None, None)
    connection.close()


def test_a_backup_of_a_pruned_ledger_goes_on(tmp_path: Path) -> None:
    """It has the base as well."""
    path, archives = a_pruned_run(tmp_path)
    back_up(str(path), tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "new")
    with tg.open(MECHANISMS["Uniform"](), tmp_path / "new") as run:
        run.push([1, 2])
        assert run.verify().ok
    assert verify_archives(archives, tmp_path / "new") == ""


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE base SET account = (SELECT account FROM checkpoint)",
        "UPDATE base SET row = row + 1",
        "UPDATE base SET facts = '{}'",
        "UPDATE base SET facts = replace(facts, '\"revision\": 0', '\"revision\": 1')",
        "UPDATE base SET hash = zeroblob(32)",
        "DELETE FROM base",
        "DELETE FROM charges WHERE kind = 'prune'",
        "UPDATE links SET hash = zeroblob(32) WHERE number = (SELECT min(number) FROM links)",
    ],
)
def test_another_base_is_noticed(tmp_path: Path, change: str) -> None:
    """An account that the archived rows do not add up to would be a second budget."""
    path, _ = a_pruned_run(tmp_path)
    connection = sqlite3.connect(path)
    connection.execute(change)
    connection.commit()
    connection.close()
    assert not verify_target(path).ok
    with pytest.raises(LedgerCorrupt):
        tg.open(MECHANISMS["Uniform"](), path)


def test_a_row_that_is_gone_is_noticed_by_verify(tmp_path: Path) -> None:
    """As in a whole ledger: opening trusts its checkpoint, and verify replays every row that must be there."""
    path, archives = a_pruned_run(tmp_path)
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM charges WHERE row = (SELECT min(row) FROM charges)")
    connection.commit()
    connection.close()
    assert "is missing" in verify_target(path).problem
    assert "is missing" in verify_archives(archives, path)


def test_a_missing_or_another_archive_is_noticed(tmp_path: Path) -> None:
    """The account must be whole from its first row."""
    path, archives = a_pruned_run(tmp_path)
    assert verify_archives(archives, path) == ""
    assert "in no archive" in verify_archives(archives[1:], path)
    assert "are missing" in verify_archives(archives[:1], path)
    (tmp_path / "other").mkdir()
    other, its = a_pruned_run(tmp_path / "other")
    assert "does not go on" in verify_archives([its[0], archives[1]], path)
    assert verify_archives(archives, other) != ""


def test_a_crash_between_archive_and_ledger_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive is there, the ledger is whole, and the next attempt takes the same archive."""
    (tmp_path / "archives").mkdir()
    with tg.open(MECHANISMS["Uniform"](), tmp_path / "run.ledger") as run:
        for _ in range(30):
            run.push([1, 2])
        with monkeypatch.context() as broken:
            broken.setattr(pruning.Store, "forget", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run.prune(tmp_path / "archives", keep=6)
        assert run.push([1, 2]).step == 31
        assert len(run.releases().steps) == 31
    shutil.rmtree(tmp_path / "archives")
    (tmp_path / "archives").mkdir()
    with tg.open(MECHANISMS["Uniform"](), tmp_path / "run.ledger") as run, monkeypatch.context() as broken:
        broken.setattr(pruning.Store, "forget", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run.prune(tmp_path / "archives", keep=6)
    with tg.open(MECHANISMS["Uniform"](), tmp_path / "run.ledger") as run:
        moved = run.prune(tmp_path / "archives", keep=6)
        assert moved is not None
        assert not moved.archive.made
    assert verify_archives([moved.archive.path], tmp_path / "run.ledger") == ""


def test_an_archive_of_an_interrupted_pruning_is_a_beginning_of_the_next(tmp_path: Path) -> None:
    """Steps came in between, so that both begin alike; the longer one must have all rows of the other."""
    (tmp_path / "archives").mkdir()
    for each in (tmp_path / "run.ledger", tmp_path / "other.ledger"):
        with tg.open(MECHANISMS["Uniform"](), each) as run, pytest.MonkeyPatch.context() as broken:
            for _ in range(30):
                run.push([1, 2])
            broken.setattr(pruning.Store, "forget", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run.prune(tmp_path / "archives", keep=6)
            run.push([1, 2])
    with tg.open(MECHANISMS["Uniform"](), tmp_path / "run.ledger") as run:
        assert run.prune(tmp_path / "archives", keep=6) is not None
    archives = sorted((tmp_path / "archives").glob("run.*"))
    assert len(archives) == 2
    assert verify_archives(archives, tmp_path / "run.ledger") == ""
    (stranger,) = (tmp_path / "archives").glob("other.*")
    assert "does not go on" in verify_archives([stranger, archives[1]], tmp_path / "run.ledger")


def test_specifications_come_and_go_around_prunings(tmp_path: Path) -> None:
    """Rows that changed who is protected are forgotten; what they changed is in force, and refuses what it refused."""
    pump, story = Secret(8, 5, "always", "1/4", "pump"), random.Random(5)
    paths = [tmp_path / "pruned.ledger", tmp_path / "whole.ledger"]
    for path in paths:
        SQLiteLedger(path, HOUSES, 1000).close()
    for number in range(1, 8):
        amounts = [story.randint(0, 60) for _ in range(story.randint(6, 15))]
        guests = []
        for path in paths:
            with SQLiteLedger(path, read_only=False) as ledger:
                for amount in amounts:
                    ledger.charge(ledger.step + 1, amount)
                if number > 1:
                    withdraw_specification(ledger, f"guest {number - 1}")
                add_specification(ledger, Specification((HOME, pump), f"guest {number}"))
                if path == paths[0]:
                    ledger.prune(ledger.head[0] - story.randint(0, 5), {})
                assert ledger.verify().ok
                present = [each.label for each in specifications_of(ledger) if each.ends > ledger.step]
                guests.append(
                    (sorted(present), [ledger.remaining(ledger.step + ahead) for ahead in range(1, 9)])
                )
        assert guests[0] == guests[1]
    one, other = map(verify_target, paths)
    assert one.ok
    assert (one.steps, one.spent, one.place) == (other.steps, other.spent, other.place)
    assert "are in archives" in str(one)
    connection = sqlite3.connect(paths[0])
    assert connection.execute("SELECT count(*) FROM charges WHERE kind = 'amend'").fetchone()[0] < 6
    connection.execute("UPDATE base SET facts = replace(facts, 'guest 1', 'guest 9')")
    connection.commit()
    connection.close()
    assert not verify_target(paths[0]).ok


def test_what_cannot_be_pruned_is_one_sentence(tmp_path: Path) -> None:
    """Less than a window, and a folder that is not there."""
    with tg.open(MECHANISMS["Uniform"](), tmp_path / "run.ledger") as run:
        run.push([1, 2])
        with pytest.raises(InvalidParameter, match="archives"):
            run.prune(tmp_path / "absent")
        with pytest.raises(InvalidParameter, match="keep"):
            run.prune(tmp_path, keep=3)
        assert run.prune(tmp_path) is None


@pytest.mark.parametrize("name", ["Uniform", "BudgetAbsorption", "OptStream"])
def test_a_ledger_in_postgresql_is_archived_into_files(
    tmp_path: Path, postgres: Any, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With fixed noise, as if it were whole; archives are files without state, and one account with what is left."""
    values = np.arange(120).reshape(60, 2) % 7
    (tmp_path / "archives").mkdir()
    url = postgres.new_stream()
    with fixed_entropy("pruning"):
        with tg.open(MECHANISMS[name](), tmp_path / "whole.ledger") as run:
            whole = [run.push(row) for row in values]
        pruned = []
        for start in range(0, 60, 20):
            with tg.open(MECHANISMS[name](), url) as run:
                pruned += [run.push(row) for row in values[start : start + 20]]
                assert run.prune(tmp_path / "archives", keep=8) is not None
                assert run.verify().ok
    for left, right in zip(whole, pruned, strict=True):
        np.testing.assert_array_equal(left.values, right.values)
        assert (left.step, left.status, left.units) == (right.step, right.status, right.units)
    archives = sorted((tmp_path / "archives").iterdir())
    assert len(archives) == 3
    for archive in archives:
        assert archive.stat().st_mode & 0o777 == 0o600
        with sqlite3.connect(archive) as connection:
            assert connection.execute("SELECT position, state FROM stream").fetchone() == (None, None)
        connection.close()
    assert main(["ledger", "verify", url, "--archive", str(tmp_path / "archives")]) == 0
    archives[1].unlink()
    assert main(["ledger", "verify", url, "--archive", str(tmp_path / "archives")]) == 1
    capsys.readouterr()
    with open_durable(url, read_only=True) as ledger:
        kept_rows = ledger.connection.execute("SELECT count(*) FROM charges").fetchone()[0]
    verdict, before = verify_target(url), verify_target(tmp_path / "whole.ledger")
    assert kept_rows < before.rows
    assert (verdict.steps, verdict.spent, verdict.releases) == (before.steps, before.spent, before.releases)


def test_a_stream_goes_on_after_pruning(tmp_path: Path) -> None:
    """Its output is untouched; one that is gone, or new, is written from the archives, if their folder is named."""
    config = settings(tmp_path, ("count = 12", "count = 6"))
    for count in (6, 8, 10, 12):
        config = settings(tmp_path, ("count = 12", f"count = {count}"))
        release(config)
    mechanism = config.mechanism
    store = open_store(config.ledger, config.policy, mechanism.units, config.fingerprint, config.describe())
    (tmp_path / "archives").mkdir()
    with Stream(store, mechanism) as stream:
        moved = stream.prune(tmp_path / "archives", keep=4)
        assert moved is not None
        assert moved.step == 8
    before = (tmp_path / "out.csv").read_bytes()
    release(config)
    assert (tmp_path / "out.csv").read_bytes() == before
    (tmp_path / "out.csv").unlink()
    with pytest.raises(LedgerError, match=r"are in its archives.*as archives in \[run\]"):
        release(config)
    run = ("[sink]", '[run]\narchives = "archives"\n[sink]')
    release(settings(tmp_path, run))
    assert (tmp_path / "out.csv").read_bytes() == before
    release(settings(tmp_path, run, ("out.csv", "another.csv")))
    assert (tmp_path / "another.csv").read_bytes() == before


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prune, verify with archives, and go on; a missing archive ends with exit code 1."""
    for count in (4, 6, 8, 10):
        release(settings(tmp_path, ("count = 12", f"count = {count}")))
    (tmp_path / "archives").mkdir()
    config, ledger, folder = (
        str(tmp_path / name) for name in ("tidegate.toml", "tidegate.ledger", "archives")
    )
    assert main(["ledger", "prune", config, folder, "--keep", "4"]) == 0
    assert "up to step 6 are in" in capsys.readouterr().out
    assert main(["ledger", "prune", config, folder, "--keep", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["archive"] is None
    assert main(["ledger", "verify", ledger]) == 0
    assert "are in archives" in capsys.readouterr().out
    assert main(["ledger", "verify", ledger, "--archive", folder]) == 0
    assert "archives" not in capsys.readouterr().out
    settings(tmp_path)
    assert main(["release", config]) == 0
    capsys.readouterr()
    assert main(["ledger", "prune", config, folder, "--keep", "4", "--json"]) == 0
    second = Path(json.loads(capsys.readouterr().out)["archive"])
    assert main(["ledger", "verify", ledger, "--archive", folder]) == 0
    assert main(["ledger", "verify", ledger, "--archive", str(second)]) == 1
    assert "in no archive" in capsys.readouterr().out


def test_commands_of_several_queries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prune, show, verify, back up and restore, go on, amend, prune again; a changed amendment is noticed."""
    config, counts = str(shop(tmp_path, 10)), (10, 20, 30)
    (tmp_path / "archives").mkdir()
    ledger, folder = str(tmp_path / "tidegate.ledger"), str(tmp_path / "archives")

    def succeeds(*words: str) -> str:
        assert main([*words]) == 0, capsys.readouterr()
        return capsys.readouterr().out

    for before, count in zip((10, *counts), counts, strict=False):
        edited(tmp_path, (f"count = {before}", f"count = {count}"))
        succeeds("release", config)
    assert "up to step 20 are in" in succeeds("ledger", "prune", config, folder, "--keep", "8")
    assert '"spent"' in succeeds("ledger", "show", ledger, "--json")
    assert "orders" in succeeds("ledger", "verify", ledger, "--archive", folder)
    succeeds("ledger", "backup", ledger, str(tmp_path / "copy"))
    succeeds("ledger", "restore", str(tmp_path / "copy"), str(tmp_path / "new"))
    edited(tmp_path, ("count = 30", "count = 40"), ('epsilon = "1"', 'epsilon = "1/2"'))
    succeeds("amend", config)
    succeeds("release", config)
    edited(tmp_path, ("count = 40", "count = 60"))
    succeeds("release", config)
    assert "up to step 40 are in" in succeeds("ledger", "prune", config, folder, "--keep", "8")
    words = succeeds("ledger", "verify", ledger, "--archive", folder)
    assert "1 in steps 1 to 30 or 0.5 from step 31 on" in words
    assert words == succeeds("ledger", "verify", ledger).replace(
        f"; rows 1 to {verify_target(ledger).archived} are in archives", ""
    )
    connection = sqlite3.connect(ledger)
    connection.execute("UPDATE amendments SET step = 29 WHERE number = 2")
    connection.commit()
    connection.close()
    assert not verify_target(ledger).ok


def test_editions_are_pruned_together(tmp_path: Path) -> None:
    """The later edition of a step goes on from what the earlier one has kept; both end as if nothing was archived."""
    found = []
    for name in ("whole", "pruned"):
        folder = tmp_path / name
        (folder / "archives").mkdir(parents=True)
        write_events(folder, 24)
        text = (folder / "events.csv").read_text().replace("2026-03-02T", "1970-01-01T")
        (folder / "events.csv").write_text(text)
        for hour in range(2, 30, 2):
            queries = with_editions(folder)
            until(queries, hour * 3600.0)
            if name == "pruned":
                prune_streams(queries, folder / "archives", keep=4)
        found.append([released_editions(folder, edition) for edition in ("provisional", "final")])
    assert found[0] == found[1]
    archives = sorted((tmp_path / "pruned" / "archives").iterdir())
    assert len(archives) > 2
    assert verify_archives(archives, tmp_path / "pruned" / "tidegate.ledger") == ""


def a_pruned_stream(folder: Path, keep: int = 4) -> Path:
    """Twelve steps in four starts, of which the first six are in an archive; returns the folder of archives."""
    for count in (4, 6, 8, 12):
        release(settings(folder, ("count = 12", f"count = {count}")))
    archives = folder / "archives"
    archives.mkdir(exist_ok=True)
    assert prune_streams(one(settings(folder)), archives, keep=keep) is not None
    return archives


def rows_of(ledger: Path) -> int:
    """How many rows of charges a ledger has ever had."""
    with open_durable(ledger, read_only=True) as found:
        return found.head[0]


WHOLE = {
    "a Parquet file": [("out.csv", "out.parquet")],
    "a file of the newest": [('name = "Uniform"', 'name = "Tide"')],
    "lines of the newest": [("out.csv", "out.jsonl"), ('name = "Uniform"', 'name = "Tide"')],
}


@pytest.mark.parametrize("changes", WHOLE.values(), ids=WHOLE.keys())
def test_what_is_written_as_a_whole_is_not_pruned_and_goes_on(
    tmp_path: Path, changes: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The refusal comes before anything, says what to write instead, and the stream goes on."""
    for count in (6, 10):
        release(settings(tmp_path, ("count = 12", f"count = {count}"), *changes))
    (tmp_path / "archives").mkdir()
    settings(tmp_path, *changes)
    config, archives = str(tmp_path / "tidegate.toml"), str(tmp_path / "archives")
    assert main(["ledger", "prune", config, archives, "--keep", "4"]) == 2
    assert "in [sink]" in capsys.readouterr().err
    assert not list((tmp_path / "archives").iterdir())
    assert main(["release", config]) == 0


@pytest.mark.parametrize("known", [False, True])
def test_an_output_of_all_releases_is_refused_after_pruning_before_anything_is_charged(
    tmp_path: Path, known: bool
) -> None:
    """One Parquet file, named for the first time or written before: its steps were charged and never published."""
    for count, name in ((4, "out.csv"), (8, "out.parquet" if known else "out.csv"), (10, "out.csv")):
        release(settings(tmp_path, ("count = 12", f"count = {count}"), ("out.csv", name)))
    (tmp_path / "archives").mkdir()
    assert prune_streams(one(settings(tmp_path)), tmp_path / "archives", keep=6) is not None
    before = rows_of(tmp_path / "tidegate.ledger")
    with pytest.raises(LedgerError, match=r"made from all releases.*1 to 4 of.*name a folder in \[sink\]"):
        release(settings(tmp_path, ("out.csv", "out.parquet")))
    assert rows_of(tmp_path / "tidegate.ledger") == before
    release(settings(tmp_path))


def test_backups_and_archives_share_a_folder(tmp_path: Path) -> None:
    """With the same last row: neither passes for the other, so that an archive has no state, and a backup has one."""
    for count in (4, 6, 8, 12):
        release(settings(tmp_path, ("count = 12", f"count = {count}")))
    folder, ledger = tmp_path / "archives", tmp_path / "tidegate.ledger"
    folder.mkdir()
    first = back_up(str(ledger), folder)
    assert not back_up(str(ledger), folder).made
    moved = prune_streams(one(settings(tmp_path)), folder, keep=4)
    assert moved is not None
    assert moved.archive.made
    assert moved.archive.path != first.path
    with sqlite3.connect(moved.archive.path) as connection:
        assert connection.execute("SELECT state, position FROM stream").fetchone() == (None, None)
    connection.close()
    shutil.copy(first.path, tmp_path / "again")
    first.path.unlink()
    again = back_up(str(tmp_path / "again"), tmp_path)
    shutil.copy(moved.archive.path, tmp_path / again.path.name.replace("again", "other"))
    shutil.copy(tmp_path / "again", tmp_path / "other.ledger")
    assert back_up(str(tmp_path / "other.ledger"), tmp_path).made  # the archive there is no backup
    assert verify_archives([moved.archive.path], ledger) == ""


def test_backups_go_on_in_the_folder_of_an_earlier_stream(tmp_path: Path) -> None:
    """Each row number is taken by a copy of the stream before: both are kept."""
    copies = tmp_path / "copies"
    copies.mkdir()
    for begin_anew in (False, True):
        for count in (4, 8):
            anew = begin_anew and count == 4
            release(settings(tmp_path, ("count = 12", f"count = {count}")), begin_anew=anew)
            made = back_up(str(tmp_path / "tidegate.ledger"), copies)
            assert made.made
            with open_durable(made.path, read_only=True) as copy:
                assert head_of(copy) == replace(made.head, where=str(made.path))
            assert not back_up(str(tmp_path / "tidegate.ledger"), copies).made
        (tmp_path / "tidegate.ledger").rename(tmp_path / "lost.ledger")
    assert len(list(copies.iterdir())) == 4


def test_an_earlier_output_is_behind_the_archives(tmp_path: Path) -> None:
    """Its receipt remembers a row that was archived: the ledger is no older copy, and nobody should begin anew."""
    release(settings(tmp_path, ("count = 12", "count = 4"), ("out.csv", "first.csv")))
    receipt = tmp_path / "first.csv.receipt"
    before = receipt.read_bytes()
    a_pruned_stream(tmp_path)
    with pytest.raises(LedgerError, match="in its archives"):  # the receipt has followed the ledger
        release(settings(tmp_path, ("out.csv", "first.csv")))
    receipt.write_bytes(before)  # as versions left it that did not let it follow
    with pytest.raises(LedgerMismatch, match=r"first.csv was last written at step 4.*written last") as caught:
        release(settings(tmp_path, ("out.csv", "first.csv")))
    assert "older copy" not in str(caught.value)
    release(settings(tmp_path))


def test_a_report_takes_what_is_archived_from_the_archives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All steps are in it; without the folder it is refused before anything is released."""
    for count in (4, 6, 8, 10):
        release(settings(tmp_path, ("count = 12", f"count = {count}")))
    (tmp_path / "archives").mkdir()
    config = str(tmp_path / "tidegate.toml")
    assert main(["ledger", "prune", config, str(tmp_path / "archives"), "--keep", "4"]) == 0
    settings(tmp_path)
    before = rows_of(tmp_path / "tidegate.ledger")
    assert main(["release", config, "--report", str(tmp_path / "report.html")]) == 2
    assert "name their folder as archives in [run]" in capsys.readouterr().err
    assert rows_of(tmp_path / "tidegate.ledger") == before
    with (tmp_path / "tidegate.toml").open("a") as file:
        file.write('[run]\narchives = "archives"\n')
    assert main(["release", config, "--report", str(tmp_path / "report.html")]) == 0
    assert "12 steps" in (tmp_path / "report.html").read_text()
    assert main(["release", config, "--report", str(tmp_path / "report.html")]) == 0


def test_of_an_amended_stream_the_steps_before_are_archived(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is left begins after the amendment, and the sentence says so."""
    release(settings(tmp_path, ("count = 12", "count = 4")))
    changed = (('epsilon = "1"', 'epsilon = "2"'),)
    config = str(tmp_path / "tidegate.toml")
    settings(tmp_path, *changed)
    assert main(["amend", config]) == 0
    assert main(["release", config]) == 0
    (tmp_path / "archives").mkdir()
    capsys.readouterr()
    assert main(["ledger", "prune", config, str(tmp_path / "archives"), "--keep", "4"]) == 0
    assert "up to step 4 are in" in capsys.readouterr().out
    assert (
        main(["ledger", "verify", str(tmp_path / "tidegate.ledger"), "--archive", str(tmp_path / "archives")])
        == 0
    )
