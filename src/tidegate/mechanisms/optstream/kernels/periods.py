"""Compiled parts of mechanisms that work in periods: running sums of features, and values before a period has ended."""

from __future__ import annotations

from typing import Any

from tidegate.compiled import kernel

# what stands for a step that is not a sample, until its period ends
HOLD = 0  # the last sample
LINE = 1  # the line through the last two samples, prolonged
LAST_PERIOD = 2  # the curve of the period before, moved to the last sample


@kernel
def add_to_sums(rows: Any, position: int, labels: Any, sums: Any) -> None:
    """Add steps from `position` (0-based) of a period on to the sum of every part that contains them."""
    for index in range(rows.shape[0]):
        for level in range(labels.shape[0]):
            part = labels[level, position + index]
            for column in range(rows.shape[1]):
                sums[part, column] += rows[index, column]


@kernel
def add_periods_to_sums(rows: Any, labels: Any, sums: Any) -> None:
    """The same for whole periods: sums (periods, parts, columns)."""
    length = labels.shape[1]
    for period in range(sums.shape[0]):
        add_to_sums(rows[period * length : (period + 1) * length], 0, labels, sums[period])


@kernel
def causal_values(
    first_step: int,
    length: int,
    chosen: Any,
    shown: Any,
    recent: Any,
    recent_steps: Any,
    mode: int,
    curves: Any,
    has_curve: bool,
    nonnegative: bool,
    values: Any,
    source: Any,
) -> None:
    """What is known of each step at the step itself.

    `shown` are the samples at the `chosen` steps, `recent` the last two samples before, brought up to date.
    `curves[p]` is the curve of the period before the p-th one of these steps; the first of them counts if
    `has_curve`.
    """
    count = 0
    columns = values.shape[1]
    first_period = (first_step - 1) // length
    for index in range(values.shape[0]):
        step = first_step + index
        if chosen[index]:
            recent[0, :] = recent[1, :]
            recent[1, :] = shown[count]
            recent_steps[0] = recent_steps[1]
            recent_steps[1] = step
            count += 1
        period = (step - 1) // length
        before, last = recent_steps[0], recent_steps[1]
        curve = mode == LAST_PERIOD and (has_curve or period > first_period)
        source[index] = last if last > 0 or not curve else period * length
        for column in range(columns):
            value = recent[1, column] if last > 0 else 0.0
            if curve and not chosen[index]:
                drawn = curves[period - first_period]
                value += drawn[step - 1 - period * length, column]
                if last > 0:
                    value -= drawn[
                        last - 1 - period * length if last > period * length else length - 1, column
                    ]
            elif mode == LINE and before > 0 and not chosen[index]:
                value += (recent[1, column] - recent[0, column]) * (step - last) / (last - before)
            values[index, column] = max(value, 0.0) if nonnegative else value
