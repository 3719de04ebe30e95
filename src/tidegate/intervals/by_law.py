"""Nothing is learnt: every value is the truth and noise."""

from __future__ import annotations

from functools import partial

import numpy as np

from tidegate.intervals.fold import Errors, Fold, Intervals, State
from tidegate.noise.law import AnyLaw, SpreadLaw
from tidegate.releases import Releases


class ByLaw(Fold):
    """For values that are the truth and noise at every step.

    Noise that steps share (cubes, semiorders) is uncorrelated from step to step, so that its variances add up. That of
    running sums is taken as if it stayed: a counter itself knows better how far answers from its sums are off.

    Parameters
    ----------
    columns
        The columns of a release.
    law
        The noise of a released value.
    """

    law: AnyLaw

    def __init__(self, columns: int, law: AnyLaw) -> None:
        super().__init__(columns, law, law, 0)

    def advance(self, state: State, releases: Releases) -> tuple[State, Intervals]:
        """Half-widths are those of the law."""
        return state, Intervals(partial(releases._radius_by, self.law), partial(self._errors, releases))

    def _errors(self, releases: Releases) -> Errors:
        variance = np.broadcast_to(self.law.variance(releases.scale)[:, np.newaxis], releases.values.shape)
        nothing = np.zeros(releases.values.shape)
        carry = np.full(releases.values.shape, 1.0 if isinstance(self.law, SpreadLaw) else 0.0)
        return Errors(nothing, np.where(releases.fresh[:, np.newaxis], variance, np.inf), carry, nothing)
