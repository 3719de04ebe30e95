"""Reading a stream: numbered releases of every query, from the rows of a log, its archives and its side tables.

`read_stream` is for who reads only: reports, cards, tables, `ledger show`, pages of a service. It opens the log without
writing, fences nobody, leaves no file behind, and never touches the secret of a commit: neither state nor position.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from tidegate.config import Config, Queries
from tidegate.config.auto import seasons_of
from tidegate.config.keys import THE_END
from tidegate.core.commit import AMENDED, FINISHED, OPENED, Row
from tidegate.core.errors import LogMismatch
from tidegate.core.mechanism import Mechanism
from tidegate.core.scope import Book, Scope, compare
from tidegate.core.session import releases_of
from tidegate.core.verify import Verification, verify
from tidegate.exact import show
from tidegate.ingest.aggregate import valued
from tidegate.ingest.query import MISSING
from tidegate.pipeline.archive import Archives
from tidegate.pipeline.log_heads import Head
from tidegate.pipeline.logs import LogReader
from tidegate.pipeline.numbered_releases import BEGINNING, ReleaseReader, State
from tidegate.pipeline.query_releases import Released
from tidegate.pipeline.side_tables import SideTables
from tidegate.sinks.chunks import Chunk


class Reading:
    """What the queries of a log have released.

    Parameters
    ----------
    parts
        The queries.
    mechanisms, scopes
        Of each query: what releases, with its share, and its part of the budget.
    side_tables, archives
        What the pipeline keeps beside the commits; archives read the log, too.

    Attributes
    ----------
    readers
        Of each query, where the reading stands.
    released
        Of each query, what was released: for any thread.
    next
        The number of the next commit to read.
    """

    def __init__(
        self,
        parts: Sequence[Config],
        mechanisms: Mapping[str, Mechanism],
        scopes: Mapping[str, Scope],
        side_tables: SideTables,
        archives: Archives,
    ) -> None:
        self.parts, self.mechanisms, self.scopes = {part.name: part for part in parts}, mechanisms, scopes
        self.side_tables, self.archives = side_tables, archives
        self._by_scope = {scopes[name].number: (name, mechanisms[name]) for name in self.parts}
        self.checkpoint: dict[str, State] = side_tables.note("readers") or {}
        self.readers = {name: self.reader(name, self.checkpoint) for name in self.parts}
        self.next = min(reader.commit for reader in self.readers.values())
        self.released = {name: Released(self, part) for name, part in self.parts.items()}
        self._publish_clips()

    def reader(self, name: str, states: Mapping[str, State]) -> ReleaseReader:
        """A new reader of a query, which continues where a state of it stands."""
        mechanism, part, scope = self.mechanisms[name], self.parts[name], self.scopes[name]
        state = states.get(name)
        if state is None or state["scope"] != scope.number:  # nothing of this scope was read there
            state = {**BEGINNING, "commit": min((each["commit"] for each in states.values()), default=0)}
        gappy = part.query.fill == MISSING
        return ReleaseReader(
            name,
            scope,
            mechanism,
            masks=partial(self.side_tables.gaps, columns=mechanism.columns) if gappy else None,
            withholds=part.mechanism.statistic == "steps",
            seasons=seasons_of(part.steps),
            explained=any(each.answers for each in self.parts.values()),
            state=state,
        )

    def commits(self) -> Iterator[dict[str, Chunk]]:
        """The releases of every commit that was not read yet."""
        for row in self.archives.checked(self.next):
            released = releases_of(row, self._by_scope)
            found = {name: reader.read(row, released) for name, reader in self.readers.items()}
            self.next = row.number + 1
            self._publish_clips()
            yield found

    def _publish_clips(self) -> None:
        """Let queries know where their values are clipped, once that is released: answers depend on it."""
        for name, part in self.parts.items():
            learning, clip = part.query.learn, self.readers[name].clip
            if learning is not None and learning.clip is None and clip is not None:
                learning.clip = round(Fraction(clip) / Fraction(part.query.grid))

    def released_by(self, row: Row) -> dict[str, Any] | None:
        """What a commit has released, by query."""
        return releases_of(row, self._by_scope)

    def chunks(self, name: str, after: int = 0) -> Iterator[Chunk]:
        """Committed releases of a query after a number, in order; also those that were archived."""
        mark = self.side_tables.mark(self.scopes[name].number, number=after)
        known = [{}, self.archives.readers, self.checkpoint, {} if mark is None else {name: mark.state}]
        begins = (self.reader(name, states) for states in known)
        reader = max((each for each in begins if each.number <= after), key=lambda each: each.number)
        for row in self.archives.checked(reader.commit):
            chunk = reader.read(row, releases_of(row, self._by_scope)).after(after)
            if len(chunk):
                yield chunk


class StreamReader:
    """A stream that is only read; see `read_stream`.

    Attributes
    ----------
    queries
        Its configuration.
    log
        Its rows.
    released
        Of each query, by name: what it has released and spent.
    books
        (commit, book) of the beginning and of every amendment.
    """

    def __init__(self, queries: Queries) -> None:
        self.queries = queries
        self.log = LogReader(queries.ledger)
        self._side_tables: SideTables | None = None
        try:
            self._side_tables = SideTables(self.log, queries.ledger)
            self.archives = Archives(
                self.log, self._side_tables, archives_of(queries.first), queries.first.run.keep
            )
            self.books = self.log.books()
            if not self.books:
                raise LogMismatch(f"the log {self.log.shown} has no commit yet; start the stream first.")
            book = self.books[-1][1]
            parts = [part for edition in queries.editions for part in edition]
            mechanisms = {part.name: part.mechanism for part in parts}
            check_same(queries, mechanisms, book)
            scopes = {scope.name: scope for scope in book.alive}
            self._reading = Reading(parts, mechanisms, scopes, self._side_tables, self.archives)
            self.released = self._reading.released
            self.refresh()
        except BaseException:
            self.close()
            raise

    def refresh(self) -> None:
        """Read what was committed since."""
        for _ in self._reading.commits():
            pass

    @property
    def step(self) -> int:
        """The last step that was committed, of the query that is farthest."""
        return max(each.step for each in self.released.values())

    @property
    def identity(self) -> str:
        """The hash of the log's first commit: its name for ever."""
        return self.log_head(0).hash

    @property
    def head(self) -> Head:
        """The last commit that was read."""
        return self.log_head(self._reading.next - 1)

    def log_head(self, commit: int) -> Head:
        """A commit, for others to keep."""
        row = next(self.log.rows(commit), None)
        if row is None or row.number != commit:
            raise LogMismatch(f"{self.log.shown} has no commit {commit}; it is an older copy.")
        return Head(row.number, row.head.hex())

    @property
    def history(self) -> list[str]:
        """How the budget is shared and how the stream was amended, a sentence each."""
        return history_of([book for _, book in self.books])

    @property
    def finished(self) -> bool:
        """Whether the stream has ended for good."""
        return next(self.log.rows(self.head.commit)).kind == FINISHED

    def verify(self) -> Verification:
        """Recompute the whole log, with the releases that it and its archives have."""
        return verify(self.archives.rows())

    def close(self) -> None:
        """Let go of the log."""
        if self._side_tables is not None:
            self._side_tables.close()
        self.log.close()

    def __enter__(self) -> StreamReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_stream(queries: Queries) -> StreamReader:
    r"""Open the stream of a configuration for reading only; use it in a `with` statement.

    Also while the stream runs. Refused where there is no log, or where it belongs to another configuration.

    Parameters
    ----------
    queries
        The configuration.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from tidegate.config import parse_queries
    >>> from tidegate.pipeline import open_pipeline
    >>> folder = tempfile.TemporaryDirectory()
    >>> home = pathlib.Path(folder.name)
    >>> _ = (home / "events.csv").write_text("time,device\n60,a\n90,b\n4000,a\n")
    >>> queries = parse_queries('''
    ... [source]
    ... location = "events.csv"
    ... time = "time"
    ... unit = "device"
    ... [steps]
    ... start = "1970-01-01T00:00"
    ... length = "1h"
    ... count = 2
    ... [protect]
    ... epsilon = "1"
    ... window = 2
    ... [mechanism]
    ... name = "Uniform"
    ... [sink]
    ... location = "released.csv"
    ... ''', home / "stream.toml")
    >>> with open_pipeline(queries) as pipeline:
    ...     pipeline.drive(queries.open(pipeline.position))
    ...     pipeline.finish()
    >>> with read_stream(queries) as stream:
    ...     for released in stream.released.values():
    ...         print(released.number, released.step)
    2 2
    >>> folder.cleanup()
    """
    return StreamReader(queries)


def archives_of(config: Config) -> Path | None:
    """The folder of archives that a configuration names."""
    return None if config.run.archives is None else Path(config.locate(config.run.archives))


# what a log says about itself ------------------------------------------------------------------------------------


def books_of(rows: Iterable[Row]) -> list[tuple[int, Book]]:
    """(commit, book) of the beginning and of every amendment."""
    return [(row.number, Book.decoded(row.charges)) for row in rows if row.kind in (OPENED, AMENDED)]


def history_of(books: Sequence[Book]) -> list[str]:
    """How the budget is shared and how the stream was amended, a sentence each; nothing of one query that never was."""
    last = books[-1]
    found = [_shared(last, scope) for scope in last.alive] if len(last.alive) > 1 else []
    for before, after in pairwise(books):
        found.append(_amended(before, after))
    if len(books) > 1:
        found.append("A window that spans an amendment is limited to the smaller of the two budgets.")
    return found


def _shared(book: Book, scope: Scope) -> str:
    share = show(Fraction(book.description["queries"][scope.name]["share"]))
    kind = "ρ" if "rho" in book.description["budget"] else "ε"
    return f"{scope.name} has {share} of the budget: {kind} = {show(scope.amount[0])} in every window."


def _amended(before: Book, after: Book) -> str:
    made, several = compare(before, after), len(after.alive) > 1 or len(before.alive) > 1
    words = [_begun(after, name, first, several=several) for name, first in made.begun.items()]
    words += [f"{name} ended" for name in made.ended]
    since, budget = after.budgets[-1]
    if budget != before.budgets[-1][1]:
        words.append(
            f"the budget is {_budget(after)} from step {since:,} on, where it was {_budget(before)} before"
        )
    return f"Amended: {'; '.join(words) or 'nothing that is released'}."


def _begun(book: Book, name: str, first: int, *, several: bool) -> str:
    mechanism = book.description["queries"][name]["mechanism"].get("mechanism", "its mechanism")
    stopped = max((scope.last or 0 for scope in book.ended if scope.name == name), default=first - 1)
    silent = first - 1 - stopped
    quiet = "" if silent <= 0 else f", after {silent:,} silent step{'' if silent == 1 else 's'}"
    return f"{name if several else 'the query'} is released by {mechanism} from step {first:,} on{quiet}"


def _budget(book: Book) -> str:
    written = book.description["budget"]
    kind = "epsilon" if "epsilon" in written else "rho"
    delta = Fraction(written["delta"])
    more = f", δ = {show(delta)}" if delta else ""
    return f"{'ε' if kind == 'epsilon' else 'ρ'} = {show(Fraction(written[kind]))}{more}"


# whether a log belongs to a configuration ------------------------------------------------------------------------


def check_same(queries: Queries, mechanisms: Mapping[str, Mechanism], book: Book) -> None:
    """Refuse a log of another configuration; the sentence names the first key that differs."""
    about, described = about_of(queries), book.description["queries"]
    before = {name: {**query["about"], "mechanism": query["mechanism"]} for name, query in described.items()}
    now = {
        name: {**about[name], "mechanism": json.loads(json.dumps(mechanism.describe()))}
        for name, mechanism in mechanisms.items()
    }
    changed = difference(before, now)
    if changed is not None:
        raise other_configuration(*changed)


def other_configuration(key: str, before: Any, now: Any) -> LogMismatch:
    """Why a log is not continued."""
    return LogMismatch(
        f"the stream was begun with {key} = {_short(before)} and the configuration now says {_short(now)}; put it "
        "back, amend the stream, or begin a new one with another log, whose budget adds to this one's."
    )


def stream_finished(step: int) -> LogMismatch:
    """Why a stream that has ended takes no more steps."""
    return LogMismatch(
        f"the stream was finished at step {step}, with last values of the steps before it; put count in [steps] back. "
        f"{THE_END} At user level the budgets of both add up."
    )


def about_of(queries: Queries) -> dict[str, Any]:
    """What makes each query what it is, besides its mechanism."""
    said = {part.name: {**part.describe(), "read": read_from(part)} for part in queries.parts}
    found: dict[str, Any] = json.loads(json.dumps(said, sort_keys=True))
    return found


def read_from(part: Config) -> dict[str, Any]:
    """The columns of the input that a query reads."""
    return {"column": part.schema.column, "value": part.schema.value if valued(part.query) else None}


def difference(before: Any, now: Any, key: str = "") -> tuple[str, Any, Any] | None:
    """The first key in which two descriptions differ, and both values; None where they agree.

    Examples
    --------
    >>> difference({"steps": {"length": 60}}, {"steps": {"length": 90}})
    ('steps.length', 60, 90)
    """
    if isinstance(before, dict) and isinstance(now, dict):
        # what people have written comes first: the query and the clock, then of a mechanism its name and the policy;
        # its other parameters may follow from these, and the law of its noise follows from all others
        order = {"policy": 2, "noise": 4, "mechanism": 1 if isinstance(before.get("mechanism"), str) else 4}
        names = sorted({*before, *now}, key=lambda name: (order.get(name, 3), name))
        found = (difference(before.get(name), now.get(name), f"{key}.{name}".lstrip(".")) for name in names)
        return next((each for each in found if each is not None), None)
    return None if before == now else (key, before, now)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"
