"""What a log says about itself, for people: its budget, its queries, what the last window has spent, its last charges."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from tidegate.core.charges import Charges, Span
from tidegate.core.commit import EVENT, HALTED, PUSHED, Row, checked
from tidegate.core.parallel_account import PARTED, charges_of_part
from tidegate.core.scope import Amount, Book, Scope
from tidegate.core.session import charges_of
from tidegate.core.verify import KINDS
from tidegate.errors import TidegateError
from tidegate.exact import show
from tidegate.pipeline.logs import LogReader
from tidegate.pipeline.stream_reader import history_of
from tidegate.pipeline.window_spending import Key, fullest_part, window_units

CHARGED = (PUSHED, HALTED, EVENT)


class Kept:
    """The charges of a scope that its last window may hold."""

    def __init__(self, scope: Scope, account: Mapping[str, Any]) -> None:
        self.scope, self.units, self.window = scope, int(account["units"]), account["window"]
        self.adds = account.get("kind") != "secrets"
        self.step = scope.first - 1
        self._spans_count = account.get("kind") not in PARTED
        self._parts = windows_of_parts(account)
        if None not in self._parts:
            self.window = max([self.window, *self._parts])
        self._charges: list[Charges] = []
        self._spans: dict[Key, Span] = {}

    def read(self, charges: Charges, *, event: bool) -> None:
        """Take the next charges."""
        if not event:
            self.step = charges.last
        self._charges.append(charges)
        if self.window is not None:
            low = self.step - self.window + 1
            self._charges = [each for each in self._charges if each.last >= low]
        if self._spans_count:
            for row in charges.spans.tolist():
                if row[4]:
                    self._spans[(row[0], row[1])] = Span(*row)

    @property
    def unit(self) -> Fraction:
        """What a unit is worth, where charges add up."""
        return self.scope.amount[0] / self.units

    @property
    def spent(self) -> int:
        """Units that its last window has spent."""
        if self.step < self.scope.first:
            return 0
        if self._parts:
            return int(fullest_part(self._charges, self._parts, np.array([self.step]))[0])
        return int(window_units(self._charges, self._spans.values(), np.array([self.step]), self.window)[0])


def windows_of_parts(account: Mapping[str, Any]) -> list[int | None]:
    """The steps of the window of each part, of accounts side by side as the log describes them; else nothing."""
    if account.get("kind") == "personal":
        return [window for _, window in account["limits"]]
    return [account["window"]] * account["parts"] if account.get("kind") == "parallel" else []


def summary(log: LogReader, last: int = 10) -> dict[str, Any]:
    """All of it, ready for JSON.

    Parameters
    ----------
    log
        Its rows are read once, from the first.
    last
        How many of the last commits with charges are listed.
    """
    books = log.books()
    if not books:
        raise TidegateError(f"the log {log.shown} has no commit yet; start the stream first.")
    book, budgets = books[-1][1], _budgets([each for _, each in books])
    kept = {
        scope.number: Kept(scope, each.description["queries"][scope.name]["account"])
        for _, each in books
        for scope in reversed(each.alive)
    }
    row, listed = None, list[dict[str, Any]]()
    for row in checked(log, log.rows()):
        if row.kind not in CHARGED:
            continue
        listed = [*listed, _listed(row, kept)][-last:] if last else []
        for number, charges in charges_of(row):
            kept[number].read(charges, event=row.kind == EVENT)
    assert row is not None
    alive = [kept[scope.number] for scope in book.alive]
    adds = all(each.adds for each in alive)
    spent = sum((each.unit * each.spent for each in alive), Fraction(0))
    return {
        "log": next(log.rows()).head.hex(),
        "budget": _budget(book, budgets[-1][1]),
        "limit": show(budgets[-1][1][0]),
        "budgets": [{"from_step": since, "budget": _budget(book, each)} for since, each in budgets],
        "window": book.description["window"],
        "unit": book.description["unit"],
        "step": row.last,
        "commits": row.number + 1,
        "head": f"{row.number}:{row.head.hex()}",
        "spent_in_last_window": show(spent) if adds else None,
        "test_entropy": not all(each.description.get("private") for _, each in books),
        "queries": {each.scope.name: _query(book, each) for each in alive},
        "history": history_of([each for _, each in books]),
        "last_charges": listed,
    }


def _query(book: Book, kept: Kept) -> dict[str, Any]:
    described = book.description["queries"][kept.scope.name]
    return {
        "share": described["share"],
        "amount": show(kept.scope.amount[0]),
        "mechanism": described["mechanism"].get("mechanism"),
        "first_step": kept.scope.first,
        "step": kept.step,
        "spent_in_last_window": show(kept.unit * kept.spent) if kept.adds else f"{kept.spent} units",
    }


def _listed(row: Row, kept: Mapping[int, Kept]) -> dict[str, Any]:
    found: dict[str, Any] = {"commit": row.number, "kind": KINDS[row.kind], "queries": {}}
    for number, charges in charges_of(row):
        each = kept[number]
        begun = charges.spans[:, 4] * (charges.spans[:, 2] >= charges.first)
        units = int(charges.units.sum() + (begun.sum() if each._spans_count else 0))
        if each._parts:
            units = max(int(charges_of_part(charges, part).units.sum()) for part in range(len(each._parts)))
        spent = show(each.unit * units) if each.adds else f"{units} units"
        found["queries"][each.scope.name] = {"steps": [charges.first, charges.last], "spent": spent}
    return found


def _budgets(books: list[Book]) -> list[tuple[int, Amount]]:
    """(from which step on, the budget) of all that were ever in force."""
    found: dict[int, Amount] = {}
    for book in books:
        found |= dict(book.budgets)
    return sorted(found.items())


def _budget(book: Book, amount: Amount) -> str:
    kind = "ρ" if "rho" in book.description["budget"] else "ε"
    delta = f" and δ = {show(amount[1])}" if amount[1] else ""
    return f"{kind} = {show(amount[0])}{delta}"
