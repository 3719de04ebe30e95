"""Amending a stream: other queries, columns, mechanisms, shares or another budget, from its next step on.

It stays on its account: what was charged stays in the windows. A window that straddles the change holds the smaller of
the promises in force at any of its steps; the ledger sees to that, and refuses until old charges have passed. A query
that changes begins anew with a run, tables and an output of its own; one that stays goes on as if nothing had happened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

from tidegate.config import Config, ConfigError, Queries
from tidegate.config.reader import line_of
from tidegate.errors import LedgerMismatch
from tidegate.exact import show
from tidegate.ingest.keeping import packed, unpacked
from tidegate.ledger.durable import DurableLedger
from tidegate.ledger.shares import Share
from tidegate.runtime.parts import (
    Amendment,
    amendments_of,
    check_amendments,
    create_tables,
    end_part,
    parts_of,
    put_amendment,
    put_part,
)
from tidegate.runtime.receipts import Receipt
from tidegate.runtime.store import Part, Position, Store, open_durable
from tidegate.runtime.stream import as_begun
from tidegate.runtime.streams import (
    as_amended,
    described_of,
    left_receipts,
    output_of,
    receipt_places,
    unit_of,
)

# what a policy says, and the key of [protect] that says it
_FIXED = {
    "policy": "policy",
    "w": "window",
    "horizon": "horizon",
    "adjacency": "adjacency",
    "mobility": "mobility",
    "delta": "delta",
}
_EDITIONS = (
    "a stream whose steps have editions cannot be amended, because these stand at different steps; begin a new stream "
    "with another ledger, whose budget adds to this one's."
)
# the same for the clock and [steps]
_CLOCK = {"origin": "start", "length": "length", "zone": "zone"}


@dataclass(frozen=True)
class Change:
    """What an amendment does to one query.

    Parameters
    ----------
    name
        The query.
    change
        "goes on", "begins anew", "begins" or "ends".
    output
        Where its releases go from now on; empty where it ends.
    silent_until
        The last step that may be silent, because windows hold charges from before; 0 where there is none.
    """

    name: str
    change: str
    output: str = ""
    silent_until: int = 0


@dataclass(frozen=True)
class Amended:
    """An amendment that was made.

    Parameters
    ----------
    step
        The first step that it is in force at.
    number
        The how many-th state of the stream it is.
    changes
        What becomes of each query.
    """

    step: int
    number: int
    changes: tuple[Change, ...]


def amend(queries: Queries) -> Amended:
    """Let a stream be what its configuration says now, from its next step on.

    Parameters
    ----------
    queries
        The changed configuration. Its ledger is that of the stream, which must not be running.
    """
    if queries.policy.window is None:
        raise _refusal(
            queries,
            "protect",
            "policy",
            "a promise for all steps together cannot be amended: what was charged stays in it for ever; begin a new "
            "stream with another ledger, whose budget adds to this one's.",
        )
    if len(queries.editions) > 1:
        raise _refusal(queries, "editions", "after", _EDITIONS)
    with open_durable(queries.ledger) as ledger:
        before = _Present(ledger)
        if any("edition" in part.described for part in before.parts):
            raise LedgerMismatch(f"in {ledger.where}, {_EDITIONS}")
        queries = as_amended(queries, before.parts)
        _check(queries, ledger, before)
        _check_receipts(queries, before)
        with ledger.transaction(), ledger.told():
            made = _made(queries, ledger, before)
        _follow(queries, ledger)
        return made


class _Present:
    """What a stream is before it is amended."""

    def __init__(self, ledger: DurableLedger) -> None:
        check_amendments(ledger, whole=False)
        self.amendments = amendments_of(ledger)
        self.parts = [part for part in parts_of(ledger) if part.until is None]
        self.last = max((part.number for part in parts_of(ledger)), default=0)
        if not self.parts:  # one query, never amended
            described = Store(ledger).described()
            if "steps" not in described:
                raise LedgerMismatch(
                    f"the ledger {ledger.where} was used from Python; amend it there, with Budget.amend."
                )
            self.parts = [Part(described=described)]
        self.stores = [Store(ledger, part=part) for part in self.parts]
        self.step = self.stores[0].progress.step
        self.position = self.stores[0].progress.position

    @property
    def of(self) -> dict[str, Part]:
        """The parts by their queries."""
        return {part.query: part for part in self.parts}


def _check(queries: Queries, ledger: DurableLedger, before: _Present) -> None:
    """Refuse what cannot be amended, with the line of the key."""
    if not before.step:
        raise LedgerMismatch(
            f"the stream in {ledger.where} has released nothing yet; remove its ledger and begin with the new "
            "configuration."
        )
    policy, now = ledger.policy.describe(), queries.policy.describe()
    for name, key in _FIXED.items():
        if str(policy.get(name)) != str(now.get(name)):
            raise _refusal(
                queries,
                "protect",
                key,
                f"{key} cannot be amended: the stream was begun with {policy.get(name)} and the file now says "
                f"{now.get(name)}; put it back, or begin a new stream with another ledger, whose budget adds to this "
                "one's.",
            )
    if ("rho" in policy and policy["rho"] is not None) != (queries.policy.rho is not None):
        raise _refusal(
            queries, "protect", "rho", "ε and ρ cannot be exchanged by an amendment; put back what was there."
        )
    described, wanted = before.parts[0].described, queries.first.describe()
    for name, key in _CLOCK.items():
        if described["steps"].get(name) != wanted["steps"].get(name):
            raise _refusal(
                queries,
                "steps",
                key,
                f"{key} cannot be amended, because all windows are counted by this clock; put it back, or begin a new "
                "stream with another ledger, whose budget adds to this one's.",
            )
    if described["unit"] != wanted["unit"]:
        raise _refusal(
            queries,
            "source",
            "unit",
            "unit cannot be amended, because the account is that of the units it was begun with; put it back, or begin "
            "a new stream with another ledger.",
        )
    begun = as_begun(queries.first).fingerprint if not queries.listed else queries.fingerprint
    present = before.amendments[-1].fingerprint if before.amendments else ledger.fingerprint
    if present in (begun, queries.fingerprint):
        raise _refusal(
            queries, "", "", "nothing is to be amended: the stream is what the configuration says already."
        )


def _check_receipts(queries: Queries, before: _Present) -> None:
    """Refuse a ledger that an output knows to be an older copy, and one that was put back and nothing vouches for."""
    missing = []
    for store in before.stores:
        for place in receipt_places(queries, store):
            receipt = Receipt(place, store)
            if not receipt.there:
                missing.append(receipt)
            elif not receipt.archived and receipt.check(str(place)):
                raise receipt.refuse(str(place))
    for receipt in left_receipts(queries, before.stores):
        if not receipt.archived:
            receipt.refuse_older(str(receipt.path))
    for receipt in missing:
        receipt.check(str(receipt.path))


def _follow(queries: Queries, ledger: DurableLedger) -> None:
    """Let all receipts know of an amendment, so that a copy from before it is refused."""
    parts = [part for part in parts_of(ledger) if part.until is None]
    for receipt in left_receipts(queries, [Store(ledger, part=part) for part in parts]):
        receipt.note()
        receipt.sync()
        receipt.close()


def _refusal(queries: Queries, section: str, key: str, sentence: str) -> ConfigError:
    try:
        text = queries.path.read_text(encoding="utf-8")
    except OSError:
        text = ""
    return ConfigError(queries.path.name, line_of(text, section, key) if section else None, sentence)


def _made(queries: Queries, ledger: DurableLedger, before: _Present) -> Amended:
    """Make an amendment; only inside of a transaction."""
    create_tables(ledger)
    now = before.step
    if ledger.step < now:  # steps that cost nothing
        (before.stores[0].account).charge(now, 0)
    views: dict[str, Share] = {name: ledger.share(name) for name in ledger.shares}
    units = {part.number: unit_of(ledger, part) for part in before.parts}
    ledger.divide(queries.shares, budget=queries.budget, configuration=queries.fingerprint)
    # what a stream with one query was begun with is the first, and has no row of its own
    number = (before.amendments[-1].number if before.amendments else 1) + 1
    put_amendment(ledger, Amendment(number, ledger.rows, now, queries.fingerprint, queries.describe()))
    position = _plain(before.position, now)
    changes, last = [], before.last
    for config in queries.parts:
        part, described = before.of.get(config.name), described_of(config)
        stays = part is not None and part.described == described and views[config.name].current
        if part is not None and stays:
            changes.append(Change(config.name, "goes on", _output(config, part, queries)))
            continue
        last += 1
        share = ledger.share(config.name)
        crowded = share.crowded_until if _crowded(share) else 0
        begun = Part(last, config.name, now, crowded=crowded, described=described)
        put_part(ledger, begun)
        Store(ledger, described, begun, position)
        known = part is not None or not before.amendments
        changes.append(
            Change(
                config.name,
                "begins anew" if known else "begins",
                _output(config, begun, queries),
                max(crowded - 1, now) if crowded else 0,
            )
        )
    going = {change.name for change in changes if change.change == "goes on"}
    for part in before.parts:
        if part.query not in going:
            end_part(ledger, part, now, units[part.number])
        if part.query and part.query not in queries.shares:
            changes.append(Change(part.query, "ends"))
    _recode(before, queries)
    return Amended(now + 1, number, tuple(changes))


def _plain(position: Position | None, step: int) -> Position:
    """Where in the source a new part begins: nothing of it is about releases."""
    return {"step": step, "source": (position or {}).get("source")}


def _crowded(share: Share) -> bool:
    """Whether windows that reach into the future hold charges, or a smaller promise."""
    return (
        share.spent() > 0 or share.query.straddling < share.query.amount or len(share._account.groups()) > 0
    )


def _output(config: Config, part: Part, queries: Queries) -> str:
    from tidegate.errors import without_secrets

    placed = output_of(config, part, listed=queries.listed)
    return without_secrets(placed.locate(placed.sink.location))


# rows of open steps that a broker cannot hand out again -----------------------------------------------------


@dataclass(frozen=True)
class _Place:
    """Where among the columns of kept rows those of one query lie, and what they count."""

    begin: int
    end: int
    valued: bool
    counted: str


def _places(described: Mapping[str, Mapping[str, Any]], *, alone: bool) -> dict[str, _Place]:
    """The places of all queries, in the order in which an intake puts them."""
    found, begin = {}, 0
    for name in sorted(described):
        facts = described[name]
        read = facts.get("read", {"places": 0, "values": True})
        counted = json.dumps([facts["query"], read.get("column"), read.get("value")], sort_keys=True)
        if alone:
            return {name: _Place(-1, 2**31 - 1, read["values"], counted)}
        found[name] = _Place(begin, begin + read["places"], read["values"], counted)
        begin += read["places"]
    return found


def _recode(before: _Present, queries: Queries) -> None:
    """Let rows of open steps be those of the queries that count what they counted; others begin with what arrives."""
    keeper = before.stores[0].kept
    entries = [(step, unpacked(content)) for step, content in keeper.entries() if step > before.step]
    if not entries:
        return
    single = len(before.parts) == 1 and (
        not before.parts[0].query or "queries" not in before.amendments[-1].described
    )
    known = {part.query: part.described for part in before.parts}
    old = _places(known, alone=single)
    new = _places({part.name: described_of(part) for part in queries.parts}, alone=not queries.listed)
    any_values = any(place.valued for place in new.values())
    pieces: list[tuple[int, bytes]] = []
    for step, rows in entries:
        parts = [
            _moved(rows, earlier, place, any_values)
            for name, place in new.items()
            if (earlier := _earlier(old, name, place, single)) is not None
        ]
        if parts:
            joined = pl.concat(parts).sort("time", maintain_order=True)
            pieces += packed(joined, np.full(len(joined), step, dtype=np.int64))
    keeper.exchange(pieces)


def _earlier(old: Mapping[str, _Place], name: str, place: _Place, single: bool) -> _Place | None:
    """The ONE query whose rows another one goes on with: that of its name, or else any that counts the same."""
    same = {
        known: earlier
        for known, earlier in old.items()
        if earlier.counted == place.counted or (single and _same_query(earlier, place))
    }
    return same.get(name) or next(iter(same.values()), None)


def _same_query(earlier: _Place, place: _Place) -> bool:
    """Whether a query that was described before columns of the input were counts the same."""
    return bool(json.loads(earlier.counted)[0] == json.loads(place.counted)[0])


def _moved(rows: pl.DataFrame, earlier: _Place, place: _Place, any_values: bool) -> pl.DataFrame:
    """The rows of a query, in another place."""
    own = rows.filter((pl.col("column") >= earlier.begin) & (pl.col("column") < earlier.end))
    own = own.with_columns((pl.col("column") + (place.begin - earlier.begin)).cast(pl.Int32))
    if any_values and "value" not in own.columns:
        own = own.with_columns(pl.lit(0, dtype=pl.Int64).alias("value"))
    if not any_values and "value" in own.columns:
        own = own.drop("value")
    return own.select([name for name in ("time", "unit", "value", "column") if name in own.columns])


# words ------------------------------------------------------------------------------------------------------


def told_of(ledger: DurableLedger) -> list[str]:
    """Which queries share the account, and how the stream was amended; nothing where it has one query."""
    amendments = amendments_of(ledger)
    if not amendments:
        return []
    found = [
        f"{name} has {show(share)} of the budget: {show(ledger.share(name).query.amount)} in every window."
        for name, share in ledger.shares.items()
    ]
    earlier = [part for part in parts_of(ledger) if part.until is not None]
    before = _promise(earlier[0].described) if earlier else None
    for amendment in amendments:
        promised = _promise(amendment.described)
        if amendment.step:
            other = " What was released before was promised something else." if promised != before else ""
            found.append(
                f"Amended from step {amendment.step + 1:,} on: {_in_words(amendment.described)}.{other}"
            )
        before = promised
    for part in earlier:
        name = part.query or "the one query that the stream was begun with"
        steps = f"steps {part.since + 1:,} to {part.until:,}"
        mechanism = part.described["mechanism"]
        budget = _budget(mechanism["policy"])
        found.append(f"Before that, {name} was released by {mechanism['mechanism']} with {budget}, {steps}.")
    if any(amendment.step for amendment in amendments):
        found.append(
            "Windows that straddle an amendment hold the smaller of the budgets in force at any of their steps, and "
            "everything that was charged before counts in them."
        )
    return found


def _promise(described: Mapping[str, Any]) -> dict[str, Any]:
    """What people are promised, without what follows from the query: by how much a unit changes a step."""
    policy = described["mechanism"]["policy"] if described.get("queries") is None else described["policy"]
    return {
        name: value for name, value in policy.items() if name not in ("max_change", "touches", "mobility")
    }


def _in_words(described: Mapping[str, Any]) -> str:
    queries = described.get("queries")
    if queries is None:
        return f"one query, by {described['mechanism']['mechanism']}, {_budget(described['mechanism']['policy'])}"
    each = [
        f"{name} with {show(Fraction(facts['share']))} by {facts['mechanism']['mechanism']}"
        for name, facts in queries.items()
    ]
    return f"{_budget(described['policy'])} for {', '.join(each)}"


def _budget(policy: Mapping[str, Any]) -> str:
    name = "epsilon" if policy.get("rho") is None else "rho"
    return f"{'ε' if name == 'epsilon' else 'ρ'} = {show(Fraction(policy[name]))}"
