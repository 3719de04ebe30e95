"""What a service does is not more work for a longer past: it is counted here, in stored pieces that are read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
from tests.runtime.helpers import blocks
from tests.web.helpers import configured, served, write_events

from tidegate.config import Config
from tidegate.config.queries import one
from tidegate.errors import TidegateError
from tidegate.runtime import open_stream
from tidegate.runtime.chunks import Chunk
from tidegate.runtime.store import Store
from tidegate.web import channel
from tidegate.web.driver import Driver

STEPS = 600
ALARMS = '[[alarm]]\nname = "full"\ncolumn = "north"\nabove = 3.0\n'


@pytest.fixture(params=["Uniform", "Tide", "OptStream"])
def long(request: pytest.FixtureRequest, tmp_path: Path) -> Config:
    """A stream with many commits of one step each; two of three kinds revise steps."""
    write_events(tmp_path)
    changes = [("count = 48", f"count = {STEPS}"), ('"Uniform"', f'"{request.param}"')]
    config = configured(tmp_path, *changes)
    with open_stream(config, sink=False) as stream:
        stream.ledger.connection.execute("PRAGMA synchronous=OFF")
        stream.drive(blocks(np.full((STEPS, 2), 3, dtype=np.int64)))
        stream.finish()
    (tmp_path / "hall.alarms.toml").write_text(ALARMS)
    return config


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many stored pieces were read."""
    read, decode = [0], Chunk.decode

    def counting(content: bytes) -> Chunk:
        read[0] += 1
        return decode(content)

    with monkeypatch.context() as patch:
        patch.setattr(Chunk, "decode", counting)
        yield read


@contextmanager
def driven(config: Config) -> Iterator[Driver]:
    """A stream as a service has it, before it is driven."""
    driver = Driver("hall", one(config))
    try:
        yield driver
    finally:
        driver.join()


def test_an_old_step_is_found_without_the_others(long: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """By halving, and as far as there is a later word on it; the answer is that of a look at everything."""
    monkeypatch.setattr("tidegate.web.board.KEPT_CELLS", 40)
    with driven(long) as driver, driver.reader() as ledger:
        everything = list(Store(ledger).chunks())
    with driven(long) as driver:
        board = driver.first.board
        for first, last in ((1, 1), (2, 30), (299, 301), (STEPS - 20, STEPS), (STEPS, STEPS)):
            with counted(monkeypatch) as read:
                found = board.select(first, last, revision="all")
            assert read[0] < 60 + last - first
            wanted = [
                (chunk.first + at, int(chunk.step[at]), int(chunk.revision[at]))
                for chunk in everything
                for at in np.flatnonzero((chunk.step >= first) & (chunk.step <= last))
            ]
            assert wanted
            columns = found.numbers, found.chunk.step, found.chunk.revision
            assert list(zip(*(each.tolist() for each in columns), strict=True)) == wanted


def test_a_start_reads_only_the_last_releases(long: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows from all others is remembered: the transcript, and which alarms are raised."""
    monkeypatch.setattr(channel, "WARM", 20)
    with driven(long) as driver:
        whole = driver.first.board
        before = whole.transcript, dict(whole.alarms.on), dict(whole.alarms.events), whole.number, whole.step
    assert before[2]
    with counted(monkeypatch) as read, driven(long) as driver:
        board = driver.first.board
        again = board.transcript, dict(board.alarms.on), dict(board.alarms.events), board.number, board.step
        assert read[0] < 30
        assert again == before
        assert board.select().answers.tolist() == whole.select().answers.tolist()


def test_other_alarms_look_at_the_whole_past(long: Config) -> None:
    """What is remembered is believed for the alarms that it was remembered for."""
    with driven(long):
        pass
    path = long.path.with_suffix(".alarms.toml")
    path.write_text(ALARMS.replace("3.0", "-1000000.0"))
    with driven(long) as driver:
        (number, events), *more = driver.first.board.alarms.events.items()
        assert (number, events[0]["state"], more) == (1, "raised", [])


def test_a_service_that_stops_waits_for_no_reader(long: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request for everything ends as soon as the service is asked to, and hears that it should come again."""
    monkeypatch.setattr("tidegate.web.board.KEPT_CELLS", 40)
    with served([long]) as (address, service):
        driver, reading, go_on = service.drivers["hall"], threading.Event(), threading.Event()
        between = driver.archives.between

        def slow(*arguments: object) -> Iterator[Chunk]:
            for chunk in between(*arguments):  # type: ignore[arg-type]
                reading.set()
                go_on.wait(60)
                yield chunk

        driver.archives.between = slow  # type: ignore[method-assign,assignment]
        answers: list[int] = []
        asked = threading.Thread(
            target=lambda: answers.append(
                httpx.get(f"{address}/streams/hall/releases", timeout=60).status_code
            )
        )
        asked.start()
        assert reading.wait(60)
        driver.stop()
        go_on.set()
        asked.join(60)
        assert answers == [503]
        with pytest.raises(TidegateError, match="being stopped"):
            next(driver.unless_stopped(iter([Chunk.silent(1, 1, 2)])))
