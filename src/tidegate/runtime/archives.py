"""What of a ledger is in archives, for those who publish it from its first row on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tidegate.errors import LedgerCorrupt, LedgerError
from tidegate.ledger import SQLiteLedger
from tidegate.ledger.durable import DurableLedger
from tidegate.ledger.published import published_rows
from tidegate.runtime.chunks import Chunk, Integers, number_before
from tidegate.runtime.store import Part, Store


class Shelved(NamedTuple):
    """An archive: after which row it begins, and the last that it has; the last steps likewise."""

    after: int
    last: int
    after_step: int
    last_step: int
    ledger: SQLiteLedger


class Archives:
    """The archives of one ledger, in a folder that may have those of others as well; any thread may ask.

    Parameters
    ----------
    folder
        As `archives` in ``[run]`` names it; None where it is not named.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._open: dict[Path, Shelved | None] = {}  # None where it is an archive of another ledger
        self._stores: dict[tuple[int, int], Store] = {}  # by last row and part
        self._lock = threading.RLock()

    def rows(self, ledger: DurableLedger, after: int) -> list[list[Any]]:
        """Rows of an account after a number, as they are published."""
        found = published_rows(ledger, after)
        if found and found[0][0] == after + 1:
            return found
        base = ledger.base()
        if base is None or after >= base.row:
            return found
        with self._lock:
            return published_rows(self._with_row(ledger, after + 1).ledger, after)

    def chunks(self, store: Store, after: int = 0) -> Iterator[Chunk]:
        """All releases of a query with a number greater than `after`, in order."""
        while True:
            try:
                while after < store.archived.number:
                    with self._lock:
                        chunk = next(self._with_release(store, after + 1).chunks(after))
                    yield chunk
                    after = chunk.last
                for chunk in store.chunks(after):
                    yield chunk
                    after = chunk.last
            except LedgerCorrupt:  # unless what is missing has just been archived
                archived, store = store.archived, Store(store.ledger, part=store.part)
                if store.archived == archived:
                    raise
            else:
                return

    def between(self, store: Store, first: int, last: int) -> Iterator[Chunk]:
        """Releases of a query, in order, among which are all of some steps; as few others as can be."""
        steps = np.arange(max(first, store.part.since + 1), min(last, store.progress.step) + 1)
        if not len(steps):
            return
        revisions, waiting, left = store.revisions(steps), np.ones(len(steps), dtype=np.bool_), len(steps)
        after = store.archived.number if steps[0] > store.archived.step else 0
        begin = number_before(int(steps[0]), after, store.progress.number, partial(self.chunks, store))
        for chunk in self.chunks(store, begin):
            yield chunk
            inside = (chunk.step >= steps[0]) & (chunk.step <= steps[-1])
            at = chunk.step[inside] - steps[0]
            seen = np.unique(at[waiting[at] & (chunk.revision[inside] >= revisions[at])])
            waiting[seen] = False
            left -= len(seen)
            if not left:  # the last word on each step was said
                return

    def window_units(self, store: Store, steps: Integers) -> Integers:
        """What the window that ends at each of some steps was charged, in units; the steps are in order."""
        base = store.ledger.base()
        if base is None or not len(steps) or store.first_step_needed(steps) > base.step:
            return store.window_units(steps)
        first, last = store.first_step_needed(steps), int(steps[-1])
        with self._lock:
            rows = dict(store.charges(first, last))
            for each in self._shelf(store.ledger):
                if each.after_step <= last and each.last_step >= first:
                    rows |= self._store(each, store.part).charges(first, last)
        return store.window_units(steps, [row for _, row in sorted(rows.items())])

    def check(self, ledger: DurableLedger) -> None:
        """Refuse a folder that lacks what the ledger has archived."""
        base, after = ledger.base(), 0
        while base is not None and after < base.row:
            found = self._with_row(ledger, after + 1)
            after = found.last
            if after >= base.row and found.ledger.hash_of(base.row) != base.hash.hex():
                raise self._lacks(ledger, f"row {base.row:,}")

    def _with_row(self, ledger: DurableLedger, row: int) -> Shelved:
        """The archive that has a row, and most of those after it."""
        found = [each for each in self._shelf(ledger) if each.after < row <= each.last]
        if not found:
            raise self._lacks(ledger, f"row {row:,}")
        return max(found, key=lambda each: each.last)

    def _with_release(self, store: Store, number: int) -> Store:
        """The archive that has a release of a query, and most of those after it."""
        stores = [self._store(each, store.part) for each in self._shelf(store.ledger)]
        found = [each for each in stores if each.archived.number < number <= each.progress.number]
        if not found:
            raise self._lacks(store.ledger, f"release {number:,}")
        return max(found, key=lambda each: each.progress.number)

    def _store(self, archive: Shelved, part: Part) -> Store:
        """What an archive has of a part; nothing where it is older than that."""
        key = (archive.last, part.number)
        if key not in self._stores:
            self._stores[key] = Store(archive.ledger, part=part)
        return self._stores[key]

    def _shelf(self, ledger: DurableLedger) -> list[Shelved]:
        """All archives of a ledger that are there now."""
        if self.folder is None:
            raise LedgerError(
                f"the first rows of the ledger {ledger.where} are in archives, which are wanted here as well; name "
                "their folder as archives in [run]."
            )
        for path in sorted(self.folder.glob("*.ledger")):
            if path not in self._open:
                self._open[path] = _taken_up(path, ledger.identity)
        return [each for each in self._open.values() if each is not None]

    def _lacks(self, ledger: DurableLedger, what: str) -> LedgerError:
        return LedgerError(
            f"{what} of the ledger {ledger.where} is in no archive in the folder {self.folder}; put back the one "
            "that has it."
        )

    def close(self) -> None:
        """Let go of all files."""
        with self._lock:
            opened, self._open = self._open, {}
            self._stores.clear()
            for each in opened.values():
                if each is not None:
                    each.ledger.close()


def _taken_up(path: Path, identity: str) -> Shelved | None:
    """An archive, open for reading; None where it is one of another ledger."""
    ledger = SQLiteLedger(path, read_only=True)
    if ledger.identity != identity or not ledger.archive:
        ledger.close()
        return None
    base = ledger.base()
    after, step = (0, 0) if base is None else (base.row, base.step)
    return Shelved(after, ledger.head[0], step, ledger.step, ledger)
