"""A pool of ordered multisets: the Python side of `kernels.ordered`; it makes room and copies sets out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidegate.structures.kernels import ordered as tree

Integers = npt.NDArray[np.int64]
SMALLEST = 64  # nodes to begin with: 4 KiB


class OrderedSets:
    """Ordered multisets of integers that share their memory.

    Examples
    --------
    >>> sets = OrderedSets()
    >>> root = sets.build(np.array([3, 9]), np.array([2, 1]))
    >>> keys, counts = sets.listing(root)
    >>> keys.tolist(), counts.tolist()
    ([3, 9], [2, 1])
    """

    def __init__(self) -> None:
        self.nodes: Integers = np.zeros((SMALLEST, tree.WIDTH), dtype=np.int64)
        self.pool: Integers = np.zeros(tree.POOL, dtype=np.int64)
        self.pool[tree.FRESH] = 1  # row 0 is the empty tree
        self.path: Integers = np.zeros(tree.DEEPEST, dtype=np.int64)

    def make_room(self, count: int) -> None:
        """Have room for so many more nodes."""
        needed = 1 + int(self.pool[tree.USED]) + count
        if needed > len(self.nodes):
            grown = np.zeros((max(needed, 2 * len(self.nodes)), tree.WIDTH), dtype=np.int64)
            grown[: len(self.nodes)] = self.nodes
            self.nodes = grown

    def build(self, keys: Integers, counts: Integers) -> int:
        """A set with these keys and counts; returns its root."""
        self.make_room(len(keys))
        root = 0
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            root = int(tree.insert(self.nodes, self.pool, self.path, root, key, count))
        return root

    def listings(self, roots: Integers) -> tuple[Integers, Integers]:
        """Keys and counts of several sets, one behind the other (2 × keys; of each set ascending), and the sizes."""
        listed = np.empty((2, int(self.pool[tree.USED])), dtype=np.int64)  # as if they were all sets
        sizes = np.empty(len(roots), dtype=np.int64)
        found = tree.listings(self.nodes, self.path, np.ascontiguousarray(roots), listed[0], listed[1], sizes)
        return listed[:, :found], sizes

    def listing(self, root: int) -> tuple[Integers, Integers]:
        """The keys of a set in ascending order, and their counts."""
        (keys, counts), _ = self.listings(np.array([root]))
        return keys.copy(), counts.copy()  # a view would keep room for all sets
