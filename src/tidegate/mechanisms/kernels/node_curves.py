"""Compiled least squares over the nodes of a hierarchy whose curves were drawn through samples at different times.

Minimise over the leaves' streams X ≥ 0 (steps × leaves) half the sum over nodes n of Σₜ (Xₙ(t) − yₙ(t))²/vₙ(t) +
fₙ·Σ_d p_d·(Xₙ(d) − cₙ(d))², with Xₙ the sum of the leaves below n and Xₙ(d) its sum over part d of a feature. Without
features every step is a problem of its own on the hierarchy's tree. A feature adds a price λₙ(d) to its steps, which
moves yₙ(t) by vₙ(t) times the prices of the parts that contain t; the steps are then solved for themselves again. At
the optimum Xₙ(d) = cₙ(d) + λₙ(d)/(fₙ·p_d): as many equations as there are sums, solved by Newton's method. Their
left side falls with the prices (it is the gradient of the concave dual), so that a halved step always gets nearer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel
from tidegate.mechanisms.kernels.features import solve_tree

ROUNDS = 60
HALVINGS = 30


@kernel
def fit_steps(curves: Any, variances: Any, above: Any, parents: Any, nonnegative: bool, out: Any) -> None:
    """Every step for itself: curves and variances (nodes × steps), leaves before inner nodes; out (steps × leaves)."""
    leaves, nodes, steps = above.size, parents.size, curves.shape[1]
    targets, widths, free = np.empty(leaves), np.empty(leaves), np.empty(leaves, dtype=np.bool_)
    wanted, precisions, room = np.empty(nodes), np.empty(nodes), np.empty((3, nodes))
    for step in range(steps):
        for leaf in range(leaves):
            targets[leaf], widths[leaf] = curves[leaf, step], variances[leaf, step]
        for node in range(nodes):
            wanted[node] = curves[leaves + node, step]
            precisions[node] = 1.0 / variances[leaves + node, step]
        solve_tree(targets, widths, above, parents, wanted, precisions, nonnegative, free, room, out[step])


@kernel
def _below(above: Any, parents: Any) -> Any:
    """Which leaves are below which nodes (nodes × leaves)."""
    leaves = above.size
    below = np.zeros((leaves + parents.size, leaves))
    for leaf in range(leaves):
        below[leaf, leaf] = 1.0
        inner = above[leaf]
        while inner >= 0:
            below[leaves + inner, leaf] = 1.0
            inner = parents[inner]
    return below


@kernel
def _misfit(
    prices: Any,
    curves: Any,
    variances: Any,
    above: Any,
    parents: Any,
    below: Any,
    sums: Any,
    stiffness: Any,
    part_of: Any,
    part_parents: Any,
    nonnegative: bool,
    moved: Any,
    out: Any,
    gap: Any,
) -> float:
    """The steps at given prices (parts × nodes), what is missing at each sum, and the dual's value, negated."""
    steps = curves.shape[1]
    for step in range(steps):
        moved[:, step] = curves[:, step]
        part = part_of[step]
        while part >= 0:
            moved[:, step] -= variances[:, step] * prices[part]
            part = part_parents[part]
    fit_steps(moved, variances, above, parents, nonnegative, out)
    value = 0.0
    gap[:] = 0.0
    for part in range(prices.shape[0]):
        for node in range(prices.shape[1]):
            price = prices[part, node]
            bought = price * stiffness[part, node]
            gap[part, node] = -sums[part, node] - bought
            value += price * sums[part, node] + 0.5 * price * bought
    for step in range(steps):
        found = below @ out[step]
        for node in range(found.size):
            off = found[node] - curves[node, step]
            value -= 0.5 * off * off / variances[node, step]
            part = part_of[step]
            while part >= 0:
                gap[part, node] += found[node]
                value -= prices[part, node] * found[node]
                part = part_parents[part]
    return value


@kernel
def _slopes(
    out: Any, variances: Any, below: Any, part_of: Any, part_parents: Any, stiffness: Any, nonnegative: bool
) -> Any:
    """How the gaps fall when prices rise (sums × sums): leaves at zero stay there."""
    nodes, leaves = below.shape
    parts, steps = stiffness.shape[0], out.shape[0]
    slopes = np.zeros((parts * nodes, parts * nodes))
    for part in range(parts):
        for node in range(nodes):
            slopes[part * nodes + node, part * nodes + node] = stiffness[part, node]
    for step in range(steps):
        free = below.copy()
        for leaf in range(leaves):
            if nonnegative and out[step, leaf] <= 0.0:
                free[:, leaf] = 0.0
        normal = np.zeros((leaves, leaves))
        for node in range(nodes):
            for one in range(leaves):
                if free[node, one] > 0.0:
                    for other in range(leaves):
                        normal[one, other] += free[node, other] / variances[node, step]
        for leaf in range(leaves):
            if normal[leaf, leaf] == 0.0:
                normal[leaf, leaf] = 1.0
        response = free @ np.linalg.solve(normal, np.ascontiguousarray(free.T))
        one_part = part_of[step]
        while one_part >= 0:
            other_part = part_of[step]
            while other_part >= 0:
                row, column = one_part * nodes, other_part * nodes
                slopes[row : row + nodes, column : column + nodes] += response
                other_part = part_parents[other_part]
            one_part = part_parents[one_part]
    return slopes


@kernel
def fit_nodes(
    curves: Any,
    variances: Any,
    above: Any,
    parents: Any,
    sums: Any,
    factors: Any,
    part_of: Any,
    part_parents: Any,
    part_precisions: Any,
    nonnegative: bool,
    tolerance: float,
    out: Any,
) -> None:
    """All steps together with the features: sums (parts × nodes), factors fₙ of the nodes; out (steps × leaves)."""
    parts, nodes = part_parents.size, curves.shape[0]
    if parts == 0:
        fit_steps(curves, variances, above, parents, nonnegative, out)
        return
    below = _below(above, parents)
    stiffness, measured = np.empty((parts, nodes)), sums.copy()
    for part in range(parts):
        for node in range(nodes):
            precision = factors[node] * part_precisions[part]
            # a part without steps has no say: whatever its price, its gap is nothing
            stiffness[part, node] = 1.0 / precision if precision > 0.0 else 1.0
            if precision == 0.0:
                measured[part, node] = 0.0
    prices, tried = np.zeros((parts, nodes)), np.zeros((parts, nodes))
    moved, gap = np.empty(curves.shape), np.empty((parts, nodes))
    value = _misfit(
        prices, curves, variances, above, parents, below, measured, stiffness, part_of, part_parents, nonnegative,
        moved, out, gap,
    )  # fmt: skip
    size = max(np.abs(curves).max(), np.abs(measured).max())
    for _ in range(ROUNDS):
        if np.abs(gap).max() <= tolerance * size:
            return
        slopes = _slopes(out, variances, below, part_of, part_parents, stiffness, nonnegative)
        step = np.linalg.solve(slopes, gap.copy().reshape(parts * nodes)).reshape(parts, nodes)
        gain, length = (step * gap).sum(), 1.0
        for _ in range(HALVINGS):
            tried[:] = prices + length * step
            now = _misfit(
                tried, curves, variances, above, parents, below, measured, stiffness, part_of, part_parents,
                nonnegative, moved, out, gap,
            )  # fmt: skip
            if now <= value - 1e-4 * length * gain + 1e-14 * abs(value):
                break
            length *= 0.5
        prices[:], value = tried, now
