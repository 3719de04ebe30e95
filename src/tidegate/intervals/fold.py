"""The interface of a fold over releases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from tidegate.noise.law import AnyLaw
from tidegate.releases import Errors as Errors
from tidegate.releases import Radii, Releases, Values

State = Values  # rows × columns: all that releases so far say about the errors of the next ones


class Intervals(Radii):
    """Half-widths of released values, and of what their errors are made; both are worked out when they are asked for.

    Parameters
    ----------
    work_out
        What gives half-widths for a probability, T × d.
    errors
        What gives the parts of the errors.
    """

    __slots__ = ("_errors",)

    def __init__(self, work_out: Callable[[float], Values], errors: Callable[[], Errors]) -> None:
        super().__init__(work_out)
        self._errors = errors

    def errors(self) -> Errors:
        """Of what their errors are made."""
        return self._errors()


class Fold(ABC):
    """What releases say about their errors. It holds configuration only; whoever folds keeps the state.

    Parameters
    ----------
    columns
        The columns of a release.
    law
        The noise of a measurement; None where the mechanism releases its own deviations.
    released
        The noise of a released value, where fresh values are the truth and such noise; otherwise None.
    rows
        Of the state.

    Examples
    --------
    >>> import tidegate as tg
    >>> from tidegate.intervals import Held
    >>> mechanism = tg.mechanisms.Sample(tg.WEvent(epsilon="1", window=4))
    >>> releases = tg.open(mechanism).push_batch([[5]] * 8)
    >>> fold = Held(1, mechanism.law, mechanism.law)
    >>> state = fold.attach(fold.begin(), releases)
    >>> releases.radius(0.9).shape, state.shape
    ((8, 1), (9, 1))
    """

    says_more = False  # whether it knows the half-widths of better values of earlier steps; otherwise they are released

    def __init__(self, columns: int, law: AnyLaw | None, released: AnyLaw | None, rows: int) -> None:
        self.columns, self.law, self.released, self.rows = columns, law, released, rows

    def begin(self) -> State:
        """The state before the first release."""
        return np.zeros((self.rows, self.columns))

    @abstractmethod
    def advance(self, state: State, releases: Releases) -> tuple[State, Intervals]:
        """The state after these releases, as a new array, and their half-widths."""

    def revised(self, state: State, revised: Releases) -> Radii | None:
        """Half-widths of better values of earlier steps, from what is known by now; None where there are none."""
        return None

    def attach(self, state: State, releases: Releases) -> State:
        """Give releases their intervals; returns the next state."""
        after, radii = self.advance(state, releases)
        releases.law, releases.radii = self.released, radii
        if releases.revised is not None:
            releases.revised.radii = self.revised(after, releases.revised)
        return after


class Learning(Fold):
    """A fold that works out half-widths when they are asked for, from the state before and the releases."""

    law: AnyLaw

    def advance(self, state: State, releases: Releases) -> tuple[State, Intervals]:
        """Learn now, and keep what half-widths are made from."""
        found = Intervals(partial(self.radius, state, releases), partial(self.errors, state, releases))
        return self.learn(state, releases), found

    @abstractmethod
    def learn(self, state: State, releases: Releases) -> State:
        """The state after these releases, as a new array."""

    @abstractmethod
    def radius(self, state: State, releases: Releases, confidence: float) -> Values:
        """Half-widths, T × d: each from the state before and the releases up to its own step."""

    @abstractmethod
    def errors(self, state: State, releases: Releases) -> Errors:
        """Of what their errors are made."""


def student(confidence: float, count: npt.ArrayLike) -> Values:
    """Student's quantile for a variance that was learnt from so many numbers, after Wallace; too large for one or two."""
    number = np.maximum(np.asarray(count, dtype=np.float64), 1.0)
    root = NormalDist().inv_cdf(0.5 + confidence / 2) * (8 * number + 3) / (8 * number + 1)
    return np.asarray(np.sqrt(number * np.expm1(root * root / number)))
