"""What is published of a log: anybody can recompute it, and notices what was changed, dropped or rolled back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.pipeline.streams import places, release, settings

from tidegate.core.errors import LogDamaged
from tidegate.ingest import blocks as blocks_module
from tidegate.pipeline import read_stream
from tidegate.pipeline.public_account import (
    Transcript,
    check_published,
    published_head,
    published_rows,
    signing_key,
)
from tidegate.sinks.chunks import joined

Published = tuple[dict[str, Any], list[list[Any]], list[list[Any]]]


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Published:
    """A head, all rows and all releases."""
    monkeypatch.setattr(blocks_module, "BLOCK_STEPS", 7)
    queries = settings(tmp_path, places(tmp_path))
    release(queries)
    with read_stream(queries) as stream:
        read = stream.released["query"]
        chunk = joined(read.chunks(), 2)
        transcript = Transcript().after(1, chunk.step, chunk.revision, chunk.values)
        rows = list(stream.log.rows())
        head = published_head(
            stream.identity,
            rows[-1],
            read.scope,
            transcript,
            stream="places",
            time="2026-01-01",
            key=signing_key(tmp_path / "key"),
        )
        values = [[None if np.isnan(each) else each for each in row] for row in chunk.values.tolist()]
        numbers = range(1, len(chunk) + 1)
        said = zip(numbers, chunk.step.tolist(), chunk.revision.tolist(), values, strict=True)
        return head, published_rows(rows), [list(each) for each in said]


def test_what_is_published_can_be_recomputed(published: Published) -> None:
    """Every hash, account and release; and a later check continues from an earlier one."""
    found, now = check_published(*published)
    assert found.ok
    assert (found.commits, found.step) == (published[0]["commits"], 40)
    again, _ = check_published(*published, [now])
    assert again.ok


def test_rows_have_digests_in_the_place_of_releases_state_and_position(published: Published) -> None:
    """Nothing else of a commit is published."""
    for row in published[1]:
        assert len(row) == 8
        assert all(len(bytes.fromhex(each)) == 32 for each in row[5:])


def _changed(rows: list[list[Any]]) -> None:
    rows[2][4] = rows[1][4]


def _dropped(rows: list[list[Any]]) -> None:
    del rows[-1]


@pytest.mark.parametrize("change", [_changed, _dropped])
def test_rows_that_do_not_lead_to_the_head_are_noticed(
    published: Published, change: Callable[[list[list[Any]]], None]
) -> None:
    """By the chain of hashes."""
    head, rows, releases = published
    change(rows)
    try:
        found, _ = check_published(head, rows, releases)
    except LogDamaged:
        return
    assert not found.ok


def test_releases_that_were_changed_or_dropped_are_noticed(published: Published) -> None:
    """By the transcript."""
    head, rows, releases = published
    with pytest.raises(LogDamaged, match="signed transcript"):
        check_published(head, rows, releases[:-1])
    with pytest.raises(LogDamaged, match="missing"):
        check_published(head, rows, releases[1:])
    releases[3][3] = [1.0, 2.0]
    with pytest.raises(LogDamaged, match="signed transcript"):
        check_published(head, rows, releases)


def test_what_was_seen_before_must_be_on_the_way(published: Published) -> None:
    """Another log, another key, a rollback, other releases."""
    _, now = check_published(*published)
    for before, words in (
        (replace(now, commits=now.commits + 1), "rolled back"),
        (replace(now, number=now.number + 1), "rolled back"),
        (replace(now, log="00"), "another log"),
        (replace(now, key="00"), "key has changed"),
        (replace(now, commits=2), "rewritten"),
        (replace(now, number=3, transcript="00"), "made again"),
    ):
        with pytest.raises(LogDamaged, match=words):
            check_published(*published, [before])


def test_a_head_is_not_signed_by_others(published: Published) -> None:
    """Every field that is signed is compared."""
    head, rows, releases = published
    for name in ("step", "time", "scope", "stream"):
        with pytest.raises(LogDamaged, match="not signed"):
            check_published({**head, name: 7}, rows, releases)
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    import base64

    with pytest.raises(LogDamaged, match="not signed"):
        check_published({**head, "key": base64.b64encode(other).decode()}, rows, releases)
    with pytest.raises(LogDamaged, match="no log"):
        check_published({}, rows, releases)
