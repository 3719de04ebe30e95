"""The shape of every question to releases: push releases, get answers. Nothing here costs budget."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import whole
from tidegate.queries.history import Followed, History
from tidegate.releases import Release, Releases

Answers = npt.NDArray[Any]
Aggregate = Sequence[Sequence[int]]


class Question(ABC):
    """An online operator over releases.

    Parameters
    ----------
    columns
        The number of columns of the releases (or of nodes, for releases of a hierarchy).
    window
        How many steps the question looks back.
    smoother
        How past steps are estimated, see :class:`History`.
    aggregate
        Groups of column numbers: the question is asked about the sum of each instead of each column.

    Examples
    --------
    >>> from tidegate.queries import WindowSum
    >>> issubclass(WindowSum, Question)
    True
    """

    failure: str | None = None
    """Why it can answer no longer, of one that continues after what it calls has failed."""

    goes_on: ClassVar[bool] = False
    """Whether it is asked on after a failure."""

    def __init__(
        self, columns: int, window: int = 1, smoother: str = "median", aggregate: Aggregate | None = None
    ) -> None:
        self.columns = whole("columns", columns)
        self.window = whole("window", window)
        self.history = History(self.columns, self.window, smoother)
        self._sum_of = None if aggregate is None else membership(aggregate, self.columns)

    def push(self, release: Release) -> Answers:
        """The answer after the next step: one entry for each column or aggregate."""
        followed = self.history.push(release)
        answers: Answers = self._answer(Followed(*(self.summed(part[np.newaxis]) for part in followed)))[0]
        return answers

    def push_batch(self, releases: Releases) -> Answers:
        """The answers after each of the next steps, T × (columns or aggregates)."""
        followed = self.history.push_batch(releases)
        return self._answer(Followed(*map(self.summed, followed)))

    def state(self) -> dict[str, Any]:
        """All that is kept, as numbers and arrays: released data only."""
        return self.history.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from what `state` returned."""
        self.history.restore(state)

    def summed(self, values: Answers) -> Answers:
        """Columns summed to the aggregates that were asked for."""
        return values if self._sum_of is None else values @ self._sum_of.T

    @abstractmethod
    def _answer(self, followed: Followed) -> Answers:
        """The answers from the estimates."""


def membership(aggregate: Aggregate, columns: int) -> npt.NDArray[np.float64]:
    """Groups of column numbers as a 0/1 matrix with one row for each group."""
    matrix = np.zeros((len(aggregate), columns))
    for row, members in enumerate(aggregate):
        if not len(members):
            raise InvalidParameter(
                "aggregate", list(members), "groups of at least one column", "drop the empty group"
            )
        for member in members:
            matrix[row, whole("aggregate", member, least=0, most=columns - 1)] = 1.0
    return matrix


Query = Question  # its earlier name, by which it may still be imported
