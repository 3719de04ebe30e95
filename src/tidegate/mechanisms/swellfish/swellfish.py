"""Swellfish: noise that follows public specifications of what is to be hidden, and when."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.compiled import kernel
from tidegate.core.charges import Charges, Integers
from tidegate.core.mechanism import Floats, Matrix, Output
from tidegate.core.rows import Draws
from tidegate.core.secrets_account import SecretsAccount
from tidegate.core.values import MISSING, ValueReader
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.exact import ExactLike, exact, one_of, show
from tidegate.mechanisms.mechanism import PUBLIC_CLOCK, Mechanism
from tidegate.mechanisms.swellfish.schedules import FORMS, Schedule
from tidegate.noise import laplace
from tidegate.policy import Approximate, Clock, Guarantee, Policy, Pure, Secret, Specification
from tidegate.policy import Swellfish as SwellfishPolicy
from tidegate.policy.promises import ENDLESS, promises_of
from tidegate.releases import Status
from tidegate.structures.kernels.grid import half_up

STREAM = "swellfish"
AHEAD = 1024  # steps whose schedule is computed at once
# a window of the longest event has 2^20 units a step, or fewer where sums would overflow
FINEST, COARSEST = 20, 8
PUBLIC = "the specifications are public and were not derived from what they hide"
EXPERIMENT = (
    "nobody lives in the households of this experiment: its specifications were derived from recorded use"
)
GAPS_SHOWN = "which readings are missing is not protected"


class State(NamedTuple):
    """What fills missing readings; released. Nothing else is carried from step to step."""

    hold: Any  # the last released values
    source: Any  # the step that they were measured at; 0 before there was any


@kernel
def fill_gaps(
    matrix: Any, noise: Any, gaps: Any, silent: Any, hold: Any, held: bool, grid: float,
    first: int, source: int, values: Any, sources: Any,
) -> None:  # fmt: skip
    """Write released values: reading + noise, or what fills the gap + noise; `silent` steps repeat the fill alone.

    With `held`, a gap is filled with the last released value, rounded to the grid; else `hold` stays as it is.
    """
    for step in range(matrix.shape[0]):
        for column in range(matrix.shape[1]):
            if silent[step]:
                values[step, column] = hold[column]
                continue
            reading = matrix[step, column]
            if gaps[step, column]:
                reading = np.int64(half_up(hold[column] / grid))
            values[step, column] = (reading + noise[step, column]) * grid
            if held:
                hold[column] = values[step, column]
        if not silent[step]:
            source = first + step
        sources[step] = source


@dataclass(frozen=True)
class Swellfish(Mechanism):
    """Add at each step as much noise as the secrets that are relevant there need, and no more.

    A specification says which events (height p, duration T) must not be recognised inside which hiding intervals,
    each at a level ε. At step t the temporal sensitivity Δ_t of a specification is the sum of the heights of its
    relevant secrets, and noise of scale Δ_t·max T/ε hides any of them. With many specifications the largest scale
    serves all. Where only low, short or lenient secrets are relevant, the noise is low.

    Parameters
    ----------
    policy
        A :class:`tidegate.policy.Swellfish` with its specifications, which do not change while a log is written. Each has
        a baseline secret that is relevant at every step (``intervals="always"``, or every day from 00:00 to 24:00), since
        a step without noise would be published as it is.
    columns, grid, rounding
        As for every :class:`Mechanism`. Heights are multiples of the grid. With rounding="nearest" the policy's
        `allowance` is at least the grid for every column that a household touches.
    schedule
        "windowed" (default): Δ_t·max T_s/ε_s. "printed": Δ_t·(max T_s)/(min ε_s), the paper's Theorem 8, never
        smaller. "optimal": the convex program over the whole horizon, never worse in mean squared error (for the
        windowed promise without δ).
    share
        The part of every promise that this release may use, where there are several (Theorem 5).
    fill
        What stands in for a missing reading (NaN): "released" for the last released value, or a public number.
        None refuses missing readings.
    gap_change
        By how much a filled reading can differ from the true one, at most. If given, and no more than the height of
        every baseline secret, a gap is hidden like the baseline event: filled steps get noise like all others. Only
        with a public number for `fill`: a released value lies as far from the true one as its noise says.
    experiment
        Accepts specifications that were derived from recorded use; nothing of such a stream protects anybody.

    Privacy
    -------
    Unit and neighbours: one placement of one secret's event, at most T_s consecutive steps inside its hiding interval,
    each changed by at most Δ_t (the policy's "windowed" promise); with promise="joint" also one occurrence of every
    event at once, seen inside one hiding interval (Definitions 7 and 13 read literally; scale max A_s/ε_s,
    A_s = Σ p·min(T, |J ∩ J_s|), and the larger of both). docs/proofs/swellfish.md.
    The account checks for every secret and every placement that Σ Δ_t/λ_t ≤ ε_s before noise is drawn. With δ, each
    placement is an optimal composition of T_s steps (Theorem 11 with the exact composition in place of the printed
    bound). Departures from the paper: Theorem 8's proof covers one placement only, so that is what is claimed by
    default; max T/ε replaces max T/min ε; a baseline secret is mandatory. Specifications are public. A missing reading
    that is not `gap_change`-bounded is published as missing (status "approximated"), without noise or charge.

    Error
    -----
    Mean absolute error close to λ_t at step t, in each column. Time O(d) and memory of the longest event a step,
    besides O(steps + length of all hiding intervals) for making the schedule of a stretch.

    Examples
    --------
    >>> from tidegate.core.session import Session
    >>> from tidegate.policy import Secret, Specification, Swellfish as Policy
    >>> oven = Secret(3, 2, [(1, 4)], 1, "oven")
    >>> home = Secret(1, 1, "always", 1, "somebody is at home")
    >>> mechanism = Swellfish(Policy(specifications=[Specification((oven, home), "house 1")]))
    >>> mechanism.scales(1, 6).round(6).tolist()
    [8.0, 8.0, 8.0, 8.0, 1.0, 1.0]
    >>> Session(mechanism).push_batch([5, 8, 8, 5, 5, 5]).values.shape
    (6, 1)

    References
    ----------
    Tex, Schäler, Böhm: Swellfish privacy: publishing continuous private sum aggregates with high utility.
    """

    schedule: str = "windowed"
    share: ExactLike = 1
    fill: ExactLike | None = None
    gap_change: ExactLike | None = None
    experiment: bool = False

    plain: ClassVar[bool] = True
    columns_independent: ClassVar[bool] = True
    supports: ClassVar[tuple[type[Policy], ...]] = (SwellfishPolicy,)
    budgets: ClassVar[tuple[str, ...]] = ("Pure", "Approximate")

    def validate(self) -> None:
        """Check that every step has noise, and that heights, grid and promises fit together."""
        policy = self.secrets_policy
        one_of("schedule", self.schedule, FORMS, "write schedule='windowed' if unsure")
        share = exact("share", self.share)
        if not 0 < share <= 1:
            raise InvalidParameter(
                "share", self.share, "above 0 and at most 1", 'write for example share="1/2"'
            )
        object.__setattr__(self, "share", share)
        if policy.derived and not self.experiment:
            raise InvalidParameter(
                "policy",
                "derived specifications",
                "written by people, not derived from recorded use, which they would reveal",
                "let each household declare its secrets, or write experiment=True where nobody's data are used",
            )
        if policy.delta and policy.promise == "joint":
            raise InvalidParameter("delta", policy.delta, "0 under the joint promise", "drop delta")
        if self.schedule == "optimal" and (policy.horizon is None or policy.delta):
            raise InvalidParameter(
                "schedule",
                "optimal",
                "'windowed' without a horizon or with delta",
                "give the policy a horizon",
            )
        if self.schedule == "optimal" and policy.promise == "joint":
            raise InvalidParameter(
                "schedule",
                "optimal",
                "'windowed' or 'printed' under the joint promise, which the optimal schedule does not know",
                "use the windowed schedule, or promise='windowed'",
            )
        self._check_fill()
        for specification in policy.specifications:
            self.check_specification(specification)

    def check_specification(self, specification: Specification) -> None:
        """Refuse a specification with a step without noise, with heights off the grid, or too low to hide gaps."""
        policy, grid = self.secrets_policy, Fraction(self.grid)
        bare = specification.uncovered(policy.clock, policy.horizon)
        if bare is not None:
            raise InvalidParameter(
                "specifications",
                specification.label,
                f"complete with a baseline secret: nothing is hidden at step {bare}, which would have no noise",
                'add a secret with intervals="always"',
            )
        for secret in specification.secrets:
            if (Fraction(secret.height) / grid).denominator != 1:
                above = -(-Fraction(secret.height) // grid) * grid
                raise InvalidParameter(
                    "height",
                    show(Fraction(secret.height)),
                    f"a multiple of the grid of {show(grid)}",
                    f'write height="{show(above)}" or choose a finer grid',
                )
        touched = min(self.columns, policy.touches or self.columns)
        needed = grid * touched * (2 if policy.adjacency == "replace" and self.columns > 1 else 1)
        if self.rounding == "nearest" and Fraction(policy.allowance) < needed:
            raise InvalidParameter(
                "rounding",
                "nearest",
                f"covered by the policy's allowance, which is {show(Fraction(policy.allowance))}",
                f'write allowance="{show(needed)}" in the policy',
            )

        self._check_gaps(specification)
        ends = max(int(secret.intervals.rows[:, 1].max(initial=0)) for secret in specification.secrets)
        if policy.promise == "joint" and policy.horizon is None and ends >= ENDLESS:
            raise InvalidParameter(
                "promise",
                "joint",
                "'windowed' where a secret is hidden for ever",
                "hide the baseline day by day, or give the policy a horizon",
            )

    def _check_gaps(self, specification: Specification) -> None:
        """Refuse a specification whose baseline event is lower than what a filled gap can change."""
        if self.gap_change is None:
            return
        change = self.columns * Fraction(self.gap_change)  # a step may miss the readings of all columns
        if not any(secret.endless and Fraction(secret.height) >= change for secret in specification.secrets):
            raise InvalidParameter(
                "gap_change",
                show(Fraction(self.gap_change)),
                "at most the height of every specification's baseline secret, divided among the columns",
                "raise the baseline, or drop gap_change to leave gaps unprotected",
            )

    def _check_fill(self) -> None:
        if self.fill is not None and self.fill != "released":
            object.__setattr__(self, "fill", exact("fill", self.fill))
        if self.gap_change is not None:
            object.__setattr__(self, "gap_change", exact("gap_change", self.gap_change))
            if self.fill is None:
                raise InvalidParameter(
                    "gap_change", self.gap_change, "absent without fill", "say what fills gaps"
                )
            if self.fill == "released":
                raise InvalidParameter(
                    "gap_change",
                    self.gap_change,
                    'absent with fill="released", whose noise is no reading of anybody',
                    "fill with a public number, or drop gap_change to leave gaps unprotected",
                )

    @property
    def secrets_policy(self) -> SwellfishPolicy:
        """The policy, as what it is."""
        assert isinstance(self.policy, SwellfishPolicy)
        return self.policy

    @property
    def hides_gaps(self) -> bool:
        """Whether it stays hidden which readings are missing: every specification in force was checked for it."""
        return self.gap_change is not None

    @cached_property
    def units(self) -> int:
        """So many that the strictest secret spends 2^20 a step, or fewer where sums would leave 64 bits."""
        for bits in range(FINEST, COARSEST, -1):
            try:
                promises_of(self.secrets_policy, self.secrets_policy.window << bits)
            except InvalidParameter:
                continue
            return self.secrets_policy.window << bits
        return self.secrets_policy.window << COARSEST

    @cached_property
    def plan(self) -> Schedule:
        """What each step may spend, as long as the specifications stay as they are."""
        return Schedule(self, promises_of(self.secrets_policy, self.units))

    def scales(self, first: int, last: int) -> npt.NDArray[np.float64]:
        """The noise scales λ_t of the steps first to last, in the values' unit."""
        return self.plan.scales(self.plan.units(first, last)) * float(Fraction(self.grid))

    def expected_error(self, first: int | None = None, last: int | None = None) -> float:
        """The mean absolute error of the values of some steps (by default the horizon, or one longest event)."""
        if first is None:
            first, last = 1, last or self.policy.horizon or self.policy.steps_charged
        last = first if last is None else last
        inverse = 1 / (self.scales(first, last) / float(Fraction(self.grid)))
        return float(np.mean(1 / np.sinh(np.minimum(inverse, 700)))) * float(Fraction(self.grid))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the guarantee takes for granted."""
        gaps = GAPS_SHOWN
        if self.fill is None:
            gaps = "no reading is missing"
        elif self.hides_gaps:
            gaps = (
                f"a filled reading differs from the true one by at most {show(Fraction(self.gap_change or 0))}, so that "
                "a gap no longer than the baseline event is hidden like it"
            )
        bounded = "no event is higher or longer than its specification says"
        return (PUBLIC_CLOCK, EXPERIMENT if self.secrets_policy.derived else PUBLIC, bounded, gaps)

    @property
    def guarantee(self) -> Guarantee:
        """What is proved: the sentence names the largest ε, which holds for every secret, and the smallest."""
        policy = self.secrets_policy
        levels = [Fraction(secret.epsilon) for secret in policy.secrets]
        delta = Fraction(policy.delta)
        budget = Approximate(max(levels), delta) if delta else Pure(max(levels))
        unit = f"{policy.unit()} (each at its own ε, the strictest at {show(min(levels))})"
        return Guarantee(type(self).__name__, policy, self.assumptions, unit=unit, budget=budget)

    # what a session asks -----------------------------------------------------------------------------------------

    @property
    def accepts_missing(self) -> bool:
        """Whether a reading may be missing (NaN)."""
        return self.fill is not None

    def reader(self) -> ValueReader:
        """Values of columns, of which some may be missing."""
        clamp = None if self.clamp is None else Fraction(self.clamp)
        return ValueReader(self.columns, Fraction(self.grid), self.rounding, clamp, self.accepts_missing)

    def account(self) -> SecretsAccount:
        """Judged by the secrets, not by windows alone."""
        return SecretsAccount(self.secrets_policy, self.units)

    def begin(self, first: int) -> State:
        """Nothing was released."""
        return State(np.zeros(self.columns), np.zeros(1, dtype=np.int64))

    def public(self, state: State, first: int, count: int) -> Charges:
        """The schedule is public. A step whose readings are all missing may cost less."""
        return Charges(first, self._scheduled(first, count))

    @cached_property
    def _ahead(self) -> list[tuple[int, Integers]]:
        """The first step of the schedule that was computed last, and its units: public, and remembered for speed."""
        return [(1, np.zeros(0, dtype=np.int64))]

    def _scheduled(self, first: int, count: int) -> Integers:
        """What the schedule spends; steps after the horizon have one unit, and the account refuses them."""
        begin, units = self._ahead[0]
        if first < begin or first + count > begin + len(units):
            horizon, last = self.policy.horizon, first + max(count, AHEAD) - 1
            try:
                known = self.plan.units(first, last if horizon is None else min(last, horizon))
            except (OverflowError, ValueError):
                raise InvalidInput(
                    f"step {last} lies beyond the end of the calendar of the policy's secrets; open a new stream."
                ) from None
            units = np.concatenate([known, np.ones(max(0, count - len(known)), dtype=np.int64)])
            begin, self._ahead[0] = first, (first, units)
        return units[first - begin : first - begin + count].copy()

    def advance(self, state: State, rows: Matrix, first: int, noise: Draws) -> Output:
        """Measure every step that has a reading."""
        count, grid = len(rows), float(Fraction(self.grid))
        units = self._scheduled(first, count)
        scales = self.plan.scales(units)
        drawn = laplace(noise.source, STREAM, first, scales[:, np.newaxis], rows.shape)
        status = np.full(count, int(Status.FRESH), dtype=np.int8)
        source, shown = np.arange(first, first + count), scales * grid
        gaps = rows == MISSING if self.accepts_missing else np.zeros((0, 0), dtype=np.bool_)
        if gaps.any():
            if not self.hides_gaps:  # a step that is missing altogether needs no noise
                missing = gaps.all(axis=1)
                units[missing], shown[missing], status[missing] = 0, 0.0, int(Status.APPROXIMATED)
            values = self._filled(state, rows, drawn, gaps, status, source)
        else:
            values = np.multiply(rows + drawn, grid, dtype=np.float64)
        if count and self.accepts_missing:
            state.hold[:], state.source[0] = values[-1], source[-1]
        return Output(values, status, source, shown, units)

    def _filled(
        self,
        state: State,
        rows: Matrix,
        drawn: Integers,
        gaps: npt.NDArray[np.bool_],
        status: npt.NDArray[np.int8],
        source: Integers,
    ) -> Floats:
        """Values whose gaps are filled from what was released before, or from a public number; writes `source`."""
        released = self.fill == "released"
        hold = state.hold.copy() if released else np.full(self.columns, float(Fraction(self.fill or 0)))
        values = np.empty(rows.shape)
        silent, grid = status == int(Status.APPROXIMATED), float(Fraction(self.grid))
        fill_gaps(
            np.where(gaps, 0, rows), drawn, gaps, silent, hold, released, grid,
            int(source[0]), int(state.source[0]), values, source,
        )  # fmt: skip
        return values

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        home = Secret(1, 2, "always", 1, "somebody is at home")
        oven = Secret(3, 2, [(1, 4), (20, 29), (50, 55)], "0.5", "oven")
        away = Secret(2, 9, [(12, 40)], "0.2", "holiday")
        evening = Secret(2, 3, [], "1/3", "cooking", recurring=("every day 18:00-23:00",))
        daily = Secret(1, 2, [], 1, "somebody is at home", recurring=("every day 00:00-24:00",))
        clock = Clock("2026-03-28T00:00", "1 h", "Europe/Berlin")
        one, two = Specification((home, oven, away), "one"), Specification((home, evening), "two")
        described: dict[str, Any] = {"specifications": (one, two), "clock": clock}
        return [
            cls(SwellfishPolicy(specifications=(one,))),
            cls(SwellfishPolicy(**described), columns=2, schedule="printed"),
            cls(SwellfishPolicy(**described, delta="1e-6"), share="1/2"),
            cls(SwellfishPolicy(specifications=(one,), horizon=4000), schedule="optimal"),
            cls(
                SwellfishPolicy(
                    specifications=(Specification((daily, evening), "two"),), clock=clock, promise="joint"
                )
            ),
        ]
