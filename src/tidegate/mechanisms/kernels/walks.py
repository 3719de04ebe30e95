"""The compiled way of learning how far a stream moves between measurements."""

from __future__ import annotations

from typing import Any

from tidegate.compiled import kernel

# what a walk is known by, a row of state each
SQUARES = 0  # Σ of squared movements, less what noise explains
GAPS = 1  # Σ of the steps that they took
COUNT = 2  # how many they are
VALUE = 3  # what was last measured
STEP = 4  # and when; 0 before anything was
VARIANCE = 5  # and the variance of its noise


@kernel
def follow_walk(state: Any, values: Any, steps: Any, variances: Any, subtracts: bool) -> None:
    """Learn from measured rows, in their order: squares, gaps, count, and the last value, its step and its variance."""
    squares, gaps, count = state[SQUARES], state[GAPS], state[COUNT]
    last, at, noise = state[VALUE], state[STEP], state[VARIANCE]
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            if at[column] > 0:
                moved = values[row, column] - last[column]
                explained = variances[row] + noise[column] if subtracts else 0.0
                squares[column] += moved * moved - explained
                gaps[column] += steps[row] - at[column]
                count[column] += 1
            last[column] = values[row, column]
            at[column] = steps[row]
            noise[column] = variances[row]
