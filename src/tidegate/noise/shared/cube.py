"""The cube on groups of steps: P(z) ∝ exp(−‖z‖/scale) with the largest step of a group as its norm, exactly.

The norm of a group z is max over its steps of Σ over columns of |z|. A radius is drawn when a group opens;
every step of it is then uniform in the ball of that radius, independent of the others. Compiled draws decide
all but about one radius in 2^12, `tidegate.noise.shared.reference` the rest from the same words. See
docs/proofs/noise_cube.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from tidegate.errors import InvalidParameter, SnapshotError
from tidegate.exact import whole
from tidegate.noise.discrete_laplace import Integers, element_words
from tidegate.noise.entropy import CHUNK_WORDS, Source, Words
from tidegate.noise.kernels import REJECTED, SURELY_KEPT, UNDECIDED, laplace_magnitude
from tidegate.noise.reference import WORD_BITS
from tidegate.noise.scale import Scale, prepare
from tidegate.noise.shared import kernels, reference
from tidegate.noise.shared.moments import CubeMoments

# Radii beyond this are clamped, so that what is computed with them fits into 64 bits: a chance below 2^-320,
# since the mean of a radius is at most LARGEST_MEAN.
LARGEST_RADIUS = (1 << 61) - 1
LARGEST_MEAN = 2.0**54
_UNIT_63 = 2.0**-63


@dataclass(frozen=True, slots=True)
class CubeState:
    """Where a run of a cube stands. SECRET: who knows the radius of an open group can remove noise.

    Attributes
    ----------
    place
        Position of the next group in the pattern of lengths.
    remaining
        Steps that the open group still has; 0 where none is open.
    radii
        One radius a copy; of no meaning where no group is open.
    """

    place: int
    remaining: int
    radii: tuple[int, ...] = field(repr=False)

    def numbers(self) -> list[int]:
        """The state as plain numbers, for a snapshot that is kept as secret as raw values."""
        return [self.place, self.remaining, *self.radii]


@lru_cache(maxsize=256)
def _boundaries(columns: int, length: int, exact: Fraction) -> Words:
    ladder = reference.remainder_ladder(columns, length, exact)(WORD_BITS)
    # The last boundary, 1, needs no test.
    return np.array(ladder[:-1], dtype=np.uint64)


def _radius_of(words: list[list[int]], boundaries: list[int], scale: Scale) -> int:
    """`kernels.fill_radii` for one radius and a call from Python; −1 where it is undecided."""
    first = words[0][0]
    total = bisect_right(boundaries, first)
    if total and first - boundaries[total - 1] <= 1:
        return -1
    for leading in words[1:]:
        value = laplace_magnitude(leading[0] >> 1, scale.part, _UNIT_63)
        if value < 0:
            return -1
        if scale.shift:
            if leading[1] >> 40 >= SURELY_KEPT:
                return -1
            value = (value << scale.shift) | (leading[1] & ((1 << scale.shift) - 1))
        total += value
    return total


@dataclass(frozen=True)
class Cube:
    """Noise of the cube law on consecutive groups of steps.

    Parameters
    ----------
    scale
        In grid units: exp(−‖z‖/scale). A change of norm Δ inside one group costs Δ/scale.
    lengths
        How many steps the groups have, a pattern that repeats.
    columns
        Columns that share one budget at a step (a unit may be in any of them).
    copies
        Independent copies side by side, for columns that have a budget of their own.

    Examples
    --------
    >>> from tidegate.noise import current
    >>> law = Cube(24.0, (8, 7))
    >>> values, state = law.draw(current(), "example", 0, law.start(), 20)
    >>> values.shape, state.remaining
    ((20, 1), 3)
    """

    scale: float | Fraction
    lengths: tuple[int, ...]
    columns: int = 1
    copies: int = 1

    def __post_init__(self) -> None:
        whole("columns", self.columns)
        whole("copies", self.copies)
        if not self.lengths:
            raise InvalidParameter("lengths", self.lengths, "not empty", "write for example lengths=(8,)")
        for length in set(self.lengths):
            whole("lengths", length)
        most = self.columns * max(self.lengths) + 1
        if self.prepared.value * most > LARGEST_MEAN:
            raise InvalidParameter(
                "scale", self.prepared.value, f"at most 2^54/{most} grid units", "use a coarser grid"
            )

    @cached_property
    def prepared(self) -> Scale:
        """The scale as the draws use it, never below what was asked for."""
        return prepare(self.scale)

    @cached_property
    def width(self) -> int:
        """Values a step."""
        return self.columns * self.copies

    @cached_property
    def _known_boundaries(self) -> dict[int, list[int]]:
        """Boundaries of the first variable by the length of a group, for draws of one step."""
        return {}

    def start(self) -> CubeState:
        """No group is open, and the next one is the first of the pattern."""
        return CubeState(0, 0, (0,) * self.copies)

    def restore(self, numbers: Sequence[int]) -> CubeState:
        """The state that `CubeState.numbers` has written."""
        place, remaining, *radii = (int(number) for number in numbers)
        fits = len(radii) == self.copies and 0 <= place < len(self.lengths)
        if not (fits and 0 <= remaining <= max(self.lengths) and min(radii) >= 0):
            raise SnapshotError("the snapshot's group is not one of this law; restore it with its own law.")
        return CubeState(place, remaining, tuple(radii))

    def opened(self, state: CubeState, steps: int) -> tuple[Integers, Integers]:
        """Starts and lengths of the groups that the next steps open."""
        pattern = np.array(self.lengths[state.place :] + self.lengths[: state.place], dtype=np.int64)
        rounds = max(0, steps - state.remaining) // sum(self.lengths) + 1
        lengths = np.tile(pattern, rounds)
        starts = np.cumsum(lengths) - lengths + state.remaining
        count = int(np.searchsorted(starts, steps))
        return starts[:count], lengths[:count]

    def draw(
        self, source: Source, stream: str, step: int, state: CubeState, steps: int = 1
    ) -> tuple[Integers, CubeState]:
        """The noise of the next steps, (steps, copies · columns), and the state after them.

        Parameters
        ----------
        source
            Where random words come from, normally ``tidegate.noise.current()``.
        stream, step
            The address of the noise: that of the first of these steps.
        state
            The state before; it must not be used again once a value drawn from it has been seen.
        steps
            How many.
        """
        if steps == 1:
            return self._draw_step(source, stream, step, state)
        out = np.empty((steps, self.width), dtype=np.int64)
        block = max(1, CHUNK_WORDS // self.width)
        for start in range(0, steps, block):
            part = out[start : start + block]
            state = self._draw_block(source, stream, step + start, state, part)(len(part))
        return out, state

    def draw_ahead(
        self, source: Source, stream: str, step: int, state: CubeState, steps: int
    ) -> tuple[Integers, Callable[[int], CubeState]]:
        """Noise for the next steps, not all of which may be used, and the state after any number of them.

        What is not used must not be seen: those steps are drawn anew, from that state.

        Examples
        --------
        >>> from tidegate.noise import current
        >>> law = Cube(24.0, (8, 7))
        >>> values, after = law.draw_ahead(current(), "example", 0, law.start(), 20)
        >>> values.shape, after(3).remaining, after(15).remaining, after(16).remaining
        ((20, 1), 5, 0, 7)
        """
        if steps == 1:
            values, end = self._draw_step(source, stream, step, state)
            return values, lambda used: end if used else state
        out = np.empty((steps, self.width), dtype=np.int64)
        return out, self._draw_block(source, stream, step, state, out)

    def _draw_block(
        self, source: Source, stream: str, step: int, state: CubeState, out: Integers
    ) -> Callable[[int], CubeState]:
        """As many steps as fit into the cache; the answer says what the state is after some of them."""
        steps = len(out)
        starts, lengths = self.opened(state, steps)
        radii = np.empty((starts.size + 1, self.copies), dtype=np.int64)
        radii[0] = state.radii
        self._fill_radii(source, f"{stream}/radius", step, starts, lengths, radii[1:])
        ends = np.append(starts, steps)
        ends[0] = min(ends[0], steps)
        if self.columns == 1:
            self._fill_intervals(source, stream, step, radii, ends, out.reshape(-1))
        else:
            each = np.repeat(radii, np.diff(ends, prepend=0), axis=0)
            self._fill_balls(source, stream, step, each.reshape(-1), out.reshape(-1, self.columns))

        def after(used: int) -> CubeState:
            if not used:
                return state
            opened = int(np.searchsorted(starts, used))
            left = int(starts[opened - 1] + lengths[opened - 1] if opened else state.remaining) - used
            # The radius of a group that has ended is of no use to anybody but an intruder.
            kept = tuple(radii[opened].tolist()) if left else (0,) * self.copies
            return CubeState((state.place + opened) % len(self.lengths), left, kept)

        return after

    def _draw_step(
        self, source: Source, stream: str, step: int, state: CubeState
    ) -> tuple[Integers, CubeState]:
        """One step, without a look at the pattern of all groups."""
        if self.width == 1:
            value, after = self.draw_one(source, stream, step, state)
            return np.array([[value]], dtype=np.int64), after
        place, remaining, radii = self._current(source, stream, step, state)
        out = np.empty((1, self.width), dtype=np.int64)
        known = np.array([radii], dtype=np.int64)
        if self.columns == 1:
            self._fill_intervals(source, stream, step, known, np.ones(1, dtype=np.int64), out.reshape(-1))
        else:
            self._fill_balls(source, stream, step, known.reshape(-1), out.reshape(-1, self.columns))
        left = remaining - 1
        return out, CubeState(place, left, radii if left else (0,) * self.copies)

    def draw_one(self, source: Source, stream: str, step: int, state: CubeState) -> tuple[int, CubeState]:
        """The noise of the next step as a Python integer, where a step has one value: the quick way."""
        place, remaining, radii = self._current(source, stream, step, state)
        radius, index, left = radii[0], 0, remaining - 1
        while (found := reference.below_count(source.word(stream, step, 0, index), 2 * radius + 1)) is None:
            index += 1
        value = found + 1 if found < radius else found - 2 * radius
        return value, CubeState(place, left, radii if left else (0,))

    def _current(
        self, source: Source, stream: str, step: int, state: CubeState
    ) -> tuple[int, int, tuple[int, ...]]:
        """Place, steps left and radii of the group that the next step belongs to, which it may open."""
        if state.remaining:
            return state.place, state.remaining, state.radii
        length = self.lengths[state.place]
        return (state.place + 1) % len(self.lengths), length, self._radii_at(source, stream, step, length)

    def _radii_at(self, source: Source, stream: str, step: int, length: int) -> tuple[int, ...]:
        """The radii of a group of this length that opens at a step."""
        if self.width == 1:
            return (self._radius_one(source, f"{stream}/radius", step, length),)
        found = np.empty(self.copies, dtype=np.int64)
        groups = np.arange(self.copies)
        self._fill_radii_block(source, f"{stream}/radius", step, length, groups, found)
        return tuple(found.tolist())

    def _radius_one(self, source: Source, stream: str, step: int, length: int) -> int:
        """What `_fill_radii` draws for one group of one column."""
        scale, count = self.prepared, 2 if self.prepared.shift else 1
        taken: list[list[int]] = [[] for _ in range(length + 2)]
        if length <= reference.MOST_SUMMED:
            taken = [[source.word(stream, step, v, i) for i in range(count)] for v in range(length + 2)]
            known = self._known_boundaries.get(length)
            if known is None:
                known = self._known_boundaries[length] = _boundaries(1, length, scale.exact).tolist()
            radius = _radius_of(taken, known, scale)
            if radius >= 0:
                return min(radius, LARGEST_RADIUS)
        variables = [
            element_words(source, stream, step, self._variables, v, words) for v, words in enumerate(taken)
        ]
        return min(reference.radius(1, length, scale.exact, variables), LARGEST_RADIUS)

    def _fill_radii(
        self, source: Source, stream: str, step: int, starts: Integers, lengths: Integers, out: Integers
    ) -> None:
        """The radii of groups, all of one length at once."""
        copies = np.arange(self.copies)
        for length in set(self.lengths):
            chosen = np.flatnonzero(lengths == length)
            groups = (starts[chosen, None] * self.copies + copies).reshape(-1)
            found = np.empty(groups.size, dtype=np.int64)
            block = max(1, CHUNK_WORDS // (self.columns * length + 2))
            for start in range(0, groups.size, block):
                part = slice(start, start + block)
                self._fill_radii_block(source, stream, step, length, groups[part], found[part])
            out[chosen] = found.reshape(-1, self.copies)

    @property
    def _variables(self) -> int:
        """Draws of a radius, as far as addresses are concerned: those of the longest group."""
        return self.columns * max(self.lengths) + 2

    def _fill_radii_block(
        self, source: Source, stream: str, step: int, length: int, groups: Integers, out: Integers
    ) -> None:
        """Radii of groups of one length; a group is addressed by its first step · copies + copy."""
        scale, draws = self.prepared, self.copies * self._variables
        count = 2 if scale.shift else 1
        variables = self.columns * length + 2
        words = None
        if self.columns * length > reference.MOST_SUMMED:
            out.fill(UNDECIDED)
        else:
            elements = (np.arange(variables)[:, None] + groups * self._variables).reshape(-1)
            words = source.words(stream, step, draws, elements, 0, count).reshape(count, variables, -1)
            boundaries = _boundaries(self.columns, length, scale.exact)
            if not kernels.fill_radii(words, boundaries, scale.part, scale.shift, np.empty_like(out), out):
                return
        for i in np.flatnonzero(out == UNDECIDED).tolist():
            first = int(groups[i]) * self._variables
            further = [
                element_words(
                    source, stream, step, draws, first + v, [] if words is None else words[:, v, i].tolist()
                )
                for v in range(variables)
            ]
            found = reference.radius(self.columns, length, scale.exact, further)
            out[i] = min(found, LARGEST_RADIUS)

    def _fill_intervals(
        self, source: Source, stream: str, step: int, radii: Integers, ends: Integers, out: Integers
    ) -> None:
        words = source.words(stream, step, self.copies, range(out.size), 0, 1)[0]
        index = 0
        if not kernels.fill_intervals(words, radii, ends, out):
            return
        again = np.flatnonzero(out == REJECTED)
        each = np.repeat(radii, np.diff(ends, prepend=0), axis=0).reshape(-1)
        while again.size:
            index += 1
            words = source.words(stream, step, self.copies, again, index, 1)[0]
            found = np.empty(again.size, dtype=np.int64)
            kernels.fill_intervals(words, each[again, None], np.arange(1, again.size + 1), found)
            out[again] = found
            again = again[found == REJECTED]

    def _fill_balls(self, source: Source, stream: str, step: int, radii: Integers, out: Integers) -> None:
        words = source.words(stream, step, self.width, range(out.size), 0, 1).reshape(out.shape)
        room = np.empty(self.columns, dtype=np.int64), np.empty(self.columns, dtype=np.bool_)
        if not kernels.fill_balls(words, radii, *room, out):
            return
        again, index = np.flatnonzero(out[:, 0] == REJECTED), 0
        while again.size:
            index += 1
            elements = (again[:, None] * self.columns + np.arange(self.columns)).reshape(-1)
            fresh = source.words(stream, step, self.width, elements, index, 1).reshape(-1, self.columns)
            found = np.empty(fresh.shape, dtype=np.int64)
            kernels.fill_balls(fresh, radii[again], *room, found)
            out[again] = found
            again = again[found[:, 0] == REJECTED]

    def moments(self, length: int) -> CubeMoments:
        """Exact expectations of the values of a group of this length."""
        return CubeMoments(self.columns, length, self.prepared.value)

    def variance(self) -> float:
        """Variance of a value, averaged over the steps of the pattern.

        Examples
        --------
        >>> law = Cube(24.0, (8, 7))
        >>> round(law.variance())
        15667
        """
        return self._average(lambda length: self.moments(length).variance())

    def expected_absolute(self) -> float:
        """Mean absolute value, averaged over the steps of the pattern."""
        return self._average(lambda length: self.moments(length).expected_absolute())

    def radius(self, probability: float) -> int:
        """The least r with P(|z| ≤ r) ≥ probability at every step: half the width of an interval."""
        return max(self.moments(length).radius(probability) for length in set(self.lengths))

    largest_radius = radius

    def _average(self, number: Callable[[int], float]) -> float:
        total = sum(count * length * number(length) for length, count in Counter(self.lengths).items())
        return total / sum(self.lengths)
