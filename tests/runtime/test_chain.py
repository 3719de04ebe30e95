"""Releases are chained as charges are: no stored number that has changed is ever published or verified."""

from __future__ import annotations

import random
import re
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime.helpers import release, settings

import tidegate as tg
from tidegate.cli import main
from tidegate.errors import LedgerCorrupt, TidegateError
from tidegate.runtime import chain
from tidegate.runtime.chunks import Chunk
from tidegate.runtime.store import verify_target
from tiers import slow

CHANGES = {
    "a released value": "UPDATE releases SET content = {content} WHERE number = 12",
    "a release is gone": "DELETE FROM releases WHERE number = 12",
    "the releases before it are gone": "DELETE FROM releases WHERE number < 12",
    "a link is gone": "DELETE FROM links WHERE number = 12",
    "all links are gone": "DELETE FROM links",
    "the chain is gone": "DROP TABLE links",
    "the chain begins later": "DELETE FROM links WHERE number = 0",
    "the charges before a release": "UPDATE links SET rows = rows - 1 WHERE number = 12",
    "the state": "UPDATE stream SET state = {state}",
    "the position": "UPDATE stream SET position = '{{}}'",
    "the step": "UPDATE stream SET step = step - 1",
    "the stream is gone": "DELETE FROM stream",
    "the description": """UPDATE stream SET described = replace(described, '"w": 4', '"w": 5')""",
}


@pytest.fixture(params=["SQLite", *slow("PostgreSQL")])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A ledger in each kind of store."""
    if request.param == "SQLite":
        return str(tmp_path / "one.ledger")
    url: str = request.getfixturevalue("postgres").new_stream()
    return url


def change(target: str, statement: str) -> None:
    """Edit the database of a ledger behind its back."""
    if "://" not in target:
        with sqlite3.connect(target) as database:
            content, state = _changed(database)
            values = {"content": f"x'{content.hex()}'", "state": f"x'{state.hex()}'"}
            database.execute(statement.format(**values))
        database.close()
        return
    psycopg = pytest.importorskip("psycopg")
    address, schema = target.split("#")
    with psycopg.connect(address, autocommit=True) as server:
        server.execute(f"SET search_path TO {schema}")
        content, state = _changed(server)
        values = {"content": f"'\\\\x{content.hex()}'", "state": f"'\\\\x{state.hex()}'"}
        server.execute(
            statement.format(**{name: value.replace("\\\\", "\\") for name, value in values.items()})
        )


def _changed(database: Any) -> tuple[bytes, bytes]:
    """The last release with another value, and the state with another bit."""
    content = bytes(database.execute("SELECT content FROM releases WHERE number = 12").fetchone()[0])
    chunk = Chunk.decode(content)
    values = chunk.values.copy()
    values[0, 0] += 1
    wrong = Chunk(**{**{name: getattr(chunk, name) for name in chunk.__dataclass_fields__}, "values": values})
    state = bytearray(bytes(database.execute("SELECT state FROM stream").fetchone()[0]))
    state[-1] ^= 1
    return wrong.encode(), bytes(state)


@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_store_is_noticed(
    tmp_path: Path, target: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verify says so, and a sink that is written anew gets nothing from there on."""
    monkeypatch.setattr("tidegate.ingest.blocks.BLOCK_STEPS", 6)  # two blocks
    config = settings(tmp_path, ("window = 4", f'window = 4\nledger = "{target}"'))
    release(config)
    verdict = verify_target(target)
    assert (verdict.ok, verdict.releases, verdict.unchained) == (True, 12, 0)
    change(target, CHANGES[what])
    verdict = verify_target(target)
    assert not verdict.ok
    assert "restore" in verdict.problem
    right = (tmp_path / "out.csv").read_bytes()
    (tmp_path / "out.csv").unlink()
    with pytest.raises(LedgerCorrupt, match="restore"):
        release(config)
    if (tmp_path / "out.csv").exists():
        assert len((tmp_path / "out.csv").read_bytes().splitlines()) < 13
        assert right.startswith((tmp_path / "out.csv").read_bytes())


def test_bit_flips_publish_no_wrong_number(tmp_path: Path) -> None:
    """Whichever bit of the file flips, a sink that is written anew has the same bytes, or there is a sentence."""
    config = settings(tmp_path)
    release(config)
    place, output = Path(config.ledger), tmp_path / "out.csv"
    whole, right = place.read_bytes(), output.read_bytes()
    spots = [at for at in range(len(whole)) if whole[at]]  # most of a small database is empty
    noticed = 0
    for at in random.Random(7).sample(spots, 150):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << at % 8
        for side in ("-wal", "-shm"):
            Path(f"{place}{side}").unlink(missing_ok=True)
        place.write_bytes(flipped)
        output.unlink(missing_ok=True)
        try:
            release(config)
        except TidegateError:
            noticed += 1
            continue
        assert output.read_bytes() == right
    assert noticed > 50


def test_text_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    """A flipped bit may leave no text where text was; what is damaged is not quoted."""
    config = settings(tmp_path)
    release(config)
    place = Path(config.ledger)
    whole = place.read_bytes()
    for words in (b'"offset"', b'"identity"', b'"policy"'):
        for found in re.finditer(re.escape(words), whole):
            flipped = bytearray(whole)
            flipped[found.start() + 1] ^= 0x80
            place.write_bytes(flipped)
            sentence = verify_target(config.ledger).problem
            try:
                release(config)
            except LedgerCorrupt as error:
                sentence = str(error)
            assert "restore" in sentence
            assert words.decode()[3:] not in sentence


def test_pages_that_are_lost_are_one_sentence(tmp_path: Path) -> None:
    """A damaged page is found when its rows are read, in the midst of a loop."""
    config = settings(tmp_path, ("count = 12", "count = 400"))
    release(config)
    place = Path(config.ledger)
    whole = place.read_bytes()
    noticed = 0
    for page in range(1, len(whole) // 4096):
        place.write_bytes(whole[: 4096 * page] + b"\xff" * 4096 + whole[4096 * (page + 1) :])
        (tmp_path / "out.csv").unlink(missing_ok=True)
        try:
            verify_target(config.ledger)
            release(config)
        except TidegateError:
            noticed += 1
    assert noticed > len(whole) // 4096 // 2


def test_stores_of_earlier_versions_are_chained_from_now_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readable as they are; what follows is chained, and verify says which releases are not."""
    monkeypatch.setattr("tidegate.ledger.sqlite.begun", dict)  # as 0.1 wrote it: no name, no links
    config = settings(tmp_path, ("count = 12", "count = 6"))
    release(config)
    with sqlite3.connect(config.ledger) as database:
        database.execute("DROP TABLE links")
    database.close()
    verdict = verify_target(config.ledger)
    assert (verdict.ok, verdict.releases, verdict.unchained) == (True, 6, 6), verdict.problem
    release(settings(tmp_path))
    verdict = verify_target(config.ledger)
    assert (verdict.ok, verdict.releases, verdict.unchained) == (True, 12, 6)
    assert main(["ledger", "verify", config.ledger]) == 0
    assert "releases 1 to 6 have no hashes" in capsys.readouterr().out
    change(config.ledger, CHANGES["a released value"])
    assert not verify_target(config.ledger).ok


@pytest.mark.parametrize("commits", range(1, 9))
def test_chains_longer_than_a_page_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    """Whatever the number of commits, pages of links and of releases end at the same place; one more release is found."""
    monkeypatch.setattr(chain, "_PAGE", 3)
    path = tmp_path / "s.ledger"
    with tg.open(tg.mechanisms.Uniform(tg.WEvent(epsilon="1", w=4)), path) as run:
        for _ in range(commits):
            run.push_batch(np.ones((3, 1)))
        assert run.verify().ok
    assert verify_target(path).ok
    with sqlite3.connect(path) as connection:
        connection.execute(
            "INSERT INTO releases SELECT number + 1, content FROM releases ORDER BY number DESC LIMIT 1"
        )
    connection.close()
    assert not verify_target(path).ok
