"""The ledger: an account of privacy loss per step that refuses before a window is overspent.

A charge belongs to the step whose data it touches, not to the moment of output: it is the loss that this
step's data can suffer through everything computed from them by that charge. A window's loss is the sum over
its steps.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from types import TracebackType
from typing import Protocol, Self
from weakref import WeakSet

from numpy.typing import ArrayLike

from tidegate import process
from tidegate.errors import BudgetExceeded, LedgerBusy, LedgerError, LedgerMismatch
from tidegate.exact import whole
from tidegate.ledger import kernels as k
from tidegate.ledger.batch import Batch, batch_charge, whole_units
from tidegate.ledger.events import MOST_STEPS, Charge, Overspent, Verdict
from tidegate.ledger.kernels import Integers
from tidegate.ledger.rules import LedgerPolicy, Rule, Schedule
from tidegate.ledger.secrets_rule import SecretsAccount


class User(Protocol):
    """Whoever charges a ledger and keeps a state that its charges have paid for."""

    charges: int
    """How many rows the ledger had when this user last looked; all of its own are among them."""

    def taken_back(self) -> None:
        """Hear that some of these rows are no longer there."""


class Ledger:
    """Base of all ledgers: checks, charges, answers; a store keeps the rows.

    Parameters
    ----------
    policy
        What is protected; its budget is what a window of `policy.window` steps may spend.
    units
        The budget of a window is this many units; every charge is a whole number of them.
    schedule
        "adaptive" (charges may depend on earlier releases) or "public"; see `Rule`.

    One thread at a time drives a ledger: calls take turns. A forked child may not use its parent's ledger.
    """

    def __init__(self, policy: LedgerPolicy, units: int, schedule: Schedule = "adaptive") -> None:
        self.rule = Rule(policy, units, schedule)
        self.policy = policy
        self.units = self.rule.units
        self.unit: Fraction = self.rule.unit
        self.marked = False
        self._adds = self.rule.adds
        self._account = self.rule.account()
        self._rows = 0
        self._epoch = process.epoch()
        self._lock = threading.RLock()
        self._batch: Batch | None = None
        self._depth = 0  # of nested transactions
        self._users: WeakSet[User] = WeakSet()
        self._closed = ""

    # what a store adds

    def _record(self, kind: str, charge: Charge, detail: Integers | None = None) -> None:
        """Keep a row of what was charged."""
        self._rows += 1

    def verify(self) -> Verdict:
        """Prove that no window was overspent."""
        raise NotImplementedError

    # reading

    @property
    def step(self) -> int:
        """The last charged step; 0 before any."""
        return self._account[k.LAST]

    @property
    def rows(self) -> int:
        """How many charges were recorded."""
        return self._rows

    @property
    def position(self) -> str:
        """What names this moment of this account: equal only where a ledger has the same rows."""
        raise NotImplementedError

    @property
    def known_as(self) -> str:
        """What tells this ledger from others, where its position alone does not."""
        return ""

    @property
    def in_transaction(self) -> bool:
        """Whether somebody has begun a transaction, which may still take back what is charged in it."""
        return self._depth > 0 and self._owned()

    def join(self, user: User) -> None:
        """Let a user hear when charges are taken back; nobody is kept alive by this."""
        self._users.add(user)

    def shared_with(self, user: User) -> bool:
        """Whether there is any other user."""
        return any(other is not user for other in self._users)

    def remaining(self, step: int | None = None) -> Fraction:
        """What a charge to `step` (by default the next one) may cost, over all windows that contain it."""
        step = self.step + 1 if step is None else whole("step", step, most=MOST_STEPS)
        with self._lock:
            self._check()
            return self._account.remaining(step) * self.unit

    def spent(self, first: int | None = None, last: int | None = None) -> Fraction:
        """What the steps first to last were charged; the window that ends at the last step if not given."""
        with self._lock:
            self._check()
            account, window = self._account, self.policy.window
            if first is None and last is None:
                return account[k.TOTAL] * self.unit
            last = self.step if last is None else whole("last", last, least=0, most=MOST_STEPS)
            first = max(1, last - (window or last) + 1) if first is None else whole("first", first)
            if first < account.kept_from and not (window is None and first == 1 and last >= self.step):
                raise LedgerError(
                    f"what step {first} was charged is no longer kept one by one; ask for steps from "
                    f"{account.kept_from} on, or use a ledger on disk."
                )
            return account.total(first, last) * self.unit

    # charging

    def charge(
        self,
        step: int,
        units: int = 0,
        *,
        scope: str = "",
        groups: Mapping[str, int] | None = None,
        levels: Mapping[str, int] | None = None,
    ) -> None:
        """Charge one step before its noise is drawn: `units` + the largest of `groups` + all `levels`.

        Raises
        ------
        BudgetExceeded
            When a window that contains the step would be overspent. Nothing is charged then.
        """
        with self._lock:
            self._check()
            charge = Charge(step, step, units, scope, groups or {}, levels or {})
            self._place(charge)
            self._record("step", charge)

    def charge_batch(self, first: int, units: ArrayLike, *, scope: str = "") -> None:
        """Charge consecutive steps from `first` on, units[i] to step first + i: all of them or none."""
        amounts = whole_units(units)
        first = whole("first", first, most=MOST_STEPS)
        with self._lock:
            self._check()
            if not len(amounts):
                return
            self._within_horizon(first + len(amounts) - 1)
            refusal = self._account.place_batch(first, self.rule.costs(amounts))
            if refusal is not None:
                self._refuse(refusal)
            self._record("batch", batch_charge(first, amounts, scope), amounts)

    def charge_span(self, first: int, last: int, units: int, *, scope: str = "") -> None:
        """Charge a span of steps: the units count once in each window that meets it.

        A span is charged at the latest at its first step, so that no window has been judged without it.
        """
        with self._lock:
            self._check()
            charge = Charge(first, last, units, scope)
            self._within_horizon(charge.last)
            if charge.first < self.step:
                raise LedgerMismatch(
                    f"the span of steps {charge.first} to {charge.last} is refused: the ledger stands at "
                    f"step {self.step} already; charge a span at its first step or earlier."
                )
            refusal = self._account.place_span(charge.first, charge.last, self.rule.cost(charge.units))
            if refusal is not None:
                self._refuse(refusal)
            self._record("span", charge)

    def begin_batch(self, count: int) -> Batch:
        """Lend the account to a compiled loop that makes at most `count` charges; see `Batch`."""
        return Batch(self, whole("count", count, least=0))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All charges inside succeed together; an exception takes them all back."""
        if not self._owned():
            self._depth = 0  # whatever an interruption may have left there
        with self._lock:
            self._check()
            before, rows, marked, stamp = self._account.mark(), self._rows, self.marked, self._stamp()
            outer = self._depth  # an interruption may leave another number there
            try:
                self._depth = outer + 1
                yield
            except BaseException:
                self._account.undo(before)
                self._take_back(rows, stamp)
                self.marked = marked
                raise
            finally:
                self._depth = outer

    def mark(self) -> None:
        """Record that test entropy was used: nothing of such a run is private."""
        self.marked = True

    # closing

    def close(self) -> None:
        """Give up the ledger; further use is refused."""
        self._closed = "closed"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # inside

    def _place(self, charge: Charge) -> None:
        """Charge the separate parts of one step, all or none."""
        self._within_horizon(charge.last)
        account = self._account
        if self._adds:
            refusal = account.place(charge.first, charge.total)
        elif self.rule.schedule == "public":
            before = account.mark()
            refusal = account.place(charge.first, 0)
            for size in charge.sizes:
                refusal = refusal or account.place(charge.first, size)
            if refusal is not None:
                account.undo(before)
        else:
            refusal = account.place(charge.first, sum(self.rule.cost(size) for size in charge.sizes))
        if refusal is not None:
            self._refuse(refusal)

    def _owned(self) -> bool:
        """Whether this thread holds the lock, as it does inside of its transactions."""
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]

    def _stamp(self) -> int:
        """What tells rows apart that came to the same place in turn: how often rows were taken back before."""
        return 0

    def _take_back(self, rows: int, stamp: int = 0) -> None:
        """Forget the rows after so many, and let everybody know whose charges may be among them."""
        taken, self._rows = self._rows > rows, rows
        for user in list(self._users) if taken else ():
            if user.charges > rows:
                user.taken_back()

    def _check(self) -> None:
        """Refuse a forked child, a closed ledger, and a charge while a compiled loop has the account."""
        if self._epoch is not process.epoch():
            raise LedgerBusy(
                "this ledger belongs to the parent of this process, which may spend the same budget; "
                "open a ledger of its own in the child."
            )
        if self._closed:
            raise LedgerError(f"the ledger is {self._closed}; open it again.")
        if self._batch is not None:
            raise LedgerBusy(
                "a batch is under way on this ledger; record or leave it before the next charge."
            )

    def _within_horizon(self, last: int) -> None:
        horizon = self.policy.horizon
        if horizon is not None and last > horizon:
            raise LedgerError(
                f"step {last} is refused: the policy ends at step {horizon}; "
                "start a stream with a longer horizon."
            )

    def _refuse(self, refusal: Overspent) -> None:
        """Raise what an overspent window deserves."""
        if isinstance(self._account, SecretsAccount):
            raise self._account.refusal(refusal, self.unit)
        window = self.policy.window
        first = 1 if window is None else max(1, refusal.window_end - window + 1)
        remaining = max(self.units - refusal.spent, 0)
        if not self._adds and self.rule.schedule == "public":
            remaining = self._account.remaining(refusal.step)
        raise BudgetExceeded(
            spent=refusal.spent * self.unit,
            requested=refusal.requested * self.unit,
            remaining=remaining * self.unit,
            window=(first, refusal.window_end),
            step=refusal.step,
        )
