"""Accounts of privacy loss: refuse before a window is overspent, prove afterwards that none was."""

from __future__ import annotations

from os import PathLike

from tidegate.ledger.batch import Batch
from tidegate.ledger.events import Charge, Group, Verdict
from tidegate.ledger.ledger import Ledger
from tidegate.ledger.memory import MemoryLedger
from tidegate.ledger.replay import verify_file
from tidegate.ledger.rules import LedgerPolicy, Rule, Schedule
from tidegate.ledger.sqlite import SQLiteLedger

__all__ = [
    "Batch",
    "Charge",
    "Group",
    "Ledger",
    "MemoryLedger",
    "Rule",
    "SQLiteLedger",
    "Verdict",
    "open_ledger",
    "verify_file",
]


def open_ledger(
    target: str | PathLike[str] | None, policy: LedgerPolicy, units: int, schedule: Schedule = "adaptive"
) -> Ledger:
    """A ledger in memory for None, or the one in the SQLite file at a path, created if there is none.

    A URL "postgresql://…#name" stands for a ledger in PostgreSQL.

    Parameters
    ----------
    target
        None for memory, a path, or a URL of PostgreSQL.
    policy, units, schedule
        As for `Ledger`.

    Examples
    --------
    >>> import tidegate as tg
    >>> open_ledger(None, tg.Event(epsilon="1"), units=4).units
    4
    """
    if target is None:
        return MemoryLedger(policy, units, schedule)
    if isinstance(target, str) and target.startswith(("postgresql://", "postgres://")):
        from tidegate.ledger.postgres import PostgresLedger

        return PostgresLedger(target, policy, units, schedule)
    return SQLiteLedger(target, policy, units, schedule)
