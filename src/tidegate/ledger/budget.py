"""One budget for several statistics about the same people."""

from __future__ import annotations

from fractions import Fraction
from os import PathLike

from tidegate.errors import LedgerMismatch
from tidegate.exact import ExactLike, exact, show
from tidegate.ledger import open_ledger
from tidegate.ledger.divided import DividedAccount
from tidegate.ledger.ledger import Ledger
from tidegate.ledger.rules import LedgerPolicy
from tidegate.ledger.shares import Share


class Budget:
    """The budget of a policy, kept by one ledger and divided among queries.

    Parameters
    ----------
    policy
        What is protected, and what every window of it may spend in all. Its `max_change` is of no account here: each
        query's mechanism is given its own.
    ledger
        A ledger, the path of a file or the URL of one in PostgreSQL; in memory by default.

    Examples
    --------
    Counts and sums of the same people under one ε, in one account:

    >>> import dataclasses, tidegate as tg
    >>> from tidegate.mechanisms import Uniform
    >>> budget = tg.Budget(tg.WEvent(epsilon="1", w=24))
    >>> shares = budget.split(visits="1/4", spend="3/4")
    >>> visits = Uniform(shares["visits"].policy).start(shares["visits"])
    >>> spend = Uniform(dataclasses.replace(shares["spend"].policy, max_change=50)).start(shares["spend"])
    >>> for step in range(48):
    ...     with budget.ledger.transaction():  # one commit
    ...         releases = visits.push(3), spend.push(120)
    >>> print(budget.ledger.verify())
    ledger verified: 48 steps, no window of 24 steps spent more than 1 (spend 0.75 of 0.75; visits 0.25 of 0.25)
    """

    def __init__(self, policy: LedgerPolicy, *, ledger: Ledger | str | PathLike[str] | None = None) -> None:
        self.policy = policy
        self.ledger = ledger if isinstance(ledger, Ledger) else open_ledger(ledger, policy, 1)
        if self.ledger.policy != policy:
            raise LedgerMismatch("the ledger keeps the account of another policy; open it with that one.")

    def split(self, **shares: ExactLike) -> dict[str, Share]:
        """Give every query its share of each window's budget, exactly; returns a ledger for each.

        On a ledger that is divided already they must be the same; `amend` changes them.
        """
        wanted = {name: exact("shares", share) for name, share in shares.items()}
        known = self.ledger.shares
        if known and known != wanted:
            given = ", ".join(f"{name}={show(share)}" for name, share in known.items())
            raise LedgerMismatch(f"the ledger is divided already, as {given}; say the same, or use amend.")
        return self.ledger.divide(wanted)

    def amend(self, *, budget: ExactLike | None = None, **shares: ExactLike) -> dict[str, Share]:
        """Change the shares, the queries or the budget of a window from the next step on; see `Ledger.divide`."""
        return self.ledger.divide(shares, budget=budget)

    @property
    def amount(self) -> Fraction:
        """What a window may spend from now on."""
        account = self.ledger._account
        return account.budget if isinstance(account, DividedAccount) else self.policy.budget.total
