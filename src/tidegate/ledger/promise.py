"""What a ledger promises now: the policy that it was opened with, as far as no amendment has changed it.

Whoever tells people what a window may lose asks here; `Ledger.policy` is what the stream was begun with.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tidegate.exact import show
from tidegate.ledger.divided import DividedAccount
from tidegate.ledger.durable import DurableLedger
from tidegate.ledger.ledger import Ledger
from tidegate.ledger.rows import decode_text
from tidegate.ledger.secrets_rule import SecretsAccount
from tidegate.policy import Specification
from tidegate.policy.budget import Budget, ZeroConcentrated
from tidegate.policy.swellfish import specification_from

Promises = list[tuple[int, Budget]]  # what is in force from the step after each of these


def promised(ledger: Ledger) -> Budget:
    """The budget of windows that lie in the future.

    Under Swellfish it is the smallest of its secrets, of all specifications that are still in force.

    Examples
    --------
    >>> import tidegate as tg
    >>> budget = tg.Budget(tg.WEvent(epsilon="1", w=24))
    >>> shares = budget.amend(budget="1/2", visits="1")
    >>> str(budget.policy.budget), str(promised(budget.ledger))
    ('1-differentially private', '0.5-differentially private')
    """
    account, budget = ledger._account, ledger.policy.budget
    if isinstance(account, DividedAccount):
        return budget.of(account.budget)
    if isinstance(account, SecretsAccount) and account.amendments:
        return budget.of(_smallest(account.specifications, ledger.step, budget.total))
    return budget


def limit_of(ledger: Ledger) -> Fraction:
    """What a window may be charged that lies in the future; where charges compose, by charges of one unit."""
    return promised(ledger).total if ledger.shares or ledger.rule.adds else ledger.unit * ledger.units


def promises_of(ledger: DurableLedger) -> Promises:
    """All budgets that windows were promised, from the first on; one that did not change is there once."""
    account, base = ledger._account, ledger.base()
    history = {} if base is None else base.facts.get("history", {})
    if isinstance(account, SecretsAccount):
        return _of_secrets(account, ledger.step)
    known = [(int(since), Fraction(budget)) for since, budget in history.get("budgets", ())]
    known = known or [(0, ledger.policy.budget.total)]
    with ledger.told():
        rows = ledger.connection.execute(
            "SELECT detail FROM charges WHERE kind = 'amend' ORDER BY row"
        ).fetchall()
    changes = [decode_text(bytes(detail)) for (detail,) in rows]
    known += [(int(each["now"]), Fraction(each["budget"])) for each in changes if "budget" in each]
    found: list[tuple[int, Fraction]] = []
    for since, budget in known:
        found = [each for each in found if each[0] < since]  # what no step was released under is no promise
        if not found or found[-1][1] != budget:
            found.append((since, budget))
    return [(since, ledger.policy.budget.of(budget)) for since, budget in found]


def described_budget(budget: Budget) -> dict[str, Any]:
    """The part of a policy that a budget is, as `Policy.describe` says it."""
    if isinstance(budget, ZeroConcentrated):
        return {"rho": show(budget.rho)}
    return {"epsilon": show(budget.epsilon)}


def _smallest(specifications: Iterable[Specification], now: int, begun: Fraction) -> Fraction:
    """The smallest ε of the secrets that are hidden at the step after `now`; what was begun with where there are none."""
    present = [each for each in specifications if each.begins <= now + 1 <= each.ends]
    return min((Fraction(secret.epsilon) for each in present for secret in each.secrets), default=begun)


def _of_secrets(account: SecretsAccount, now: int) -> Promises:
    """The smallest ε of all secrets, from each step on at which it has changed."""
    known = list(account.policy.specifications)
    for change in account.amendments:
        if "add" in change:
            known.append(specification_from(change["add"]))
            continue
        present = [each.label == change["withdraw"] and each.ends > change["now"] for each in known]
        leaving = present.index(True)
        known[leaving] = replace(known[leaving], ends=int(change["ends"]))
    moments = {0, *(each.begins - 1 for each in known), *(each.ends for each in known)}
    budget = account.policy.budget
    found: Promises = []
    for moment in sorted(each for each in moments if 0 <= each <= now):
        promise = budget.of(_smallest(known, moment, budget.total)) if account.amendments else budget
        if not found or found[-1][1] != promise:
            found.append((moment, promise))
    return found
