"""Missing readings of given input: what the mechanism sees instead of them, and what is withheld.

Which readings are missing is public. At such a cell the mechanism is given the last value that was released from a
reading of its column, or 0 before there was any, and what it releases there is withheld. The value that stands
in is not replaced while the gap lasts, so that no noise is ever added to noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.ingest import StepBlock
from tidegate.releases import Releases

Values = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Gaps:
    """What stands for missing readings, column by column.

    Parameters
    ----------
    held
        The last value of each column that was released from a reading of it; 0 where there is none.
    since
        The step from which on each column has had readings without a gap; 0 while it has none.

    Privacy
    -------
    Both are functions of releases and of which readings are missing, which the guarantee takes for public. Two
    neighbouring streams with the same releases so far are therefore given the same value at a missing cell.

    Examples
    --------
    >>> gaps = Gaps.fresh(2, None)
    >>> gaps.held.tolist(), gaps.since.tolist()
    ([0.0, 0.0], [1, 1])
    """

    def __init__(self, held: Values, since: npt.NDArray[np.int64]) -> None:
        self.held = held
        self.since = since

    @classmethod
    def fresh(cls, columns: int, previous: Values | None) -> Gaps:
        """Before the first gap: every column has had readings, and the last release of each is known."""
        held = np.zeros(columns) if previous is None else np.array(previous, dtype=np.float64)
        return cls(held, np.ones(columns, dtype=np.int64))

    @classmethod
    def read(cls, described: dict[str, Any]) -> Gaps:
        """What `describe` wrote."""
        held, since = described["held"], described["since"]
        return cls(np.array(held, dtype=np.float64), np.array(since, dtype=np.int64))

    def describe(self) -> dict[str, Any]:
        """As JSON, to be committed with a position."""
        return {"held": self.held.tolist(), "since": self.since.tolist()}

    def parts(self, block: StepBlock) -> Iterator[tuple[slice, Mask]]:
        """The parts of a block throughout which the same columns have no reading."""
        missing = np.zeros(block.units.shape, dtype=np.bool_) if block.missing is None else block.missing
        cuts = (np.flatnonzero((missing[1:] != missing[:-1]).any(axis=1)) + 1).tolist()
        for begin, end in zip([0, *cuts], [*cuts, len(missing)], strict=True):
            yield slice(begin, end), missing[begin]

    def learn(self, releases: Releases, missing: Mask) -> None:
        """Take in what was released of a part."""
        self.since[missing] = 0
        begun = ~missing & (self.since == 0)
        self.since[begun] = releases.first_step
        last = len(releases) - 1
        read = ~missing & (self.since <= int(releases.source[last]))  # measured when it had readings
        self.held[read] = releases.values[last, read]
