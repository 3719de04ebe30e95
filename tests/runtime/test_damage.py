"""Damage anywhere in a ledger's file is told in one sentence, whatever stands there."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.helpers import blocks, open_one, settings, verified

from tidegate.config import Config
from tidegate.errors import TidegateError

VALUES = ("NULL", "'x'", "x'00ff'", "x''", "1.5", "9223372036854775807", "-1", "'{}'", "'[1]'")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, bytes]:
    """A ledger with releases, revisions and a sink."""
    config = settings(
        tmp_path_factory.mktemp("whole"), ("count = 12", "count = 40"), ('"Uniform"', '"OptStream"')
    )
    with open_one(config) as stream:
        stream.drive(blocks(np.full((40, 2), 3, dtype=np.int64)))
        stream.finish()
    assert verified(config.ledger).ok
    return config, Path(config.ledger).read_bytes()


def put(config: Config, content: bytes) -> Path:
    """A file in the place of the ledger."""
    path = Path(config.ledger)
    for end in ("-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)
    path.write_bytes(content)
    return path


def test_no_page_is_overlooked(whole: tuple[Config, bytes]) -> None:
    """Tables that are no part of the account, and indexes, are looked at as well."""
    config, good = whole
    size = int.from_bytes(good[16:18], "big")
    passed = []
    for page in range(1, len(good) // size):
        bad = good[: page * size] + bytes(size) + good[(page + 1) * size :]
        if bad != good and verified(put(config, bad)).ok:
            passed.append(page + 1)
    put(config, good)
    assert not passed


def test_values_of_another_kind_are_damage(whole: tuple[Config, bytes]) -> None:
    """Whatever a flipped bit makes of a stored value, `verify` has a verdict, and a start refuses or goes on."""
    config, good = whole
    wanted = (
        "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'"
    )
    path = put(config, good)
    reader = sqlite3.connect(path)
    columns = reader.execute(wanted).fetchall()
    reader.close()
    passed = set()
    for table, column in columns:
        for value in VALUES:
            writer = sqlite3.connect(put(config, good), isolation_level=None)
            writer.execute("PRAGMA ignore_check_constraints=ON")
            try:
                writer.execute(
                    f'UPDATE "{table}" SET "{column}" = {value} WHERE rowid = (SELECT max(rowid) FROM "{table}")'
                )
            except sqlite3.Error:
                continue  # the table is strict
            finally:
                writer.close()
            if path.read_bytes() == good:
                continue
            if verified(path).ok:
                passed.add((table, column, value))
            with suppress(TidegateError), open_one(config):
                pass
    put(config, good)
    # keys that nobody reads, what version 0.1 has written without a digest, and where the file was: who changes that
    # drops the noise that steps share
    harmless = {("stream", "described", "'{}'"), ("sinks", "position", "'{}'")}
    assert {
        each for each in passed if each[:2] not in {("head", "only"), ("stream", "id")} and each[0] != "place"
    } <= harmless
