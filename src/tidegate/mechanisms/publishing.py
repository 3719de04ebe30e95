"""What Budget Distribution and Budget Absorption share: test the dissimilarity, then publish or approximate."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.errors import BudgetExceeded, InvalidParameter
from tidegate.exact import float_up, whole
from tidegate.ledger import Batch, Ledger
from tidegate.ledger.kernels import account_remaining
from tidegate.mechanisms.dissimilarity import BUILT_IN, L1, Dissimilarity
from tidegate.mechanisms.grouped import GroupedRun
from tidegate.mechanisms.kernels import publishing as loop
from tidegate.mechanisms.mechanism import Matrix, Mechanism, Row, Run, State
from tidegate.mechanisms.pan_private import ANNOUNCED, SINGLE, PanPrivateRun
from tidegate.noise import laplace
from tidegate.noise.discrete_laplace import decide
from tidegate.policy import Event, Policy, WEvent
from tidegate.releases import Release, Releases

INLINE = 16  # up to so many columns the compiled loop draws publication noise itself
CELLS = 1 << 16  # cells that a batch handles at once


@dataclass(frozen=True)
class Publishing(Mechanism):
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
    """

    dissimilarity: str | Dissimilarity = "l1"
    groups: int | tuple[tuple[int, ...], ...] | None = None
    regroup_every: int | None = None
    shift: bool = False
    pan_private: str | None = None
    calibration: str = "sound"

    supports: ClassVar[tuple[type[Policy], ...]] = (WEvent, Event)
    kind: ClassVar[int] = loop.ABSORPTION
    calibrations: ClassVar[tuple[str, ...]] = ("sound", "paper")

    def validate(self) -> None:
        """Check dissimilarity, groups, shift and calibration."""
        put = object.__setattr__
        if isinstance(self.dissimilarity, str):
            if self.dissimilarity not in BUILT_IN:
                names = " or ".join(map(repr, BUILT_IN))
                raise InvalidParameter("dissimilarity", self.dissimilarity, names, f"write {L1.name!r}")
            put(self, "dissimilarity", BUILT_IN[self.dissimilarity])
        self._validate_groups()
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
        if self.calibration not in self.calibrations:
            words = " or ".join(map(repr, self.calibrations))
            raise InvalidParameter("calibration", self.calibration, words, "leave it out")
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
    def shares(self) -> tuple[int, int, int]:
        """(all units, units of one dissimilarity test, units of publications in a window)."""

    @property
    def reserve(self) -> int:
        """Units charged to every step for an intrusion that nobody notices."""
        return 0

    @property
    def units(self) -> int:
        """Into how many exact units the whole budget is divided on the ledger."""
        return self.shares[0]

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the guarantee takes for granted; who may look into the state, where anybody may."""
        intruders = {
            SINGLE: "an intruder sees the run's state at most once, between two events",
            ANNOUNCED: "every look of an intruder into the run's state is announced before the next event",
        }
        fixed = "a unit stays in the columns of one group within any window"
        more = (intruders[self.pan_private],) if self.pan_private else ()
        return super().assumptions + more + ((fixed,) if self.independent else ())

    def start(
        self, ledger: Ledger | Path | str | None = None, state: bytes | None = None
    ) -> PublishingRun | PanPrivateRun | GroupedRun:
        """Begin, or go on with, a run."""
        if self.independent:
            return GroupedRun(self, ledger, state)
        return (PanPrivateRun if self.pan_private else PublishingRun)(self, ledger, state)

    @cached_property
    def score_scale(self) -> float:
        """The noise scale of one dissimilarity, in grid units."""
        total, test, _ = self.shares
        return float_up(self.measure.sensitivity * self.sensitivity * total / (test * self._epsilon))

    @cached_property
    def whole_scale(self) -> float:
        """The noise scale of a publication that spends k units is this over k, in grid units."""
        return float_up(self.sensitivity * self.units / self._epsilon)

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


class PublishingRun(Run):
    """Budget Distribution or Budget Absorption at work."""

    mechanism: Publishing

    def _begin(self, state: State | None) -> None:
        mechanism = self.mechanism
        groups = mechanism.group_count
        factor = self.ledger.units // mechanism.units
        _, test, pool = (share * factor for share in mechanism.shares)
        self._whole = mechanism.whole_scale * factor
        self._rule = np.array(
            [
                mechanism.kind,
                mechanism.window,
                test,
                pool // mechanism.window,
                pool,
                list(BUILT_IN).index(mechanism.measure.name) if mechanism.measure.name in BUILT_IN else -1,
            ],
            dtype=np.int64,
        )
        regroups = isinstance(mechanism.groups, int) and groups > 1
        self._regroup_every = (mechanism.regroup_every or mechanism.window) if regroups else 0
        self._repaid = mechanism.repaid()
        self._given = np.zeros(max(groups, self._columns if self._columns <= INLINE else 1), dtype=np.int64)
        self._chosen = np.zeros(groups, dtype=np.bool_)
        self._scores = np.zeros(groups, dtype=np.int64)
        memory = np.zeros(loop.MEMORY, dtype=np.int64)
        memory[loop.TAKEN] = 1
        fresh = {
            "memory": memory,
            "paid": np.zeros((0, 2), dtype=np.int64),
            "last": np.zeros(self._columns, dtype=np.int64),
            "measured": np.zeros(groups, dtype=np.int64),
            "scales": np.zeros(groups),
            "group_of": mechanism.initial_groups(),
            "squares": np.zeros(self._columns if regroups else 0),
        }
        self._set_state({**fresh, **(state or {})})

    def _set_state(self, state: State) -> None:
        paid = state["paid"]
        self._memory = state["memory"]
        self._memory[loop.HEAD] = 0
        self._memory[loop.PHASE] = 0
        self._paid = paid if len(paid) else np.zeros((1, 2), dtype=np.int64)
        self._last = state["last"]
        self._measured = state["measured"]
        self._scales = state["scales"]
        if "group_of" in state:
            self._group_of = state["group_of"]
            self._squares = state["squares"]
        self._weigh()

    def _state(self) -> State:
        state = {
            "memory": self._memory,
            "paid": self._live(),
            "last": self._last,
            "measured": self._measured,
            "scales": self._scales,
        }
        if self._regroup_every:
            state |= {"group_of": self._group_of, "squares": self._squares}
        return state

    def _push(self, row: Row) -> Release:
        return self._push_batch(row[np.newaxis], self.step)[0]

    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        steps, columns = matrix.shape
        values = np.empty((steps, columns))
        status = np.empty(steps, dtype=np.int8)
        source = np.empty(steps, dtype=np.int64)
        scale = np.empty(steps)
        units = np.zeros(steps, dtype=np.int64)
        outputs = (values, status, source, scale, units)
        kept = {name: np.copy(array) for name, array in self._state().items()}
        try:
            with self.ledger.begin_batch(steps) as batch:  # charges to one step share a row
                start = 0
                while start < steps:
                    stop = min(steps, start + self._block_length(first_step + start, batch))
                    block = tuple(output[start:stop] for output in outputs)
                    self._release_block(matrix[start:stop], first_step + start, batch, block)
                    start = stop
                    if self._regroup_every and (first_step + stop - 1) % self._regroup_every == 0:
                        self._regroup(first_step + stop - 1)
                batch.record(first_step, units)
        except BudgetExceeded:
            self._set_state(kept)
            # where the refusal came depends on the decisions before it, so these stay paid
            self.ledger.charge_batch(first_step, np.trim_zeros(units, "b"))
            raise
        except BaseException:
            self._set_state(kept)
            raise
        return Releases(first_step, values, status, source, scale, units, self.ledger.unit)

    def _block_length(self, step: int, batch: Batch) -> int:
        """How many steps to handle at once, from this one on; the ledger must at least allow its test."""
        if account_remaining(batch.entries, batch.state, step) < self._rule[loop.TEST_UNITS]:
            batch.refuse(step, int(self._rule[loop.TEST_UNITS]))
        if self._rule[loop.MEASURE] < 0:
            return 1
        drawn = self._columns if self._columns <= INLINE else self.mechanism.group_count
        length = max(1, CELLS // drawn)
        if self._regroup_every:
            length = min(length, self._regroup_every - (step - 1) % self._regroup_every)
        return length

    def _release_block(self, rows: Matrix, first_step: int, batch: Batch, outputs: tuple[Any, ...]) -> None:
        steps, columns = rows.shape
        groups = self.mechanism.group_count
        draws = columns if columns <= INLINE else 0
        self._make_room(first_step, steps)
        if self._rule[loop.MEASURE] < 0:
            self._score(rows[0])
        score_words = self.source.words("dissimilarity", first_step, groups, range(steps * groups), 0, 2)
        cell_words = self.source.words("publication", first_step, max(draws, 1), range(steps * draws), 0, 2)
        index, reason = 0, loop.SCORE_NOISE
        while reason != loop.DONE:
            index, reason = loop.publish(
                rows,
                index,
                first_step,
                self._rule,
                self._whole,
                self.mechanism.score_scale,
                self._weights,
                self._group_of,
                score_words,
                cell_words,
                self._given,
                batch.entries,
                batch.state,
                self._memory,
                self._paid,
                self._repaid,
                self._last,
                self._measured,
                self._scales,
                self._squares,
                self._chosen,
                self._scores,
                self._grid,
                *outputs,
            )
            step = first_step + index
            if reason == loop.SCORE_NOISE:
                scale = self.mechanism.score_scale
                self._draw(
                    "dissimilarity",
                    first_step,
                    groups,
                    index * groups,
                    scale,
                    score_words,
                    self._given[:groups],
                )
            elif reason == loop.CELL_NOISE:
                amount = int(self._memory[loop.AMOUNT])
                scale = loop.publication_scale(self._whole, amount)
                if draws:
                    self._draw(
                        "publication", first_step, draws, index * draws, scale, cell_words, self._given
                    )
                else:
                    self._given = self._scores  # lets go of the last publication's noise
                    self._given = laplace(self.source, "publication", step, scale, (columns,))
            elif reason == loop.REFUSED:
                batch.refuse(step, int(self._rule[loop.TEST_UNITS]))

    def _draw(
        self,
        stream: str,
        first_step: int,
        draws: int,
        first: int,
        scale: float,
        words: npt.NDArray[np.uint64],
        out: npt.NDArray[np.int64],
    ) -> None:
        """Decide the noise of one step exactly, from the words that the compiled loop had for it."""
        for draw in range(len(out)):
            taken = words[:, first + draw].tolist()
            out[draw] = decide(self.source, stream, first_step, draws, first + draw, scale, taken)

    def _score(self, row: Row) -> None:
        """The scores of a dissimilarity that is not built in."""
        for group in range(len(self._scores)):
            columns = self._group_of == group if self._group_of.size else slice(None)
            score = int(self.mechanism.measure.score(row[columns], self._last[columns]))
            self._scores[group] = max(0, min(score, loop.MOST))

    def _make_room(self, first_step: int, steps: int) -> None:
        """Let `paid` hold every publication that the next steps can add to the window."""
        if self._rule[loop.KIND] != loop.DISTRIBUTION:
            return
        loop.offer(self._rule, self._memory, self._paid, first_step)  # forgets what has left the window
        needed = min(self.mechanism.window, int(self._memory[loop.COUNT]) + steps)
        if needed > len(self._paid):
            live = self._live()
            self._paid = np.zeros(
                (max(needed, min(2 * len(self._paid), self.mechanism.window)), 2), dtype=np.int64
            )
            self._paid[: len(live)] = live
            self._memory[loop.HEAD] = 0

    def _live(self) -> npt.NDArray[np.int64]:
        order = (self._memory[loop.HEAD] + np.arange(self._memory[loop.COUNT])) % len(self._paid)
        live: npt.NDArray[np.int64] = self._paid[order]
        return live

    def _weigh(self) -> None:
        """The score that noise of scale 1 would cause by itself, for each group."""
        sizes = np.bincount(self._group_of) if self._group_of.size else np.array([self._columns])
        self._weights = np.array([self.mechanism.measure.expected(int(size)) for size in sizes])

    def _regroup(self, step: int) -> None:
        """Form groups of equal size by the root mean square of the releases since the last time."""
        groups = self.mechanism.group_count
        stood = step - np.maximum(self._measured[self._group_of], self._memory[loop.SINCE])
        squares = self._squares + (self._last * self._grid) ** 2 * stood
        order = np.argsort(squares, kind="stable")
        measured, scales = self._measured[self._group_of], self._scales[self._group_of]
        self._group_of[order] = np.arange(self._columns) * groups // self._columns
        for group in range(groups):  # a mixed group is as old, and as noisy, as its worst column
            members = self._group_of == group
            self._measured[group] = measured[members].max()
            self._scales[group] = scales[members].max()
        self._squares[:] = 0
        self._memory[loop.SINCE] = step
        self._weigh()
