"""Swellfish specifications that come and go while a stream runs, as rows of its ledger.

One that is added is in force from the next step on: no step that was released has been promised anything new.
One that is withdrawn stays in force until every event that may have begun by now is over.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tidegate.errors import InvalidParameter, LedgerError
from tidegate.ledger.events import Charge
from tidegate.ledger.secrets_rule import SecretsAccount, check_added, last_promise
from tidegate.policy import Specification
from tidegate.policy.secrets import FOREVER

if TYPE_CHECKING:
    from tidegate.ledger.ledger import Ledger


def specifications_of(ledger: Ledger) -> tuple[Specification, ...]:
    """The specifications that a ledger has in force."""
    return _account(ledger).specifications


def add_specification(ledger: Ledger, specification: Specification) -> Specification:
    """Put a specification in force from the next step on; returned with the step it begins at."""
    account = _account(ledger)
    with ledger.transaction():
        now = ledger.step
        added = replace(specification, begins=now + 1)
        named = {each.label: each for each in account.specifications if each.ends > now}
        check_added(added, named, now, account.policy)
        _amend(ledger, account, {"now": now, "add": added.describe()})
    return added


def withdraw_specification(ledger: Ledger, label: str) -> Specification:
    """Let a specification end as soon as no event that may have begun can still go on; returned with that step."""
    account = _account(ledger)
    with ledger.transaction():
        now = ledger.step
        named = {each.label: each for each in account.specifications if each.ends > now}
        if label not in named:
            known = ", ".join(map(repr, sorted(named)[:5]))
            raise InvalidParameter(
                "label", label, "that of a specification in force", f"choose one of {known or 'those added'}"
            )
        if (
            len([each for each in named.values() if each.ends == FOREVER]) == 1
            and named[label].ends == FOREVER
        ):
            raise InvalidParameter(
                "label", label, "not that of the last specification", "add another one before, or end the run"
            )
        ends = max(last_promise(named[label], now, account.policy), 1)
        _amend(ledger, account, {"now": now, "withdraw": label, "ends": ends})
    return replace(named[label], ends=ends)


def _account(ledger: Ledger) -> SecretsAccount:
    account = ledger._account
    if not isinstance(account, SecretsAccount):
        raise LedgerError("specifications belong to Swellfish; open a ledger with a Swellfish policy.")
    return account


def _amend(ledger: Ledger, account: SecretsAccount, change: dict[str, Any]) -> None:
    with ledger._section:
        account.amend(change)
    step = max(ledger.step, 1)
    text = json.dumps(change, sort_keys=True, ensure_ascii=False).encode()
    detail = np.frombuffer(text, dtype=np.uint8).astype(np.int64)
    ledger._record("amend", Charge(step, step, 0, "specifications"), detail)
