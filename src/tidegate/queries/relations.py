"""Numbers that do not contradict each other: signs, orders and sums that the configuration implies, restored for free.

Noise is drawn for each statistic by itself, so that released numbers may say what cannot be: fewer orders than customers,
−46 rides. Where the configuration implies a relation between the bounded values, the nearest numbers that keep it are at
most as far from the bounded values as the released ones are, all in all. That is post-processing: it costs nothing.

The released numbers stay what they are. Sums, windows and intervals are made from them: a number that was lifted to 0 is
too large on average, and a sum of many such numbers would be far too large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
MOST_ROUNDS = 2_000  # of projections; a few are enough where relations do not overlap
CLOSE = 1e-9  # relative to the numbers: what is left of a contradiction when the rounds end
SUREST = 1e-12  # the least half width, as a part of the largest one of a step
DECIMALS = (
    2  # of adjusted numbers, rounded down: what holds for sums and orders holds for the rounded ones as well
)


@dataclass(frozen=True)
class Relation:
    """The sum of some numbers of a step is at most another one.

    Parameters
    ----------
    lower
        Positions of the numbers that are added.
    upper
        The position of the one that they do not exceed.
    words
        What it says, for people.
    """

    lower: tuple[int, ...]
    upper: int
    words: str = ""


def adjusted(
    values: Values,
    relations: Sequence[Relation],
    nonnegative: Sequence[bool] | npt.NDArray[np.bool_],
    halves: Values | None = None,
) -> Values:
    """The nearest numbers that keep all relations and signs, step by step; where nothing is broken, the same ones.

    Parameters
    ----------
    values
        Released numbers, steps × numbers; NaN where there is none. A relation with an unknown number says nothing.
    relations, nonnegative
        What holds for the bounded values: orders and sums, and which numbers cannot be below 0.
    halves
        Half the widths of their intervals: the less sure a number is, the more of the difference it takes.

    Examples
    --------
    >>> orders_and_customers = np.array([[10.0, 14.0], [30.0, 20.0], [-4.0, 1.0]])
    >>> adjusted(orders_and_customers, [Relation((1,), 0)], [True, True]).tolist()
    [[12.0, 12.0], [30.0, 20.0], [0.0, 0.0]]
    >>> adjusted(orders_and_customers[:1], [Relation((1,), 0)], [True, True], np.array([[3.0, 1.0]])).tolist()
    [[13.6, 13.6]]
    """
    found = np.array(values, dtype=np.float64)
    known = np.isfinite(found)
    signs = np.asarray(nonnegative, dtype=bool)
    broken = (known & signs & (found < 0)).any(axis=1)
    for relation in relations:
        broken |= _excess(found, relation) > 0
    rows = np.flatnonzero(broken)
    if len(rows):
        variances = np.ones(found.shape) if halves is None else _variances(halves)
        found[rows] = _project(found[rows], variances[rows], relations, signs)
    return found


def _excess(values: Values, relation: Relation) -> Values:
    """By how much a relation is broken; 0 where it holds or a number is unknown."""
    over: Values = values[:, list(relation.lower)].sum(axis=1) - values[:, relation.upper]
    return np.where(over > 0, over, 0.0)  # of NaN as well


def _variances(halves: Values) -> Values:
    """Squared half widths; a number without an interval is as sure as the least sure one of its step."""
    known = np.isfinite(halves)
    largest = np.where(known, halves, 0.0).max(axis=1, keepdims=True, initial=0.0)
    largest = np.where(largest > 0, largest, 1.0)
    # statistics of one step may differ by many orders of magnitude: only what is next to nothing is lifted
    return np.square(np.maximum(np.where(known, halves, largest), SUREST * largest))


def _project(values: Values, variances: Values, relations: Sequence[Relation], signs: Values) -> Values:
    """The weighted least squares projection onto all of them at once, without the last crumbs."""
    missing = ~np.isfinite(values)
    point = np.where(missing, 0.0, values)
    usable: list[npt.NDArray[np.bool_]] = [
        ~missing[:, [*relation.lower, relation.upper]].any(axis=1).reshape(-1) for relation in relations
    ]
    multipliers, lifted = np.zeros((len(relations), len(values))), np.zeros_like(point)
    live = np.arange(len(values))
    for _ in range(MOST_ROUNDS):
        before = point[live]
        now, of, more = before.copy(), variances[live], multipliers[:, live]
        for number, relation in enumerate(relations):
            lower, upper = list(relation.lower), relation.upper
            steep = of[:, lower].sum(axis=1) + of[:, upper]
            over = now[:, lower].sum(axis=1) - now[:, upper]
            fresh = np.where(usable[number][live], np.maximum(more[number] + over / steep, 0.0), 0.0)
            move = fresh - more[number]
            now[:, lower] -= move[:, np.newaxis] * of[:, lower]
            now[:, upper] += move * of[:, upper]
            more[number] = fresh
        wanted = now - lifted[live]  # of Dykstra's method: what the last round has lifted is lifted again
        now = np.where(signs, np.maximum(wanted, 0.0), wanted)
        point[live], multipliers[:, live], lifted[live] = now, more, now - wanted
        moved = np.abs(now - before).max(axis=1, initial=0.0)
        live = live[moved > CLOSE * np.abs(now).max(axis=1, initial=1.0)]
        if not len(live):
            break
    return np.where(missing, np.nan, _exactly(point, relations, usable, signs))


def _exactly(
    point: Values, relations: Sequence[Relation], usable: Sequence[npt.NDArray[np.bool_]], signs: Values
) -> Values:
    """Whole hundredths, rounded down; crumbs that are left are taken from the largest lower number."""
    unit = 10.0**DECIMALS
    # a number that is one up to an error of rounding is that number, and not one less
    found = np.floor(point * unit + math.sqrt(CLOSE))
    found = np.where(signs, np.maximum(found, 0.0), found)
    for _ in range(len(relations)):  # what is taken from one may be the upper end of another
        for relation, use in zip(relations, usable, strict=True):
            lower = list(relation.lower)
            over = np.where(use, found[:, lower].sum(axis=1) - found[:, relation.upper], 0.0)
            for row in np.flatnonzero(over > 0):
                _take(found[row], lower, over[row])
    return found / unit


def _take(row: Values, lower: Sequence[int], over: float) -> None:
    """Take so much from some numbers of a step, from the largest first; none becomes negative by it."""
    for place in sorted(lower, key=lambda place: -row[place]):
        part = min(over, max(row[place], 0.0)) if len(lower) > 1 else over
        row[place] -= part
        over -= part
