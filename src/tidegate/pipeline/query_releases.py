"""What a query has released, for those who read: reports, tables, cards, the service. Any thread may ask."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tidegate.config import Config
from tidegate.core.commit import EVENT, HALTED, PUSHED, Row
from tidegate.core.mechanism import HasAccount, Mechanism, unit_of
from tidegate.core.scope import Scope
from tidegate.core.secrets_account import SecretsAccount
from tidegate.core.session import charges_of
from tidegate.ingest.query import MISSING
from tidegate.pipeline.numbered_releases import Masks, ReleaseReader
from tidegate.pipeline.window_spending import Spending
from tidegate.sinks.chunks import Chunk, Integers

if TYPE_CHECKING:
    from tidegate.pipeline.stream_reader import Reading

CHARGED = (PUSHED, HALTED, EVENT)


class Released:
    """The releases of one query, and what they have spent; `read_stream` has an example.

    Parameters
    ----------
    reading
        All queries of the stream.
    config
        The query.
    """

    def __init__(self, reading: Reading, config: Config) -> None:
        self._reading, self.config, self.name = reading, config, config.name

    @property
    def mechanism(self) -> Mechanism:
        """What releases, with its share of the budget."""
        return self._reading.mechanisms[self.name]

    @property
    def scope(self) -> Scope:
        """Its part of the budget, and the first step that it reads."""
        return self._reading.scopes[self.name]

    @property
    def _reader(self) -> ReleaseReader:
        return self._reading.readers[self.name]

    @property
    def number(self) -> int:
        """The number of the last release."""
        return self._reader.number

    @property
    def step(self) -> int:
        """The last step that was committed; 0 before its first one."""
        return self._reader.step

    @property
    def clip(self) -> float | None:
        """Where its values are clipped, if that is learnt: as it was released; None before."""
        return self._reader.clip

    @property
    def unit(self) -> Fraction:
        """What a unit of its charges is worth, in ε or ρ."""
        return unit_of(self.mechanism)

    @property
    def units(self) -> int:
        """Units that a window may spend."""
        return self.mechanism.units

    @property
    def adds(self) -> bool:
        """Whether the charges of a window add up; secrets have accounts of their own."""
        mechanism = self.mechanism
        return not (isinstance(mechanism, HasAccount) and isinstance(mechanism.account(), SecretsAccount))

    def chunks(self, after: int = 0) -> Iterator[Chunk]:
        """Releases with a greater number, in order; also those that were archived."""
        return self._reading.chunks(self.name, after)

    def rows(self, number: int = 0) -> Iterator[Row]:
        """The rows of the log from a number on, with their releases, also those that were archived."""
        return self._reading.archives.rows(number)

    def masks(self, columns: int) -> Masks | None:
        """Which readings of this query are missing; None where none ever is."""
        missing = self.config.query.fill == MISSING
        return partial(self._reading.side_tables.gaps, columns=columns) if missing else None

    def between(self, first: int, last: int) -> Iterator[Chunk]:
        """Releases in order, among which are all of some steps; as few others as can be."""
        steps = np.arange(max(first, self.scope.first), min(last, self._reader.step) + 1)
        if not len(steps):
            return
        wanted = self._reader.revisions_of(steps)
        waiting, left = np.ones(len(steps), dtype=np.bool_), len(steps)
        mark = self._reading.side_tables.mark(self.scope.number, step=int(steps[0]))
        for chunk in self.chunks(0 if mark is None else mark.number):
            inside = (chunk.step >= steps[0]) & (chunk.step <= steps[-1])
            if inside.any():
                yield chunk
            at = chunk.step[inside] - steps[0]
            seen = np.unique(at[waiting[at] & (chunk.revision[inside] >= wanted[at])])
            waiting[seen] = False
            left -= len(seen)
            if not left:  # the last word on each step was said
                return

    def spent_by(self, steps: Integers) -> Integers:
        """What the window that ends at each of some steps, which are in order, was charged, in units."""
        if not len(steps):
            return np.zeros(0, dtype=np.int64)
        window, scope = Spending(self.mechanism).longest, self.scope
        first = 1 if window is None else max(1, int(steps[0]) - window + 1)
        mark = self._reading.side_tables.mark(scope.number, step=first)
        spending = Spending(self.mechanism, () if mark is None else mark.state["spans"])
        charges = []
        for row in self._reading.archives.charged(0 if mark is None else mark.state["commit"]):
            own = dict(charges_of(row)).get(scope.number) if row.kind in CHARGED else None
            if own is None:
                continue
            if own.first > steps[-1]:
                break
            charges.append(own)
            spending.read(own)
        return spending.window_units(charges, steps)

    @property
    def spent(self) -> int:
        """Units that the last window has spent."""
        return int(self.spent_by(np.array([self.step]))[0]) if self.step else 0
