"""What mechanisms that work in periods share: what a period costs, and its final values when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate.core.charges import Charges, Integers
from tidegate.core.mechanism import Floats, Output
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.policy import Policy, WEvent
from tidegate.releases import Releases, Status

PERIODS = 1  # the law of spans that a period costs as a whole


class Revised(NamedTuple):
    """Final values of steps; one row per step."""

    steps: Any
    values: Any
    status: Any
    source: Any
    scale: Any
    units: Any
    ends: Any  # the step at which they became known


@dataclass(frozen=True)
class Periodic(Mechanism):
    """A mechanism whose stream is cut into periods of w steps, the policy's w; the first begins at step 1.

    Its charges are public: they follow from the configuration and from public sample times, never from data. A period
    whose beginning was not seen, or of which steps were passed over, is *torn*: it gets no final values.
    """

    supports: ClassVar[tuple[type[Policy], ...]] = (WEvent,)
    revised: ClassVar[tuple[str, ...]] = Revised._fields

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

    @property
    def shown_scale(self) -> float:
        """The noise scale of a measurement, in the values' unit."""
        raise NotImplementedError

    def charged(self, first: int, count: int, period: int, steps: Integers) -> Charges:
        """What steps cost, if each period costs so much as a whole and its steps so much each."""
        w, position = self.window, (first - 1) % self.window
        units = np.resize(np.roll(steps, -position), count)
        begins = range(first + (1 - first) % w, first + count, w) if period else range(0)
        spans = [[PERIODS, (step - 1) // w, step, self._last(step), period] for step in begins]
        return Charges(first, units, np.array(spans, dtype=np.int64).reshape(-1, 5))

    def _last(self, step: int) -> int:
        """The last step of the period that begins at a step."""
        end: int = step + self.window - 1
        return end if self.policy.horizon is None else min(end, self.policy.horizon)

    def status_of(self, chosen: Any, first: int) -> Any:
        """What is said of steps, by which of them are samples."""
        return np.where(chosen, np.int8(Status.FRESH), np.int8(Status.APPROXIMATED))

    def final(self, first: int, values: Floats, chosen: Any, units: Integers) -> Revised:
        """Final values of the first steps of a period, in the unit of the values."""
        count = len(values)
        steps = np.arange(first, first + count)
        last = np.maximum.accumulate(np.where(chosen, steps, 0))
        end = first + count - 1
        return Revised(
            steps,
            values,
            self.status_of(chosen, first),
            np.where(last >= first, last, end),  # before its first sample a step rests on later ones
            np.full(count, self.shown_scale),
            units[:count],
            np.full(count, end),
        )

    def together(self, finals: list[Revised]) -> Revised:
        """The final values of several periods, or of none."""
        nothing = np.zeros(0, dtype=np.int64)
        none = Revised(
            nothing,
            np.zeros((0, self.outputs)),
            nothing.astype(np.int8),
            nothing,
            np.zeros(0),
            nothing,
            nothing,
        )
        return Revised(*(np.concatenate(parts) for parts in zip(none, *finals, strict=True)))

    def at_the_end(self, final: Revised | None) -> Output | None:
        """What the end of the stream releases: no step, and final values of the steps of an open period."""
        if final is None:
            return None
        nothing = np.zeros(0, dtype=np.int64)
        return Output(
            np.zeros((0, self.outputs)),
            nothing.astype(np.int8),
            nothing,
            np.zeros(0),
            nothing,
            revised=tuple(final),
        )

    def attach(self, releases: Releases, more: Any, revised: Any) -> Releases:
        """Releases with the final values that became known with them, for readers."""
        releases.revised = revision(Revised(*revised), releases.unit)
        return releases


def revision(final: Revised, unit: Fraction) -> Releases | None:
    """Final values for readers; those of one commit are of consecutive steps."""
    steps, values, status, source, scale, units, ends = final
    if not len(steps):
        return None
    delay = int((ends - steps).max())
    return Releases(int(steps[0]), values, status, source, scale, units, unit, delay, ends=ends)
