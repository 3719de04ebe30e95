"""Compiled draws of noise shared by steps: decided with certainty, or handed back.

Choices and uniform integers are decided in integers; logarithms in floating point with the bounds that are
derived in docs/proofs/noise_laplace.md and noise_semiorder.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.compiled import kernel, lean
from tidegate.noise.kernels import REJECTED, SURELY_KEPT, UNDECIDED, Array, Int64, Word, log, magnitude_of

_UNIT_63 = 2.0**-63

# −ln u is kept as an integer number of units.
UNITS = 2.0**49
# Errors in units: 2^-46 for u ≥ 2^-14; 2^-42 for u ≥ 2^-20; below that the reference decides.
FINE, COARSE, UNKNOWN = 8, 128, 1 << 40
LEAST_FINE = 1 << 49
LEAST_COARSE = 1 << 43


@lean
def _high_product(first: Word, second: Word) -> Word:
    """The upper 64 bits of the product of two uint64, from products of their halves: for vector instructions."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    cross = (first >> half) * (second & low)
    # Each summand is below 2^32 or the product of two such numbers: no carry is lost.
    middle = ((first & low) * (second & low) >> half) + (cross & low) + (first & low) * (second >> half)
    return (first >> half) * (second >> half) + (cross >> half) + (middle >> half)


@lean
def below_count(word: Word, count: Word) -> Int64:
    """A uniform integer in {0, …, count − 1}, count < 2^63 (uint64), or REJECTED."""
    low = word * count
    if low < count and low < (np.uint64(0) - count) % count:
        return REJECTED
    return np.int64(_high_product(word, count))


@lean
def fill_intervals(words: Array, radii: Array, ends: Array, out: Array) -> int:
    """One attempt each at uniform integers in {−radius, …, radius}; returns how many are REJECTED.

    The elements of out are (step, copy); those of the steps ends[g − 1], …, ends[g] − 1 have the radii of row g.
    """
    groups, copies = radii.shape
    start = 0
    for group in range(groups):
        for step in range(start, ends[group]):
            for copy in range(copies):
                out[step * copies + copy] = radii[group, copy]
        start = ends[group]
    # Almost never is there a doubt; the loop that looks for it is short enough for vector instructions.
    doubtful = 0
    for i in range(out.size):
        count = np.uint64(2 * out[i] + 1)
        doubtful += words[i] * count < count
    left = 0
    if doubtful:
        for i in range(out.size):
            if below_count(words[i], np.uint64(2 * out[i] + 1)) == REJECTED:
                out[i] = REJECTED
                left += 1
    for i in range(out.size):
        radius = out[i]
        found = np.int64(_high_product(words[i], np.uint64(2 * radius + 1)))
        turned = found + 1 if found < radius else found - 2 * radius
        out[i] = turned if radius >= 0 else REJECTED
    return left


@lean
def fill_balls(words: Array, radii: Array, places: Array, negative: Array, out: Array) -> int:
    """One attempt for each row at a uniform point of the L1 ball; returns how many rows are REJECTED.

    `places` and `negative` are room for a number and a truth value of each column.
    """
    rows, d = out.shape
    left = 0
    for row in range(rows):
        count = np.uint64(2 * (radii[row] + d))
        kept = True
        for c in range(d):
            found = below_count(words[row, c], count)
            kept = kept and found != REJECTED
            negative[c] = found & 1 == 0
            place = (found >> 1) + c + 1
            if place >= radii[row] + d:
                place -= radii[row] + d
            at = c
            while at > 0 and places[at - 1] > place:
                places[at] = places[at - 1]
                at -= 1
            places[at] = place
        before = np.int64(-1)
        for c in range(d):
            gap = places[c] - before - 1
            kept = kept and gap >= 0 and (gap != 0 or not negative[c])
            out[row, c] = -gap if negative[c] else gap
            before = places[c]
        if not kept:
            out[row, 0] = REJECTED
            left += 1
    return left


@lean
def fill_radii(words: Array, boundaries: Array, part: float, shift: Int64, unsure: Array, out: Array) -> int:
    """Radii as sums of a remainder and geometric variables; returns how many are UNDECIDED.

    The words are (leading words of a variable, variables, radii). The first variable is the remainder, the
    others are geometric of scale part · 2^shift, with two leading words if shift > 0. `unsure` is room for a number of
    each radius.
    """
    _, rows, size = words.shape
    for i in range(size):
        unsure[i] = 0
        out[i] = 0
    for at in range(boundaries.size):
        boundary = boundaries[at]
        for i in range(size):
            out[i] += words[0, 0, i] >= boundary
            # A word below the boundary wraps to a large difference.
            unsure[i] |= words[0, 0, i] - boundary <= np.uint64(1)
    if shift == 0:
        for row in range(1, rows):
            for i in range(size):
                value = magnitude_of(np.int64(words[0, row, i] >> np.uint64(1)), part, _UNIT_63)
                unsure[i] |= value < 0
                out[i] += value if value >= 0 else 0
    else:
        mask = (np.int64(1) << shift) - 1
        for row in range(1, rows):
            for i in range(size):
                value = magnitude_of(np.int64(words[0, row, i] >> np.uint64(1)), part, _UNIT_63)
                second = words[1, row, i]
                kept = np.int64(second >> np.uint64(40)) < SURELY_KEPT
                unsure[i] |= (value < 0) | (not kept)
                out[i] += (value << shift) + (np.int64(second) & mask) if value >= 0 else 0
    undecided = 0
    for i in range(size):
        if unsure[i]:
            out[i] = UNDECIDED
            undecided += 1
    return undecided


@kernel
def sum_successors(successors: Array, vector: Array, out: Array) -> None:
    """The sum of a vector over the successors of every state; a choice that does not exist leads to a zero."""
    for state in range(successors.shape[0]):
        total = 0.0
        for i in range(successors.shape[1]):
            total += vector[successors[state, i]]
        out[state] = total


@kernel
def sum_limbs(successors: Array, limbs: Array, factor: Word, stay: Word, out: Array) -> Word:
    """factor · A·v + stay · v in 32-bit limbs, the lowest first, (states + 1, limbs); returns the largest last limb.

    Limbs are below 2^32, factor · successors + stay below 2^31; the last limb of the result may exceed 2^32.
    The row after the last state is zero.
    """
    count = limbs.shape[1]
    largest = np.uint64(0)
    total = np.empty(count, dtype=np.uint64)
    for state in range(successors.shape[0]):
        total[:] = 0
        for choice in range(successors.shape[1]):
            other = successors[state, choice]
            for i in range(count):
                total[i] += limbs[other, i]
        carry = np.uint64(0)
        for i in range(count - 1):
            number = total[i] * factor + limbs[state, i] * stay + carry
            carry = number >> np.uint64(32)
            out[state, i] = number & np.uint64(0xFFFFFFFF)
        last = total[count - 1] * factor + limbs[state, count - 1] * stay + carry
        out[state, count - 1] = last
        largest = max(largest, last)
    out[successors.shape[0]] = 0
    return largest


@kernel
def halve_limbs(limbs: Array, shift: Word) -> None:
    """v // 2^shift for 0 < shift < 32, in place."""
    count = limbs.shape[1]
    for state in range(limbs.shape[0]):
        for i in range(count - 1):
            low = limbs[state, i] >> shift
            limbs[state, i] = low | ((limbs[state, i + 1] << (np.uint64(32) - shift)) & np.uint64(0xFFFFFFFF))
        limbs[state, count - 1] >>= shift


@kernel
def add_depths(words: Array, units: Array, errors: Array) -> None:
    """Running sums of −ln u in units, for the numbers u that start with the leading 63 bits of some words.

    units[i] and errors[i] belong to the first i words. Sums of units may wrap around, their differences do not;
    a difference of errors of UNKNOWN or more says that the reference must decide.
    """
    units[0] = 0
    errors[0] = 0
    # Two loops, because only the first can use vector instructions.
    for i in range(words.size):
        leading = np.int64(words[i] >> np.uint64(1))
        units[i + 1] = np.uint64(-log((leading if leading > 0 else 1) * _UNIT_63) * UNITS)
        errors[i + 1] = FINE if leading >= LEAST_FINE else (COARSE if leading >= LEAST_COARSE else UNKNOWN)
    for i in range(words.size):
        units[i + 1] += units[i]
        errors[i + 1] += errors[i]


@kernel
def rounded(units: Word, error: Int64, scale: float) -> Int64:
    """⌊½ + scale · depth⌋ for a depth that is known in units with an error, or UNDECIDED."""
    depth = np.float64(units) * (1.0 / UNITS) * scale
    slack = np.float64(error) * (1.0 / UNITS) * scale + depth * 2.0**-50 + 2.0**-50
    raised = depth + 0.5
    value = np.floor(raised)
    rest = raised - value
    sure = (error < UNKNOWN) & ((rest > slack) | (value < 1.0)) & (rest < 1.0 - slack) & (depth < 2.0**50)
    return np.int64(value) if sure else UNDECIDED


class Order(NamedTuple):
    """The states of an order of placements, and where they lead."""

    boundaries: Array  # integers that enclose the boundaries of each choice
    halves: Array  # their upper halves
    radix: Array  # what a choice adds to the number of a state
    done: Array  # the states after the oldest step is done


class Tracks(NamedTuple):
    """The state of each track, see `tidegate.noise.shared.semiorder.Track`; replaced by the new state."""

    nodes: Array
    ahead: Array
    counts: Array
    marks: Array
    gaps: Array


@kernel
def run_tracks(
    order: Any,
    scale: float,
    choices: Array,
    arrivals: Array,
    state: Any,
    used: Array,
    out: Array,
    open_values: Array,
) -> tuple[int, int]:
    """Release the next steps of some independent tracks; returns (open values, first track that stopped or −1).

    Parameters
    ----------
    order, state
        What :class:`Order` and :class:`Tracks` have, as plain tuples, which the cache of machine code can keep.
    scale
        Of the exponential gaps.
    choices, arrivals
        Words of the placements to come, one row a track.
    used
        How many placements each track has made; where one stopped at an open choice, its number there.
    out
        Values, (steps, tracks · columns); UNDECIDED where the reference must decide.
    open_values
        For each undecided value: step, track, column, first and last gap.
    """
    boundaries, halves, radix, done = Order(*order)
    nodes, ahead, counts, marks, gaps = Tracks(*state)
    tracks, recent, columns = marks.shape
    width = recent // 2 + 1
    steps = out.shape[0]
    offered = choices.shape[1]
    places = np.empty((steps + recent, columns), dtype=np.int64)
    words = np.empty(gaps.shape[1] + offered, dtype=np.uint64)
    units = np.empty(words.size + 1, dtype=np.uint64)
    errors = np.empty(words.size + 1, dtype=np.int64)
    found = 0
    for track in range(tracks):
        kept = counts[track]
        for i in range(kept):
            words[i] = gaps[track, i]
        for i in range(offered):
            words[kept + i] = arrivals[track, i]
        add_depths(words[: kept + offered], units, errors)
        places[:] = -1
        for i in range(recent):
            for column in range(columns):
                places[i, column] = marks[track, i, column]
        node = nodes[track]
        oldest = width - 1 + ahead[track]
        placed = kept
        before = np.int64(0)  # the last arrival of all steps that precede the present one by width or more
        for step in range(steps):
            row = width - 1 + step
            while oldest <= row:
                word = choices[track, placed - kept]
                # Upper halves first: a row of them is one line of the cache. A word below a boundary wraps to a
                # large difference.
                half: Word = np.uint32(word >> np.uint64(32))
                choice: Int64 = 0
                doubtful: Int64 = 0
                for i in range(width):
                    choice += half > halves[node, i]
                    doubtful += np.uint32(half - halves[node, i]) <= np.uint32(1)
                if doubtful:
                    choice = 0
                    doubtful = 0
                    for i in range(width):
                        choice += word >= boundaries[node, i]
                        doubtful += word - boundaries[node, i] <= np.uint64(1)
                    if doubtful:
                        used[track] = placed - kept
                        nodes[track] = node
                        return found, track
                placed += 1
                column = 0
                while places[oldest + choice, column] >= 0:
                    column += 1
                places[oldest + choice, column] = placed
                if choice == 0 and node % columns == columns - 1:
                    node = done[node // columns]
                else:
                    node += radix[choice]
                while oldest < places.shape[0] and places[oldest, columns - 1] >= 0:
                    oldest += 1
            if row >= width:
                before = max(before, places[row - width, columns - 1])
            start = before
            for column in range(columns):
                stop = places[row, column]
                value = rounded(units[stop] - units[start], errors[stop] - errors[start], scale)
                if value == UNDECIDED:
                    open_values[found, 0] = step
                    open_values[found, 1] = track
                    open_values[found, 2] = column
                    open_values[found, 3] = start
                    open_values[found, 4] = stop
                    found += 1
                    out[step, track * columns + column] = UNDECIDED
                else:
                    negative = -np.int64(words[stop - 1] & np.uint64(1))
                    out[step, track * columns + column] = (value ^ negative) - negative
                start = stop
        used[track] = placed - kept
        nodes[track] = node
        # What the next step needs: the marks from `width` − 1 steps before it on, counted from the last arrival
        # of all that precede it.
        if steps >= 1:
            before = max(before, places[steps - 1, columns - 1])
        ahead[track] = oldest - (width - 1 + steps)
        for i in range(recent):
            for column in range(columns):
                mark = places[steps + i, column]
                marks[track, i, column] = -1 if mark < 0 else max(mark - before, 0)
        counts[track] = placed - before
        for i in range(placed - before):
            gaps[track, i] = words[before + i]
    return found, -1


@kernel
def move(successors: Array, chances: Array, before: Array, after: Array) -> None:
    """One step of the chain of states: where the mass of each state goes."""
    for state in range(successors.shape[0]):
        for choice in range(successors.shape[1]):
            after[successors[state, choice]] += before[state] * chances[state, choice]


@kernel
def first_placements(
    successors: Array, chances: Array, counts: Array, columns: Int64, stationary: Array, found: Array
) -> None:
    """How much of the mass of steps that enter the window is first placed after 1, 2, … placements.

    The mass is kept by (offset of the step from the oldest one, state).
    """
    states, width = successors.shape
    mass = np.zeros((width, states))
    for state in range(states):
        if counts[0, state] == columns - 1:
            passed = 1
            while passed < width and counts[passed, state] == columns:
                passed += 1
            for offset in range(width - passed, width):
                mass[offset, successors[state, 0]] += stationary[state] * chances[state, 0]
    for placements in range(found.size):
        after = np.zeros((width, states))
        for state in range(states):
            passed = 0
            if counts[0, state] == columns - 1:
                passed = 1
                while passed < width and counts[passed, state] == columns:
                    passed += 1
            for offset in range(width):
                present = mass[offset, state]
                if present > 0.0:
                    for choice in range(width):
                        chance = chances[state, choice]
                        if chance > 0.0:
                            if choice == offset:
                                found[placements] += present * chance
                            else:
                                moved = offset - passed if choice == 0 else offset
                                after[moved, successors[state, choice]] += present * chance
        mass = after
