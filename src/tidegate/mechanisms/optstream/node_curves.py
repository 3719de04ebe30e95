"""Compiled least squares over the nodes of a hierarchy whose curves were drawn through samples at different times.

Minimise over the leaves' streams X ≥ 0 (steps × leaves) half the sum over nodes n of Σₜ (Xₙ(t) − yₙ(t))²/vₙ(t) +
fₙ·Σ_d p_d·(Xₙ(d) − cₙ(d))², with Xₙ the sum of the leaves below n and Xₙ(d) its sum over part d of a feature. Without
features every step is a problem of its own on the hierarchy's tree. A feature adds a price λₙ(d) to its steps, which
moves yₙ(t) by vₙ(t) times the prices of the parts that contain t; the steps are then solved for themselves again. At
the optimum Xₙ(d) = cₙ(d) + λₙ(d)/(fₙ·p_d): as many equations as there are sums, solved by Newton's method. Their
left side falls with the prices (it is the gradient of the concave dual), so that a halved step always gets nearer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.compiled import kernel
from tidegate.mechanisms.optstream.feature_fit import solve_tree

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


class Problem(NamedTuple):
    """What is fitted, and to what."""

    curves: Any  # nodes × steps
    variances: Any
    above: Any
    parents: Any
    below: Any  # nodes × leaves: which leaves are below which node
    sums: Any  # parts × nodes
    stiffness: Any
    part_of: Any
    part_parents: Any
    nonnegative: bool


@kernel
def _misfit(prices: Any, problem: Any, moved: Any, out: Any, gap: Any) -> float:
    """The steps at given prices (parts × nodes), what is missing at each sum, and the dual's value, negated."""
    curves, variances, above, parents, below, sums, stiffness, part_of, part_parents, nonnegative = problem
    nodes, steps = curves.shape
    for node in range(nodes):
        for step in range(steps):
            price = 0.0
            part = part_of[step]
            while part >= 0:
                price += prices[part, node]
                part = part_parents[part]
            moved[node, step] = curves[node, step] - variances[node, step] * price
    fit_steps(moved, variances, above, parents, nonnegative, out)
    value = 0.0
    for part in range(prices.shape[0]):
        for node in range(nodes):
            price = prices[part, node]
            bought = price * stiffness[part, node]
            gap[part, node] = -sums[part, node] - bought
            value += price * sums[part, node] + 0.5 * price * bought
    for step in range(steps):
        for node in range(nodes):
            found = 0.0
            for leaf in range(above.size):
                found += below[node, leaf] * out[step, leaf]
            off = found - curves[node, step]
            value -= 0.5 * off * off / variances[node, step]
            part = part_of[step]
            while part >= 0:
                gap[part, node] += found
                value -= prices[part, node] * found
                part = part_parents[part]
    return value


@kernel
def _factor(matrix: Any, size: int) -> None:
    """The Cholesky factor of a symmetric positive definite matrix, in its lower half."""
    for column in range(size):
        for row in range(column, size):
            found = matrix[row, column]
            for before in range(column):
                found -= matrix[row, before] * matrix[column, before]
            matrix[row, column] = found / matrix[column, column] if row > column else np.sqrt(found)


@kernel
def _slopes(
    out: Any,
    variances: Any,
    below: Any,
    part_of: Any,
    part_parents: Any,
    stiffness: Any,
    nonnegative: bool,
    normal: Any,
    seen: Any,
    slopes: Any,
) -> None:
    """How the gaps fall when prices rise (sums × sums): leaves at zero stay there. `normal` and `seen` are scratch."""
    nodes, leaves = below.shape
    parts = stiffness.shape[0]
    for row in range(parts * nodes):
        for column in range(parts * nodes):
            slopes[row, column] = 0.0
        slopes[row, row] = stiffness[row // nodes, row % nodes]
    for step in range(out.shape[0]):
        for one in range(leaves):
            for other in range(one + 1):
                normal[one, other] = 1.0 if one == other else 0.0
                if nonnegative and (out[step, one] <= 0.0 or out[step, other] <= 0.0):
                    continue
                normal[one, other] = 0.0
                for node in range(nodes):
                    normal[one, other] += below[node, one] * below[node, other] / variances[node, step]
        _factor(normal, leaves)
        for node in range(nodes):  # seen = the factor's inverse times the leaves below each node
            for leaf in range(leaves):
                found = 0.0 if nonnegative and out[step, leaf] <= 0.0 else below[node, leaf]
                for before in range(leaf):
                    found -= normal[leaf, before] * seen[node, before]
                seen[node, leaf] = found / normal[leaf, leaf]
        for one in range(nodes):
            for other in range(nodes):
                response = 0.0
                for leaf in range(leaves):
                    response += seen[one, leaf] * seen[other, leaf]
                one_part = part_of[step]
                while one_part >= 0:
                    other_part = part_of[step]
                    while other_part >= 0:
                        slopes[one_part * nodes + one, other_part * nodes + other] += response
                        other_part = part_parents[other_part]
                    one_part = part_parents[one_part]


@kernel
def _newton_step(slopes: Any, gap: Any, step: Any) -> float:
    """Solve slopes · step = gap, overwriting the slopes; returns step · gap."""
    nodes = gap.shape[1]
    size = gap.size
    _factor(slopes, size)
    for row in range(size):
        found = gap[row // nodes, row % nodes]
        for before in range(row):
            found -= slopes[row, before] * step[before // nodes, before % nodes]
        step[row // nodes, row % nodes] = found / slopes[row, row]
    for row in range(size - 1, -1, -1):
        found = step[row // nodes, row % nodes]
        for after in range(row + 1, size):
            found -= slopes[after, row] * step[after // nodes, after % nodes]
        step[row // nodes, row % nodes] = found / slopes[row, row]
    gain = 0.0
    for row in range(size):
        gain += step[row // nodes, row % nodes] * gap[row // nodes, row % nodes]
    return gain


@kernel
def _largest(matrix: Any) -> float:
    largest = 0.0
    for row in range(matrix.shape[0]):
        for column in range(matrix.shape[1]):
            largest = max(largest, abs(matrix[row, column]))
    return largest


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
    stiffness, measured = np.empty((parts, nodes)), np.empty((parts, nodes))
    for part in range(parts):
        for node in range(nodes):
            precision = factors[node] * part_precisions[part]
            # a part without steps has no say: whatever its price, its gap is nothing
            stiffness[part, node] = 1.0 / precision if precision > 0.0 else 1.0
            measured[part, node] = sums[part, node] if precision > 0.0 else 0.0
    prices, tried, step = np.zeros((parts, nodes)), np.zeros((parts, nodes)), np.zeros((parts, nodes))
    moved, gap, slopes = (
        np.empty((nodes, curves.shape[1])),
        np.empty((parts, nodes)),
        np.empty((parts * nodes, parts * nodes)),
    )
    normal, seen = np.empty((above.size, above.size)), np.empty((nodes, above.size))
    problem = Problem(
        curves, variances, above, parents, below, measured, stiffness, part_of, part_parents, nonnegative
    )
    size = max(_largest(curves), _largest(measured))
    value, length, gain = 0.0, 0.0, 0.0
    for turn in range(ROUNDS):
        for halving in range(HALVINGS):
            for part in range(parts):
                for node in range(nodes):
                    tried[part, node] = prices[part, node] + length * step[part, node]
            now = _misfit(tried, problem, moved, out, gap)
            enough = value - 1e-4 * length * gain + 1e-14 * abs(value)
            if turn == 0 or halving == HALVINGS - 1 or now <= enough:
                break
            length *= 0.5
        for part in range(parts):
            for node in range(nodes):
                prices[part, node] = tried[part, node]
        value = now
        if _largest(gap) <= tolerance * size:
            return
        _slopes(out, variances, below, part_of, part_parents, stiffness, nonnegative, normal, seen, slopes)
        gain, length = _newton_step(slopes, gap, step), 1.0
