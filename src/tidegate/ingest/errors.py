"""What ingest refuses, by name. No message ever contains a record: files, columns and positions only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tidegate.errors import InvalidInput, TidegateError

_T = TypeVar("_T")


class UnreadableInput(InvalidInput):
    """A file is truncated or damaged, or not of the declared format."""


class EmptyInput(InvalidInput):
    """A file has no header, or no bytes at all."""


class NotUtf8(InvalidInput):
    """A text input is not UTF-8."""


class DuplicateHeader(InvalidInput):
    """A header names one column twice."""


class TooManyColumns(InvalidInput):
    """A file or a query has more columns than can be handled."""


class MissingColumn(InvalidInput):
    """A declared column is not in the input."""


class MixedTypes(InvalidInput):
    """A column changes its type from one batch or file to the next, or has a type that cannot be used."""


class NotNumeric(InvalidInput):
    """A column of values or of times in numbers holds something else."""


class BadTimes(InvalidInput):
    """A column of times cannot be read in the declared format."""


class TimeGoesBackwards(InvalidInput):
    """An input that was declared to be in the order of time is not."""


class MissingReading(InvalidInput):
    """A pre-aggregated reading is missing and nothing was declared to stand for it."""


class RepeatedReading(InvalidInput):
    """Pre-aggregated input has two readings of one column in one step."""


class InputChanged(InvalidInput):
    """The input is not the one that the committed position belongs to."""


class SourceUnavailable(TidegateError):
    """A file, a folder or a broker cannot be reached."""


def attempt(work: Callable[[], _T], refusal: InvalidInput | Callable[[], InvalidInput]) -> _T:
    """Do something that may fail with a message that quotes data, and raise the refusal in its place.

    The refusal is raised outside of the handler, so that it does not even carry the other error as its
    context.
    """
    try:
        return work()
    except (TidegateError, OSError, MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # polars' panics are not Exceptions
        pass
    raise refusal() if callable(refusal) else refusal


def refuse(bad: Any, refusal: InvalidInput) -> None:
    """Refuse an input of which one record or more cannot be read.

    Readers ask nothing else of a batch as a whole: a record refuses the input or leaves the others as they are.

    Parameters
    ----------
    bad
        Which records cannot be read: truth values, as an array or a column.
    refusal
        What is raised then.
    """
    if bad.any():
        raise refusal
