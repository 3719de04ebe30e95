"""Where steps between measurements are not looked at, a day or a week may hide there: they have no interval."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tidegate.intervals.fold import Errors, Fold, Intervals, State
from tidegate.releases import Radii, Releases, Values

PARTS = 4  # of each season, of which every one must have been measured

Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


class Phases(Fold):
    """The intervals of a mechanism that looks at measured steps only; infinite where a season may hide between them.

    Measured once a day, a stream of hours shows the same hour each day, and no release says what happens at others. So a
    step that is not measured has an interval only if measurements have seen each quarter of each season: at the latest a
    quarter after its phase came for the first time, in this season or in one before.

    Parameters
    ----------
    inner
        What intervals are otherwise.
    seasons
        Lengths of seasons in steps, from the public clock: a day and a week.
    """

    def __init__(self, inner: Fold, seasons: Sequence[int]) -> None:
        # of the state, after the rows of the other fold: the first measured step, and which phases after it were measured
        self._places = 1 + sum(seasons)
        more = -(-self._places // inner.columns)
        super().__init__(inner.columns, inner.law, inner.released, inner.rows + more)
        self.says_more = inner.says_more
        self._inner, self._seasons = inner, tuple(seasons)

    def advance(self, state: State, releases: Releases) -> tuple[State, Intervals]:
        """Those of the other fold, and which phases were measured."""
        after, found = self._inner.advance(state[: self._inner.rows], releases)
        begin, seen = self._measured(state)
        fresh = np.flatnonzero(releases.fresh)
        if not begin and len(fresh):
            begin = int(releases.steps[fresh[0]])
        known = np.ones(len(releases), dtype=np.bool_)
        for season, phases in zip(self._seasons, seen, strict=True):
            known &= _seen_all(releases.steps - begin, fresh, phases, season)
        kept = np.zeros((self.rows - self._inner.rows) * self.columns)
        kept[: self._places] = np.concatenate([[begin], *seen])
        whole = np.concatenate([after, kept.reshape(-1, self.columns)])
        known |= releases.fresh
        return whole, Intervals(partial(_radius, found, known), partial(_errors, found, known))

    def revised(self, state: State, revised: Releases) -> Radii | None:
        """As for other steps, from all that was measured so far."""
        found = self._inner.revised(state[: self._inner.rows], revised)
        if found is None:
            return None
        begin, seen = self._measured(state)
        after = revised.steps - begin
        known = np.ones(len(revised), dtype=np.bool_)
        for season, phases in zip(self._seasons, seen, strict=True):
            known &= _seen_all(after, np.zeros(0, dtype=np.int64), phases, season)
        return Radii(partial(_radius, found, known | revised.fresh))

    def _measured(self, state: State) -> tuple[int, list[Flags]]:
        """The first step that was measured, 0 before; and of each season the phases after it that were."""
        kept = state[self._inner.rows :].ravel()
        ends = 1 + np.cumsum(self._seasons)
        parts = [kept[end - season : end] > 0 for season, end in zip(self._seasons, ends, strict=True)]
        return int(kept[0]), parts


def _seen_all(after: Integers, fresh: Integers, phases: Flags, season: int) -> Flags:
    """Whether each part of a season was seen up to each step; adds to the phases what the fresh ones measure.

    Parameters
    ----------
    after
        Of each step, how many steps it comes after the first measured one.
    fresh
        Where measured steps are.
    phases
        Which phases of the season were measured before.
    season
        Its length.
    """
    known, longest = np.zeros(len(after), dtype=np.bool_), season // PARTS
    for number, (at, until) in enumerate(pairwise([0, *fresh.tolist(), len(after)])):
        if number:
            phases[after[at] % season] = True
        part, seen = after[at:until], np.flatnonzero(phases)
        if not len(seen) or not len(part):
            continue
        gaps = np.diff(seen)
        around = max(gaps.max(initial=0), season - seen[-1] + seen[0])
        if around <= longest:
            known[at:] = True
            phases[after[fresh[fresh >= at]] % season] = True
            break
        begun = (part < season) & (max(gaps.max(initial=0), 0) <= longest) & (part - seen[-1] <= longest)
        known[at:until] = begun
    return known


def _radius(inner: Radii, known: Flags, confidence: float) -> Values:
    return np.where(known[:, np.newaxis], inner(confidence), np.inf)


def _errors(inner: Intervals, known: Flags) -> Errors:
    own, shared, carry, lasting = inner.errors()
    return Errors(own, np.where(known[:, np.newaxis], shared, np.inf), carry, lasting)
