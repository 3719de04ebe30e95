"""Factorization: running and decayed sums with correlated Gaussian noise, the state of the art under zCDP."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.composition import zcdp_rho
from tidegate.exact import sqrt_up, whole
from tidegate.ledger import Ledger
from tidegate.mechanisms.counters import blt, factorization_parameters, toeplitz
from tidegate.mechanisms.counters.factorization_run import BltRun, FactorizationRun, ToeplitzRun
from tidegate.mechanisms.counters.kernels.factorization import BITS, recover_blt
from tidegate.mechanisms.mechanism import Mechanism, mean_over_steps
from tidegate.noise import variance_gaussian
from tidegate.policy import Approximate, Event, Policy, User, WEvent, ZeroConcentrated
from tidegate.queries.decayed import Decay, Exponential, Polynomial, Window
from tidegate.queries.sums import gaussian_radius
from tidegate.releases import Values

WORTHWHILE = 1 / 512  # how much of the sensitivity the rounding of a coarse lattice may add


@dataclass(frozen=True)
class Factorization(Mechanism):
    """Release running sums A·x as B·(C·x + z): noise is added once a step, and cancels in later sums.

    The measurement y_t = (C·x)_t + z_t is exact integer arithmetic on a lattice; x̂ = C⁻¹·y and its running sum are
    computed from y alone, in floating point, and are therefore free.

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
        The integers of C, filled in; give them to go on with a run that another version or machine began.

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
    and `deviation_of(weights)` before anything is released. At n = 10⁴ and ρ = ½ the mean absolute error is 3.01 (BLT),
    3.06 (square root), 5.6 (binary tree with Honaker's estimator), 7.5 (plain). Time O(d·buffers) a step.

    Examples
    --------
    >>> mechanism = Factorization(Event(rho="1/2"), horizon=10_000)
    >>> mean = float(np.mean([mechanism.expected_error(step) for step in range(1, 10_001, 50)]))
    >>> 2.9 < mean < 3.1
    True
    >>> mechanism.start().push_batch([3, 0, 1]).values.shape
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

    def start(
        self, ledger: Ledger | Path | str | None = None, state: bytes | None = None
    ) -> FactorizationRun:
        """Begin, or go on with, a run."""
        return (BltRun if self.method == "blt" else ToeplitzRun)(self, ledger, state)

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(Event(rho="1/2"), columns=3, horizon=2000),
            cls(WEvent(rho="1/2", w=5), grid="0.01", horizon=2000, buffers=3),
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
