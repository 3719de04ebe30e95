"""Threshold: below which value nearly all observations of a sample lie, released once, with the sample's last step."""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tidegate._mechanisms.clipping.nested import Rows
from tidegate.core.charges import Charges
from tidegate.core.mechanism import Matrix, Output
from tidegate.core.rows import Draws
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.mechanisms.clipping import threshold as configured
from tidegate.mechanisms.clipping.released_threshold import ReleasedThreshold
from tidegate.mechanisms.mechanism import describe_value
from tidegate.policy import Event
from tidegate.releases import Releases, Status


class State(NamedTuple):
    """All that is carried from step to step."""

    sample: Rows  # SECRET: the observations so far; forgotten when the threshold is drawn
    taken: Any  # how many there were


@dataclass(frozen=True)
class Threshold(configured.Threshold):
    """Release a threshold once; :class:`tidegate.mechanisms.Threshold` has parameters and privacy.

    One observation per step. The steps before the last of the sample are silent, and the last one releases the
    threshold. Each costs ε/w, also if the stream ends before. Further steps are refused. An observation beyond the bound
    counts as the bound, one below 0 or that is no number as 0. A step that is passed over is no observation.

    Examples
    --------
    >>> import tidegate as tg
    >>> from tidegate.core.session import Session
    >>> threshold = Threshold(tg.Event(epsilon="1", max_change=1440), sample=1000, above=10)
    >>> released = threshold.read(Session(threshold).push_batch(np.arange(1000)))
    >>> 1 <= released.value <= 1440
    True
    """

    columns: ClassVar[int] = 1
    outputs: ClassVar[int] = 1
    rounding: ClassVar[str] = "nearest"
    more: ClassVar[tuple[str, ...]] = ()
    most_spans: ClassVar[int] = 0
    noise_in_state: ClassVar[bool] = False
    selects: ClassVar[bool] = (
        True  # a candidate is chosen by noisy counts: the value itself has no noise, and no scale
    )

    def __post_init__(self) -> None:
        if self.calibration != "sound":
            raise InvalidParameter("calibration", self.calibration, "'sound'", "leave it out")
        super().__post_init__()
        if self.policy.delta and not isinstance(self.policy, Event):
            raise InvalidParameter(
                "policy", "WEvent with a delta", "WEvent with ε alone, or Event", "drop delta"
            )
        if self.policy.horizon is not None and self.policy.horizon < self.sample:
            raise InvalidParameter(
                "sample", self.sample, f"at most the {self.policy.horizon} steps of the stream", "lower it"
            )
        if Fraction(self.grid).numerator != 1:
            raise InvalidParameter(
                "grid", self.grid, "one over a whole number", 'write for example grid="0.01"'
            )

    @property
    def clamp(self) -> Fraction:
        """The bound, so that no refusal depends on an observation."""
        return self.largest * Fraction(self.grid)

    @property
    def units(self) -> int:
        """One for each step of a window."""
        return self.policy.steps_charged

    def describe(self) -> dict[str, Any]:
        """Identify the configuration exactly, as JSON."""
        named = {
            each.name: describe_value(getattr(self, each.name))
            for each in fields(self)
            if each.name != "policy"
        }
        return {"mechanism": type(self).__name__, "policy": self.policy.describe(), **named}

    def begin(self, first: int) -> State:
        """No observation."""
        return State(Rows(np.zeros(0, dtype=np.int64)), np.zeros(1, dtype=np.int64))

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step costs the same, and the sample has a public size."""
        taken = int(state.taken[0])
        if taken + count > self.sample:
            raise InvalidInput(
                f"a threshold is released once, from {self.sample} observations, and {count} more would make "
                f"{taken + count}; nothing was charged: push the sample alone, or begin another one."
            )
        return Charges(first, np.ones(count, dtype=np.int64))

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Take observations into the sample; the last one of it pays for the threshold, as all before it did."""
        count = len(rows)
        values, source = np.full((count, 1), np.nan), np.zeros(count, dtype=np.int64)
        status = np.full(count, int(Status.SILENT), dtype=np.int8)
        state.sample.append(rows[:, 0])
        state.taken[0] += count
        if count and state.taken[0] == self.sample:
            found = self.draw(state.sample.content, noise.source, self.sample)
            values[-1], status[-1], source[-1] = found.value, int(Status.FRESH), first + count - 1
            state.sample.forget()
        # the scale of smooth noise depends on the sample, so no scale is released
        return Output(values, status, source, np.zeros(count), np.ones(count, dtype=np.int64))

    def read(self, releases: Releases) -> ReleasedThreshold | None:
        """The threshold among releases, exactly; None where it is not."""
        found = releases.values[releases.fresh]
        if not len(found):
            return None
        units = round(Fraction(float(found[0, 0])) / Fraction(self.grid))
        return ReleasedThreshold(units * Fraction(self.grid), units, self.sample)
