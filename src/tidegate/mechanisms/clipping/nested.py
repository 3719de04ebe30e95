"""Parts of a state that the clipped statistics share: the sample, and the mechanism that a learned clip chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tidegate.core import arrays


class Rows:
    """An array with as many rows as steps were pushed, up to a public number: one row per step, never per record.

    Parameters
    ----------
    content
        The array.
    """

    def __init__(self, content: npt.NDArray[Any]) -> None:
        self.content = content

    def __len__(self) -> int:
        return len(self.content)

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Add the rows of further steps."""
        self.content = np.concatenate([self.content, rows])

    def forget(self) -> None:
        """Keep nothing."""
        self.content = self.content[:0].copy()

    def stored(self) -> tuple[arrays.Array, ...]:
        """The rows so far."""
        return (self.content,)

    def loaded(self, stored: Iterator[arrays.Array]) -> Self:
        """The same with rows that were stored."""
        return type(self)(arrays.rebuilt(self.content, stored))


class Nested:
    """A mechanism that a clip chooses, and its state. The clip is released, so a commit's size may depend on it.

    Parameters
    ----------
    choose
        The mechanism for a clip in grid units.
    clip
        The clip. Before one is learned it is the public bound, and nothing is pushed to the mechanism.
    first
        The first step that the mechanism is given.
    """

    def __init__(self, choose: Callable[[int], Any], clip: int, first: int = 1) -> None:
        self.choose = choose
        self.begin(clip, first)

    def begin(self, clip: int, first: int = 1) -> None:
        """Begin with the mechanism for another clip."""
        self.clip, self.mechanism = clip, self.choose(clip)
        self.state: Any = self.mechanism.begin(first)

    def stored(self) -> tuple[arrays.Array, ...]:
        """The clip, and the state of its mechanism."""
        return (np.array([self.clip]), *arrays.flat(self.state))

    def loaded(self, stored: Iterator[arrays.Array]) -> Self:
        """The same from what was stored: the clip says of which form the rest is."""
        clip = int(arrays.rebuilt(np.zeros(1, dtype=np.int64), stored)[0])
        found = type(self)(self.choose, clip)
        found.state = arrays.rebuilt(found.state, stored)
        return found
