"""What queries have released before an amendment.

An amendment ends scopes and begins scopes. The log keeps all of them, so reports and tables begin at the first step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate import mechanisms, policy
from tidegate.config import Config
from tidegate.config.auto import seasons_of
from tidegate.core.account import Account
from tidegate.core.charges import Charges, Integers
from tidegate.core.commit import AMENDED, EVENT, HALTED, OPENED, PUSHED, Row
from tidegate.core.mechanism import Mechanism, unit_of
from tidegate.core.scope import Book, Scope
from tidegate.core.session import charges_of, releases_of
from tidegate.core.verify import account_from
from tidegate.errors import TidegateError
from tidegate.ingest.columns import OTHER
from tidegate.pipeline.numbered_releases import BEGINNING, Masks, ReleaseReader
from tidegate.pipeline.query_releases import Released
from tidegate.pipeline.stream_reader import read_from
from tidegate.pipeline.window_spending import Spending, window_units
from tidegate.policy import Policy
from tidegate.releases import Status, Values
from tidegate.sinks.chunks import Categories, Chunk, joined, latest

Rows = Callable[[int], Iterator[Row]]  # all rows from a number on
CHARGED = (PUSHED, HALTED, EVENT)
BY_COLUMN = ("count", "distinct", "sum", "given")  # of which each released value belongs to one column
BOUNDS = ("most", "clip")  # of what one unit adds
LAWS = ("auto", "laplace")  # what a mechanism may be given as noise, which it describes by its numbers


class Ended(NamedTuple):
    """A scope that an amendment has ended.

    Attributes
    ----------
    scope
        Its part of the budget, and its first and last step.
    query
        How the log describes it.
    since, until
        The commit that began it, and the one that ended it.
    """

    scope: Scope
    query: Mapping[str, Any]
    since: int
    until: int

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The names of its columns, where each released value belongs to one; otherwise None."""
        columns = self.asked.get("columns")
        if not isinstance(columns, dict) or "names" not in columns or "levels" in self.asked:
            return None
        return (*columns["names"], *([OTHER] if columns.get("outside") == OTHER else []))

    @property
    def asked(self) -> Mapping[str, Any]:
        """What it counted, as the configuration described it."""
        found: Mapping[str, Any] = (self.query.get("about") or {}).get("query") or {}
        return found

    def same_statistic(self, config: Config) -> bool:
        """Whether its numbers mean what those of a query mean now, column by column."""
        if (self.query.get("about") or {}).get("read") != read_from(config):
            return False  # of other columns of the input
        now = json.loads(json.dumps(config.query.describe()))
        if self.asked == now:
            return True
        changed = {key for key in {*self.asked, *now} if self.asked.get(key) != now.get(key)}
        return (
            self.labels is not None
            and config.query.aggregate in BY_COLUMN
            and changed <= {"columns", *BOUNDS}
            and isinstance(now["columns"], dict)
            and "names" in now["columns"]
        )

    def same_bounds(self, config: Config) -> bool:
        """Whether as much of a unit was counted as now."""
        now = json.loads(json.dumps(config.query.describe()))
        return all(self.asked.get(key) == now.get(key) for key in BOUNDS)

    def aligned(self, chunk: Chunk, labels: tuple[str, ...]) -> Chunk:
        """Its releases in the columns that the query has now; nothing in those that are new."""
        if self.labels is None or self.labels == labels:
            return chunk
        # `other` is what is not listed: with other names it is something else
        common = set(labels).intersection(self.labels) - {OTHER}
        places = [self.labels.index(label) if label in common else -1 for label in labels]
        known = np.array([place >= 0 for place in places])

        def moved(part: Values) -> Values:
            wide = np.broadcast_to(part, chunk.values.shape)
            return np.where(known, wide[:, places], np.nan)

        radius = None if chunk.radius is None else moved(chunk.radius)
        return replace(chunk, values=moved(chunk.values), radius=radius)

    def chunks(
        self, rows: Rows, masks: Masks | None = None, *, withholds: bool = True, seasons: Sequence[int] = ()
    ) -> Iterator[Chunk]:
        """What it has released, in order; `masks`, `withholds` and `seasons` as for `ReleaseReader`."""
        mechanism = self._mechanism(rows)
        if mechanism is None:
            return
        name = self.scope.name
        state = {**BEGINNING, "commit": self.since}
        reader = ReleaseReader(
            name, self.scope, mechanism, masks=masks, withholds=withholds, seasons=seasons, state=state
        )
        for row in rows(self.since):
            if row.number >= self.until:
                return
            chunk = reader.read(row, releases_of(row, {self.scope.number: (name, mechanism)}))
            if len(chunk):
                yield chunk

    def spent_by(self, rows: Rows, steps: Integers) -> tuple[Integers, Fraction]:
        """What it has spent in the window that ends at each of some steps, which are in order: units, and their worth."""
        mechanism = self._mechanism(rows)
        if mechanism is None:
            return np.zeros(len(steps), dtype=np.int64), Fraction(0)
        charges, spending = list[Charges](), Spending(mechanism)
        for row in rows(self.since):
            if row.number >= self.until:
                break
            own = dict(charges_of(row)).get(self.scope.number) if row.kind in CHARGED else None
            if own is not None:
                charges.append(own)
                spending.read(own)
        last = self.scope.last or 0
        # noise that was planned for later steps is never used
        if spending.parts:
            return spending.window_units(charges, steps), unit_of(mechanism)
        spans = [span._replace(last=min(span.last, max(span.first, last))) for span in spending.spans]
        return window_units(charges, spans, steps, mechanism.policy.window), unit_of(mechanism)

    def _mechanism(self, rows: Rows) -> Mechanism | None:
        """What has released; with its shape alone where it cannot be made again; None if it never released."""
        found = rebuilt(self.query["mechanism"])
        if found is not None:
            return found
        for row in rows(self.since):
            if row.number >= self.until:
                return None
            known: Any = Recorded(self.query, 1, 1)
            released = releases_of(row, {self.scope.number: (self.scope.name, known)})
            if released:
                outputs = released[self.scope.name].values.shape[1]
                columns = int(self.query["mechanism"].get("columns", outputs))
                shape: Any = Recorded(self.query, columns, outputs)
                return shape  # type: ignore[no-any-return]
        return None


@dataclass(frozen=True)
class Recorded:
    """A mechanism of which only the log knows: enough to read what it has released, without intervals."""

    query: Mapping[str, Any]
    columns: int
    outputs: int

    @cached_property
    def policy(self) -> Policy:
        """What was protected, and the budget."""
        return policy_of(self.query["mechanism"]["policy"])

    @property
    def units(self) -> int:
        """Into how many units the budget of a window was divided."""
        return int(self.query["account"]["units"])

    def account(self) -> Account:
        """A new one of the same kind."""
        return account_from(self.query["account"])


def ended_scopes(rows: Iterable[Row]) -> list[Ended]:
    """All scopes of a log that amendments have ended, in the order in which they did, from all of its rows."""
    alive, ended = dict[int, tuple[Scope, Any, int]](), list[Ended]()
    for row in rows:
        if row.kind not in (OPENED, AMENDED):
            continue
        book = Book.decoded(row.charges)
        now = {scope.number for scope in book.alive}
        last = {scope.number: scope.last for scope in book.ended}
        for number, (scope, query, since) in list(alive.items()):
            if number not in now:
                whole = scope._replace(last=last.get(number) or row.last)
                ended.append(Ended(whole, query, since, row.number))
                del alive[number]
        for scope in book.alive:
            alive.setdefault(scope.number, (scope, book.description["queries"][scope.name], row.number))
    return ended


def newest_of_all(released: Released, earlier: Sequence[Ended]) -> Chunk:
    """The newest release of every step of a query, from the beginning of its stream on; `newest_before` says of which.

    Parameters
    ----------
    released
        The query.
    earlier
        All scopes of its log that have ended.
    """
    width = released.config.mechanism.outputs
    before, now = newest_before(released, earlier), latest(joined(released.chunks(), width))
    if not len(before):
        return now
    whole = joined([before, *([now] if len(now) else [])], width)
    return with_silent_steps(replace(whole, first=1), released.step)


def newest_before(released: Released, earlier: Sequence[Ended], since: int = 1) -> Chunk:
    """The newest release of every step that a query had before its last amendment, in the columns that it has now.

    Only what is the same statistic is there; where columns were added or removed, those that both have. Steps that an
    amendment has left silent are there, too.

    Parameters
    ----------
    released, earlier
        As for `newest_of_all`.
    since
        The first step that is wanted.
    """
    config, parts = released.config, list[Chunk]()
    width = config.mechanism.outputs
    for each in earlier:
        if each.scope.name == released.name and each.same_statistic(config):
            masks = released.masks(int(each.query["mechanism"].get("columns", 1)))
            withholds = config.mechanism.statistic == "steps"
            seasons = seasons_of(config.steps)
            chunks = each.chunks(released.rows, masks, withholds=withholds, seasons=seasons)
            wanted = (chunk.picked(np.flatnonzero(chunk.step >= since)) for chunk in chunks)
            before = joined((chunk for chunk in wanted if len(chunk)), width)
            if len(before):
                parts.append(each.aligned(latest(before), config.query.answer_labels))
    found = joined(parts, width)
    if not len(found):
        return found
    return with_silent_steps(replace(found, first=1), released.scope.first - 1)


def with_silent_steps(chunk: Chunk, last: int) -> Chunk:
    """Releases of steps in order, and silence at all other steps from the first one to a last one."""
    steps = np.arange(int(chunk.step[0]), max(last, int(chunk.step[-1])) + 1)
    if len(steps) == len(chunk):
        return chunk
    at, count = chunk.step - steps[0], len(steps)

    def spread(part: npt.NDArray[Any], nothing: Any) -> npt.NDArray[Any]:
        found = np.full((count, *part.shape[1:]), nothing, dtype=part.dtype)
        found[at] = part
        return found

    source = steps.copy()
    source[at] = chunk.source
    return Chunk(
        1,
        steps,
        source,
        spread(chunk.units, 0),
        spread(chunk.scale, 0.0),
        spread(chunk.revision, 0),
        spread(chunk.delay, 0),
        spread(chunk.status, int(Status.SILENT)),
        spread(chunk.values, np.nan),
        None if chunk.radius is None else spread(chunk.radius, np.nan),
        categories=None
        if chunk.categories is None
        else Categories(
            spread(chunk.categories.names, 0),
            spread(chunk.categories.opened, 0),
            spread(chunk.categories.units, np.nan),
        ),
    )


def rebuilt(described: Mapping[str, Any]) -> Mechanism | None:
    """A mechanism from its description; None where that does not say all: it must describe itself in the same way.

    Examples
    --------
    >>> import tidegate as tg
    >>> uniform = tg.mechanisms.Uniform(tg.WEvent(epsilon="1", window=3), columns=2, noise="laplace")
    >>> rebuilt(uniform.describe()) == uniform
    True
    """
    kind: Any = getattr(mechanisms, str(described.get("mechanism")), None)
    if kind is None:
        return None
    wanted = json.loads(json.dumps(described))
    names = {each.name for each in fields(kind) if each.init}
    given = {name: _given(value) for name, value in wanted.items() if name in names - {"policy", "noise"}}
    given = {name: value for name, value in given.items() if not isinstance(value, dict)}
    for law in LAWS if "noise" in names else (None,):
        try:
            noise = {} if law is None else {"noise": law}
            found: Mechanism = kind(policy_of(wanted["policy"]), **given, **noise)
        except (TidegateError, TypeError, ValueError, KeyError, AttributeError):
            continue
        if json.loads(json.dumps(found.describe())) == wanted:
            return found
    return None


def policy_of(described: Mapping[str, Any]) -> Policy:
    """A policy from its description."""
    kind: Any = getattr(policy, described["policy"])
    names = {each.name for each in fields(kind) if each.init}
    found: Policy = kind(**{name: value for name, value in described.items() if name in names})
    return found


def _given(value: Any) -> Any:
    return tuple(map(_given, value)) if isinstance(value, list) else value
