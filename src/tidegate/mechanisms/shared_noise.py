"""Noise that the measured steps of a window share, in runs on ledgers; `sharing.py` has the laws and the choice.

The laws stand in `tidegate.noise.shared`; docs/proofs/shared_noise.md says why a run that keeps their state is private.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from tidegate import process
from tidegate.errors import LedgerMismatch
from tidegate.ledger import Batch, Group, MemoryLedger, kernels
from tidegate.mechanisms.run import ChargeAll, Matrix, Row, Run, last_step
from tidegate.mechanisms.sharing import (
    NOISES,
    WORTH_IT,
    Laws,
    Sharing,
    SharingMechanism,
    columns_apart,
    drawable,
)
from tidegate.noise.entropy import UNBUFFERED
from tidegate.releases import Release, Releases

if TYPE_CHECKING:
    from tidegate.noise.shared.cube import Cube
    from tidegate.noise.shared.semiorder import Semiorder

__all__ = [
    "NOISES",
    "WORTH_IT",
    "Laws",
    "Sharing",
    "SharingMechanism",
    "columns_apart",
    "drawable",
]  # as before

Integers = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]
Saved = dict[str, Any]

LEAST_AHEAD, MOST_AHEAD = 8, 64  # single measurements whose noise is drawn at once: fewer gain nothing
LOOKED_AHEAD = 256  # steps of a window that is looked at step by step for what others have left of it
FOR_GOOD = (
    "the noise of this run is shared by all of its steps, and nobody can tell whether this snapshot, or this copy of its "
    "ledger, is the only one that goes on; go on at the place of the ledger itself, or begin a new stream with "
    'noise="laplace".'
)


def begin_noise(
    run: Run, sharing: Sharing, stream: str, saved: Saved | None, distance: int = 1, own: int = 0
) -> SharedNoise:
    """The noise of a run at its beginning, or where a snapshot's numbers left it; see `SharedNoise`."""
    cube = GroupedNoise if distance else ScatteredNoise
    kind: type[SharedNoise] = cube if sharing.choice.law == "cube" else SlidingNoise
    return kind(run, sharing, stream, saved, distance, own)


class SharingRun(Run):
    """A run whose measurements may share noise; where it is silent it repeats the last one.

    Attributes
    ----------
    _last, _measured_at
        What a silent step repeats: what was last released, or measured in grid units, and its step, 0 before any.
    """

    mechanism: SharingMechanism
    _last: Row | Values | int
    _measured_at: int
    _noise: SharedNoise | None  # that measurements share

    def _begin_measuring(
        self, stream: str, state: Saved | None, nothing: Row | Values, distance: int = 1, own: int = 0
    ) -> None:
        """Begin, or go on with, measurements; see `SharedNoise` for their noise."""
        saved, sharing = state or {}, self.mechanism.sharing
        self._charge = self.ledger.units // self.mechanism.units
        self._last, self._measured_at = saved.get("last", nothing), saved.get("measured", 0)
        self._noise = None
        if sharing is not None:
            self._noise = begin_noise(self, sharing, stream, saved.get("noise"), distance, own)

    def _charge_blocks(self, steps: int, length: int, reach: int, charge: ChargeAll) -> Integers:
        """Charge blocks of `length` steps, each as one group over the first `reach` of them; the units of each step."""
        firsts = np.arange(1, steps + 1, length)
        units, costs = np.zeros(steps, dtype=np.int64), np.full(firsts.size, self._charge)
        charge(units, np.stack([firsts, firsts + reach - 1, costs], axis=1))
        units[firsts - 1] = costs
        return units

    @abstractmethod
    def _push_shared(self, row: Row, noise: SharedNoise) -> Release:
        """Release one step, of whose noise others have a part."""

    def _push_one_by_one(self, matrix: Matrix, noise: SharedNoise) -> Releases:
        """A batch of which some steps may have to be silent: all of it, or nothing."""
        begun, kept, held = self.step, vars(noise).copy(), (self._last, self._measured_at)
        try:
            with self.ledger.transaction():
                singles = []
                for row in matrix:
                    self.step += 1
                    singles.append(self._push_shared(row, noise))
        except BaseException:
            noise.put_back(kept)
            self._last, self._measured_at = held
            raise
        finally:
            self.step = begun
        return Releases.of(singles, begun + 1, self._columns, self.ledger.unit)


class Payer(Protocol):
    """Whoever is charged for shared noise: a ledger, or its account while a compiled loop has it."""

    @property
    def unit(self) -> Fraction:
        """What a unit is worth."""

    def remaining(self, step: int | None = None) -> Fraction:
        """What a charge to a step may cost."""

    def charge(self, step: int, units: int = 0) -> None:
        """Charge a step."""

    def charge_group(self, first: int, last: int, units: int) -> Group:
        """Charge a group of steps."""

    def extend_group(self, group: Group, last: int) -> Group:
        """Let a group reach on."""


class LentAccount:
    """The account of a ledger while a compiled loop has it: tried here, and charged for good by `record`.

    Parameters
    ----------
    batch
        Whose account it is; it has room for the groups.
    unit
        What a unit is worth.

    Attributes
    ----------
    stood
        The last step that was charged for good before.
    """

    def __init__(self, batch: Batch, unit: Fraction) -> None:
        self._batch, self.unit = batch, unit
        self.stood: int = batch.state.item(kernels.LAST)
        self._begun: list[Group] = []
        # of compiled loops: groups, and how many they charged
        self._due: list[tuple[Integers, Integers]] = []
        self._extended: dict[Group, Group] = {}  # as they are now, as they were

    def remaining(self, step: int | None = None) -> Fraction:
        """What a charge to a step may cost."""
        assert step is not None
        return int(kernels.account_remaining(*self._batch.account, step)) * self.unit

    def charge(self, step: int, units: int = 0) -> None:
        """Charge a step on trial; whatever records the batch charges it for good."""
        if kernels.account_charge(*self._batch.account, step, units) != kernels.ACCEPTED:
            self._batch.refuse(step, units)

    def charge_group(self, first: int, last: int, units: int) -> Group:
        """Charge a group of steps."""
        if kernels.account_charge_group(*self._batch.account, first, last, units) != kernels.ACCEPTED:
            self._batch.refuse(first, units)
        group = Group(first, last, units)
        self._begun.append(group)
        return group

    def due(self, groups: Integers) -> Integers:
        """Groups that a compiled loop charges when it comes to them; it counts them in the array that is returned."""
        charged = np.zeros(1, dtype=np.int64)
        self._due.append((groups, charged))
        return charged

    def extend_group(self, group: Group, last: int) -> Group:
        """Let a group reach on; the account stays at its step."""
        if kernels.account_extend_group(*self._batch.account, *group, last) != kernels.ACCEPTED:
            self._batch.refuse(last, group.units)
        further = Group(group.first, last, group.units)
        self.reached(group, further)
        return further

    def reached(self, group: Group, further: Group) -> None:
        """Take note that a group was extended on the account."""
        if self._begun and self._begun[-1] == group:
            self._begun[-1] = further
        elif further != group:
            self._extended[further] = self._extended.pop(group, group)

    def charged(self, groups: Sequence[Group]) -> None:
        """Take note of groups that were charged to the account."""
        self._begun.extend(groups)

    def record_one(self, step: int, units: int) -> None:
        """The same for a single step, quickly: in rows of their own, which a ledger in memory only counts."""
        alone = units - sum([group.units for group in self._begun])
        self._batch.record_one(step, alone, self._begun, self._extended.values())

    def record(self, first: int, units: Integers, charge: Callable[..., None]) -> None:
        """Charge all of it for good; `units` are what steps were charged, groups at their first step included."""
        begun = np.array([*self._begun], dtype=np.int64).reshape(-1, 3)
        begun = np.concatenate([begun, *(groups[: int(charged[0])] for groups, charged in self._due)])
        reached = [(*before, group.last) for group, before in self._extended.items()]
        extended = np.array(reached, dtype=np.int64).reshape(-1, 4)
        alone = units.copy()
        np.subtract.at(alone, begun[:, 0] - first, begun[:, 2])
        # an interruption may have left a group's first step without its units
        np.maximum(alone, 0, out=alone)
        charge(first, alone, groups=begun, extended=extended)


class Held:
    """A secret that one run at a time may go on with: the ledger knows it by a name that is in the snapshot."""

    run: Run
    name: str = ""

    def known_as(self) -> str:
        """The name, for a snapshot; from now on whoever starts from it ends the run that had it."""
        ledger = self.run.ledger
        if not self.name.endswith(f"@{ledger.place}"):
            self.name = f"{process.new_name()}@{ledger.place}"
        ledger.hold(self.name, self.run)
        return self.name

    def hold(self, name: str) -> bool:
        """Go on with what a snapshot has under this name; False where another run may go on with it as well."""
        held = self.run.ledger.hold(name, self.run)
        self.name = name if held else ""
        return held

    def put_back(self, kept: Any) -> None:
        """Be as when ``vars(noise).copy()`` was made."""
        vars(self).clear()
        vars(self).update(kept)


class SharedNoise(Held, ABC):
    """The noise of one run: paid for, drawn and kept. Its state is SECRET.

    Measurements are paid for and drawn one by one (`pay`, then `draw` or `draw_one`), or many at once (`pay_all`, then
    `draw_all`). Each writes a row to the ledger before anything is drawn for it, also where a group has paid
    already, so that every earlier snapshot is stale from then on. A step that is not paid for is silent.

    Parameters
    ----------
    run
        Whose noise it is.
    sharing, stream
        The law, and the name of the noise.
    saved
        What `numbers` has said, for a snapshot.
    distance
        Steps from one measurement to the next; 0 where they come as they come.
    own
        Units that every measured step is charged besides, for what else is made of it.

    Attributes
    ----------
    silent_until
        The last step that is silent because a state was dropped.
    patient_until
        Up to this step charges that others made before this run began may leave too little for its noise: it is silent
        then. Later, or where nobody was before, that is an error.
    """

    def __init__(
        self,
        run: Run,
        sharing: Sharing,
        stream: str,
        saved: Saved | None = None,
        distance: int = 1,
        own: int = 0,
    ) -> None:
        self.run, self.sharing, self.stream, self.distance, self.own = run, sharing, stream, distance, own
        self.law: Any = sharing.law
        self.ledger: Payer = run.ledger
        self.source = run.source
        self.cost = int(sharing.group_part * self.ledger.units)
        self.window = run.ledger.policy.window
        self.horizon = run.ledger.policy.horizon
        self.silent_until = self.patient_until = 0
        self.state: Any = self.law.start()
        if saved is not None:
            self._restore(saved)
        else:
            self.patient_until = run.ledger.crowded_until

    def _restore(self, saved: Saved) -> None:
        """Go on from a snapshot if nobody else can go on from it, else drop what is secret."""
        self.silent_until, self.patient_until = saved["silent"], saved["patient"]
        self._read(saved)
        if self.hold(saved["name"]) or not self.open:
            return
        if (self.window is None or self.sharing.whole_run) and not self.run.ledger.begins_again:
            raise LedgerMismatch(FOR_GOOD)
        self.silent_until = self._drop()
        self.patient_until = self.silent_until + (self.window or 0)

    def numbers(self) -> Saved:
        """The state for a snapshot, which is as secret as raw values."""
        return {
            "name": self.known_as(),
            "silent": self.silent_until,
            "patient": self.patient_until,
            "law": self.state.numbers(),
        }

    @property
    def steady(self) -> bool:
        """Whether every measurement from now on is paid for, or refused with an error."""
        return self.run.step >= self.patient_until

    def silent(self, step: int) -> bool:
        """Whether a measurement at this step has to be passed over."""
        return not self.open and self._silent(step)

    def _silent(self, step: int) -> bool:
        """Whether a step that needs a new group has to be silent."""
        if step > self.patient_until:
            return False
        return step <= self.silent_until or not self._room(step)

    def _room(self, step: int) -> bool:
        """Whether a group can be paid for, and what else each further step of a window costs after it."""
        unit, window = self.ledger.unit, self.window
        if not self.own:
            return self.ledger.remaining(step) >= self.cost * unit
        if window is None or window > LOOKED_AHEAD:
            further = window or (self.horizon or step) - step + 1
            return self.ledger.remaining(step) >= (self.cost + further * self.own) * unit
        return all(
            self.ledger.remaining(step + more) >= (self.cost + (more + 1) * self.own) * unit
            for more in range(window)
        )

    def pay(self, step: int) -> int:
        """Pay for a measurement, or pass it over in silence: the units that were charged, or −1."""
        units = self._pay(step)
        if units < 0:
            self.ledger.charge(step, 0)
        return units

    def draw(self, number: int) -> Integers:
        """The noise of the measurement that was paid for, one number a column."""
        noise, self.state = self.law.draw(self.source, self.stream, number, self.state)
        found: Integers = noise[0]
        return found

    def draw_one(self, number: int) -> int:
        """The same for one column, without the cost of arrays."""
        noise: int
        noise, self.state = self.law.draw_one(self.source, self.stream, number, self.state)
        return noise

    def pay_all(self, first: int, steps: int, at: int, count: int) -> Integers:
        """Pay for `steps` steps, of which `count` are measured, from step `at` on; the units of each step."""
        units = np.full(steps, self.own)
        begun, extended = self.rows(at, count)
        charged = np.broadcast_to(np.int64(self.own), steps)
        self.run.ledger.charge_batch(first, charged, groups=begun, extended=extended)
        units[begun[:, 0] - first] += begun[:, 2]
        self._paid(at, count)
        return units

    def pay_at(self, first: int, own: Integers, at: Integers) -> Integers:
        """Pay for consecutive steps, each of which costs something of its own, and for measurements at some of them.

        Where measurements come as they come, at most a window apart; returns the units of each step.
        """
        begun, extended = self.rows_at(at)
        self.run.ledger.charge_batch(first, own, groups=begun, extended=extended)
        units = own.copy()
        units[begun[:, 0] - first] += begun[:, 2]
        if len(begun):
            self.group = Group(*begun[-1].tolist())
        elif len(extended):
            begin, _, cost, last = extended[-1].tolist()
            self.group = Group(begin, last, cost)
        return units

    def pay_one(self, step: int) -> int:
        """The same for one step that is measured, as the next one; quickly where its group is open already."""
        if not isinstance(self.run.ledger, MemoryLedger) or not self._goes_on(step):
            return int(self.pay_all(step, 1, step, 1)[0])
        # what may be refused comes first: a group that reaches on within a window costs nothing
        self.ledger.charge(step, self.own)
        self._reach(step)
        return self.own

    def draw_all(self, number: int, count: int) -> Integers:
        """The noise of many measurements that were paid for, one row each."""
        noise, self.state = self.law.draw(self.source, self.stream, number, self.state, count)
        found: Integers = noise
        return found

    # where measurements come as they come, and a compiled loop pays for them

    group: Group | None = None
    """The group that was last charged; of no meaning where `distance` says what groups hold."""

    _after: Callable[[int], Any] | None = None

    @abstractmethod
    def opening(self, count: int) -> Integers:
        """Which of the next measurements open a group."""

    def draw_ahead(self, number: int, count: int) -> Integers:
        """Noise of the next measurements for a loop that pays for each before it looks at it; `settle` says how many."""
        noise: Integers
        noise, self._after = self.law.draw_ahead(self.source, self.stream, number, self.state, count)
        self.state = self._after(count)  # until it is known how many were used
        return noise

    def settle(self, used: int, groups: Sequence[Group]) -> None:
        """Stand after so many measurements of `draw_ahead`; groups: the one before, as it is now, and new ones."""
        assert isinstance(self.ledger, LentAccount)
        assert self._after is not None
        self.state, self._after = self._after(used), None
        if self.group is not None:
            self.ledger.reached(self.group, groups[0])
        self.ledger.charged(groups if self.group is None else groups[1:])
        self.group = groups[-1] if groups else None

    def most_groups(self, steps: int) -> int:
        """The most groups that so many steps can begin."""
        shortest = min(self.sharing.choice.lengths, default=steps)
        return 2 + steps // max(1, min(shortest, self.window or shortest))

    @contextmanager
    def lent(self, batch: Batch) -> Iterator[LentAccount]:
        """Pay on the account that a compiled loop has, until the block is left; `LentAccount.record` makes it last."""
        account = LentAccount(batch, self.run.ledger.unit)
        self.ledger = account
        try:
            yield account
        finally:
            self.ledger = self.run.ledger

    def _open_group(self, step: int, last: int) -> int:
        """Charge a group of these steps, if the first of them need not be silent: the units, or −1."""
        if self._silent(step):
            return -1
        self.group = self.ledger.charge_group(step, last, self.cost)
        return self.cost

    def _reach_on(self, group: Group, step: int) -> int:
        """Let a group pay for a measurement: it reaches on or, where no window meets both, is charged anew; the units."""
        if self.window is not None and step - group.last > self.window:
            self.group = self.ledger.charge_group(step, step, self.cost)
            return self.cost
        self.group = self.ledger.extend_group(group, step)
        return 0

    # what a law adds

    @property
    @abstractmethod
    def open(self) -> bool:
        """Whether the state holds anything secret."""

    @abstractmethod
    def _read(self, saved: Saved) -> None:
        """Take over the numbers of the law."""

    @abstractmethod
    def _drop(self) -> int:
        """Forget what is secret; the last step that has to be silent then."""

    @abstractmethod
    def _pay(self, step: int) -> int:
        """Pay for a measurement, if it need not be silent."""

    @abstractmethod
    def _goes_on(self, step: int) -> bool:
        """Whether the group that is open holds this step as well, and no window has to be asked again for it."""

    def _reach(self, step: int) -> None:
        """Let that group reach on to the step."""

    @abstractmethod
    def ahead(self, step: int, steps: int) -> int:
        """How many of the next measurements, one a step, are paid for or refused, and surely not passed over."""

    @abstractmethod
    def pay_ahead(self, step: int, steps: int) -> int:
        """Pay for the first of so many measurements, one a step, and all that its group holds: the units, or −1."""

    def due(self, step: int, steps: int) -> tuple[Integers, Integers]:
        """The groups that begin after the first of these steps, for a loop to charge, and where it counts them."""
        assert isinstance(self.ledger, LentAccount)
        begun, _ = self.rows(step, steps)
        later = begun[begun[:, 0] > step]
        return later, self.ledger.due(later)

    @abstractmethod
    def rows(self, first: int, count: int) -> tuple[Integers, Integers]:
        """The groups that the next measurements begin (first, last, units), and those that they extend."""

    def rows_at(self, at: Integers) -> tuple[Integers, Integers]:
        """The same for measurements at these steps, where they come as they come."""
        raise NotImplementedError

    def _paid(self, first: int, count: int) -> None:
        """Take note that the next measurements were paid for."""


class GroupedNoise(SharedNoise):
    """The cube on groups: a radius is drawn when a group opens, and forgotten with its last measurement."""

    law: Cube

    @property
    def open(self) -> bool:
        """Whether a group is open."""
        return bool(self.state.remaining)

    def _read(self, saved: Saved) -> None:
        self.state = self.law.restore(saved["law"])

    def _drop(self) -> int:
        following = self.run.step + 1 + -self.run.step % self.distance  # the next step that is measured
        planned = following + (self.state.remaining - 1) * self.distance
        self.state = self.law.restore([self.state.place, 0, *(0 for _ in self.state.radii)])
        return int(planned)

    def _pay(self, step: int) -> int:
        if self.state.remaining:
            self.ledger.charge(step, 0)
            return 0
        if self._silent(step):
            return -1
        last = step + (self.law.lengths[self.state.place] - 1) * self.distance
        self.ledger.charge_group(step, last_step(self.run.ledger, last), self.cost)
        self.ledger.charge(step, 0)
        return self.cost

    def _goes_on(self, step: int) -> bool:
        return bool(self.state.remaining)  # it was charged with all of its steps

    def ahead(self, step: int, steps: int) -> int:
        """All of them where nobody was before; else those of the group that is open, or opens with the first."""
        if step > self.patient_until:
            return steps
        return int(min(steps, self.state.remaining or self.law.lengths[self.state.place]))

    def pay_ahead(self, step: int, steps: int) -> int:
        """Pay for the first of so many measurements, one a step; the units that were charged."""
        return self._pay(step)

    def opening(self, count: int) -> Integers:
        """Which of the next measurements open a group."""
        if count == 1:
            return np.zeros(0 if self.state.remaining else 1, dtype=np.int64)
        return self.law.opened(self.state, count)[0]

    def rows(self, first: int, count: int) -> tuple[Integers, Integers]:
        """The groups that open."""
        starts, lengths = self.law.opened(self.state, count)
        begun = np.empty((starts.size, 3), dtype=np.int64)
        begun[:, 0] = first + starts * self.distance
        begun[:, 1] = begun[:, 0] + (lengths - 1) * self.distance
        if self.horizon is not None:
            np.minimum(begun[:, 1], self.horizon, out=begun[:, 1])
        begun[:, 2] = self.cost
        return begun, np.zeros((0, 4), dtype=np.int64)


class ScatteredNoise(GroupedNoise):
    """The cube on groups of measurements that come as they come: a group reaches on with each of them."""

    def numbers(self) -> Saved:
        """The state for a snapshot, with the group that is paid for."""
        return {**super().numbers(), "group": self.group}

    def _read(self, saved: Saved) -> None:
        super()._read(saved)
        self.group = None if saved["group"] is None else Group(*saved["group"])

    def _drop(self) -> int:
        self.state = self.law.restore([self.state.place, 0, *(0 for _ in self.state.radii)])
        last = self.group.last if self.group is not None else self.run.step
        self.group = None
        if self.window is None:  # one group holds all measurements
            return self.horizon or last
        return last + self.window - 1  # where the group would have ended nobody knows

    def _goes_on(self, step: int) -> bool:
        return False  # a group has to reach on to every measurement, which the ledger is asked for

    def rows_at(self, at: Integers) -> tuple[Integers, Integers]:
        """The groups that open, each as far as it reaches here, and the one that was open."""
        starts, _ = self.law.opened(self.state, at.size)
        ends = np.append(starts, at.size)  # of the open group, and of those that open
        begun = np.empty((starts.size, 3), dtype=np.int64)
        begun[:, 0], begun[:, 1], begun[:, 2] = at[starts], at[ends[1:] - 1], self.cost
        reached = [(*self.group, int(at[ends[0] - 1]))] if self.group is not None and ends[0] else []
        return begun, np.array(reached, dtype=np.int64).reshape(-1, 4)

    def _pay(self, step: int) -> int:
        if not self.state.remaining:
            return self._open_group(step, step)
        assert self.group is not None
        return self._reach_on(self.group, step)


class SlidingNoise(SharedNoise):
    """The semiorder: one group that reaches on with every measurement, and takes all of a window's budget.

    Single measurements take noise that compiled code has drawn for several of them, more of them as long as no snapshot
    is made in between: `draw_ahead` of the law says what the state is after those that were used. At most a window's
    measurements are drawn at once: noise of a window that has passed is of use to nobody but an intruder.
    """

    law: Semiorder
    _drawn: tuple[int, ...] = ()  # noise of the next measurements, and how many have taken theirs
    _used: int = 0
    _rest: Callable[[int], Any] | None = None  # the state after so many of them
    _next: int = 1  # how many to draw the next time

    @property
    def state(self) -> Any:
        """The law's state after what was measured."""
        return self._state if self._rest is None else self._rest(self._used)

    @state.setter
    def state(self, state: Any) -> None:
        """Go on from a state: noise that was drawn for more is forgotten."""
        self._state, self._drawn, self._used, self._rest = state, (), 0, None

    def draw_one(self, number: int) -> int:
        """The noise of the measurement that was paid for, where a step has one value."""
        used = self._used
        if used == len(self._drawn):
            return self._draw_several(number)
        self._used = used + 1
        return self._drawn[used]

    def _draw_several(self, number: int) -> int:
        """The same where nothing is left that was drawn."""
        count = self._next if self.source is not UNBUFFERED else 1
        if count == 1:
            value: int = super().draw_one(number)
        else:
            state = self.state
            noise, rest = self.law.draw_ahead(self.source, self.stream, number, state, count)
            value, *_ = drawn = tuple(noise[:, 0].tolist())
            # asked twice, it is the same state
            self._state, self._drawn, self._used, self._rest = state, drawn, 1, lru_cache(maxsize=1)(rest)
        most = min(self.law.width * self.law.classes, MOST_AHEAD)
        self._next = min(2 * count, most) if most >= LEAST_AHEAD else 1
        return value

    @property
    def open(self) -> bool:
        """Whether anything was ever measured."""
        return self.group is not None

    def numbers(self) -> Saved:
        """The state for a snapshot, with the group that is paid for; noise that was drawn for more is forgotten."""
        self.state, self._next = self.state, 1
        return {**super().numbers(), "group": self.group}

    def _read(self, saved: Saved) -> None:
        self.state = self.law.restore(saved["law"])
        self.group = None if saved["group"] is None else Group(*saved["group"])

    def _drop(self) -> int:
        assert self.group is not None
        assert self.window is not None
        last = self.group.last + self.window - 1
        self.state, self.group = self.law.start(), None
        return last

    def _pay(self, step: int) -> int:
        if self.group is None:
            return self._open_group(step, step)
        if not self.distance:
            return self._reach_on(self.group, step)
        self.group = self.ledger.extend_group(
            self.group, step
        )  # the way of every push: a window later at the latest
        return 0

    def _goes_on(self, step: int) -> bool:
        return self.group is not None and self.window is not None and step - self.group.last < self.window

    def _reach(self, step: int) -> None:
        assert self.group is not None
        self.group = self.ledger.extend_group(self.group, step)

    def ahead(self, step: int, steps: int) -> int:
        """All of them: one group holds them."""
        return steps

    def pay_ahead(self, step: int, steps: int) -> int:
        """Pay for measurements of one group, one a step; the units that were charged."""
        last = step + steps - 1
        if self.group is None:
            return self._open_group(step, last)
        self.group = self.ledger.extend_group(self.group, last)
        return 0

    def opening(self, count: int) -> Integers:
        """The first measurement of all opens the one group."""
        return np.zeros(1 if self.group is None else 0, dtype=np.int64)

    def rows(self, first: int, count: int) -> tuple[Integers, Integers]:
        """The one group, as it begins or reaches on."""
        return self._row(first, first + (count - 1) * self.distance, count)

    def rows_at(self, at: Integers) -> tuple[Integers, Integers]:
        """The same for measurements at these steps."""
        return self._row(int(at[0]), int(at[-1]), at.size) if at.size else self._row(0, 0, 0)

    def _row(self, first: int, last: int, count: int) -> tuple[Integers, Integers]:
        begun, extended = np.zeros((0, 3), dtype=np.int64), np.zeros((0, 4), dtype=np.int64)
        if count and self.group is None:
            begun = np.array([[first, last, self.cost]], dtype=np.int64)
        elif count and self.group is not None:
            extended = np.array([[*self.group, last]], dtype=np.int64)
        return begun, extended

    def _paid(self, first: int, count: int) -> None:
        if count:
            begin = first if self.group is None else self.group.first
            self.group = Group(begin, first + (count - 1) * self.distance, self.cost)
