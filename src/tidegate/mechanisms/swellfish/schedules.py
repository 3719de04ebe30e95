"""Schedules of Swellfish: how many units each step may spend, and the noise scale that follows."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import float_up
from tidegate.policy.kernels import NONE
from tidegate.policy.promises import Promises

if TYPE_CHECKING:
    from tidegate.mechanisms.swellfish.swellfish import Swellfish

Integers = npt.NDArray[np.int64]
FORMS = ("windowed", "printed", "optimal")


class Schedule:
    """What the steps of a stream may spend under the specifications in force.

    Parameters
    ----------
    mechanism
        Says which form the schedule has, and which share of the promises it may use.
    promises
        What the specifications demand, in units of the account.
    """

    def __init__(self, mechanism: Swellfish, promises: Promises) -> None:
        self.promises = promises
        self.mechanism = mechanism
        policy = mechanism.secrets_policy
        doubled = 2 if policy.doubles(mechanism.columns) else 1
        reach = doubled * Fraction(policy.max_change or 1) / Fraction(mechanism.grid)
        # a step that spends n units loses at most n·ε/N for a change by max_change: its scale is at least this / n
        self._scale_of_one = float_up(reach * promises.units / Fraction(policy.epsilon or 1))
        self._whole: Integers | None = None

    def units(self, first: int, last: int) -> Integers:
        """What each of the steps first to last spends, rounded down; refused where a step would have no noise."""
        form, policy = self.mechanism.schedule, self.promises.policy
        if last < first:
            return np.zeros(0, dtype=np.int64)
        if form == "optimal":
            units = self._optimal(first, last)
        elif form == "printed":
            units = self.promises.printed(first, last)
        else:
            units = self.promises.windowed(first, last)
        if policy.promise == "joint" and form != "optimal":
            units = np.minimum(units, self.promises.joint(first, last))
        bare = np.flatnonzero(units >= NONE)
        if len(bare):
            raise InvalidParameter(
                "specifications",
                f"step {first + int(bare[0])}",
                "relevant at every step: nothing is hidden there, so it would have no noise",
                'add a baseline secret with intervals="always"',
            )
        share = Fraction(self.mechanism.share)
        if share != 1:  # units are below 2^50; the product is taken in two parts so that it cannot overflow
            whole, rest = np.divmod(units, share.denominator)
            units = whole * share.numerator + rest * share.numerator // share.denominator
        if int(units.min()) < 1:
            raise InvalidParameter(
                "share", self.mechanism.share, "large enough for one unit a step", "use a larger share or ε"
            )
        return units

    def _optimal(self, first: int, last: int) -> Integers:
        from tidegate.mechanisms.swellfish.optimal_schedule import optimal_units  # loads the solver

        horizon = self.promises.policy.horizon
        assert horizon is not None
        if self._whole is None:
            self._whole = optimal_units(self.promises, 1, horizon)
        return self._whole[first - 1 : last]

    def scales(self, units: Integers) -> npt.NDArray[np.float64]:
        """The noise scale in grid units for steps that spend so many units, rounded up."""
        scales = self._scale_of_one / units
        # a quotient without a remainder is exact, as in `publication_scale`; units are below 2^50
        exact = np.fmod(self._scale_of_one, scales) == 0.0
        return np.where(exact, scales, np.nextafter(scales, np.inf))
