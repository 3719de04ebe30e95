"""Features of a period: partitions of its steps whose sums are measured besides the samples, in any partial order.

Features of which each refines the next are a tree, and two passes over it fit a curve to their sums. Others, such as
the hours of a day and its odd and even steps, have no common tree; `fit_features` fits them by a general solver.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import whole

Feature = tuple[tuple[int, ...], ...]  # the parts of a partition, each the positions 1 … w of its steps
Integers = npt.NDArray[np.int64]


def whole_period(window: int) -> Feature:
    """The feature of one part: the sum over the whole period.

    Examples
    --------
    >>> whole_period(4)
    ((1, 2, 3, 4),)
    """
    return (tuple(range(1, whole("window", window) + 1)),)


def parts(window: int, ends: Iterable[int]) -> Feature:
    """Parts of consecutive steps, given by the last position of each.

    Examples
    --------
    >>> parts(12, [4, 9, 12])
    ((1, 2, 3, 4), (5, 6, 7, 8, 9), (10, 11, 12))
    """
    bounds = [0, *ends]
    if bounds != sorted(set(bounds)) or bounds[-1] != window:
        raise InvalidParameter(
            "ends", bounds[1:], f"ascending positions up to {window}", f"end with {window}"
        )
    return tuple(tuple(range(a + 1, b + 1)) for a, b in pairwise(bounds))


def equal_parts(window: int, count: int) -> Feature:
    """So many parts of as equal a length as possible.

    Examples
    --------
    >>> equal_parts(5, 2)
    ((1, 2, 3), (4, 5))
    """
    number = whole("count", count, most=window)
    return parts(window, [-(-window * part // number) for part in range(1, number + 1)])


def parts_of_day(window: int) -> Feature:
    """Night, morning, afternoon and evening (until 7, 12, 18 and 24 o'clock) of a period that is one day.

    Examples
    --------
    >>> [len(part) for part in parts_of_day(48)]
    [14, 10, 12, 12]
    """
    ends = [window * hour // 24 for hour in (7, 12, 18, 24)]
    return parts(window, sorted({end for end in ends if end}))


def read_features(features: Sequence[Sequence[Sequence[int]]], w: int) -> tuple[Feature, ...]:
    """Check that every feature is a partition of the positions 1 … w; the finest first, else as they are given.

    Examples
    --------
    >>> [len(feature) for feature in read_features([whole_period(4), equal_parts(4, 2)], 4)]
    [2, 1]
    """
    read = tuple(tuple(tuple(int(at) for at in part) for part in feature) for feature in features)
    for number, feature in enumerate(read):
        if sorted(at for part in feature for at in part) != list(range(1, w + 1)) or not all(feature):
            raise InvalidParameter(
                "features",
                f"feature {number + 1} of {len(read)}",
                f"a partition of the positions 1 to {w}",
                "put every position into exactly one part that is not empty",
            )
    return tuple(sorted(read, key=len, reverse=True))


def refines(fine: Feature, coarse: Feature) -> bool:
    """Whether every part of the second feature is made of whole parts of the first: fine ≺ coarse.

    Examples
    --------
    >>> refines(equal_parts(4, 2), whole_period(4)), refines(equal_parts(6, 2), equal_parts(6, 3))
    (True, False)
    """
    label = {at: index for index, part in enumerate(coarse) for at in part}
    return all(len({label[at] for at in part}) == 1 for part in fine)


@dataclass(frozen=True, eq=False)
class FeatureTree:
    """Features with their parts numbered; where each refines the next, a tree: parts before those that contain them.

    Attributes
    ----------
    labels
        For each feature and step the number of the part that contains the step (features × steps).
    parents
        For each part the part of the next feature that contains it, −1 for the last feature's. Of no meaning where
        features are not nested.
    level
        For each part the number of its feature.
    size
        For each part the number of its steps.
    nested
        Whether each feature refines the next.
    """

    labels: Integers
    parents: Integers
    level: Integers
    size: Integers
    nested: bool

    @classmethod
    def grow(cls, features: Sequence[Feature], w: int) -> FeatureTree:
        """From checked features, finest first."""
        labels = np.zeros((len(features), w), dtype=np.int64)
        level: list[int] = []
        for number, feature in enumerate(features):
            for part in feature:
                labels[number, np.array(part) - 1] = len(level)
                level.append(number)
        parents = np.full(len(level), -1, dtype=np.int64)
        for fine, coarse in pairwise(labels):
            parents[fine] = coarse
        size = np.bincount(labels.ravel(), minlength=len(level)) if level else np.zeros(0)
        nested = all(refines(fine, coarse) for fine, coarse in pairwise(features))
        return cls(labels, parents, np.array(level, dtype=np.int64), size.astype(np.int64), nested)

    @property
    def node_of(self) -> Integers:
        """For each step the part of the finest feature, −1 without features."""
        if len(self.labels):
            return np.asarray(self.labels[0])
        return np.full(self.labels.shape[1], -1, dtype=np.int64)

    def until(self, steps: int) -> FeatureTree:
        """The tree of a period that was cut short after so many steps; parts without steps stay, but are empty."""
        labels = self.labels[:, :steps]
        size = np.bincount(labels.ravel(), minlength=len(self.parents)).astype(np.int64)
        return FeatureTree(labels, self.parents, self.level, size, self.nested)

    @property
    def members(self) -> npt.NDArray[np.float64]:
        """1 where a step is in a part (parts × steps)."""
        members = np.zeros((len(self.parents), self.labels.shape[1]))
        for labels in self.labels:
            members[labels, np.arange(len(labels))] = 1.0
        return members
