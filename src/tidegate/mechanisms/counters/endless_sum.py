"""EndlessSum: running sums of a stream whose length nobody knows, with correlated Gaussian noise and a smooth error."""

from __future__ import annotations

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
from tidegate.errors import InvalidParameter
from tidegate.exact import sqrt_up, whole
from tidegate.mechanisms.counters import endless_design as design
from tidegate.mechanisms.counters.blt import BITS, SLACK
from tidegate.mechanisms.counters.endless_design import LONGEST, Phase, phase_of, phases
from tidegate.mechanisms.counters.factorization import CELLS, WORTHWHILE, clamp, measure_blt, recover_blt
from tidegate.mechanisms.counters.tree import LONG_RUN, every_step, refuse_beyond
from tidegate.mechanisms.mechanism import Mechanism, mean_over_steps
from tidegate.noise import gaussian, prepare, variance_gaussian
from tidegate.noise.entropy import Source
from tidegate.policy import Approximate, Event, Policy, WEvent, ZeroConcentrated
from tidegate.queries.sums import gaussian_radius

GUARD = 3  # binary places by which values are moved up, so that rounding matters less
LIMIT = 1 << 29  # grid units; values beyond are cut. A buffer of 2^28 such values, moved up, is within 2^60
STREAM = "endless sum"


class State(NamedTuple):
    """All that is carried from step to step: ten buffers on either side of the noise."""

    measured: Any  # how many steps
    whole: Any  # SECRET: discounted sums of raw values, the whole part
    part: Any  # SECRET: and 31 binary places
    buffers: Any  # the same of the estimates
    previous: Any  # the last estimate
    last: Any  # the last sum
    covariance: Any  # of the errors of the last sum and of the estimates' discounted sums: public


@kernel
def spread(theta: Any, omega: Any, variance: float, covariance: Any, variances: Any) -> None:
    """The variance of each step's sum: x̂ errs by ξ = z − Σ_i ω_i·e_i, the sum by ξ more, and e_i ← θ_i·e_i + ξ."""
    size = theta.size
    with_estimate = np.empty(
        size + 1
    )  # the covariances of Σ_i ω_i·e_i with the sum's error and with each e_j
    for step in range(variances.size):
        own = variance
        for row in range(size + 1):
            total = 0.0
            for buffer in range(size):
                total += omega[buffer] * covariance[row, buffer + 1]
            with_estimate[row] = total
        for buffer in range(size):
            own += omega[buffer] * with_estimate[buffer + 1]
        for row in range(size + 1):
            fade = 1.0 if row == 0 else theta[row - 1]
            for column in range(row + 1):
                other = 1.0 if column == 0 else theta[column - 1]
                found = fade * other * covariance[row, column] + own
                found -= fade * with_estimate[row] + other * with_estimate[column]
                covariance[row, column] = found
                covariance[column, row] = found
        variances[step] = covariance[0, 0]


@kernel
def weigh(theta: Any, omega: Any, weights: Any, adjoint: Any) -> float:
    """The sum of squares of how far the noise of each step moves Σ_t weights[t]·(sum of step t), from the last step back.

    `adjoint` says how far the errors after a step move it: that of the sum, and those of the discounted sums.
    """
    squares = 0.0
    for step in range(weights.size - 1, -1, -1):
        adjoint[0] += weights[step]
        moved = adjoint.sum()
        squares += moved * moved
        for buffer in range(theta.size):
            adjoint[buffer + 1] = theta[buffer] * adjoint[buffer + 1] - omega[buffer] * moved
    return squares


@dataclass(frozen=True)
class EndlessSum(Mechanism):
    """Release the running sum after every step of a stream that need not end, with noise that cancels in later sums.

    A step's measurement is y_t = x_t + Σ_i ω_i·S_i + z_t, where S_i is the sum of earlier steps that fades by θ_i a step,
    and z_t is Gaussian noise. Estimates x̂ follow from y alone, and so do sums, as in :class:`Factorization`. The weights
    ω_i and the noise are set anew at the steps 1, 2, 3, 4, 6, 8, 12, 16, …: at step t they are nearly those of a counter
    for t steps. The ten θ_i stay the same, so nothing restarts, and old noise keeps cancelling.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`; the budget is `rho`, or `epsilon` with `delta` under `Event`.

    Privacy
    -------
    Unit and neighbours: the policy's. Let C be the matrix of all weights, with each row divided by the deviation of its
    step's noise. The values of a window of w steps move C·x by at most Δ·N_w, where N_w bounds the norm of the sum of
    any w columns that follow each other; rounding adds a little. Discrete Gaussian noise with σ of that over √(2ρ) gives
    ρ-zCDP (Canonne, Kamath and Steinke 2020), for adaptive streams too. Weights, noise and N_w are public numbers.
    With (ε, δ), ρ is the largest whose conversion stays below δ, and only under `Event`. Refused under `User`: an
    endless stream has no user-level guarantee. Values beyond 2^29 grid units are cut. More than 2^28 − 1 steps are
    refused. The state holds discounted sums of raw values: protect it.

    Error
    -----
    Unbiased. Under `Event` the variance at every step t < 2^28 is at most 1.5 times that of the square root for exactly t
    steps. `standard_deviation(step)`, `expected_error(step)`, `radius(step)` and `deviation_of(weights)` need no data.
    Time and memory O(d·buffers), of which there are ten.

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> from tidegate.mechanisms.counters.hybrid_tree import HybridTree
    >>> mechanism = EndlessSum(Event(rho="1/2"))
    >>> tree = HybridTree(mechanism.policy)
    >>> 0.4 < mechanism.standard_deviation(1_000_000) / tree.standard_deviation(1_000_000) < 0.6
    True
    >>> Session(mechanism).push_batch([3, 0, 1]).values.shape
    (3, 1)

    References
    ----------
    Jacobsen, Fawaz: Private continual counting of unbounded streams. 2025 (the question; their answer is another one).
    Dvijotham et al.: Efficient and near-optimal noise generation for streaming differential privacy. FOCS 2024 (buffers).
    """

    columns_independent: ClassVar[bool] = True
    supports: ClassVar[tuple[type[Policy], ...]] = (Event, WEvent)
    budgets: ClassVar[tuple[str, ...]] = ("ZeroConcentrated", "Approximate")
    statistic: ClassVar[str] = "sums"
    spreads: ClassVar[bool] = True
    keeps_raw_values: ClassVar[bool] = True  # discounted sums of the stream

    def validate(self) -> None:
        """Check the budget, and that noise can be drawn in all phases."""
        if isinstance(self.policy.budget, Approximate) and not isinstance(self.policy, Event):
            raise InvalidParameter(
                "policy",
                str(self.policy.budget),
                "in ρ for windows, since an (ε, δ) budget cannot be split into steps of Gaussian noise",
                'write rho="…", which implies an (ε, δ)',
            )
        prepare(self.sigma_of(phases()[0]), "sigma")
        prepare(self.sigma_of(phases()[-1]), "sigma")

    @cached_property
    def rho(self) -> Fraction:
        """The ρ that is spent: the policy's, or the largest whose conversion to (ε, δ) keeps the policy's."""
        budget = self.policy.budget
        if isinstance(budget, ZeroConcentrated):
            return budget.rho
        assert isinstance(budget, Approximate)
        return zcdp_rho(budget.epsilon, budget.delta)

    @cached_property
    def places(self) -> int:
        """Binary places of the lattice on which 2^GUARD times the values are measured."""
        own = self._rounded * design.rounding(0)
        places = 0
        while places < BITS and own >= WORTHWHILE * self._moved * 2.0**places:
            places += 1  # a coarser lattice has quicker noise
        return places

    @cached_property
    def _moved(self) -> float:
        """How far a window's values move C·x, before it is rounded."""
        return self.sensitivity * 2.0**GUARD * design.norm(self.policy.steps_charged)

    @cached_property
    def _rounded(self) -> float:
        """How often the rounding of one column counts: columns that differ, and steps of a window."""
        window = self.policy.steps_charged
        return math.sqrt(window * min(self.columns, window * self.sensitivity))

    @cached_property
    def _first_square(self) -> Fraction:
        """σ² of step 1, in lattice units."""
        moved = self._moved * 2.0**self.places + self._rounded * design.rounding(self.places)
        return Fraction(moved * (1 + SLACK)) ** 2 / (2 * self.rho)

    def sigma_of(self, phase: Phase) -> float:
        """σ of the noise z of a phase, in lattice units; rounded up."""
        return sqrt_up(self._first_square * phase.noise)

    def variance_of(self, phase: Phase) -> float:
        """The variance of one z, in the squared unit of 2^GUARD grid units."""
        return variance_gaussian(self.sigma_of(phase)) * 4.0**-self.places

    # what a session asks -----------------------------------------------------------------------------------------

    def begin(self, first: int) -> State:
        """Nothing was measured."""
        d, k = self.columns, len(design.DECAY)
        exact = (np.zeros((d, k), dtype=np.int64), np.zeros((d, k), dtype=np.int64))
        return State(np.zeros(1, dtype=np.int64), *exact, np.zeros((d, k)), np.zeros(d), np.zeros(d),
                     np.zeros((k + 1, k + 1)))  # fmt: skip

    def public(self, state: State, first: int, count: int) -> Charges:
        """Every step costs the same, and almost 2^28 of them can be measured."""
        refuse_beyond(LONGEST, int(state.measured[0]), count, "HybridTree")
        return Charges(first, np.ones(count, dtype=np.int64))

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Measure exactly, then recover; steps of one phase at a time, and not too many."""
        values, variances = np.empty(rows.shape), np.empty(len(rows))
        limited = clamp(rows, LIMIT) << GUARD
        at, room = 0, max(1, CELLS // self.columns)
        while at < len(rows):
            own = int(state.measured[0]) + 1
            phase = phase_of(own)
            part = slice(at, min(len(rows), at + room, at + phase.first + phase.size - own))
            self._measure(
                state, phase, limited[part], first + at, noise.source, values[part], variances[part]
            )
            state.measured[0] += part.stop - at
            at = part.stop
        unit = self._unit
        return every_step(first, values * unit, np.sqrt(variances) * unit)

    def _measure(
        self,
        state: State,
        phase: Phase,
        rows: Matrix,
        first: int,
        source: Source,
        values: Floats,
        variances: Floats,
    ) -> None:
        """Some steps of one phase."""
        noise = gaussian(source, STREAM, first, self.sigma_of(phase), rows.shape)
        decay, output, measured = np.array(design.DECAY), np.array(phase.output), np.empty(rows.shape)
        theta, omega = 1.0 - design.GAP, phase.omega
        measure_blt(rows, decay, output, self.places, state.whole, state.part, noise, measured)
        recover_blt(measured, theta, omega, state.buffers, state.previous, state.last, values)
        spread(theta, omega, self.variance_of(phase), state.covariance, variances)

    @property
    def _unit(self) -> float:
        """What 1 is in measurements, in the values' unit."""
        return 2.0**-GUARD * float(Fraction(self.grid))

    # closed forms, before anything is released ---------------------------------------------------------------

    @cached_property
    def _covariances(self) -> list[Floats]:
        """What `State.covariance` is when a phase begins."""
        found = [np.zeros((len(design.DECAY) + 1,) * 2)]
        for phase in phases()[:-1]:
            found.append(self._after(found[-1], phase, phase.size))
        return found

    def _after(self, covariance: Floats, phase: Phase, steps: int) -> Floats:
        """The covariance after some steps of a phase, e ← F·e + (1, 1, …)·z, by doubling."""
        forward = np.diag(np.concatenate([[1.0], 1.0 - design.GAP]))
        forward[:, 1:] -= phase.omega
        added = np.full_like(forward, self.variance_of(phase))
        while steps:
            if steps & 1:
                covariance = forward @ covariance @ forward.T + added
            added = forward @ added @ forward.T + added
            forward = forward @ forward
            steps >>= 1
        return covariance

    @property
    def noise_kind(self) -> str:
        """Gaussian noise, whatever the budget."""
        return "gaussian"

    def standard_deviation(self, step: int) -> float:
        """The standard deviation of the running sum released at a step, in the values' unit."""
        phase = phase_of(whole("step", step, most=LONGEST))
        begun = self._covariances[phases().index(phase)]
        return math.sqrt(float(self._after(begun, phase, step - phase.first + 1)[0, 0])) * self._unit

    @property
    def long_run(self) -> int:
        """How many steps are the whole, where nothing else is said."""
        return self.policy.horizon or LONG_RUN

    def expected_error(self, first: int | None = None, last: int | None = None) -> float:
        """The mean absolute error of the running sum; by default over the first million steps."""
        if first is None:
            first, last = 1, last or self.long_run
        mean = mean_over_steps(self.standard_deviation, first, first if last is None else last)
        return math.sqrt(2 / math.pi) * mean

    def radius(self, step: int, confidence: float = 0.95) -> float:
        """Half the width of a confidence interval around the running sum at a step."""
        return gaussian_radius(self.standard_deviation(step), confidence)

    def deviation_of(self, weights: npt.ArrayLike) -> float:
        """The standard deviation of Σ_t weights[t−1]·(running sum of step t)."""
        given = np.asarray(weights, dtype=np.float64)
        variance, adjoint = 0.0, np.zeros(len(design.DECAY) + 1)
        for phase in reversed(phases()):
            part = given[phase.first - 1 : phase.first - 1 + phase.size]
            if len(part):
                squares = weigh(1.0 - design.GAP, phase.omega, part, adjoint)
                variance += squares * self.variance_of(phase)
        return math.sqrt(variance) * self._unit

    def radius_of(self, weights: npt.ArrayLike, confidence: float = 0.95) -> float:
        """Half the width of a confidence interval around a linear answer."""
        return gaussian_radius(self.deviation_of(weights), confidence)

    def describe(self) -> dict[str, Any]:
        """Identify the configuration exactly, as JSON; the public integers by their digest."""
        return super().describe() | {"strategy": design.digest()}

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(Event(rho="1/2"), columns=3),
            cls(WEvent(rho="1/2", window=5), grid="0.01"),
            cls(Event(epsilon="1", delta="1e-6", adjacency="replace"), columns=2),
        ]
