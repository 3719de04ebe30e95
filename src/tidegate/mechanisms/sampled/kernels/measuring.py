"""What the compiled loops of FAST and RescueDP share: one draw, a block that begins, and what a step shows.

Both loops have the same parameters; `tidegate.mechanisms.kernels.loops` says how they pause. One controller serves all
columns, or, in the printed calibrations, each column has its own.

Where `afresh` is not None it says how long blocks are, each of which begins anew, with steps counted from its own
beginning, and what the loop's memory and the account are then.
"""

from __future__ import annotations

from typing import Any

from tidegate.compiled import kernel, lean
from tidegate.mechanisms.kernels.loops import APPROXIMATED, FRESH, PARTIAL, largest
from tidegate.mechanisms.sampled.kernels.kalman import ESTIMATE
from tidegate.noise.kernels import laplace_draw


@lean
def draw(words: Any, at: int, law: Any, given: Any, column: int) -> bool:
    """Draw the noise of one column, whose `constants` are `law`; False where floating point cannot decide it."""
    part, factor, shift = law
    noise, decided = laplace_draw(words[0, at], words[1, at], part, factor, shift)
    given[column] = noise
    return bool(decided)


@kernel
def restart(memory: Any, beginning: Any, numbers: Any, opened: Any) -> None:
    """Begin a block: what a run keeps, and the account of the block, are again what they are before any step."""
    memory[:] = beginning
    numbers[:] = opened


@lean
def show(
    index: int, fresh: int, last: Any, belief: Any, grid: float, values: Any, status: Any, source: Any
) -> None:
    """Write what a step releases: the estimates, whether they were measured at this step, and when they last were."""
    status[index] = FRESH if fresh == last.size else (PARTIAL if fresh else APPROXIMATED)
    source[index] = largest(last)
    for column in range(belief.shape[1]):
        values[index, column] = belief[ESTIMATE, column] * grid
