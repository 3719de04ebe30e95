"""What goes wrong with Spark, in one sentence and without a record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from tidegate.errors import TidegateError


class SparkFailed(TidegateError):
    """Spark could not read or bound the events."""


class SpoolLost(TidegateError):
    """Checkpoint, spool and ledger do not belong together."""


@contextmanager
def in_a_sentence() -> Iterator[None]:
    """Turn a failure of Spark into a sentence; what Spark says may hold a record's content."""
    try:
        yield
    except PySparkException as error:
        kind = _kind(error)
    else:
        return
    raise SparkFailed(
        f"Spark could not read the events ({kind}); look into the driver's log, which stays inside."
    )


def _kind(error: PySparkException) -> str:
    try:
        found = error.getCondition()
    except Exception:  # some have none, and ask a server that is gone
        found = None
    return found or type(error).__name__
