"""The semiorder law: noise for a window that slides, drawn step by step and rounded to the grid, exactly.

The norm of a stream z is the largest Σ|z_t| over steps t of which any two are at least `width` apart, |z_t| being
the sum over the columns. Arrivals of a Poisson process are given to the steps in a random linear order
(`orders`); the absolute value of a step is its arrival less the last arrival of all steps up to t − width.
That is a sum of at most (2·width − 1)·columns exponential variables, known by the words they come from: the
compiled kernel decides nearly all roundings, `tidegate.noise.shared.reference` the rest from the same words.
See docs/proofs/noise_semiorder.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, cached_property
from typing import Any

import numpy as np

from tidegate.errors import SnapshotError
from tidegate.exact import whole
from tidegate.noise.discrete_laplace import Integers, fit
from tidegate.noise.entropy import Source, Words
from tidegate.noise.kernels import log
from tidegate.noise.reference import WORD_BITS, UniformReal
from tidegate.noise.scale import Scale, prepare
from tidegate.noise.shared import kernels, reference
from tidegate.noise.shared.moments import RoundedGammaMoments
from tidegate.noise.shared.orders import Order, check_widths, order
from tidegate.noise.shared.shares import largest_shares, shares

# Steps of one class that are drawn at once.
BLOCK_STEPS = 1 << 13

OneWord = Callable[[str, int, int, int], int]  # `Source.word`


@dataclass(frozen=True, repr=False)
class Track:
    """Where the copies of one class stand. SECRET: who knows the arrivals can remove noise.

    The next step of the class is called *next*; arrivals are counted from the last one of all steps up to
    next − width, which is number 0.

    Attributes
    ----------
    placed
        Placements made since the start, for addresses.
    nodes
        State of the order.
    ahead
        How many steps from next on are done.
    counts
        How many arrivals are kept.
    marks
        Numbers of the arrivals of the steps next − width + 1, …, next + width − 2, −1 where there is none yet;
        0 stands for all that came before the kept ones.
    gaps
        The words of the kept arrivals: 63 leading bits of u, where −scale · ln u is the time since the arrival
        before, and the sign of the value that ends with it.
    more
        {(copy, arrival): words}: further bits of the few u that a comparison has needed.
    """

    placed: Integers
    nodes: Integers
    ahead: Integers
    counts: Integers
    marks: Integers
    gaps: Words
    more: dict[tuple[int, int], list[int]]

    def copy(self) -> Track:
        """A track of its own."""
        arrays = {
            name: getattr(self, name).copy()
            for name in ("placed", "nodes", "ahead", "counts", "marks", "gaps")
        }
        return Track(**arrays, more={key: list(words) for key, words in self.more.items()})

    def numbers(self) -> dict[str, Any]:
        """Plain numbers."""
        kept = [row[:count].tolist() for row, count in zip(self.gaps, self.counts.tolist(), strict=True)]
        return {
            "placed": self.placed.tolist(),
            "nodes": self.nodes.tolist(),
            "ahead": self.ahead.tolist(),
            "marks": self.marks.tolist(),
            "gaps": kept,
            "more": [[copy, gap, *words] for (copy, gap), words in sorted(self.more.items())],
        }


@dataclass(slots=True, repr=False, eq=False)  # made at every step: frozen it would take three times as long
class Line:
    """A track of one copy and one column in plain numbers, for runs that take one step at a time. SECRET.

    The fields are those of `Track`; depths are those of the gaps, as `kernels.add_depths` has them, and `rough` says how
    many of them have an error above FINE: hardly ever any. Marks count all placements, so that they stay as they are when
    gaps are forgotten. Nobody changes a line: every step makes the next.
    """

    placed: int
    node: int
    ahead: int
    marks: list[int]
    gaps: list[int]
    depths: list[int]
    rough: int
    more: dict[int, list[int]]

    def numbers(self) -> dict[str, Any]:
        """Plain numbers, as of a track."""
        return {
            "placed": [self.placed],
            "nodes": [self.node],
            "ahead": [self.ahead],
            "marks": [[[self._among_gaps(mark)] for mark in self.marks]],
            "gaps": [list(self.gaps)],
            "more": [[0, gap, *words] for gap, words in sorted(self.more.items())],
        }

    def _among_gaps(self, mark: int) -> int:
        """A mark counted from the first gap that is kept, as tracks have it."""
        forgotten = self.placed - len(self.gaps)
        return mark - forgotten if mark > forgotten else min(mark, 0)


@dataclass(slots=True)  # never changed either
class SemiorderState:
    """Where a run of a semiorder stands. SECRET: it determines noise that was and noise that will be seen.

    Attributes
    ----------
    steps
        Steps drawn since the start.
    tracks
        One for each class.
    """

    steps: int
    tracks: tuple[Track | Line, ...] = field(repr=False)

    def numbers(self) -> dict[str, Any]:
        """The state as plain numbers, for a snapshot that is kept as secret as raw values."""
        return {"steps": self.steps, "tracks": [track.numbers() for track in self.tracks]}


@dataclass(frozen=True)
class Semiorder:
    """Noise of the semiorder law, for a run in which every measurement of a window is protected alike.

    Parameters
    ----------
    scale
        In grid units: exp(−‖z‖/scale) for each class. A change of at most Δ at every one of `width` consecutive
        steps of a class, and of nothing else, costs Δ/scale.
    width
        Steps of one class that a window can hold.
    columns
        Columns that share one budget at a step (a unit may be in any of them).
    copies
        Independent copies side by side, for columns that have a budget of their own.
    classes
        Step t belongs to class t mod classes; a window then costs classes · Δ/scale.

    Examples
    --------
    >>> from tidegate.noise import current
    >>> law = Semiorder(10.0, width=4)
    >>> values, state = law.draw(current(), "example", 0, law.start(), 20)
    >>> values.shape, state
    ((20, 1), SemiorderState(steps=20))
    """

    scale: float | Fraction
    width: int
    columns: int = 1
    copies: int = 1
    classes: int = 1

    def __post_init__(self) -> None:
        for name in ("width", "columns", "copies", "classes"):
            whole(name, getattr(self, name))
        check_widths(self.width, self.columns)
        prepare(self.scale)

    @cached_property
    def prepared(self) -> Scale:
        """The scale as the draws use it, never below what was asked for."""
        return prepare(self.scale)

    @cached_property
    def order(self) -> Order:
        """The order that arrivals are given in."""
        return order(self.width, self.columns)

    @property
    def _recent(self) -> int:
        """Steps whose arrivals are kept: width − 1 before the next one and as many from it on."""
        return 2 * self.width - 2

    def start(self) -> SemiorderState:
        """Nothing has been placed."""
        return SemiorderState(0, tuple(self._empty() for _ in range(self.classes)))

    def _empty(self) -> Track:
        zeros = np.zeros((4, self.copies), dtype=np.int64)
        marks = np.full((self.copies, self._recent, self.columns), -1, dtype=np.int64)
        marks[:, : self.width - 1] = 0
        gaps = np.zeros((self.copies, max(1, self._recent * self.columns)), dtype=np.uint64)
        return Track(zeros[0], zeros[1], zeros[2], zeros[3], marks, gaps, {})

    def restore(self, numbers: dict[str, Any]) -> SemiorderState:
        """The state that `SemiorderState.numbers` has written."""
        try:
            tracks = tuple(self._restore_track(track) for track in numbers["tracks"])
            if len(tracks) != self.classes:
                raise ValueError
            return SemiorderState(whole("steps", numbers["steps"], 0), tracks)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):
            raise SnapshotError(
                "the snapshot's arrivals are not those of this law; restore it with its own law."
            ) from None

    def _restore_track(self, numbers: dict[str, Any]) -> Track:
        track = self._empty()
        for name in ("placed", "nodes", "ahead", "marks"):
            getattr(track, name)[...] = np.array(numbers[name], dtype=np.int64).reshape(
                getattr(track, name).shape
            )
        for copy, words in enumerate(numbers["gaps"]):
            track.counts[copy] = len(words)
            track.gaps[copy, : len(words)] = np.array(words, dtype=np.uint64)
        known = (track.nodes >= 0) & (track.nodes < self.order.states) & (track.ahead >= 0)
        if not (known & (track.ahead < max(self.width, 2))).all() or track.marks.max(initial=0) > max(
            track.counts
        ):
            raise ValueError
        return replace(track, more={(copy, gap): words for copy, gap, *words in numbers["more"]})

    def draw(
        self, source: Source, stream: str, step: int, state: SemiorderState, steps: int = 1
    ) -> tuple[Integers, SemiorderState]:
        """The noise of the next steps, (steps, copies · columns), and the state after them.

        Parameters are those of `Cube.draw`.
        """
        if steps == 1 and self.copies == self.columns == 1:
            value, after = self.draw_one(source, stream, step, state)
            return np.array([[value]], dtype=np.int64), after
        first = step - state.steps
        tracks = list(state.tracks)
        out = np.empty((steps, self.copies * self.columns), dtype=np.int64)
        for i in range(min(self.classes, steps)):
            number = (state.steps + i) % self.classes
            rows = out[i :: self.classes]
            for start in range(0, len(rows), BLOCK_STEPS):
                block = np.empty((min(BLOCK_STEPS, len(rows) - start), rows.shape[1]), dtype=np.int64)
                address = f"{stream}/{number}"
                track = self.track(tracks[number])
                tracks[number] = self._draw_block(source, address, first, track, block)
                rows[start : start + BLOCK_STEPS] = block
        return out, SemiorderState(state.steps + steps, tuple(tracks))

    def draw_ahead(
        self, source: Source, stream: str, step: int, state: SemiorderState, steps: int
    ) -> tuple[Integers, Callable[[int], SemiorderState]]:
        """Noise for at most BLOCK_STEPS next steps, not all of which may be used, and the state after any number of them.

        What is not used must not be seen: those steps are drawn anew, from that state.

        Examples
        --------
        >>> from tidegate.noise import current
        >>> law = Semiorder(100.0, width=8)
        >>> values, after = law.draw_ahead(current(), "example", 0, law.start(), 20)
        >>> values.shape, after(3).steps
        ((20, 1), 3)
        """
        if steps == 1:
            values, end = self.draw(source, stream, step, state)
            return values, lambda used: end if used else state
        first, classes = step - state.steps, self.classes
        word = cache(source.word)  # further words are the same where a part is drawn once more
        out = np.empty((steps, self.copies * self.columns), dtype=np.int64)
        drawn = []
        for i in range(min(classes, steps)):
            number = (state.steps + i) % classes
            track, block = self.track(state.tracks[number]), np.empty_like(out[i::classes], order="C")
            words = self._words(
                source, f"{stream}/{number}", first, track.placed, self._placements(len(block))
            )
            drawn.append(
                (number, track, words, self._run(word, f"{stream}/{number}", first, track, words, block))
            )
            out[i::classes] = block

        def after(used: int) -> SemiorderState:
            if not used:
                return state
            tracks = list(state.tracks)
            for i, (number, track, words, end) in enumerate(drawn):
                taken = len(range(i, used, classes))
                if taken == len(range(i, steps, classes)):
                    tracks[number] = end
                elif taken:
                    part, block = (
                        words[:, : self._placements(taken)],
                        np.empty((taken, out.shape[1]), np.int64),
                    )
                    tracks[number] = self._run(word, f"{stream}/{number}", first, track, part, block)
            return SemiorderState(state.steps + used, tuple(tracks))

        return out, after

    def draw_one(
        self, source: Source, stream: str, step: int, state: SemiorderState
    ) -> tuple[int, SemiorderState]:
        """The noise of the next step as a Python integer, where a step has one value: the quick way."""
        steps, tracks = state.steps, state.tracks
        if self.classes == 1:
            track = tracks[0] if type(tracks[0]) is Line else self._line(tracks[0])
            value, line = self._draw_one(source, f"{stream}/0", step - steps, track)
            return value, SemiorderState(steps + 1, (line,))
        number = steps % self.classes
        value, line = self._draw_one(source, f"{stream}/{number}", step - steps, self._line(tracks[number]))
        others = (*tracks[:number], line, *tracks[number + 1 :])
        return value, SemiorderState(steps + 1, others)

    def _line(self, track: Track | Line) -> Line:
        if isinstance(track, Line):
            return track
        numbers = track.numbers()
        known = [_depth(word) for word in numbers["gaps"][0]]
        forgotten = numbers["placed"][0] - len(known)
        return Line(
            numbers["placed"][0],
            numbers["nodes"][0],
            numbers["ahead"][0],
            [row[0] + forgotten if row[0] > 0 else row[0] for row in numbers["marks"][0]],
            numbers["gaps"][0],
            [depth for depth, _ in known],
            sum(error > kernels.FINE for _, error in known),
            {gap: list(words) for (_, gap), words in track.more.items()},
        )

    def track(self, track: Track | Line) -> Track:
        """A track in arrays, however it was kept."""
        return track if isinstance(track, Track) else self._restore_track(track.numbers())

    def _draw_one(self, source: Source, stream: str, first: int, line: Line) -> tuple[int, Line]:
        """The next step of one column: what `kernels.run_tracks` does, without the cost of calling it."""
        row = self.width - 1
        placed, node, ahead = line.placed, line.node, line.ahead - 1
        marks = [*line.marks, -1]
        gaps, depths, rough = line.gaps, line.depths, line.rough
        forgotten = placed - len(gaps)
        if ahead < 0:
            gaps, depths = gaps.copy(), depths.copy()
            order = self.order
            known = order.rows
            while marks[row] < 0:
                word = source.word(stream, first + placed, 0, 0)
                boundaries = known.get(node) or order.row(node)
                choice = bisect_right(boundaries, word)
                if choice and word - boundaries[choice - 1] <= 1:
                    further = self._further(source.word, stream, first, placed, 0, 1)
                    choice = order.choose(node, _prepend(word, further))
                gap = source.word(stream, first + placed, 1, 0)
                depth, error = _depth(gap)
                placed += 1
                gaps.append(gap)
                depths.append(depth)
                rough += error > kernels.FINE
                marks[row + choice] = placed
                node = node + (1 << choice - 1) if choice else order.done_list[node]
            ahead, last = 0, len(marks) - row - 1
            while ahead < last and marks[row + 1 + ahead] >= 0:
                ahead += 1
        stop, more = marks[row] - forgotten, line.more
        error = sum(_depth(gap)[1] for gap in gaps[:stop]) if rough else kernels.FINE * stop
        value = _rounded(sum(depths[:stop]), error, self.prepared.value)
        if value < 0:
            more = {gap: list(words) for gap, words in more.items()}
            value = self._decide_one(source, stream, first + forgotten, gaps[:stop], more)
        if gaps[stop - 1] & 1:
            value = -value
        before = marks.pop(0) - forgotten
        if before > 0:
            gaps, depths = gaps[before:], depths[before:]
            if rough:
                rough = sum(_depth(gap)[1] > kernels.FINE for gap in gaps)
            if more:
                more = {gap - before: words for gap, words in more.items() if gap > before}
        return value, Line(placed, node, ahead, marks, gaps, depths, rough, more)

    def _decide_one(
        self, source: Source, stream: str, base: int, gaps: list[int], more: dict[int, list[int]]
    ) -> int:
        """Round the sum of the first gaps exactly; the first of them is that of placement `base`."""
        uniforms = []
        for gap, word in enumerate(gaps, 1):
            known = more.get(gap, [])
            further = self._further(source.word, stream, base, gap - 1, 1, 1 + len(known))
            uniforms.append(_uniform(word, known, further))
        value = fit(reference.rounded_sum(uniforms, self.prepared.exact))
        more |= {gap: _split(u) for gap, u in enumerate(uniforms, 1) if u.bits > WORD_BITS}
        return value

    def _words(self, source: Source, stream: str, first: int, placed: Integers, count: int) -> Words:
        """Two words (choice and gap) of each of the next placements of every copy, (copies, count, 2)."""
        draws = 2 * self.copies
        if self.copies == 1:
            number = int(placed[0])
            words = source.words(stream, first, 2, range(2 * number, 2 * (number + count)), 0, 1)
        else:
            starts = placed * draws + 2 * np.arange(self.copies)
            numbers = starts[:, None, None] + np.arange(count)[:, None] * draws + np.arange(2)
            words = source.words(stream, first, draws, numbers.reshape(-1), 0, 1)
        return words.reshape(self.copies, count, 2)

    def _draw_block(self, source: Source, stream: str, first: int, before: Track, out: Integers) -> Track:
        """Some steps of one class."""
        words = self._words(source, stream, first, before.placed, self._placements(len(out)))
        return self._run(source.word, stream, first, before, words, out)

    def _placements(self, steps: int) -> int:
        """The most placements of so many steps: nothing beyond the window that begins with the last of them."""
        return (steps + self.width - 1) * self.columns

    def _run(
        self, word: OneWord, stream: str, first: int, before: Track, words: Words, out: Integers
    ) -> Track:
        """Some steps of one class from the words of their placements."""
        choices, arrivals = np.ascontiguousarray(words[..., 0]), np.ascontiguousarray(words[..., 1])
        open_values = np.empty((out.size, 5), dtype=np.int64)
        used = np.empty(self.copies, dtype=np.int64)
        while True:
            track = before.copy()
            order = (self.order.boundaries, self.order.halves, self.order.radix, self.order.done)
            tracks = (track.nodes, track.ahead, track.counts, track.marks, track.gaps)
            found, stopped = kernels.run_tracks(
                order, self.prepared.value, choices, arrivals, tracks, used, out, open_values
            )
            if stopped < 0:
                break
            at, node = int(used[stopped]), int(track.nodes[stopped])
            further = self._further(word, stream, first, int(before.placed[stopped]) + at, 2 * stopped, 1)
            leading = int(choices[stopped, at])
            choice = self.order.choose(node, _prepend(leading, further))
            choices[stopped, at] = self._surely(node, choice)
        if found:
            self._decide(word, stream, first, before, track, arrivals, open_values[:found], out)
        shifts = before.counts + used - track.counts
        track.placed[:] += used
        kept = {
            (copy, gap - int(shifts[copy])): further
            for (copy, gap), further in track.more.items()
            if gap > shifts[copy]
        }
        return replace(track, more=kept)

    def _further(
        self, word: OneWord, stream: str, first: int, placement: int, draw: int, index: int
    ) -> Iterator[int]:
        while True:
            yield word(stream, first + placement, draw, index)
            index += 1

    def _surely(self, node: int, choice: int) -> int:
        """A word that leaves no doubt about a choice."""
        boundaries = self.order.boundaries[node]
        low = int(boundaries[choice - 1]) + 2 if choice else 0
        return (low + int(boundaries[choice])) // 2

    def _decide(
        self,
        word: OneWord,
        stream: str,
        first: int,
        before: Track,
        track: Track,
        arrivals: Words,
        open_values: Integers,
        out: Integers,
    ) -> None:
        """Round what the kernel left open, from the same words and as many more as it takes."""
        for step, copy, column, start, stop in open_values.tolist():
            kept = int(before.counts[copy])
            gaps = []
            for gap in range(start + 1, stop + 1):
                leading = before.gaps[copy, gap - 1] if gap <= kept else arrivals[copy, gap - 1 - kept]
                placement = int(before.placed[copy]) - kept + gap - 1
                known = track.more.get((copy, gap), [])
                further = self._further(word, stream, first, placement, 2 * copy + 1, 1 + len(known))
                gaps.append(_uniform(int(leading), known, further))
            value = fit(reference.rounded_sum(gaps, self.prepared.exact))
            for gap, uniform in zip(range(start + 1, stop + 1), gaps, strict=True):
                if uniform.bits > WORD_BITS:
                    track.more[copy, gap] = _split(uniform)
            negative = int(leading) & 1
            out[step, copy * self.columns + column] = -value if negative else value

    @cached_property
    def moments(self) -> RoundedGammaMoments:
        """Expectations of a value long after the start."""
        return RoundedGammaMoments(shares(self.width, self.columns), self.prepared.value)

    def variance(self) -> float:
        """Variance of a value long after the start.

        Examples
        --------
        >>> round(Semiorder(100.0, width=2).variance() / 100**2, 3)
        5.236
        """
        return self.moments.variance()

    def expected_absolute(self) -> float:
        """Mean absolute value long after the start."""
        return self.moments.expected_absolute()

    def radius(self, probability: float) -> int:
        """The least r with P(|z| ≤ r) ≥ probability long after the start."""
        return self.moments.radius(probability)

    def largest_radius(self, probability: float) -> int:
        """The least r with P(|z| ≤ r) ≥ probability at every step: half the width of an interval around a release.

        Values are largest at the last step of the first window, and the radius is that of this step.

        Examples
        --------
        >>> law = Semiorder(100.0, width=8)
        >>> law.radius(0.9), law.largest_radius(0.9)
        (1096, 1290)
        """
        return RoundedGammaMoments(largest_shares(self.width, self.columns), self.prepared.value).radius(
            probability
        )


def _depth(word: int) -> tuple[int, int]:
    """−ln u of a gap and its error, in units: `kernels.add_depths` for one word."""
    leading = word >> 1
    depth = int(-log((leading or 1) * 2.0**-63) * kernels.UNITS)
    if leading >= kernels.LEAST_FINE:
        return depth, kernels.FINE
    return depth, kernels.COARSE if leading >= kernels.LEAST_COARSE else kernels.UNKNOWN


def _rounded(units: int, error: int, scale: float) -> int:
    """`kernels.rounded` for a call from Python; −1 where it is undecided."""
    depth = units * (1.0 / kernels.UNITS) * scale
    slack = error * (1.0 / kernels.UNITS) * scale + depth * 2.0**-50 + 2.0**-50
    raised = depth + 0.5
    if error >= kernels.UNKNOWN or raised >= 2.0**50:
        return -1
    value = int(raised)
    rest = raised - value
    return value if (rest > slack or value < 1) and rest < 1.0 - slack else -1


def _prepend(leading: int, further: Iterator[int]) -> Iterator[int]:
    yield leading
    yield from further


def _uniform(word: int, known: Sequence[int], further: Iterator[int]) -> UniformReal:
    """The uniform number of a gap: 63 bits of its word, then whole words."""
    leading, bits = word >> 1, WORD_BITS - 1
    for more in known:
        leading, bits = (leading << WORD_BITS) | more, bits + WORD_BITS
    return UniformReal(leading, bits, further)


def _split(uniform: UniformReal) -> list[int]:
    """The whole words that a uniform number has learned."""
    count = (uniform.bits - WORD_BITS + 1) // WORD_BITS
    mask = (1 << WORD_BITS) - 1
    return [uniform.leading >> (WORD_BITS * i) & mask for i in reversed(range(count))]
