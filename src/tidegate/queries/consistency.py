"""Consistent hierarchies: parents equal the sum of their children, and no count is negative."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidInput
from tidegate.queries.kernels import consistency as loop
from tidegate.releases import Release, Releases
from tidegate.structures.hierarchy import Hierarchy

Values = npt.NDArray[np.float64]
SUREST = 1e-6  # deviations below this part of the largest are taken as this part
FAINT = 1e-6  # the weight of a node about which nothing was measured, relative to the faintest one that was


def reconcile(hierarchy: Hierarchy, values: Values, weights: Values | None = None) -> Values:
    """The consistent values nearest to given ones: non-negative weighted least squares, exactly.

    Parameters
    ----------
    hierarchy
        The forest.
    values
        T × nodes.
    weights
        T × nodes, one over the variance of each value (up to a factor); all equal by default.

    Examples
    --------
    >>> tree = Hierarchy.from_parents({"all": None, "a": "all", "b": "all"})
    >>> reconcile(tree, np.array([[9.0, 4.0, 2.0]]))
    array([[8., 5., 3.]])
    >>> reconcile(tree, np.array([[4.0, 4.0, -2.0]]))
    array([[4., 4., 0.]])
    """
    shape = (len(values), len(hierarchy.names))
    if values.shape != shape:
        raise InvalidInput(
            f"the values have the shape {values.shape} and the hierarchy {shape[1]} nodes; give one column a node."
        )
    given = np.ones(shape) if weights is None else np.ascontiguousarray(weights, dtype=np.float64)
    order, begins, ends = _numbering(hierarchy)
    out = np.empty(shape)
    loop.consistent(
        np.ascontiguousarray(values, dtype=np.float64),
        given,
        order,
        np.array(hierarchy.parents, dtype=np.int64),
        np.empty(shape[1], dtype=np.int64),
        hierarchy.is_leaf,
        begins,
        ends,
        out,
    )
    return out


def _numbering(
    hierarchy: Hierarchy,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(nodes with children before parents, first leaf below each node, one past the last), leaves depth first."""
    nodes = len(hierarchy.names)
    children: list[list[int]] = [[] for _ in range(nodes)]
    roots: list[int] = []
    for node, parent in enumerate(hierarchy.parents):
        (roots if parent < 0 else children[parent]).append(node)
    order: list[int] = []
    begins, ends = np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
    leaves = 0
    stack = [(node, False) for node in reversed(roots)]
    while stack:
        node, done = stack.pop()
        if done:
            ends[node] = leaves
            order.append(node)
            continue
        begins[node] = leaves
        leaves += not children[node]
        stack.append((node, True))
        stack += [(child, False) for child in reversed(children[node])]
    return np.array(order, dtype=np.int64), begins, ends


class Consistent:
    """Makes releases of a hierarchy consistent, step by step.

    Every node's released value weighs by its precision: the budget of all measurements of its group so far, or, where
    releases say how sure they are (Tide), one over the squared deviation. Pruned nodes say next to nothing, so that what
    their parent holds is spread over them.

    Parameters
    ----------
    hierarchy
        The hierarchy of the releases.

    Examples
    --------
    >>> import tidegate as tg
    >>> tree = Hierarchy.balanced(4)
    >>> run = tg.open(tg.mechanisms.HierarchicalPeGaSus(tg.Event(epsilon="1"), hierarchy=tree))
    >>> consistent = Consistent(tree).push_batch(run.push_batch(np.full((10, 4), 30)))
    >>> bool(np.allclose(consistent, tree.sum(consistent[:, list(tree.leaves)]))), bool((consistent >= 0).all())
    (True, True)
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.hierarchy = hierarchy
        self._last = np.zeros(len(hierarchy.names), dtype=np.int64)
        self._sizes = np.zeros(len(hierarchy.names))

    def push(self, release: Release) -> Values:
        """The consistent values of all nodes at the next step."""
        one = release.values[np.newaxis]
        if (measured := release.measured) is None:
            deviation = release.deviation
            weights = None if deviation is None else _precisions(deviation[np.newaxis])
            return self._reconcile(one, weights)[0]  # type: ignore[no-any-return]
        weights = self._weights(measured.groups[np.newaxis], measured.weights[np.newaxis])
        return self._reconcile(one, weights)[0]  # type: ignore[no-any-return]

    def push_batch(self, releases: Releases) -> Values:
        """The consistent values of all nodes at each of the next steps."""
        if (measured := releases.measured) is None:
            deviation = releases.deviation
            return self._reconcile(releases.values, None if deviation is None else _precisions(deviation))
        return self._reconcile(releases.values, self._weights(measured.groups, measured.weights))

    def _reconcile(self, values: Values, weights: Values | None) -> Values:
        return reconcile(self.hierarchy, values, weights)

    def _weights(self, groups: npt.NDArray[np.int64], weights: npt.NDArray[np.int64]) -> Values:
        found = np.empty(groups.shape)
        loop.precisions(groups, weights, self._last, self._sizes, found)
        return _with_faint(found)


def _with_faint(precisions: Values) -> Values:
    """Nodes about which nothing is known weigh a little, so that there is one answer."""
    known = np.where(precisions > 0, precisions, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    faint = FAINT * np.where(np.isfinite(known), known, 1.0)
    return np.where(precisions > 0, precisions, faint)


def _precisions(deviation: Values) -> Values:
    """One over the squared deviations: relative to the largest, so that extreme ones lose nothing in floating point."""
    known = np.isfinite(deviation)
    largest = np.where(known, deviation, 0.0).max(axis=1, keepdims=True, initial=0.0)
    least = np.where(largest > 0, SUREST * largest, 1.0)
    relative = np.where(largest > 0, largest, 1.0) / np.maximum(deviation, least)
    return _with_faint(np.where(known, np.square(relative), 0.0))
