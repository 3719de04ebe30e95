"""Everything Tidegate refuses, each as one sentence: name, value, constraint, remedy.

No message ever carries a record, a raw value or a count of them: messages name positions and shapes only.
"""

from __future__ import annotations

from fractions import Fraction


class TidegateError(Exception):
    """Base of every error that Tidegate raises on purpose."""


class InvalidParameter(TidegateError, ValueError):
    """A parameter is outside its documented range."""

    def __init__(self, name: str, value: object, constraint: str, remedy: str) -> None:
        super().__init__(f"{name}={value!r} is refused: {name} must be {constraint}; {remedy}.")
        self.name = name


class InvalidInput(TidegateError, ValueError):
    """Pushed data has a wrong shape, type or range. The message never contains the data."""


class BudgetExceeded(TidegateError):
    """A charge would take some window over the budget. Nothing was charged and no noise was drawn."""

    def __init__(
        self, *, spent: Fraction, requested: Fraction, remaining: Fraction, window: tuple[int, int], step: int
    ) -> None:
        super().__init__(
            f"the charge of {requested} at step {step} is refused: steps {window[0]} to {window[1]} have spent "
            f"{spent} and {remaining} remains; wait until the window has moved on or spend less."
        )
        self.spent = spent
        self.requested = requested
        self.remaining = remaining
        self.window = window
        self.step = step


class LedgerError(TidegateError):
    """A ledger cannot be used: wrong policy, damaged file, or held by somebody else."""


class LedgerBusy(LedgerError):
    """Another process, or the parent of a fork, drives this ledger."""


class LedgerCorrupt(LedgerError):
    """The account on disk was truncated or edited; the message names the first bad row."""


class LedgerMismatch(LedgerError):
    """The ledger was opened for another policy or mechanism, or stands at another step."""


class SnapshotError(TidegateError, ValueError):
    """A snapshot is damaged, or of another mechanism or version."""
