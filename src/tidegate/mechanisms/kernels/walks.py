"""The compiled way of learning how far a stream moves between measurements."""

from __future__ import annotations

from typing import Any

from tidegate.compiled import lean

# what a walk is known by, a row of state each
SQUARES = 0  # Σ of squared movements, less what noise explains
GAPS = 1  # Σ of the steps that they took
COUNT = 2  # how many they are
VALUE = 3  # what was last measured
STEP = 4  # and when; 0 before anything was
VARIANCE = 5  # and the variance of its noise


@lean
def follow_walk(state: Any, values: Any, rows: Any, steps: Any, variances: Any, subtracts: bool) -> None:
    """Learn from the rows that were measured, in their order; each of these has a step and a variance of its own."""
    squares, gaps, count = state[SQUARES], state[GAPS], state[COUNT]
    last, at, noise = state[VALUE], state[STEP], state[VARIANCE]
    for index in range(rows.size):
        row, step, variance = rows[index], steps[index], variances[index]
        for column in range(values.shape[1]):
            if at[column] > 0:
                moved = values[row, column] - last[column]
                explained = variance + noise[column] if subtracts else 0.0
                squares[column] += moved * moved - explained
                gaps[column] += step - at[column]
                count[column] += 1
            last[column] = values[row, column]
            at[column] = step
            noise[column] = variance
