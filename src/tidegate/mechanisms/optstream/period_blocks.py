"""Steps on their way through a period: what is recorded of them, and what public schedules charge them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

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

    @classmethod
    def of(cls, rows: Integers, first_step: int) -> Block:
        """A block to be filled in."""
        steps = len(rows)
        integers = (np.zeros(steps, dtype=np.int64) for _ in range(2))
        return cls(first_step, rows, np.empty(rows.shape), np.zeros(steps, dtype=np.bool_), *integers)

    def part(self, start: int, stop: int) -> Block:
        """Some of the steps; filling them in fills in this block."""
        fields = (self.rows, self.values, self.chosen, self.units, self.source)
        rows, values, chosen, units, source = (field[start:stop] for field in fields)
        return Block(self.first_step + start, rows, values, chosen, units, source)  # type: ignore[arg-type]


def public_units(
    first_step: int,
    steps: int,
    w: int,
    units_of: Callable[[Integers], tuple[int, Integers]],
    times: tuple[Integers, Integers, Integers],
) -> tuple[int, Integers]:
    """The charges of a period, and of steps: all of them public.

    `times` are the usual sample times, those of the present period, and those from the next period on, if they
    change; `units_of` gives the charges of a period, whatever its times, and of its w steps.
    """
    usual, present, pending = times
    position = (first_step - 1) % w
    ahead = [present] if position else []
    rest = usual
    if len(pending):
        ahead.append(pending[fitting(usual.tolist(), pending.tolist())])
        rest = pending
    periods = -(-(position + steps) // w)
    pieces = [units_of(each)[1] for each in ahead[:periods]]
    span, usual_units = units_of(rest)
    pieces.append(np.tile(usual_units, max(0, periods - len(pieces))))
    return span, np.concatenate(pieces)[position : position + steps]


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
