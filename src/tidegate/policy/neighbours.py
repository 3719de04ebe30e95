"""Neighbouring streams: the distance of two streams under a policy, and neighbours for tests and audits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidInput
from tidegate.exact import show

if TYPE_CHECKING:
    from tidegate.policy.swellfish import Swellfish
    from tidegate.policy.units import Policy

Matrix = npt.NDArray[np.int64]


def windows_needed(demand: Sequence[int], window: int | None) -> int:
    """The fewest windows, each adding 1 to `window` consecutive steps, that cover a demand per step.

    Greedy from the left is optimal: the first uncovered step must be covered, and a window that starts at it
    reaches furthest.

    Examples
    --------
    >>> windows_needed([1, 0, 1, 0, 0, 1], window=3)
    2
    >>> windows_needed([1, 2, 0], window=None)
    2
    """
    if window is None:
        return max(demand, default=0)
    opened: list[
        tuple[int, int]
    ] = []  # (first step, how many windows start there), the last `window` steps only
    covering = total = 0
    for step, needed in enumerate(demand):
        while opened and opened[0][0] <= step - window:
            covering -= opened.pop(0)[1]
        if needed > covering:
            opened.append((step, needed - covering))
            total += needed - covering
            covering = needed
    return total


def distance(policy: Policy, one: Matrix, other: Matrix) -> int:
    """How many neighbours apart two streams are (0: equal, 1: neighbours).

    For fixed units that are replaced the number is an upper bound when it is above 1.
    """
    difference = _difference(one, other)
    change = Fraction(policy.max_change)
    replace = policy.doubles(difference.shape[1])
    gains = np.maximum(difference, 0)
    losses = np.maximum(-difference, 0)
    if policy.mobility == "moving":
        worst = np.abs(difference).sum(axis=1)
        if (
            replace and policy.signed
        ):  # any change of at most 2Δ is −c + c' with two contributions of at most Δ
            return windows_needed(_units(worst, 2 * change), policy.window)
        if replace:
            worst = np.maximum(gains.sum(axis=1), losses.sum(axis=1))
        return windows_needed(_units(worst, change), policy.window)
    columns = [windows_needed(_units(column, change), policy.window) for column in np.abs(difference).T]
    total = sum(columns)
    if replace and policy.signed and 1 < total <= 2:
        touched = np.abs(difference[:, difference.any(axis=0)])
        within = change if touched.shape[1] > 1 else 2 * change  # two columns, or both contributions in one
        if touched.shape[1] <= 2 and windows_needed(_units(touched.max(axis=1), within), policy.window) == 1:
            return 1
    elif replace and total == 2:
        together = np.maximum(gains.max(axis=1), losses.max(axis=1))
        pairs = (gains.any(axis=0).sum(), losses.any(axis=0).sum())
        if max(pairs) <= 1 and windows_needed(_units(together, change), policy.window) == 1:
            return 1
    return total


def neighbour(policy: Policy, stream: Matrix, first: int, change: Matrix) -> Matrix:
    """Add a change to a stream from row `first` on; refused when the result is not a neighbour."""
    changed: Matrix = np.array(stream, dtype=np.int64, copy=True)
    if changed.ndim == 1:
        changed = changed[:, np.newaxis]
    rows = np.asarray(change, dtype=np.int64).reshape(-1, changed.shape[1])
    if first < 0 or first + len(rows) > len(changed):
        raise InvalidInput(
            f"the change covers rows {first} to {first + len(rows) - 1} but the stream has {len(changed)} rows; "
            "move it inside the stream."
        )
    changed[first : first + len(rows)] += rows
    apart = policy.distance(changed, np.asarray(stream).reshape(changed.shape))
    if apart > 1:
        raise InvalidInput(
            f"the change makes streams that are {apart} neighbours apart under {policy.name}; "
            "change fewer steps, or each of them by less."
        )
    return changed


def extreme_neighbour(policy: Policy, stream: Matrix, choose: Callable[[int], int]) -> Matrix:
    """Change every step of one window by as much as the policy allows, each in a column of choice."""
    changed = np.asarray(stream, dtype=np.int64).reshape(len(stream), -1)
    steps, columns = changed.shape
    length = min(steps, policy.window or steps)
    first = choose(steps - length + 1)
    amount = int(Fraction(policy.max_change))  # the largest whole change
    if not amount:
        raise _too_small(policy)
    rows = np.zeros((length, columns), dtype=np.int64)
    gain, loss, sign = choose(columns), choose(columns), 1 - 2 * choose(2)
    for row in rows:
        if policy.mobility == "moving":
            gain, loss, sign = choose(columns), choose(columns), 1 - 2 * choose(2)
        row[gain] += sign * amount
        if policy.adjacency == "replace" and loss != gain:
            row[loss] -= sign * amount
        elif policy.doubles(columns) and policy.signed:
            row[gain] += sign * amount
    return neighbour(policy, changed, first, rows)


def swellfish_distance(policy: Swellfish, one: Matrix, other: Matrix) -> int:
    """0 or 1 under the windowed promise of Swellfish; pairs that are no neighbours have no distance."""
    difference = np.abs(_difference(one, other)).sum(axis=1)
    touched = np.flatnonzero(difference) + 1  # steps are numbered from 1
    if not len(touched):
        return 0
    first, last = int(touched[0]), int(touched[-1])
    doubled = 2 if policy.doubles(np.shape(one)[1] if np.ndim(one) > 1 else 1) else 1
    sensitivities = policy.temporal_sensitivity(first, last)
    for specification, sums in zip(policy.specifications, sensitivities, strict=True):
        rows, owners = specification.occurrences(policy.clock, first, last)
        durations = np.array([secret.duration for secret in specification.secrets])[owners]
        holds = (rows[:, 0] <= first) & (rows[:, 1] >= last) & (durations >= last - first + 1)
        changes = difference[first - 1 : last].tolist()
        if holds.any() and all(c <= doubled * s for c, s in zip(changes, sums, strict=True)):
            return 1
    raise InvalidInput(
        f"the streams differ from step {first} to step {last} by more than one event of any specification; "
        "change fewer steps, or each of them by less."
    )


def swellfish_neighbour(policy: Swellfish, stream: Matrix, choose: Callable[[int], int]) -> Matrix:
    """Change every step of one placement of one event by as much as its specification allows."""
    changed = np.array(stream, dtype=np.int64, copy=True).reshape(len(stream), -1)
    chosen = choose(len(policy.specifications))
    specification = policy.specifications[chosen]
    rows, owners = specification.occurrences(policy.clock, 1, len(changed))
    if not len(rows):
        return changed
    at = choose(len(rows))
    first, last = max(1, int(rows[at, 0])), min(len(changed), int(rows[at, 1]))
    length = min(last - first + 1, specification.secrets[int(owners[at])].duration)
    first += choose(last - first + 1 - length + 1)
    sums = policy.temporal_sensitivity(first, first + length - 1)[chosen]
    if max(sums) < 1:
        raise _too_small(policy)
    for step, amount in zip(range(first, first + length), sums, strict=True):
        changed[step - 1, choose(changed.shape[1])] += (1 - 2 * choose(2)) * int(amount)
    return changed


def _too_small(policy: Policy) -> InvalidInput:
    return InvalidInput(
        f"a unit changes a step by at most {show(Fraction(policy.max_change))} under {policy.name}, so streams of whole "
        "numbers have no extreme neighbour; count in units of the grid, with max_change divided by it."
    )


def _difference(one: Matrix, other: Matrix) -> Matrix:
    left, right = np.asarray(one, dtype=np.int64), np.asarray(other, dtype=np.int64)
    if left.shape != right.shape:
        raise InvalidInput(
            f"streams of shapes {left.shape} and {right.shape} have no distance; give two of the same shape."
        )
    return (left - right).reshape(len(left), -1)


def _units(amounts: npt.NDArray[np.int64], change: Fraction) -> list[int]:
    return [-(-int(amount) * change.denominator // change.numerator) for amount in amounts]
