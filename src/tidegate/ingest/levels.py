"""Levels: columns that are parts of regions, regions of countries; what is measured of them, and how it adds up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.ingest.public_table import refused, table_rows
from tidegate.queries.consistency import reconcile
from tidegate.structures.hierarchy import Hierarchy

Values = npt.NDArray[np.float64]
LEAVES, NODES = "leaves", "nodes"
# An interval at 90 % of a sum of independent Laplace noise, relative to the root of the sum of the squared half widths of
# its parts: at most 1.645/1.628, by which a normal law at the same variance is wider than a single Laplace one.
SUMMED = 1.0105
FINER = 2  # decimals beyond the grid


@dataclass(frozen=True)
class Levels:
    """A hierarchy of columns, and which of its nodes are measured and released.

    Parameters
    ----------
    hierarchy
        The leaves are the columns.
    measured
        What a mechanism is given: "leaves", or all "nodes".
    released
        What it releases: "leaves", or all "nodes".
    independent
        Whether the noise of a release is independent from column to column.
    weights
        How often nodes are counted, from the highest level to the lowest; once each by default.

    Privacy
    -------
    A unit in one leaf is in a node of every level above it. Where all nodes are measured, what it can change is
    therefore that of the leaves times the number of levels, or times the sum of their weights. What is done with
    releases is post-processing.

    Examples
    --------
    >>> tree = Hierarchy.from_parents({"all": None, "north": "all", "south": "all"})
    >>> Levels(tree, NODES, NODES).factor, Levels(tree).answers(np.array([[3.0, 4.5]]), grid=1, positive=True).tolist()
    (2, [[7.5, 3.0, 4.5]])
    """

    hierarchy: Hierarchy
    measured: str = LEAVES
    released: str = LEAVES
    independent: bool = False
    weights: tuple[int, ...] = ()

    @property
    def factor(self) -> int:
        """How many measured columns one contribution is in, as often as it is counted there."""
        return sum(self._by_level) if self.measured == NODES else 1

    @property
    def _by_level(self) -> tuple[int, ...]:
        return self.weights or (1,) * self.hierarchy.height

    @cached_property
    def _times(self) -> npt.NDArray[np.int64]:
        """How often each node is counted."""
        found: npt.NDArray[np.int64] = np.array(self._by_level)[np.array(self.hierarchy.levels) - 1]
        return found

    @cached_property
    def _leaves(self) -> list[int]:
        return list(self.hierarchy.leaves)

    def expanded(self, leaves: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What is measured, from the values of the leaves."""
        return self.hierarchy.sum(leaves) * self._times if self.measured == NODES else leaves

    def leaves(self, nodes: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The values of the leaves, from those of all nodes; leaves alone stay as they are."""
        if nodes.shape[-1] != len(self.hierarchy.names):
            return nodes
        return nodes[..., self._leaves] / self._times[self._leaves]

    def truth(self, measured: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """All nodes, from exact measured values."""
        return measured / self._times if self.measured == NODES else self.hierarchy.sum(measured)

    def consistent(self, released: Values) -> Values:
        """The leaves of the values that add up and are nearest to released nodes, all with the same noise."""
        values = released.reshape(-1, released.shape[-1]) / self._times
        leaves = least_squares(self.hierarchy, values, 1.0 / self._times**2)[:, self._leaves]
        return leaves.reshape(*released.shape[:-1], len(self._leaves))

    def answers(self, released: Values, *, grid: float, positive: bool) -> Values:
        """All nodes of releases: each parent is the sum of its children, in the decimals that are written as well.

        Parameters
        ----------
        released
            Leaves or nodes, in the last axis.
        grid
            The resolution of the stream; answers have two decimals more.
        positive
            Whether no value can be negative; then no answer is, where nodes were reconciled.
        """
        values = released.reshape(-1, released.shape[-1])
        if self.released == NODES:
            known = ~np.isnan(values).any(axis=1)
            leaves = np.full((len(values), len(self._leaves)), np.nan)
            nearest = reconcile if positive else least_squares
            leaves[known] = nearest(self.hierarchy, values[known])[:, self._leaves]
        else:
            leaves = values
        decimals = decimals_of(grid)
        # rounded parts add up exactly, and so does their sum when it is rounded to as many decimals
        nodes = np.round(self.hierarchy.sum(np.round(leaves, decimals)), decimals)
        return nodes.reshape(*released.shape[:-1], nodes.shape[1])

    def radius(self, radius: Values) -> Values:
        """Half the widths of the intervals around all nodes, from those around what was released."""
        if self.released == NODES:  # reconciling moves no estimate further from the truth, on the whole
            return SUMMED * radius
        flat = radius.reshape(-1, radius.shape[-1])
        summed = (
            SUMMED * np.sqrt(self.hierarchy.sum(flat**2)) if self.independent else self.hierarchy.sum(flat)
        )
        summed[:, self._leaves] = flat
        found: Values = summed.reshape(*radius.shape[:-1], summed.shape[1])
        return found

    def describe(self) -> dict[str, Any]:
        """Identify them exactly, as JSON."""
        found = {**self.hierarchy.describe(), "measured": self.measured, "released": self.released}
        return {**found, "weights": list(self.weights)} if self.weights else found


def decimals_of(grid: float) -> int:
    """How many decimals the nodes of a stream have: two more than its grid.

    Examples
    --------
    >>> decimals_of(1.0), decimals_of(0.25)
    (2, 3)
    """
    return min(FINER + max(0, math.ceil(-math.log10(grid))), 12)


def least_squares(hierarchy: Hierarchy, values: Values, variances: Values | None = None) -> Values:
    """The consistent values nearest to given ones, negative ones as well: two walks through the tree.

    Parameters
    ----------
    hierarchy
        The tree.
    values
        Of all nodes (T × nodes).
    variances
        How unsure each node is; all alike by default.

    Examples
    --------
    >>> tree = Hierarchy.from_parents({"all": None, "a": "all", "b": "all"})
    >>> least_squares(tree, np.array([[4.0, 4.0, -2.0]])).round(3).tolist()
    [[3.333, 4.667, -1.333]]
    """
    upward, variance, below, width = _upward(hierarchy, values, variances)
    found = upward.copy()
    for node, parent in enumerate(hierarchy.parents):
        if parent >= 0:  # what the parent has more than its children is theirs, by how unsure each of them is
            found[:, node] += variance[node] / width[parent] * (found[:, parent] - below[:, parent])
    return found


def _upward(
    hierarchy: Hierarchy, values: Values, variances: Values | None = None
) -> tuple[Values, Values, Values, Values]:
    """(estimates from each node and all below it, their variances, sums over the children, variances of these)."""
    nodes = len(hierarchy.names)
    own = np.ones(nodes) if variances is None else variances
    best, variance = values.astype(np.float64), own.copy()
    below, width = np.zeros_like(best), np.zeros(nodes)
    for node in range(nodes - 1, -1, -1):
        if width[node]:
            together = own[node] + width[node]
            best[:, node] = (values[:, node] * width[node] + below[:, node] * own[node]) / together
            variance[node] = own[node] * width[node] / together
        parent = hierarchy.parents[node]
        if parent >= 0:
            below[:, parent] += best[:, node]
            width[parent] += variance[node]
    return best, variance, below, width


def better_measured(hierarchy: Hierarchy) -> str:
    """Whether errors are smaller if leaves are measured, or all nodes with more noise each; each level counts the same.

    Examples
    --------
    >>> better_measured(Hierarchy.balanced(4)), better_measured(Hierarchy.balanced(4096, fan_out=64))
    ('leaves', 'nodes')
    """
    nodes = len(hierarchy.names)
    _, variance, _, width = _upward(hierarchy, np.zeros((1, nodes)))
    smoothed = variance.copy()
    for node, parent in enumerate(hierarchy.parents):
        if parent >= 0:
            part = variance[node] / width[parent]
            smoothed[node] = variance[node] - part**2 * (width[parent] - smoothed[parent])
    counts = hierarchy.sum(np.ones((1, len(hierarchy.leaves))))[0]
    levels = np.array(hierarchy.levels)
    weights = 1.0 / np.bincount(levels)[levels]
    return NODES if weights @ (hierarchy.height * np.sqrt(smoothed)) < weights @ np.sqrt(counts) else LEAVES


def hierarchy_of(links: Mapping[str, str], columns: Sequence[str] = ()) -> Hierarchy:
    """A hierarchy from the parent of each node; those that are only parents are roots.

    Parameters
    ----------
    links
        The parent of each node, empty for a root.
    columns
        The leaves in the order of the columns; by default as in the links.
    """
    known: dict[str, str | None] = {}
    for child, parent in links.items():
        if parent and parent not in links:
            known.setdefault(parent, None)
        known[child] = parent or None
    inner = {parent for parent in known.values() if parent is not None}
    leaves = [name for name in known if name not in inner]
    wanted = tuple(columns) or tuple(leaves)
    for name in wanted:
        if name in inner:
            raise InvalidParameter(
                "columns",
                name,
                "the lowest level only: a parent is the sum of its children, and a unit in a child changes both",
                "leave it out of columns",
            )
        if name not in known:
            raise InvalidParameter("hierarchy", name, "a hierarchy of all columns", "say its parent")
    for name in leaves:
        if name not in wanted:
            raise InvalidParameter("columns", name, "among the columns, as it is in the hierarchy", "add it")
    order = [*(name for name in known if name in inner), *wanted]
    return Hierarchy.from_parents({name: known[name] for name in order})


def read_links(path: str | Path) -> dict[str, str]:
    """The parent of each node from a CSV with a header: nodes in its first column, their parents in its second."""
    file = Path(path)
    rows = table_rows("hierarchy", file)
    next(rows, None)
    found: dict[str, str] = {}
    for line, cells in rows:
        if not cells[0] or cells[0] in found:
            what = f"repeats {cells[0]!r}" if cells[0] else "names no node"
            raise refused(
                "hierarchy", file, f"a table of each node once, and line {line} {what}", "correct it"
            )
        found[cells[0]] = cells[1] if len(cells) > 1 else ""
    if not found:
        raise refused("hierarchy", file, "a table with at least one node", "write one a line")
    return found
