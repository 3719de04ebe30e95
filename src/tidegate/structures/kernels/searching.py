"""Compiled search for hyper-parameters: the largest posterior, along the coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.compiled import kernel
from tidegate.structures.kernels import state_space as k
from tidegate.structures.kernels.replaying import likelihood

# what is searched: logarithms of variances, and logits of memories
LEVEL, ROUGH, ROUGH_MEMORY, SMOOTH, SMOOTH_MEMORY, SEASON, SEASON_STEP = range(7)
SEARCHED = 7
MEMORY_BOUND = 7.0  # of the logit of φ: up to 0.999
SHRINKING = 0.5  # of a coordinate's step, where neither side is better


@kernel
def write_parameters(searched: Any, parameters: Any) -> None:
    """The filter's parameters from the searched ones; those of the prior stay as they are."""
    rough = 1.0 / (1.0 + np.exp(-searched[ROUGH_MEMORY]))
    slow = 1.0 / (1.0 + np.exp(-searched[SMOOTH_MEMORY]))
    fast = slow * slow  # forgets twice as fast
    parameters[k.LEVEL_NOISE] = np.exp(searched[LEVEL])
    parameters[k.ROUGH_MEMORY] = rough
    parameters[k.ROUGH_NOISE] = np.exp(searched[ROUGH]) * (1.0 - rough * rough)
    parameters[k.RISING_MEMORY], parameters[k.FALLING_MEMORY] = slow, fast
    share = 1 / (1 - slow * slow) - 2 / (1 - slow * fast) + 1 / (1 - fast * fast)
    parameters[k.SMOOTH_NOISE] = np.exp(searched[SMOOTH]) / share
    parameters[k.SEASON_PRIOR] = np.exp(searched[SEASON])
    parameters[k.SEASON_NOISE] = np.exp(searched[SEASON_STEP])


@kernel
def score(candidate: Any, centre: Any, sureness: Any, parameters: Any, data: Any, weight: Any) -> Any:
    """The log-posterior of a candidate; data = (steps, phases, values, noise, laplace)."""
    write_parameters(candidate, parameters)
    steps, phases, values, noise, laplace = data
    result = likelihood(steps, phases, values, noise, laplace, parameters, weight, 1)
    for at in range(SEARCHED):
        result -= 0.5 * ((candidate[at] - centre[at]) / sureness[at]) ** 2
    return result


@kernel
def search(
    candidates: Any,
    widths: Any,
    coordinates: int,
    rounds: int,
    centre: Any,
    sureness: Any,
    parameters: Any,
    data: Any,
    weight: Any,
) -> Any:
    """Try each coordinate of the best candidate in both directions, `rounds` times; the row of that candidate.

    It is changed in place, with its width. Where neither side is better, the top of the parabola through the three
    scores is believed.
    """
    chosen, found = 0, -np.inf
    for row in range(candidates.shape[0]):
        reached = score(candidates[row], centre, sureness, parameters, data, weight)
        if reached > found:
            chosen, found = row, reached
    best, width = candidates[chosen], widths[chosen]
    for _ in range(rounds):
        for at in range(coordinates):
            before, moved = best[at], False
            both, tilt = (
                0.0,
                0.0,
            )  # how much worse the two sides are together, and the second one more than the first
            for side in range(2):
                best[at] = before + (width[at] if side == 0 else -width[at])
                bounded = at in (ROUGH_MEMORY, SMOOTH_MEMORY) and abs(best[at]) > MEMORY_BOUND
                reached = -np.inf if bounded else score(best, centre, sureness, parameters, data, weight)
                lost = found - reached
                if lost < 0.0:
                    found, moved = reached, True
                    break
                both += lost
                tilt = lost - tilt
            if not moved:
                best[at] = before
                if np.isfinite(both) and both > 0.0:
                    best[at] += 0.5 * width[at] * tilt / both
                    found += 0.125 * tilt * tilt / both
                width[at] *= SHRINKING
    return chosen
