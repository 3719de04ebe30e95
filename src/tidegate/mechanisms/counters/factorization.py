"""Factorization: running and decayed sums with correlated Gaussian noise, the state of the art under zCDP."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.compiled import kernel
from tidegate.composition import zcdp_rho
from tidegate.core.charges import Charges
from tidegate.core.mechanism import Floats, Matrix, Output
from tidegate.core.rows import Draws
from tidegate.exact import sqrt_up, whole
from tidegate.mechanisms.counters import blt, factorization_parameters, toeplitz
from tidegate.mechanisms.counters.blt import BITS
from tidegate.mechanisms.counters.tree import every_step, refuse_beyond
from tidegate.mechanisms.mechanism import Mechanism, mean_over_steps
from tidegate.noise import gaussian, variance_gaussian
from tidegate.noise.entropy import Source
from tidegate.policy import Approximate, Event, Policy, User, WEvent, ZeroConcentrated
from tidegate.queries.decayed import Decay, Exponential, Polynomial, Window
from tidegate.queries.sums import gaussian_radius
from tidegate.releases import Values

WORTHWHILE = 1 / 512  # how much of the sensitivity the rounding of a coarse lattice may add

CELLS = 1 << 15  # measurements that a batch handles at once
STREAM = "factorization"
OWN, STEP = 0, 1  # positions in the numbers of a state: steps that were measured, and the last of them
_MASK = blt.ONE - 1


class BltState(NamedTuple):
    """All that a BLT carries from step to step: a few buffers on either side of the noise."""

    numbers: Any
    whole: Any  # SECRET: discounted sums of raw values, the whole part
    part: Any  # SECRET: and 31 binary places
    buffers: Any  # the same of the estimates
    previous: Any  # the last estimate
    last: Any  # the last sum
    impulse: Any  # what a single noise has become: public, for the standard deviation
    memory: Any


class BandState(NamedTuple):
    """All that bands carry from step to step."""

    numbers: Any
    history: Any  # SECRET: the last raw steps, one less than there are bands
    estimates: Any  # what measurements say of the last steps
    last: Any  # the last sum, where sums are carried on


# measurements are exact integers; what follows sees them alone, in floating point


@kernel
def clamp(rows: Any, limit: int) -> Any:
    """Values within ±limit, which no neighbour can move by more than before."""
    result = np.empty_like(rows)
    for step in range(rows.shape[0]):
        for column in range(rows.shape[1]):
            result[step, column] = min(max(rows[step, column], -limit), limit)
    return result


@kernel
def measure_toeplitz(
    history: Any, steps: int, coefficients: Any, noise: Any, unit: float, measured: Any
) -> None:
    """y_t = Σ_k C_k·x_{t−k} + z_t; `history` ends with the new steps, oldest first."""
    before = history.shape[0] - steps
    for step in range(steps):
        at = before + step
        reach = min(coefficients.size, at + 1)
        for column in range(history.shape[1]):
            total = noise[step, column]
            for age in range(reach):
                total += coefficients[age] * history[at - age, column]
            measured[step, column] = total * unit


@kernel
def recover_toeplitz(
    measured: Any, coefficients: Any, estimates: Any, fade: float, answer: Any, last: Any, values: Any
) -> None:
    """x̂_t = y_t − Σ_{k≥1} c_k·x̂_{t−k}, then the answer: faded sums, or Σ_k answer[k]·x̂_{t−k} where given.

    `estimates` holds earlier x̂, oldest first, and room for the new ones.
    """
    steps = measured.shape[0]
    before = estimates.shape[0] - steps
    for step in range(steps):
        at = before + step
        reach = min(coefficients.size, at + 1)
        span = min(answer.size, at + 1)
        for column in range(measured.shape[1]):
            estimate = measured[step, column]
            for age in range(1, reach):
                estimate -= coefficients[age] * estimates[at - age, column]
            estimates[at, column] = estimate
            if answer.size:
                total = 0.0
                for age in range(span):
                    total += answer[age] * estimates[at - age, column]
                values[step, column] = total
            else:
                last[column] = fade * last[column] + estimate
                values[step, column] = last[column]


@kernel
def measure_blt(
    rows: Any, decay: Any, output: Any, places: int, whole: Any, part: Any, noise: Any, measured: Any
) -> None:
    """y_t = ⌊x_t + Σ_i ω_i·S_i⌋ + z_t on the lattice 2^−places, then S_i ← S_i − ⌊(1 − θ_i)·S_i⌋ + x_t.

    A state is whole + part·2^−31 with 0 ≤ part < 2^31; `decay` is (1 − θ)·2^31 and `output` ω·2^31. Products are
    rounded down to 2^−31 by three multiplications that fit into 64 bits.
    """
    shift = BITS - places
    lattice = 2.0**-places
    low_mask = (np.int64(1) << places) - 1
    for step in range(rows.shape[0]):
        for column in range(rows.shape[1]):
            value = rows[step, column]
            high = value
            low = np.int64(0)
            for buffer in range(decay.size):
                units = whole[column, buffer]
                fraction = part[column, buffer]
                top = units >> BITS
                rest = units & _MASK
                weight = output[buffer]
                product = weight * rest
                places_31 = (product & _MASK) + (weight * fraction >> BITS)
                high += weight * top + (product >> BITS)
                low += places_31
                weight = decay[buffer]
                product = weight * rest
                places_31 = fraction - (product & _MASK) - (weight * fraction >> BITS)
                whole[column, buffer] = units - weight * top - (product >> BITS) + (places_31 >> BITS) + value
                part[column, buffer] = places_31 & _MASK
            low = (low >> shift) + noise[step, column]
            high += low >> places
            measured[step, column] = high + (low & low_mask) * lattice


@kernel
def recover_blt(
    measured: Any, theta: Any, omega: Any, buffers: Any, previous: Any, last: Any, values: Any
) -> None:
    """x̂_t = y_t − Σ_i ω_i·Ŝ_i, Ŝ_i ← θ_i·Ŝ_i + x̂_t, and the running sum of x̂.

    `buffers` are one step behind, without the `previous` x̂: so a step waits for one product of the step before only.
    """
    together = omega.sum()
    faded = omega * theta
    for step in range(measured.shape[0]):
        for column in range(measured.shape[1]):
            before = previous[column]
            estimate = measured[step, column]
            for buffer in range(theta.size):
                old = buffers[column, buffer]
                estimate -= faded[buffer] * old
                buffers[column, buffer] = theta[buffer] * old + before
            estimate -= together * before
            previous[column] = estimate
            last[column] += estimate
            values[step, column] = last[column]


@kernel
def deviations_blt(
    step: int, theta: Any, omega: Any, buffers: Any, memory: Any, unit: float, deviations: Any
) -> None:
    """The standard deviation of each step's sum: the answer to a single 1 at step 1, squared and added up.

    `memory` holds the previous x̂, the last sum and the sum of squares.
    """
    together = omega.sum()
    faded = omega * theta
    before, last, squares = memory[0], memory[1], memory[2]
    for index in range(deviations.size):
        estimate = 1.0 if step + index == 1 else 0.0
        for buffer in range(theta.size):
            old = buffers[buffer]
            estimate -= faded[buffer] * old
            buffers[buffer] = theta[buffer] * old + before
        estimate -= together * before
        before = estimate
        last += estimate
        squares += last * last
        deviations[index] = unit * squares**0.5
    memory[0], memory[1], memory[2] = before, last, squares


@dataclass(frozen=True)
class Factorization(Mechanism):
    """Release running sums A·x as B·(C·x + z): noise is added once a step, and cancels in later sums.

    The measurement y_t = (C·x)_t + z_t is exact integer arithmetic on a lattice; x̂ = C⁻¹·y and its running sum are
    computed from y alone, in floating point, and are therefore free. A step that is passed over adds nothing to a running
    sum and is not measured. Where sums decay it is measured as an empty one.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`; the budget is `rho`, or `epsilon` with `delta` under `Event`.
    horizon
        The number n of steps, public; by default the policy's.
    method
        "blt" (default): C is a sum of a few decaying exponentials, optimised for n; memory O(buffers) and no loss
        against the square root. "square-root": C = A^½, memory and time a step O(n). "banded": its first `bands` bands.
    buffers
        Exponentials of the BLT.
    bands
        Bands of "banded"; by default 4·⌈√n⌉.
    decay
        None for running sums; or a `Decay` (`Exponential`, `Polynomial`, `Window`), whose sums are released instead;
        for the methods "square-root" and "banded".
    strategy
        The integers of C, filled in; give them to continue a stream that another version began.

    Privacy
    -------
    Unit and neighbours: the policy's. Neighbours move C·x by at most Δ·‖C‖ (largest column norm; over a window of w, of
    the sum of w columns), plus what rounding to the lattice can add, all rounded up; discrete Gaussian noise with σ of
    that over √(2ρ) gives ρ-zCDP (Canonne, Kamath and Steinke 2020), for adaptive streams too. C has few binary places,
    so that C·x is an integer vector and A = B·C holds for the C that is used. With (ε, δ), ρ is the largest whose
    conversion stays below δ; the step's whole budget is charged, so only under `Event`. Values beyond a public limit
    (at least 2^32 grid units up to n = 2^28) are cut to it. The state holds discounted sums of raw values: protect it.

    Error
    -----
    Unbiased; standard deviation σ·(Σ_{k<t} b_k²)^½ with b = A·C⁻¹: `standard_deviation(step)`, `expected_error(step)`
    and `deviation_of(weights)` before anything is released. At n = 10⁴ and ρ = ½ the mean absolute error is 3.02 (BLT),
    3.06 (square root), 5.6 (binary tree with Honaker's estimator), 7.5 (plain). Time O(d·buffers) a step.

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> mechanism = Factorization(Event(rho="1/2"), horizon=10_000)
    >>> mean = float(np.mean([mechanism.expected_error(step) for step in range(1, 10_001, 50)]))
    >>> 2.9 < mean < 3.1
    True
    >>> Session(mechanism).push_batch([3, 0, 1]).values.shape
    (3, 1)

    References
    ----------
    Henzinger, Upadhyay, Upadhyay: Almost tight error bounds on differentially private continual counting. SODA 2023.
    Fichtenberger, Henzinger, Upadhyay: Constant matters: fine-grained error bound on differentially private continual
    observation. ICML 2023. Dvijotham et al.: Efficient and near-optimal noise generation. FOCS 2024.
    """

    horizon: int | None = None
    method: str = "blt"
    buffers: int = 5
    bands: int | None = None
    decay: Decay | None = None
    strategy: tuple[int, ...] | None = None

    columns_independent: ClassVar[bool] = True
    supports: ClassVar[tuple[type[Policy], ...]] = (Event, WEvent, User)
    budgets: ClassVar[tuple[str, ...]] = ("ZeroConcentrated", "Approximate")
    statistic: ClassVar[str] = "sums"
    spreads: ClassVar[bool] = True
    keeps_raw_values: ClassVar[bool] = True  # discounted sums of the stream, or its last steps

    def validate(self) -> None:
        """Check the method and make C."""
        factorization_parameters.check(self)

    @property
    def length(self) -> int:
        """The horizon."""
        assert self.horizon is not None
        return self.horizon

    @cached_property
    def rho(self) -> Fraction:
        """The ρ that is spent: the policy's, or the largest whose conversion to (ε, δ) keeps the policy's."""
        budget = self.policy.budget
        if isinstance(budget, ZeroConcentrated):
            return budget.rho
        assert isinstance(budget, Approximate)
        return zcdp_rho(budget.epsilon, budget.delta)

    @cached_property
    def coefficients(self) -> npt.NDArray[np.int64]:
        """The integers of C: bands in units of 2^−20, or the BLT's (1 − θ_i)·2^31, then its ω_i·2^31."""
        return np.array(self.strategy, dtype=np.int64)

    @cached_property
    def places(self) -> int:
        """Binary places of the lattice on which C·x is measured."""
        if self.method != "blt":
            return toeplitz.PLACES
        moved = self.sensitivity * self._norm
        for places in range(BITS):  # a coarser lattice has quicker noise
            if self._rounding(places) < WORTHWHILE * moved * 2.0**places:
                return places
        return BITS

    @cached_property
    def sigma(self) -> float:
        """σ of the noise z in lattice units; rounded up."""
        if self.method == "blt":
            moved = self.sensitivity * self._norm * 2.0**self.places + self._rounding(self.places)
            return sqrt_up(Fraction(moved * (1 + blt.SLACK)) ** 2 / (2 * self.rho))
        square = toeplitz.window_norm(self.coefficients, self.policy.steps_charged)
        return sqrt_up(Fraction(self.sensitivity**2 * square) / (2 * self.rho))

    @cached_property
    def buffered(self) -> blt.Blt:
        """The BLT's coefficients."""
        assert self.strategy is not None
        return blt.Blt(self.strategy[: self.buffers], self.strategy[self.buffers :])

    @cached_property
    def _norm(self) -> float:
        return self.buffered.norm(self.length, self.policy.steps_charged)

    def _rounding(self, places: int) -> float:
        """The norm, over all steps and columns, of what rounding down can change, in lattice units."""
        each = 1.0 + self.buffered.rounding_error * 2.0 ** (places - BITS)
        return each * math.sqrt(self.length * self.columns * self.policy.steps_charged) * (1 + blt.SLACK)

    @cached_property
    def limit(self) -> int:
        """Values beyond this many grid units are cut, so that sums stay within 64 bits."""
        if self.method == "blt":
            return self.buffered.limit(self.length)
        return (1 << 61) // int(np.abs(self.coefficients).sum())

    # what a session asks -----------------------------------------------------------------------------------------

    def begin(self, first: int) -> BltState | BandState:
        """Nothing was measured."""
        d, numbers = self.columns, np.array([0, first - 1])
        if self.method != "blt":
            bands, depth = len(self.coefficients), max(len(self.coefficients), len(self._weights))
            history = np.zeros((bands - 1, d), dtype=np.int64)
            return BandState(numbers, history, np.zeros((depth - 1, d)), np.zeros(d))
        k = self.buffers
        exact = (np.zeros((d, k), dtype=np.int64), np.zeros((d, k), dtype=np.int64))
        return BltState(numbers, *exact, np.zeros((d, k)), np.zeros(d), np.zeros(d), np.zeros(k), np.zeros(3))

    def public(self, state: BltState | BandState, first: int, count: int) -> Charges:
        """Every step costs the same, and `horizon` of them can be measured."""
        if count:
            measured = int(state.numbers[OWN]) + self._passed(state, first)
            refuse_beyond(self.length, measured, count, "EndlessSum")
        return Charges(first, np.ones(count, dtype=np.int64))

    def _passed(self, state: BltState | BandState, first: int) -> int:
        """How many empty steps are measured before `first`."""
        decays = self.decay is not None and state.numbers[OWN] > 0
        return first - 1 - int(state.numbers[STEP]) if decays else 0

    def advance(self, state: BltState | BandState, rows: Matrix, first: int, noise: Draws) -> Output:
        """Measure exactly, then recover; a block of steps at a time."""
        count, passed = len(rows), self._passed(state, first) if len(rows) else 0
        given = np.concatenate([np.zeros((passed, self.columns), dtype=np.int64), rows]) if passed else rows
        values, deviations = np.empty(given.shape), np.empty(len(given))
        length = max(1, CELLS // self.columns)
        for start in range(0, len(given), length):
            part = slice(start, start + length)
            step = first - passed + start
            self._block(state, given[part], step, noise.source, values[part], deviations[part])
        if count:
            state.numbers[STEP] = first + count - 1
        values *= float(Fraction(self.grid))
        return every_step(first, values[passed:], deviations[passed:])

    # the two methods ---------------------------------------------------------------------------------------------

    def _block(
        self,
        state: BltState | BandState,
        rows: Matrix,
        first: int,
        source: Source,
        values: Floats,
        deviations: Floats,
    ) -> None:
        """Measure and recover some steps, in grid units; deviations in the unit of the values."""
        noise = gaussian(source, STREAM, first, self.sigma, rows.shape)
        limited = clamp(rows, self.limit)
        if isinstance(state, BltState):
            self._blt(state, limited, noise, values, deviations)
        else:
            self._bands(state, limited, noise, values, deviations)
        state.numbers[OWN] += len(rows)

    def _blt(self, state: BltState, rows: Matrix, noise: Matrix, values: Floats, deviations: Floats) -> None:
        blt, measured, own = self.buffered, np.empty(rows.shape), int(state.numbers[OWN]) + 1
        decay, output = np.array(blt.decay), np.array(blt.output)
        theta, omega = 1.0 - blt.gap, blt.omega
        measure_blt(rows, decay, output, self.places, state.whole, state.part, noise, measured)
        recover_blt(measured, theta, omega, state.buffers, state.previous, state.last, values)
        unit = self.noise_deviation
        deviations_blt(own, theta, omega, state.impulse, state.memory, unit, deviations)

    def _bands(
        self, state: BandState, rows: Matrix, noise: Matrix, values: Floats, deviations: Floats
    ) -> None:
        steps, own, measured = len(rows), int(state.numbers[OWN]), np.empty(rows.shape)
        history, unit = np.concatenate([state.history, rows]), 2.0**-toeplitz.PLACES
        measure_toeplitz(history, steps, self.coefficients, noise, unit, measured)
        state.history[:] = history[steps:]
        estimates = np.concatenate([state.estimates, np.empty(rows.shape)])
        inverse, fade = self.coefficients * unit, 1.0
        if isinstance(self.decay, Exponential):
            fade = float(self.decay.factor)
        recover_toeplitz(measured, inverse, estimates, fade, self._weights, state.last, values)
        state.estimates[:] = estimates[steps:]
        deviations[:] = self._spread[own : own + steps]

    @cached_property
    def _weights(self) -> Floats:
        """Of each age in a decayed sum; empty where the last sum is carried on."""
        if self.decay is None or isinstance(self.decay, Exponential):
            return np.zeros(0)
        return np.asarray(self.decay.by_age(self.length), dtype=np.float64)

    @cached_property
    def _spread(self) -> Floats:
        """The standard deviation of every step's sum, for bands."""
        spread: Floats = np.sqrt(np.cumsum(self.response(self.length) ** 2)) * self.noise_deviation
        return spread

    # closed forms, before anything is released ---------------------------------------------------------------

    @property
    def noise_deviation(self) -> float:
        """The standard deviation of one z, in the values' unit."""
        return math.sqrt(variance_gaussian(self.sigma)) * 2.0**-self.places * float(Fraction(self.grid))

    def response(self, count: int) -> Values:
        """The first coefficients of B: how one z moves the releases of this and the following steps."""
        if self.method == "blt":
            gap, omega = self.buffered.gap, self.buffered.omega
            impulse, values = np.zeros((count, 1)), np.empty((count, 1))
            impulse[0] = 1.0
            recover_blt(impulse, 1.0 - gap, omega, np.zeros((1, len(gap))), np.zeros(1), np.zeros(1), values)
            return values[:, 0]
        answer = None if self.decay is None else tuple(self.decay.by_age(self.length).tolist())
        assert self.strategy is not None
        return toeplitz.response(self.strategy, answer, self.length)[:count]

    def ideal(self, steps: Values) -> Values:
        """The sums of exact steps, decayed where they decay."""
        if self.decay is None:
            return super().ideal(steps)
        from scipy.signal import fftconvolve  # slow to import, needed here only

        weights = np.asarray(self.decay.by_age(len(steps)), dtype=np.float64)[:, np.newaxis]
        return np.asarray(fftconvolve(np.nan_to_num(steps), weights, axes=0)[: len(steps)])

    @property
    def noise_kind(self) -> str:
        """Gaussian noise, whatever the budget."""
        return "gaussian"

    def standard_deviation(self, step: int) -> float:
        """The standard deviation of the answer released at a step, in the values' unit."""
        return (
            float(np.linalg.norm(self.response(whole("step", step, most=self.length)))) * self.noise_deviation
        )

    def expected_error(self, first: int | None = None, last: int | None = None) -> float:
        """The mean absolute error of the answer; by default over the horizon."""
        if first is None:
            first, last = 1, last or self.length
        mean = mean_over_steps(self.standard_deviation, first, first if last is None else last)
        return math.sqrt(2 / math.pi) * mean

    def radius(self, step: int, confidence: float = 0.95) -> float:
        """Half the width of a confidence interval around the answer at a step."""
        return gaussian_radius(self.standard_deviation(step), confidence)

    def deviation_of(self, weights: npt.ArrayLike) -> float:
        """The standard deviation of Σ_t weights[t−1]·(answer of step t)."""
        from scipy.signal import fftconvolve  # slow to import, needed here only

        given = np.asarray(weights, dtype=np.float64)
        through = fftconvolve(given[::-1], self.response(len(given)))[: len(given)]
        return float(np.linalg.norm(through)) * self.noise_deviation

    def radius_of(self, weights: npt.ArrayLike, confidence: float = 0.95) -> float:
        """Half the width of a confidence interval around a linear answer."""
        return gaussian_radius(self.deviation_of(weights), confidence)

    def describe(self) -> dict[str, Any]:
        """Identify the configuration exactly, as JSON; many integers by their digest."""
        described = super().describe()
        if len(self.coefficients) > 2 * factorization_parameters.MOST_BUFFERS:
            described["strategy"] = hashlib.sha256(self.coefficients.tobytes()).hexdigest()
        return described

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(Event(rho="1/2"), columns=3, horizon=2000),
            cls(WEvent(rho="1/2", window=5), grid="0.01", horizon=2000, buffers=3),
            cls(
                Event(epsilon="1", delta="1e-6", adjacency="replace"),
                columns=2,
                horizon=2000,
                method="banded",
                bands=40,
            ),
            cls(User(rho="1", horizon=2000), method="square-root"),
            cls(Event(rho="1"), horizon=2000, method="square-root", decay=Exponential("0.9")),
            cls(Event(rho="1"), columns=2, horizon=2000, method="banded", bands=64, decay=Polynomial("1")),
            cls(Event(rho="1"), horizon=2000, method="square-root", decay=Window(12)),
        ]
