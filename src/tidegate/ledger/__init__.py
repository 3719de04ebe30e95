"""Accounts of privacy loss: refuse before a window is overspent, prove afterwards that none was."""

from __future__ import annotations

from os import PathLike

from tidegate.ledger.events import Charge, Verdict
from tidegate.ledger.ledger import Batch, Ledger
from tidegate.ledger.memory import MemoryLedger
from tidegate.ledger.rules import LedgerPolicy, Rule, Schedule

__all__ = ["Batch", "Charge", "Ledger", "MemoryLedger", "Rule", "Verdict", "open_ledger"]


def open_ledger(
    target: str | PathLike[str] | None, policy: LedgerPolicy, units: int, schedule: Schedule = "adaptive"
) -> Ledger:
    """A ledger in memory for None, or the one in the SQLite file at a path, created if there is none."""
    if target is None:
        return MemoryLedger(policy, units, schedule)
    from tidegate.ledger.sqlite import SQLiteLedger  # only durable runs need sqlite3

    return SQLiteLedger(target, policy, units, schedule)
