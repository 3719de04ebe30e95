"""Intervals of the releases of one query, in the order of their commits, folded when somebody asks for them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from tidegate.intervals.by_law import ByLaw
from tidegate.intervals.fold import Errors, Fold, Intervals
from tidegate.releases import Radii, Release, Releases, SharedRadii, Values

MOST_WAITING = 2**17  # values of releases that wait until somebody asks
REMEMBERED = (32, 1000)  # steps of a log that a session which was opened again learns from: at least, at most


class Later(Radii):
    """Half-widths that are worked out, with those of all releases before, when they are asked for."""

    __slots__ = ("_found", "_history")

    def __init__(self, history: History) -> None:
        super().__init__(self._half_widths)
        self._history = history
        self._found: Radii | None = None

    def set(self, found: Radii | None) -> None:
        """What the fold says."""
        self._found = found

    def found(self) -> Radii:
        """What the fold says, once all earlier releases were folded."""
        if self._found is None:
            self._history.catch_up()
        if self._found is None:
            raise ValueError("a fold must say something of every release")
        return self._found

    def _half_widths(self, confidence: float) -> Values:
        return self.found()(confidence)

    def errors(self) -> Errors:
        """Of what the errors are made."""
        found = self.found()
        assert isinstance(found, Intervals)
        return found.errors()


class OneByLaw(SharedRadii):
    """Half-widths of single releases of which the law says all."""

    __slots__ = ("_fold",)

    def __init__(self, fold: Fold) -> None:
        self._fold = fold

    def of_one(self, release: Release, place: int) -> Radii:
        """Those of a release."""
        assert self._fold.law is not None
        return Radii(partial(release._radius_by, self._fold.law))


class History:
    """Gives releases their intervals.

    A push costs nothing for it: what was committed waits, as bytes that nobody changes, and is folded when somebody asks
    for an interval, or when much is waiting.

    Parameters
    ----------
    fold
        What releases say about their errors.
    """

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._by_law = isinstance(fold, ByLaw)  # nothing is learnt
        self._one = OneByLaw(fold)
        self._state = fold.begin()
        self._waiting: deque[tuple[Callable[[], Releases], Later | None, Later | None]] = deque()
        self._cells = 0
        self._lock = threading.RLock()

    @property
    def remembered(self) -> int:
        """The steps that are worth reading again when a log was opened."""
        least, most = REMEMBERED
        return 0 if self._by_law else min(max(MOST_WAITING // self._fold.columns, least), most)

    def learn(self, committed: Callable[[], Releases], cells: int = 1) -> None:
        """Take note of releases that were returned before."""
        if not self._by_law:
            self._wait(committed, cells, None, None)

    def follow(self, releases: Releases, committed: Callable[[], Releases]) -> None:
        """Give releases their intervals; `committed` gives the same releases, which nobody has."""
        releases.law = self._fold.released
        if self._by_law:
            self._fold.attach(self._state, releases)
            return
        later, revised = Later(self), None
        releases.radii = later
        if releases.revised is not None and self._fold.says_more:
            releases.revised.radii = revised = Later(self)
        self._wait(committed, releases.values.size, later, revised)

    @property
    def quick(self) -> bool:
        """Whether the law of the noise says all, so that single releases have nothing to wait for."""
        return self._by_law

    def follow_one(self, release: Release) -> None:
        """`follow` for a single release of which the law says all."""
        release.law, release._radii, release._place = self._fold.released, self._one, 0

    def _wait(
        self, committed: Callable[[], Releases], cells: int, later: Later | None, revised: Later | None
    ) -> None:
        with self._lock:
            self._waiting.append((committed, later, revised))
            self._cells += cells
        if self._cells > MOST_WAITING:
            self.catch_up()

    def catch_up(self) -> None:
        """Fold all that waits."""
        with self._lock:
            while self._waiting:
                committed, later, revised = self._waiting.popleft()
                releases = committed()
                self._state, radii = self._fold.advance(self._state, releases)
                if later is not None:
                    later.set(radii)
                if revised is not None and releases.revised is not None:
                    revised.set(self._fold.revised(self._state, releases.revised))
            self._cells = 0
