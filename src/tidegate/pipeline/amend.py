"""Amendments: a running stream gets the queries, shares and budget that its configuration has now.

Queries that changed end, and begin again as scopes of their own, with outputs of their own. They are silent while windows
hold what the ended ones have read; `plan` says for how long, and writes nothing. The clock and the protected unit never
change: another step or another unit would make a window mean something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any, NamedTuple

from tidegate.config import Queries
from tidegate.core.commit import FINISHED, HALTED, PUSHED, checked
from tidegate.core.errors import LogMismatch
from tidegate.core.mechanism import Mechanism
from tidegate.core.scope import Book, part_of
from tidegate.core.session import Session, charges_of, plan_amendment
from tidegate.errors import without_secrets
from tidegate.pipeline.logs import LogReader, log_exists, open_log
from tidegate.pipeline.numbered_releases import SAID
from tidegate.pipeline.pipeline import lock_of
from tidegate.pipeline.side_tables import SideTables
from tidegate.pipeline.stream_reader import about_of, difference

EDITIONS = (
    "a stream whose steps have editions cannot be amended, because these stand at different steps; begin a new stream "
    "with another ledger, whose budget adds to this one's."
)
FIXED = ("steps", "unit", "window")  # of what is said about a query: the clock, and what is protected


class Planned(NamedTuple):
    """What an amendment does.

    Attributes
    ----------
    unchanged, begun, ended
        As in `core.scope.Amendment`: queries that continue, those that begin with their first step, those that end.
    first
        The first step of all queries that continue.
    step, steps
        The last step of the stream, and of each query.
    """

    unchanged: tuple[str, ...]
    begun: dict[str, int]
    ended: tuple[str, ...]
    first: dict[str, int]
    step: int
    steps: dict[str, int]


def plan(queries: Queries) -> Planned:
    """What `amend` would do. Nothing is written."""
    if not log_exists(queries.ledger):
        raise LogMismatch(
            f"there is no log {without_secrets(queries.ledger)} to amend; start the stream first."
        )
    with LogReader(queries.ledger) as reader:
        books = reader.books()
        if not books:
            raise LogMismatch("the log has no stream to amend; start it first.")
        book = books[-1][1]
        _check(queries, reader, book)
        step, steps = _steps(reader, book)
    with closing(open_log(queries.ledger)) as log:
        found = plan_amendment(_mechanisms(queries), log, shares=queries.shares, about=about_of(queries))
    count = queries.first.steps.count
    if (found.begun or found.ended) and count is not None and step >= count:
        raise LogMismatch(
            f"the stream has released all of its {count} steps, so no query can begin; raise count in [steps] if more "
            "are to come."
        )
    first = {scope.name: scope.first for scope in book.alive if scope.name in found.unchanged}
    known = {name: steps.get(name, step) for name in found.begun}
    return Planned(*found, first, step, known)


def amend(queries: Queries) -> Planned:
    """Amend the stream of a configuration, which must not be running; returns what was done."""
    lock = lock_of(queries)
    try:
        found = plan(queries)
        about = about_of(queries)
        with closing(open_log(queries.ledger)) as log:
            log.take_over()
            before = log.load()
            assert before is not None  # `plan` has read it
            with closing(SideTables(log, queries.ledger)) as tables:
                if _reads_otherwise(queries):
                    tables.mark_for_removal(before.row.head)
                try:
                    session = Session(
                        _mechanisms(queries), log, shares=queries.shares, about=about, amend=True
                    )
                except BaseException:
                    tables.remove_marked(before.row.head, refused=True)
                    raise
                with closing(session):
                    tables.remove_marked(session.head)
    finally:
        lock.release()
    return found


def _reads_otherwise(queries: Queries) -> bool:
    """Whether some query will count other records than before: then stored rows of open steps are not its own.

    A row that another query took for its own could count more than one may. So all of them go, whatever they are.
    """
    with LogReader(queries.ledger) as reader:
        book = reader.books()[-1][1]
    before = {name: _reads(query["about"]) for name, query in book.description["queries"].items()}
    return before != {name: _reads(about) for name, about in about_of(queries).items()}


def _reads(about: Any) -> Any:
    """What decides how records become rows."""
    return None if about is None else {name: about.get(name) for name in ("edition", "query", "read", "unit")}


def _steps(log: LogReader, book: Book) -> tuple[int, dict[str, int]]:
    """(the last step of the log, the last one of each query)."""
    names, steps, last = {scope.number: scope.name for scope in book.alive}, dict[str, int](), 0
    for row in checked(log, log.rows()):
        last = row.last
        if row.kind == FINISHED:
            raise LogMismatch(
                f"the stream was finished at step {last}, and cannot be amended; begin a new one with another ledger, "
                "whose budget adds to this one's."
            )
        if row.kind in (PUSHED, HALTED):
            steps |= {names[number]: each.last for number, each in charges_of(row) if number in names}
    return last, steps


def _mechanisms(queries: Queries) -> Mapping[str, Mechanism]:
    """Each with the whole budget, of which the session gives it its share."""
    parts = (part for edition in queries.editions for part in edition)
    return {part.name: part_of(part.mechanism, 1 / part.share) for part in parts}


def _check(queries: Queries, log: LogReader, book: Book) -> None:
    """Refuse what no amendment may change, and a stream whose outputs lack releases: nobody could send them any more."""
    side_tables = SideTables(log, queries.ledger)
    try:
        readers = side_tables.note("readers") or {}
    finally:
        side_tables.close()
    told = min((state["commit"] for state in readers.values()), default=0)
    if any(row.kind in SAID for row in log.rows(told)):
        raise LogMismatch(
            "some output may lack releases; start the stream once with its earlier configuration, and stop it when all "
            "outputs have been written."
        )
    if len(queries.editions) > 1 or any(
        "edition" in (query["about"] or {}) for query in book.description["queries"].values()
    ):
        raise LogMismatch(EDITIONS)
    first = next(iter(book.description["queries"].values()))["about"] or {}
    now = next(iter(about_of(queries).values()))
    for part in FIXED:
        changed = difference(_without_count(first.get(part)), _without_count(now.get(part)), part)
        if changed is not None:
            raise LogMismatch(
                f"{changed[0]} cannot be amended, because windows would mean something else; put it back."
            )


def _without_count(described: Any) -> Any:
    """A clock without its lateness and the number of its steps, which may change."""
    if not isinstance(described, dict):
        return described
    return {name: value for name, value in described.items() if name not in ("count", "lateness")}
