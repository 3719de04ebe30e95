"""The ledger: an account of privacy loss per step that refuses before a window is overspent.

A charge belongs to the step whose data it touches, not to the moment of output: it is the loss that this
step's data can suffer through everything computed from them by that charge. A window's loss is the sum over
its steps.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from fractions import Fraction
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar
from weakref import WeakSet, ref

import numpy as np
from numpy.typing import ArrayLike

from tidegate import process
from tidegate.errors import BudgetExceeded, LedgerBusy, LedgerError, LedgerMismatch
from tidegate.exact import ExactLike, exact, positive, whole
from tidegate.ledger import kernels as k
from tidegate.ledger.batch import Batch, batch_charge, batch_total, whole_groups, whole_units
from tidegate.ledger.divided import DividedAccount
from tidegate.ledger.events import MOST_STEPS, Charge, Group, Overspent, Verdict
from tidegate.ledger.kernels import Integers
from tidegate.ledger.rows import encode_arrays, encode_text
from tidegate.ledger.rules import LedgerPolicy, Rule, Schedule, protection
from tidegate.policy import Policy

if TYPE_CHECKING:
    from tidegate.ledger.shares import Share

MOST_HOLDERS = 64
Result = TypeVar("Result")


class User(Protocol):
    """Whoever charges a ledger and keeps a state that its charges have paid for."""

    charges: int
    """How many rows the ledger had when this user last looked; all of its own are among them."""

    def taken_back(self) -> None:
        """Hear that some of these rows are no longer there."""


class Holder(User, Protocol):
    """A user with a secret state, such as noise that released steps share with those to come."""

    def superseded(self) -> None:
        """Hear that another user goes on from a snapshot of this one's state."""


class Section:
    """Around whatever reads an account and then changes it: nobody enters twice, not even the thread that is inside.

    A signal handler or a finaliser runs in the thread that was interrupted, which holds the ledger's lock. What it would
    charge there would be checked against an account without the charge that is being made.

    Attributes
    ----------
    frame
        Who is inside, or was when an interruption kept it from leaving; None where nobody was.
    """

    __slots__ = ("frame",)

    def __init__(self) -> None:
        self.frame: FrameType | None = None

    @property
    def busy(self) -> bool:
        """Whether whoever is inside was interrupted, and waits until this call returns."""
        caller: FrameType | None = sys._getframe(1)
        while caller is not None and caller is not self.frame:
            caller = caller.f_back
        if caller is None:
            self.frame = None
        return caller is not None

    def __enter__(self) -> None:
        self.frame = sys._getframe(1)

    def __exit__(self, *_: object) -> None:
        self.frame = None


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

    Examples
    --------
    >>> import tidegate as tg
    >>> ledger = tg.ledger.open_ledger(None, tg.WEvent(epsilon="1", w=2), units=2)
    >>> ledger.charge(1, 1)
    >>> ledger.step, ledger.unit
    (1, Fraction(1, 2))
    """

    durable: bool = False
    """Whether there is one copy of the account, which every process finds where the last charge left it."""

    keeps_batches: bool = False
    """Whether a batch is charged by the arrays of the account alone, so that what a compiled loop charged may stay."""

    begins_again: ClassVar[bool] = False
    """Whether another run begins, on an account of its own, when the steps of this one are over."""

    def __init__(self, policy: LedgerPolicy, units: int, schedule: Schedule = "adaptive") -> None:
        self.rule = Rule(policy, units, schedule)
        self.policy = policy
        self.units = self.rule.units
        self.unit: Fraction = self.rule.unit
        self.marked = False
        self._adds = self.rule.adds
        self._account = self.rule.account()
        self._rows = 0
        self._epoch = process.epoch
        self._lock = threading.RLock()
        self._section = Section()
        self.worker: object = None  # the run that is at work
        self._batch: Batch | None = None
        self._depth = 0  # of nested transactions
        self._seen = 0  # how often a run has handed something out
        self._unseen = False  # whether the outermost transaction hands nothing out before it has ended
        self._users: WeakSet[User] = WeakSet()
        self._holders: dict[str, ref[Holder]] = {}
        self._closed = ""
        self._views: WeakSet[Share] = WeakSet()
        self._admitted: LedgerPolicy | None = None  # besides its own: the same protection of smaller changes

    # what a store adds

    def _record(self, kind: str, charge: Charge, detail: Integers | bytes | None = None) -> None:
        """Keep a row of what was charged."""
        self._rows += 1

    def verify(self) -> Verdict:
        """Prove that no window was overspent."""
        raise NotImplementedError

    # reading

    @property
    def step(self) -> int:
        """The last charged step; 0 before any."""
        return self._account.last

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

    @property
    def turn(self) -> AbstractContextManager[Any]:
        """Held by whoever works with the ledger: others wait."""
        return self._lock

    @property
    def rehearses(self) -> bool:
        """Whether what is released now is handed out by nobody before the present transaction has ended."""
        return self._unseen and self.in_transaction

    def move(self) -> None:
        """Add a row that costs nothing, so that no earlier snapshot of anybody suits this ledger any more."""
        self.charge(max(self.step, 1))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse copies: each would spend the budget anew."""
        raise LedgerMismatch(
            "a ledger cannot be copied or pickled; runs that share it are given the same one."
        )

    def handed_out(self) -> None:
        """Hear from a run that it hands out what was charged: from now on no exception takes that back."""
        self._seen += 1

    def release(self, charge: Callable[[], object], draw: Callable[[], Result]) -> Result:
        """Charge, then draw and hand out: one act, for whatever releases without being a run.

        Once it is charged no exception takes the charge back, also where a transaction around this fails: what was
        drawn may have been seen. Runs do the same for every push.

        Parameters
        ----------
        charge
            Charges this ledger, and raises where it refuses.
        draw
            Draws the noise, after that; what it returns is handed out.

        Examples
        --------
        >>> import tidegate as tg
        >>> ledger = tg.ledger.open_ledger(None, tg.Event(epsilon="1"), units=1)
        >>> try:
        ...     with ledger.transaction():
        ...         answer = ledger.release(lambda: ledger.charge(1, 1), lambda: 42)
        ...         raise RuntimeError
        ... except RuntimeError:
        ...     print(answer, ledger.spent())
        42 1
        """
        with self.turn:
            charge()
            self.handed_out()
            return draw()

    def join(self, user: User) -> None:
        """Let a user hear when charges are taken back; nobody is kept alive by this."""
        self._users.add(user)

    def leave(self, user: User) -> None:
        """Let a run that is part of another one not count as a user of its own."""
        self._users.discard(user)

    def admit(self, policy: Policy) -> None:
        """Let a run charge here whose sensitivity was learnt: the same unit of protection, another max_change."""
        if not isinstance(self.policy, Policy) or protection(policy) != protection(self.policy):
            raise LedgerMismatch(
                "the ledger keeps the account of another unit of protection; open it with the policy of this mechanism."
            )
        self._admitted = policy

    def learnt(self, step: int, facts: Mapping[str, str]) -> None:
        """Write down what was learnt from steps that were charged, and may be known."""
        self._record("learnt", Charge(step, step, 0, "learn"), encode_text(dict(facts)))

    def shared_with(self, user: User) -> bool:
        """Whether there is any other user."""
        return any(other is not user for other in self._users)

    def fit(self, policy: LedgerPolicy, units: int, name: str) -> None:
        """Refuse a mechanism that cannot be charged here, by its policy and the units that it divides it into."""
        if policy not in (self.policy, self._admitted):
            raise LedgerMismatch(
                "the ledger keeps the account of another policy; open it with the policy of this mechanism."
            )
        if self.units % units:
            raise LedgerMismatch(
                f"the ledger divides its budget into {self.units} units and {name} needs a "
                f"multiple of {units}; open the ledger with units={units}."
            )

    # queries

    @property
    def shares(self) -> dict[str, Fraction]:
        """The queries among which the budget is divided, and their parts of it; none where it is not."""
        account = self._account
        if not isinstance(account, DividedAccount):
            return {}
        return {name: query.share for name, query in account.queries.items()}

    def last_row(self, query: str) -> tuple[int, bytes] | None:
        """The last charge of a query and its hash, where rows are on disk."""
        return None

    def divide(
        self,
        shares: Mapping[str, ExactLike],
        *,
        budget: ExactLike | None = None,
        deltas: Mapping[str, ExactLike] | None = None,
        configuration: str | None = None,
    ) -> dict[str, Share]:
        """Divide the budget among queries from the next step on; returns a ledger for each.

        The same again changes nothing. Anything else is an amendment of a running stream: what was charged before
        stays in the account, and a window that straddles the change holds the smaller of the budgets.

        Parameters
        ----------
        shares
            Each query's part of the budget of every window, exactly; at most 1 together.
        budget
            What windows may spend from now on (ε or ρ), if not what they could.
        deltas
            Parts of the policy's δ for queries that charge it with `Share.charge_delta`; as they were if not given.
        configuration
            A digest of what the queries are from now on, to be kept in the ledger's row; then there is a row also where
            shares and budget stay.
        """
        wanted = {name: exact("shares", share) for name, share in shares.items()}
        parts = None if deltas is None else {name: exact("deltas", share) for name, share in deltas.items()}
        with self._lock:
            self._check()
            account = self._account
            if not isinstance(account, DividedAccount):
                raise LedgerMismatch(
                    "the budget of this ledger does not add up, so that it has no shares; give each query its own."
                )
            amount = account.budget if budget is None else positive("budget", budget)
            same = bool(wanted) and (wanted, amount) == (self.shares, account.budget)
            if not same or configuration is not None or parts not in (None, account.delta_shares):
                with self.transaction(), self._section:
                    self._amend(account, wanted, amount, parts, configuration)
            return {name: self.share(name) for name in wanted}

    def _amend(
        self,
        account: DividedAccount,
        shares: Mapping[str, Fraction],
        budget: Fraction,
        deltas: Mapping[str, Fraction] | None,
        configuration: str | None,
    ) -> None:
        now = self.step
        account.divide(shares, budget, now, deltas, {}, {})
        change: dict[str, object] = {
            "now": now,
            "budget": str(budget),
            "shares": {name: str(share) for name, share in shares.items()},
            "units": account.units_of_queries,
        }
        if account.delta is not None:
            change["delta_units"] = account.delta.units_of_queries
        if deltas is not None:
            change["deltas"] = {name: str(share) for name, share in deltas.items()}
        if configuration is not None:
            change["configuration"] = configuration
        self._record("amend", Charge(max(now, 1), max(now, 1), 0, "shares"), encode_text(change))
        self._was_divided()

    def _was_divided(self) -> None:
        """Hear that from now on queries have shares, and charges to the whole are refused."""

    def share(self, name: str) -> Share:
        """The ledger of one query."""
        if name not in self.shares:
            known = ", ".join(self.shares) or "none: divide the ledger first"
            raise LedgerMismatch(f"the ledger has no query {name!r}; its queries are {known}.")
        for view in self._views:
            if view.name == name and view.current:
                return view
        from tidegate.ledger.shares import Share

        view = Share(self, name)
        self._views.add(view)
        return view

    def hold(self, name: str, user: Holder) -> bool:
        """Let a user be the one that goes on with the secret state of this name; whoever had it has it no longer.

        Returns
        -------
        bool
            Whether it is certain that nobody goes on with a copy of this state elsewhere. The user must drop the state
            if not: a ledger in memory cannot know what was restored beside another copy of it, and one in a database
            knows only what was kept at the place where it is.
        """
        with self._lock:
            self._check()
            before = self._holders.pop(name, None)
            holder = before() if before is not None else None
            if holder is not None and holder is not user:
                holder.superseded()
            self._holders[name] = ref(user)
            if (
                len(self._holders) > MOST_HOLDERS
            ):  # only those who are no more: one that may go on is never forgotten
                self._holders = {each: held for each, held in self._holders.items() if held() is not None}
            return before is not None or self._kept_here(name)

    def _kept_here(self, name: str) -> bool:
        """Whether a secret state of this name was kept at this place, and by nobody since who goes on elsewhere."""
        return False

    @property
    def place(self) -> str:
        """What names of secret states say of where they are kept; empty in memory."""
        return ""

    @property
    def crowded_until(self) -> int:
        """The last step whose windows contain what has been charged so far; 0 where there is nothing or no end."""
        window = self.policy.window
        if window is None or not self.step:
            return 0
        return max(self.step, int(self._account.groups()[:, 1].max(initial=0))) + window

    def remaining(self, step: int | None = None) -> Fraction:
        """What one charge to `step` (by default the next one) may be, over all windows that contain it."""
        step = self.step + 1 if step is None else whole("step", step, most=MOST_STEPS)
        with self._lock:
            self._check()
            if self.shares:
                return sum((self.share(name).remaining(step) for name in self.shares), Fraction(0))
            return self.rule.largest(self._account.remaining(step)) * self.unit

    def spent(self, first: int | None = None, last: int | None = None) -> Fraction:
        """What the steps first to last were charged; the window that ends at the last step if not given."""
        with self._lock:
            self._check()
            account, window = self._account, self.policy.window
            if self.shares:
                last = self.step if last is None else last
                first = max(1, last - (window or last) + 1) if first is None else first
                return sum((self.share(name).spent(first, last) for name in self.shares), Fraction(0))
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

    def _charging(self, first: int) -> AbstractContextManager[Any]:
        """What surrounds every charge, to steps from `first` on: nobody else charges meanwhile."""
        return self._lock

    def _in_force(self, first: int) -> None:
        """Refuse a step, or the first one of a group that is to reach on, that is not this account's own."""

    def _charged_quickly(self, step: int, units: int) -> bool:
        """Charge one plain amount on a short path, where there is one and nothing is unusual; whether it was done."""
        return False

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
        plain = groups is None and levels is None and type(step) is int and type(units) is int
        if plain and self._charged_quickly(step, units):  # as for nearly every push in memory
            return
        with self._charging(step):
            self._check()
            charge = Charge(step, step, units, scope, groups or {}, levels or {})
            with self._section:
                self._place(charge)
                self._record("step", charge)

    def charge_batch(
        self,
        first: int,
        units: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        extended: ArrayLike | None = None,
        scope: str = "",
    ) -> None:
        """Charge consecutive steps from `first` on, units[i] to step first + i: all of them or none.

        Parameters
        ----------
        first, units
            The steps, and what each of them is charged; ``numpy.broadcast_to(0, count)`` where groups pay for all.
        groups
            Rows (first, last, units): groups that begin at a step of the batch, each as by `charge_group`.
        extended
            Rows (first, last, units, further): groups charged before that reach on to the step `further`, each as
            by `extend_group`.
        scope
            A label for people.

        Raises
        ------
        BudgetExceeded
            When any window would be overspent by the whole of it. Nothing is charged then.
        """
        amounts = whole_units(units)
        first = whole("first", first, most=MOST_STEPS)
        with self._charging(first):
            self._check()
            if not len(amounts):
                return
            last = first + len(amounts) - 1
            self._within_horizon(last)
            if groups is not None or extended is not None:
                begun = whole_groups(groups, 3, first, last)
                gained = whole_groups(extended, 4, first, last)
                if len(begun) or len(gained):
                    with self._section:
                        self._charge_mixed(first, amounts, begun, gained, scope)
                    return
            with self._section:
                refusal = self._account.place_batch(first, self.rule.costs(amounts))
                if refusal is not None:
                    self._refuse(refusal, int(amounts[refusal.step - first]))
                if self.keeps_batches and not scope:  # a ledger in memory, which only counts rows
                    self._rows += 1
                    return
                self._record("batch", batch_charge(first, amounts, scope), amounts)

    def _charge_mixed(
        self, first: int, amounts: Integers, groups: Integers, extended: Integers, scope: str
    ) -> None:
        """Charge a batch that has groups; one row."""
        self._in_force(int(extended[:, 0].min(initial=first)))
        self._within_horizon(int(max(groups[:, 1].max(initial=0), extended[:, 3].max(initial=0))))
        costs = groups.copy()
        costs[:, 2] = self.rule.costs(groups[:, 2])
        gained = extended.copy()
        gained[:, 2] = self.rule.costs(extended[:, 2])
        refusal = self._account.place_mixed(first, self.rule.costs(amounts), costs, gained)
        if refusal is not None:
            self._refuse(refusal)
        if self.keeps_batches and not scope:
            self._rows += 1
            return
        charge = batch_charge(first, amounts, scope, batch_total(groups[:, 2]))
        self._record("groups", charge, encode_arrays(amounts, groups, extended) if self.durable else None)

    def charge_group(self, first: int, last: int, units: int, *, scope: str = "") -> Group:
        """Charge the steps first to last as one group: the units count once in every window that meets it.

        For one mechanism that reads these steps together, such as noise that they share, and whose whole loss,
        however many of them change, is `units`. The last step may lie ahead, and may be put off by `extend_group`.
        The ledger then stands at `first`; every step still makes a charge of its own before it draws, of 0 units
        where the group has paid, so that a stale snapshot is noticed. A group that begins before the last charged
        step is checked against every window that it meets, also those that have passed.

        Returns
        -------
        Group
            Three numbers, to be kept by the caller and given to `extend_group`.

        Raises
        ------
        BudgetExceeded
            When a window that meets the group would be overspent. Nothing is charged then.

        Examples
        --------
        >>> from tidegate.ledger import MemoryLedger
        >>> from tidegate.policy import WEvent
        >>> ledger = MemoryLedger(WEvent(epsilon="1", w=4), units=2)
        >>> group = ledger.charge_group(1, 3, 1)
        >>> ledger.charge_batch(1, [0, 0, 0])
        >>> group = ledger.extend_group(group, 4)
        >>> ledger.spent()
        Fraction(1, 2)
        """
        with self._charging(first):
            self._check()
            charge = Charge(first, last, units, scope)
            self._within_horizon(charge.last)
            with self._section:
                late = charge.first < self.step
                refusal = self._account.place_group(charge.first, charge.last, self.rule.cost(charge.units))
                if refusal is not None:
                    self._refuse(refusal, charge.units)
                self._record("group" if late else "span", charge)
            return Group(charge.first, charge.last, charge.units)

    def extend_group(self, group: Group, last: int, *, scope: str = "") -> Group:
        """Let a group reach on to a later step, before that step's noise is drawn; the ledger then stands there.

        The units count in the windows that the group newly meets, which are checked again. A group can be extended
        while it meets the present window, or begins to again at the next step.

        Returns
        -------
        Group
            The group as it is now.

        Raises
        ------
        BudgetExceeded
            When a window that it would newly meet would be overspent. Nothing is changed then.
        LedgerMismatch
            When there is no such group in the present window.
        """
        first, end, units = group
        with self._charging(end + 1):
            self._check()
            self._in_force(first)
            charge = Charge(end + 1, whole("last", last, least=end + 1, most=MOST_STEPS), units, scope)
            self._within_horizon(charge.last)
            with self._section:
                refusal = self._account.place_extension((first, end, self.rule.cost(units)), charge.last)
                if refusal is not None:
                    self._refuse(refusal, units)
                self._record("extend", charge, np.array([first], dtype=np.int64))
            return Group(first, charge.last, units)

    def charge_span(self, first: int, last: int, units: int, *, scope: str = "") -> None:
        """`charge_group` for a group that is charged at its first step at the latest, and stays as it is."""
        if first < self.step:
            raise LedgerMismatch(
                f"the span of steps {first} to {last} is refused: the ledger stands at "
                f"step {self.step} already; charge a span at its first step or earlier."
            )
        self.charge_group(first, last, units, scope=scope)

    def begin_batch(self, count: int, groups: int = 0) -> Batch:
        """Lend the account to a compiled loop that charges at most so many steps and groups; see `Batch`."""
        if isinstance(self._account, DividedAccount) and self._account.queries:
            raise LedgerError("the ledger is divided among queries; let the share of one of them be charged.")
        if not (type(count) is type(groups) is int and count >= 0 and groups >= 0):  # never so in a push
            count, groups = whole("count", count, least=0), whole("groups", groups, least=0)
        return Batch(self, count, groups)

    @contextmanager
    def transaction(self, *, unseen: bool = False) -> Iterator[None]:
        """Charges that belong together; an exception takes them back, unless a run has released something meanwhile.

        What a run has released inside was seen by its caller, and stays paid.

        Parameters
        ----------
        unseen
            Promises that nothing which is released inside is handed to anybody before the block was left, so that an
            exception takes everything back. For stores, which write releases and charges in one commit.
        """
        if not self._owned():
            self._depth = 0  # whatever an interruption may have left there
        with self._lock:
            self._check()
            before, rows, marked, stamp = self._account.mark(), self._rows, self.marked, self._stamp()
            outer, seen = self._depth, self._seen  # an interruption may leave other numbers there
            self._unseen = self._unseen if outer else unseen
            try:
                self._depth = outer + 1
                yield
            except BaseException:
                with self._section:  # what a handler would charge meanwhile would be taken back as well
                    if self._stays_paid(seen):
                        raise
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
            self._refuse(refusal, charge.total)

    def _owned(self) -> bool:
        """Whether this thread holds the lock, as it does inside of its transactions."""
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]

    def _stays_paid(self, seen: int) -> bool:
        """Whether a run has handed something out since."""
        return self._seen != seen and not self._unseen

    def _stamp(self) -> int:
        """What tells rows apart that came to the same place in turn: how often rows were taken back before."""
        return 0

    def _take_back(self, rows: int, stamp: int = 0) -> None:
        """Forget the rows after so many, and let everybody know whose charges may be among them."""
        taken, self._rows = self._rows > rows, rows
        for user in list(self._users) if taken else ():
            if user.charges > rows:
                user.taken_back()
        for view in list(self._views) if taken else ():
            view.heard()

    def _check(self) -> None:
        """Refuse a forked child, a closed ledger, and a charge while a compiled loop has the account."""
        if self._epoch is not process.epoch:
            raise LedgerBusy(
                "this ledger belongs to the parent of this process, which may spend the same budget; "
                "open a ledger of its own in the child."
            )
        if self._closed:
            raise LedgerError(f"the ledger is {self._closed}; open it again.")
        if self._section.frame is not None and self._section.busy:
            raise LedgerBusy(
                "a charge is under way on this ledger, in the thread that this signal handler or finaliser has "
                "interrupted; let it only set a flag, and push when the interrupted call has returned."
            )
        if self._batch is not None:
            raise LedgerBusy(
                "a batch is under way on this ledger; record or leave it before the next charge."
            )

    def give_back(self) -> None:
        """End a batch that this thread began and could not leave: an interruption may come on its way out."""
        batch = self._batch
        if batch is not None and batch.thread == threading.get_ident():
            batch.leave()

    def _within_horizon(self, last: int) -> None:
        horizon = self.policy.horizon
        if horizon is not None and last > horizon:
            raise LedgerError(
                f"step {last} is refused: the policy ends at step {horizon}; "
                "start a stream with a longer horizon."
            )

    def _refuse(self, refusal: Overspent, requested: int | None = None) -> None:
        """Raise what an overspent window deserves; `requested` are the units asked for, if those cost others."""
        window = self.policy.window
        first = 1 if window is None else max(1, refusal.window_end - window + 1)
        raise BudgetExceeded(
            spent=refusal.spent * self.unit,
            requested=(refusal.requested if requested is None else requested) * self.unit,
            remaining=self.rule.largest(refusal.remaining) * self.unit,
            window=(first, refusal.window_end),
            step=refusal.step,
        )
