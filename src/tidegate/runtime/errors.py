"""What the runtime refuses or waits for, by name. Nothing here ever quotes data."""

from __future__ import annotations

from tidegate.errors import LedgerMismatch, TidegateError


class StreamChanged(LedgerMismatch):
    """A configuration is not the one that the ledger's stream was begun with."""


class SinkError(TidegateError):
    """A sink cannot take releases; they stay in the store and are sent at the next start."""


class AnotherStream(SinkError):
    """A sink has releases of another stream, or of the same one from another ledger."""


class LedgerIsOlder(LedgerMismatch):
    """A ledger is an older copy of the one that a sink was written from."""


class SinkUnavailable(SinkError):
    """A sink cannot be reached at the moment; the stream goes on and the sink is tried again."""
