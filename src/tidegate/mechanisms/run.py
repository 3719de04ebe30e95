"""A mechanism at work on one stream: input checked and put on the grid, steps counted, the ledger asked, snapshots."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from tidegate import frames, process
from tidegate.errors import InvalidInput, LedgerBusy, LedgerMismatch, SnapshotError, TidegateError
from tidegate.exact import show, whole
from tidegate.ledger import Ledger, MemoryLedger, open_ledger
from tidegate.ledger.unenforced import UnenforcedLedger
from tidegate.mechanisms import snapshot
from tidegate.noise import Source, current
from tidegate.releases import Measured, Release, Releases, Status, Values
from tidegate.structures.clamping import LARGEST, as_floats, most_units, saturated
from tidegate.structures.kernels.grid import most_extreme, round_to_grid

if TYPE_CHECKING:
    from tidegate.mechanisms.mechanism import Mechanism


# why a run is not used again
INTERRUPTED = (
    "this run was interrupted in the middle of its work, so its state and its ledger may not belong together; go on from "
    "its last snapshot, or begin a new run on the ledger."
)
TAKEN_BACK = (
    "charges of this run were taken back, but its state remembers what they paid for; "
    "start it again from the snapshot that belongs to the ledger."
)

SUPERSEDED = "another run goes on from a snapshot of this one, whose state may be gone on with only once; use that run."

Row = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.int64]
State = dict[str, Any]
Pushed = Sequence[float] | Mapping[str, float] | npt.NDArray[Any] | float
ChargeAll = Callable[..., None]  # charges the units of all steps of many blocks, and groups of steps


class Run(ABC):
    """A mechanism at work on one stream: it counts the steps, holds the state and asks the ledger.

    Attributes
    ----------
    step
        The last step that was released; 0 before any.
    origin
        The steps that the ledger had seen before this run began. What a mechanism counts of its own, such as nodes,
        blocks or positions in arrays that begin empty, it counts from there: step − origin is 1 at the first step.
    alone
        Whether nobody else has charged the ledger, as far as this run knows.
    charges
        How many rows the ledger had when this run last looked.
    names
        The names of the columns: those of the first DataFrame or mapping that was pushed, or set by the caller. Later
        ones may have another order, which is put right, but no other names, also after a restart.

    Examples
    --------
    >>> import tidegate as tg
    >>> run = tg.mechanisms.Sample(tg.WEvent(epsilon="1", w=3)).start()
    >>> release = run.push(12)
    >>> run.step, run.ledger.step, release.values.shape
    (1, 1, (1,))
    """

    _part_of: Run | None = None  # the run of the same ledger that pushes this one

    restores: bool = False
    """Whether a push that fails for any reason has put the state back where it was."""

    def __init__(self, mechanism: Mechanism, ledger: Ledger | Path | str | None, state: bytes | None) -> None:
        header, fields_ = snapshot.unpack(state) if state is not None else ({}, {})
        if state is not None:
            mechanism = _as_begun(mechanism, header)
            # those of version 0.2 have no name, but are distinguished by what is in them
            header.setdefault("run", hashlib.sha256(state).hexdigest())
        self.mechanism = mechanism
        self.source: Source = current()
        grid = mechanism.grid
        assert isinstance(grid, Fraction)
        # exact when 1/grid is a power of two; else rounding after the noise, which is free
        self._grid = float(grid)
        self._per_one, self._most = grid.denominator, most_units(grid)  # grid units
        self._columns = mechanism.columns
        self.names: tuple[str, ...] | None = tuple(header["names"]) if header.get("names") else None
        self._quick = mechanism.columns == 1 and grid == 1 and mechanism.clamp is None
        self._bounded = (
            mechanism.policy.horizon is not None or type(self)._within_horizon is not Run._within_horizon
        )
        saved = {name[7:]: fields_.pop(name) for name in list(fields_) if name.startswith("ledger.")}
        self.ledger = self._ledger(ledger, saved or None, state is not None)
        try:
            self._resume(header, fields_)
        except BaseException:
            if isinstance(ledger, Path | str):
                self.ledger.close()  # opened here: nobody else could
            raise

    def _resume(self, header: State, state: State) -> None:
        """Stand where the ledger and the snapshot stand, if they agree."""
        self._unusable = ""  # why, if it is
        self.step: int = header.get("step", self.ledger.step)
        self.origin: int = header.get("origin", 0) if header else self.step
        self.alone: bool = header.get("alone", True) if header else self.ledger.step == 0
        self._resumed = bool(header)
        self._name = ""  # by which the ledger knows whoever may go on with this state
        if header:
            self._compare(header)
            self._name = "" if self.ledger.begins_again else header["run"]
            if self._name:
                self.ledger.hold(self._name, self)
        if self.source.marked:
            self.ledger.mark()
        self.charges = self.ledger.rows
        self.ledger.join(self)
        self._begin_from(state)

    def _compare(self, header: State) -> None:
        """Refuse a ledger that is not at the moment of the snapshot: each release is charged and made once."""
        charged = header["charged"]
        if self.ledger.step != charged:
            raise LedgerMismatch(
                f"the ledger stands at step {self.ledger.step} but the snapshot at step {charged}; going on from it "
                "would release steps twice or forget what they spent, so use the last snapshot and its own ledger."
            )
        stands = (self.ledger.position, self.ledger.known_as)
        if (header.get("position", stands[0]), header.get("identity", stands[1])) != stands:
            raise LedgerMismatch(
                "the ledger is not that of the snapshot, or was charged since; restore all runs that share a ledger, and "
                "the ledger, from snapshots of one moment before any of them goes on."
            )

    def _begin_from(self, state: State | None) -> None:
        """Set up all of the state: the mechanism's, and what was learnt from releases about their errors."""
        own = dict(state or {})
        learnt = own.pop("learnt from releases", None)
        self._uncertainty = self.mechanism.uncertainty()
        if self._uncertainty is not None:
            self._uncertainty.law = replace(self._uncertainty.law, rounded=self.mechanism.rounded_by)
            if learnt is not None and learnt.shape == self._uncertainty.state.shape:  # else it is learnt anew
                self._uncertainty.state = learnt.copy()
        self._begin(own or None)

    def _whole_state(self) -> State:
        """What `_begin_from` goes on from."""
        if self._uncertainty is None:
            return self._state()
        return {**self._state(), "learnt from releases": self._uncertainty.learn()}

    def _accompany(self, releases: Release | Releases) -> None:
        """Say of releases what is known of their errors."""
        releases.law = self.mechanism.law
        if self._uncertainty is None:
            return
        self._uncertainty.follow(releases)
        if releases.revised is not None:
            releases.revised.radii = self._uncertainty.revised(releases.revised)

    # what a mechanism writes -----------------------------------------------------------------------------------

    def _begin(self, state: State | None) -> None:  # noqa: B027  a run may have no state
        """Set up the state, from a snapshot's fields if given."""

    def _state(self) -> State:
        """The state as numbers and arrays; never a raw value that could be left out."""
        return {}

    def _push(self, row: Row) -> Release:
        """Release one step: ask the ledger, then draw noise. The step number is already advanced."""
        return self._push_batch(row[np.newaxis], self.step)[0]

    @abstractmethod
    def _push_batch(self, matrix: Matrix, first_step: int) -> Releases:
        """Release several steps with the distribution of single pushes."""

    def _all_fresh(
        self,
        first_step: int,
        values: Values,
        scale: float | Values,
        units: Row,
        measured: Measured | None = None,
    ) -> Releases:
        """The releases of steps that were all measured, with noise of one scale or one for each of them."""
        steps = len(values)
        status = np.broadcast_to(np.int8(Status.FRESH), steps)
        shown = scale if isinstance(scale, np.ndarray) else np.broadcast_to(np.float64(scale), steps)
        fields = (first_step, values, status, None, shown, units, self.ledger.unit)
        return Releases(*fields, measured=measured)

    # what everybody uses ---------------------------------------------------------------------------------------

    def begin_at(self, step: int) -> Self:
        """Let the first step of a run that has released nothing yet be this one; returns the run.

        A run begins at the present step of its ledger, the one after the last that was charged. Where several runs share
        a ledger, each step must have the same number in all of them, or windows would be checked on other steps than
        those that people were in: a run whose data begin earlier, or later, says so here.
        """
        if self._resumed or self.step != self.origin:
            raise InvalidInput(
                f"this run stands at step {self.step} already; say where it begins before its first step is pushed."
            )
        self.step = self.origin = whole("step", step) - 1
        self._begin_from(None)
        return self

    def __repr__(self) -> str:
        mechanism, width = self.mechanism, "1 column" if self._columns == 1 else f"{self._columns} columns"
        words = f"{type(self).__name__} of {type(mechanism).__name__} at step {self.step}, {width}"
        try:
            spent = f"; the last window spent {show(self.ledger.spent())} of {mechanism.policy.budget.total}"
        except (TidegateError, OSError):  # a ledger that is closed or damaged
            spent = ""
        return f"<{words}{spent}>"

    def push(self, values: Pushed, step: int | None = None, *, grid_units: bool = False) -> Release:
        """Release the next step.

        Parameters
        ----------
        values
            The d values of the step, in the order of the columns or by their names.
        step
            The number of the step, if the caller wants it checked: steps come in order and without gaps.
        grid_units
            Whether values are counted in units of the grid already, as int64: those of `StepBlock.units`, say.
        """
        if step is not None and step != self.step + 1:
            raise InvalidInput(
                f"step {step} is out of order: the next step is {self.step + 1}; push steps in order."
            )
        row = self._row(values, grid_units)
        ledger = self.ledger
        with ledger.turn:  # one thread at a time
            outer = ledger.worker
            if self._unusable or self._bounded or ledger.rows != self.charges or outer is not None:
                self._may_go_on(1)
            self._unusable = INTERRUPTED  # until all is done: an interruption may come at any place
            self.step += 1
            ledger.worker = self
            try:
                try:
                    release = self._push(row)
                except BaseException as error:
                    self.step -= 1
                    self._failed(error)
                    raise
                self._hand_out()
            finally:
                ledger.worker = outer
            self._accompany(release)
            self._unusable = ""
            return release

    def push_batch(self, matrix: npt.ArrayLike, *, grid_units: bool = False) -> Releases:
        """Release many steps at once: the fast path, with the same distribution as pushing them one by one."""
        rows, ledger = self._rows(matrix, grid_units), self.ledger
        with ledger.turn:
            self._may_go_on(len(rows))
            self._unusable = INTERRUPTED
            outer, ledger.worker = ledger.worker, self
            try:
                try:
                    releases = self._push_batch(rows, self.step + 1)
                except BaseException as error:
                    self._failed(error)
                    raise
                self.step += len(rows)
                if len(rows):
                    self._hand_out()
            finally:
                ledger.worker = outer
            self._accompany(releases)
            releases.names = self.names if self.mechanism.outputs == self._columns else None
            self._unusable = ""
            return releases

    def _hand_out(self) -> None:
        """Leave a row behind, so that no earlier snapshot suits the ledger any more; from now on all stays paid."""
        rows = self.ledger.rows
        if rows == self.charges:  # paid before, as a block is
            self.ledger.move()
            rows = self.ledger.rows
        self.charges = rows
        self.ledger.handed_out()

    @property
    def holds_noise(self) -> bool:
        """Whether the state has noise, or a radius of it, that is still to be used."""
        return bool(getattr(getattr(self, "_noise", None), "open", False))

    def reach(self, step: int) -> float:
        """By how much one unit can change what is released at a step, in the values' unit, given what is public."""
        return self.mechanism.sensitivity * self._grid

    def flush(self) -> Releases | None:
        """The last word on the steps before, where a mechanism has one after the last step of all; else None."""
        return None

    def snapshot(self) -> bytes:
        """The state as versioned bytes, to go on later with `mechanism.start(state=…)`.

        The account of a ledger in memory is part of it where this run is its only user. Where others share the ledger,
        each would go on with an account of its own: keep `ledger.snapshot()` too, and restore it first.
        """
        self._may_go_on(0)
        if self.ledger.in_transaction and not self.ledger.rehearses:
            raise LedgerMismatch(
                "a snapshot that is made inside of a transaction may outlive its charges; make it when that has ended."
            )
        header = {
            "mechanism": type(self.mechanism).__name__,
            "fingerprint": self.mechanism.fingerprint,
            "step": self.step,
            "origin": self.origin,
            "charged": self.ledger.step,
            "alone": self.alone,
            "position": self.ledger.position,
        }
        if not self.ledger.begins_again:  # else it is part of another run, which has a name
            self._name = self._name or process.new_name()
            self.ledger.hold(self._name, self)
            header["run"] = self._name
        if self.names is not None:
            header["names"] = list(self.names)
        state = self._whole_state()
        if isinstance(self.ledger, MemoryLedger) and self.alone and not self.ledger.shared_with(self):
            account = self.ledger.snapshot()
            kept = {f"ledger.{name}": account[name] for name in account if not name.endswith("identity")}
            state = {**state, **kept}
        else:
            header["identity"] = self.ledger.known_as
        return snapshot.pack(header, state)

    def _ledger(self, given: Ledger | Path | str | None, saved: State | None, resumed: bool) -> Ledger:
        mechanism = self.mechanism
        if not mechanism.enforced and given is not None and not isinstance(given, UnenforcedLedger):
            raise LedgerMismatch(
                "a printed calibration overspends and may not use a ledger that protects people; start it without one."
            )
        if given is None:
            if resumed and saved is None:
                raise without_account()
            kind = MemoryLedger if mechanism.enforced else UnenforcedLedger
            ledger = kind(mechanism.policy, mechanism.units)
            if saved is not None:
                ledger.restore(saved)
            return ledger
        opened = (
            open_ledger(given, mechanism.policy, mechanism.units) if isinstance(given, Path | str) else given
        )
        opened.fit(mechanism.policy, mechanism.units, type(mechanism).__name__)
        return opened

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse copies: both would go on with the same noise and the same account."""
        raise LedgerMismatch(
            "a run cannot be copied or pickled; make a snapshot, and start from it when this run is done."
        )

    def _may_go_on(self, steps: int) -> None:
        """Refuse a run that is not used again, and steps beyond the horizon; notice whether others have charged."""
        if self._unusable:
            raise LedgerMismatch(self._unusable)
        if self.ledger.worker not in (None, self, self._part_of):
            raise LedgerBusy(
                "another run of this ledger is at work, in the thread that this signal handler or finaliser has "
                "interrupted; let it only set a flag, and push when the interrupted call has returned."
            )
        rows = self.ledger.rows
        if rows != self.charges:
            self.alone, self.charges = False, rows
        self._within_horizon(steps)

    def taken_back(self) -> None:
        """Hear from the ledger that charges were rolled back: what they have paid for is still in the state."""
        self._unusable = TAKEN_BACK

    def superseded(self) -> None:
        """Hear from the ledger that another run goes on with the secret state of this one."""
        self._unusable = SUPERSEDED

    def _failed(self, error: BaseException) -> None:
        """Let a run be used again that is where it was: refused, or put back, with nothing charged."""
        refused = isinstance(error, TidegateError)
        if not refused:
            self.ledger.give_back()
        charged = self.ledger.rows != self.charges
        if charged:  # what led here may depend on noise that was drawn: it stays paid, also in a transaction that fails
            self.ledger.handed_out()
        if self._unusable is INTERRUPTED and (
            (refused and self.restores) or ((refused or self.restores) and not charged)
        ):
            self._unusable = ""

    @contextmanager
    def _at_work(self, steps: int = 0, *, hands_out: bool = True) -> Iterator[None]:
        """Whatever else a run does besides pushes: one that is interrupted in it is not used again.

        What is charged in it pays for something that is seen, and stays paid as a push does, unless `hands_out` is False.
        """
        ledger = self.ledger
        with ledger.turn:
            self._may_go_on(steps)
            self._unusable = INTERRUPTED
            outer, ledger.worker = ledger.worker, self
            try:
                try:
                    yield
                except BaseException as error:
                    self._failed(error)
                    raise
                if hands_out:
                    self._hand_out()
                self.charges = ledger.rows
            finally:
                ledger.worker = outer
            self._unusable = ""

    def _refuse_in_transaction(self) -> None:
        """For runs that decide on raw data: what a decision cost must not be taken back when a refusal has shown it."""
        if not self.alone and self.ledger.in_transaction:
            raise LedgerMismatch(
                f"{type(self.mechanism).__name__} decides on raw data and shares its ledger, so that no transaction may "
                "take back what its decisions cost; push it outside of transactions, or give it its own ledger."
            )

    def _within_horizon(self, steps: int) -> None:
        """Refuse steps beyond the end of the stream, before anything is charged."""
        horizon = self.mechanism.policy.horizon
        if horizon is not None and self.step + steps > horizon:
            raise InvalidInput(
                f"the stream was declared to end after {horizon} steps and {steps} more would make "
                f"{self.step + steps}; nothing was charged: start a run with a longer horizon."
            )

    def _row(self, values: Any, grid_units: bool = False) -> Row:
        if type(values) is int and self._quick:  # the quick way for scalar streams
            if -LARGEST <= values <= LARGEST:
                return np.array((values,))  # int64, as whole numbers of this size are
            raise _beyond(LARGEST)
        array = self._as_array(self._in_order(values), grid_units)
        if array.ndim == 0 and self._columns == 1:
            array = array.reshape(1)
        if array.shape != (self._columns,):
            raise InvalidInput(
                f"a step has {self._columns} columns and this one has the shape {array.shape}; "
                f"push {self._columns} values."
            )
        return self._counted(array) if grid_units else self._on_grid(array)

    def _rows(self, values: Any, grid_units: bool = False) -> Matrix:
        array = self._as_array(self._in_order(values), grid_units)
        if array.ndim == 1 and self._columns == 1:
            array = array[:, np.newaxis]
        if array.ndim != 2 or array.shape[1] != self._columns:
            raise InvalidInput(
                f"a batch is an array of steps × {self._columns} columns and this one has the shape {array.shape}; "
                "reshape it."
            )
        return self._counted(array) if grid_units else self._on_grid(array)

    def _in_order(self, values: Any) -> Any:
        """Values whose columns have names, in the order of the first that were pushed; all others as they are."""
        given = None if isinstance(values, np.ndarray | list) else frames.names_of(values)
        if given is None:
            return values
        if self.names is None and len(given) == self._columns:
            self.names = given
        return values if self.names is None else frames.in_order(values, given, self.names)

    def _as_array(self, values: Any, grid_units: bool = False) -> npt.NDArray[Any]:
        """Pushed values as an array; where there is a public bound, the same for numbers of every type."""
        lenient = self.mechanism.clamp is not None and not grid_units
        try:
            array = as_floats(np.asarray(values)) if lenient else np.asarray(values)
        except (ValueError, OverflowError):
            array = np.empty(0, dtype=object)
        if array.dtype.kind not in "buif":
            raise InvalidInput(
                "values must be numbers in a regular array; convert them before they are pushed."
            )
        return array

    def _counted(self, array: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Values that are grid units already, within what floats of them would be."""
        if array.dtype != np.int64:
            raise InvalidInput(
                "grid units are whole numbers; pass an array of int64, or values of their own unit."
            )
        if (clamp := self.mechanism.clamp) is not None:
            most = int(Fraction(clamp) * self._per_one)
            clipped: npt.NDArray[np.int64] = np.clip(array, -most, most)
            return clipped
        if most_extreme(array.ravel()) > self._most:
            raise _beyond(self._most)
        return array

    def _on_grid(self, array: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        clamp, per_one = self.mechanism.clamp, self._per_one
        if clamp is not None:
            return saturated(array, Fraction(clamp), Fraction(1, per_one))
        if array.dtype.kind in "bui":
            whole_numbers = array if array.dtype == np.int64 else _to_int64(array)
            if most_extreme(whole_numbers.ravel()) > LARGEST // per_one:
                raise _beyond(LARGEST)
            return whole_numbers if per_one == 1 else whole_numbers * per_one
        rounded, exactly, finite = round_to_grid(
            np.ascontiguousarray(array, dtype=np.float64).ravel(), per_one, float(self._most)
        )
        if not finite:
            raise InvalidInput(
                f"a value is NaN, infinite or beyond {self._most} grid units; fill gaps from public or released values, "
                "or choose a coarser grid."
            )
        if not exactly and self.mechanism.rounding == "refuse":
            raise InvalidInput(
                f"a value does not lie on the grid of {show(Fraction(1, per_one))}; round each contribution to the grid "
                'before summing, or declare rounding="nearest", which raises the sensitivity.'
            )
        on_grid: npt.NDArray[np.int64] = rounded.reshape(array.shape)
        return on_grid


def without_account() -> SnapshotError:
    """The error for a snapshot that was given no ledger and holds none."""
    return SnapshotError(
        "the snapshot has no account, since its ledger is on disk or was shared; start it with the ledger, a shared one "
        "in memory restored from ledger.snapshot()."
    )


def _as_begun(mechanism: Mechanism, header: State) -> Mechanism:
    """The mechanism that wrote a snapshot: this one, or what the same arguments meant earlier."""
    if header["mechanism"] != type(mechanism).__name__:
        raise SnapshotError(
            f"the snapshot is of {header['mechanism']} and this is {type(mechanism).__name__}; "
            "start the mechanism that wrote it."
        )
    if header["fingerprint"] == mechanism.fingerprint:
        return mechanism
    earlier = mechanism.earlier
    if earlier is None or header["fingerprint"] != earlier.fingerprint:
        raise SnapshotError(
            f"the snapshot is of a {header['mechanism']} with another policy or other parameters; "
            "start it with the configuration that wrote it."
        )
    return earlier


def _to_int64(array: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    if array.dtype == np.uint64 and array.size and int(array.max()) > LARGEST:
        raise _beyond(LARGEST)
    return array.astype(np.int64)


def _beyond(most: int) -> InvalidInput:
    return InvalidInput(
        f"a value lies beyond ±{most} grid units, the range in which integers are exact; choose a coarser grid."
    )


def last_step(ledger: Ledger, end: int) -> int:
    """Where a period that would end at a step ends: with the stream, if that is earlier."""
    horizon = ledger.policy.horizon
    return end if horizon is None else min(end, horizon)
