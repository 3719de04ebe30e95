"""What a query of a stream releases, as others see it: what was released, the live feed, and its webhooks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tidegate.config import Config
from tidegate.pipeline import Pipeline
from tidegate.pipeline.earlier_releases import ended_scopes, newest_before
from tidegate.sinks.chunks import Chunk, Integers, Values
from tidegate.web.alarms import read_alarms
from tidegate.web.feed import Feed
from tidegate.web.release_cache import WARM, ReleaseCache
from tidegate.web.release_encoding import Encoder
from tidegate.web.webhooks import senders

if TYPE_CHECKING:
    from tidegate.web.driver import Driver

REMEMBER_EVERY = 1000  # releases
_FORMAT = 1  # of what is remembered; another where the same releases lead to something else


class Channel:
    """The releases of one query, for readers; the stream's thread adds to it, any may read.

    Parameters
    ----------
    driver
        Who drives the stream.
    config
        The query.
    pipeline
        The stream at work.
    listed
        Whether the stream has several queries, so that this one has an address of its own.
    """

    def __init__(self, driver: Driver, config: Config, pipeline: Pipeline, *, listed: bool) -> None:
        self.driver, self.config = driver, config
        self.query = query = config.name if listed else ""
        self.name = f"{driver.name}/{query}" if query else driver.name  # as in addresses
        released = pipeline.released[config.name]
        self.scope, self.unit, self.adds = released.scope, released.unit, released.adds
        self.limit = released.unit * released.units
        self.revises = config.mechanism.revises
        self.log = pipeline.identity
        self.step = 0  # the last one that was committed
        self.spent = Fraction(0)  # in the last window
        self._pipeline = pipeline
        names = tuple(part.name for part in driver.queries.parts) if query else ()
        alarms = read_alarms(config, query, names)
        self.board = ReleaseCache(
            config, self._past, alarms, first=self.scope.first, before=self._before_amendment
        )
        self.encoder = Encoder(driver.name, config, self.unit, query)
        self._load(pipeline)
        self.feed = Feed(self.board, self.encoder)
        beside = config.path.with_suffix(f".{query}.hooks.json" if query else ".hooks.json")
        self.senders = list(senders(self.board.alarms.hooks, self.board, self.encoder, driver.key, beside))

    def _load(self, pipeline: Pipeline) -> None:
        """Take up what was released: from what was noted of this board, or else from the first release on."""
        released, known = pipeline.released[self.config.name], pipeline.side_tables.note(self._note)
        self._remembered = 0
        # a standing question may depend on all releases, and other alarms have another past
        if known is None or known["key"] != self._key or self.board.alarms.standing:
            self.board.load(released.chunks())
        else:
            self._remembered = known["number"]
            begin = max(0, min(self._remembered, released.number - WARM))
            self.board.resume(self._remembered, known, released.chunks(begin))

    @property
    def _note(self) -> str:
        """Under which name the spool knows the board: numbers of releases begin again with each scope."""
        return f"board/{self.config.name}/{self.scope.number}"

    @property
    def _key(self) -> str:
        words = json.dumps([_FORMAT, self.encoder.stream, self.board.alarms.key])
        return hashlib.sha256(words.encode()).hexdigest()

    def remember(self, pipeline: Pipeline, *, least: int = 1) -> None:
        """Note what follows from all releases, so that the next start need not read them.

        Parameters
        ----------
        pipeline
            The stream, open; only the thread that drives it notes anything.
        least
            How many releases must have come since.
        """
        if self.board.number - self._remembered >= least:
            noted: dict[str, Any] = {
                "key": self._key,
                "number": self.board.number,
                **self.board.summary(),
            }
            pipeline.side_tables.put_note(self._note, noted)
            self._remembered = self.board.number

    @contextmanager
    def _past(self, after: int = 0, steps: tuple[int, int] | None = None) -> Iterator[Iterator[Chunk]]:
        with self.driver.reader() as reader:
            released = reader.released[self.config.name]
            found = released.chunks(after) if steps is None else released.between(*steps)
            yield self.driver.unless_stopped(found)

    def _before_amendment(self, since: int) -> Chunk:
        with self.driver.reader() as reader:
            released, ended = reader.released[self.config.name], ended_scopes(reader.archives.rows())
            return newest_before(released, ended, since)

    def spent_by(self, steps: Integers) -> Values:
        """What the window that ends at each of some steps has spent, as the log has it."""
        with self.driver.reader() as reader:
            units = reader.released[self.config.name].spent_by(steps)
        return units.astype("f8") * float(self.unit)

    @property
    def map(self) -> bytes | None:
        """The stream's map, where one of its areas is a column of this query."""
        areas = self.driver.areas
        return self.driver.map if not self.query or areas.intersection(self.board.labels) else None

    def resume(self, pipeline: Pipeline) -> None:
        """Follow a stream that was opened, from what was committed and not yet seen."""
        self._pipeline, released = pipeline, pipeline.released[self.config.name]
        self.log = pipeline.identity
        for chunk in released.chunks(self.board.number):
            self.released(chunk)
        self._measure()
        if pipeline.session.closed:  # it has ended, and its account was not opened again
            self.spent = released.spent * self.unit

    def _measure(self) -> None:
        session = self._pipeline.session
        self.step, self.spent = session.steps[self.config.name], session.spent[self.config.name] * self.unit

    # what the pipeline tells its observer -------------------------------------------------------------------

    def released(self, chunk: Chunk) -> None:
        """Releases were committed."""
        self._measure()
        if not len(chunk):  # a step of which nothing is said, while windows hold what an ended query has read
            return
        self.board.add(chunk)
        self.feed.publish()
        for sender in self.senders:
            sender.wake()
        self.driver.released(self, chunk)
        self.remember(self._pipeline, least=REMEMBER_EVERY)

    def waiting(self, sentence: str) -> None:
        """A sink cannot be reached, or can again."""
        self.driver.waiting(sentence)
