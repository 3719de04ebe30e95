"""Tide: measure when it pays, filter by a model, spend nothing on deciding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import one_of, whole
from tidegate.ledger import Ledger
from tidegate.mechanisms.losses import noise_losses
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.shared_noise import NOISES, Sharing, SharingMechanism, columns_apart
from tidegate.mechanisms.tide.kernels.loop import SCALE
from tidegate.mechanisms.tide.run import TideRun
from tidegate.mechanisms.tide.schedule import Choices, choices
from tidegate.policy import Event, Policy, User, WEvent, ZeroConcentrated
from tidegate.releases import Releases
from tidegate.structures.state_space_model import Structure, read_periods
from tidegate.structures.state_space_tracker import SINGLE

FEW_HARMONICS = 2  # of each period, where many columns share their gains


@dataclass(frozen=True)
class Tide(SharingMechanism):
    """Measure some steps of each window precisely, follow a model in between, and choose how many from releases.

    k measurements in a window, each with ε/k, say more about what stays the same than many weak ones. What changes is
    bridged by a structural model (a level that wanders, short memory, harmonics of public periods) whose
    hyper-parameters come from the measurements themselves. The model predicts the error of each k, and the best
    is followed; when innovations are too large for the model, every step is measured until it fits again. Deciding
    looks at past releases only, so it costs nothing, and all of ε is spent on measurements.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`.
    periods
        Public periods of the stream in steps, such as (24, 168) for hours of days and weeks. None by default: then the
        model is a level and its residuals.
    harmonics
        How many harmonics each period has: 2 where more than 16 columns share their gains, else 8, and 16 for a
        week after a day, so that the days of a week may differ.
    delay
        After how many steps, at most, smoothed values of a step are known (`release.revised`); 0 for never. By default
        w under a w-event policy, else 0.
    aim
        Which error the schedule makes small: that of values "now", or that of the "revised" ones. These are better
        with fewer, stronger measurements.
    nonnegative
        Whether the stream is known not to be negative: then no release is. Counts are; centred sums are not. A
        configuration file derives it from its query.
    noise
        "auto": measurements share noise where the model says that it gains. "laplace": each has noise of its own. "cube",
        "semiorder": they may share this kind. With ρ each has Gaussian noise of its own, and there is nothing to choose.

    Privacy
    -------
    Unit and neighbours: the policy's. Every measurement is a discrete Laplace mechanism on the whole vector of its
    step, charged to that step before its noise is used, and the ledger allows no window more than ε. Which steps are
    measured, with which share, all hyper-parameters and the model's state are functions of earlier measurements and
    public constants. Releases, smoothed values and intervals are post-processing.
    Measurements that share noise are one mechanism together, charged as one group: before its first measurement, for
    that step; and before every other one for all steps up to it. A group of at most L measurements with noise of the cube
    loses its share, a semiorder all of ε in every window that it meets, or, while it has a part of its budget only, as
    much as it was charged. So a window is charged with the opening and
    whatever has noise of its own inside of it, and once with each group that meets it; the ledger allows no more than ε.
    The state of a run is secret then (docs/noise.md). With ρ a measurement that costs the part s of the budget has
    discrete Gaussian noise of variance Δ²/(2sρ), and no window is charged with more than ρ. Proof: docs/proofs/tide.md.

    Error
    -----
    Every release says its own (`release.deviation`, `release.interval(0.9)`). Time O(n²) a step for n states, and
    O(n·d) for d columns; memory O(n² + n·d) and a bounded history, independent of the length of the stream.

    Examples
    --------
    >>> import numpy as np
    >>> mechanism = Tide(WEvent(epsilon="0.1", w=48), periods=(48, 336))
    >>> mechanism.structure.states
    48
    >>> run = mechanism.start()
    >>> releases = run.push_batch(np.full((500, 1), 5000))
    >>> releases.values.shape, releases.deviation.shape, releases.revised[0].delay
    ((500, 1), (500, 1), 47)
    >>> run.ledger.verify().ok
    True

    References
    ----------
    Harvey: Forecasting, structural time series models and the Kalman filter. Cambridge University Press 1989.
    Durbin, Koopman: Time series analysis by state space methods. Oxford University Press 2012.
    Fan, Xiong: An adaptive approach to real-time aggregate monitoring with differential privacy. TKDE 2014.
    """

    periods: Sequence[float] = ()
    harmonics: int | Sequence[int] | None = None
    delay: int | None = None
    aim: str = "now"
    nonnegative: bool = False

    supports: ClassVar[tuple[type[Policy], ...]] = (Event, WEvent, User)
    budgets: ClassVar[tuple[str, ...]] = ("Pure", "ZeroConcentrated")

    def validate(self) -> None:
        """Check the model and the delay."""
        put = object.__setattr__
        put(self, "periods", read_periods(self.periods))
        few = None if self.columns <= SINGLE else FEW_HARMONICS
        wanted = few if self.harmonics is None else self.harmonics
        put(self, "harmonics", tuple(wanted) if isinstance(wanted, Sequence) else wanted)
        put(self, "harmonics", self.structure.harmonics)
        one_of("noise", self.noise, NOISES, 'write noise="auto"')
        if self.noise not in ("auto", "laplace") and isinstance(self.policy.budget, ZeroConcentrated):
            raise InvalidParameter("noise", self.noise, "'auto' where rho is given", "drop it")
        _ = self.choices  # built here, so that what it refuses is refused before anything is charged
        usual = self.policy.steps_charged if isinstance(self.policy, WEvent) and self.policy.w > 1 else 0
        delay = usual if self.delay is None else whole("delay", self.delay, least=0, most=2**20)
        if delay == 1:
            raise InvalidParameter("delay", 1, "0 or at least 2", "write delay=0 for no smoothed values")
        put(self, "delay", delay)
        if self.aim not in ("now", "revised") or (self.aim == "revised" and not delay):
            raise InvalidParameter(
                "aim",
                self.aim,
                "'now', or 'revised' where there is a delay",
                "write aim='now' or give a delay",
            )
        if not isinstance(self.nonnegative, bool):
            raise InvalidParameter("nonnegative", self.nonnegative, "True or False", "choose one of them")

    @cached_property
    def structure(self) -> Structure:
        """The model's public part."""
        counts = self.harmonics
        return Structure(tuple(self.periods), tuple(counts) if isinstance(counts, Sequence) else counts)

    @cached_property
    def choices(self) -> Choices:
        """How many measurements a window may have, and what each costs."""
        policy = self.policy
        gaussian = isinstance(policy.budget, ZeroConcentrated)
        auto = () if gaussian else ("cube", "semiorder")
        kinds = {"laplace": (), "auto": auto}.get(self.noise, (self.noise,))
        apart = columns_apart(policy, self.columns)
        return choices(
            policy.steps_charged,
            policy.window is not None,
            self.periods,
            self.sensitivity,
            Fraction(policy.budget.total),
            1 if apart else self.columns,
            self.columns if apart else 1,
            kinds,
            gaussian,
        )

    @property
    def shares_noise(self) -> bool:
        """Whether a run has a secret state."""
        return self.choices.shared

    @property
    def columns_independent(self) -> bool:
        """Columns have a schedule in common."""
        return False

    @property
    def sharing(self) -> Sharing | None:
        """No law that all measurements share."""
        return None

    def describe(self) -> dict[str, Any]:
        """Identify the configuration exactly; without shared noise as it was described before there was any."""
        described = super().describe()
        return {**described, "noise": self.choices.describe()} if self.shares_noise else described

    @property
    def revises(self) -> bool:
        """Whether there are smoothed values."""
        return bool(self.delay)

    @property
    def revision(self) -> int:
        """The delay of smoothed values."""
        assert self.delay is not None
        return self.delay

    @property
    def units(self) -> int:
        """Small ones, so that all shares are whole numbers of them."""
        return self.choices.units

    @property
    def noise_error(self) -> float:
        """The mean absolute error where the model cannot help at all: that of measuring every step."""
        tables = self.choices
        law = tables.laws[tables.dense]
        scale = float(tables.scales[tables.dense, SCALE])
        own = self.own_noise.expected_absolute
        expected = own(scale) if law is None else law.law.expected_absolute()
        return expected * float(Fraction(self.grid))

    def step_losses(self, releases: Releases) -> npt.NDArray[np.float64] | None:
        """What each measured step lost, from its scale; measurements that share noise lose together."""
        return None if self.shares_noise else noise_losses(self, releases)

    def start(self, ledger: Ledger | Path | str | None = None, state: bytes | None = None) -> TideRun:
        """Begin, or go on with, a run."""
        return TideRun(self, ledger, state)

    @classmethod
    def candidates(cls, policy: Policy, columns: int, season: int | None) -> list[Mechanism]:
        """Days and weeks as periods where there are any, smoothed at once or for later."""
        periods = (season, 7 * season) if season is not None else ()
        return [cls(policy, columns=columns, periods=periods, nonnegative=True)]

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return [
            cls(WEvent(epsilon="4", w=10), columns=3, periods=(24,), harmonics=2, nonnegative=True),
            cls(WEvent(epsilon="2", w=12), periods=(24,), harmonics=2, noise="laplace"),
            cls(WEvent(epsilon="2", w=12), periods=(24,), harmonics=2),
            cls(WEvent(rho="1/2", w=20), columns=2, periods=(24,), harmonics=2),
            cls(WEvent(epsilon="1/3", w=24, adjacency="replace"), columns=20, grid="0.5", delay=7),
            cls(
                User(epsilon="2", horizon=6000), periods=(24, 168), harmonics=(3, 2), delay=10, aim="revised"
            ),
            cls(Event(epsilon="1"), columns=2),
        ]
