"""What the compiled loops of FAST and RescueDP share: why they pause, one draw, and what a step shows.

Both loops have the same parameters, `release(rows, begin, paused, first_step, …, scratch, account, state, outputs)`.
They release the steps rows[begin:] until Python must help, and return (index of the step, why). One controller serves
all columns, or, in the printed calibrations, each column has its own.

`release_blocks(rows, begin, paused, length, afresh, …)` does the same for blocks of `length` steps, each of which begins
`afresh`, with steps counted from its own beginning.
"""

from __future__ import annotations

from typing import Any

from tidegate.compiled import kernel
from tidegate.mechanisms.sampled.kernels.kalman import ESTIMATE
from tidegate.noise.kernels import laplace_draw

# why a loop returned
DONE = 0
NOISE = 1  # the caller supplies the noise of this step in `given`; the step is already charged
REFUSED = 2  # the ledger refused the step

FRESH, APPROXIMATED, PARTIAL = 1, 2, 5


@kernel
def draw(words: Any, at: int, part: float, factor: float, shift: int, given: Any, column: int) -> bool:
    """Draw the noise of one column; False where floating point cannot decide it."""
    noise, decided = laplace_draw(words[0, at], words[1, at], part, factor, shift)
    given[column] = noise
    return bool(decided)


@kernel
def restart(memory: Any, beginning: Any, account: Any, opened: Any) -> None:
    """Begin a block: what a run keeps, and the account of the block, are again what they are before any step."""
    memory[:] = beginning
    account[:] = opened


@kernel
def show(
    index: int, fresh: int, last: Any, belief: Any, grid: float, values: Any, status: Any, source: Any
) -> None:
    """Write what a step releases: the estimates, whether they were measured at this step, and when they last were."""
    status[index] = FRESH if fresh == last.size else (PARTIAL if fresh else APPROXIMATED)
    source[index] = last.max()
    for column in range(belief.shape[1]):
        values[index, column] = belief[ESTIMATE, column] * grid
