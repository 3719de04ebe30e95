"""What the runtime refuses or waits for, by name. Nothing here ever quotes data."""

from __future__ import annotations

from tidegate.errors import TidegateError


class SinkError(TidegateError):
    """A sink cannot take releases; they stay in the log and are sent at the next start."""


class AnotherStream(SinkError):
    """A sink has releases of another stream, or of the same one from another log."""


class SinkUnavailable(SinkError):
    """A sink cannot be reached at the moment; the stream continues, and the sink is tried again."""
