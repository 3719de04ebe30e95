"""Amendments: a running stream gets the queries, shares and budget that its configuration has now.

Queries that changed end, and begin again as scopes of their own, with outputs of their own. They are silent while windows
hold what the ended ones have read; `plan` says for how long, and writes nothing. The clock and the protected unit never
change: another step or another unit would make a window mean something else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tidegate.config import Queries
from tidegate.core.commit import AMENDED, OPENED
from tidegate.core.errors import LogMismatch
from tidegate.core.log import Log
from tidegate.core.mechanism import Mechanism
from tidegate.core.scope import Amendment, part_of
from tidegate.core.session import Session, plan_amendment
from tidegate.pipeline.logs import open_log
from tidegate.pipeline.mechanisms import on_core
from tidegate.pipeline.reading import about_of, difference
from tidegate.pipeline.spool import Spool

FIXED = ("steps", "unit")  # of what is said about a query


def plan(queries: Queries) -> Amendment:
    """What `amend` would do: which queries continue, which begin at which step, which end."""
    log = open_log(queries.ledger)
    try:
        _check(queries, log)
        return plan_amendment(_mechanisms(queries), log, shares=queries.shares, about=about_of(queries))
    finally:
        log.close()


def amend(queries: Queries) -> Amendment:
    """Amend the stream of a configuration, which must not be running; returns what was done."""
    found = plan(queries)
    log = open_log(queries.ledger)
    try:
        Session(_mechanisms(queries), log, shares=queries.shares, about=about_of(queries), amend=True).close()
    finally:
        log.close()
    return found


def _mechanisms(queries: Queries) -> Mapping[str, Mechanism]:
    """Each with the whole budget, of which the session gives it its share."""
    parts = (part for edition in queries.editions for part in edition)
    return {part.name: part_of(on_core(part.mechanism), 1 / part.share) for part in parts}


def _check(queries: Queries, log: Log) -> None:
    """Refuse what no amendment may change, and a stream whose outputs lack releases: nobody could send them any more."""
    before: dict[str, Any] = {}
    for row in log.rows():
        if row.kind in (OPENED, AMENDED):
            described = json.loads(row.charges)["description"]["queries"]
            before = {name: query["about"] for name, query in described.items()}
    if not before:
        raise LogMismatch("the log has no stream to amend; start it first.")
    spool = Spool(log, queries.ledger)
    try:
        readers, loaded = spool.note("readers") or {}, log.load()
    finally:
        spool.close()
    assert loaded is not None
    told = [state["commit"] for state in readers.values()]
    if loaded.row.last and (not told or min(told) <= loaded.row.number):
        raise LogMismatch(
            "some output may lack releases; start the stream once with its earlier configuration, and stop it when all "
            "outputs have been written."
        )
    first, now = next(iter(before.values())), next(iter(about_of(queries).values()))
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
