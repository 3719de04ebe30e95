"""Several statistics of one stream under one budget: ``[[query]]`` several times in one file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from tidegate.clock.durations import seconds
from tidegate.config.answer_reader import read_answers
from tidegate.config.config import Config, fingerprint_of
from tidegate.config.errors import ConfigError
from tidegate.config.file_conflicts import check_places
from tidegate.config.keys import EditionsKeys, ListedQueryKeys, ProtectKeys, QueryKeys, SinkKeys, StepsKeys
from tidegate.config.reader import FileReader, one_of, read_config, read_text
from tidegate.config.unsupported import DISCOVER
from tidegate.errors import InvalidParameter
from tidegate.exact import exact, positive, show
from tidegate.ingest import CombinedQuery, Intake, Query
from tidegate.policy import Policy
from tidegate.servers.kafka import is_topic
from tidegate.servers.postgres import is_table

ONLY = "query"  # the name of the query of a file that has one
AUTO = "auto"
SERVED = "serve:"  # the location of a source whose events are sent to the service
FINEST = 1000  # into how many parts the budget is divided by share = "auto"
LONGEST_NAME = 40
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{LONGEST_NAME - 1}}}")
MOST_EDITIONS = 8


@dataclass(frozen=True)
class Queries:
    """A checked configuration with one query or several.

    Parameters
    ----------
    parts
        A configuration for each query, as if it were alone, with its part of the budget. They share source, clock and
        ledger.
    policy
        What is protected by all of them together.
    listed
        Whether the file says ``[[query]]``.

    Examples
    --------
    >>> from tidegate.config.document import SEVERAL
    >>> queries = parse_queries(SEVERAL)
    >>> [f"{part.name}: ε = {part.policy.epsilon}" for part in queries.parts]
    ['orders: ε = 1/4', 'customers: ε = 1/4', 'revenue: ε = 1/2']
    """

    parts: tuple[Config, ...]
    policy: Policy
    listed: bool

    @property
    def first(self) -> Config:
        """The first of the parts; what all of them share can be asked of it."""
        return self.parts[0]

    @property
    def editions(self) -> list[list[Config]]:
        """The parts of each edition of a step, in the order in which they are released; one where there are none.

        Each by the names of its queries: rows that are stored must be understood when the file has another order.
        """
        found: dict[int, list[Config]] = {}
        for part in sorted(self.parts, key=lambda part: part.name.removesuffix(part.edition)):
            found.setdefault(part.later, []).append(part)
        return [found[later] for later in sorted(found, reverse=True)]

    @property
    def path(self) -> Path:
        """The file it was read from."""
        return self.first.path

    @property
    def ledger(self) -> str:
        """Where ledger, states and positions are kept."""
        return self.first.ledger

    @property
    def shares(self) -> dict[str, Fraction]:
        """The part of the budget that each query has."""
        return {part.name: part.share for part in self.parts}

    @property
    def budget(self) -> Fraction:
        """What a window may spend: ε or ρ."""
        return self.policy.budget.total

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the guarantee rests on outside of this program."""
        return self.first.assumptions

    @property
    def guarantee(self) -> str:
        """What is promised of all queries together."""
        if not self.listed:
            return str(self.first.guarantee)
        each = ", ".join(
            f"{part.name} by {type(part.mechanism).__name__} with a share of {show(part.share)}, where a unit changes a "
            f"step by at most {show(Fraction(part.policy.max_change))}"
            for part in self.parts
        )
        window = self.policy.window
        if self.first.trailing and window is not None:
            each += f"; units count over several steps, so the account of every query has windows of {window} steps"
        clauses = dict.fromkeys(clause for part in self.parts for clause in part.guarantee.assumptions)
        return (
            f"All queries together are {self.budget_in_full} for {self.protected} ({self.policy.name}): {each}. "
            f"It assumes that {'; that '.join(clauses)}."
        )

    @property
    def budget_in_full(self) -> str:
        """The budget of all queries, as a guarantee says it."""
        return str(self.policy.budget)

    @property
    def protected(self) -> str:
        """What is protected, without by how much it changes a value: that is each query's own."""
        return self.first.protects(self.policy).partition(":")[0]

    def part(self, name: str) -> Config:
        """The configuration of one query."""
        for part in self.parts:
            if part.name == name:
                return part
        names = ", ".join(part.name for part in self.parts)
        raise InvalidParameter("query", name, f"one of {names}", f"write {self.first.name}")

    def describe(self) -> dict[str, Any]:
        """What changes only by an amendment while a stream runs, as JSON."""
        if not self.listed:
            return self.first.describe()
        queries = {
            part.name: {"share": str(part.share), **part.describe(), **_read_from(part)}
            for part in self.parts
        }
        return {"policy": self.policy.describe(), "queries": queries}

    @cached_property
    def fingerprint(self) -> str:
        """A digest of :meth:`describe`."""
        return fingerprint_of(self.describe())

    def open(
        self,
        position: dict[str, Any] | None = None,
        *,
        follow: bool | None = None,
        clock: Callable[[], float] | None = None,
        once: bool = False,
    ) -> Intake:
        """The one intake of all queries: the source is read once; parameters as for :meth:`Config.open`."""
        *earlier, last = self.editions
        clocks = [edition[0].steps for edition in earlier]
        return last[0].open(
            position, follow=follow, clock=clock, once=once, counted=self.counted, earlier=clocks
        )

    @property
    def counted(self) -> Query | CombinedQuery:
        """What the source is read for: the only query, or all of them."""
        if not self.listed:
            return self.first.query
        return CombinedQuery(tuple((part.schema, part.query) for part in self.editions[-1]))


def _read_from(part: Config) -> dict[str, Any]:
    """The columns of the input that a query reads, where they make a difference."""
    used = part.query.aggregate in ("sum", "mean", "histogram", "quantile", "given")
    return {"column": part.schema.column, "value": part.schema.value if used else None}


def read_query(path: str | Path, name: str | None = None, *, follow: bool = False) -> Config:
    """Read a configuration file of which one query is wanted, by its name where there are several."""
    if name is None:
        return read_config(path, follow=follow)
    return read_queries(path, follow=follow).part(name)


def read_queries(path: str | Path, *, follow: bool = False) -> Queries:
    """Read and check a configuration file with one query or several; `follow` as for `read_config`.

    Parameters
    ----------
    path, follow
        As for `read_config`.

    Examples
    --------
    >>> read_queries("nowhere.toml")
    Traceback (most recent call last):
    tidegate.config.errors.ConfigError: ...
    """
    file, text = read_text(path)
    return parse_queries(text, file, follow=follow)


def parse_queries(text: str, path: str | Path = "tidegate.toml", *, follow: bool = False) -> Queries:
    """Check the text of a configuration file with one query or several.

    Parameters
    ----------
    text, path, follow
        As for `parse_config`.

    Examples
    --------
    >>> from tidegate.config.document import EXAMPLE
    >>> len(parse_queries(EXAMPLE).parts)
    1
    """
    reader = FileReader(text, Path(path), follow)
    found = reader.load()
    several = isinstance(found.get("query"), list)
    if not several and "editions" not in found:
        return one(reader.interpret(found))
    if not several:
        found = _listed(reader, found)
    listed = found["query"]
    if not all(isinstance(each, dict) for each in listed):
        raise reader.fail("'query' must be sections; write [[query]] for each.", "", "query")
    readers = [
        _PartReader(
            one_of(text, "query", index, own_mechanism=bool(each.get("mechanism"))) if several else text,
            Path(path),
            follow,
            found,
            each,
        )
        for index, each in enumerate(listed)
    ]
    _check_names(readers)
    shares = _divided(readers)
    editions = read_editions(readers[0])
    built = [
        (each, each.built(share, edition, alone=not several))
        for each, share in zip(readers, shares, strict=True)
        for edition in editions
    ]
    named = {part.name: part for _, part in built}
    parts = tuple(replace(part, answers=read_answers(each, found, part, named)) for each, part in built)
    kinds = {part.query.aggregate == "given" for part in parts}
    if len(kinds) > 1:
        given = next(each for each in readers if each.keys.aggregate == "given")
        raise given.fail(
            'aggregate = "given" is refused beside queries that count records: a row is a reading or an event, and not '
            "both; give it a file of its own.",
            "query",
            "aggregate",
        )
    for each, part in built:
        if part.edition and part.query.over > 1:
            raise each.fail("over is refused where there are editions; drop one of the two.", "query", "over")
        if part.edition and part.query.aggregate == "given" and part.query.fill is None:
            raise each.fail(
                "fill is needed where there are editions, because readings that come late are missing at first; write "
                'fill = "zero", or fill = "missing" if it may be known which readings there are.',
                "query",
                "fill",
            )
    whole = readers[0].whole()
    parts = tuple(replace(part, whole=whole) for part in parts)
    check_places(reader, parts)
    return Queries(parts, whole, listed=True)


def one(config: Config) -> Queries:
    """A configuration with one query."""
    return Queries((replace(config, name=ONLY),), config.policy, listed=False)


def _listed(reader: FileReader, found: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of a file with one query, as if it were the only one of a list."""
    query, protect = found.get("query", {}), found.get("protect", {})
    if not isinstance(query, dict) or not isinstance(protect, dict):
        reader.sections(dict(found))  # which says what is wrong
        raise AssertionError
    reader.section("query", QueryKeys, [item.name for item in fields(QueryKeys)], query)
    moved = {name: protect[name] for name in ("max_change", "touches") if name in protect}
    own = {"sum_share" if name == "share" else name: value for name, value in query.items()}
    rest = {name: value for name, value in protect.items() if name not in moved}
    return {**found, "protect": rest, "query": [{"name": ONLY, **moved, **own}]}


class _PartReader(FileReader):
    """Reads one of several queries, as if the file had no other; refusals name the line of its own keys."""

    def __init__(
        self, text: str, path: Path, follow: bool, found: Mapping[str, Any], own: Mapping[str, Any]
    ) -> None:
        super().__init__(text, path, follow)
        self.own = dict(own)
        listed = found["query"] if isinstance(found.get("query"), list) else [own]
        overs = [each.get("over") for each in listed]
        self.overs = tuple(
            each for each in overs if isinstance(each, int | str) and not isinstance(each, bool)
        )
        self.moved = {name for name in ("column", "value") if name in own}
        given = {name: value for name, value in own.items() if name != "mechanism"}
        known = [item.name for item in fields(ListedQueryKeys)]
        self.keys: ListedQueryKeys = self.section("query", ListedQueryKeys, known, given)
        named = own.get("mechanism")
        if named is not None and not isinstance(named, str | dict):
            raise self.fail(
                'mechanism must be a name or the table [query.mechanism]; write mechanism = "Tide".',
                "query",
                "mechanism",
            )
        self.named = isinstance(named, str)
        sections = dict(found) | {"query": {}}
        if named is not None:
            sections["mechanism"] = {"name": named} if self.named else named
        self.all, self.extra = self.sections(sections)
        protect: ProtectKeys = self.all["protect"]
        for name in ("max_change", "touches"):
            if getattr(protect, name) is not None:
                raise super().fail(f"{name} belongs to each [[query]]; move it there.", "protect", name)
        finds = any(each.get("columns") == DISCOVER for each in listed)
        editions: EditionsKeys = self.all["editions"]
        if finds and editions.after:
            raise self.fail(
                "editions are refused where categories are found, which are tested once per epoch; drop the section, or "
                "list the columns.",
                "editions",
                "after",
            )
        if str(protect.delta) != "0" and not finds:
            raise self.fail(
                "(ε, δ) is not divided among queries or editions, because parts of it have more noise than parts of ρ, "
                "and what a part of a window costs is no part of ε; drop delta, or write rho, which is divided exactly "
                "and implies an (ε, δ) that `tidegate plan` names.",
                "protect",
                "delta",
            )
        if protect.requirements is not None:
            raise self.fail(
                "requirements of units are not divided among queries or editions; give them one [query].",
                "protect",
                "requirements",
            )
        if protect.policy == "swellfish":
            raise self.fail(
                "the budgets of secrets are not divided among queries or editions; give this policy one [query].",
                "protect",
                "policy",
            )

    def fail(self, sentence: str, section: str = "", name: str = "") -> ConfigError:
        """A refusal, with the line of the key that was written."""
        if (section == "source" and name in self.moved) or name in ("max_change", "touches"):
            section = "query"
        if section == "mechanism" and self.named:
            section, name = "query", "mechanism"
        return super().fail(sentence, section, name)

    @property
    def own_column(self) -> bool:
        """Whether the column of the category is written for this query; that of [source] may be for another."""
        return "column" in self.moved or self.name == ONLY

    @property
    def name(self) -> str:
        """The query's name."""
        return self.keys.name

    def whole(self) -> Policy:
        """What is protected by all queries together; by how much one unit changes a value is each query's own."""
        protect, clock = self.all["protect"], self.built(Fraction(1)).steps
        return self.make("protect", lambda: self.policy_of(protect, Fraction(1), clock))

    def built(self, share: Fraction, edition: Edition | None = None, *, alone: bool = False) -> Config:
        """The configuration of this query, or of an edition of it, with its share of the budget."""
        keys, name, clock, later = self.keys, self.keys.name, self.all["steps"], 0
        if edition is not None:
            share, later = share * edition.share, edition.later
            name = edition.name if alone else f"{name}-{edition.name}"
            clock = replace(clock, lateness=edition.after)
        own = {item.name: getattr(keys, item.name) for item in fields(QueryKeys)}
        query = QueryKeys(**own | {"share": keys.sum_share})
        source = replace(
            self.all["source"],
            column=keys.column or self.all["source"].column,
            value=keys.value or self.all["source"].value,
        )
        protect: ProtectKeys = self.all["protect"]
        amounts: dict[str, Any] = {
            name: str(share * self.make("protect", lambda name=name: exact(name, getattr(protect, name))))  # type: ignore[misc]
            for name in ("epsilon", "rho")
            if getattr(protect, name) is not None
        }
        delta = share * self.make("protect", lambda: exact("delta", protect.delta))
        protect = replace(
            protect, max_change=keys.max_change, touches=keys.touches, delta=str(delta), **amounts
        )
        about = replace(self.all["about"], counted=keys.counted)
        sink = replace(self.all["sink"], location=self.sink_of(self.all["sink"], name))
        sections = {
            **self.all,
            "steps": clock,
            "query": query,
            "source": source,
            "protect": protect,
            "about": about,
            "sink": sink,
        }
        edited = "" if edition is None else edition.name
        found = self.build(sections, self.extra)
        return replace(found, name=name, share=share, edition=edited, later=later)

    def sink_of(self, keys: SinkKeys, name: str) -> str:
        """Where the releases of this query go: a file, a topic or a place of its own."""
        location = keys.location
        if "{query}" in location:
            return location.replace("{query}", name)
        if location == "-" and self.all["source"].location == SERVED:  # its readers come to the service
            return location
        if location == "-":
            raise self.fail(
                'several queries or editions do not share standard output; write location = "released.csv" in [sink], '
                f"from which each gets a file of its own, such as released-{name}.csv.",
                "sink",
                "location",
            )
        if location.startswith(("mqtt:", "mqtts:")):
            return f"{location.rstrip('/')}/{name}"
        if is_topic(location):
            place, _, rest = location.partition("?")
            return f"{place}-{name}" + (f"?{rest}" if rest else "")
        if is_table(location):  # one table has the rows of all
            return f"{location}&query={name}"
        if "://" in location:
            raise self.fail(
                "each query needs a place of its own in location; write {query} where its name belongs.",
                "sink",
                "location",
            )
        if location.endswith("/"):
            return f"{location}{name}/"
        path = Path(location)
        return str(path.with_name(f"{path.stem}-{name}{path.suffix}"))

    def weight(self) -> Fraction:
        """How much budget this query needs beside others, from public keys: noise by what is tolerable."""
        keys, config = self.keys, self.built(Fraction(1))
        if config.query.learn is not None:  # what a unit changes is not known yet
            return Fraction(1)
        change = Fraction(config.policy.step_sensitivity(config.query.width))
        tolerable: Any = keys.target if keys.target is not None else keys.level
        if tolerable is None:
            return Fraction(1)
        name = "target" if keys.target is not None else "level"
        found = self.make("query", lambda: positive(name, str(tolerable)))
        return change / found


@dataclass(frozen=True)
class Edition:
    """One of several releases of every step.

    Parameters
    ----------
    name
        "final" for the last, and "provisional" before it; with a number where there are several.
    after
        Seconds after the end of a step.
    share
        Its part of the budget.
    later
        How many more follow.
    """

    name: str
    after: int
    share: Fraction
    later: int


def read_editions(reader: _PartReader) -> Sequence[Edition | None]:
    """The editions of every step, checked; one that is none where the file has no section for them."""
    keys: EditionsKeys = reader.all["editions"]
    clock: StepsKeys = reader.all["steps"]
    if not keys.after and not keys.shares:
        return (None,)
    if not 2 <= len(keys.after) <= MOST_EDITIONS:
        raise reader.fail(
            f'after must have 2 to {MOST_EDITIONS} durations; write for example after = ["1h", "48h"].',
            "editions",
            "after",
        )
    if clock.lateness not in (0, "0"):
        raise reader.fail(
            "lateness must be absent where there are editions, each of which has its own; drop it.",
            "steps",
            "lateness",
        )
    zone = clock.zone
    after = [
        reader.make("editions", lambda each=each: seconds("after", _number(each), least=0, zone=zone))  # type: ignore[misc]
        for each in keys.after
    ]
    if any(later <= earlier for earlier, later in pairwise(after)):
        raise reader.fail("after must increase; put the durations in order.", "editions", "after")
    given = keys.shares or [Fraction(1, len(after))] * len(after)
    shares = [reader.make("editions", lambda each=each: positive("shares", each)) for each in given]  # type: ignore[misc]
    if len(shares) != len(after) or sum(shares) > 1:
        raise reader.fail(
            f"shares must be {len(after)} positive numbers, one for each edition, and at most 1 together; write for "
            'example shares = ["1/3", "2/3"].',
            "editions",
            "shares",
        )
    last = len(after) - 1
    return [
        Edition(
            "final" if number == last else "provisional" if last == 1 else f"provisional-{number + 1}",
            seconds_after,
            share,
            last - number,
        )
        for number, (seconds_after, share) in enumerate(zip(after, shares, strict=True))
    ]


def _number(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _check_names(readers: Sequence[_PartReader]) -> None:
    seen: set[str] = set()
    for reader in readers:
        if not _NAME.fullmatch(reader.name):
            raise reader.fail(
                f"name must be at most {LONGEST_NAME} letters, digits, - and _, and begin with a letter or a digit; "
                'write for example name = "orders".',
                "query",
                "name",
            )
        if reader.name in seen:
            raise reader.fail(
                f"there are two queries with the name {reader.name!r}; rename one.", "query", "name"
            )
        seen.add(reader.name)


def _divided(readers: Sequence[_PartReader]) -> list[Fraction]:
    """The share of each query; those that say auto divide what the others leave."""
    said: list[Fraction | None] = []
    for reader in readers:
        share = reader.keys.share
        if share == AUTO:
            said.append(None)
        else:
            said.append(reader.make("query", lambda share=share: positive("share", share)))  # type: ignore[misc]
    left = 1 - sum((share for share in said if share is not None), Fraction(0))
    waiting = [reader for reader, share in zip(readers, said, strict=True) if share is None]
    if left < 0 or (waiting and left == 0):
        reader = next(
            each for each, share in zip(readers[::-1], said[::-1], strict=True) if share is not None
        )
        raise reader.fail(
            f"the shares add up to {show(1 - left)}"
            + (" and leave nothing for auto" if waiting else "")
            + "; they may be 1 together, so make some of them smaller.",
            "query",
            "share",
        )
    if not waiting:
        return [share for share in said if share is not None]
    stated = [reader.keys.target is not None or reader.keys.level is not None for reader in waiting]
    if any(stated) and not all(stated):
        reader = waiting[stated.index(False)]
        raise reader.fail(
            'share = "auto" needs target or level in each query where one has it; say its level.',
            "query",
            "share",
        )
    weights = [reader.weight() for reader in waiting]
    total = sum(weights, Fraction(0))
    parts = iter([left * max(1, FINEST * weight // total) / FINEST for weight in weights])
    shares = [share if share is not None else next(parts) for share in said]
    if sum(shares) > 1:  # some are so small that they were rounded up to the least part
        raise waiting[0].fail(
            'share = "auto" would give a query less than a thousandth; say its share, or a larger target.',
            "query",
            "share",
        )
    return shares
