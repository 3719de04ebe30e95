"""The parts and amendments of a stream: which query was at work from which step on, in the ledger's own database.

Every amendment stands in the ledger's chain of hashes as well, as a row that names the configuration by its fingerprint.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import zip_longest
from typing import Any

from tidegate.config.config import fingerprint_of
from tidegate.config.queries import ONLY
from tidegate.errors import LedgerCorrupt
from tidegate.ledger.durable import DurableLedger
from tidegate.ledger.rows import decode_text
from tidegate.runtime.store import Part

TABLES = {
    "parts": "CREATE TABLE IF NOT EXISTS parts (part {integer} PRIMARY KEY, query TEXT NOT NULL, "
    "since {integer} NOT NULL, until {integer}, crowded {integer} NOT NULL, unit TEXT, described TEXT NOT NULL)",
    "amendments": "CREATE TABLE IF NOT EXISTS amendments (number {integer} PRIMARY KEY, charge {integer} NOT NULL, "
    "step {integer} NOT NULL, fingerprint TEXT NOT NULL, described TEXT NOT NULL)",
}


@dataclass(frozen=True)
class Amendment:
    """What a stream is from a step on.

    Parameters
    ----------
    number
        1 for what it was begun with, if that was several queries.
    charge
        The row of the ledger that says so.
    step
        The last step before it is in force.
    fingerprint, described
        The configuration: a digest, and as JSON.
    """

    number: int
    charge: int
    step: int
    fingerprint: str
    described: dict[str, Any]


def parts_of(ledger: DurableLedger) -> list[Part]:
    """All parts of a stream in the order in which they began; none where it has one query and was never amended."""
    found = _rows(
        ledger, "SELECT part, query, since, until, crowded, unit, described FROM parts ORDER BY part"
    )
    try:
        return [
            Part(
                number,
                query,
                since,
                until,
                crowded,
                None if unit is None else Fraction(unit),
                dict(json.loads(text)),
            )
            for number, query, since, until, crowded, unit, text in found
        ]
    except (ValueError, TypeError, ZeroDivisionError):
        raise _damaged() from None


def amendments_of(ledger: DurableLedger) -> list[Amendment]:
    """Everything that the stream was, from the first on."""
    found = _rows(
        ledger, "SELECT number, charge, step, fingerprint, described FROM amendments ORDER BY number"
    )
    try:
        return [
            Amendment(number, charge, step, fingerprint, dict(json.loads(text)))
            for number, charge, step, fingerprint, text in found
        ]
    except (ValueError, TypeError):
        raise _damaged() from None


def check_amendments(ledger: DurableLedger, *, whole: bool = True) -> None:
    """Refuse amendments that the ledger's chain does not have, and parts that they do not lead to.

    Parameters
    ----------
    ledger
        Where they stand.
    whole
        Whether to look through the whole chain for amendments that are missing.
    """
    amendments, base = amendments_of(ledger), ledger.base()
    archived = 0 if base is None else base.row
    if base is not None and base.facts.get("amended", "") != amendments_digest(ledger, base.at):
        raise _damaged()
    for amendment in amendments:
        wanted = "SELECT detail FROM charges WHERE row = ? AND kind = 'amend'"
        with ledger.told():
            found = ledger.connection.execute(wanted, (amendment.charge,)).fetchone()
        facts = {} if found is None else decode_text(bytes(found[0]))
        said = (facts.get("configuration"), facts.get("now"))
        kept = amendment.charge > archived and said != (amendment.fingerprint, amendment.step)
        if kept or fingerprint_of(amendment.described) != amendment.fingerprint:
            raise LedgerCorrupt(
                f"amendment {amendment.number} is not that of row {amendment.charge}; restore the ledger from a backup."
            )
    numbers = [amendment.number for amendment in amendments]
    first = 1 if amendments and not amendments[0].step else 2  # what one query was begun with has no row
    if numbers != list(range(first, first + len(numbers))):
        raise _damaged()
    if whole:
        _check_chain(ledger, {each.charge for each in amendments if each.charge > archived})
    _check_parts(parts_of(ledger), amendments)


def amendments_digest(ledger: DurableLedger, until: int | None = None) -> str:
    """Stands for all amendments that rows of the ledger up to one have made; empty where there are none."""
    found = [
        [each.number, each.charge, each.step, each.fingerprint]
        for each in amendments_of(ledger)
        if until is None or each.charge < until
    ]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest() if found else ""


def _check_chain(ledger: DurableLedger, known: set[int]) -> None:
    """Refuse a chain that says more about configurations than the amendments do."""
    with ledger.told():
        rows = ledger.connection.execute("SELECT row, detail FROM charges WHERE kind = 'amend'").fetchall()
    for row, detail in rows:  # shares that were changed from Python have no configuration
        if row not in known and "configuration" in decode_text(bytes(detail)):
            raise LedgerCorrupt(
                f"the amendment that row {row} speaks of is missing; restore the ledger from a backup."
            )


def _check_parts(parts: Sequence[Part], amendments: Sequence[Amendment]) -> None:
    """Refuse parts that are not those of the queries that were in force after each amendment."""
    numbers = [part.number for part in parts]
    if not amendments:
        if parts:
            raise _damaged()
        return
    first = 1 if not amendments[0].step else 0  # the one query that the stream was begun with
    steps = {0, *(amendment.step for amendment in amendments)}
    if numbers != list(range(first, first + len(numbers))) or any(
        part.since not in steps
        or part.until not in {None, *steps}
        or (part.until is None) != (part.unit is None)  # the ledger knows that of a part at work
        for part in parts
    ):
        raise _damaged()
    for amendment, following in zip_longest(amendments, amendments[1:]):
        if following is not None and following.step == amendment.step:  # it was never at work
            continue
        step = amendment.step
        at_work = [part for part in parts if part.since <= step and (part.until is None or part.until > step)]
        queries = amendment.described.get("queries", {ONLY: amendment.described})
        found = {part.query: _without(part.described, "read") for part in at_work}
        wanted = {name: _without(facts, "share", "column", "value") for name, facts in queries.items()}
        if len(at_work) != len(wanted) or found != wanted:
            raise _damaged()


def _without(facts: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in names}


def create_tables(ledger: DurableLedger) -> None:
    """Make room for parts; only inside of a transaction."""
    for table in TABLES.values():
        ledger.connection.execute(table.format_map(ledger.types))


def put_part(ledger: DurableLedger, part: Part) -> None:
    """Keep a part, or what it is now; only inside of a transaction."""
    described = json.dumps(part.described, sort_keys=True, ensure_ascii=False)
    unit = None if part.unit is None else str(part.unit)
    ledger.connection.execute(
        "INSERT INTO parts VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (part) "
        "DO UPDATE SET until = excluded.until, unit = excluded.unit",
        (part.number, part.query, part.since, part.until, part.crowded, unit, described),
    )


def end_part(ledger: DurableLedger, part: Part, step: int, unit: Fraction) -> Part:
    """Let a part end with a step; only inside of a transaction."""
    ended = replace(part, until=step, unit=unit)
    put_part(ledger, ended)
    return ended


def put_amendment(ledger: DurableLedger, amendment: Amendment) -> None:
    """Keep an amendment; only inside of a transaction."""
    described = json.dumps(amendment.described, sort_keys=True, ensure_ascii=False)
    facts = (amendment.number, amendment.charge, amendment.step, amendment.fingerprint, described)
    ledger.connection.execute("INSERT INTO amendments VALUES (?, ?, ?, ?, ?)", facts)


def _rows(ledger: DurableLedger, statement: str) -> list[Any]:
    try:
        with ledger.told():
            return list(ledger.connection.execute(statement).fetchall())
    except LedgerCorrupt as error:
        if "no such table" in str(error) or "lacks a table" in str(error):
            return []
        raise


def _damaged() -> LedgerCorrupt:
    return LedgerCorrupt("what is stored of the stream's parts is damaged; restore the ledger from a backup.")
