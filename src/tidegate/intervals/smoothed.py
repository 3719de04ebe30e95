"""Values that are smoothed from measurements of every step."""

from __future__ import annotations

import numpy as np

from tidegate.intervals.fold import Errors, Learning, State
from tidegate.noise.law import AnyLaw, spread_radius
from tidegate.releases import Integers, Releases, Status, Values

# rows of the state
SQUARES = 0  # Σ of squared residuals, less what noise explains
COUNT = 1  # how many they are
PRODUCTS = 2  # Σ of products of two residuals of a group that follow each other
DRIFT = 3  # Σ of residuals
SIZES = 4  # Σ of the sizes of their values
LAST = 5  # the last residual
ROWS = 6

MOST_GROWN = 4.0  # times that more may be flattened than before, because a stream has grown

AT_ONCE = 1 << 14  # values that are looked at together: all about them stays in the cache


class Smoothed(Learning):
    """Less noise, and what smoothing flattens.

    A measurement differs from the smoothed value of its step by the noise that smoothing took away, of variance
    R·(1 − 1/n) for a mean of n, and by what it flattened; the mean square of the rest is what was flattened so far.
    Values that are measurements have the exact law of their noise.

    Parameters
    ----------
    columns, law
        As for every fold.
    left
        What the smoother leaves of the variance of a mean of equal values: 1 for a mean.
    """

    def __init__(self, columns: int, law: AnyLaw, left: float = 1.0, rows: int = ROWS) -> None:
        super().__init__(columns, law, None, rows)
        self._left = left

    def sizes(self, state: State, releases: Releases, part: slice) -> Values:
        """Of how many measurements each value was made; 0 where nothing was measured."""
        assert releases.measured is not None
        groups = releases.measured.groups[part]
        return np.where(groups > 0, releases.steps[part, np.newaxis] - groups + 1, 0).astype(np.float64)

    def scales(self, releases: Releases, part: slice) -> Values:
        """The noise scale of each value, or of each step."""
        return releases.scale[part, np.newaxis]

    def absent(self, confidence: float) -> Values | float:
        """Half-widths where nothing was measured."""
        return np.inf

    def _residuals(self, state: State, releases: Releases, part: slice) -> tuple[Values, Values, Values]:
        """What is left of squared residuals, which of them count, and of how many measurements values were made."""
        measured = releases.measured
        assert measured is not None
        values, sizes = releases.values[part], self.sizes(state, releases, part)
        counted = (sizes > 1) & np.equal(releases.status[part], Status.FRESH)[:, np.newaxis]
        variance = self.law.variance(self.scales(releases, part))
        rest = (measured.noisy[part] - values) ** 2 - variance * (1 - 1 / np.maximum(sizes, 1))
        return np.where(counted, rest, 0.0), counted.astype(np.float64), sizes

    def _products(
        self, state: State, releases: Releases, part: slice, counted: Values
    ) -> tuple[Values, Values]:
        """Products of residuals that follow each other in a group, and the last residual."""
        measured = releases.measured
        assert measured is not None
        away = measured.noisy[part] - releases.values[part]
        before = np.concatenate([state[np.newaxis, LAST], away[:-1]])
        return np.where(counted > 0, away * before, 0.0), away[-1]

    def _drift(self, releases: Releases, part: slice, counted: Values) -> tuple[Values, Values]:
        """Residuals, and the sizes of their values."""
        measured, values = releases.measured, releases.values[part]
        assert measured is not None
        there = counted > 0
        return np.where(there, measured.noisy[part] - values, 0.0), np.where(there, np.abs(values), 0.0)

    def learn(self, state: State, releases: Releases) -> State:
        """Add up the residuals."""
        length = max(1, AT_ONCE // self.columns)
        for begin in range(0, len(releases), length):
            part = slice(begin, begin + length)
            rest, counted, _ = self._residuals(state, releases, part)
            products, last = self._products(state, releases, part, counted)
            sums = (rest, counted, products, *self._drift(releases, part, counted))
            added = np.stack([each.sum(axis=0) for each in sums])
            state = np.concatenate([state[:LAST] + added, last[np.newaxis], self.more(state, releases, part)])
        return state

    def more(self, state: State, releases: Releases, part: slice) -> Values:
        """Further rows of the state after some steps."""
        return state[ROWS:]

    def _parts(self, state: State, releases: Releases) -> tuple[Values, Values, Values]:
        """Variances of the noise that is left and of what was flattened, and sizes."""
        rest, counted, sizes = self._residuals(state, releases, slice(None))
        squares = state[SQUARES] + np.cumsum(rest, axis=0)
        counts = state[COUNT] + np.cumsum(counted, axis=0)
        variance = self.law.variance(self.scales(releases, slice(None)))
        grown = self._grown(state, releases, counted)
        flattened = (np.maximum(squares, 0.0) + variance) / (counts + 1) * grown
        return variance * np.minimum(self._left / np.maximum(sizes, 1), 1), flattened, sizes

    def _grown(self, state: State, releases: Releases, counted: Values) -> Values:
        """How many times as large as before values are, where they are larger: as many times as much is flattened."""
        sizes = state[SIZES] + np.cumsum(self._drift(releases, slice(None), counted)[1], axis=0)
        counts = state[COUNT] + np.cumsum(counted, axis=0)
        now = np.abs(releases.values) * counts / np.maximum(sizes, self.law.grid)
        return np.clip(np.where(np.isnan(now), 1.0, now), 1.0, MOST_GROWN)

    def errors(self, state: State, releases: Releases) -> Errors:
        """Means of a group share its noise; of what is flattened they share what residuals in a row have in common."""
        left, flattened, sizes = self._parts(state, releases)
        rest, counted, _ = self._residuals(state, releases, slice(None))
        products = self._products(state, releases, slice(None), counted)[0]
        drift = self._drift(releases, slice(None), counted)[0]
        counts = state[COUNT] + np.cumsum(counted, axis=0) + 1
        grown = self._grown(state, releases, counted)
        slow = (state[PRODUCTS] + np.cumsum(products, axis=0)) / counts * grown
        # a mean that is off on one side by more than chance explains stays so
        mean = (state[DRIFT] + np.cumsum(drift, axis=0)) / counts
        squares = np.maximum(state[SQUARES] + np.cumsum(rest, axis=0), 0.0) / counts
        chance = (squares + self.law.variance(self.scales(releases, slice(None)))) / counts
        lasting = np.where(sizes > 1, np.maximum(mean**2 - chance, 0.0) * grown, 0.0)
        lasting = np.minimum(lasting, flattened)
        slow = np.clip(slow - lasting, 0.0, flattened - lasting)
        kept = np.equal(releases.status, Status.APPROXIMATED)[:, np.newaxis] | (sizes < 1)
        carry = np.sqrt(np.maximum(sizes - 1, 0.0) / np.maximum(sizes, 1.0))
        own = np.where(sizes > 1, np.maximum(flattened - slow - lasting, 0.0), 0.0)
        shared = left + np.where(sizes > 1, slow, 0.0)
        return Errors(own, np.where(kept, np.inf, shared), carry, lasting)

    def radius(self, state: State, releases: Releases, confidence: float) -> Values:
        """Of a measurement its noise; of a mean what is left of it, and what was flattened."""
        left, flattened, sizes = self._parts(state, releases)
        smooth = spread_radius(np.sqrt(left + flattened), confidence)
        scales = np.broadcast_to(self.scales(releases, slice(None)), releases.values.shape)
        alone = self.law.radius(scales, confidence)
        found = np.where(sizes > 1, smooth, np.where(sizes == 1, alone, self.absent(confidence)))
        kept = np.equal(releases.status, Status.APPROXIMATED)[:, np.newaxis]
        return np.where(np.isnan(releases.values), np.nan, np.where(kept, np.inf, found))


class Averaged(Smoothed):
    """Each value is the mean of the measurements of the last steps.

    Parameters
    ----------
    columns, law
        As for every fold.
    most
        The measurements of a mean, at most.
    """

    def __init__(self, columns: int, law: AnyLaw, most: int) -> None:
        super().__init__(columns, law, rows=ROWS + 2)  # measurements without a gap so far, and the last step
        self._most = most

    def sizes(self, state: State, releases: Releases, part: slice) -> Values:
        """Fewer after the beginning, and after a gap: then it is not known which of them a mean still has."""
        steps = releases.steps[part]
        before = state[ROWS, 0] if len(steps) and state[ROWS + 1, 0] == steps[0] - 1 else 0.0
        known = np.minimum(before + 1 + np.arange(len(steps)), self._most)
        return np.broadcast_to(known[:, np.newaxis], (len(steps), self.columns))

    def more(self, state: State, releases: Releases, part: slice) -> Values:
        """How many measurements there are, and the last step."""
        last = np.array([self.sizes(state, releases, part)[-1, 0], releases.steps[part][-1]])
        return np.broadcast_to(last[:, np.newaxis], (2, self.columns))


class Pruned(Smoothed):
    """Nodes of a hierarchy, of which some are not measured because a test said that there is little.

    Parameters
    ----------
    columns, law, left
        As for smoothed values.
    weights
        Of nodes on the way to others, which have less of the budget: how precise their measurements are.
    scales
        The noise scales of such nodes, and of nodes at which a path ends, in the unit of the values; 2 × columns.
    most, test_scale
        A node that was cut off has no more than this, but for the noise of the test.
    """

    def __init__(
        self,
        columns: int,
        law: AnyLaw,
        left: float,
        weights: Integers,
        scales: Values,
        most: float,
        test_scale: float,
    ) -> None:
        super().__init__(columns, law, left)
        self._weights, self._scales, self._most, self._test_scale = weights, scales, most, test_scale

    def scales(self, releases: Releases, part: slice) -> Values:
        """By the weights that were released."""
        assert releases.measured is not None
        passes = np.equal(releases.measured.weights[part], self._weights)
        found: Values = np.where(passes, self._scales[0], self._scales[1])
        return found

    def absent(self, confidence: float) -> Values | float:
        """A node that was cut off had no more than the limit of its test, and its parts have no more than it."""
        return self._most + float(self.law.radius([self._test_scale], confidence)[0])
