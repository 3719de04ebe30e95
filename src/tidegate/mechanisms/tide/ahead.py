"""Noise that Tide's measurements share, or that is Gaussian: drawn in Python, several measurements at a time. SECRET."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, cycle, takewhile
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.core.charges import Integers
from tidegate.mechanisms.tide.plan import (
    EIGHTHS,
    END,
    ENDLESS,
    GROUP_ROW,
    LEFT,
    LENGTH,
    LEVEL,
    NUMBER,
    PLACE,
    PLACED,
    POOL_ROW,
    POSITION,
    SCALE,
    TAKEN,
)
from tidegate.mechanisms.tide.schedule import Choices
from tidegate.noise import gaussian
from tidegate.noise.entropy import Source
from tidegate.noise.laws import AHEAD, AHEAD_CELLS, loaded, stored
from tidegate.noise.shared.cube import Cube
from tidegate.noise.shared.semiorder import Semiorder

STREAM, SHARED_STREAM = "tide", "tide/shared"
DRAWN_AHEAD = 2048  # measurements, at most: a loop that returns for each span would be slow
GAUSSIAN_CELLS = 1 << 14  # the same for Gaussian noise, of all columns together
AT_LEAST = 16  # of a semiorder that continues, for single pushes
POOL_NUMBERS = 3  # POSITION, END, POOL_ROW


class Secret(NamedTuple):
    """Noise to come. Its sizes are public: the largest that any law of the tables needs."""

    numbers: Integers  # which rows of `ahead` are still to be used, and whose law they are of
    ahead: Integers  # noise of the next measurements, one row each
    law: tuple[npt.NDArray[Any], ...]  # where the semiorder stands after the last row; each array padded


def empty_secret(choices: Choices, columns: int) -> Secret:
    """Nothing was drawn."""
    laws = [sharing.law for sharing in choices.laws if sharing is not None]
    longest = [max(law.lengths) for law in laws if isinstance(law, Cube)]
    rows = max([0, *longest])
    if any(isinstance(law, Semiorder) for law in laws):
        rows = max(rows, AT_LEAST, min(AHEAD, AHEAD_CELLS // columns))
    kept = [stored(law, law.start()) for law in laws if isinstance(law, Semiorder)]
    return Secret(
        np.zeros(POOL_NUMBERS, dtype=np.int64),
        np.zeros((rows, columns), dtype=np.int64),
        tuple(
            np.zeros(max(part.size for part in parts), dtype=parts[0].dtype)
            for parts in zip(*kept, strict=True)
        ),
    )


class Ahead:
    """The noise that is drawn ahead of one state.

    Parameters
    ----------
    choices
        The tables, with the law of each row.
    plan, secret
        Parts of the state, which are changed.

    Attributes
    ----------
    pool
        Values for the loop, one row per measurement.
    """

    def __init__(self, choices: Choices, plan: Integers, secret: Secret) -> None:
        self._choices, self._plan, self._secret = choices, plan, secret
        self.pool: Integers = secret.ahead
        self._after: Callable[[int], Any] | None = (
            None  # where the semiorder stands after so many rows of the pool
        )

    def draw(self, source: Source, steps: int) -> None:
        """Noise for the measurement in hand, and for some of those that `steps` more steps may bring."""
        plan, choices, numbers = self._plan, self._choices, self._secret.numbers
        row, at = int(plan[TAKEN]), int(plan[NUMBER])
        number, span, _, length, *_ = choices.shares[row].tolist()
        coming = min(DRAWN_AHEAD, 1 + steps * number // span)
        if choices.gaussian:
            self.pool = self._draw_gaussian(source, row, at, coming)
        else:
            law = self._law(row)
            if length == ENDLESS:
                begun = self._standing(law) if plan[PLACED] else law.start()
                # the next one may have less noise, of the same arrivals, while the budget is not complete
                coming = max(coming, AT_LEAST) if plan[LEVEL] == EIGHTHS else 1
                self.pool, self._after = law.draw_ahead(source, SHARED_STREAM, at, begun, coming)
            else:
                self.pool, self._after = self._draw_groups(source, law, at, coming), None
        numbers[POSITION], numbers[END], numbers[POOL_ROW] = 0, len(self.pool), row

    def _law(self, row: int) -> Any:
        sharing = self._choices.laws[row]
        assert sharing is not None
        return sharing.law

    def _draw_groups(self, source: Source, law: Cube, at: int, coming: int) -> Integers:
        """Whole groups of a cube, from the one that begins now."""
        plan = self._plan
        place = int(plan[PLACE]) % len(law.lengths)
        lengths = law.lengths[place:] + law.lengths[:place]
        assert plan[LEFT] == lengths[0]  # a radius has one group, and a group has one radius
        ends = takewhile(lambda end: end <= coming, accumulate(cycle(lengths)))
        state = law.restore([place, *(0 for _ in law.start().numbers()[1:])])
        return law.draw(source, SHARED_STREAM, at, state, max([lengths[0], *ends]))[0]

    def _draw_gaussian(self, source: Source, row: int, at: int, coming: int) -> Integers:
        """Noise of their own for the next measurements, as long as they follow one row of the tables."""
        columns, choices = self._secret.ahead.shape[1], self._choices
        followed = row < 3 * choices.rows  # an opening is measured once
        count = max(1, min(coming, GAUSSIAN_CELLS // columns)) if followed else 1
        return gaussian(source, STREAM, at, float(choices.scales[row, SCALE]), (count, columns))

    def _standing(self, law: Semiorder) -> Any:
        """Where the open semiorder stands after all that was drawn of it."""
        if self._after is not None:
            return self._after(len(self.pool))
        templates = stored(law, law.start())
        parts = zip(self._secret.law, templates, strict=True)
        return loaded(law, [kept[: part.size].reshape(part.shape) for kept, part in parts])

    def settle(self) -> None:
        """After a batch: the state keeps what the open span still needs. All other noise is drawn anew."""
        plan, secret = self._plan, self._secret
        numbers, ahead = secret.numbers, secret.ahead
        begin, end = int(numbers[POSITION]), int(numbers[END])
        endless = plan[LEFT] > 0 and self._choices.shares[plan[GROUP_ROW], LENGTH] == ENDLESS
        count = min(end - begin, len(ahead) if endless else int(plan[LEFT]))
        if self.pool is ahead:  # nothing was drawn
            numbers[END] = begin + count
            ahead[begin + count :] = 0
            return
        ahead[:count] = self.pool[begin : begin + count]
        ahead[count:] = 0
        numbers[POSITION], numbers[END] = 0, count
        if endless and self._after is not None:
            after = stored(self._law(int(numbers[POOL_ROW])), self._after(begin + count))
            for kept, part in zip(secret.law, after, strict=True):
                kept[: part.size] = part.reshape(-1)
                kept[part.size :] = 0
        self.pool, self._after = ahead, None
