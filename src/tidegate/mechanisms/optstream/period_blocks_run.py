"""Steps on their way through a period: what is recorded of them, and what public schedules charge them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.ledger import Ledger
from tidegate.mechanisms.optstream.sampling_times import fitting
from tidegate.mechanisms.run import last_step

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Block(NamedTuple):
    """Consecutive steps: their rows, and what is filled in for each of them."""

    first_step: int
    rows: Integers
    values: Floats  # known at the step itself, in grid units
    chosen: npt.NDArray[np.bool_]  # which steps are samples
    units: Integers  # what their data were charged
    source: Integers  # the last measured step
    samples: npt.NDArray[np.bool_] | None = None  # those that are paid for, where they share noise
    noise: Integers | None = None  # and what each step has of it

    @classmethod
    def of(cls, rows: Integers, first_step: int) -> Block:
        """A block to be filled in."""
        steps = len(rows)
        units, source = (np.zeros(steps, dtype=np.int64) for _ in range(2))
        return cls(first_step, rows, np.empty(rows.shape), np.zeros(steps, dtype=np.bool_), units, source)

    def part(self, start: int, stop: int) -> Block:
        """Some of the steps; filling them in fills in this block."""
        fields: dict[str, Any] = {
            name: None if field is None else field[start:stop]
            for name, field in self._asdict().items()
            if name != "first_step"
        }
        return Block(self.first_step + start, **fields)


def public_steps(
    first_step: int,
    steps: int,
    w: int,
    steps_of: Callable[[Integers], npt.NDArray[Any]],
    times: tuple[Integers, Integers, Integers],
) -> npt.NDArray[Any]:
    """What is public of steps, by the sample times of their periods.

    `times` are the usual sample times, those of the present period, and those from the next period on, if they
    change; `steps_of` gives an array of the w steps of a period with such times.
    """
    usual, present, pending = times
    position = (first_step - 1) % w
    ahead = [present] if position else []
    rest = usual
    if len(pending):
        ahead.append(pending[fitting(usual.tolist(), pending.tolist())])
        rest = pending
    periods = -(-(position + steps) // w)
    pieces = [steps_of(each) for each in ahead[:periods]]
    pieces.append(np.tile(steps_of(rest), max(0, periods - len(pieces))))
    return np.concatenate(pieces)[position : position + steps]


def charge_periods(ledger: Ledger, first_step: int, units: Integers, w: int, span_units: int) -> None:
    """Charge steps, and each period that begins among them."""
    if not span_units:
        ledger.charge_batch(first_step, units)
        return
    begin = 0
    while begin < len(units):
        step = first_step + begin
        end = begin + w - (step - 1) % w
        if (step - 1) % w == 0:
            ledger.charge_span(step, last_step(ledger, step + w - 1), span_units)
            ledger.charge(step, int(units[begin]))  # apart: the span has brought the ledger to this step
            begin += 1
        ledger.charge_batch(first_step + begin, units[begin:end])
        begin = end
