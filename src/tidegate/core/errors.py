"""What the core refuses, and how a session ends."""

from __future__ import annotations

from typing import Self

from tidegate.errors import TidegateError


class AccountRefused(TidegateError):
    """Charges do not fit into the account. Nothing was charged."""

    @classmethod
    def overspent(cls, step: int, asked: int, spent: int, limit: int, window: int | None) -> Self:
        """Some window would spend more than its budget."""
        first = 1 if window is None else max(1, step - window + 1)
        return cls(
            f"the charge of {asked} units at step {step} is refused: steps {first} to {step} may spend {limit} units, "
            f"and {spent} are spent; wait until the window has moved on."
        )

    @classmethod
    def horizon(cls, step: int, horizon: int) -> Self:
        """The stream was declared to end before."""
        return cls(f"step {step} is refused: the horizon of the stream is step {horizon}; open a new stream.")

    @classmethod
    def order(cls, first: int, last: int) -> Self:
        """Steps only move forwards."""
        return cls(f"step {first} is refused: step {last} was released already; push the steps after it.")


class SessionClosed(TidegateError):
    """The session does not push any more; the message says why, and what to do."""


class Fenced(SessionClosed):
    """Another writer has moved the head of the log, or owns this session's process."""


class Halted(SessionClosed):
    """A mechanism failed after it had drawn noise: the steps are charged, and nothing of them is released."""


class LogDamaged(TidegateError):
    """A log was edited or truncated; the message names the first bad commit."""


class LogMismatch(TidegateError):
    """A log belongs to another configuration, or to another version."""
