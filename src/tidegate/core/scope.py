"""Scopes: fixed parts of one budget, and when an amendment may begin them.

A scope is a query with an amount of the budget and the steps whose data it reads. Within a window the amounts of all
scopes that read any of its steps add up. An amendment ends scopes and begins scopes, and no charge is inherited: a
window that holds data of an ended scope counts its whole amount. So a scope begins at the first step from which every
window fits the smallest budget that was in force at any of its steps. All of it is computed from public numbers alone;
`verify` computes it again. docs/proofs/core.md has the proof.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

from tidegate.core.errors import LogDamaged, LogMismatch
from tidegate.core.mechanism import HasAccount, Mechanism, SharesBudget
from tidegate.errors import InvalidParameter
from tidegate.exact import ExactLike, positive
from tidegate.policy import Policy

BUDGET = ("epsilon", "delta", "rho")
OWN = ("max_change", "touches", "signed")  # how much a protected unit changes the numbers of one query

WINDOWED = {None, "parallel"}  # kinds of accounts whose limits are those of windows

Amount = tuple[Fraction, Fraction]  # ε or ρ, and δ
NOTHING: Amount = (Fraction(0), Fraction(0))


# shares ------------------------------------------------------------------------------------------------------------


def divided(
    queries: Mapping[str, Mechanism], shares: Mapping[str, ExactLike] | None
) -> tuple[dict[str, Mechanism], dict[str, Fraction]]:
    """(each mechanism with its share of the budget, the shares); refused where they are more than one budget."""
    if not queries:
        raise InvalidParameter("queries", "none", "at least one mechanism", "name one")
    if shares is None:
        if len(queries) > 1:
            example = ", ".join(f'"{name}": "1/{len(queries)}"' for name in queries)
            raise InvalidParameter(
                "shares",
                None,
                "given for several queries, which share one budget",
                f"write shares={{{example}}}",
            )
        shares = dict.fromkeys(queries, 1)
    if set(shares) != set(queries):
        raise InvalidParameter(
            "shares", ", ".join(shares), "one for each query", f"name {', '.join(queries) or 'the query'}"
        )
    parts = {name: positive("share", shares[name]) for name in queries}
    if sum(parts.values()) > 1:
        raise InvalidParameter(
            "shares", str(sum(parts.values())), "at most 1 in all", "give some query a smaller share"
        )
    kinds = {name: protection(mechanism.policy) for name, mechanism in queries.items()}
    first = next(iter(kinds))
    for name, kind in kinds.items():
        if kind != kinds[first]:
            raise InvalidParameter(
                "policy",
                name,
                f"the policy of {first!r}",
                "give all queries one policy, and divide it by shares",
            )
    if parts != {first: 1} and not all(_divisible(each) for each in queries.values()):
        raise InvalidParameter(
            "queries",
            len(queries),
            "one with the whole budget, where its policy has an account of its own",
            "give it a log of its own",
        )
    return {name: part_of(mechanism, parts[name]) for name, mechanism in queries.items()}, parts


def _divisible(mechanism: Mechanism) -> bool:
    """Whether its account counts units per window, so that a share of the budget is a share of every window."""
    return not isinstance(mechanism, HasAccount) or mechanism.account().describe().get("kind") in WINDOWED


def part_of(mechanism: Mechanism, share: Fraction) -> Mechanism:
    """The same mechanism with a share of its budget: its noise, and its account, are those of the share.

    Examples
    --------
    >>> import tidegate as tg
    >>> from tidegate.mechanisms.plain.uniform import Uniform
    >>> part_of(Uniform(tg.WEvent(epsilon="1", window=3)), Fraction(1, 3)).policy
    WEvent(epsilon='1/3', window=3)
    """
    if share == 1:
        return mechanism
    policy = mechanism.policy
    if policy.rho is not None:
        less: Policy = replace(policy, rho=Fraction(policy.rho) * share)
    else:
        assert policy.epsilon is not None
        less = replace(policy, epsilon=Fraction(policy.epsilon) * share, delta=Fraction(policy.delta) * share)
    if isinstance(mechanism, SharesBudget):
        part: Any = mechanism.with_policy(less)
    elif is_dataclass(mechanism) and "policy" in {each.name for each in fields(mechanism)}:
        part = replace(mechanism, policy=less)
    else:
        part = mechanism
    if part.policy != less:
        raise InvalidParameter(
            "shares",
            type(mechanism).__name__,
            "a mechanism whose budget can be divided",
            "give it a log of its own",
        )
    found: Mechanism = part
    return found


def protection(policy: Policy) -> dict[str, Any]:
    """What is the same for all queries of a log: the protected unit and the budget."""
    described = policy.describe()
    return {name: value for name, value in described.items() if name not in OWN}


# what a log has described --------------------------------------------------------------------------------------------


class Scope(NamedTuple):
    """A query with its part of the budget.

    Attributes
    ----------
    number
        Its identity in the log; never used again.
    name
        The query's.
    amount
        What it may spend in a window: its share of the budget, exactly.
    first
        The first step whose data it reads. Steps before it are silent.
    last
        The last one; None while it is alive.
    """

    number: int
    name: str
    amount: Amount
    first: int
    last: int | None = None


class Book(NamedTuple):
    """All that a log has described so far, as far as it matters from now on: public, and written with every amendment.

    Attributes
    ----------
    description
        The configuration: opening compares it.
    alive
        The scopes of the queries, in their order.
    ended
        Scopes that may still meet a window to come.
    budgets
        (from which step on, the budget): those that windows to come may meet.
    following
        The number of the next scope.
    """

    description: dict[str, Any]
    alive: tuple[Scope, ...]
    ended: tuple[Scope, ...]
    budgets: tuple[tuple[int, Amount], ...]
    following: int

    def encoded(self) -> bytes:
        """As JSON."""
        return json.dumps(
            {
                "description": self.description,
                "alive": [_written(scope) for scope in self.alive],
                "ended": [_written(scope) for scope in self.ended],
                "budgets": [[since, *map(str, budget)] for since, budget in self.budgets],
                "following": self.following,
            }
        ).encode()

    @classmethod
    def decoded(cls, text: bytes) -> Book:
        """What `encoded` has written."""
        try:
            found = json.loads(text)
            return cls(
                found["description"],
                tuple(map(_read, found["alive"])),
                tuple(map(_read, found["ended"])),
                tuple(
                    (int(since), (Fraction(total), Fraction(delta)))
                    for since, total, delta in found["budgets"]
                ),
                int(found["following"]),
            )
        except (ValueError, KeyError, TypeError, ZeroDivisionError):
            raise LogDamaged("the description of the queries cannot be read; restore a backup.") from None


def _written(scope: Scope) -> list[Any]:
    return [scope.number, scope.name, *map(str, scope.amount), scope.first, scope.last]


def _read(row: list[Any]) -> Scope:
    number, name, total, delta, first, last = row
    return Scope(int(number), str(name), (Fraction(total), Fraction(delta)), first, last)


def described(
    private: bool,
    queries: Mapping[str, Mechanism],
    shares: Mapping[str, Fraction],
    accounts: Mapping[str, Any],
    about: Mapping[str, Any],
    names: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """The configuration of a log, as JSON has it again.

    `about` is what else makes a query what it is, `names` are those of its columns, where they were given.
    """
    one = next(iter(queries))
    unit = protection(queries[one].policy)
    total = queries[one].policy.budget.total / shares[one]
    delta = Fraction(queries[one].policy.delta) / shares[one]
    kind = "epsilon" if queries[one].policy.rho is None else "rho"
    found = {
        "tidegate": 1,
        "private": private,
        "unit": {name: value for name, value in unit.items() if name not in BUDGET},
        "window": queries[one].policy.window,
        "budget": {kind: str(total), "delta": str(delta)},
        "queries": {
            name: {
                "share": str(shares[name]),
                "account": accounts[name],
                "mechanism": mechanism.describe(),
                "about": about.get(name),
                **({"names": list(names[name])} if name in names else {}),
            }
            for name, mechanism in queries.items()
        },
    }
    again: dict[str, Any] = json.loads(json.dumps(found))
    return again


def begun(description: dict[str, Any]) -> Book:
    """The book of a new log."""
    amounts, budget = _amounts(description)
    if not _fits(_sum(amounts.values()), budget):
        raise LogDamaged("the shares of the queries are more than the budget; restore a backup.")
    alive = tuple(Scope(number, name, amount, 1) for number, (name, amount) in enumerate(amounts.items()))
    return Book(description, alive, (), ((1, budget),), len(alive))


# amendments --------------------------------------------------------------------------------------------------------


class Amendment(NamedTuple):
    """What an amendment does, before it is made.

    Attributes
    ----------
    unchanged
        Queries that continue as if nothing had happened.
    begun
        Queries that begin, or begin again, with the first step that they release. Steps before it are silent.
    ended
        Queries that end.
    """

    unchanged: tuple[str, ...]
    begun: dict[str, int]
    ended: tuple[str, ...]


def compare(before: Book, after: Book) -> Amendment:
    """What lies between two books."""
    kept = {scope.number for scope in before.alive}
    unchanged = tuple(scope.name for scope in after.alive if scope.number in kept)
    begins = {scope.name: scope.first for scope in after.alive if scope.number not in kept}
    names = {scope.name for scope in after.alive}
    return Amendment(unchanged, begins, tuple(one.name for one in before.alive if one.name not in names))


def amended(
    book: Book,
    description: dict[str, Any],
    clock: int,
    steps: Mapping[str, int],
    read: Mapping[str, int],
) -> Book:
    """The book after an amendment, where each query alive has come to a step and was charged up to another one.

    The two differ where an event was charged to the step in progress. The clock is the last step of the log, which a
    query that has ended may have reached alone.

    Unchanged queries continue. If the budget was cut below what windows hold already, they end and begin again. New
    and changed ones begin as early as every window fits, one after the other in the order of the description.
    """
    old = book.description
    for part in ("tidegate", "private", "unit", "window"):
        if old.get(part) != description.get(part):
            raise LogMismatch(
                "an amendment may change queries, shares and the size of the budget, not what is protected or the "
                "entropy; begin another log."
            )
    if old["budget"].keys() != description["budget"].keys():
        raise LogMismatch("an amendment keeps the kind of the budget; begin another log.")
    kinds = {each["account"].get("kind") for side in (old, description) for each in side["queries"].values()}
    if not kinds <= WINDOWED:
        raise LogMismatch("queries with an account of their own cannot be amended; begin another log.")
    amounts, budget = _amounts(description)
    if not _fits(_sum(amounts.values()), budget):
        raise LogMismatch("the shares of the queries are more than the budget; make some of them smaller.")
    window = description["window"]
    following = {name: steps.get(name, clock) + 1 for name in amounts}
    budgets = book.budgets if budget == book.budgets[-1][1] else (*book.budgets, (clock + 1, budget))
    same = [one for one in book.alive if _running(old, one.name) == _running(description, one.name)]
    gone = [one for one in book.alive if one not in same]
    ended = [*book.ended, *(one._replace(last=read[one.name]) for one in gone)]
    room = Room(window, budgets, [one for one in ended if _read_data(one)])
    if budgets is not book.budgets and not room.holds(same, min(steps.values()) + 1):
        again = [one._replace(last=read[one.name]) for one in same]
        room.ended.extend(one for one in again if _read_data(one))
        same = []
    alive, number = {one.name: one for one in same}, book.following
    for name, amount in amounts.items():
        if name not in alive:
            scope = Scope(number, name, amount, following[name])
            alive[name] = room.place(scope, list(alive.values()))
            number += 1
    low = min(following.values())
    return Book(
        description,
        tuple(alive[name] for name in amounts),
        tuple(one for one in room.ended if window is None or (one.last or 0) > low - window),
        _in_force(budgets, window, low),
        number,
    )


class Room(NamedTuple):
    """What windows hold: ended scopes, and the budgets that were in force."""

    window: int | None
    budgets: tuple[tuple[int, Amount], ...]
    ended: list[Scope]

    def place(self, scope: Scope, others: list[Scope]) -> Scope:
        """The scope at the first step from which it fits beside the others."""
        moments = {scope.first}
        if self.window is not None:
            moments |= {(one.last or 0) + self.window for one in self.ended}
            moments |= {since - 1 + self.window for since, _ in self.budgets[1:]}
        for first in sorted(moment for moment in moments if moment >= scope.first):
            found = scope._replace(first=first)
            if self.holds([*others, found], first):
                return found
        raise LogMismatch(
            f"the query {scope.name!r} does not fit: at user level the budget of a query that has ended never returns, "
            "and a budget is not cut below what was given; make its share smaller, or begin another log."
        )

    def holds(self, alive: list[Scope], first: int) -> bool:
        """Whether every window that contains a step from `first` on fits the smallest budget in force."""
        if self.window is None:
            begins = [1]
        else:  # windows by their first step; what they hold grows only where a scope begins
            low = first - self.window + 1
            begins = [
                low,
                *(one.first - self.window + 1 for one in (*alive, *self.ended) if one.first > first),
            ]
        return all(self._holds(alive, begin) for begin in begins)

    def _holds(self, alive: list[Scope], begin: int) -> bool:
        """Whether the window that begins at a step fits."""
        if self.window is None:
            inside, allowed = [*self.ended, *alive], [budget for _, budget in self.budgets]
        else:
            end = begin + self.window - 1
            inside = [one for one in (*self.ended, *alive) if one.first <= end]
            inside = [one for one in inside if one.last is None or one.last >= begin]
            allowed = [budget for _, budget in _in_force(self.budgets, self.window, end)]
        spent = _sum(one.amount for one in inside)
        return all(_fits(spent, budget) for budget in allowed)


def _in_force(
    budgets: tuple[tuple[int, Amount], ...], window: int | None, end: int
) -> tuple[tuple[int, Amount], ...]:
    """The budgets in force at any step of the window that ends at a step, or later."""
    if window is None:
        return budgets
    passed = [index for index, (since, _) in enumerate(budgets) if since <= end - window + 1]
    return budgets[passed[-1] if passed else 0 :]


def _read_data(scope: Scope) -> bool:
    """Whether an ended scope has read anything: one that ended while it was silent has not."""
    return scope.last is not None and scope.last >= scope.first


def _running(description: dict[str, Any], name: str) -> Any:
    """All that decides how a query runs; its amount, and not its share, because the budget may change around it."""
    query = description["queries"].get(name)
    if query is None:
        return None
    own = query["account"], query["mechanism"], query.get("about"), query.get("names")
    return *own, _amounts(description)[0][name]


def _amounts(description: dict[str, Any]) -> tuple[dict[str, Amount], Amount]:
    """(what each query may spend in a window, the budget)."""
    try:
        written = description["budget"]
        budget = Fraction(written["epsilon" if "epsilon" in written else "rho"]), Fraction(written["delta"])
        shares = {name: Fraction(query["share"]) for name, query in description["queries"].items()}
        if not shares or min(shares.values()) <= 0 or budget[0] <= 0 or budget[1] < 0:
            raise ValueError
    except (ValueError, KeyError, TypeError, ZeroDivisionError):
        raise LogDamaged("the description of the queries cannot be read; restore a backup.") from None
    return {name: (share * budget[0], share * budget[1]) for name, share in shares.items()}, budget


def _sum(amounts: Iterable[Amount]) -> Amount:
    total, delta = NOTHING
    for one in amounts:
        total, delta = total + one[0], delta + one[1]
    return total, delta


def _fits(spent: Amount, budget: Amount) -> bool:
    return spent[0] <= budget[0] and spent[1] <= budget[1]
