"""Alarms: a value beyond a threshold, a jump, too little for too long. Each says whether the noise could have made it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from tidegate.queries.standing.operator import Known, Meaning, Operator, Recent, Row, difference
from tidegate.queries.standing.windows import Window


class _Alarmed(Operator):
    """A question whose rows say whether there is an alarm, and whether even the end of the interval raises it."""

    extras: ClassVar[tuple[str, ...]] = ("alarm", "certain")

    def __init__(self, meaning: Meaning, columns: Sequence[str] = (), *, threshold: float) -> None:
        super().__init__(meaning, columns)
        self.threshold = threshold


class Alarm(_Alarmed):
    """Whether the value of a step, or the sum or mean of the last steps, is above (or below) a threshold.

    Parameters
    ----------
    meaning, columns
        As for every operator.
    threshold
        Public.
    below
        Whether values below it are alarming, and not those above.
    window
        Over which the value is taken, if not of the step alone.
    """

    def __init__(
        self,
        meaning: Meaning,
        columns: Sequence[str] = (),
        *,
        threshold: float,
        below: bool = False,
        window: Window | None = None,
    ) -> None:
        super().__init__(meaning, columns, threshold=threshold)
        self.below = below
        self.window: Window | None = window

    def push(self, known: Known) -> Iterator[Row]:
        """The answer at the next step; a window that is not yet full raises no alarm."""
        full = True
        values, radius = known.values, known.radius
        if self.window is not None:
            values, radius = self.window.follow(known)
            full = self.window.full
        for row in self._rows(known.step, values, radius):
            if self.below:
                alarm, certain = row.value < self.threshold, row.high < self.threshold
            else:
                alarm, certain = row.value > self.threshold, row.low > self.threshold
            yield row._replace(more=(full and alarm, full and alarm and certain))


class LowSignal(Alarm):
    """Whether the sum of the last steps is below a threshold, once there are so many steps."""

    def __init__(
        self, meaning: Meaning, columns: Sequence[str] = (), *, threshold: float, length: int
    ) -> None:
        window = Window(meaning, columns, length=length)
        super().__init__(meaning, columns, threshold=threshold, below=True, window=window)


class Jump(_Alarmed):
    """Whether a value differs by a threshold or more from that so many steps before: a jump or a drop.

    The value of a row is the change.

    Parameters
    ----------
    meaning, columns
        As for every operator.
    threshold
        Public.
    length
        How many steps before.
    below, above
        Whether drops and jumps are alarming.
    """

    def __init__(
        self,
        meaning: Meaning,
        columns: Sequence[str] = (),
        *,
        threshold: float,
        length: int,
        below: bool = True,
        above: bool = True,
    ) -> None:
        super().__init__(meaning, columns, threshold=threshold)
        self.below, self.above = below, above
        self._length = length
        self._recent = Recent(length + 1)

    def push(self, known: Known) -> Iterator[Row]:
        """The answer at the next step; nothing before there is one to compare with."""
        self._recent.put(known)
        earlier = self._recent.back(self._length)
        if earlier is None:
            return
        now, before = (self._plain(word) for word in (known, earlier))
        change, radius = difference(now, before)
        for at in self.chosen:
            value, half = float(change[at]), float(radius[at])
            wanted = self.above if value >= 0 else self.below
            alarm = wanted and abs(value) >= self.threshold
            certain = alarm and abs(value) - half >= self.threshold
            label = self.meaning.labels[at]
            yield Row(known.step, label, value, value - half, value + half, (alarm, certain))

    def _plain(self, known: Known) -> Known:
        """The step in the terms of its answers."""
        found, low, high = self.meaning.read(known.values, known.radius)
        # a mean is no linear function of what was released, and the noise of sums is shared
        apart = self.meaning.direct and not self.meaning.sums
        return Known(known.step, found, (high - low) / 2, known.errors if apart else None)

    def revise(self, known: Known) -> None:
        """A later word on an earlier step."""
        self._recent.exchange(known)
