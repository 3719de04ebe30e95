"""Pruning: what no window and no sink needs any more goes into an archive, and the ledger stays as small as it is.

The archive is a copy of the ledger, checked and on disk before anything is forgotten, without the mechanism's state and
without rows of open steps. What the ledger keeps goes on from the account and the hash that the archive proves.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from tidegate.errors import InvalidParameter, LedgerCorrupt, TidegateError, without_secrets
from tidegate.exact import whole
from tidegate.ledger import SQLiteLedger
from tidegate.ledger.base import ARCHIVE
from tidegate.ledger.durable import DurableLedger
from tidegate.ledger.postgres import PostgresLedger
from tidegate.ledger.replay import begin_replay
from tidegate.ledger.rows import account_bytes
from tidegate.mechanisms import Run
from tidegate.runtime.chunks import Chunk
from tidegate.runtime.copies import Copied, back_up, named_copy
from tidegate.runtime.exported import export
from tidegate.runtime.heads import Head, check_head
from tidegate.runtime.parts import amendments_digest, parts_of
from tidegate.runtime.store import Archived, Part, Store, open_durable, verify_target

SPARE = 1000  # releases that a sink may ask for again: a part of a Parquet folder
LEAST = 1000  # steps that are kept at least, if nothing else is said


@dataclass(frozen=True)
class Pruned:
    """What was moved into an archive.

    Parameters
    ----------
    archive
        The archive.
    rows, number, step
        The last row, how many releases of all queries, and the last step of all of them that are only there now.
    """

    archive: Copied
    rows: int
    number: int
    step: int


@dataclass(frozen=True)
class Pruning:
    """One query of a stream that is to be pruned.

    Parameters
    ----------
    store
        Open for writing.
    run
        The mechanism at work, which stands where the store stands; None where the query is silent, or has ended.
    sent
        Up to which release every sink has everything; by default all.
    """

    store: Store
    run: Run | None = None
    sent: int | None = None

    @property
    def present(self) -> bool:
        """Whether the query goes on."""
        return self.store.part.until is None

    def cut(self, last: int) -> Archived:
        """What can be archived of it: releases of steps up to one, that every sink has; at least what is already."""
        store, first_kept = self.store, self.store.progress.step + 1
        latest = store.progress.number if self.sent is None else min(self.sent, store.progress.number)
        # what goes on keeps its last commit, to which the next is linked
        latest = min(latest - SPARE, store.progress.number - 1) if self.present else latest
        for chunk in store.latest():
            if chunk.last <= latest and (chunk.step <= last).all():
                return (
                    store.archived_at(chunk.last, first_kept - 1)
                    if store.chained(chunk.last)
                    else store.archived
                )
            first_kept = int(chunk.step[chunk.revision == 0].min(initial=first_kept))
        return store.archived


def kept_steps(ledger: DurableLedger, keep: int | None) -> int:
    """How many of the last steps stay in the ledger."""
    window = ledger.policy.window or 0
    least = max(window, 1)
    return max(2 * window, LEAST) if keep is None else whole("keep", keep, least=least)


def check_folder(archives: Path) -> None:
    """Refuse a place for archives that is no folder."""
    if not archives.is_dir():
        raise InvalidParameter(
            "archives", str(archives), "a folder that exists", "make it, on another disk at best"
        )


class Archiving:
    """Prunes a stream when twice as many steps have come together as are kept.

    A pruning is a row of the account. So what it depends on is public: the step, and what sinks that answer have by then.

    Parameters
    ----------
    queries, archives, keep
        As for `prune`.
    """

    def __init__(self, queries: Sequence[Pruning], archives: Path, keep: int | None = None) -> None:
        check_folder(archives)
        self.archives, self.keep = archives, kept_steps(queries[0].store.ledger, keep)
        self._tried = 0  # the step at which it was last thought of

    def due(self, store: Store) -> bool:
        """Whether it is time; whoever asks has its sinks recorded before `prune`."""
        return store.progress.step - max(store.archived.step, self._tried) >= 2 * self.keep

    def prune(self, queries: Sequence[Pruning]) -> None:
        """Prune now."""
        # where a sink needs all of it, the next attempt has time
        self._tried = queries[0].store.progress.step - self.keep
        prune(queries, self.archives, keep=self.keep)


def prune(queries: Sequence[Pruning], archives: Path, *, keep: int | None = None) -> Pruned | None:
    """Move what is not needed any more into an archive; None where there is nothing to move.

    Parameters
    ----------
    queries
        All queries of a stream that are at work, on one ledger that is open for writing.
    archives
        A folder for archives.
    keep
        How many of the last steps stay, at least a window; by default twice a window, and at least 1,000.
    """
    ledger = queries[0].store.ledger
    check_folder(archives)
    last = min(query.store.progress.step for query in queries) - kept_steps(ledger, keep)
    parts = [*queries, *_ended(ledger)]
    cuts = [query.cut(last) for query in parts]
    rows = _rows_to_go(ledger, parts, cuts)
    base = ledger.base()
    if rows <= (0 if base is None else base.row) or all(
        cut == query.store.archived for query, cut in zip(parts, cuts, strict=True)
    ):
        return None
    archive, facts = _archive(ledger, archives), _facts(ledger, parts, cuts)
    with ledger.transaction(unseen=True), ExitStack() as at_work:
        for query in queries:
            if query.run is not None:  # the row that is added charges nothing, and the run goes on after it
                at_work.enter_context(query.run._at_work(hands_out=False))
        ledger.prune(rows, facts)
        for query, cut in zip(parts, cuts, strict=True):
            query.store.forget(cut)
        at_work.close()
        states = [
            (query.store, _linked(query.store, query.run)) for query in queries if query.run is not None
        ]
    for store, state in states:
        store.committed(replace(store.progress, position=store.progress.position or {}, state=state))
    return Pruned(archive, rows, sum(cut.number for cut in cuts), _last_step_archived(parts, cuts))


def _last_step_archived(parts: Sequence[Pruning], cuts: Sequence[Archived]) -> int:
    """The last step of which no release of any query is left; a part that begins later has none of it."""
    left = [
        max(cut.step, query.store.part.since)
        for query, cut in zip(parts, cuts, strict=True)
        if cut.number < query.store.progress.number
    ]
    return min(left, default=max(cut.step for cut in cuts))


def _linked(store: Store, run: Run) -> bytes:
    """Keep the state of a run as it is after the row that was added."""
    before, state = store.progress, run.snapshot()
    store.put(Chunk.of(before.number + 1, []), before.step, before.position or {}, state, forget=False)
    return state


def _ended(ledger: DurableLedger) -> list[Pruning]:
    """The parts of a stream that have ended: nobody asks for their releases here any more."""
    return [Pruning(Store(ledger, part=part)) for part in parts_of(ledger) if part.until is not None]


def _rows_to_go(ledger: DurableLedger, parts: Sequence[Pruning], cuts: Sequence[Archived]) -> int:
    """The last row of the ledger that neither a link nor a query's run names."""
    needed = [query.store.first_row_needed(cut) for query, cut in zip(parts, cuts, strict=True)]
    with ledger.told():
        needed += [found[0] for name in ledger.shares if (found := ledger.last_row(name)) is not None]
    return min((row for row in needed if row is not None), default=ledger.head[0]) - 1


def _facts(ledger: DurableLedger, parts: Sequence[Pruning], cuts: Sequence[Archived]) -> dict[str, Any]:
    """What the ledger's base remembers of all parts, and of the amendments that led to them."""
    numbered = {query.store.part.number: cut.facts() for query, cut in zip(parts, cuts, strict=True)}
    first = numbered.pop(0, {})
    others = {str(number): facts for number, facts in numbered.items() if facts}
    return {**first, **({"parts": others} if others else {}), "amended": amendments_digest(ledger)}


def _archive(ledger: DurableLedger, archives: Path) -> Copied:
    """A file with all rows and releases of a ledger, wherever that is, checked from its first row."""
    if isinstance(ledger, SQLiteLedger):
        return back_up(str(ledger.path), archives, prepare=_stripped)
    assert isinstance(ledger, PostgresLedger)

    def copy(fresh: Path) -> None:
        export(ledger, fresh)
        writer = sqlite3.connect(fresh, isolation_level=None)
        try:
            _stripped(writer)
        finally:
            writer.close()

    return named_copy(Path(str(ledger.where).rpartition("#")[2]), archives, copy)


def _stripped(connection: sqlite3.Connection) -> None:
    """Take out of a copy what only a stream that goes on may have."""
    connection.execute("PRAGMA secure_delete=ON")
    connection.execute("BEGIN")
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        if table in ("kept", "arrivals"):
            connection.execute(f"DELETE FROM {table}")
        elif re.fullmatch(r"stream(_[0-9]+)?", table):  # of each part, ended ones as well
            connection.execute(f"UPDATE {table} SET position = NULL, state = NULL")
    connection.execute(ARCHIVE.format(integer="INTEGER"))
    connection.execute("COMMIT")
    connection.execute("VACUUM")


def verify_archives(archives: Sequence[Path], ledger: Path | str) -> str:
    """Check that archives and a ledger are one account without a gap: "" if so, else what is wrong.

    Each must hold by itself, the first begins at the first row, and each of the others goes on from an account
    that the one before adds up to. An archive of a pruning that was interrupted is a beginning of a later one.
    """
    try:
        found: list[Path | str] = sorted([*archives, ledger], key=_rows_of)
        for path in found:
            verdict = verify_target(path)
            if not verdict.ok:
                return without_secrets(f"{path}: {verdict.problem}")
        if _rows_of(found[0])[0]:
            return f"the rows 1 to {_rows_of(found[0])[0]} are in no archive that was given."
        if found[-1] != ledger:
            return without_secrets(f"{found[-1]} goes on after {ledger}; give the newest ledger.")
        for earlier, later in pairwise(found):
            _check_continues(earlier, later)
    except TidegateError as error:
        return str(error)
    return ""


def check_head_in(ledger: DurableLedger, archives: Sequence[Path], head: Head) -> None:
    """Compare a head with a ledger, or with that of its archives which has the row that the head remembers.

    What the archives say counts only where `verify_archives` has found them to be one account with the ledger.
    """
    base = ledger.base()
    if base is not None and 0 < head.rows < base.row:
        for path in archives:
            with open_durable(path, read_only=True) as archive:
                if archive.identity == ledger.identity and archive.hash_of(head.rows) is not None:
                    check_head(archive, head)
                    return
    check_head(ledger, head)


def _rows_of(path: Path | str) -> tuple[int, int]:
    """The last row that a ledger does not have any more, and the last that it has."""
    with open_durable(path, read_only=True) as ledger:
        base = ledger.base()
        return 0 if base is None else base.row, ledger.head[0]


def _check_continues(earlier: Path | str, later: Path | str) -> None:
    """Refuse a ledger whose base is not what the rows of the one before add up to."""
    with open_durable(later, read_only=True) as after, open_durable(earlier, read_only=True) as before:
        base = after.base()
        if base == before.base():  # both begin alike, so the longer one has all rows of the other
            if after.hash_of(before.head[0]) != before.head[1]:
                raise _another(earlier, later)
            return
        assert base is not None
        if base.row > before.head[0]:
            raise LedgerCorrupt(
                without_secrets(
                    f"rows after {before.head[0]} are missing: {later} goes on from row {base.row}."
                )
            )
        account = before.rule.account()
        meta = dict(before.connection.execute("SELECT name, value FROM meta"))
        replay = begin_replay(before.connection, before.rule, account, meta)
        replay.to(base.row)
        parts = parts_of(after) or [Part()]
        if (
            replay.digest != base.hash
            or account_bytes(account) != base.account
            or account.history() != base.facts.get("history", {})
            or not all(_linked_before(before, Store(after, part=part)) for part in parts)
        ):
            raise _another(earlier, later)


def _linked_before(before: DurableLedger, later: Store) -> bool:
    """Whether the releases of a part go on from those in an earlier ledger."""
    archived = later.archived
    if archived.anchor is None:
        return True
    earlier = Store(before, part=later.part)
    if earlier.archived == archived:  # nothing of it was archived since
        return True
    return earlier.link_hash(archived.number) == archived.anchor.hash


def _another(earlier: Path | str, later: Path | str) -> LedgerCorrupt:
    return LedgerCorrupt(
        without_secrets(f"{later} does not go on from what {earlier} adds up to; restore a backup.")
    )
