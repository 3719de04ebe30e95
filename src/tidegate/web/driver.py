"""One stream at work inside the service: a thread that drives it, and what may be said about it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

from tidegate.clock.steps import PublicClock
from tidegate.config import Config
from tidegate.errors import InvalidParameter, LedgerError, TidegateError
from tidegate.ingest import Intake
from tidegate.ledger.durable import DurableLedger
from tidegate.ledger.published import signing_key
from tidegate.runtime import Chunk, Store, Stream, as_begun, open_stream
from tidegate.runtime.store import open_durable
from tidegate.web.alarms import read_alarms
from tidegate.web.board import Board
from tidegate.web.encoding import Encoder
from tidegate.web.feed import Feed
from tidegate.web.hooks import senders
from tidegate.web.logs import log

Clock = Callable[[], float]
PATIENCE = (1.0, 30.0)  # seconds before a stream that failed is opened again: at first, and at most
STOPPING = 10.0  # seconds that a stream has to come to its end


LARGEST_MAP = 32 * 2**20


def read_map(path: Path) -> bytes | None:
    """The GeoJSON beside a configuration, if there is one."""
    if not path.is_file():
        return None
    if path.stat().st_size > LARGEST_MAP:
        raise InvalidParameter("map", path.name, f"at most {LARGEST_MAP} bytes", "simplify its areas")
    content = path.read_bytes()
    try:
        found = json.loads(content)
        fine = found["type"] == "FeatureCollection" and isinstance(found["features"], list)
    except (ValueError, KeyError, TypeError):
        fine = False
    if not fine:
        raise InvalidParameter("map", path.name, "a GeoJSON FeatureCollection", "export it as one")
    return content


class Driver:
    """Opens a stream, drives it in a thread of its own, and keeps what readers see.

    Parameters
    ----------
    name
        The stream's name in addresses.
    config
        Its configuration.
    clock
        Public time; another than the system's for made-up streams only.
    backfill
        Accept that more steps close at once than `catch_up` allows.
    """

    def __init__(
        self, name: str, config: Config, clock: Clock | None = None, *, backfill: bool = False
    ) -> None:
        self.name, self.config, self.backfill = name, config, backfill
        self.clock: Clock = clock or PublicClock()
        self.live = config.source.follow or "://" in config.source.location or self.posted
        self.state = "opening"  # running, waiting, ended, failed, stopped
        self.sentence = ""  # why, for operators
        self.lag: float | None = None  # seconds from the close of the last step to its release
        self.committed: float | None = None  # when something was last committed, by the system's clock
        self.spent = Fraction(0)  # in the last window
        self.map = read_map(config.path.with_suffix(".geojson"))
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._intake: Intake | None = None
        self._stream: Stream | None = None
        self._reading = threading.Lock()
        self._reader: DurableLedger | None = None
        self._open()

    @property
    def posted(self) -> bool:
        """Whether events arrive by HTTP."""
        return False

    # before and after ---------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open the stream, which refuses what is wrong with it, and take up what it has released."""
        self.config = as_begun(self.config)
        # standard output is no place for the releases of a service that logs
        sink = self.config.sink.location != "-"
        stream = open_stream(
            self.config,
            follow=self.live,
            watcher=self,
            sink=sink,
            backfill=self.backfill,
            clock=self.clock,
        )
        self._stream, self._part = stream, stream.store.part
        ledger = stream.store.account
        if not hasattr(self, "board"):
            self.limit = ledger.unit * ledger.units
            self.adds = bool(ledger.rule.adds)
            self.unit = ledger.unit
            self.revises = stream.revises
            self.board = Board(self.config, self._past, read_alarms(self.config))
            self.encoder = Encoder(self.name, self.config, ledger.unit)
            self.board.load(stream.store.chunks())
            self.feed = Feed(self.board, self.encoder)
            self.key = signing_key(self.config.path.with_suffix(".key"))
            hooks, memory = self.board.alarms.hooks, self.config.path.with_suffix(".hooks.json")
            self.senders = list(senders(hooks, self.board, self.encoder, self.key, memory))
        else:  # after a failure: what was committed and not yet seen
            for chunk in stream.store.chunks(self.board.number):
                self.released(chunk)
        self.spent = ledger.spent()

    @contextmanager
    def reader(self) -> Iterator[DurableLedger]:
        """The ledger's database for reading, opened once; one reader at a time."""
        with self._reading:
            if self._reader is None:
                self._reader = open_durable(self.config.ledger, read_only=True)
            try:
                yield self._reader
            except LedgerError:
                self._reader.close()  # for example because a server has gone away
                self._reader = None
                raise

    @contextmanager
    def _past(self, number: int) -> Iterator[Iterator[Chunk]]:
        with self.reader() as ledger:
            yield Store(ledger, part=self._part).chunks(number)

    def start(self) -> None:
        """Begin to drive."""
        self._thread = threading.Thread(target=self._run, name=f"stream {self.name}", daemon=True)
        self._thread.start()
        for sender in self.senders:
            sender.start()

    def stop(self) -> None:
        """Ask the stream to end between two blocks."""
        self._stop.set()
        for sender in self.senders:
            sender.stop()
        if self._intake is not None:
            self._intake.stop()

    def join(self) -> None:
        """Wait until it has."""
        if self._thread is not None:
            self._thread.join(STOPPING)
        elif self._stream is not None:
            self._stream.close()
        with self._reading:
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    @property
    def ended(self) -> bool:
        """Whether the thread is not at work."""
        return self._thread is None or not self._thread.is_alive()

    # what is measured; asked by other threads, and only numbers are read

    @property
    def backlog(self) -> int | None:
        """How many committed releases a sink lacks; None while the stream is closed."""
        stream = self._stream
        return None if stream is None else max((each["backlog"] for each in stream.backlogs), default=0)

    @property
    def steps_behind(self) -> int | None:
        """How many steps the clock has closed that are not released; None for a finite input."""
        if not self.live:
            return None
        steps = self.config.steps
        return max(0, min(steps.closed_by(self.clock()), steps.count or 2**62) - self.board.step)

    @property
    def connected(self) -> int | None:
        """Whether the source answers; None while the stream is closed."""
        intake = self._intake
        if intake is None:
            return None
        return int(not str(getattr(intake.source, "status", "")).startswith("waiting"))

    # the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        patience = PATIENCE[0]
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                if self._stream is None:
                    self._open()
                self._drive()
                break
            except TidegateError as error:
                self._failed(str(error))
            except Exception as error:  # its text may quote data
                self._failed(f"unexpected {type(error).__name__}")
            finally:
                self._close()
            if time.monotonic() - begun > PATIENCE[1]:
                patience = PATIENCE[0]
            self._stop.wait(patience)
            patience = min(2 * patience, PATIENCE[1])
        if self._stop.is_set():
            self._become("stopped")

    def _drive(self) -> None:
        stream = self._stream
        assert stream is not None
        intake = self._intake = self.open_intake(stream)
        if self._stop.is_set():
            return
        self._become("running")
        log("stream.started", stream=self.name, step=stream.step)
        try:
            stream.drive(self.blocks(intake))
            stream.finish()
        finally:
            self._intake = None
            intake.close()
        if not self._stop.is_set():
            self._become("ended")
            log("stream.ended", stream=self.name, step=stream.step)

    def open_intake(self, stream: Stream) -> Intake:
        """Where the stream's steps come from."""
        return self.config.open(stream.store.progress.position, follow=self.live, clock=self.clock)

    def blocks(self, intake: Intake) -> Iterable[Any]:
        """What is driven."""
        return intake

    def _close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            try:
                stream.close()
            except Exception as error:
                log("stream.close_failed", stream=self.name, kind=type(error).__name__)

    def _failed(self, sentence: str) -> None:
        self._become("failed", sentence)
        log("stream.failed", stream=self.name, sentence=sentence)

    def _become(self, state: str, sentence: str = "") -> None:
        self.state, self.sentence = state, sentence

    # what the stream tells its watcher ----------------------------------------------------------------------

    def released(self, chunk: Chunk) -> None:
        """Releases were committed."""
        self.board.add(chunk)
        self.feed.publish()
        for sender in self.senders:
            sender.wake()
        assert self._stream is not None
        self.spent = self._stream.store.account.spent()
        self.committed = time.time()
        step = int(chunk.step.max()) if len(chunk) else self.board.step
        lateness = self.config.steps.lateness
        assert isinstance(lateness, int)
        closed = self.config.steps.boundary(step + 1) / 1e6 + lateness
        speed = getattr(self.clock, "speed", 1.0)  # of a made-up clock
        self.lag = max(0.0, self.clock() - closed) / speed if self.live else None
        late = {} if self.lag is None else {"lag": round(self.lag, 3)}
        log("stream.released", stream=self.name, step=step, number=chunk.last, **late)

    def waiting(self, sentence: str) -> None:
        """A sink cannot be reached, or can again."""
        if sentence:
            self._become("waiting", sentence)
            log("sink.waiting", stream=self.name, sentence=sentence)
        elif self.state == "waiting":
            self._become("running")
            log("sink.back", stream=self.name)
