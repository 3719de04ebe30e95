"""How the noise of measurements is distributed together, as plain state that a session can commit.

A law has a state of arrays, whose sizes are public. `measure` draws the noise of the next measurements and says which
spans pay for it: noise that measurements share is charged once in every window that it touches
(docs/proofs/shared_noise.md).

The state is SECRET. It holds noise to come: values that were drawn ahead, so that single pushes need not call a
sampler each time, and what later draws depend on (radii, arrivals).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.compiled import lean
from tidegate.noise.discrete_laplace import Integers
from tidegate.noise.entropy import UNBUFFERED, Source
from tidegate.noise.shared.cube import Cube
from tidegate.noise.shared.semiorder import Semiorder, SemiorderState, Track

# positions in `LawState.numbers`
TAKEN = 0  # values of `ahead` that were used
DRAWN = 1  # values of `ahead` that were drawn
ORDINAL = 2  # of the open span; −1 before there was any
FIRST = 3  # its first step
LAST = 4  # its last step so far, planned ones included
LEFT = 5  # measurements that the open group of a cube still has
PLACE = 6  # of the next group in the pattern of lengths
NUMBERS = 7

AHEAD = 64  # measurements that are drawn at once for single pushes
AHEAD_CELLS = 1 << 10  # and their values, at most
AT_ONCE = 1 << 12  # measurements that are drawn at once for a loop over many steps
REFINED = 4  # numbers of a semiorder that may have further words at a time; more have a chance below 2^-60
FURTHER = 4  # and so many words each


Row = tuple[int, ...]  # a span: law, ordinal, first and last step, units


class LawState(NamedTuple):
    """Where a law stands. SECRET."""

    numbers: Integers
    ahead: Integers  # values that were drawn ahead, one row per measurement
    inner: tuple[npt.NDArray[Any], ...]  # what draws after them depend on


class Ahead(NamedTuple):
    """Noise that a loop takes by `take_row`. SECRET."""

    numbers: Integers  # TAKEN and DRAWN of these rows
    rows: Integers
    after: Callable[[int], Any] | None  # where draws go on after so many of them; None: they are in the state


class SharedLaw:
    """The cube or the semiorder, with what its spans cost.

    Parameters
    ----------
    law
        What is drawn from.
    units
        What a span costs.
    window
        The steps after which a span has ended; None: never.
    distance
        Steps from one measurement to the next; 0 where their times are not known in advance.
    horizon
        The last step of the stream; None: there is none.
    number
        The law's number in its mechanism.
    """

    def __init__(
        self,
        law: Cube | Semiorder,
        units: int,
        window: int | None,
        distance: int = 1,
        horizon: int | None = None,
        number: int = 0,
    ) -> None:
        self.law, self.units, self.window, self.distance = law, units, window, distance
        self.horizon, self.number = horizon, number
        self.width = law.columns * law.copies
        longest = max(law.lengths) if isinstance(law, Cube) else AHEAD  # not beyond a group
        self.room = max(1, min(AHEAD, longest, AHEAD_CELLS // self.width))

    def start(self) -> LawState:
        """Nothing was drawn."""
        numbers = np.zeros(NUMBERS, dtype=np.int64)
        numbers[ORDINAL] = -1
        return LawState(
            numbers, np.zeros((self.room, self.width), dtype=np.int64), stored(self.law, self.law.start())
        )

    def measure(
        self, state: LawState, source: Source, stream: str, number: int, steps: Integers
    ) -> tuple[Integers, Integers]:
        """Noise of measurements at these steps, one row each, and the rows of the spans that pay for it.

        `number` is the address of the first of them. The state is changed.
        """
        if len(steps) == 1:
            row, rows = self.measure_one(state, source, stream, number, int(steps[0]))
            return row[np.newaxis], np.array(rows, dtype=np.int64).reshape(-1, 5)
        spans = self._pay(state, steps)
        return self._draw(state, source, stream, number, len(steps)), spans

    def measure_one(
        self, state: LawState, source: Source, stream: str, number: int, step: int
    ) -> tuple[Integers, list[Row]]:
        """`measure` of one measurement: its noise, and the spans as plain numbers."""
        numbers = state.numbers
        if isinstance(self.law, Cube):
            rows = [tuple(row) for row in self._pay_groups(numbers, np.array([step])).tolist()]
        else:
            if numbers.item(ORDINAL) < 0 or self._apart(step - numbers.item(LAST)):
                numbers[ORDINAL] += 1
                numbers[FIRST] = step
            numbers[LAST] = step
            rows = [self._row(numbers)]
        taken = numbers.item(TAKEN)
        if taken == numbers.item(DRAWN):
            return self._draw(state, source, stream, number, 1)[0], rows
        noise = state.ahead[taken].copy()
        state.ahead[taken] = 0  # used noise would remove itself from a release
        numbers[TAKEN] = taken + 1
        return noise, rows

    # measurements whose number is not known beforehand: a compiled loop takes noise as it comes to them ------------

    def waiting(self, state: LawState) -> Ahead:
        """Noise that the state holds for them."""
        return Ahead(state.numbers, state.ahead, None)

    def ahead(self, state: LawState, source: Source, stream: str, number: int, most: int) -> Ahead:
        """Noise for at most so many of them, of which `number` is the first, when none waits any more."""
        if most <= self.room and source is not UNBUFFERED:
            self._keep(state, self._fresh(state, source, stream, number, self.room))
            return self.waiting(state)
        count = min(most, AT_ONCE)
        rows, after = self.law.draw_ahead(source, stream, number, loaded(self.law, state.inner), count)
        self._stand(state, after(count))  # until `settle` knows how many were used
        return Ahead(np.array([0, count]), rows, after)

    def settle(self, state: LawState, ahead: Ahead, steps: Integers) -> Integers:
        """The rows of the spans that pay for measurements at these steps, the last of which have used `ahead`.

        What was not used stays in the state for the next ones; more than it holds is forgotten, unseen.
        """
        taken, drawn = ahead.numbers[:ORDINAL].tolist()
        if ahead.after is not None and taken < drawn:
            self._stand(state, ahead.after(taken))
        return self._pay(state, steps)

    def renew(self, state: LawState) -> None:
        """Forget all noise: the next measurement begins a span, and shares nothing with earlier ones."""
        ordinal, new = int(state.numbers[ORDINAL]), self.start()
        for kept, begun in zip(
            (state.numbers, state.ahead, *state.inner), (new.numbers, new.ahead, *new.inner), strict=True
        ):
            kept[...] = begun
        state.numbers[ORDINAL] = ordinal

    # what is drawn -----------------------------------------------------------------------------------------------

    def _draw(self, state: LawState, source: Source, stream: str, number: int, count: int) -> Integers:
        numbers, ahead, _ = state
        taken, drawn = int(numbers[TAKEN]), int(numbers[DRAWN])
        waiting = min(count, drawn - taken)
        if waiting == count:
            noise = ahead[taken : taken + count].copy()
        else:
            noise = np.empty((count, self.width), dtype=np.int64)
            noise[:waiting] = ahead[taken:drawn]
        ahead[taken : taken + waiting] = 0  # used noise would remove itself from a release
        numbers[TAKEN] = taken + waiting
        missing = count - waiting
        if missing:
            # single pushes come again: their noise is drawn ahead, where nobody may look into the memory
            more = self.room if count == 1 and source is not UNBUFFERED else missing
            fresh = self._fresh(state, source, stream, number + waiting, more)
            noise[waiting:] = fresh[:missing]
            self._keep(state, fresh[missing:])
        return noise

    def _fresh(self, state: LawState, source: Source, stream: str, number: int, count: int) -> Integers:
        """Noise after all that was drawn."""
        fresh: Integers
        fresh, after = self.law.draw(source, stream, number, loaded(self.law, state.inner), count)
        self._stand(state, after)
        return fresh

    def _stand(self, state: LawState, inner: Any) -> None:
        """Let the next draw begin here."""
        for kept, new in zip(state.inner, stored(self.law, inner), strict=True):
            kept[...] = new

    def _keep(self, state: LawState, rest: Integers) -> None:
        """Noise that waits for its measurements, when none waits."""
        state.ahead[: len(rest)] = rest
        state.numbers[TAKEN], state.numbers[DRAWN] = 0, len(rest)

    # what it costs -----------------------------------------------------------------------------------------------

    def _pay(self, state: LawState, steps: Integers) -> Integers:
        """The spans that begin with these measurements or are extended by them."""
        if not len(steps):
            return np.zeros((0, 5), dtype=np.int64)
        return (
            self._pay_groups(state.numbers, steps)
            if isinstance(self.law, Cube)
            else self._pay_run(state.numbers, steps)
        )

    def _pay_groups(self, numbers: Integers, steps: Integers) -> Integers:
        """The cube: one span per group of measurements, planned to its end where their times are known."""
        lengths, at, rows = self.law.lengths, 0, []  # type: ignore[union-attr]
        while at < len(steps):
            begins = not numbers[LEFT]
            if begins:
                numbers[LEFT] = lengths[numbers[PLACE]]
                numbers[PLACE] = (numbers[PLACE] + 1) % len(lengths)
            elif self.window is not None and steps[at] - numbers[LAST] >= self.window:
                begins = True  # no window meets both parts of the group: the rest of it is a span of its own
            if begins:
                numbers[ORDINAL] += 1
                numbers[FIRST] = steps[at]
                numbers[LAST] = steps[at] + (numbers[LEFT] - 1) * self.distance
                if self.horizon is not None:
                    numbers[LAST] = min(numbers[LAST], self.horizon)
            held = min(int(numbers[LEFT]), len(steps) - at)
            if not self.distance:
                gaps = np.diff(steps[at : at + held]).tolist()
                held = next((place + 1 for place, gap in enumerate(gaps) if self._apart(gap)), held)
            last = int(steps[at + held - 1])
            # a span is named where it begins, and again where it lasts longer than was planned
            if begins or last > numbers[LAST]:
                numbers[LAST] = max(last, int(numbers[LAST]))
                rows.append(self._row(numbers))
            numbers[LEFT] -= held
            at += held
        return np.array(rows, dtype=np.int64).reshape(-1, 5)

    def _pay_run(self, numbers: Integers, steps: Integers) -> Integers:
        """The semiorder: one span that is extended with every measurement, and a new one after a window without any."""
        gaps = np.diff(steps, prepend=numbers[LAST])
        begins = np.zeros(len(steps), dtype=np.bool_) if self.window is None else gaps >= self.window
        begins[0] |= numbers[ORDINAL] < 0
        starts = np.flatnonzero(begins)
        rows = []
        if not begins[0]:
            numbers[LAST] = steps[(starts[0] if len(starts) else len(steps)) - 1]
            rows.append(self._row(numbers))
        ends = np.append(starts[1:], len(steps))
        for start, stop in zip(starts.tolist(), ends.tolist(), strict=False):
            numbers[ORDINAL] += 1
            numbers[FIRST], numbers[LAST] = steps[start], steps[stop - 1]
            rows.append(self._row(numbers))
        return np.array(rows, dtype=np.int64).reshape(-1, 5)

    def _apart(self, gap: int) -> bool:
        """Whether no window contains two steps that are so far from each other."""
        return self.window is not None and gap >= self.window

    def _row(self, numbers: Integers) -> Row:
        return self.number, numbers.item(ORDINAL), numbers.item(FIRST), numbers.item(LAST), self.units


@lean
def take_row(numbers: Any, ahead: Any, row: Any) -> bool:
    """Move the noise of the next measurement from a law's state into a row; False where none was drawn."""
    taken = numbers[TAKEN]
    if taken == numbers[DRAWN]:
        return False
    for column in range(row.size):
        row[column] = ahead[taken, column]
        ahead[taken, column] = 0  # used noise would remove itself from a release
    numbers[TAKEN] = taken + 1
    return True


TRACK_FIELDS = ("placed", "nodes", "ahead", "counts", "marks", "gaps")


def stored(law: Cube | Semiorder, inner: Any) -> tuple[npt.NDArray[Any], ...]:
    """What a sampler's later draws depend on, as arrays whose sizes are public."""
    if isinstance(law, Cube):
        return (np.array(inner.numbers(), dtype=np.int64),)
    tracks = [law.track(track) for track in inner.tracks]
    more = np.full((REFINED, 3 + FURTHER), -1, dtype=np.int64)
    words = np.zeros((REFINED, FURTHER), dtype=np.uint64)
    refined = [
        (number, *key, kept) for number, track in enumerate(tracks) for key, kept in track.more.items()
    ]
    for at, (number, copy, gap, kept) in enumerate(
        refined
    ):  # too many of them raise, which halts the session
        more[at, :4] = number, copy, gap, len(kept)
        words[at, : len(kept)] = kept
    stacked = [np.stack([getattr(track, name).reshape(-1) for track in tracks]) for name in TRACK_FIELDS]
    return (np.array([inner.steps], dtype=np.int64), *stacked, more, words)


def loaded(law: Cube | Semiorder, arrays: Sequence[npt.NDArray[Any]]) -> Any:
    """The sampler's state from what `stored` has given."""
    if isinstance(law, Cube):
        return law.restore(arrays[0].tolist())
    steps, *stacked, more, words = arrays
    refined: dict[int, dict[tuple[int, int], list[int]]] = {}
    for (number, copy, gap, count, *_), kept in zip(more.tolist(), words.tolist(), strict=True):
        if number >= 0:
            refined.setdefault(number, {})[copy, gap] = kept[:count]
    empty = law.start().tracks[0]
    tracks = []
    for number in range(law.classes):
        fields = {
            name: rows[number].reshape(getattr(empty, name).shape).copy()
            for name, rows in zip(TRACK_FIELDS, stacked, strict=True)
        }
        tracks.append(Track(**fields, more=refined.get(number, {})))
    return SemiorderState(int(steps[0]), tuple(tracks))


def most_live(law: Cube | Semiorder, window: int | None, distance: int) -> int:
    """The most spans of a law that can meet a window."""
    if isinstance(law, Semiorder):
        return 2
    if window is None:
        return 1
    shortest = min(law.lengths) * max(1, distance)
    return 2 + -(-window // shortest)


def most_named(law: Cube | Semiorder, window: int | None, steps: int) -> int:
    """The most spans that measurements at any of so many consecutive steps begin or extend."""
    groups = steps // min(law.lengths) if isinstance(law, Cube) else 0
    gaps = 0 if window is None else steps // window  # after which a group goes on in another span
    return min(steps, 2 + groups + gaps)


def exact_units(part: Fraction, units: int) -> int:
    """A part of a budget that is divided into so many units, as whole units."""
    cost = part * units
    assert cost.denominator == 1, "a span costs a whole number of units"
    return int(cost)
