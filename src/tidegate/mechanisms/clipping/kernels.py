"""Compiled parts of the clipped sum: cutting values off, and the smooth sensitivity of a quantile."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel


@kernel
def clip_values(rows: Any, limit: int, bound: int, clipped: Any) -> int:
    """Write the values, cut to [0, limit]; returns how many lay outside [0, bound]."""
    outside = 0
    for step in range(rows.shape[0]):
        for column in range(rows.shape[1]):
            value = rows[step, column]
            outside += value < 0 or value > bound
            clipped[step, column] = min(max(value, 0), limit)
    return outside


@kernel
def smooth_quantile(ordered: Any, rank: int, bound: int, smoothing: float) -> float:
    """max_k e^(−b·k)·(A_k + 1), A_k = max_{t=0..k+1} σ(P + t) − σ(P + t − k − 1), with σ = 0 before and B after.

    Stops at the k from which even the whole range [0, B] would no longer count.
    """
    count = ordered.size
    best = 0.0
    for distance in range(count + 2):
        shrink = np.exp(-smoothing * distance)
        if shrink * (bound + 1) <= best:
            break
        widest: Any = np.int64(0)
        for shift in range(distance + 2):
            upper = rank + shift
            lower = upper - distance - 1
            high = ordered[upper - 1] if upper <= count else bound
            low = ordered[min(lower, count) - 1] if lower >= 1 else 0
            if lower > count:
                low = bound
            widest = max(widest, high - low)
        best = max(best, shrink * (widest + 1))
    return best
