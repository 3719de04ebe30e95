"""A durable ledger in one SQLite file: every charge is on disk before it is granted."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path

from tidegate.errors import LedgerError
from tidegate.ledger import file
from tidegate.ledger.durable import DurableLedger, begun, meta_of
from tidegate.ledger.places import Remembered, remembered
from tidegate.ledger.rules import LedgerPolicy, Schedule


class SQLiteLedger(DurableLedger):
    """The whole account in one file: hash-chained rows, and a checkpoint so that opening is quick.

    Parameters
    ----------
    path
        The file; created if there is none. Beside it lie SQLite's side files and a `.lock`.
    policy, units, schedule
        As for `Ledger`. Needed to create a file; if given for an existing one they must be the same.
    fingerprint
        Text that identifies the mechanism; must be the same each time if given.
    read_only
        Look at a ledger, also while another process writes to it; charges are refused.

    One process writes to a file at a time. Each charge is committed (WAL, synchronous=FULL) before the call
    returns; inside `transaction()` all charges, and whatever the caller writes through `connection`, are
    committed together.

    Examples
    --------
    >>> import tempfile
    >>> from tidegate.policy import WEvent
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for step in (1, 2):  # two processes, one after the other
    ...         with SQLiteLedger(f"{folder}/s.ledger", WEvent(epsilon="1", w=2), units=2) as ledger:
    ...             ledger.charge(step, 1)
    ...             print(ledger.step, ledger.verify().ok)
    1 True
    2 True
    """

    types = {"integer": "INTEGER", "bytes": "BLOB"}  # noqa: RUF012  read only

    def __init__(
        self,
        path: str | PathLike[str],
        policy: LedgerPolicy | None = None,
        units: int | None = None,
        schedule: Schedule = "adaptive",
        *,
        fingerprint: str | None = None,
        marked: bool = False,
        read_only: bool = False,
    ) -> None:
        self.path = self.where = Path(path).resolve()
        self.read_only = read_only
        self._descriptor = -1
        self._depth = 0
        self._unused = False
        wanted = meta_of(policy, units, schedule, fingerprint, marked)
        with file.told(self.path):
            if not read_only:
                if wanted is None and not self.path.exists():
                    raise LedgerError(
                        f"there is no ledger at {self.path}; give a policy and units to create one."
                    )
                self._descriptor = file.take_lock(self.path)
            try:
                if wanted is not None and not read_only and not self.path.exists():
                    file.create(self.path, begun(wanted))
                self.connection = file.connect(self.path, read_only=read_only)
            except BaseException:
                file.leave_lock(self._descriptor)
                raise
        try:
            with file.told(self.path):
                meta = file.read_meta(self.connection, self.path)
                self._take_up(policy, meta, wanted, fingerprint)
        except BaseException:
            self.connection.close()
            file.leave_lock(self._descriptor)
            raise

    def told(self) -> AbstractContextManager[None]:
        """Every failure of the database or the file system as one sentence."""
        return file.told(self.path)

    def _begin(self) -> None:
        self._refuse_read_only()
        with file.told(self.path):
            self.connection.execute("BEGIN IMMEDIATE")

    def _here(self) -> str:
        return str(self.path.stat().st_ino)

    def _remembered(self) -> Remembered:
        return remembered(os.pread(self._descriptor, 200, 0))

    def _remember(self, found: Remembered) -> None:
        os.pwrite(self._descriptor, found.line(), 0)
        os.fsync(self._descriptor)

    def _finish(self, rows: int) -> None:
        super()._finish(rows)
        if self._rows != rows:  # before anything leaves; a copy that lacks these rows is known by it
            with file.told(self.path):
                os.pwrite(self._descriptor, Remembered(self._kept.nonce, self._rows).line(), 0)

    @property
    def restored(self) -> bool:
        """Whether it is a copy that was put back and has been compared with no head, nor with the output's receipt."""
        with file.told(self.path):
            return bool(self.connection.execute("PRAGMA user_version").fetchone()[0])

    def compared(self) -> None:
        """Forget that it was put back: a receipt has shown that it is the newest."""
        if self.restored and not self.read_only:
            with file.told(self.path):
                file.mark_restored(self.connection, restored=False)

    def discard(self) -> None:
        """Close, and remove the file if nothing was ever charged to it."""
        charged = self._rows > 0 and (self.step > 0 or not self.shares)
        self._unused = not charged and not self.read_only
        self.close()

    def _let_go(self) -> None:
        super()._let_go()
        if self._unused:
            file.remove(self.path)
        file.leave_lock(self._descriptor)
