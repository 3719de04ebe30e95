"""How close Tide's rule for measuring comes to the best schedule there is: a program over all shares of a small window.

    python benchmarks/tide_schedule.py [--models 3] [--window 8]

For models drawn at random (how large and how lasting level, residuals and season are, against the noise of a window's
budget): the mean predicted error of a schedule that repeats after a window, when it has settled. Best: over all sets of
steps with equal shares, then over all shares by a local search from the best sets. Tide's: the best of its even choices.
"""

from __future__ import annotations

import argparse
from fractions import Fraction
from itertools import combinations

from sizes import scaled

from timing import best as _  # noqa: F401  isort: skip  sets the number of threads first

import numpy as np
from scipy.optimize import minimize

from tidegate.mechanisms.tide import plan
from tidegate.mechanisms.tide.forecast import predicted_error
from tidegate.mechanisms.tide.schedule import choices
from tidegate.structures.kernels import state_space as k
from tidegate.structures.kernels.hearing import effective_noise
from tidegate.structures.kernels.replaying import phases_of
from tidegate.structures.kernels.searching import SEARCHED
from tidegate.structures.state_space_model import (
    CENTRES,
    SURENESS,
    VARIANCES,
    Prior,
    Structure,
    parameters_of,
)

CYCLES = scaled(60, 6)  # windows after which an error has settled
STARTS = 4  # sets of steps from which shares are improved


def error(structure: Structure, parameters: np.ndarray, shares: np.ndarray, whole: float) -> float:
    """Mean standard error over a window in which step i gets shares[i] of a budget whose noise variance is `whole`."""
    states = structure.states
    covariance, work, spread = np.zeros((states, states)), np.zeros(states), np.zeros(states)
    phases = phases_of(np.arange(1, 1 + CYCLES * len(shares)), structure.once)
    k.begin(parameters, structure.weight, covariance)
    total, gap = 0.0, 0
    for cycle in range(CYCLES):
        for step, share in enumerate(shares, cycle * len(shares)):
            gap += 1
            variance = k.look_ahead(covariance, parameters, structure.weight, gap, phases[step], work, spread)
            left = variance
            if share > 1e-6:
                seen = variance + effective_noise(variance, whole / share**2)
                k.absorb(covariance, parameters, structure.weight, gap, spread, seen)
                left, gap = variance * (1.0 - variance / seen), 0
            if cycle >= CYCLES - 4:
                total += np.sqrt(max(left, 0.0))
    return total / (4 * len(shares))


def optimum(structure: Structure, parameters: np.ndarray, window: int, whole: float) -> tuple[float, float]:
    """(best with equal shares, best with any shares) of all schedules that repeat after a window."""
    found = []
    for number in range(1, window + 1):
        for others in combinations(range(1, window), number - 1):
            shares = np.zeros(window)
            shares[[0, *others]] = 1 / number
            found.append((error(structure, parameters, shares, whole), shares))
    found.sort(key=lambda pair: pair[0])
    least = found[0][0]
    for _start, shares in found[:STARTS]:

        def objective(logs: np.ndarray) -> float:
            each = np.exp(logs - logs.max())
            return error(structure, parameters, each / each.sum(), whole)

        result = minimize(
            objective, np.log(shares + 1e-3), method="Nelder-Mead", options={"maxfev": scaled(250, 10)}
        )
        least = min(least, float(result.fun))
    return found[0][0], least


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=scaled(40, 1, 3))
    parser.add_argument("--full", action="store_true", help="40 models")
    parser.add_argument("--window", type=int, default=8)
    given = parser.parse_args()
    generator = np.random.default_rng(11)
    structure = Structure((3.0 * given.window,), 2)
    ratios = []
    for model in range(given.models):
        searched = CENTRES + generator.normal(0, 0.6, SEARCHED) * SURENESS
        searched[VARIANCES] += np.log(1e6)
        parameters = parameters_of(searched, Prior(1000.0, 1e8))
        epsilon = Fraction(str(round(float(np.exp(generator.uniform(np.log(0.005), np.log(1.0)))), 4)))
        tables = choices(given.window, True, structure.periods, 1, epsilon)
        even = []
        scratch = np.zeros((structure.states,) * 2)
        horizon = CYCLES * given.window
        phases = phases_of(np.arange(1, 2 * horizon + given.window + 2), structure.once)
        for choice in range(tables.rows):
            k.begin(parameters, structure.weight, scratch)
            settled = scratch.copy()
            known = (settled, parameters, phases, structure.weight)
            noise = tables.scales[choice, plan.VARIANCE]
            long, longer = (
                predicted_error(*known, tables.shares, choice, noise, steps, np.inf, scratch) * steps
                for steps in (horizon, 2 * horizon)
            )
            even.append((longer - long) / horizon)
        equal, free = optimum(structure, parameters, given.window, 2.0 / float(epsilon) ** 2)
        ratios.append((min(even) / equal, min(even) / free))
        print(f"model {model + 1} of {given.models}: {ratios[-1][0]:.3f} {ratios[-1][1]:.3f}", flush=True)
    against_sets, against_shares = np.array(ratios).T
    for name, ratio in (("any set of steps, equal shares", against_sets), ("any shares", against_shares)):
        print(
            f"w = {given.window}, {given.models} models: Tide's even schedule / best with {name:30s} "
            f"median {np.median(ratio):.3f}, 90 % {np.quantile(ratio, 0.9):.3f}, worst {ratio.max():.3f}"
        )


if __name__ == "__main__":
    main()
