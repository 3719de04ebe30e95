"""Compiled sweeps over the hiding intervals of specifications, one specification after another.

Arrays over time begin at step `low`. Every sweep costs steps + interval lengths for each specification, never steps ×
secrets. All numbers are whole: heights in multiples of one over the policy's resolution, losses in height × units.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.compiled import kernel

NONE = np.int64(2**62)  # no limit at this step


class Intervals(NamedTuple):
    """Hiding intervals, specification by specification; handed over as a plain tuple."""

    starts: Any  # where those of each specification begin
    firsts: Any  # the steps of each
    lasts: Any
    heights: Any  # its event
    durations: Any
    limits: Any  # what its placements may lose
    caps: Any  # or each of their steps; -1 where δ = 0


@kernel
def sensitivity(firsts: Any, lasts: Any, heights: Any, low: int, allowance: int, out: Any) -> None:
    """Δ_t of one specification: the sum of the heights that are relevant at each step."""
    out[:] = 0
    high = low + out.size - 1
    for i in range(firsts.size):
        if lasts[i] < low or firsts[i] > high:
            continue
        out[max(firsts[i], low) - low] += heights[i]
        if lasts[i] < high:
            out[lasts[i] + 1 - low] -= heights[i]
    total = np.int64(0)
    for t in range(out.size):
        total += out[t]
        out[t] = total + allowance if total > 0 else 0


@kernel
def paint_least(firsts: Any, lasts: Any, values: Any, order: Any, low: int, jump: Any, out: Any) -> None:
    """The least value of all intervals that cover each step: painted from the least, each step once."""
    size = out.size
    for t in range(size):
        out[t] = NONE
        jump[t] = t
    jump[size] = size
    for k in range(order.size):
        i = order[k]
        t = max(firsts[i] - low, 0)
        end = min(lasts[i] - low, size - 1)
        while t <= end:
            # follow the jumps to the first step that has no paint yet, and shorten the way for the next
            free = t
            while jump[free] != free:
                jump[free] = jump[jump[free]]
                free = jump[free]
            if free > end:
                jump[t] = free
                break
            out[free] = values[i]
            jump[free] = free + 1
            t = free + 1


@kernel
def least_units(
    intervals: Any, values: Any, order: Any, low: int, allowance: int, divided: bool, out: Any
) -> None:
    """For each step the least over specifications of (least value) // Δ_t, or of the least value if not `divided`."""
    starts, firsts, lasts, heights, _, _, _ = Intervals(*intervals)
    size = out.size
    delta = np.zeros(size, dtype=np.int64)
    least = np.zeros(size, dtype=np.int64)
    jump = np.zeros(size + 1, dtype=np.int64)
    for spec in range(starts.size - 1):
        a, b = starts[spec], starts[spec + 1]
        paint_least(firsts[a:b], lasts[a:b], values[a:b], order[a:b], low, jump, least)
        if divided:
            sensitivity(firsts[a:b], lasts[a:b], heights[a:b], low, allowance, delta)
        for t in range(size):
            if least[t] < NONE:
                share = least[t] // delta[t] if divided else least[t]
                out[t] = min(out[t], share)


@kernel
def printed_units(
    intervals: Any, longest_first: Any, strictest_first: Any, low: int, allowance: int, out: Any
) -> None:
    """The closed form of Theorem 8: the longest event and the strictest limit of all that are relevant."""
    starts, firsts, lasts, heights, durations, limits, _ = Intervals(*intervals)
    size = out.size
    delta = np.zeros(size, dtype=np.int64)
    longest = np.zeros(size, dtype=np.int64)
    strictest = np.zeros(size, dtype=np.int64)
    jump = np.zeros(size + 1, dtype=np.int64)
    for spec in range(starts.size - 1):
        a, b = starts[spec], starts[spec + 1]
        paint_least(firsts[a:b], lasts[a:b], durations[a:b], longest_first[a:b], low, jump, longest)
        paint_least(firsts[a:b], lasts[a:b], limits[a:b], strictest_first[a:b], low, jump, strictest)
        sensitivity(firsts[a:b], lasts[a:b], heights[a:b], low, allowance, delta)
        for t in range(size):
            if longest[t] < NONE:
                out[t] = min(out[t], strictest[t] // longest[t] // delta[t])


@kernel
def joint_amounts(firsts: Any, lasts: Any, heights: Any, durations: Any, by_first: Any, out: Any) -> None:
    """A_s = Σ_s' p_s'·min(T_s', |J_s ∩ J_s'|) for the intervals of one specification; `by_first` sorts them."""
    for k in range(by_first.size):
        i = by_first[k]
        out[i] += heights[i] * min(durations[i], lasts[i] - firsts[i] + 1)
        for m in range(k + 1, by_first.size):
            j = by_first[m]
            if firsts[j] > lasts[i]:
                break
            common = min(lasts[i], lasts[j]) - firsts[j] + 1
            out[i] += heights[j] * min(durations[j], common)
            out[j] += heights[i] * min(durations[i], common)


@kernel
def check_promises(intervals: Any, low: int, begin: int, allowance: int, units: Any, worst: Any) -> int:
    """Check every placement that ends at a step from `begin` on: -1, or the first step that breaks a promise.

    `units` are the charges of the steps from `low` on. A placement is fine when its losses add up to no more
    than the secret's limit, or when none of them is above the secret's cap.
    `worst` receives the fullest placement: its share of the limit times 2^40 rounded up, its last step and the
    position of its interval.
    """
    starts, firsts, lasts, heights, durations, limits, caps = Intervals(*intervals)
    size = units.size
    high = low + size - 1
    delta = np.zeros(size, dtype=np.int64)
    sums = np.zeros(size + 1, dtype=np.int64)
    broken = high + 1
    for spec in range(starts.size - 1):
        a, b = starts[spec], starts[spec + 1]
        sensitivity(firsts[a:b], lasts[a:b], heights[a:b], low, allowance, delta)
        ceiling = np.int64(0)
        for i in range(a, b):
            ceiling = max(ceiling, limits[i], caps[i])
        for t in range(size):
            loss = np.int64(0)
            if delta[t] > 0 and units[t] > 0:
                if units[t] > ceiling // delta[t]:  # more than any of its secrets allows in any way
                    if low + t >= begin:
                        broken = min(broken, low + t)
                    loss = ceiling
                else:
                    loss = units[t] * delta[t]
            sums[t + 1] = sums[t] + loss
        for i in range(a, b):
            end = min(lasts[i], high)
            step = max(firsts[i], begin)
            above = low - 1  # the last step, inside the interval, whose loss is above the cap
            if caps[i] >= 0:
                for t in range(max(firsts[i], step - durations[i] + 1, low), step):
                    if sums[t - low + 1] - sums[t - low] > caps[i]:
                        above = t
            while step <= end:
                loss = sums[step - low + 1] - sums[step - low]
                if caps[i] >= 0 and loss > caps[i]:
                    above = step
                first = max(firsts[i], step - durations[i] + 1, low)
                total = sums[step - low + 1] - sums[first - low]
                capped = caps[i] >= 0 and above < first
                if total > limits[i] and not capped:
                    broken = min(broken, step)
                    break
                share = total / limits[i]
                if capped:
                    share = min(share, 1.0)
                if share * 1099511627776.0 > worst[0]:
                    worst[0] = np.int64(np.ceil(share * 1099511627776.0))
                    worst[1] = step
                    worst[2] = i
                step += 1
    return broken if broken <= high else -1
