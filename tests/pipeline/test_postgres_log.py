"""Streams whose log is in PostgreSQL: the same releases as from a file, resumed, and nothing left by a refused start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pipeline.streams import places, readings, release, settings, shop

from tidegate.errors import InvalidParameter
from tidegate.ingest import blocks as blocks_module
from tidegate.pipeline import open_pipeline
from tidegate.pipeline import pipeline as pipeline_module
from tidegate.pipeline.logs import LogReader, log_exists
from tidegate.sinks.chunks import joined
from tidegate.testing.entropy import fixed_entropy

pytestmark = pytest.mark.slow  # a server


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many commits, and marks among them."""
    monkeypatch.setattr(blocks_module, "BLOCK_STEPS", 3)
    monkeypatch.setattr(pipeline_module, "MARK_EVERY", 5)


@pytest.mark.parametrize("stream", [places, shop, readings])
def test_releases_are_those_of_a_file(tmp_path: Path, postgres: Any, stream: Any) -> None:
    """Byte for byte, in two starts; missing readings and marks are in the database."""
    outputs = []
    for name in ("file", "server"):
        folder = tmp_path / name
        folder.mkdir()
        url = postgres.new_stream()
        changes = [] if name == "file" else [("[protect]", f'[protect]\nledger = "{url}"')]
        queries = settings(folder, stream(folder), *changes)
        with fixed_entropy(3):
            release(queries, blocks=4)
            release(queries)
        outputs.append(
            {
                path.name: path.read_bytes().splitlines()
                for path in folder.glob("*.csv")
                if path.name != "events.csv"
            }
        )
        with fixed_entropy(3), open_pipeline(queries) as pipeline:
            assert pipeline.verify().ok
            for read in pipeline.released.values():
                every = joined(read.chunks(), read.mechanism.outputs)
                found = joined(read.between(20, 22), read.mechanism.outputs)
                assert set(found.step.tolist()) >= {20, 21, 22}
                at = np.flatnonzero(every.step == 21)
                assert np.array_equal(
                    found.picked(np.flatnonzero(found.step == 21)).values,
                    every.picked(at).values,
                    equal_nan=True,
                )
    assert outputs[0]
    assert outputs[0] == outputs[1]


def test_a_refused_start_leaves_no_log(tmp_path: Path, postgres: Any) -> None:
    """A stream that has released stays."""
    url = postgres.new_stream()
    queries = settings(tmp_path, places(tmp_path), ("[protect]", f'[protect]\nledger = "{url}"'))
    with pytest.raises(InvalidParameter, match="new-stream"):
        open_pipeline(queries, new_stream=True)
    assert not log_exists(url)
    release(queries, blocks=2)
    assert log_exists(url)
    with LogReader(url) as log:
        assert [row.number for row in log.rows(1)] == [1, 2]
