"""What a mechanism spent in the last window, where it decides by that. Derived from charges, so it is not stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import numpy as np

from tidegate.core.arrays import Array
from tidegate.core.charges import Integers


class Spent:
    """Units of the last w steps, by step modulo w, and their sum.

    It is a part of a state that stores nothing: when a log is opened, `Mechanism.resume` fills it from the charges.

    Examples
    --------
    >>> spent = Spent(4)
    >>> spent.fill(6, np.array([1, 0, 2, 3]))
    >>> spent.ring.tolist(), spent.total.tolist()
    ([0, 2, 3, 1], [6])
    """

    def __init__(self, window: int) -> None:
        self.ring: Integers = np.zeros(window, dtype=np.int64)
        self.total: Integers = np.zeros(1, dtype=np.int64)
        self.step = 0  # the last step that is in the ring

    def fill(self, step: int, units: Integers) -> None:
        """The units of the last steps, of which the newest is `step`."""
        window = self.ring.size
        self.ring[:] = 0
        kept = units[-window:]
        self.ring[np.arange(step - len(kept) + 1, step + 1) % window] = kept
        self.total[0], self.step = kept.sum(), step

    def move_to(self, first: int) -> None:
        """Steps up to the one before `first` have passed; those in between cost nothing."""
        window = self.ring.size
        passed = np.arange(max(self.step + 1, first - window), first) % window
        if passed.size:
            self.ring[passed] = 0
            self.total[0] = self.ring.sum()

    def stored(self) -> tuple[Array, ...]:
        """Nothing."""
        return ()

    def loaded(self, stored: Iterator[Array]) -> Self:
        """Empty, until it is filled."""
        return type(self)(self.ring.size)
