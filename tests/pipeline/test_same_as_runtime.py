"""The pipeline releases and charges what the old runtime does, bit for bit, under fixed entropy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.pipeline.streams import places, readings, release, settings, shop, without_intervals

from tidegate.runtime import open_streams
from tidegate.runtime.chunks import Chunk, joined
from tidegate.testing.entropy import fixed_entropy

CONFIGURATIONS: dict[str, Callable[[Path], str]] = {
    "one query": places,
    "shares, cents": shop,
    "missing readings": readings,
    "shared noise": lambda folder: places(folder, "Uniform"),
    "samples": lambda folder: readings(folder, "Sample"),
    "groups": lambda folder: places(folder, "PeGaSus"),
    "revised": lambda folder: places(folder, "OptStream"),
    "revised, missing readings": lambda folder: readings(folder, "OptStream"),
}


def charged(chunk: Chunk) -> list[tuple[int, int, int]]:
    """Step, revision and units; where readings are missing, blocks are cut, and revisions come earlier among the rows."""
    return sorted(zip(chunk.step.tolist(), chunk.revision.tolist(), chunk.units.tolist(), strict=True))


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_releases_and_charges_agree(name: str, tmp_path: Path) -> None:
    """Every row but its interval, which the core makes in another way, and what each step was charged."""
    units, shown = {}, {}
    for kind in ("old", "new"):
        folder = tmp_path / kind
        folder.mkdir()
        queries = settings(folder, CONFIGURATIONS[name](folder))
        with fixed_entropy(5):
            if kind == "new":
                with release(queries, closed=False) as pipeline:
                    units[kind] = {
                        part.name: charged(joined(pipeline.chunks(part.name), 1)) for part in pipeline.parts
                    }
                    assert pipeline.verify().ok
            else:
                with open_streams(queries) as streams:
                    streams.drive(queries.open(streams.position))
                    streams.finish()
                    units[kind] = {
                        part.name: charged(joined(stream.store.chunks(), 1))
                        for part, stream in zip(streams.queries.parts, streams.streams, strict=True)
                    }
        outputs = sorted(folder.glob("out*.csv"))
        assert len(outputs) == len(queries.parts)
        shown[kind] = [without_intervals(path) for path in outputs]
    assert shown["new"] == shown["old"]
    assert len(shown["new"][0]) == 41
    assert set(units["new"]) == set(units["old"])
    for query in units["new"]:
        assert set(units["new"][query]) ^ set(units["old"][query]) == set()
