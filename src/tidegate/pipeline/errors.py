"""What the pipeline refuses besides what the core refuses."""

from __future__ import annotations

from tidegate.errors import TidegateError


class LogUnavailable(TidegateError):
    """A log's file cannot be read or written now; the message says why."""


class LogBusy(TidegateError):
    """Another process drives the stream of a log."""
