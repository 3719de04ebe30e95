"""One stream at work inside the service, with all of its queries: a thread that drives it, and how it fares."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.clock.steps import PublicClock
from tidegate.config import Config, Queries
from tidegate.core.commit import Row
from tidegate.errors import InvalidParameter, TidegateError
from tidegate.ingest import Intake
from tidegate.pipeline import Pipeline, open_pipeline
from tidegate.pipeline.archive import Archives
from tidegate.pipeline.json_log import log
from tidegate.pipeline.logs import LogReader
from tidegate.pipeline.public_account import signing_key
from tidegate.pipeline.side_tables import SideTables
from tidegate.pipeline.stream_reader import Reading, archives_of
from tidegate.sinks.chunks import Chunk
from tidegate.web.channel import Channel

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


def areas_of(content: bytes | None) -> set[str]:
    """The names in a map."""
    features = [] if content is None else json.loads(content)["features"]
    named = (each.get("properties") for each in features if isinstance(each, dict))
    return {str(each.get("name")) for each in named if isinstance(each, dict)}


class LogView:
    """The log of a stream for reading, beside the pipeline that writes it; nothing of it is read before it is asked for.

    Parameters
    ----------
    pipeline
        The stream as it was opened: its queries and their scopes, which stay the same while it runs.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        queries, scopes = pipeline.queries, pipeline.session.scopes
        self.identity = pipeline.identity
        self.log = LogReader(queries.ledger)
        try:
            self._side_tables = SideTables(self.log, queries.ledger)
            folder = archives_of(queries.first)
            self.archives = Archives(self.log, self._side_tables, folder, queries.first.run.keep)
            self._reading = Reading(
                pipeline.parts, pipeline.mechanisms, scopes, self._side_tables, self.archives
            )
        except BaseException:
            self.log.close()
            raise
        self.released = self._reading.released

    def refresh(self) -> None:
        """Read what was committed since."""
        for _ in self._reading.commits():
            pass

    @property
    def last(self) -> Row:
        """The last commit that was read."""
        return next(self.log.rows(self._reading.next - 1))

    def close(self) -> None:
        """Close the log."""
        self._side_tables.close()
        self.log.close()


class Driver:
    """Opens a stream, drives it in a thread of its own, and keeps what readers see of each query.

    Parameters
    ----------
    name
        The stream's name in addresses.
    queries
        Its configuration, with one query or several.
    clock
        Public time; another than the system's for made-up streams only.
    backfill
        Accept that more steps close at once than `catch_up` allows.
    """

    def __init__(
        self, name: str, queries: Queries, clock: Clock | None = None, *, backfill: bool = False
    ) -> None:
        self.name, self.queries, self.backfill = name, queries, backfill
        config = queries.first
        self.clock: Clock = clock or PublicClock()
        self.live = config.source.follow or "://" in config.source.location or self.posted
        self.state = "opening"  # running, waiting, ended, failed, stopped
        self.sentence = ""  # why, for operators
        self.damage = ""  # of what was acknowledged, for operators
        self.lag: float | None = None  # seconds from the close of the last step to its release
        self.committed: float | None = None  # when something was last committed, by the system's clock
        self.map = read_map(config.path.with_suffix(".geojson"))
        self.areas = areas_of(self.map)
        self.channels: dict[str, Channel] = {}  # of each query, by its name
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._intake: Intake | None = None
        self._pipeline: Pipeline | None = None
        self._reading = threading.Lock()
        self._door: LogView | None = None
        self._open()

    @property
    def posted(self) -> bool:
        """Whether events arrive by HTTP."""
        return False

    # before and after ---------------------------------------------------------------------------------------

    @property
    def config(self) -> Config:
        """The configuration of the first query; what all of them share can be asked of it."""
        return self.queries.first

    @property
    def first(self) -> Channel:
        """What the first query releases; the only one of most streams."""
        return next(iter(self.channels.values()))

    def _open(self) -> None:
        """Open the stream, which refuses what is wrong with it, and take up what it has released.

        After a failure this is the only way to continue: a session that failed never computes again.
        """
        # standard output is no place for the releases of a service that logs
        sink = self.config.sink.location != "-"
        pipeline = open_pipeline(
            self.queries, follow=self.live, sink=sink, backfill=self.backfill, clock=self.clock
        )
        self._pipeline = self._opened = pipeline
        try:
            self._close_door()  # a log from which nothing was released was removed, and is another one now
            if not self.channels:
                self.key = signing_key(self.config.path.with_suffix(".key"))
                self.channels = {
                    part.name: Channel(self, part, pipeline, listed=self.queries.listed)
                    for part in self.queries.parts
                }
            for name, channel in self.channels.items():
                pipeline.observers[name] = channel
                channel.resume(pipeline)
        except BaseException:
            self._close()
            raise

    @contextmanager
    def reader(self) -> Iterator[LogView]:
        """The log for reading, opened once; one reader at a time."""
        with self._reading:
            if self._door is None:
                self._door = LogView(self._opened)
            try:
                self._door.refresh()
                yield self._door
            except TidegateError:
                self._door.close()  # for example because a server has gone away
                self._door = None
                raise

    def _close_door(self) -> None:
        with self._reading:
            if self._door is not None:
                self._door.close()
                self._door = None

    def unless_stopped(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """The same releases, until the service is asked to stop: nobody waits for a reader then."""
        for chunk in chunks:
            if self._stop.is_set():
                raise TidegateError("the service is being stopped; ask again when it is back.")
            yield chunk

    def start(self) -> None:
        """Begin to drive."""
        self._thread = threading.Thread(target=self._run, name=f"stream {self.name}", daemon=True)
        self._thread.start()
        for channel in self.channels.values():
            for sender in channel.senders:
                sender.start()

    def stop(self) -> None:
        """Ask the stream to end between two blocks."""
        self._stop.set()
        for channel in self.channels.values():
            for sender in channel.senders:
                sender.stop()
        if self._intake is not None:
            self._intake.stop()

    def join(self) -> None:
        """Wait until it has."""
        if self._thread is not None:
            self._thread.join(STOPPING)
        else:
            self._close()
        self._close_door()

    @property
    def ended(self) -> bool:
        """Whether the thread is not at work."""
        return self._thread is None or not self._thread.is_alive()

    # what is measured; asked by other threads, and only numbers are read

    @property
    def backlog(self) -> int | None:
        """How many committed releases a sink lacks; None while the stream is closed."""
        pipeline = self._pipeline
        return None if pipeline is None else max((each["backlog"] for each in pipeline.backlogs), default=0)

    @property
    def steps_behind(self) -> int | None:
        """How many steps the clock has closed that are not released; None for a finite input."""
        if not self.live:
            return None
        steps = self.config.steps
        return max(0, min(steps.closed_by(self.clock()), steps.count or 2**62) - self.step)

    @property
    def clock_set_by(self) -> float:
        """By how many seconds the system's clock was set since the start."""
        return float(getattr(self.clock, "set_by", 0.0)) if self.live else 0.0

    @property
    def astray(self) -> bool:
        """Whether the system's clock was set so far that a record of now would count nowhere."""
        by, now = self.clock_set_by, self.clock()
        return bool(by) and not self.config.steps.takes(now + by, now)

    @property
    def health(self) -> str:
        """Its state, or that its clock is not the system's."""
        return "clock set" if self.astray and self.state in ("running", "waiting") else self.state

    @property
    def step(self) -> int:
        """The last step that was committed."""
        return self.first.step

    @property
    def clients(self) -> int:
        """How many listen to the live feeds."""
        return sum(each.feed.clients for each in self.channels.values())

    @property
    def connected(self) -> int | None:
        """Whether the source answers; None while the stream is closed."""
        intake = self._intake
        if intake is None:
            return None
        return int(not intake.source.status.startswith("waiting"))

    # the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        patience = PATIENCE[0]
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                if self._pipeline is None:
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
        pipeline = self._pipeline
        assert pipeline is not None
        intake = self._intake = self.open_intake(pipeline)
        if self._stop.is_set():
            return
        self._become("running")
        intake.source.tell = lambda sentence: log("source.says", stream=self.name, sentence=sentence)
        log("stream.started", stream=self.name, step=pipeline.step)
        try:
            pipeline.drive(intake)
            pipeline.finish(self._stop)
        finally:
            self._intake = None
            intake.close()
        if not self._stop.is_set():
            self._become("ended")
            log("stream.ended", stream=self.name, step=pipeline.step)

    def open_intake(self, pipeline: Pipeline) -> Intake:
        """Where the stream's steps come from."""
        return self.queries.open(pipeline.position, follow=self.live, clock=self.clock)

    def _close(self) -> None:
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            try:
                for channel in self.channels.values():
                    channel.remember(pipeline)
            except Exception as error:  # the next start reads all releases instead
                log("stream.not_remembered", stream=self.name, kind=type(error).__name__)
            try:
                pipeline.close()
            except Exception as error:
                log("stream.close_failed", stream=self.name, kind=type(error).__name__)

    def _failed(self, sentence: str) -> None:
        self._become("failed", sentence)
        log("stream.failed", stream=self.name, sentence=sentence)

    def _become(self, state: str, sentence: str = "") -> None:
        self.state, self.sentence = state, sentence

    # what its queries tell ----------------------------------------------------------------------------------

    def released(self, channel: Channel, chunk: Chunk) -> None:
        """Releases of a query were committed."""
        self.committed = time.time()
        step = int(chunk.step.max())
        steps = channel.config.steps  # each edition of a step has its own lateness
        assert isinstance(steps.lateness, int)
        closed = steps.boundary(step + 1) / 1e6 + steps.lateness
        speed = getattr(self.clock, "speed", 1.0)  # of a made-up clock
        self.lag = max(0.0, self.clock() - closed) / speed if self.live else None
        late = {} if self.lag is None else {"lag": round(self.lag, 3)}
        log("stream.released", **channel.encoder.names, step=step, number=chunk.last, **late)

    def waiting(self, sentence: str) -> None:
        """A sink cannot be reached, or can again."""
        if sentence:
            self._become("waiting", sentence)
            log("sink.waiting", stream=self.name, sentence=sentence)
        elif self.state == "waiting":
            self._become("running")
            log("sink.back", stream=self.name)
