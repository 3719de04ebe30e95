"""What a query of a stream releases, as others see it: what was released, the live feed, and its webhooks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidegate.config import Config
from tidegate.runtime import Chunk, Store, Stream
from tidegate.runtime.chunks import Integers, Values
from tidegate.web.alarms import read_alarms
from tidegate.web.board import WARM, Board
from tidegate.web.encoding import Encoder
from tidegate.web.feed import Feed
from tidegate.web.hooks import senders

if TYPE_CHECKING:
    from tidegate.web.driver import Driver

BOARD = "the service's board"  # among the sinks of a store: what follows from all releases
REMEMBER_EVERY = 1000  # releases
_FORMAT = 1  # of what is remembered; another where the same releases lead to something else


class Channel:
    """The releases of one query, for readers; the stream's thread adds to it, any may read.

    Parameters
    ----------
    driver
        Who drives the stream.
    query
        The query's name; empty where the stream has one only.
    config
        Its configuration.
    stream
        The query at work.
    """

    def __init__(self, driver: Driver, query: str, config: Config, stream: Stream) -> None:
        self.driver, self.query, self.config = driver, query, config
        self.name = f"{driver.name}/{query}" if query else driver.name  # as in addresses
        self.part, self.account = stream.store.part, stream.store.account
        self.unit = self.account.unit
        self.limit = self.account.unit * self.account.units
        self.adds = bool(self.account.rule.adds)
        self.revises = stream.revises
        self._store: Store | None = None
        names = tuple(part.name for part in driver.queries.parts) if query else ()
        self.board = Board(config, self._past, read_alarms(config, query, names))
        self.encoder = Encoder(driver.name, config, self.unit, query)
        self._load(stream.store)
        self.feed = Feed(self.board, self.encoder)
        beside = config.path.with_suffix(f".{query}.hooks.json" if query else ".hooks.json")
        self.senders = list(senders(self.board.alarms.hooks, self.board, self.encoder, driver.key, beside))
        self.spent = self.account.spent()  # in the last window

    def _load(self, store: Store) -> None:
        """Take up what was released: from what the ledger remembers of this board, or else from the first release on."""
        archives, last = self.driver.archives, store.progress.number
        self._remembered, known = store.sink(BOARD)
        # a standing question may depend on all releases, and other alarms have another past
        if known is None or known["key"] != self._key or self.board.alarms.standing:
            self._remembered = 0
            self.board.load(archives.chunks(store))
        else:
            begin = max(0, min(self._remembered, last - WARM))
            self.board.resume(self._remembered, known, archives.chunks(store, begin))

    @property
    def _key(self) -> str:
        words = json.dumps([_FORMAT, self.encoder.stream, self.board.alarms.key])
        return hashlib.sha256(words.encode()).hexdigest()

    def remember(self, store: Store, *, least: int = 1) -> None:
        """Keep in the ledger what follows from all releases, so that the next start need not read them.

        Parameters
        ----------
        store
            Open for writing, by the thread that drives the stream.
        least
            How many releases must have come since.
        """
        if self.board.number - self._remembered >= least:
            with store.transaction():
                store.put_sink(BOARD, self.board.number, {"key": self._key, **self.board.summary()})
            self._remembered = self.board.number

    @contextmanager
    def _past(self, after: int = 0, steps: tuple[int, int] | None = None) -> Iterator[Iterator[Chunk]]:
        with self.driver.reader() as ledger:
            store, archives = Store(ledger, part=self.part), self.driver.archives
            found = archives.chunks(store, after) if steps is None else archives.between(store, *steps)
            yield self.driver.unless_stopped(found)

    def spent_by(self, steps: Integers) -> Values:
        """What the window that ends at each of some steps has spent, as the ledger has it."""
        with self.driver.reader() as ledger:
            units = self.driver.archives.window_units(Store(ledger, part=self.part), steps).astype("f8")
        return units * float(self.unit)

    @property
    def map(self) -> bytes | None:
        """The stream's map, where one of its areas is a column of this query."""
        areas = self.driver.areas
        return self.driver.map if not self.query or areas.intersection(self.board.labels) else None

    def take_up(self, stream: Stream) -> None:
        """Go on after a failure, with what was committed and not yet seen."""
        self.account, self._store = stream.store.account, stream.store
        for chunk in self.driver.archives.chunks(stream.store, self.board.number):
            self.released(chunk)
        self.spent = self.account.spent()

    # what the stream tells its watcher ----------------------------------------------------------------------

    def released(self, chunk: Chunk) -> None:
        """Releases were committed."""
        self.board.add(chunk)
        self.feed.publish()
        for sender in self.senders:
            sender.wake()
        self.spent = self.account.spent()
        self.driver.released(self, chunk)
        if self._store is not None:
            self.remember(self._store, least=REMEMBER_EVERY)

    def waiting(self, sentence: str) -> None:
        """A sink cannot be reached, or can again."""
        self.driver.waiting(sentence)
