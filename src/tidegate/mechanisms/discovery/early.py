"""Early tests: a factorised counter follows each category through an epoch, and it opens at the step at which it passes.

docs/proofs/discovery.md derives noise and thresholds.
"""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.composition.gaussian import normal_delta, normal_tail
from tidegate.core.charges import Integers
from tidegate.mechanisms.counters import toeplitz
from tidegate.mechanisms.counters.toeplitz import PLACES as PLACES
from tidegate.mechanisms.discovery.calibration import too_small
from tidegate.mechanisms.discovery.occurrences import CATEGORY, STEP, UNIT
from tidegate.noise import gaussian
from tidegate.noise.entropy import Words
from tidegate.noise.keyed import Keyed

LONGEST = 2**12  # steps of an epoch
MARGIN = 2.0**-9  # units: by how much floating point and the lattice can move a number of few units
CELLS = 2**21  # draws that are in memory at once
STREAM = "early"
PARTS = 64  # how many divisions of δ between noise and thresholds are tried

Floats = npt.NDArray[np.float64]


class EarlyTests(NamedTuple):
    """How categories are tested at every step of an epoch.

    Attributes
    ----------
    sigma
        σ of the discrete Gaussian noise of a measurement, in units of 2^−places.
    thresholds
        For each step of an epoch: a category opens where its noisy number of units is at least this.
    coefficients
        The integers of C, in units of 2^−places.
    places
        Binary places of the lattice.
    """

    sigma: float
    thresholds: tuple[int, ...]
    coefficients: tuple[int, ...]
    places: int

    @property
    def response(self) -> Floats:
        """The coefficients of B = A·C⁻¹, for A·x the running sums."""
        return _response(self.coefficients, self.places)

    @property
    def deviations(self) -> Floats:
        """The standard deviation of the noisy number of units at each step."""
        return _spread(self.coefficients, self.places) * self.sigma * 2.0**-self.places

    @property
    def lone(self) -> float:
        """An upper bound on the chance that a category of one unit passes at any step."""
        reach = _reach(self)
        return sum(_passes(self, at, limit, reach[at]) for at, limit in enumerate(self.thresholds))

    def noisy(self, units: Integers, noise: Integers) -> Integers:
        """The noisy numbers of units at the last step, each from the measurements of its own category alone.

        Parameters
        ----------
        units
            Steps × categories: how many units have the category at this step first.
        noise
            The same shape: one draw for each measurement.
        """
        steps, response = len(units), self.response
        age = np.subtract.outer(np.arange(steps), np.arange(steps))
        strategy = np.where(age >= 0, np.array(self.coefficients, dtype=np.float64)[age], 0.0)
        measured = (strategy @ units).astype(np.int64) + noise  # whole numbers below 2^53: exact in any order
        total = np.zeros(units.shape[1])
        for at in range(steps):
            total += response[steps - 1 - at] * measured[at]
        found: Integers = np.rint(total * 2.0**-self.places).astype(np.int64)
        return found


@lru_cache(maxsize=64)
def _response(coefficients: tuple[int, ...], places: int) -> Floats:
    finest = tuple(each << (PLACES - places) for each in coefficients)
    return toeplitz.response(finest, None, len(coefficients))


@lru_cache(maxsize=64)
def _spread(coefficients: tuple[int, ...], places: int) -> Floats:
    spread: Floats = np.sqrt(np.cumsum(_response(coefficients, places) ** 2))
    return spread


@lru_cache(maxsize=64)
def calibrate_early(
    epsilon: Fraction, delta: Fraction, changes: int, steps: int, places: int = PLACES
) -> EarlyTests:
    """The smallest threshold at the end of an epoch, with the noise that allows it.

    Parameters
    ----------
    epsilon, delta
        What the tests of all epochs of a window may lose together.
    changes
        How many first occurrences of a unit neighbouring streams may have, together, in all epochs of a window.
    steps
        The steps of an epoch.
    places
        Binary places of the lattice.

    Examples
    --------
    >>> tests = calibrate_early(Fraction(1), Fraction("1e-6"), changes=4, steps=168)
    >>> tests.thresholds[0], tests.thresholds[83], tests.thresholds[167]
    (90, 141, 126)
    """
    claimed = min(float(delta) * (1 - 2.0**-50), 0.5)
    given = float(epsilon) * (1 - 2.0**-50)
    root = toeplitz.square_root(np.ones(steps))
    coefficients = tuple(np.floor(root * 2.0**places + 0.5).astype(np.int64).tolist())
    best: EarlyTests | None = None
    for part in range(1, PARTS):
        made = divided(coefficients, places, given, claimed, claimed * part / PARTS, changes)
        if made is not None and (best is None or made.thresholds[-1] < best.thresholds[-1]):
            best = made
    if best is None:
        raise too_small(epsilon)
    return best


def divided(
    coefficients: tuple[int, ...], places: int, epsilon: float, delta: float, for_noise: float, changes: int
) -> EarlyTests | None:
    """Tests where the noise has a part of δ, and thresholds the rest; None where the noise is too large to draw."""
    sigma = _least_sigma(coefficients, epsilon, for_noise, changes)
    if sigma is None:
        return None
    made = EarlyTests(sigma, (), coefficients, places)
    return made._replace(thresholds=_thresholds(made, (delta - for_noise) / changes))


def loss_early(sigma: float, coefficients: tuple[int, ...], epsilon: float, changes: int) -> float:
    """A δ for which all measurements of a window are (ε, δ)-private; rounded up."""
    square = changes * sum(each * each for each in coefficients)
    uneven = (
        changes * sum(coefficients) / (2 * sigma * sigma)
    )  # of losses, at two points of one cell of the lattice
    factor = math.exp(changes * len(coefficients) / (24 * sigma * sigma))
    shift = math.sqrt(square) / sigma * (1 + 2.0**-40)
    return factor * normal_delta(shift, epsilon - uneven * (1 + 2.0**-40))


def _least_sigma(coefficients: tuple[int, ...], epsilon: float, delta: float, changes: int) -> float | None:
    """The least σ, nearly, with which the measurements lose no more than δ; None where it is too large to draw."""
    low = high = max(1.0, math.sqrt(changes * sum(each * each for each in coefficients)) / 16)
    while loss_early(high, coefficients, epsilon, changes) > delta:
        low, high = high, 2 * high
        if high > 2.0**40:
            return None
    while high - low > high / 2**12:
        middle = (low + high) / 2
        low, high = (
            (middle, high) if loss_early(middle, coefficients, epsilon, changes) > delta else (low, middle)
        )
    return math.ceil(high * 64) / 64


def _reach(tests: EarlyTests) -> list[float]:
    """How far the noise of each step's sum is moved within the cells of its draws, and by floating point."""
    reach: list[float] = (2.0**-tests.places / 2 * np.cumsum(np.abs(tests.response)) + MARGIN).tolist()
    return reach


def _passes(tests: EarlyTests, at: int, limit: int, reach: float) -> float:
    """The chance that the noisy number of one unit is at least a limit at a step; rounded up."""
    beyond = (limit - 1.5 - reach) / float(tests.deviations[at]) * (1 - 2.0**-40)
    return normal_tail(beyond) * math.exp((at + 1) / (24 * tests.sigma**2))


def _thresholds(tests: EarlyTests, lone: float) -> tuple[int, ...]:
    """Such that a category of one unit passes at any step with a chance of at most `lone`: half of it at the last one."""
    steps, reach, found = len(tests.coefficients), _reach(tests), []
    for at in range(steps):
        chance = lone if steps == 1 else lone / 2 if at == steps - 1 else lone / 2 / (steps - 1)
        deviation = float(tests.deviations[at])
        limit = max(2, math.floor(1.5 + reach[at] - deviation * NormalDist().inv_cdf(chance)))
        while _passes(tests, at, limit, reach[at]) > chance:
            limit += 1
        found.append(limit)
    return tuple(found)


def noisy_units(
    tests: EarlyTests, key: Words, rows: pl.DataFrame, begin: int, steps: int, open_names: list[str]
) -> tuple[list[str], Integers]:
    """Names of categories, and the noisy number of units that have each of them in the first steps of an epoch.

    Open categories come first, the others in the order in which they appear: so each keeps its noise.
    """
    appeared = rows[CATEGORY].unique(maintain_order=True)
    names = [*open_names, *appeared.filter(~appeared.is_in(open_names)).to_list()]
    known = {CATEGORY: names, "place": range(len(names))}
    places = pl.DataFrame(known, schema={CATEGORY: pl.String, "place": pl.Int64})
    cells = rows.group_by(CATEGORY, STEP).len().join(places, on=CATEGORY).sort("place")
    place, at, many = (cells[name].to_numpy() for name in ("place", STEP, "len"))
    found = np.empty(len(names), dtype=np.int64)
    width = max(1, CELLS // steps)
    for first in range(0, len(names), width):
        count = min(width, len(names) - first)
        here = slice(*np.searchsorted(place, (first, first + count)))
        units = np.zeros((steps, count), dtype=np.int64)
        units[at[here] - begin, place[here] - first] = many[here]
        source = Keyed(key, first)
        noise = [gaussian(source, STREAM, each, tests.sigma, (count,)) for each in range(steps)]
        found[first : first + count] = tests.noisy(units, np.array(noise))
    return names, found


def digest_of(rows: pl.DataFrame) -> Integers:
    """Four numbers that tell records apart."""
    units = rows[UNIT].cast(pl.String)
    content = hashlib.blake2b(digest_size=32)
    for texts in (units, rows[CATEGORY]):
        content.update(texts.str.len_bytes().to_numpy().astype("<i8").tobytes())
        content.update("".join(texts.to_list()).encode())
    content.update(rows[STEP].to_numpy().astype("<i8").tobytes())
    return np.frombuffer(content.digest(), dtype="<i8").astype(np.int64)
