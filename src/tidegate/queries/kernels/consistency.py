"""Exact weighted least squares on a forest: parents equal the sum of their children, and nothing is negative.

Minimise Σ_v w_v·(x_v − y_v)² over leaves x ≥ 0, with x_v the sum of the leaves below v. Let s_v(λ) be the
total of v's subtree that minimises its cost minus λ·total. For a leaf it is max(0, y + λ/2w): a line with
one kink. For a node, children share one multiplier μ, S(μ) = Σ s_child(μ), and λ = μ + 2·w_v·(S(μ) − y_v),
which again is piecewise linear with the same kinks. Going up, kinks of the children are merged; going down
from λ = 0 at the roots, each node finds its μ on one line segment. O(leaves · height) a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel


@kernel
def _merge(kinks: Any, slopes: Any, begin: int, middle: int, end: int, spare: Any, spare_slopes: Any) -> None:
    """Merge two neighbouring sorted runs of kinks."""
    left, right = begin, middle
    for at in range(end - begin):
        if right >= end or (left < middle and kinks[left] <= kinks[right]):
            spare[at], spare_slopes[at] = kinks[left], slopes[left]
            left += 1
        else:
            spare[at], spare_slopes[at] = kinks[right], slopes[right]
            right += 1
    kinks[begin:end] = spare[: end - begin]
    slopes[begin:end] = spare_slopes[: end - begin]


@kernel
def _solve(
    kinks: Any, slopes: Any, begin: int, end: int, weight: float, value: float, target: float
) -> float:
    """The multiplier μ of the children at which μ + 2·weight·(S(μ) − value) is the target."""
    slope = 0.0
    total = 0.0
    kink = kinks[begin]
    for at in range(begin, end):
        total += slope * (kinks[at] - kink)
        kink = kinks[at]
        if kink + 2.0 * weight * (total - value) >= target:
            break  # on the segment that ends here, S = total − slope·(kink − μ)
        slope += slopes[at]
    found: float = kink + (target - kink - 2.0 * weight * (total - value)) / (1.0 + 2.0 * weight * slope)
    return found


@kernel
def consistent(
    values: Any,
    weights: Any,
    order: Any,
    parents: Any,
    children_end: Any,
    is_leaf: Any,
    begins: Any,
    ends: Any,
    out: Any,
) -> None:
    """Solve every step. `order` lists nodes children before parents; leaves below a node are begins to ends.

    `children_end[node]` is where the kinks merged so far end, reset here for every step.
    """
    leaves = ends.max()
    kinks = np.empty(leaves)
    slopes = np.empty(leaves)
    kept = np.empty((values.shape[1], leaves))  # the kinks of each node in its children's multiplier
    kept_slopes = np.empty((values.shape[1], leaves))
    spare = np.empty(leaves)
    spare_slopes = np.empty(leaves)
    multipliers = np.empty(values.shape[1])
    for step in range(values.shape[0]):
        children_end[:] = begins
        for at in range(order.size):
            node = order[at]
            begin, end = begins[node], ends[node]
            weight, value = weights[step, node], values[step, node]
            if is_leaf[node]:
                kinks[begin] = -2.0 * weight * value
                slopes[begin] = 0.5 / weight
            else:
                kept[node, begin:end] = kinks[begin:end]
                kept_slopes[node, begin:end] = slopes[begin:end]
                # from the children's multiplier μ to this node's λ
                slope = 0.0
                total = 0.0
                before = 0.0
                shown = 0.0
                for kink in range(begin, end):
                    if kink > begin:
                        total += slope * (kinks[kink] - before)
                    before = kinks[kink]
                    old = slope / (1.0 + 2.0 * weight * slope)
                    slope += slopes[kink]
                    shown = before + 2.0 * weight * (total - value)
                    kinks[kink] = shown
                    slopes[kink] = slope / (1.0 + 2.0 * weight * slope) - old
            parent = parents[node]
            if parent >= 0:
                if children_end[parent] > begins[parent]:
                    _merge(kinks, slopes, begins[parent], begin, end, spare, spare_slopes)
                children_end[parent] = end
        for at in range(order.size - 1, -1, -1):
            node = order[at]
            parent = parents[node]
            target = 0.0 if parent < 0 else multipliers[parent]
            if is_leaf[node]:
                weight = weights[step, node]
                out[step, node] = max(0.0, values[step, node] + 0.5 * target / weight)
            else:
                multipliers[node] = _solve(
                    kept[node],
                    kept_slopes[node],
                    begins[node],
                    ends[node],
                    weights[step, node],
                    values[step, node],
                    target,
                )
                out[step, node] = 0.0
        for at in range(order.size):
            node = order[at]
            if parents[node] >= 0:
                out[step, parents[node]] += out[step, node]


@kernel
def precisions(groups: Any, weights: Any, last: Any, sizes: Any, out: Any) -> None:
    """How precise a smoothed node is: Σ weight² over the steps of its group so far; 0 where it was pruned."""
    for step in range(groups.shape[0]):
        for node in range(groups.shape[1]):
            group = groups[step, node]
            if group == 0:
                out[step, node] = 0.0
                continue
            if group != last[node]:
                last[node] = group
                sizes[node] = 0.0
            weight = np.float64(weights[step, node])
            sizes[node] += weight * weight
            out[step, node] = sizes[node]
