"""Blocks of closed steps, on their way to a mechanism.

A block becomes one commit, one row of the account and one write to every sink. So where blocks end is public, and must
not depend on records: a finite input is cut at multiples of a public number of steps, and a followed one at every step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.errors import InvalidParameter
from tidegate.ingest.aggregate import Mask, Matrix
from tidegate.ingest.query import MISSING
from tidegate.ingest.sources.source import Position
from tidegate.structures.grid import nearest_units

BLOCK_STEPS = 1000  # of a finite input: its blocks end at multiples of this number
MOST_CELLS = 2**22  # of one block, so that wide ones have fewer steps


def block_steps(width: int, *, follow: bool) -> int:
    """How many steps a block has: a function of the configuration alone.

    Parameters
    ----------
    width
        The number of columns of all queries.
    follow
        Whether steps close by the clock, one by one.

    Examples
    --------
    >>> block_steps(3, follow=False), block_steps(2**20, follow=False), block_steps(3, follow=True)
    (1000, 4, 1)
    """
    return 1 if follow else max(1, min(BLOCK_STEPS, MOST_CELLS // max(1, width)))


@dataclass(frozen=True)
class StepBlock:
    """Consecutive closed steps, ready for `run.push_batch`: `units` as they are, or `values` in their own unit.

    Parameters
    ----------
    first_step
        The number of the first of them; steps count from 1.
    units
        steps × columns, int64 in units of the grid.
    grid
        The public grid.
    position
        What to commit together with these steps, and to hand to a new intake to continue after them. JSON.
    missing
        None, or which cells have no reading (:meth:`filled`).
    later
        How many more editions of these steps follow; their records are still needed then.
    records
        Of queries whose categories are found, by their place among all: step, unit and category of each record.

    Examples
    --------
    >>> import numpy as np
    >>> from fractions import Fraction
    >>> block = StepBlock(1, np.zeros((3, 2), dtype=np.int64), Fraction(1), {"step": 3, "source": None})
    >>> block.units.shape
    (3, 2)
    """

    first_step: int
    units: Matrix = field(repr=False)  # raw: it must not even be shown by accident
    grid: Fraction
    position: Position
    missing: Mask | None = field(default=None, repr=False)
    later: int = 0
    records: Mapping[int, pl.DataFrame] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.units)

    def __getitem__(self, part: slice) -> StepBlock:
        """Some of the steps; the position stays that of all."""
        missing = None if self.missing is None else self.missing[part]
        if missing is not None and not missing.any():
            missing = None
        steps = range(self.first_step, self.first_step + len(self))[part]
        records = {
            number: rows.filter(pl.col("step").is_between(steps.start, steps.stop - 1))
            for number, rows in self.records.items()
        }
        return StepBlock(
            steps.start, self.units[part], self.grid, self.position, missing, self.later, records
        )

    @property
    def last_step(self) -> int:
        """The number of the last step."""
        return self.first_step + len(self.units) - 1

    @property
    def values(self) -> npt.NDArray[Any]:
        """What a run takes: int64 on a grid of 1, else float64 that lie on the grid."""
        if self.missing is not None:
            raise InvalidParameter(
                "fill",
                MISSING,
                "used with what stands for missing readings",
                "push block.filled(part, values)",
            )
        return self._natural(self.units)

    def filled(self, part: slice, standing: npt.ArrayLike) -> npt.NDArray[Any]:
        """`filled_units` in the values' own unit."""
        return self._natural(self.filled_units(part, standing))

    def filled_units(self, part: slice, standing: npt.ArrayLike) -> Matrix:
        """Some steps of the block in grid units, with something public where readings are missing.

        Parameters
        ----------
        part
            Which steps; 0 is the first of the block.
        standing
            What stands for the missing readings of each column; rounded to the grid.
        """
        units = self.units[part]
        if self.missing is None:
            return units
        scaled = np.asarray(standing, dtype=np.float64) * self.grid.denominator
        return np.where(self.missing[part], nearest_units(np.clip(scaled, -(2.0**53), 2.0**53)), units)

    def _natural(self, units: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        return units if self.grid == 1 else units / self.grid.denominator


class Cutter:
    """Puts steps together, or takes them apart, so that blocks end at public steps whatever pieces they come in.

    Parameters
    ----------
    size
        Blocks end at multiples of this number.
    last
        The last step of all, at which the last block ends.

    Examples
    --------
    >>> import numpy as np
    >>> cutter = Cutter(4, last=6)
    >>> piece = StepBlock(1, np.zeros((3, 1), dtype=np.int64), Fraction(1), {})
    >>> [len(block) for block in cutter.add(piece)]
    []
    >>> [len(block) for block in cutter.add(replace(piece, first_step=4))]
    [4, 2]
    """

    def __init__(self, size: int, last: int) -> None:
        self._size, self._last = size, last
        self._waiting: list[StepBlock] = []

    def add(self, piece: StepBlock) -> Iterator[StepBlock]:
        """Take the next steps; deliver the blocks that they complete, with the position of the piece."""
        begin = 0
        while begin < len(piece):
            step = piece.first_step + begin
            end = min(-(-step // self._size) * self._size, self._last)
            stop = min(end + 1 - piece.first_step, len(piece))
            self._waiting.append(piece[begin:stop])
            begin = stop
            if self._waiting[-1].last_step == end:
                parts, self._waiting = self._waiting, []
                yield _joined(parts)


def _joined(parts: list[StepBlock]) -> StepBlock:
    """Consecutive pieces as one block, with the position of the last."""
    if len(parts) == 1:
        return parts[0]
    units = np.concatenate([part.units for part in parts])
    missing = None
    if any(part.missing is not None for part in parts):
        masks = [
            np.zeros(part.units.shape, np.bool_) if part.missing is None else part.missing for part in parts
        ]
        missing = np.concatenate(masks)
    records = {
        number: pl.concat([part.records[number] for part in parts], how="vertical_relaxed")
        for number in parts[-1].records
    }
    return replace(parts[-1], first_step=parts[0].first_step, units=units, missing=missing, records=records)
