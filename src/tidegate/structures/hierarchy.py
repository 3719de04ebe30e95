"""A forest of aggregations: access points in rooms, rooms on floors, floors in buildings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import whole


@dataclass(frozen=True)
class Hierarchy:
    """Nodes with at most one parent each. The leaves are the columns of the stream; other nodes are their sums.

    Use :meth:`from_parents`, :meth:`from_names` or :meth:`balanced`.

    Parameters
    ----------
    names
        The nodes, roots first, every parent before its children.
    parents
        For each node the position of its parent in `names`, -1 for a root.
    leaves
        For each column the position of its leaf in `names`.

    Examples
    --------
    >>> campus = Hierarchy.from_names(["library/1/a", "library/1/b", "library/2/c", "gym/hall"])
    >>> campus.height, len(campus.names), len(campus.leaves)
    (3, 8, 4)
    >>> campus.sum(np.array([[1, 2, 3, 4]]))[0, campus.position("library")]
    np.int64(6)
    """

    names: tuple[str, ...]
    parents: tuple[int, ...]
    leaves: tuple[int, ...]

    @classmethod
    def from_parents(cls, parents: Mapping[str, str | None] | Iterable[tuple[str, str | None]]) -> Hierarchy:
        """From links child → parent, None for a root. Columns are the leaves in the order in which they are given."""
        links: dict[str, str | None] = {}
        for child, parent in parents.items() if isinstance(parents, Mapping) else parents:
            if child in links and links[child] != parent:
                raise _refused(
                    f"{child!r} under both {links[child]!r} and {parent!r}", "one parent for each node"
                )
            links[child] = parent
        if not links:
            raise _refused("{}", "at least one node")
        levels: dict[str, int] = {}
        for child, parent in links.items():
            if parent is not None and parent not in links:
                raise _refused(f"{child!r} under {parent!r}", "parents that are nodes themselves")
        for name in links:
            _level(name, links, levels)
        inner = {parent for parent in links.values() if parent is not None}
        order = sorted(links, key=levels.__getitem__)  # stable: within a level as given
        place = {name: position for position, name in enumerate(order)}
        above = tuple(-1 if (up := links[name]) is None else place[up] for name in order)
        return cls(tuple(order), above, tuple(place[name] for name in links if name not in inner))

    @classmethod
    def from_names(cls, names: Sequence[str], separator: str = "/") -> Hierarchy:
        """From nested names of the columns, such as building/floor/room/ap; nodes are named by their whole path."""
        links: dict[str, str | None] = {}
        columns = set()
        for name in names:
            if name in columns:
                raise _refused(f"{name!r} twice", "names that differ")
            columns.add(name)
            parts = name.split(separator)
            for depth in range(1, len(parts) + 1):
                path = separator.join(parts[:depth])
                links[path] = separator.join(parts[: depth - 1]) if depth > 1 else None
        inner = set(links.values())
        both = [name for name in names if name in inner]
        if both:
            raise _refused(f"{both[0]!r} as a column and above others", "columns that are leaves")
        return cls.from_parents({name: links[name] for name in (*[n for n in links if n in inner], *names)})

    @classmethod
    def balanced(cls, leaves: int, fan_out: int = 2) -> Hierarchy:
        """A tree with one root in which each node sums `fan_out` neighbours, for streams without names."""
        width, fan = whole("leaves", leaves), whole("fan_out", fan_out, least=2)
        links: list[tuple[str, str | None]] = []
        level, size = 0, width
        while True:
            above = -(-size // fan)
            links += [(f"{level}.{n}", f"{level + 1}.{n // fan}" if size > 1 else None) for n in range(size)]
            if size == 1:
                return cls.from_parents(links)
            level, size = level + 1, above

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """The level of each node; 1 for roots."""
        found: list[int] = []
        for parent in self.parents:
            found.append(1 if parent < 0 else found[parent] + 1)
        return tuple(found)

    @property
    def height(self) -> int:
        """The number of levels."""
        return max(self.levels)

    @cached_property
    def is_leaf(self) -> npt.NDArray[np.bool_]:
        """Which nodes are leaves."""
        found = np.zeros(len(self.names), dtype=np.bool_)
        found[list(self.leaves)] = True
        return found

    def position(self, name: str) -> int:
        """Where a node stands among the columns of released hierarchies."""
        try:
            return self.names.index(name)
        except ValueError:
            raise InvalidParameter("name", name, "a node of the hierarchy", "see hierarchy.names") from None

    def path(self, node: int) -> list[int]:
        """The nodes from the root down to one."""
        found = [node]
        while self.parents[found[-1]] >= 0:
            found.append(self.parents[found[-1]])
        return found[::-1]

    def sum(self, columns: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The values of all nodes (T × nodes) from those of the leaves (T × columns)."""
        nodes = np.zeros((len(columns), len(self.names)), dtype=columns.dtype)
        nodes[:, list(self.leaves)] = columns
        for node in range(len(self.names) - 1, -1, -1):
            if self.parents[node] >= 0:
                nodes[:, self.parents[node]] += nodes[:, node]
        return nodes

    def describe(self) -> dict[str, Any]:
        """Identify the hierarchy exactly, as JSON."""
        return {"names": list(self.names), "parents": list(self.parents), "leaves": list(self.leaves)}


def _level(name: str, links: Mapping[str, str | None], levels: dict[str, int]) -> int:
    """The level of a node, with that of all nodes above it."""
    climbed: list[str] = []
    at: str | None = name
    while at is not None and at not in levels:
        if at in climbed:
            raise _refused(f"{at!r} above itself", "free of cycles")
        climbed.append(at)
        at = links[at]
    level = 0 if at is None else levels[at]
    for node in reversed(climbed):
        level += 1
        levels[node] = level
    return level


def _refused(value: str, constraint: str) -> InvalidParameter:
    return InvalidParameter("hierarchy", value, constraint, "correct the links, no budget was spent")


def columns_of(hierarchy: object, columns: int) -> int:
    """The columns of a stream over the leaves of a hierarchy: as many, whether they are given or left out."""
    if not isinstance(hierarchy, Hierarchy):
        raise InvalidParameter(
            "hierarchy", hierarchy, "a Hierarchy", "write hierarchy=Hierarchy.from_names([…])"
        )
    leaves = len(hierarchy.leaves)
    if columns not in (1, leaves):
        raise InvalidParameter("columns", columns, f"the number of leaves, {leaves}", "leave it out")
    return leaves
