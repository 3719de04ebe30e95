"""One query's share of a ledger: a mechanism runs on it as on a ledger of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tidegate import process
from tidegate.errors import BudgetExceeded, LedgerError, LedgerMismatch
from tidegate.exact import ExactLike, positive, show
from tidegate.ledger.account import Account
from tidegate.ledger.divided import ROWS, DividedAccount, QueryAccount, rule_of
from tidegate.ledger.events import MOST_STEPS, MOST_UNITS, Charge, Verdict
from tidegate.ledger.kernels import Integers, account_place
from tidegate.ledger.ledger import Holder, Ledger
from tidegate.ledger.memory import MemoryLedger
from tidegate.ledger.rows import encode_text
from tidegate.ledger.rules import protection
from tidegate.policy import Event, Policy, WEvent
from tidegate.policy import User as UserPolicy

if TYPE_CHECKING:
    from tidegate.ledger.rules import LedgerPolicy


class Share(Ledger):
    """The part of a ledger that one query may spend; made by `Ledger.divide`.

    A mechanism is started on it with `policy`, or with that policy and another `max_change`. It counts its own steps
    and rows, is refused by its own charges only, and takes finer units as a mechanism needs them. Its rows stand in
    the whole ledger under its name; what a transaction of the whole, or of any share, takes back is taken back in all.

    Attributes
    ----------
    whole
        The ledger that it is a part of.
    name
        The query's name.
    """

    def __init__(self, whole: Ledger, name: str) -> None:
        self.whole, self.name = whole, name
        self._bound = _query(whole, name).account
        super().__init__(rule_of(_query(whole, name), whole.rule).policy, 1)
        self.durable = whole.durable
        self._lock, self._section = whole._lock, whole._section
        self._epoch = whole._epoch
        self._own_digest: tuple[int, str] = (-1, "")
        self._in_memory = isinstance(whole, MemoryLedger)
        self._since = self.query.since
        self._adopt()

    def _adopt(self) -> None:
        """Take over the units that the whole has for this query now."""
        query = self.query
        self.rule = rule_of(query, self.whole.rule)
        self.policy = policy_of(self.whole.policy, query.amount)
        self.units, self.unit = query.units, query.unit

    @property
    def query(self) -> QueryAccount:
        """What the whole has of this query."""
        return _query(self.whole, self.name)

    @property
    def current(self) -> bool:
        """Whether the query is still there, with the units that this ledger counts in."""
        account = self.whole._account
        query = account.queries.get(self.name) if isinstance(account, DividedAccount) else None
        return query is not None and query.account is self._bound and query.units == self.units

    @property
    def _account(self) -> Account:
        return self._bound

    @_account.setter
    def _account(self, account: Account) -> None:
        """The whole has it."""

    @property
    def marked(self) -> bool:
        """Whether test entropy was used."""
        return self.whole.marked

    @marked.setter
    def marked(self, marked: bool) -> None:
        """The whole knows."""

    # what runs ask

    @property
    def rows(self) -> int:
        """How many rows this query has."""
        return self._account[ROWS]

    @property
    def position(self) -> str:
        """What names this moment: of the whole in memory; in a database the hash of this query's last row."""
        if not self.whole.durable:
            return self.whole.position
        rows = self.rows
        if self._own_digest[0] != rows:
            found = self.whole.last_row(self.name) if rows else None
            self._own_digest = (rows, "" if found is None else found[1].hex())
        return f"{rows}.{self._own_digest[1]}"

    @property
    def known_as(self) -> str:
        """The name of the whole, and of the query."""
        return f"{self.whole.known_as}/{self.name}"

    def hold(self, name: str, user: Holder) -> bool:
        """Let a user be the one that goes on with a secret state; the whole knows who."""
        return self.whole.hold(name, user)

    @property
    def place(self) -> str:
        """Where the whole is kept."""
        return self.whole.place

    @property
    def in_transaction(self) -> bool:
        """Whether somebody has begun a transaction on the whole."""
        return self.whole.in_transaction

    @property
    def rehearses(self) -> bool:
        """Whether nothing is handed out before the present transaction of the whole has ended."""
        return self.whole.rehearses

    def handed_out(self) -> None:
        """Let the whole hear that what was charged is handed out."""
        self.whole.handed_out()

    def heard(self) -> None:
        """Let everybody know whose rows the whole has taken back."""
        rows = self.rows if self.current else -1
        self._own_digest = (-1, "")
        for user in list(self._users):
            if user.charges > rows:
                user.taken_back()

    def fit(self, policy: LedgerPolicy, units: int, name: str) -> None:
        """Refuse a mechanism of another unit of protection; take finer units where it needs them."""
        if not isinstance(policy, Policy) or protection(policy) != protection(self.policy):
            raise LedgerMismatch(
                f"the share of {self.name!r} is {show(self.query.amount)} for its own unit of protection; start "
                f"{name} with the share's policy, with another max_change if need be."
            )
        finer = math.lcm(self.units, units)
        if finer > MOST_UNITS:
            raise LedgerMismatch(
                f"the share of {self.name!r} has {self.units} units and {name} needs a multiple of {units}, which is "
                f"beyond {MOST_UNITS}; choose parameters with fewer units."
            )
        if finer != self.units:
            if len(self._users):
                raise LedgerMismatch(
                    f"the share of {self.name!r} has {self.units} units, which a run on it counts in, and {name} needs a "
                    f"multiple of {units}; start the mechanism with more units first, or give it a query of its own."
                )
            with self._lock, self.whole.transaction():
                account = self.whole._account
                assert isinstance(account, DividedAccount)
                with self._section:
                    account.refine(self.name, finer)
                    self._adopt()
                    step = max(self.whole.step, 1)
                    facts = {"units": finer, "mechanism": name}
                    self.whole._record("query", Charge(step, step, 0, self.name), encode_text(facts))

    # charging

    def _together(self) -> AbstractContextManager[None]:
        """A charge and its row are made together: in a database by a transaction."""
        return nullcontext() if self._in_memory else self.whole.transaction()

    @contextmanager
    def _charging(self, first: int) -> Iterator[None]:
        with self._lock, self._together():
            self._in_force(first)
            yield

    def _in_force(self, first: int) -> None:
        """A group from before has left each of its heirs a part, and would reach on with one of them only."""
        if first <= self._since:
            raise LedgerError(
                f"step {first} cannot be charged to the query {self.name!r}, "
                f"which is in force from step {self._since + 1} on."
            )

    def _charged_quickly(self, step: int, units: int) -> bool:
        if not self._in_memory:
            return False
        with self._lock:
            account, whole = self._bound, self.whole
            if (
                self._epoch is process.epoch
                and not whole._closed
                and whole._batch is self._batch is None
                and self._section.frame is None
                and self.current
                and self._since < step <= MOST_STEPS
                and 0 <= units <= MOST_UNITS
                and account_place(account.entries, account.state, step, units) == 0
            ):
                whole._rows += 1
                account.state[ROWS] += 1
                return True
        return False

    def charge_delta(self, first: int, last: int, delta: ExactLike, *, scope: str = "") -> None:
        """Charge δ to the steps first to last: it counts once in every window that meets them, and adds up.

        For mechanisms that are (ε, δ)-private, such as finding unknown categories by a threshold: their ε is charged
        as usual, in one transaction with this. The amount is exact.

        Raises
        ------
        BudgetExceeded
            When a window would have more than the query's part of δ. Nothing is charged then.
        """
        amount = positive("delta", delta)
        with self._lock, self.whole.transaction():
            self._check()
            charge = Charge(first, last, 0, scope)
            self._within_horizon(charge.last)
            self._charge_delta(charge, amount)

    def _charge_delta(self, charge: Charge, amount: Fraction) -> None:
        with self._section:
            part = self._delta_part(amount)
            if charge.first <= part.since:
                raise LedgerError(
                    f"δ cannot be charged to step {charge.first}: the part of {self.name!r} is in force from step "
                    f"{part.since + 1} on."
                )
            refusal = part.account.place_group(charge.first, charge.last, math.ceil(amount / part.unit))
            if refusal is not None:
                window = self.policy.window
                raise BudgetExceeded(
                    spent=refusal.spent * part.unit,
                    requested=amount,
                    remaining=refusal.remaining * part.unit,
                    window=(
                        1 if window is None else max(1, refusal.window_end - window + 1),
                        refusal.window_end,
                    ),
                    step=refusal.step,
                )
            self._record(
                "delta", Charge(charge.first, charge.last, math.ceil(amount / part.unit), charge.scope)
            )

    def _delta_part(self, amount: Fraction) -> QueryAccount:
        """The query's part of δ, in units of which the amount is a whole number."""
        whole = self.whole._account
        assert isinstance(whole, DividedAccount)
        if whole.delta is None or self.name not in whole.delta.queries:
            raise LedgerMismatch(
                f"the query {self.name!r} has no part of δ; give it one by deltas when the ledger is divided."
            )
        part = whole.delta.queries[self.name]
        finer = (amount / part.unit).denominator * part.units
        if amount > part.amount or finer == part.units:
            return part
        if finer > MOST_UNITS:
            raise LedgerMismatch(
                f"a δ of {float(amount):.3g} would need {finer} units of the part of {self.name!r}, beyond "
                f"{MOST_UNITS}; charge amounts with a smaller common denominator."
            )
        whole.delta.refine(self.name, finer)
        step = max(self.whole.step, 1)
        self.whole._record("query", Charge(step, step, 0, self.name), encode_text({"delta_units": finer}))
        return whole.delta.queries[self.name]

    def _record(self, kind: str, charge: Charge, detail: Integers | bytes | None = None) -> None:
        scope = f"{self.name}: {charge.scope}" if charge.scope else self.name
        self.whole._record(kind, charge.labelled(scope), detail)
        account = self._account
        account.state[ROWS] += 1
        digest = getattr(self.whole, "_digest", None)
        if digest is not None:
            self._own_digest = (account[ROWS], digest.hex())

    @contextmanager
    def transaction(self, *, unseen: bool = False) -> Iterator[None]:
        """All charges inside, of any share, belong together; see `Ledger.transaction`."""
        with self.whole.transaction(unseen=unseen):
            yield

    def mark(self) -> None:
        """Record that test entropy was used."""
        self.whole.mark()

    def learnt(self, step: int, facts: Mapping[str, str]) -> None:
        """Write down what was learnt for this query; see `Ledger.learnt`."""
        with self._together():
            self.whole._record(
                "learnt", Charge(step, step, 0, f"{self.name}: learn"), encode_text(dict(facts))
            )

    def verify(self) -> Verdict:
        """Prove that no window of the whole, nor of any share, was overspent."""
        return self.whole.verify()

    def close(self) -> None:
        """Nothing: the whole is closed by whoever opened it."""

    def _check(self) -> None:
        self.whole._check()
        super()._check()
        if not self.current:
            raise LedgerMismatch(
                f"the shares of the ledger have changed since this one, of {self.name!r}, was handed out; start the "
                "mechanism again on the new one."
            )


def _query(whole: Ledger, name: str) -> QueryAccount:
    account = whole._account
    if not isinstance(account, DividedAccount) or name not in account.queries:
        raise LedgerMismatch(f"the query {name!r} has ended; its ledger cannot be charged any more.")
    return account.queries[name]


def policy_of(whole: Any, amount: Fraction) -> Policy:
    """The policy of a query: the unit of protection of the whole, with its own part of the budget."""
    if not isinstance(whole, Policy):  # as much of it as a file tells
        described = dict(whole.describe())
        kinds: dict[str, type[Policy]] = {kind.__name__: kind for kind in (Event, WEvent, UserPolicy)}
        kind = kinds[described.pop("policy")]
        whole = kind(**described)
    policy: Policy = whole
    if policy.rho is not None:
        return replace(policy, rho=amount)
    return replace(policy, epsilon=amount, delta=0)
