"""An account that is divided among queries: each has a share of every window's budget and an account of its own.

No query is ever judged by what another one charges: its account alone decides, with its share as the limit. Shares
add up to at most 1, so every window of the whole keeps the budget. Which queries there are, their shares and the
budget may change while a stream runs; what was charged before stays in the windows that straddle the change, and those
hold the smaller of the two budgets. docs/proofs/ledger.md proves it, docs/ledger.md says how it is written down.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tidegate.errors import InvalidParameter, LedgerError, LedgerMismatch, SnapshotError
from tidegate.exact import show
from tidegate.ledger import kernels as k
from tidegate.ledger.account import Account, Mark
from tidegate.ledger.events import MOST_UNITS, Overspent, Verdict, several
from tidegate.ledger.kernels import Integers
from tidegate.policy.budget import Approximate, Budget, Pure, ZeroConcentrated

if TYPE_CHECKING:
    from tidegate.ledger.rules import Rule

ROWS = k.CARRIED + 1  # in a query's account: how many rows it has in the ledger
NOBODY = "-"  # who has the δ when no query has
FINEST = 2**40  # units of a query that takes charges over; what is finer is rounded up
Amounts = Sequence[tuple[int, int, Fraction]]  # first and last step of a charge, and what it cost


@dataclass(frozen=True)
class QueryAccount:
    """One query's part of an account.

    Parameters
    ----------
    name
        What its charges carry as their scope.
    share
        Its part of the budget.
    amount
        What its windows may spend: its share of the budget.
    straddling
        The same for windows that begin before it was in force: its share of the smaller budget.
    units
        Into how many units the amount is divided.
    since
        The last step before it was in force.
    account
        Its charges, in its own units.
    """

    name: str
    share: Fraction
    amount: Fraction
    straddling: Fraction
    units: int
    since: int
    account: Account

    @cached_property
    def unit(self) -> Fraction:
        """What one unit of this query costs."""
        return self.amount / self.units

    def amounts(self) -> Amounts:
        """What is kept of its charges; all of them as one where everything adds up."""
        if not self.account[k.WINDOW]:
            total, step = self.account[k.TOTAL], max(self.account[k.LAST], 1)
            return [(step, step, total * self.unit)] if total else []
        rows, groups = self.account.rows(), self.account.groups()
        found = [(step, step, units * self.unit) for step, units in rows.tolist() if units]
        return found + [(first, last, units * self.unit) for first, last, units in groups.tolist()]

    def facts(self) -> dict[str, Any]:
        """All but its charges, ready for JSON."""
        return {
            "name": self.name,
            "share": str(self.share),
            "amount": str(self.amount),
            "straddling": str(self.straddling),
            "units": self.units,
            "since": self.since,
        }


class _DividedMark(Mark):
    """A moment of a divided account: its own numbers, and those of its queries."""

    promises: tuple[tuple[int, Fraction], ...] | None = None
    budgets: tuple[tuple[int, Fraction], ...] | None = None
    fullest: Fraction = Fraction(0)
    orphans: Amounts = ()
    queries: Mapping[str, tuple[QueryAccount, Mark]] = {}
    delta: tuple[DividedAccount, Mark] | None = None


class DividedAccount(Account):
    """An account whose budget may be divided among queries, again and again.

    Before it is divided it is a plain account; afterwards it takes no charges of its own.
    """

    def __init__(self, rule: Rule, single: int = 2**62) -> None:
        super().__init__(rule.policy.window, rule.units, rule.policy.horizon, single=single)
        self.queries: dict[str, QueryAccount] = {}
        # the budget of a window, from the step after which it is in force
        self.promises: tuple[tuple[int, Fraction], ...] = ((0, rule.policy.budget.total),)
        self._first_promises = self.promises
        # for people, and no part of snapshots: the same of all steps, and the fullest window before the last change
        self.budgets: tuple[tuple[int, Fraction], ...] = self.promises
        self.fullest = Fraction(0)
        self.orphans: Amounts = ()  # charges that no query has taken over
        self._whole = (rule.units, rule.unit, rule.adds)
        self._rule = rule
        self.delta: DividedAccount | None = None  # what is charged of δ, in the same windows

    # what it tells of itself

    @property
    def last(self) -> int:
        """The last step that any query was charged, also one that has ended since."""
        if not self.queries:
            return super().last
        of_delta = 0 if self.delta is None else self.delta.last
        divided = self.promises[-1][0]  # never goes back when the query that was furthest ends
        return max(
            [self[k.LAST], of_delta, divided, *(query.account.last for query in self.queries.values())]
        )

    @property
    def budget(self) -> Fraction:
        """What a window may spend that lies in the future."""
        return self.promises[-1][1]

    @property
    def fullest_now(self) -> Fraction:
        """What the fullest windows of all queries add up to, since the account was divided as it is."""
        queries = (self.queries or self._undivided()).values()
        return sum((query.account[k.WORST] * query.unit for query in queries), Fraction(0))

    @property
    def budgets_in_words(self) -> str:
        """What a window may spend, in words: at which steps, where that has changed."""
        found = [self.budgets[0]]
        for since, budget in self.budgets[1:]:
            if budget != found[-1][1]:
                found.append((since, budget))
        if len(found) == 1:
            return show(found[0][1])
        ends = [since for since, _ in found[1:]]
        words = [
            f"{show(budget)} in steps {since + 1} to {end}"
            if end > since
            else f"{show(budget)} for no step, declared after step {since}"
            for (since, budget), end in zip(found, ends, strict=False)
        ]
        return f"{', '.join(words)} or {show(found[-1][1])} from step {ends[-1] + 1} on"

    @property
    def steps(self) -> int:
        """How many steps the query with the most of them was charged, and those before it was divided."""
        return self[k.STEPS] + max((query.account.steps for query in self.queries.values()), default=0)

    @property
    def delta_shares(self) -> dict[str, Fraction]:
        """The queries that have a part of δ, and their parts."""
        queries = {} if self.delta is None else self.delta.queries
        return {name: query.share for name, query in queries.items() if name != NOBODY}

    def query_of(self, scope: str) -> QueryAccount | None:
        """The query that a row with this scope belongs to."""
        return self.queries.get(scope.partition(":")[0])

    def consistent(self) -> bool:
        """Whether every account is."""
        if not self.queries:
            return super().consistent()
        if self.delta is not None and not self.delta.consistent():
            return False
        return all(query.account.consistent() for query in self.queries.values())

    # dividing

    def divide(
        self,
        shares: Mapping[str, Fraction],
        budget: Fraction,
        now: int,
        deltas: Mapping[str, Fraction] | None = None,
        units: Mapping[str, int] | None = None,
        delta_units: Mapping[str, int] | None = None,
    ) -> None:
        """From the step after `now` on have these queries, with their shares of this budget.

        A query that goes on with no smaller a part keeps its own charges, if all others then fit beside it. All other
        charges of the windows that straddle the change are handed to the other queries, in proportion to their
        shares and rounded up; each of them is granted anything only when its part of them has left enough.
        `deltas` are shares of δ in the same way; without them queries that go on keep theirs. `units` are those of the
        queries after it, where a row says so, and empty where they are to be found; without them all charges that are
        known count, however old, as in rows of version 0.2.
        """
        self._check_division(shares, budget, now)
        self._divide(shares, budget, now, units)
        present = {} if self.delta is None else self.delta.queries
        if deltas is None:
            deltas = {name: query.share for name, query in present.items() if name in shares}
        if not set(deltas) <= set(shares):
            raise InvalidParameter("deltas", sorted(deltas), "of queries that have a share", "give them one")
        if deltas or present:
            deltas = deltas or {NOBODY: Fraction(1)}
            self.delta = self.delta or self._new_delta()
            if deltas != {name: query.share for name, query in present.items()}:
                self.delta._check_parts(deltas)
                self.delta._divide(deltas, self.delta.budget, now, delta_units)

    def _new_delta(self) -> DividedAccount:
        """An account of δ, with the windows of this one; δ adds as ε does."""
        policy = self._rule.policy
        if not isinstance(policy.budget, Approximate):
            raise LedgerMismatch("the policy of this ledger has no δ to share; open one with delta.")
        part = Part(Pure(policy.budget.delta), policy.window, policy.horizon)
        return DividedAccount(replace(self._rule, policy=part, units=1, schedule="adaptive"))

    @property
    def units_of_queries(self) -> dict[str, int]:
        """Into how many units each query's amount is divided."""
        return {name: query.units for name, query in self.queries.items()}

    def _divide(
        self,
        shares: Mapping[str, Fraction],
        budget: Fraction,
        now: int,
        units: Mapping[str, int] | None = None,
    ) -> None:
        self.fullest = max(self.fullest, self.fullest_now)
        # also one that no step was charged under: it was public
        public = self.budgets if now else ()
        self.budgets = public if public and public[-1][1] == budget else (*public, (now, budget))
        shares = dict(sorted(shares.items()))  # one order, however they were said
        promises = (*self._in_force(now), (now, budget))
        smaller = min(promise for _, promise in promises)
        before = self.queries or self._undivided()
        kept = {
            name
            for name, query in before.items()
            if name in shares
            and shares[name] * smaller >= max(query.amount, _sum(self._reaching(query.amounts(), now)))
        }
        left = self._left(before, kept)
        if _sum(self._reaching(left, now)) > smaller * (1 - sum(shares[name] for name in kept)):
            kept, left = set(), self._left(before, set())
        heirs = sum(share for name, share in shares.items() if name not in kept)
        charged = max((query.account.steps for query in self.queries.values()), default=0)
        after = {}
        for name, share in shares.items():
            portion = Fraction(1) if name in kept else share / heirs
            charges = before[name].amounts() if name in kept else left
            if name in kept and share * budget == before[name].amount:
                after[name] = replace(before[name], share=share)
                continue
            if units is not None:
                charges = self._recent(charges, now)
            charges = [(first, last, portion * amount) for first, last, amount in charges]
            known = None if units is None else units.get(name)
            after[name] = self._query(name, share, budget, smaller, now, charges, known)
            after[name].account.state[k.STEPS] = charged  # the steps of all are counted on
            if name in before:
                after[name].account.state[ROWS] = before[name].account[ROWS]
        self.queries, self.promises = after, promises
        self.orphans = () if heirs else self._reaching(left, now)

    def _check_parts(self, shares: Mapping[str, Fraction]) -> None:
        if not shares or any(share <= 0 for share in shares.values()) or sum(shares.values()) > 1:
            given = ", ".join(f"{name} = {show(share)}" for name, share in shares.items())
            raise InvalidParameter(
                "shares", given or "none", "positive and at most 1 together", "give each query its part"
            )

    def _check_division(self, shares: Mapping[str, Fraction], budget: Fraction, now: int) -> None:
        self._check_parts(shares)
        if not all(name and name.replace("_", "").replace("-", "").isalnum() for name in shares):
            raise InvalidParameter(
                "shares",
                sorted(shares),
                "named by letters, digits, - and _",
                'write for example visits="1/2"',
            )
        if now != self.last:
            raise LedgerMismatch(
                f"shares change at the present step: the ledger stands at {self.last}, not {now}; say that step."
            )
        if not self.queries and not self._whole[2] and self[k.STEPS]:
            raise LedgerMismatch(
                "a ledger whose (ε, δ) charges compose cannot be divided once it is used; begin a new one."
            )

    def _undivided(self) -> dict[str, QueryAccount]:
        """What was charged to the whole before it was divided, as a query of its own."""
        units, unit, _ = self._whole
        return {"": QueryAccount("", Fraction(1), units * unit, units * unit, units, 0, self)}

    def _in_force(self, now: int) -> tuple[tuple[int, Fraction], ...]:
        """The promises at any step of the windows that reach beyond `now`."""
        window = self[k.WINDOW]
        ends = [since for since, _ in self.promises[1:]] + [now]
        pairs = zip(self.promises, ends, strict=True)
        return tuple(
            promise for promise, end in pairs if not window or (end > now + 1 - window and end > promise[0])
        )

    def _left(self, before: Mapping[str, QueryAccount], kept: set[str]) -> Amounts:
        """The charges that nobody keeps, as far back as they are known."""
        found = [*self.orphans]
        found += [charge for name, query in before.items() if name not in kept for charge in query.amounts()]
        return found

    def _reaching(self, charges: Amounts, now: int) -> Amounts:
        """Those in the first window that reaches beyond `now`; the later ones contain nothing else."""
        window = self[k.WINDOW]
        return [charge for charge in charges if not window or charge[1] > now + 1 - window]

    def _recent(self, charges: Amounts, now: int) -> Amounts:
        """Those of the last window, one a step: which older ones an account still knows is chance."""
        window, steps, groups = self[k.WINDOW], dict[int, Fraction](), []
        for first, last, amount in charges:
            if window and last <= now - window:
                continue
            if first == last:
                steps[first] = steps.get(first, Fraction(0)) + amount
            else:
                groups.append((first, last, amount))
        return [(step, step, amount) for step, amount in sorted(steps.items())] + sorted(groups)

    def _query(
        self,
        name: str,
        share: Fraction,
        budget: Fraction,
        smaller: Fraction,
        now: int,
        charges: Amounts,
        known: int | None,
    ) -> QueryAccount:
        """A query that begins with charges that were made before it."""
        amount = share * budget
        parts = [each / amount for _, _, each in charges] + [smaller / budget]
        units = known or min(math.lcm(*(part.denominator for part in parts)), FINEST)
        if not 0 < units <= FINEST:
            raise LedgerMismatch(f"the {units} units of the query {name!r} are not between 1 and {FINEST}.")
        account = Account(self[k.WINDOW] or None, 0, self[k.HORIZON] or None)
        query = QueryAccount(name, share, amount, share * smaller, units, now, account)
        _set_limits(query)
        _take_over(
            account, [(first, last, math.ceil(each / query.unit)) for first, last, each in charges], now
        )
        return query

    def refine(self, name: str, units: int) -> None:
        """Divide a query's amount into more units, a multiple of those it has."""
        query = self.queries[name]
        factor, rest = divmod(units, query.units)
        if rest or not 0 < units <= MOST_UNITS:
            raise LedgerMismatch(
                f"the {units} units of the query {name!r} are not a multiple of the {query.units} that it has, or "
                f"more than {MOST_UNITS}; choose other parameters for its mechanism."
            )
        account = query.account
        account.entries = account.entries.copy()  # marks keep the old one
        account.entries[:, 1] *= factor
        account.state = account.state.copy()
        account.state[[k.TOTAL, k.WORST, k.CARRIED]] *= factor
        account.state[k.GROUPS + 2 :: 3] *= factor
        self.queries[name] = replace(query, units=units)
        _set_limits(self.queries[name])

    # charges go to queries

    def place(self, step: int, units: int) -> Overspent | None:
        """Charge one step, while the account is whole."""
        self._whole_yet()
        return super().place(step, units)

    def place_batch(self, first: int, units: Integers) -> Overspent | None:
        """Charge consecutive steps, while the account is whole."""
        self._whole_yet()
        return super().place_batch(first, units)

    def place_group(self, first: int, last: int, units: int) -> Overspent | None:
        """Charge a group, while the account is whole."""
        self._whole_yet()
        return super().place_group(first, last, units)

    def place_extension(
        self, group: tuple[int, int, int], last: int, *, moves: bool = True
    ) -> Overspent | None:
        """Extend a group, while the account is whole."""
        self._whole_yet()
        return super().place_extension(group, last, moves=moves)

    def _whole_yet(self) -> None:
        if self.queries:
            names = ", ".join(self.queries)
            raise LedgerError(
                f"the ledger is divided among queries; charge the share of one of them: {names}."
            )

    # room, undo, snapshots

    def mark(self) -> Mark:
        """Remember this moment."""
        if not self.queries:
            return super().mark()
        moment = _DividedMark(*super().mark())
        moment.promises, moment.orphans = self.promises, self.orphans
        moment.budgets, moment.fullest = self.budgets, self.fullest
        moment.queries = {name: (query, query.account.mark()) for name, query in self.queries.items()}
        moment.delta = None if self.delta is None else (self.delta, self.delta.mark())
        return moment

    def undo(self, mark: Mark) -> None:
        """Return to a remembered moment."""
        super().undo(mark)
        queries: Mapping[str, tuple[QueryAccount, Mark]] = getattr(mark, "queries", {})
        if self.queries or queries:
            self.promises = getattr(mark, "promises", None) or self._first_promises
            self.orphans = getattr(mark, "orphans", ())
            self.budgets = getattr(mark, "budgets", None) or self._first_promises
            self.fullest = getattr(mark, "fullest", Fraction(0))
            self.queries = {name: query for name, (query, _) in queries.items()}
            for query, moment in queries.values():
                query.account.undo(moment)
            of_delta: tuple[DividedAccount, Mark] | None = getattr(mark, "delta", None)
            self.delta = None if of_delta is None else of_delta[0]
            if of_delta is not None:
                of_delta[0].undo(of_delta[1])

    def history(self) -> dict[str, Any]:
        """What verdicts tell of windows before the present division."""
        if not self.queries:
            return {}
        budgets = [[since, str(budget)] for since, budget in self.budgets]
        return {"budgets": budgets, "fullest": str(self.fullest)}

    def recall(self, history: Mapping[str, Any]) -> None:
        """Know it again."""
        if "budgets" in history:
            self.budgets = tuple((int(since), Fraction(budget)) for since, budget in history["budgets"])
            self.fullest = Fraction(history["fullest"])

    def snapshot(self) -> dict[str, Any]:
        """The account as plain arrays; its queries as text in one of them."""
        found = super().snapshot()
        if self.queries:
            text = json.dumps(self._facts(), sort_keys=True, separators=(",", ":")).encode()
            found["queries"] = np.frombuffer(text, dtype=np.uint8)
        return found

    def _facts(self) -> dict[str, Any]:
        return {
            **({} if self.delta is None else {"delta": self.delta._facts()}),
            "promises": [[since, str(promise)] for since, promise in self.promises],
            "orphans": [[first, last, str(amount)] for first, last, amount in self.orphans],
            "queries": [
                {
                    **query.facts(),
                    "account": {name: part.tolist() for name, part in query.account.snapshot().items()},
                }
                for query in self.queries.values()
            ],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what a snapshot was."""
        if "queries" not in snapshot:
            super().restore(snapshot)
            return
        before = self.mark()
        try:
            super().restore(snapshot)
            self._restore(json.loads(bytes(np.asarray(snapshot["queries"], dtype=np.uint8))))
        except (ValueError, KeyError, TypeError, IndexError, LedgerError, InvalidParameter) as error:
            self.undo(before)
            if isinstance(error, SnapshotError):
                raise
            raise SnapshotError("the ledger snapshot is damaged; take an earlier one.") from None

    def _restore(self, facts: Mapping[str, Any]) -> None:
        queries = {}
        for each in facts["queries"]:
            amounts = {name: Fraction(each[name]) for name in ("share", "amount", "straddling")}
            account = Account(self[k.WINDOW] or None, 0, self[k.HORIZON] or None)
            query = QueryAccount(
                each["name"], **amounts, units=int(each["units"]), since=int(each["since"]), account=account
            )
            _set_limits(query)
            account.restore(each["account"])
            queries[query.name] = query
        self.promises = tuple((int(since), Fraction(promise)) for since, promise in facts["promises"])
        self.budgets = self.promises
        self.orphans = [(int(first), int(last), Fraction(amount)) for first, last, amount in facts["orphans"]]
        self.queries = queries
        if "delta" in facts:
            self.delta = self._new_delta()
            self.delta._restore(facts["delta"])


@dataclass(frozen=True)
class Part:
    """A query's part of a policy, as far as its account needs it."""

    budget: Budget
    window: int | None
    horizon: int | None

    def describe(self) -> dict[str, Any]:
        """Nothing that a file would have to know."""
        return {}


def rule_of(query: QueryAccount, whole: Rule) -> Rule:
    """How the charges of a query compose: they add."""
    kind = ZeroConcentrated if isinstance(whole.policy.budget, ZeroConcentrated) else Pure
    part = Part(kind(query.amount), whole.policy.window, whole.policy.horizon)
    return replace(whole, policy=part, units=query.units, schedule="adaptive")


@dataclass(frozen=True)
class SharesVerdict(Verdict):
    """A verdict that speaks of every query's share, and of the budgets that were in force one after the other."""

    queries: tuple[str, ...] = ()
    amended: bool = False  # whether the budget has changed

    def __str__(self) -> str:
        if not self.ok:
            return super().__str__()
        counted = several(self.steps)
        windows = "all steps together" if self.window is None else f"no window of {several(self.window)}"
        spent = f"spent {'no more' if self.window is None else 'more'} than {self.budget}"
        straddling = (
            "; one that straddles a change spent no more than the smallest of its budgets, or nothing after it"
            if self.amended
            else ""
        )
        queries = "; ".join(self.queries)
        return f"ledger verified: {counted}, {windows} {spent}{straddling} ({queries}){self.remarks}"


def told(verdict: Verdict, account: Account) -> Verdict:
    """The verdict on an account with all its shares; `spent` is what the fullest windows of all queries add up to."""
    if not isinstance(account, DividedAccount) or not account.queries:
        return verdict
    lines = [_in_words(query) for query in account.queries.values()]
    lines += [
        f"δ of {query.name} {float(query.account[k.WORST] * query.unit):.3g} of {float(query.amount):.3g}"
        for query in (account.delta.queries.values() if account.delta is not None else ())
        if query.name != NOBODY
    ]
    fields = {name: getattr(verdict, name) for name in verdict.__dataclass_fields__}
    fields |= {
        "spent": max(account.fullest_now, account.fullest),
        "budget": account.budgets_in_words,
        "queries": tuple(lines),
        "amended": len({budget for _, budget in account.budgets}) > 1,
    }
    fields["place"] = (
        1 if verdict.window is None else max(1, account.last - verdict.window + 1),
        account.last,
    )
    return SharesVerdict(**fields)


def _in_words(query: QueryAccount) -> str:
    """What the fullest window of a query has spent of what it may spend."""
    spent = query.account[k.WORST] * query.unit
    if spent <= query.amount:
        return f"{query.name} {show(spent)} of {show(query.amount)}"
    return f"{query.name} at most {show(query.amount)}, after {show(spent)} that it took over from before"


def _sum(charges: Amounts) -> Fraction:
    return sum((amount for _, _, amount in charges), Fraction(0))


def _set_limits(query: QueryAccount) -> None:
    """What the windows of a query may spend: its straddling amount until they are all its own, then the whole."""
    state, window = query.account.state, query.account[k.WINDOW]
    state[k.LIMIT] = query.straddling // query.unit
    if query.straddling < query.amount and window:
        state[k.RAISED_FROM], state[k.RAISED] = query.since + window, query.units


def _take_over(account: Account, charges: list[tuple[int, int, int]], now: int) -> None:
    """Let an account begin with charges that others have made, whether or not they fit."""
    account.state[k.LAST] = now
    if not account[k.WINDOW]:
        total = sum(units for _, _, units in charges)
    else:
        steps: dict[int, int] = {}
        for first, last, units in charges:
            if first == last:
                steps[first] = steps.get(first, 0) + units
        account.replace_rows(np.array(sorted(steps.items()), dtype=np.int64).reshape(-1, 2))
        for first, last, units in charges:
            if first < last:
                account.keep_group(first, last, units)
        total = int(account.window_totals(account.rows(), np.array([now]))[0])
    account.state[[k.TOTAL, k.WORST, k.CARRIED]] = total
    account.state[k.WORST_END] = now
