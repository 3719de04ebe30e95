"""Algorithm 3 of the OptStream paper as it is printed: for reproduction and audit, not for people's data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tidegate.mechanisms.optstream.l1_sampling import L1Sampling

Integers = npt.NDArray[np.int64]


def choose_as_printed(
    rows: Integers, noise: Integers, rule: L1Sampling, memory: Integers, values: Integers
) -> npt.NDArray[np.bool_]:
    """Which of some steps of one period (steps × columns) are samples.

    The first step is. A later one is if its noisy score since the last sample reaches the noisy threshold (lines 5 to
    7). Only where that has made one a sample it is looked whether the steps that are left are needed to reach k (lines
    8 and 9), so a period may end with fewer than k samples, and its last step need not be one. With k samples the
    search ends (line 10). `memory` and `values` are the sampler's, as in `l1_sampling.choose_steps`.
    """
    from tidegate.mechanisms.optstream import l1_sampling as loop  # which imports this file

    chosen = np.zeros(len(rows), dtype=np.bool_)
    for index, row in enumerate(rows):
        memory[loop.POSITION] += 1
        position, start, taken = memory[[loop.POSITION, loop.START, loop.TAKEN]]
        left, run = rule.samples - taken, position - start
        if position == 1 or (left and rule.length - start <= left):
            chosen[index] = True
        elif left:
            rise, inner = row - values[0], np.arange(1, run)[:, np.newaxis]
            strayed = np.abs(inner * rise - run * (values[1:run] - values[0])).sum()
            chosen[index] = int(strayed) // run + noise[index] >= memory[loop.LIMIT]
        if chosen[index]:
            memory[loop.TAKEN], memory[loop.START], run = taken + 1, position, 0
        values[run] = row
    return chosen
