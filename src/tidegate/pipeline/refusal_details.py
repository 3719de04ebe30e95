"""Why a charge is refused: the whole list of what its window holds, from the rows of a log. All of it is public."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple, Protocol

from tidegate.core.commit import Row
from tidegate.core.errors import LogDamaged, steps_named, when
from tidegate.core.session import Session
from tidegate.core.verify import Reader, verify
from tidegate.errors import InvalidParameter
from tidegate.exact import show, whole
from tidegate.pipeline.charge_export import Loss, losses


class HasRows(Protocol):
    """A log, or what reads one."""

    def rows(self) -> Iterable[Row]:
        """All rows, in order."""


class Explanation(NamedTuple):
    """What stands against a charge.

    Attributes
    ----------
    query
        The query that would be charged.
    step, asked
        The step, and its units.
    first
        The first step of the window that ends there.
    limit, spent
        Units that the window may spend and has spent. Under Swellfish and with column groups of fixed units there is no
        one limit: None, and the sum.
    unit, kind
        What a unit is worth, in "ε" or "ρ"; None where the log does not say it.
    charges
        All that the window holds, by step.
    others
        What the other queries hold in the same steps. Shares are fixed, so it takes nothing from this query.
    silent_until
        The query releases nothing, and is charged nothing, up to this step; endless after a halt at user level.
    fits
        The first step at which this charge fits, if nothing else is charged before; None: never.
    horizon
        The last step of the stream, if it has one.
    """

    query: str
    step: int
    asked: int
    first: int
    limit: int | None
    spent: int
    unit: Fraction | None
    kind: str
    charges: tuple[Loss, ...]
    others: tuple[Loss, ...]
    silent_until: float
    fits: int | None
    horizon: int | None

    @property
    def refused(self) -> bool:
        """Whether the charge does not fit."""
        return self.fits != self.step

    def __str__(self) -> str:
        name = f"query {self.query!r}, " if self.query else ""
        verdict = "is refused" if self.refused else "fits"
        allowed = "" if self.limit is None else f" of {self.limit}"
        lines = [
            f"{name}step {self.step}: a charge of {self._worth(self.asked)} {verdict}.",
            f"The window is {steps_named(self.first, self.step)}. It has spent {self._worth(self.spent)}{allowed}.",
            *(f"  {line}" for line in self._charged()),
        ]
        if self.others:
            names = ", ".join(repr(name) for name in sorted({each.query for each in self.others}))
            lines.append(
                f"{len(self.others)} charges of {names} are in it too: they have shares of their own."
            )
        if self.silent_until >= self.step:
            until = "for ever" if math.isinf(self.silent_until) else f"up to step {self.silent_until:.0f}"
            lines.append(f"The query is silent {until}.")
        if self.refused:
            later = when(self.fits, self.horizon)
            lines.append(f"{later[0].upper()}{later[1:]}.")
        return "\n".join(lines)

    def _charged(self) -> Iterator[str]:
        """The charges, one line for those of steps that follow each other and cost the same."""
        run: list[Loss] = []
        for each in self.charges:
            if run and not _continues(run[-1], each):
                yield self._line(run)
                run = []
            run.append(each)
        if run:
            yield self._line(run)

    def _line(self, run: list[Loss]) -> str:
        first, last = run[0], run[-1]
        if first is last:
            return f"{self._worth(first.units)} by a {first.kind} at {_where(first)}"
        part = "" if first.part is None else f" in column group {first.part}"
        return (
            f"{self._worth(first.units)} by each {first.kind} at {steps_named(first.first, last.last)}{part}"
        )

    def _worth(self, units: int) -> str:
        counted = f"{units} unit{'' if units == 1 else 's'}"
        return counted if self.unit is None else f"{counted} ({self.kind} = {show(self.unit * units)})"


def _continues(before: Loss, loss: Loss) -> bool:
    """Whether a charge of one step is the one before it, a step later."""
    alike = (before.kind, before.units, before.part) == (loss.kind, loss.units, loss.part)
    return alike and before.first == before.last and loss.first == loss.last == before.last + 1


def _where(loss: Loss) -> str:
    part = "" if loss.part is None else f" in column group {loss.part}"
    return steps_named(loss.first, loss.last) + part


def explain_refusal(
    source: Session | HasRows, query: str = "", *, units: int | None = None, step: int | None = None
) -> Explanation:
    """All that stands against a charge: the window, the charges in it, and when enough budget returns.

    Parameters
    ----------
    source
        A session, or a log. Its rows are read from the beginning, and verified.
    query
        The name of the query; of a log with one query it is left out.
    units
        The charge; by default all that a window may spend.
    step
        The step that is charged; by default the next one of the query.

    Examples
    --------
    >>> import tidegate as tg
    >>> from tidegate.mechanisms.plain.uniform import Uniform
    >>> session = Session(Uniform(tg.WEvent(epsilon="1", window=4), noise="laplace"))
    >>> _ = session.push_batch([5, 0, 2])
    >>> print(explain_refusal(session, units=2))
    step 4: a charge of 2 units (ε = 0.5) is refused.
    The window is steps 1 to 4. It has spent 3 units (ε = 0.75) of 4.
      1 unit (ε = 0.25) by each step at steps 1 to 3
    Wait until step 5: there it fits, if nothing else is charged before.
    """
    rows = list((source._log if isinstance(source, Session) else source).rows())
    verified = verify(rows)
    if not verified.ok:
        raise LogDamaged(verified.reason)
    reader = Reader()
    for row in rows:
        reader.read(row)
    named = {each.scope.name: each for each in reader.alive.values()}
    if query not in named:
        raise InvalidParameter("query", query, "one of the log", f"name {', '.join(map(repr, named))}")
    scope, account, silent = named[query]
    at = account.step + 1 if step is None else whole("step", step)
    if at <= account.step:
        raise InvalidParameter("step", at, f"after step {account.step}, the last one", "name a later one")
    described = reader.book.description["queries"][query]["account"]
    alone = "kind" not in described
    asked = int(described["units"]) if units is None else whole("units", units)
    first = 1 if account.window is None else max(1, at - account.window + 1)
    inside = [loss for loss in losses(rows) if loss.meets(first, at)]
    own = tuple(loss for loss in inside if loss.scope == scope.number)
    fits = None if math.isinf(silent) else account.first_fit(asked, max(at, int(silent) + 1))
    return Explanation(
        query,
        at,
        asked,
        first,
        account.limit if alone else None,
        sum(loss.units for loss in own),
        None if scope.amount[1] else scope.amount[0] / int(described["units"]),
        "ρ" if "rho" in reader.book.description["budget"] else "ε",
        own,
        tuple(loss for loss in inside if loss.scope != scope.number),
        silent,
        fits,
        account.horizon,
    )
