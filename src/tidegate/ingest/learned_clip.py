"""A clip that is learnt: how long, and what the query becomes once it is known."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from tidegate.structures.value_bins import Integers as Matrix

if TYPE_CHECKING:
    from tidegate.ingest.query import Query

LARGEST_VALUE = 2**32  # in grid units, where no bound is said


@dataclass(eq=False)
class Learning:
    """How a query's clip is learnt.

    Parameters
    ----------
    steps
        From how many of the first steps.
    clip
        What was learnt, in grid units, once it is released: public, and the same for ever. The stream tells it.

    Examples
    --------
    >>> Learning(24).clip is None
    True
    """

    steps: int
    clip: int | None = None


@dataclass(frozen=True)
class Learnt:
    """What a mechanism is given where the clip was learnt: exactly what it would be given had it always been known.

    Parameters
    ----------
    query
        The query.
    records
        Whether every record is a unit of its own.
    """

    query: Query
    records: bool

    def measured(self, sums: Matrix, counts: Matrix, clip: int) -> Matrix:
        """Sums; for a mean, deviations from the middle of the clip and weighted counts; nodes where they are measured."""
        query = self.query.clipped_at(clip)
        if query.aggregate == "mean":
            return np.concatenate([sums - query.centre * counts, counts * query.count_weight], axis=1)
        return sums if query.levels is None else np.ascontiguousarray(query.levels.expanded(sums))

    def max_change(self, clip: int, adjacency: str) -> Fraction:
        """By how much one unit can change a step."""
        found = self.query.clipped_at(clip).max_change(adjacency, records=self.records)
        assert found is not None
        return found

    def describe(self) -> Any:
        """The aggregate, and what it is divided by."""
        return {"aggregate": self.query.aggregate, "records": self.records}
