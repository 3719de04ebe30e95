"""The shape of every mechanism: a frozen configuration, and the run that it starts."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidInput, InvalidParameter, LedgerMismatch, SnapshotError
from tidegate.exact import ExactLike, positive, show, whole
from tidegate.ledger import Ledger, MemoryLedger, open_ledger
from tidegate.ledger.unenforced import UnenforcedLedger
from tidegate.mechanisms import snapshot
from tidegate.mechanisms.kernels.values import most_extreme, round_to_grid
from tidegate.noise import Source, current
from tidegate.policy import Guarantee, Policy
from tidegate.releases import Release, Releases

LARGEST = 2**53  # in grid units: beyond it a float64 can no longer tell neighbouring integers apart
PUBLIC_CLOCK = "steps close by a public clock, never because of what was recorded"
BOUNDED = "one unit changes a step by at most max_change, as contribution bounding ensures"

Row = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.int64]
State = dict[str, Any]


@dataclass(frozen=True)
class Mechanism(ABC):
    """A validated configuration. It holds no data; :meth:`start` returns a run that does.

    Parameters
    ----------
    policy
        What is protected, and its budget.
    columns
        The number d of columns of each step.
    grid
        The public resolution g of all values, with 1/g a whole number: "1" for counts, "0.01" for cents.
    rounding
        "refuse": pushed values must lie on the grid, since contributions were rounded before they were summed.
        "nearest": pre-aggregated real values are rounded here, and the sensitivity grows by one grid unit for
        each column that a unit touches.
    """

    policy: Policy
    columns: int = 1
    grid: ExactLike = 1
    rounding: str = "refuse"

    supports: ClassVar[tuple[type[Policy], ...]] = (Policy,)
    budgets: ClassVar[tuple[str, ...]] = ("Pure",)
    statistic: ClassVar[str] = (
        "steps"  # what is released: the values of "steps", running "sums", "windows" of them
    )

    def __post_init__(self) -> None:
        put = object.__setattr__
        name = type(self).__name__
        if not isinstance(self.policy, self.supports):
            kinds = " or ".join(kind.__name__ for kind in self.supports)
            raise InvalidParameter(
                "policy", type(self.policy).__name__, f"{kinds} for {name}", f"use {kinds}"
            )
        if type(self.policy.budget).__name__ not in self.budgets:
            raise InvalidParameter(
                "policy",
                str(self.policy.budget),
                f"a budget of kind {' or '.join(self.budgets)} for {name}",
                "write epsilon alone, or choose a mechanism that can use the other budget",
            )
        put(self, "columns", whole("columns", self.columns, most=2**31))
        grid = positive("grid", self.grid)
        if grid.numerator != 1:
            raise InvalidParameter(
                "grid", self.grid, "one over a whole number", 'write for example grid="0.01"'
            )
        put(self, "grid", grid)
        if self.rounding not in ("refuse", "nearest"):
            raise InvalidParameter(
                "rounding", self.rounding, "'refuse' or 'nearest'", "round contributions before summing them"
            )
        self.validate()

    def validate(self) -> None:  # noqa: B027  most mechanisms have nothing to add
        """Check what is particular to a mechanism; called once by the constructor."""

    @cached_property
    def sensitivity(self) -> int:
        """By how many grid units one unit can change one step, in L1."""
        assert isinstance(self.grid, Fraction)
        return self.policy.grid_sensitivity(self.columns, self.grid, rounded=self.rounding == "nearest")

    @property
    def outputs(self) -> int:
        """The number of columns of each release; more than `columns` where aggregates are released as well."""
        return self.columns

    @property
    @abstractmethod
    def units(self) -> int:
        """Into how many exact units the whole budget is divided on the ledger."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the guarantee takes for granted."""
        return (PUBLIC_CLOCK, BOUNDED)

    @property
    def enforced(self) -> bool:
        """Whether a ledger may hold a run to its budget: not so for printed calibrations, which overspend."""
        return getattr(self, "calibration", "sound") == "sound"

    @property
    def guarantee(self) -> Guarantee:
        """What is proved, under which assumptions; reads as a sentence."""
        return Guarantee(type(self).__name__, self.policy, self.assumptions)

    @abstractmethod
    def start(self, ledger: Ledger | Path | str | None = None, state: bytes | None = None) -> Run:
        """Begin, or with `state` go on with, a run on a ledger (in memory by default; a path makes it durable)."""

    def describe(self) -> dict[str, Any]:
        """Identify the configuration exactly, as JSON."""
        described: dict[str, Any] = {"mechanism": type(self).__name__, "policy": self.policy.describe()}
        for field in fields(self):
            if field.name != "policy":
                described[field.name] = describe_value(getattr(self, field.name))
        return described

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the configuration: what a snapshot or a ledger belongs to."""
        return hashlib.sha256(json.dumps(self.describe(), sort_keys=True).encode()).hexdigest()[:32]

    @classmethod
    def candidates(cls, policy: Policy, columns: int, season: int | None) -> list[Mechanism]:
        """Public parameter choices that a plan compares; `season` is the number of steps of a day, if known."""
        return [cls(policy, columns=columns)]

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        return []


def describe_value(value: Any) -> Any:
    """A configuration value as JSON: fractions as strings, tuples as lists, anything else by its own words."""
    if isinstance(value, Fraction):
        return show(value)
    if isinstance(value, list | tuple):
        return [describe_value(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    describe = getattr(value, "describe", None)
    return describe() if callable(describe) else repr(value)


class Run(ABC):
    """A mechanism at work on one stream: it counts the steps, holds the state and asks the ledger."""

    def __init__(self, mechanism: Mechanism, ledger: Ledger | Path | str | None, state: bytes | None) -> None:
        self.mechanism = mechanism
        self.source: Source = current()
        grid = mechanism.grid
        assert isinstance(grid, Fraction)
        # exact when 1/grid is a power of two; else rounding after the noise, which is free
        self._grid = float(grid)
        self._columns = mechanism.columns
        header, fields_ = _read(mechanism, state) if state is not None else ({}, {})
        self.ledger = self._ledger(ledger, fields_.pop("ledger", None))
        try:
            self._resume(header, fields_)
        except BaseException:
            if isinstance(ledger, Path | str):
                self.ledger.close()  # opened here: nobody else could
            raise

    def _resume(self, header: State, state: State) -> None:
        """Stand where the ledger and the snapshot stand, if they agree."""
        if self.source.marked:
            self.ledger.mark()
        self.step: int = header.get("step", self.ledger.step)
        charged = header.get("charged", self.ledger.step)
        if self.ledger.step != charged:
            raise LedgerMismatch(
                f"the ledger stands at step {self.ledger.step} but the snapshot at step {charged}; going on from it "
                "would release steps twice or forget what they spent, so use the last snapshot and its own ledger."
            )
        self._charges = self.ledger.rows
        self._begin(state or None)

    # what a mechanism writes -----------------------------------------------------------------------------------

    def _begin(self, state: State | None) -> None:  # noqa: B027  a run may have no state
        """Set up the state, from a snapshot's fields if given."""

    def _state(self) -> State:
        """The state as numbers and arrays; never a raw value that could be left out."""
        return {}

    @abstractmethod
    def _push(self, row: Row) -> Release:
        """Release one step: ask the ledger, then draw noise. The step number is already advanced."""

    @abstractmethod
    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        """Release several steps with the distribution of single pushes."""

    # what everybody uses ---------------------------------------------------------------------------------------

    def push(self, values: Sequence[float] | npt.NDArray[Any] | float, step: int | None = None) -> Release:
        """Release the next step.

        Parameters
        ----------
        values
            The d values of the step.
        step
            The number of the step, if the caller wants it checked: steps come in order and without gaps.
        """
        if step is not None and step != self.step + 1:
            raise InvalidInput(
                f"step {step} is out of order: the next step is {self.step + 1}; push steps in order."
            )
        row = self._row(values)
        self._may_go_on(1)
        self.step += 1
        try:
            release = self._push(row)
        except BaseException:
            self.step -= 1
            raise
        self._charges = self.ledger.rows
        return release

    def push_batch(self, matrix: npt.ArrayLike) -> Releases:
        """Release many steps at once: the fast path, with the same distribution as pushing them one by one."""
        rows = self._rows(matrix)
        self._may_go_on(len(rows))
        releases = self._push_batch(rows, self.step + 1)
        self.step += len(rows)
        self._charges = self.ledger.rows
        return releases

    def snapshot(self) -> bytes:
        """The state as versioned bytes, to go on later with `mechanism.start(state=…)`."""
        header = {
            "mechanism": type(self.mechanism).__name__,
            "fingerprint": self.mechanism.fingerprint,
            "step": self.step,
            "charged": self.ledger.step,
        }
        state = self._state()
        if isinstance(self.ledger, MemoryLedger):
            state = {**state, **{f"ledger.{name}": value for name, value in self.ledger.snapshot().items()}}
        return snapshot.pack(header, state)

    def _ledger(self, given: Ledger | Path | str | None, saved: State | None) -> Ledger:
        mechanism = self.mechanism
        if not mechanism.enforced and given is not None and not isinstance(given, UnenforcedLedger):
            raise LedgerMismatch(
                "a printed calibration overspends and may not use a ledger that protects people; start it without one."
            )
        if given is None:
            kind = MemoryLedger if mechanism.enforced else UnenforcedLedger
            ledger = kind(mechanism.policy, mechanism.units)
            if saved is not None:
                ledger.restore(saved)
            return ledger
        opened = (
            open_ledger(given, mechanism.policy, mechanism.units) if isinstance(given, Path | str) else given
        )
        if opened.policy != mechanism.policy:
            raise LedgerMismatch(
                "the ledger keeps the account of another policy; open it with the policy of this mechanism."
            )
        if opened.units % mechanism.units:
            raise LedgerMismatch(
                f"the ledger divides its budget into {opened.units} units and {type(mechanism).__name__} needs a "
                f"multiple of {mechanism.units}; open the ledger with units={mechanism.units}."
            )
        return opened

    def _may_go_on(self, steps: int) -> None:
        """Refuse a ledger that has taken back what this run was charged, and steps beyond the horizon."""
        if self.ledger.rows < self._charges:
            raise LedgerMismatch(
                "charges of this run were taken back, but its state remembers what they paid for; "
                "start it again from the snapshot that belongs to the ledger."
            )
        self._within_horizon(steps)

    def _within_horizon(self, steps: int) -> None:
        """Refuse steps beyond the end of the stream, before anything is charged."""
        horizon = self.mechanism.policy.horizon
        if horizon is not None and self.step + steps > horizon:
            raise InvalidInput(
                f"the stream was declared to end after {horizon} steps and {steps} more would make "
                f"{self.step + steps}; nothing was charged: start a run with a longer horizon."
            )

    def _row(self, values: Any) -> Row:
        if (
            type(values) is int and self._columns == 1 and self._grid == 1.0
        ):  # the quick way for scalar streams
            if -LARGEST <= values <= LARGEST:
                return np.array((values,), dtype=np.int64)
            raise _beyond()
        array = _numbers(values)
        if array.ndim == 0 and self._columns == 1:
            array = array.reshape(1)
        if array.shape != (self._columns,):
            raise InvalidInput(
                f"a step has {self._columns} columns and this one has the shape {array.shape}; "
                f"push {self._columns} values."
            )
        return self._on_grid(array)

    def _rows(self, values: Any) -> Matrix:
        array = _numbers(values)
        if array.ndim == 1 and self._columns == 1:
            array = array[:, np.newaxis]
        if array.ndim != 2 or array.shape[1] != self._columns:
            raise InvalidInput(
                f"a batch is an array of steps × {self._columns} columns and this one has the shape {array.shape}; "
                "reshape it."
            )
        return self._on_grid(array)

    def _on_grid(self, array: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        grid = self.mechanism.grid
        assert isinstance(grid, Fraction)
        if array.dtype.kind in "bui":
            whole_numbers = array if array.dtype == np.int64 else _to_int64(array)
            if most_extreme(whole_numbers.ravel()) > LARGEST // grid.denominator:
                raise _beyond()
            return whole_numbers if grid == 1 else whole_numbers * grid.denominator
        rounded, exactly, finite = round_to_grid(
            np.ascontiguousarray(array, dtype=np.float64).ravel(), grid.denominator, float(LARGEST)
        )
        if not finite:
            raise InvalidInput(
                f"a value is NaN, infinite or beyond {LARGEST} grid units; fill gaps from public or released values, "
                "or choose a coarser grid."
            )
        if not exactly and self.mechanism.rounding == "refuse":
            raise InvalidInput(
                f"a value does not lie on the grid of {show(grid)}; round each contribution to the grid before "
                'summing, or declare rounding="nearest", which raises the sensitivity.'
            )
        on_grid: npt.NDArray[np.int64] = rounded.reshape(array.shape)
        return on_grid


def _read(mechanism: Mechanism, state: bytes) -> tuple[State, State]:
    header, fields_ = snapshot.unpack(state)
    if header["mechanism"] != type(mechanism).__name__:
        raise SnapshotError(
            f"the snapshot is of {header['mechanism']} and this is {type(mechanism).__name__}; "
            "start the mechanism that wrote it."
        )
    if header["fingerprint"] != mechanism.fingerprint:
        raise SnapshotError(
            f"the snapshot is of a {header['mechanism']} with another policy or other parameters; "
            "start it with the configuration that wrote it."
        )
    saved = {name[7:]: fields_.pop(name) for name in list(fields_) if name.startswith("ledger.")}
    if saved:
        fields_["ledger"] = saved
    return header, fields_


def _numbers(values: Any) -> npt.NDArray[Any]:
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "buif":
        raise InvalidInput("values must be numbers in a regular array; convert them before they are pushed.")
    return array


def _to_int64(array: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    if array.dtype == np.uint64 and array.size and int(array.max()) > LARGEST:
        raise _beyond()
    return array.astype(np.int64)


def _beyond() -> InvalidInput:
    return InvalidInput(
        f"a value lies beyond ±{LARGEST} grid units, the range in which integers are exact; choose a coarser grid."
    )
