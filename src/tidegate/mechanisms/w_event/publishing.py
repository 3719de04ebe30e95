"""What Budget Distribution and Budget Absorption share: test the dissimilarity, then publish or approximate."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidParameter
from tidegate.exact import float_up, one_of, whole
from tidegate.ledger import Ledger
from tidegate.mechanisms.losses import Floats, noise_losses, policy_change
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.shared_noise import SharingMechanism
from tidegate.mechanisms.w_event import kernels as loop
from tidegate.mechanisms.w_event.column_groups import GroupedRun
from tidegate.mechanisms.w_event.dissimilarity import BUILT_IN, L1, Dissimilarity
from tidegate.mechanisms.w_event.pan_private import ANNOUNCED, SINGLE, PanPrivateRun
from tidegate.mechanisms.w_event.publishing_run import PublishingRun
from tidegate.noise import Law
from tidegate.noise.law import AnyLaw, SpreadLaw
from tidegate.policy import Event, Policy, WEvent
from tidegate.releases import Releases

LONGEST_SHARED = (
    2**12
)  # steps of a window whose tests share noise: their units fit beside those of publications


@dataclass(frozen=True)
class Publishing(SharingMechanism):
    """Publish a step only if it differs enough from the last publication; the common part.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`.
    dissimilarity
        "l1" (the paper's, summed over the columns), "largest", or a :class:`Dissimilarity` of your own.
    groups
        None: all columns are published together. A number: so many groups of columns, formed by the
        root mean square of past releases and re-formed every `regroup_every` steps. A tuple of tuples of column
        numbers: these groups, for ever. For moving units all groups share one account, which is charged
        the largest spend of any group; for fixed units each group has an account of its own with the whole
        budget, and the groups stay as they are, because re-forming them must not forget what a column has spent.
    regroup_every
        After how many steps groups are formed anew; by default every w steps.
    shift
        Give the dissimilarity only ε/d a step and the rest to publications; allowed where d > 2w.
    pan_private
        None; "single": the state may be seen once, unannounced; "announced": it may be seen any number of times, and
        each intrusion is announced to the run. Not together with groups, shift or a dissimilarity of one's own.
    calibration
        "sound", or "paper" for the printed variant, which is not private (see docs/proofs).
    step_columns
        The number of columns of the whole step, where this is the instance of one group of them: a replaced unit may
        leave one group for another, so each counts with what it can change in all. By default `columns`.
    noise
        Of the dissimilarities: "auto" for the best law that the tests of a window can share (docs/noise.md), "laplace"
        for noise of its own at each, as in the paper, "cube" or "semiorder" for this law. Publications have
        Laplace noise.
    """

    dissimilarity: str | Dissimilarity = "l1"
    groups: int | tuple[tuple[int, ...], ...] | None = None
    regroup_every: int | None = None
    shift: bool = False
    pan_private: str | None = None
    calibration: str = "sound"
    step_columns: int | None = None

    plain: ClassVar[bool] = True
    holds: ClassVar[bool] = True
    needs_room: ClassVar[bool] = True  # a refusal would tell what it decided on raw data
    columns_apart: ClassVar[bool] = False  # they are published together
    supports: ClassVar[tuple[type[Policy], ...]] = (WEvent, Event)
    kind: ClassVar[int] = loop.ABSORPTION
    calibrations: ClassVar[tuple[str, ...]] = ("sound", "paper")

    def validate(self) -> None:
        """Check dissimilarity, groups, shift and calibration."""
        put = object.__setattr__
        if isinstance(self.dissimilarity, str):
            one_of("dissimilarity", self.dissimilarity, BUILT_IN, f"write {L1.name!r}")
            put(self, "dissimilarity", BUILT_IN[self.dissimilarity])
        self._validate_groups()
        if self.step_columns is not None:
            put(self, "step_columns", whole("step_columns", self.step_columns, least=self.columns))
        if self.independent and (self.shift or self.regroup_every is not None):
            raise InvalidParameter(
                "regroup_every" if self.regroup_every is not None else "shift",
                self.regroup_every or self.shift,
                "absent where groups have budgets of their own",
                "leave it out, or declare that units move",
            )
        if self.shift and self.columns <= 2 * self.window:
            raise InvalidParameter(
                "shift",
                True,
                f"False where the number of columns ({self.columns}) is not above 2w ({2 * self.window})",
                "leave it out: there is no budget to be gained",
            )
        if self.pan_private not in (None, SINGLE, ANNOUNCED):
            raise InvalidParameter(
                "pan_private", self.pan_private, "'single', 'announced' or None", "leave it out"
            )
        if self.pan_private and self.rounding != "refuse":
            raise InvalidParameter(
                "rounding",
                self.rounding,
                "'refuse' with pan_private",
                "round each contribution to the grid before it arrives: rounding each of them here would add up",
            )
        if self.pan_private and (self.groups is not None or self.shift or self.measure is not L1):
            raise InvalidParameter(
                "pan_private",
                self.pan_private,
                "None with groups, shift or another dissimilarity",
                "choose one of them: their noised state has not been worked out together",
            )
        one_of("calibration", self.calibration, self.calibrations)
        if self.units >= 2**50 or self.score_scale > 2**50 or self.whole_scale > 2**55:
            raise InvalidParameter(
                "w",
                self.window,
                f"small enough for {self.columns} columns to count its budget",
                "shorten the window",
            )

    def _validate_groups(self) -> None:
        put = object.__setattr__
        if self.groups is None or isinstance(self.groups, int):
            if self.groups is not None:
                put(self, "groups", whole("groups", self.groups, most=self.columns))
            if self.regroup_every is not None:
                put(self, "regroup_every", whole("regroup_every", self.regroup_every))
            return
        groups = tuple(tuple(int(column) for column in group) for group in self.groups)
        put(self, "groups", groups)
        if sorted(column for group in groups for column in group) != list(range(self.columns)) or not all(
            groups
        ):
            raise InvalidParameter(
                "groups",
                f"{len(groups)} groups",
                f"a partition of the columns 0 to {self.columns - 1}",
                "put every column into exactly one group",
            )
        if self.regroup_every is not None:
            raise InvalidParameter(
                "regroup_every",
                self.regroup_every,
                "absent where the groups are given",
                "give a number of groups",
            )

    @property
    def window(self) -> int:
        """The w of the policy."""
        length = self.policy.window
        assert length is not None
        return length

    @cached_property
    def sensitivity(self) -> int:
        """By how many grid units one unit can change one whole step, in L1."""
        rounded = self.rounding == "nearest"
        return self.policy.grid_sensitivity(
            self.step_columns or self.columns, Fraction(self.grid), rounded=rounded
        )

    @property
    def measure(self) -> Dissimilarity:
        """The dissimilarity, built in or given."""
        assert isinstance(self.dissimilarity, Dissimilarity)
        return self.dissimilarity

    @property
    def group_count(self) -> int:
        """How many groups of columns decide for themselves."""
        if self.groups is None:
            return 1
        return self.groups if isinstance(self.groups, int) else len(self.groups)

    @property
    def independent(self) -> bool:
        """Whether groups run by themselves, each with the full budget: sound for fixed units only."""
        return self.group_count > 1 and (self.policy.mobility == "fixed" or self.calibration == "paper")

    @property
    @abstractmethod
    def separate_shares(self) -> tuple[int, int, int]:
        """`shares` where every test is charged for itself."""

    @cached_property
    def shares(self) -> tuple[int, int, int]:
        """(all units, units of one dissimilarity test, units of publications in a window)."""
        total, test, pool = self.separate_shares
        if self.sharing is None:
            return total, test, pool
        finer = (self.sharing.group_part * total).denominator  # so that a group of tests costs whole units
        return total * finer, 0, pool * finer

    # the tests, which are what is measured at every step and may share noise

    @property
    def may_share(self) -> bool:
        """Where tests are those of the sound calibration, on one account, and their units can be counted."""
        apart = self.independent or self.pan_private is not None or not self.enforced
        return not apart and self.window <= LONGEST_SHARED

    @property
    def measured_columns(self) -> int:
        """One dissimilarity for each group of columns."""
        return self.group_count

    @property
    def measured_change(self) -> int:
        """By how much one unit changes the dissimilarities of a step together."""
        return self.measure.sensitivity * self.sensitivity

    @property
    def measuring_part(self) -> Fraction:
        """What the tests of a window cost."""
        total, test, _ = self.separate_shares
        return Fraction(self.window * test, total)

    @property
    def reserve(self) -> int:
        """Units charged to every step for an intrusion that nobody notices."""
        return 0

    @property
    def units(self) -> int:
        """Into how many exact units the whole budget is divided on the ledger."""
        return self.shares[0]

    @cached_property
    def law(self) -> AnyLaw | None:
        """That of the publications; pan-private ones have two draws, one from before the first event."""
        grid = float(Fraction(self.grid))
        return SpreadLaw("laplace", grid, 2.0) if self.pan_private else Law("laplace", grid)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the guarantee takes for granted; who may look into the state, where anybody may."""
        intruders = {
            SINGLE: "an intruder sees the run's state at most once, between two events",
            ANNOUNCED: "every look of an intruder into the run's state is announced before the next event",
        }
        more = (intruders[self.pan_private],) if self.pan_private else ()
        return super().assumptions + more

    def step_losses(self, releases: Releases) -> Floats | None:
        """What each step lost: its test and, where it was published, its noise."""
        together = self.pan_private or self.independent or self.shares_noise
        lost = None if together else noise_losses(self, releases)
        return None if lost is None else lost + policy_change(self) / self.score_scale

    def start(
        self, ledger: Ledger | Path | str | None = None, state: bytes | None = None
    ) -> PublishingRun | PanPrivateRun | GroupedRun:
        """Begin, or go on with, a run."""
        if self.independent:
            return GroupedRun(self, ledger, state)
        return (PanPrivateRun if self.pan_private else PublishingRun)(self, ledger, state)

    @cached_property
    def score_scale(self) -> float:
        """The noise scale of one dissimilarity in grid units, of Laplace noise with its variance where it is shared."""
        if self.sharing is not None:
            return self.sharing.laplace_scale
        total, test, _ = self.separate_shares
        return float_up(self.measure.sensitivity * self.sensitivity * total / (test * self._epsilon))

    @cached_property
    def whole_scale(self) -> float:
        """The noise scale of a publication that spends k units is this over k, in grid units."""
        return self.noise_scale(self.units)

    @property
    def _epsilon(self) -> Fraction:
        return self.policy.budget.total

    @classmethod
    def candidates(cls, policy: Policy, columns: int, season: int | None) -> list[Mechanism]:
        """With and without the shift where it is allowed, and with groups where there are columns enough."""
        found: list[Mechanism] = [cls(policy, columns=columns)]
        if columns > 2 * (policy.window or 1):
            found.append(cls(policy, columns=columns, shift=True))
        if columns >= 20 and policy.mobility == "moving":
            found.append(cls(policy, columns=columns, groups=5))
        return found

    def repaid(self) -> npt.NDArray[np.int64]:
        """For printed variants: by how many steps, plus one, a publication of n shares is repaid."""
        return np.zeros(0, dtype=np.int64)

    def initial_groups(self) -> npt.NDArray[np.int64]:
        """The group of each column before anything was released; empty where all columns are one group."""
        if self.group_count == 1:
            return np.zeros(0, dtype=np.int64)
        group_of = np.zeros(self.columns, dtype=np.int64)
        if isinstance(self.groups, int):
            group_of[:] = np.arange(self.columns) * self.groups // self.columns
        elif self.groups is not None:
            for group, columns in enumerate(self.groups):
                group_of[list(columns)] = group
        return group_of
