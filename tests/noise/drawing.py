"""What every law of shared noise is held to."""

from __future__ import annotations

import itertools

import numpy as np

from tidegate.noise import Source
from tidegate.noise.shared.cube import Cube
from tidegate.noise.shared.semiorder import Semiorder


def check_drawn_ahead(law: Cube | Semiorder, source: Source) -> None:
    """Of more than is used the first values are those of single draws, and so is the state after any number of them."""
    state, at, sizes = law.start(), 0, itertools.cycle([12, 0, 7, 1, 20, 9, 3, 2])
    while at < 60:
        ahead, used = next(sizes), next(sizes)
        values, after = law.draw_ahead(source, "test", at, state, ahead)  # type: ignore[arg-type]
        further = after(used)
        assert (further is state) == (used == 0)
        if used:
            wanted, state = law.draw(source, "test", at, state, used)  # type: ignore[arg-type]
            assert np.array_equal(values[:used], wanted)
        assert further.numbers() == state.numbers()
        at += used
