"""Blocks of closed steps, on their way to a mechanism."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.ingest.aggregate import Mask, Matrix
from tidegate.ingest.query import MISSING
from tidegate.ingest.sources.source import Position
from tidegate.structures.grid import nearest_units


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
        What to commit together with these steps, and to hand to a new intake to go on after them. JSON.
    missing
        None, or which cells have no reading (:meth:`filled`).
    later
        How many more editions of these steps follow; their records are still needed then.

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

    def __len__(self) -> int:
        return len(self.units)

    def __getitem__(self, part: slice) -> StepBlock:
        """Some of the steps; the position stays that of all."""
        missing = None if self.missing is None else self.missing[part]
        first = self.first_step + range(len(self))[part].start
        return StepBlock(first, self.units[part], self.grid, self.position, missing, self.later)

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
