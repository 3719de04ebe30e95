"""Editions of late data: each has its own step, its own share, and its own output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.streams import places, release, settings

from tidegate.config import Queries
from tidegate.core.verify import verify
from tidegate.ingest import blocks as blocks_module
from tidegate.pipeline import open_pipeline
from tidegate.testing.entropy import fixed_entropy

EDITIONS = '[editions]\nafter = ["1h", "5h"]\nshares = ["1/4", "3/4"]\n\n[query]'
HOUR = 3600.0


class World:
    """A public clock that moves on by an hour whenever all that was due is released."""

    def __init__(self) -> None:
        self.now = 1_772_409_600.0  # when the first step begins

    def __call__(self) -> float:
        """Seconds since 1970."""
        self.now += HOUR / 8
        return self.now


def edited(folder: Path) -> Queries:
    """A stream whose steps are released after one hour and after five."""
    folder.mkdir()
    return settings(folder, places(folder, steps=20), ("[query]", EDITIONS))


def outputs(folder: Path) -> dict[str, list[str]]:
    """All that was published."""
    return {path.name: path.read_text().splitlines() for path in sorted(folder.glob("out*.csv"))}


@pytest.mark.parametrize("follow", [False, True])
def test_every_edition_has_every_step(tmp_path: Path, follow: bool) -> None:
    """Finite or followed: each has an output of its own, and all of them share one log."""
    folder = tmp_path / "stream"
    queries, world = edited(folder), World()
    more: Any = {"follow": True, "clock": world, "backfill": True} if follow else {}
    clock: Any = {"follow": True, "clock": world} if follow else {}
    with fixed_entropy(4), open_pipeline(queries, **more) as running:
        intake = queries.open(running.position, **clock)
        running.drive(intake)
        running.finish()
        intake.close()
        assert verify(running.log.rows()).ok
        assert set(running.session.steps.values()) == {20}
    assert [len(lines) for lines in outputs(folder).values()] == [21, 21]


def test_stopped_between_editions_nothing_is_lost_or_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The early edition is ahead when it stops, and stays ahead."""
    monkeypatch.setattr(blocks_module, "BLOCK_STEPS", 4)
    found = []
    for name, blocks in (("once", None), ("often", 1)):
        queries = edited(tmp_path / name)
        with fixed_entropy(4):
            while min(release(queries, blocks=blocks).session.steps.values()) < 20:
                pass
        found.append(outputs(tmp_path / name))
    assert found[0] == found[1]
