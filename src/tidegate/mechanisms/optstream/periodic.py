"""What mechanisms that work in periods have in common: their length, their delay, and what a period is charged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.optstream.period_blocks import Integers
from tidegate.policy import Policy, WEvent


@dataclass(frozen=True)
class Periodic(Mechanism):
    """A mechanism whose stream is cut into periods of w steps, the policy's w; see `periods.PeriodicRun`.

    Its charges are public: they follow from the configuration and from public sample times, never from data, and
    are made before a run looks at the data they pay for.
    """

    supports: ClassVar[tuple[type[Policy], ...]] = (WEvent,)

    @property
    def window(self) -> int:
        """w, the steps of a period."""
        length = self.policy.window
        assert length is not None
        return length

    @property
    def delay(self) -> int:
        """How many steps the final values of a period's first step take; at the step itself there is an estimate."""
        return self.window - 1

    @property
    def revises(self) -> bool:
        """Every period has final values when it ends."""
        return True

    @property
    def measured_columns(self) -> int:
        """How many numbers are measured of a sample or sum: the columns of the stream."""
        return self.columns

    @property
    def _epsilon(self) -> Fraction:
        return self.policy.budget.total

    def charges(self, times: Sequence[int]) -> tuple[int, Integers]:
        """The units of a period with samples at these positions: those charged to it once, and those of each step."""
        raise NotImplementedError
