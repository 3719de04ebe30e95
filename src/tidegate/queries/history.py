"""The last steps of a stream of releases, smoothed with the groups as they are known now."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.exact import one_of, whole
from tidegate.queries.kernels import history as loop
from tidegate.releases import Release, Releases
from tidegate.structures.ordered import OrderedSets

Values = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
SMOOTHERS = {
    "median": loop.MEDIAN,
    "average": loop.AVERAGE,
    "james-stein": loop.JAMES_STEIN,
    "released": loop.AVERAGE,
}
BLOCK = 1 << 15  # cells that are handled at once
LONGEST = 2**24


class Followed(NamedTuple):
    """What the last steps looked like at each of several steps, T × d each.

    Attributes
    ----------
    latest
        The step itself.
    oldest
        The step `window` − 1 steps before, with its group as of this step; NaN where there is none yet.
    sums
        The sum over the last `window` steps, each with its group as of this step.
    """

    latest: Values
    oldest: Values
    sums: Values


class History:
    """Keeps the last steps, and estimates each of them from its whole group as of now.

    The count of a past step is estimated from all measurements of its group, also those made after it
    (Window Sum Smoother, Algorithm 3 of the PeGaSus paper). Releases without groups are taken as they are:
    every step is a group of its own.

    Parameters
    ----------
    columns
        The number of columns of the releases.
    window
        How many steps are kept.
    smoother
        "median", "average", "james-stein" (for the latest step; the average for past ones), or "released":
        the values as they were released, without smoothing past steps again.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from tidegate.releases import Status
    >>> history = History(columns=1, window=2)
    >>> for step, value in ((1, 5.0), (2, 7.0), (3, 1.0)):
    ...     release = Release(step, np.array([value]), Status.FRESH, step, 1.0, 1, Fraction(1))
    ...     _ = history.push(release)
    >>> history.recent().ravel().tolist()
    [7.0, 1.0]
    """

    def __init__(self, columns: int, window: int, smoother: str = "median") -> None:
        self.columns = whole("columns", columns)
        self.window = whole("window", window, most=LONGEST)
        one_of("smoother", smoother, SMOOTHERS, "write 'median'")
        self.smoother = smoother
        self.step = 0  # the last step taken in; 0 before any
        self._begun = 0
        self._ring_groups: Integers = np.zeros((self.columns, self.window), dtype=np.int64)
        self._ring_values: Values = np.zeros((self.columns, self.window))
        self._memory: Integers = np.zeros((self.columns, loop.MEMORY), dtype=np.int64)
        self._sums: Values = np.zeros((self.columns, loop.SUMS))
        self._sets = OrderedSets()
        self._bits: Integers = np.zeros(1, dtype=np.int64)
        self._number = self._bits.view(np.float64)

    def push(self, release: Release) -> Followed:
        """Take in the next step."""
        followed = self._follow(release.step, *self._behind(release, release.values))
        return Followed(*(part[0] for part in followed))

    def push_batch(self, releases: Releases) -> Followed:
        """Take in the next steps."""
        return self._follow(releases.first_step, *self._behind(releases, releases.values))

    def recent(self, window: int | None = None) -> Values:
        """The estimates of the last steps as of now, oldest first; fewer where the stream is younger.

        Parameters
        ----------
        window
            How many steps, at most the kept ones; by default all of them.
        """
        size = self.window if window is None else whole("window", window)
        if size > self.window:
            raise InvalidParameter(
                "window", window, f"at most the {self.window} steps that are kept", "keep a longer history"
            )
        first = max(self._begun, self.step - size + 1) if self._begun else 1
        steps = np.arange(first, self.step + 1)
        slots = steps % self.window
        values = self._ring_values[:, slots].T.copy()
        groups = self._ring_groups[:, slots].T
        open_values = np.array([self._open(column) for column in range(self.columns)])
        belongs = (groups == self._memory[:, loop.START]) & (groups != 0)
        return np.where(belongs, open_values, values)

    def state(self) -> dict[str, Any]:
        """All that is kept, as numbers and arrays: released data only."""
        memory = self._memory.copy()
        sets, memory[:, loop.ROOT] = self._sets.listings(self._memory[:, loop.ROOT])
        return {
            "step": self.step,
            "begun": self._begun,
            "ring_groups": self._ring_groups.copy(),
            "ring_values": self._ring_values.copy(),
            "memory": memory,
            "sums": self._sums.copy(),
            "sets": sets.copy(),  # a view would keep room for more
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from what `state` returned."""
        if state["ring_values"].shape != self._ring_values.shape:
            raise InvalidInput("the state is of a history with another shape; restore it where it was taken.")
        self.step, self._begun = int(state["step"]), int(state["begun"])
        self._ring_groups, self._ring_values = state["ring_groups"].copy(), state["ring_values"].copy()
        self._memory, self._sums = state["memory"].copy(), state["sums"].copy()
        self._sets = OrderedSets()
        begin = 0
        for memory in self._memory:
            end = begin + int(memory[loop.ROOT])
            memory[loop.ROOT] = self._sets.build(*state["sets"][:, begin:end])
            begin = end

    def _open(self, column: int) -> float:
        """The estimate of the last group of a column."""
        code = SMOOTHERS[self.smoother]
        memory, sums = self._memory[column], self._sums[column]
        return float(loop.estimate(code, self._sets.nodes, memory, sums, self._bits, self._number))

    def _behind(self, releases: Release | Releases, values: Values) -> tuple[Values, Integers, Integers]:
        """The measurements to smooth, their groups and weights, as T × d arrays."""
        shape = (-1, self.columns)
        if values.shape[-1] != self.columns:
            raise InvalidInput(
                f"the releases have {values.shape[-1]} columns and this question was asked about "
                f"{self.columns}; ask with the number of columns of the releases."
            )
        if (measured := releases.measured) is not None and self.smoother != "released":
            weights = np.ascontiguousarray(measured.weights).reshape(shape)
            return measured.noisy.reshape(shape), measured.groups.reshape(shape), weights
        alone = values.reshape(shape)
        first = releases.step if isinstance(releases, Release) else releases.first_step
        steps = np.arange(first, first + len(alone), dtype=np.int64)
        groups = np.ascontiguousarray(np.broadcast_to(steps[:, np.newaxis], alone.shape))
        return alone, groups, np.ones(alone.shape, dtype=np.int64)

    def _follow(self, first: int, noisy: Values, groups: Integers, weights: Integers) -> Followed:
        if self.step and first != self.step + 1:
            raise InvalidInput(
                f"step {first} is out of order: the next step is {self.step + 1}; pass releases in order."
            )
        if len(noisy) and not self._begun:
            self._begun = first
        followed = Followed(np.empty(noisy.shape), np.empty(noisy.shape), np.empty(noisy.shape))
        length = max(1, BLOCK // self.columns)
        sets = self._sets
        for start in range(0, len(noisy), length):
            block = slice(start, start + length)
            measured = np.ascontiguousarray(noisy[block]) + 0.0  # no negative zero
            sets.make_room(measured.size)
            loop.follow(
                first + start,
                self._begun,
                SMOOTHERS[self.smoother],
                (_sortable(measured), measured, groups[block], weights[block]),
                (self._ring_groups, self._ring_values, self._memory, self._sums),
                (sets.nodes, sets.pool, sets.path),
                self._bits,
                self._number,
                tuple(part[block] for part in followed),
            )
        self.step = first + len(noisy) - 1 if len(noisy) else self.step
        return followed


def _sortable(numbers: Values) -> Integers:
    """Integers in the order of the numbers: their bits, with those of negative numbers turned round."""
    bits = numbers.view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)
