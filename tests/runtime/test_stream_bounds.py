"""What grows with a stream has a bound, and here each bound is reached; docs/operating/resources.md has the table."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.helpers import release, settings, verified
from tests.runtime.test_failures import Mount
from tests.runtime.test_failures import mount as mount

from tidegate.cli import main
from tidegate.config.queries import one
from tidegate.ingest import open_source
from tidegate.ingest.blocks import block_steps
from tidegate.ingest.sources.text import PIECE
from tidegate.pipeline.errors import LogUnavailable
from tidegate.pipeline.pipeline import prune
from tidegate.sinks.chunks import Chunk
from tidegate.sinks.text import TextFileSink


def test_pieces_of_a_file_are_bounded(tmp_path: Path) -> None:
    """A file of three pieces: nothing is parsed that is larger than one, and nothing is lost between them."""
    line = f"2026-03-02T00:00,{'x' * 1000},north\n"
    count = (2 * PIECE + PIECE // 2) // len(line)
    with (tmp_path / "events.csv").open("w") as file:
        file.write("time,unit,place\n")
        for _ in range(0, count, 1000):
            file.write(line * 1000)
    with open_source(str(tmp_path / "events.csv"), ("time", "unit", "place")) as source:
        sizes = [len(batch.frame) for batch in source.batches()]
    assert sum(sizes) == -(-count // 1000) * 1000
    assert len(sizes) >= 3
    assert max(sizes) * len(line) <= PIECE + len(line)


@pytest.mark.slow
def test_full_disk_of_the_temporary_file(
    tmp_path: Path, mount: Mount, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Input out of order needs a temporary file: without room for it nothing is released and nothing is charged."""
    lines = [f"2026-03-02T{11 - number % 12:02d}:00,unit{number},north" for number in range(60_000)]
    (tmp_path / "events.csv").write_text("\n".join(["time,unit,place", *lines]) + "\n")
    config = settings(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(mount("size=64k")))
    assert main(["release", str(tmp_path / "tidegate.toml")]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists() or len((tmp_path / "out.csv").read_text().splitlines()) <= 1
    assert not Path(config.ledger).exists() or verified(config.ledger).steps == 0
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert release(config).step == 12


@pytest.mark.slow
def test_full_disk_of_the_archives(tmp_path: Path, mount: Mount) -> None:
    """An archive that cannot be written: the ledger keeps everything, and the stream continues."""
    config = settings(tmp_path, ("count = 12", "count = 4000"))
    assert release(config).step == 4000
    small = mount("size=64k")
    with pytest.raises(LogUnavailable, match="is full"):
        prune(one(config), small, keep=10)
    assert verified(config.ledger).ok
    (tmp_path / "out.csv").unlink()
    assert release(config).step == 4000
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 4001


def test_what_a_sink_lacks_is_sent_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An output that was lost: it comes again in blocks of a public size, one in memory at a time."""
    config = settings(tmp_path, ("count = 12", "count = 5000"))
    assert release(config).step == 5000
    whole = (tmp_path / "out.csv").read_bytes()
    (tmp_path / "out.csv").unlink()
    sizes: list[int] = []
    write = TextFileSink.write

    def noticed(self: TextFileSink, chunk: Chunk) -> None:
        sizes.append(len(chunk.step))
        write(self, chunk)

    monkeypatch.setattr(TextFileSink, "write", noticed)
    assert release(config).step == 5000
    assert (tmp_path / "out.csv").read_bytes() == whole
    assert sum(sizes) == 5000
    assert max(sizes) <= block_steps(2, follow=False)


QUEUED = """
import json, sys, time
from pathlib import Path
from tidegate.ingest import open_source

def used():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

with open_source(sys.argv[1], ("time", "unit", "place"), follow=True) as source:
    batches = source.batches(None, patience=lambda: 0.05)
    first = next(batches)
    before, largest, quiet = used(), 0, 0
    while quiet < 20:  # until the client takes no more
        time.sleep(0.1)
        now = used()
        quiet = quiet + 1 if now <= largest + 2**20 else 0
        largest = max(largest, now)
    print(json.dumps({"grown": largest - before, "taken": len(first.frame)}))
"""


@pytest.mark.slow
def test_records_that_wait_in_the_client_are_bounded(kafka: Any) -> None:
    """A topic of 400 MB that nobody reads on: the client takes 64 MiB of it, and what is on its way."""
    topic = kafka.topic(1)
    record = json.dumps({"time": 1_800_000_000, "unit": "x" * 999_000, "place": "north"}).encode()
    kafka.send(topic, ((0, record) for _ in range(400)))
    done = subprocess.run(
        [sys.executable, "-c", QUEUED, kafka.url(topic)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["grown"] < 200 * 2**20
