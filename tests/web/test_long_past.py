"""What a service does is not more work for a longer past: it is counted here, in rows of the log that are read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import httpx
import numpy as np
import pytest
from tests.web.helpers import configured, served, write_events

from tidegate.config import Config
from tidegate.config.queries import one
from tidegate.core import sqlite_log
from tidegate.core.commit import Row
from tidegate.core.sqlite_log import SQLiteLog
from tidegate.errors import TidegateError
from tidegate.ingest import StepBlock
from tidegate.pipeline import open_pipeline
from tidegate.pipeline import pipeline as pipeline_module
from tidegate.pipeline.logs import LogReader
from tidegate.pipeline.query_releases import Released
from tidegate.sinks.chunks import Chunk
from tidegate.web import channel
from tidegate.web.driver import Driver
from tiers import slow

STEPS = 600
ALARMS = '[[alarm]]\nname = "full"\ncolumn = "north"\nabove = 3.0\n'


@pytest.fixture(params=["Tide", *slow("Uniform", "OptStream")])
def long(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A stream with many commits of one step each, and marks among them; two of three kinds revise steps."""
    monkeypatch.setattr(pipeline_module, "MARK_EVERY", 20)
    monkeypatch.setattr(sqlite_log, "BLOCK", 8)
    write_events(tmp_path)
    changes = [("count = 48", f"count = {STEPS}"), ('"Uniform"', f'"{request.param}"')]
    config = configured(tmp_path, *changes)
    with open_pipeline(one(config), sink=False) as pipeline:
        assert isinstance(pipeline.log, SQLiteLog)
        pipeline.log._writer.execute("PRAGMA synchronous = OFF")
        for step in range(1, STEPS + 1):
            vectors = np.full((1, 2), 3, dtype=np.int64)
            block = StepBlock(step, vectors, Fraction(1), {"step": step, "source": {"row": step}})
            pipeline.process(pipeline.editions[0], [block])
        pipeline.finish()
    (tmp_path / "hall.alarms.toml").write_text(ALARMS)
    return config


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many rows of the log were read, by who writes and by who reads only."""
    read = [0]

    def counting(rows: Callable[..., Iterator[Row]]) -> Callable[..., Iterator[Row]]:
        def few(self: object, number: int = 0) -> Iterator[Row]:
            for row in rows(self, number):
                read[0] += 1
                yield row

        return few

    with monkeypatch.context() as patch:
        for kind in (SQLiteLog, LogReader):
            patch.setattr(kind, "rows", counting(kind.rows))
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
    """From the mark before it, and as far as there is a later word on it; the answer is that of a look at everything."""
    monkeypatch.setattr("tidegate.web.release_cache.KEPT_CELLS", 40)
    with driven(long) as driver, driver.reader() as door:
        everything = list(door.released["query"].chunks())
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
        assert read[0] < 60
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
    monkeypatch.setattr("tidegate.web.release_cache.KEPT_CELLS", 40)
    with served([long]) as (address, service):
        driver, reading, proceed = service.drivers["hall"], threading.Event(), threading.Event()
        between = Released.between

        def slow(self: Released, first: int, last: int) -> Iterator[Chunk]:
            for chunk in between(self, first, last):
                reading.set()
                proceed.wait(60)
                yield chunk

        monkeypatch.setattr(Released, "between", slow)
        answers: list[int] = []
        asked = threading.Thread(
            target=lambda: answers.append(
                httpx.get(f"{address}/streams/hall/releases", timeout=60).status_code
            )
        )
        asked.start()
        assert reading.wait(60)
        driver.stop()
        proceed.set()
        asked.join(60)
        assert answers == [503]
        with pytest.raises(TidegateError, match="being stopped"):
            next(driver.unless_stopped(iter([Chunk.silent(1, 1, 2)])))
