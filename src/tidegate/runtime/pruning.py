"""Pruning: what no window and no sink needs any more goes into an archive, and the ledger stays as small as it is.

The archive is a copy of the ledger, checked and on disk before anything is forgotten, without the mechanism's state and
without rows of open steps. What the ledger keeps goes on from the account and the hash that the archive proves.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tidegate.errors import InvalidParameter, LedgerCorrupt, LedgerError, TidegateError, without_secrets
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
from tidegate.runtime.outlets import Readers
from tidegate.runtime.store import Progress, Store, open_durable, verify_target

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
        The last row, the last release and the last step that are only there now.
    """

    archive: Copied
    rows: int
    number: int
    step: int


def kept_steps(store: Store, keep: int | None) -> int:
    """How many of the last steps stay in the ledger."""
    window = store.ledger.policy.window or 0
    least = max(window, 1)
    return max(2 * window, LEAST) if keep is None else whole("keep", keep, least=least)


def prune(
    store: Store, run: Run, archives: Path, *, keep: int | None = None, sent: int | None = None
) -> Pruned | None:
    """Move what is not needed any more into an archive; None where there is nothing to move.

    Parameters
    ----------
    store, run
        A stream that is open for writing, and its run, which stands where the store stands.
    archives
        A folder for archives.
    keep
        How many of the last steps stay, at least a window; by default twice a window, and at least 1,000.
    sent
        Up to which release every sink has everything; by default all.
    """
    if store.sink(Readers().name)[1] is not None:
        raise LedgerError(
            f"a service publishes the account of the ledger {store.ledger.where} from its first row, so nothing of it "
            "is archived; keep it whole."
        )
    if store.ledger.shares:
        raise LedgerError(
            f"the ledger {store.ledger.where} has several queries or was amended, and is not pruned; keep it whole."
        )
    if not archives.is_dir():
        raise InvalidParameter(
            "archives", str(archives), "a folder that exists", "make it, on another disk at best"
        )
    cut = _cut(store, kept_steps(store, keep), sent)
    if cut is None:
        return None
    number, rows, step = cut
    archive = _archive(store.ledger, archives)
    before = store.progress
    with store.transaction():
        with run._at_work():  # the row that is added charges nothing, and the run goes on after it
            store.archive(number, rows, step)
        state = run.snapshot()
        store.put(Chunk.of(before.number + 1, []), before.step, before.position or {}, state)
    store.committed(Progress(before.step, before.number, before.position or {}, state))
    return Pruned(archive, rows, number, step)


def _cut(store: Store, keep: int, sent: int | None) -> tuple[int, int, int] | None:
    """The last release that can go, the last row of the ledger that goes with it, and its step."""
    latest = store.progress.number if sent is None else min(sent, store.progress.number)
    last, first_kept = store.progress.step - keep, store.progress.step + 1
    for chunk in store.latest():
        if chunk.last > latest - SPARE or not (chunk.step <= last).all():
            first_kept = int(chunk.step[chunk.revision == 0].min(initial=first_kept))
            continue
        # the row that a link names must be there to check it, so the one before is the last that goes
        rows = store.link_rows(chunk.last) - 1
        base = store.ledger.base()
        if rows <= (0 if base is None else base.row) or chunk.last <= store.archived.number:
            return None
        return chunk.last, rows, first_kept - 1
    return None


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
    for table in ("kept", "arrivals"):
        connection.execute(f"DELETE FROM {table}")
    connection.execute("UPDATE stream SET position = NULL, state = NULL")
    connection.execute(ARCHIVE.format(integer="INTEGER"))
    connection.execute("COMMIT")
    connection.execute("VACUUM")


def verify_archives(archives: Sequence[Path], ledger: Path | str) -> str:
    """Check that archives and a ledger are one account without a gap: "" if so, else what is wrong.

    Each must hold by itself, the first begins at the first row, and each of the others goes on from an account
    that the one before adds up to.
    """
    try:
        found: list[Path | str] = sorted([*archives, ledger], key=_base_row)
        for path in found:
            verdict = verify_target(path)
            if not verdict.ok:
                return without_secrets(f"{path}: {verdict.problem}")
        if _base_row(found[0]):
            return f"the rows 1 to {_base_row(found[0])} are in no archive that was given."
        if found[-1] != ledger:
            return without_secrets(f"{found[-1]} goes on after {ledger}; give the newest ledger.")
        for earlier, later in pairwise(found):
            _check_continues(earlier, later)
    except TidegateError as error:
        return str(error)
    return ""


def _base_row(path: Path | str) -> int:
    """The last row that a ledger does not have any more."""
    with open_durable(path, read_only=True) as ledger:
        base = ledger.base()
    return 0 if base is None else base.row


def _check_continues(earlier: Path | str, later: Path | str) -> None:
    """Refuse a ledger whose base is not what the rows of the one before add up to."""
    with open_durable(later, read_only=True) as after:
        base, archived = after.base(), Store(after).archived
    assert base is not None
    with open_durable(earlier, read_only=True) as before:
        account = before.rule.account()
        connection = before.connection
        meta = dict(connection.execute("SELECT name, value FROM meta"))
        replay = begin_replay(connection, before.rule, account, meta)
        if base.row > before.head[0]:
            raise LedgerCorrupt(
                without_secrets(
                    f"rows after {before.head[0]} are missing: {later} goes on from row {base.row}."
                )
            )
        replay.to(base.row)
        store = Store(before)
        anchor = archived.anchor
        linked = anchor is None or store._chain.link_at(anchor.number).hash == anchor.hash
        if replay.digest != base.hash or account_bytes(account) != base.account or not linked:
            raise LedgerCorrupt(
                without_secrets(f"{later} does not go on from what {earlier} adds up to; restore a backup.")
            )
