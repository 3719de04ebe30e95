"""The shape of every source: batches of records, each with the position to resume from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

Position = dict[str, Any]  # JSON: never a record, a unit or a count of what was dropped
Patience = Callable[[], float]  # how many seconds a live source may wait for something to arrive


def no_patience() -> float:
    """Do not wait."""
    return 0.0


def _nobody(sentence: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class Arrivals:
    """How a source knows messages again that it has delivered, if they are sent a second time.

    Parameters
    ----------
    number
        Of the last of the messages; it grows from arrivals to arrivals.
    content
        What the source needs to know them.
    expired
        Receipts up to this number are not needed any more.
    """

    number: int
    content: bytes
    expired: int


@dataclass(frozen=True)
class EventBatch:
    """Records in the order of the input.

    Parameters
    ----------
    frame
        The needed columns only.
    before
        A position from which this batch is read again.
    after
        A position from which the next one is read.
    caught_up
        Whether everything that had arrived has been read; only then may the clock close steps.
    arrivals
        Of the messages that it came in, where these may be sent a second time.
    """

    frame: pl.DataFrame
    before: Position
    after: Position
    caught_up: bool = True
    arrivals: Arrivals | None = None


class EventSource(ABC):
    """An input that can be read in batches from a position on.

    Parameters
    ----------
    name
        How messages call it: never more than a file's name or a broker's address.
    columns
        The columns that are needed; all others are skipped.

    Examples
    --------
    >>> from tidegate.ingest import EventSource
    >>> sorted(EventSource.__abstractmethods__)
    ['batches']
    """

    typed = False  # whether the format itself knows the types, so that a check need not parse every value
    repeatable = True  # whether a position can be read from again; otherwise what was read must be stored
    lenient = False  # whether a record that cannot be read is left out, or refuses the whole input
    start: Position = {}  # noqa: RUF012  read only

    def __init__(self, name: str, columns: Sequence[str]) -> None:
        self.name = name
        self.columns = tuple(columns)
        self.tell: Callable[[str], None] = _nobody  # a sentence for whoever runs the stream

    @abstractmethod
    def batches(
        self,
        position: Position | None = None,
        *,
        columns: Sequence[str] | None = None,
        patience: Patience = no_patience,
    ) -> Iterator[EventBatch]:
        """Read on from a position, or from the beginning.

        A finite source ends; a live one continues for ever and yields an empty batch whenever its patience is
        over.
        """

    def begin(self, identity: str, arrivals: Iterable[Arrivals]) -> None:  # noqa: B027  for brokers
        """Before the first batch: whose stream it is, and what was delivered and stored before this start."""

    def commit(self, position: Position) -> None:  # noqa: B027  most sources have nothing to tell anybody
        """Everything up to the position is safe: a broker may forget it."""

    @property
    def status(self) -> str:
        """One line for people, of a broker or a server: connected, or waiting for what. Files have none."""
        return ""

    def trouble(self) -> str:
        """Why a broker cannot be reached, where that can be found out; it takes a moment."""
        return ""

    def close(self) -> None:  # noqa: B027  most sources hold nothing open
        """Let go of files and connections."""

    def __enter__(self) -> EventSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def nothing(self) -> pl.DataFrame:
        """A batch without records."""
        return pl.DataFrame(schema=dict.fromkeys(self.columns, pl.String))


Source = EventSource  # its earlier name, by which it may still be imported
