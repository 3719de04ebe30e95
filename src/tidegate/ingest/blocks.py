"""Blocks of closed steps, on their way to a mechanism."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.ingest.aggregate import Mask, Matrix
from tidegate.ingest.query import PREVIOUS
from tidegate.ingest.sources.source import Position


@dataclass(frozen=True)
class StepBlock:
    """Consecutive closed steps, ready for `run.push_batch`.

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
        None, or which cells have no reading and must be filled from the previous release (:meth:`row`).
    """

    first_step: int
    units: Matrix = field(repr=False)  # raw: it must not even be shown by accident
    grid: Fraction
    position: Position
    missing: Mask | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.units)

    @property
    def last_step(self) -> int:
        """The number of the last step."""
        return self.first_step + len(self.units) - 1

    @property
    def values(self) -> npt.NDArray[Any]:
        """What a run takes: int64 on a grid of 1, else float64 that lie on the grid."""
        if self.missing is not None:
            raise InvalidParameter(
                "fill", PREVIOUS, "used step by step", "push block.row(i, previous release) for each step"
            )
        return self._natural(self.units)

    def row(self, index: int, previous: npt.ArrayLike | None = None) -> npt.NDArray[Any]:
        """One step; missing readings are those of the previous release, or 0 before the first.

        Parameters
        ----------
        index
            0 for the first step of the block.
        previous
            The released values of the step before.
        """
        units = self.units[index]
        if self.missing is not None and self.missing[index].any():
            ticks = self.grid.denominator
            last = np.zeros(len(units)) if previous is None else np.asarray(previous, dtype=np.float64)
            rounded = np.floor(np.clip(last * ticks, -(2.0**53), 2.0**53) + 0.5).astype(np.int64)
            units = np.where(self.missing[index], rounded, units)
        return self._natural(units)

    def _natural(self, units: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        return units if self.grid == 1 else units / self.grid.denominator
