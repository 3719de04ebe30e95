"""The charges of a log for a second program: as plain losses, and as events of Google's library `dp_accounting`.

`losses` reads the rows of any log and needs no library. Each loss is one charge: of a step, a span, a halt or an event.
A span is one loss, however often it was extended. Amendments begin and end scopes and cost nothing. Which event fits:

| charge | event | why |
|---|---|---|
| ε | `RandomizedResponseDpEvent` with odds e^ε | it is the worst of all ε-private mechanisms, so it is right for all |
| ρ | `ZCDpEvent` | |
| (ε, δ) | `EpsilonDeltaDpEvent` | versions without it get `UnsupportedDpEvent`, which every accountant refuses |

`LaplaceDpEvent` would be right for Laplace noise alone: for δ > 0 it composes to less than other ε-private mechanisms do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from tidegate.composition import largest_step
from tidegate.core import arrays
from tidegate.core.charges import Charges, Span
from tidegate.core.commit import AMENDED, EVENT, HALTED, OPENED, PUSHED, RESTARTED, Row
from tidegate.core.log import Log
from tidegate.core.parallel_account import PARTED
from tidegate.core.scope import Book, Scope
from tidegate.core.session import charges_of
from tidegate.errors import TidegateError

MISSING = 'dp_accounting is not installed; install it with pip install "tidegate[accounting]".'
KINDS = {PUSHED: "step", HALTED: "halt", EVENT: "event"}


class ExportFailed(TidegateError):
    """The charges cannot be given to the other program; the message says why."""


class Loss(NamedTuple):
    """What one charge costs whoever is protected.

    Attributes
    ----------
    scope, query
        The number and the name of the scope that was charged.
    part
        The column group, where units stay in one, or the requirement, where units have their own: each has an account
        of its own; otherwise None.
    kind
        "step", "span", "halt" or "event".
    first, last
        The steps that it covers: it counts once in every window that meets them.
    units
        As the log has them.
    epsilon, delta, rho
        What it costs, exactly: ε and δ, or ρ; both None where the log does not say it (see `times`).
    times
        So many independent charges of this cost. It is more than 1 only under δ with several units per window, where
        every unit is the ε that optimal composition allows.
    """

    scope: int
    query: str
    part: int | None
    kind: str
    first: int
    last: int
    units: int
    epsilon: Fraction | None
    delta: Fraction
    rho: Fraction | None
    times: int = 1

    def meets(self, first: int, last: int) -> bool:
        """Whether it counts in the window of these steps."""
        return self.first <= last and self.last >= first


def losses(log: Log | Iterable[Row]) -> list[Loss]:
    """All charges of a log, in the order in which they were committed; a span stands where it began.

    Parameters
    ----------
    log
        A log, or all of its rows. Verify them first: charges are taken as they are.

    Examples
    --------
    >>> import tidegate as tg
    >>> from tidegate.mechanisms.plain.uniform import Uniform
    >>> from tidegate.core.log import MemoryLog
    >>> from tidegate.core.session import Session
    >>> log = MemoryLog()
    >>> _ = Session(Uniform(tg.WEvent(epsilon="1", window=4), noise="laplace"), log).push_batch([5, 0])
    >>> [(loss.kind, loss.first, str(loss.epsilon)) for loss in losses(log)]
    [('step', 1, '1/4'), ('step', 2, '1/4')]
    """
    reading = Reading()
    for row in log.rows() if isinstance(log, Log) else log:
        reading.read(row)
    return [loss for loss in reading.found if loss.units]


class Priced:
    """What the units of a scope are worth."""

    def __init__(self, scope: Scope, book: Book) -> None:
        described = book.description["queries"][scope.name]
        account, mechanism = described["account"], described["mechanism"].get("mechanism")
        self.scope, self.limit = scope, int(account["units"])
        self.window: int | None = account["window"]
        self.parts = account.get("kind") in PARTED
        self.rho = "rho" in book.description["budget"]
        total, self.delta = scope.amount
        self.unit: Fraction | None = total / self.limit
        self.apart = False  # whether every unit is a charge of its own
        if self.delta and account.get("kind") == "secrets":
            self.delta = Fraction(0)  # each step is charged an ε; δ is what composing them allows for
        elif self.delta and self.limit > 1:
            # one ε-private release per unit; of any other mechanism a log does not say how its δ is divided
            self.unit = largest_step(self.limit, total, self.delta) if mechanism == "Uniform" else None
            self.apart, self.delta = True, Fraction(0)
        self.step, self.silent = scope.first - 1, float(scope.first - 1)
        self.spans: dict[tuple[int, int], int] = {}  # where those that may be extended stand among the losses

    def loss(self, kind: str, first: int, last: int, units: int, part: int | None = None) -> Loss:
        """One charge."""
        worth = None if self.unit is None else self.unit if self.apart else self.unit * units
        epsilon, rho = (None, worth) if self.rho else (worth, None)
        times = units if self.apart else 1
        numbers = (first, last, units, epsilon, self.delta, rho, times)
        return Loss(self.scope.number, self.scope.name, part, kind, *numbers)


class Reading:
    """The losses of some rows."""

    def __init__(self) -> None:
        self.found: list[Loss] = []
        self.alive: dict[int, Priced] = {}
        self.book: Book

    def read(self, row: Row) -> None:
        """One more row."""
        if row.kind in (OPENED, AMENDED):
            self._read_book(Book.decoded(row.charges))
        elif row.kind in KINDS:
            for number, charges in charges_of(row):
                self._read_charges(self.alive[number], KINDS[row.kind], charges)
        if row.kind == HALTED:
            for priced in self.alive.values():
                self._end_spans(priced)
                priced.silent = max(priced.silent, priced.step + _steps(priced.window) - 1)
        elif row.kind == RESTARTED:
            (silent,) = arrays.decode(row.charges)
            for scope, last in zip(self.book.alive, silent.tolist(), strict=True):
                if last != self.alive[scope.number].silent:
                    self._end_spans(self.alive[scope.number])
                    self.alive[scope.number].silent = last

    def _read_book(self, book: Book) -> None:
        before, self.book = self.alive, book
        self.alive = {scope.number: before.get(scope.number) or Priced(scope, book) for scope in book.alive}
        for number, priced in before.items():
            if number not in self.alive:
                self._end_spans(priced)

    def _read_charges(self, priced: Priced, kind: str, charges: Charges) -> None:
        if not priced.parts:
            for at, units in enumerate(charges.units.tolist()):
                if units:
                    step = charges.first + at
                    self.found.append(priced.loss(kind, step, step, units))
        for row in charges.spans.tolist():
            span = Span(*row)
            if span.units and priced.parts:  # rows of parts are no spans
                self.found.append(priced.loss(kind, span.first, span.last, span.units, span.law))
            elif span.units:
                self._read_span(priced, span)
        if kind != "event":
            priced.step = charges.last

    def _read_span(self, priced: Priced, span: Span) -> None:
        """A span is one loss: when it is extended, the loss covers more steps."""
        at = priced.spans.setdefault((span.law, span.ordinal), len(self.found))
        if at == len(self.found):
            self.found.append(priced.loss("span", span.first, span.last, span.units))
        self.found[at] = self.found[at]._replace(last=max(self.found[at].last, span.last))

    def _end_spans(self, priced: Priced) -> None:
        """Noise that was planned for later steps is never used."""
        for at in priced.spans.values():
            loss = self.found[at]
            self.found[at] = loss._replace(last=min(loss.last, max(loss.first, priced.step)))
        priced.spans = {}


def _steps(window: int | None) -> float:
    return math.inf if window is None else window


# for dp_accounting -----------------------------------------------------------------------------------------------


def dp_events(found: Iterable[Loss]) -> list[Any]:
    """Losses as events of `dp_accounting`, one for each.

    Compose those that meet a window with `dp_accounting.ComposedDpEvent`. An accountant of events of ε has to have the
    relation `REPLACE_ONE`, because randomized response is defined for it; what is protected is what the policy says.

    Parameters
    ----------
    found
        What `losses` has given, or some of it.
    """
    library = _library()
    return [_event(library.dp_event, loss) for loss in found]


def _event(kinds: Any, loss: Loss) -> Any:
    if loss.rho is not None:
        event = kinds.ZCDpEvent(_up(loss.rho))
    elif loss.epsilon is None:
        return kinds.UnsupportedDpEvent()
    elif loss.delta:
        if not hasattr(kinds, "EpsilonDeltaDpEvent"):
            return kinds.UnsupportedDpEvent()
        event = kinds.EpsilonDeltaDpEvent(_up(loss.epsilon), _up(loss.delta))
    else:
        small = math.exp(-_up(loss.epsilon))
        event = kinds.RandomizedResponseDpEvent(2 * small / (1 + small), 2)
    # copies, and no SelfComposedDpEvent: version 0.6 counts randomized response in it once
    return event if loss.times == 1 else kinds.ComposedDpEvent([event] * loss.times)


def loss_distribution(found: Sequence[Loss], interval: float = 1e-4) -> Any:
    """The privacy loss distribution of losses of ε and (ε, δ), composed by `dp_accounting`.

    It needs no events, so it also composes (ε, δ) where the installed version has no event for it.

    Parameters
    ----------
    found
        What `losses` has given, or some of it.
    interval
        The grid of privacy losses: each is rounded up to it.
    """
    library = _library()
    distributions = library.pld.privacy_loss_distribution
    result = distributions.identity(value_discretization_interval=interval)
    known: dict[tuple[Fraction, Fraction], Any] = {}
    for loss in found:
        if loss.epsilon is None:
            raise ExportFailed("a loss of ρ, or one whose ε the log does not say, has no such distribution.")
        key = loss.epsilon, loss.delta
        if key not in known:
            cost = library.pld.common.DifferentialPrivacyParameters(_up(loss.epsilon), _up(loss.delta))
            known[key] = distributions.from_privacy_parameters(cost, value_discretization_interval=interval)
        for _ in range(loss.times):
            result = result.compose(known[key])
    return result


def windows(found: Sequence[Loss], window: int | None) -> Iterator[tuple[int, int, list[Loss]]]:
    """(first step, last step, the losses in it) of every window that ends where a loss begins: no other holds more.

    Parameters
    ----------
    found
        Losses of one scope and part, or of scopes that are composed.
    window
        Its steps; None: everything is one window.
    """
    if window is None:
        if found:
            yield 1, max(loss.last for loss in found), list(found)
        return
    for last in sorted({loss.first for loss in found}):
        first = max(1, last - window + 1)
        yield first, last, [loss for loss in found if loss.meets(first, last)]


def _library() -> Any:
    try:
        import dp_accounting
        import dp_accounting.pld
    except ImportError:
        raise ExportFailed(MISSING) from None
    return dp_accounting


def _up(exact: Fraction) -> float:
    """The nearest float that is not below."""
    found = float(exact)
    return found if Fraction(found) >= exact else math.nextafter(found, math.inf)
