"""Reading ``tidegate.toml``: text → checked keys → clock, query, policy and mechanism."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from tidegate.config.config import Config
from tidegate.config.errors import ConfigError
from tidegate.config.keys import (
    OPEN,
    REPEATED,
    SECTIONS,
    MechanismKeys,
    ProtectKeys,
    QueryKeys,
    SourceKeys,
    StepsKeys,
    required,
)
from tidegate.config.secrets import holds_secret
from tidegate.config.unsupported import (
    DECAYS,
    DISCOVER,
    NO_STREAMS,
    REFUSED,
    TABLES,
    policy_of_a_block,
)
from tidegate.config.withhold import read_withhold
from tidegate.errors import InvalidInput, InvalidParameter, TidegateError
from tidegate.exact import exact, positive, whole
from tidegate.ingest import Columns, Intervals, Query, Schema, Steps
from tidegate.ingest.columns import MOST, Discovered
from tidegate.ingest.learned_clip import LARGEST_VALUE, Learning, Learnt
from tidegate.ingest.levels import LEAVES, NODES, Levels, better_measured, hierarchy_of, read_links
from tidegate.ingest.lookup import Lookup, read_lookup
from tidegate.ingest.quantiles import METHODS, Range, best_method, parts_over, tree_over
from tidegate.ingest.query import ALL
from tidegate.ingest.requirements import Promise, RequirementTable, read_requirements
from tidegate.intervals import ByLaw
from tidegate.mechanisms import Mechanism, catalogue, find, installed
from tidegate.mechanisms.clipped_records import ClippedRecords
from tidegate.mechanisms.discovery.discover import Discover
from tidegate.mechanisms.plain.blocks import Blocks
from tidegate.noise import Law
from tidegate.plan.requirements import PERSONAL, requirements_of
from tidegate.policy import Clock, Event, Policy, User, WEvent, read_policy
from tidegate.policy import Swellfish as SwellfishPolicy

_T = TypeVar("_T")
# what a constructor raises that was given something of a form it never thought of
_SENSELESS = (TypeError, ValueError, AttributeError, AssertionError, OverflowError)
_LAST_YEAR = 253_370_764_800_000_000  # when the year 9999 begins, in microseconds since 1970
LEARN = "learn"  # for bounds of a value
LARGEST_FILE = 256 * 2**20
DATA = {".csv", ".parquet", ".jsonl", ".ndjson"}  # what is given by mistake
_OF_DISCOVERY = (
    "columns",
    "epoch",
    "categories",
    "share",
    "stay",
    "length",
    "early",
    "released_by",
    "weighted",
)  # keys of [mechanism] for Discover
_GIVEN_BY_OTHERS = {"policy", "columns", "grid", "rounding"}  # a mechanism gets these from the other sections
# names of parameters that are spelt differently in the file
_SPELT = {"names": "columns"}


class Pointed(str):
    """A number with a point, as it is in the file."""


def read_config(path: str | Path, *, follow: bool = False) -> Config:
    """Read and check a configuration file; `follow` stands for ``follow = true`` in it.

    Parameters
    ----------
    path
        The file.
    follow
        True stands for ``follow = true`` in the file.

    Examples
    --------
    >>> read_config("nowhere.toml")
    Traceback (most recent call last):
    tidegate.config.errors.ConfigError: ...
    """
    file, text = read_text(path)
    return parse_config(text, file, follow=follow)


def read_text(path: str | Path) -> tuple[Path, str]:
    """A configuration's file and its text."""
    file = Path(path)
    name = file.name or str(file)
    if file.suffix in DATA and file.exists():
        sentence = "these are data, not a configuration; `tidegate init` writes one from them."
        raise ConfigError(name, None, sentence)
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise ConfigError(name, None, f"it is larger than {LARGEST_FILE} bytes; keep fewer columns.")
        text = file.read_bytes().decode()
    except UnicodeDecodeError:
        raise ConfigError(name, None, "it is not UTF-8 text; save it as such.") from None
    except FileNotFoundError:
        sentence = (
            "there is no such file; give the one that `tidegate init` has written, or write it with that."
        )
        raise ConfigError(str(file), None, sentence) from None
    except OSError as error:
        raise ConfigError(name, None, f"it cannot be read: {error.strerror}.") from None
    return file, text


def parse_config(text: str, path: str | Path = "tidegate.toml", *, follow: bool = False) -> Config:
    """Check the text of a configuration file; `follow` stands for ``follow = true`` in it.

    Parameters
    ----------
    text
        The text of the file.
    path
        Where it stands: relative names in it are relative to this, and messages name it.
    follow
        True stands for ``follow = true`` in the file.

    Examples
    --------
    >>> text = '''
    ... [source]
    ... location = "events.csv"
    ... time = "time"
    ... unit = "device"
    ... [steps]
    ... start = "2026-03-02T00:00"
    ... length = "1h"
    ... count = 168
    ... [protect]
    ... epsilon = "1"
    ... window = 24
    ... [sink]
    ... location = "released.csv"
    ... '''

    >>> config = parse_config(text)
    >>> config.policy.window, config.query.aggregate
    (24, 'count')
    """
    return FileReader(text, Path(path), follow).read()


_CONTROL = re.compile(r"[^\t\n\r\x20-\x7e\xa0-\U0010ffff]")


class FileReader:
    """Checks a file with one query."""

    overs: tuple[int | str, ...] = ()  # over how many steps units count, in any query of the file

    def __init__(self, text: str, path: Path, follow: bool) -> None:
        self.text = text
        self.path = path
        self.follow = follow

    @property
    def own_column(self) -> bool:
        """Whether the column of the category is written for this query, and not for others beside it."""
        return True

    def fail(self, sentence: str, section: str = "", name: str = "") -> ConfigError:
        """A refusal that names the line of a key."""
        return ConfigError(self.path.name, line_of(self.text, section, name), sentence)

    def read(self) -> Config:
        """The whole file."""
        found = self.load()
        if isinstance(found.get("query"), list):
            raise self.fail(
                "it has several queries, [[query]], and one is wanted here; name it with --query where a command has "
                "that option, or give a file with one section [query].",
                "query",
            )
        if "editions" in found:
            raise self.fail(
                "it has editions, [editions], and one stream is wanted here; name one with --query where a command has "
                "that option, such as --query final, or drop the section.",
                "editions",
            )
        return self.interpret(found)

    def load(self) -> dict[str, Any]:
        """The text as tables."""
        try:
            found = tomllib.loads(self.text, parse_float=Pointed)
        except tomllib.TOMLDecodeError as error:
            at = re.search(r"line (\d+)", str(error))
            reason = re.sub(r"\s*\(at .*\)$", "", str(error), flags=re.DOTALL)
            raise ConfigError(
                self.path.name,
                int(at[1]) if at else None,
                f"it is not valid TOML ({reason}); correct it, and mind the quotes around texts.",
            ) from None
        self.refuse_controls(found)
        return found

    def refuse_controls(self, found: Any, section: str = "", name: str = "") -> None:
        """Refuse control characters in any text: they would reach terminals, reports and the names of files."""
        if isinstance(found, dict):
            for key, value in found.items():
                self.refuse_controls(key, section, name)
                self.refuse_controls(value, *((section, key) if section else (key, "")))
        elif isinstance(found, list):
            for value in found:
                self.refuse_controls(value, section, name)
        elif isinstance(found, str) and _CONTROL.search(found):
            what = f"{name or section or 'a key'} has a control character"
            raise self.fail(f"{what}, which no text may have; remove it.", section, name)

    def interpret(self, found: dict[str, Any]) -> Config:
        """A configuration with one query."""
        from tidegate.config.answer_reader import read_answers
        from tidegate.config.file_conflicts import check_places

        config = self.build(*self.sections(found))
        config = replace(config, answers=read_answers(self, found, config))
        check_places(self, [config])
        return config

    def sections(self, found: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """All sections with their keys checked, and the mechanism's own parameters."""
        for name, value in found.items():
            if name in REPEATED:  # they are read when the rest is known
                continue
            if name not in SECTIONS:
                near = _nearest(name, [*SECTIONS, *REPEATED]) or "."
                raise self.fail(f"unknown section [{name}]{near}", name)
            if not isinstance(value, dict):
                raise self.fail(f"{name!r} must be a section; write [{name}].", "", name)
        sections: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        for name, section in SECTIONS.items():
            given = dict(found.get(name, {}))
            known = [item.name for item in fields(section)]
            if name in OPEN:
                extra = {key: given.pop(key) for key in list(given) if key not in known}
            sections[name] = self.section(name, section, known, given)
        return sections, extra

    def section(self, name: str, section: type[Any], known: list[str], given: dict[str, Any]) -> Any:
        """The keys of a section, checked."""
        for key in given:
            if key not in known:
                raise self.fail(f"unknown key {key!r} in [{name}]{_nearest(key, known) or '.'}", name, key)
        for key in required(section):
            if key not in given:
                raise self.fail(f"[{name}] needs the key {key!r}; see docs/reference/config.md.", name)
        read = {}
        for item in fields(section):
            if item.name in given:
                value = self.value(name, item.name, given[item.name], item.metadata["kind"])
                choices = item.metadata["choices"]
                if choices and value not in choices:
                    near = _nearest(str(value), list(choices)) or "."
                    raise self.fail(
                        f"{item.name} = {json.dumps(value)} is none of {', '.join(choices)}{near}",
                        name,
                        item.name,
                    )
                if isinstance(value, str) and holds_secret(value):
                    raise self.fail(
                        f"{item.name} must be an address without a password, because a configuration is copied and "
                        "shown; write ${NAME} in its place and set NAME in the environment, or ${file:path} for a file.",
                        name,
                        item.name,
                    )
                read[item.name] = value
        return section(**read)

    def value(self, section: str, name: str, value: Any, kind: str) -> Any:
        """Check the type of a value; numbers with a point are refused where exact ones are due."""
        if kind == "clip":
            if isinstance(value, str) and value != LEARN:
                raise self.fail(
                    f'{name} = {json.dumps(value)} is neither two bounds nor "learn"; write {name} = ["0", "100"].',
                    section,
                    name,
                )
            return value if isinstance(value, str) else self.value(section, name, value, "exacts")
        if kind == "columns":
            return value if value == DISCOVER else self.value(section, name, value, "texts")
        if kind in ("texts", "exacts"):
            if not isinstance(value, list):
                raise self.fail(f'{name} must be a list; write {name} = ["…", "…"].', section, name)
            if len(value) > MOST:
                raise self.fail(f"{name} has more than {MOST} entries; group them.", section, name)
            return tuple(str(self.value(section, name, item, "exact")) for item in value)
        if kind == "table" and isinstance(value, dict):
            if not all(isinstance(item, str) for item in value.values()):
                raise self.fail(
                    f"{name} must be a table of texts; see docs/reference/config.md.", section, name
                )
            return value
        if isinstance(value, Pointed):
            if kind in ("seconds", "number"):
                return float(value)
            raise self.fail(
                f'{name} = {value} is not exact; write {name} = "{value}".'
                if kind == "exact"
                else f"{name} must not be a number with a point; see docs/reference/config.md.",
                section,
                name,
            )
        allowed: dict[str, tuple[type, ...]] = {
            "text": (str,),
            "table": (str,),
            "whole": (int,),
            "exact": (str, int),
            "duration": (str, int),
            "seconds": (int,),
            "number": (int,),
            "switch": (bool,),
        }
        if isinstance(value, bool) != (kind == "switch") or not isinstance(value, allowed[kind]):
            words = {"text": "text in quotes", "whole": "a whole number", "switch": "true or false"}
            raise self.fail(
                f"{name} must be {words.get(kind, 'a whole number, or text in quotes')}; see docs/reference/config.md.",
                section,
                name,
            )
        return value

    def build(self, sections: dict[str, Any], extra: dict[str, Any]) -> Config:
        """What the sections mean."""
        source: SourceKeys = sections["source"]
        query_keys: QueryKeys = sections["query"]
        clock: StepsKeys = sections["steps"]
        protect: ProtectKeys = sections["protect"]
        schema = self.make("source", lambda: Schema(**_parameters(source, Schema)))
        steps = self.make("steps", lambda: Steps(**_parameters(clock, Steps)))
        live = self.follow or source.follow or source.location.startswith(("mqtt:", "mqtts:", "serve:"))
        self.make("steps", lambda: whole("catch_up", clock.catch_up))
        self.make("steps", lambda: _check_end(steps))
        if clock.count is None and not live:
            raise self.fail(
                "a finite input needs the key 'count', because the last event must not decide where the "
                "stream ends; write for example count = 168, or follow = true in [source] if it continues.",
                "steps",
            )
        found = self.discovered(query_keys, sections["mechanism"], extra)
        query = self.make("query", lambda: _query(query_keys, self.path.parent, steps, found))
        table = self.make("protect", lambda: self.requirements(protect, steps))
        query = self.make("protect", lambda: replace(query, requirements=table))
        if not self.overs and query_keys.over is not None:
            self.overs = (query_keys.over,)
        query = self.levelled(query, query_keys, sections["mechanism"])
        if query.columns is ALL and query.aggregate != "given":  # everything counts, whatever its category
            if schema.column is not None and self.own_column:
                raise self.fail(
                    f"column = {json.dumps(schema.column, ensure_ascii=False)} needs the public list of its categories; "
                    'write columns = ["…", "…"] in [query], or drop column to count everything in one.',
                    "source",
                    "column",
                )
            schema = replace(schema, column=None)
        self.refuse_controls(
            [*query.labels, *query.answer_labels], "query", "columns"
        )  # also those of a file
        self.make("source", lambda: query.check_schema(schema))
        policy = self.make("protect", lambda: self.policy(protect, query, schema, steps))
        mapped = query.maps_units(schema)
        self.make("protect", lambda: query.check(policy, records=schema.unit is None, mapped=mapped))
        if query.discovers:
            mechanism = self.discovering(extra, policy, query, steps)
        elif query.learn is not None:
            records = schema.unit is None
            mechanism = self.learning(sections["mechanism"], extra, policy, query, steps, records=records)
        else:
            mechanism = self.mechanism(sections["mechanism"], extra, policy, query, steps)
        if query.levels is not None:
            noise_says_all = isinstance(mechanism.law, Law) and isinstance(mechanism.intervals(), ByLaw)
            apart = noise_says_all and not mechanism.shares_noise
            query = replace(query, levels=replace(query.levels, independent=apart))
        return Config(
            path=self.path,
            source=source,
            steps_keys=clock,
            query_keys=query_keys,
            protect=protect,
            mechanism_keys=sections["mechanism"],
            sink=sections["sink"],
            parameters=extra,
            schema=schema,
            steps=steps,
            query=query,
            policy=policy,
            mechanism=mechanism,
            about=sections["about"],
            trailing=self.trailing(steps),
            withhold=self.make("publish", lambda: read_withhold(sections["publish"])),
            run=sections["run"],
        )

    def discovered(
        self, keys: QueryKeys, mechanism: MechanismKeys, extra: dict[str, Any]
    ) -> Discovered | None:
        """Where categories are found: the public parameters of their columns."""
        if keys.columns != DISCOVER:
            if mechanism.name == "Discover":
                raise self.fail(
                    'Discover finds columns; write columns = "discover" in [query], or name another mechanism.',
                    "mechanism",
                    "name",
                )
            return None
        if mechanism.name not in ("auto", "Discover"):
            raise self.fail(
                f'columns = "discover" needs Discover and not {mechanism.name}; write name = "Discover", or list the '
                "columns.",
                "mechanism",
                "name",
            )
        own = {item.name: item.default for item in fields(Discover) if item.name in _OF_DISCOVERY}
        for key in extra:
            if key not in own:
                near = _nearest(key, ["name", *own]) or f"; those of Discover are {', '.join(own)}."
                raise self.fail(f"unknown key {key!r} in [mechanism]{near}", "mechanism", key)
        given = [
            self.make("mechanism", lambda name=name: whole(name, extra.get(name, own[name])))  # type: ignore[misc]
            for name in ("columns", "categories", "length")
        ]
        return Discovered(*given)

    def discovering(self, extra: dict[str, Any], policy: Policy, query: Query, steps: Steps) -> Mechanism:
        """What finds categories."""
        counted = query.max_change(policy.adjacency)
        if Fraction(policy.max_change) != counted:
            raise self.fail(
                "max_change is that of most where categories are found, as so many records of a unit count; drop it, and "
                "write most in [query].",
                "protect",
                "max_change",
            )
        annotations = {item.name: str(item.type) for item in fields(Discover)}
        read = {key: self.parameter(key, value, annotations[key]) for key, value in extra.items()}
        if "epoch" in read:
            read["epoch"] = self.make("mechanism", lambda: steps.window("epoch", read["epoch"]))
        read["aggregate"] = query.aggregate
        if query.clip is not None:
            read |= {"clip": query.clip, "grid": query.grid, "sum_share": query.share}
        return self.make("mechanism", lambda: Discover(policy, **read))

    def levelled(self, query: Query, keys: QueryKeys, mechanism: MechanismKeys) -> Query:
        """The query, with what is measured and released of its hierarchy."""
        kind = find(mechanism.name) if ":" not in mechanism.name else None
        own_way = kind is not None and any(item.name == "hierarchy" for item in fields(kind))
        if query.levels is None:
            if own_way:
                raise self.fail(
                    f'{mechanism.name} needs a hierarchy; write for example hierarchy = "regions.csv" in [query].',
                    "mechanism",
                    "name",
                )
            return query
        if own_way and keys.levels != "auto":
            raise self.fail(
                f"levels is absent for {mechanism.name}, which has its own way; drop it.", "query", "levels"
            )
        if query.aggregate == "quantile":
            return query
        tree = query.levels.hierarchy
        if own_way:
            return replace(query, levels=Levels(tree, LEAVES, NODES))
        measured = (
            better_measured(tree) if keys.levels == "auto" else NODES if keys.levels == "all" else LEAVES
        )
        return replace(query, levels=Levels(tree, measured, measured))

    def make(self, section: str, build: Callable[[], _T]) -> _T:
        """Build something, and say in which line a refused parameter stands."""
        try:
            return build()
        except InvalidParameter as error:
            name = _SPELT.get(error.name, error.name)
            # the sentence speaks of the key that is in the file
            words = re.sub(rf"\b{re.escape(error.name)}(?==| must\b)", name, str(error))
            raise self.fail(words, section, name) from None
        except (OverflowError, MemoryError):
            raise self.fail(
                f"a number in [{section}], or one that follows from it, is too large or too small to compute with; write "
                "one that is nearer to 1.",
                section,
            ) from None

    def policy(self, keys: ProtectKeys, query: Query, schema: Schema, steps: Steps) -> Policy:
        """The policy of [protect], for values of a query."""
        if keys.policy == "swellfish":
            return self.secrets(keys, query, steps)
        if keys.specifications is not None or keys.promise != "windowed":
            name = "specifications" if keys.specifications is not None else "promise"
            raise InvalidParameter(name, getattr(keys, name), f"absent for {keys.policy}", "drop it")
        change: Any = keys.max_change
        if change is not None and query.aggregate == "given" and query.levels is not None:
            # declared of the columns that are given; a unit is in a node of every level that is measured
            factor, rounded = query.levels.factor, query.rounding == "nearest"
            change = exact("max_change", change) * factor + (_beyond_columns(keys, query) if rounded else 0)
            if keys.touches is not None:
                keys = replace(keys, touches=keys.touches * factor)
        if change is None:
            change = query.max_change(keys.adjacency, records=schema.unit is None)
            if change is None:
                raise InvalidParameter(
                    "max_change",
                    None,
                    "given for given input: only you know it",
                    'write for example max_change="1"',
                )
        return self.policy_of(keys, change, steps)

    def requirements(self, keys: ProtectKeys, steps: Steps) -> RequirementTable | None:
        """The public table of units that ask for more than all have."""
        if keys.requirements is None:
            if keys.population is not None:
                raise InvalidParameter(
                    "population", keys.population, "absent without requirements", "drop it"
                )
            return None
        if keys.policy != "w-event" or keys.epsilon is None or keys.window is None or str(keys.delta) != "0":
            raise InvalidParameter(
                "requirements",
                keys.requirements,
                "absent unless policy is w-event with epsilon alone",
                'write policy = "w-event", epsilon and window: what all units have at least',
            )
        least = Promise(positive("epsilon", keys.epsilon), steps.window("window", keys.window))
        return read_requirements(
            self.path.parent / keys.requirements,
            least,
            keys.population,
            lambda window: steps.window("window", window),
        )

    def secrets(self, keys: ProtectKeys, query: Query, steps: Steps) -> Policy:
        """The policy of specified secrets, on the clock of the stream."""
        if keys.specifications is None:
            raise InvalidParameter(
                "specifications", None, "given for swellfish", 'write specifications = "household.toml"'
            )
        if query.aggregate != "given" or query.levels is not None:
            raise InvalidParameter(
                "policy",
                "swellfish",
                'another one unless aggregate is "given": what is hidden are events in readings that were added up',
                'write policy = "w-event"',
            )
        for name in ("epsilon", "rho", "window", "max_change"):
            if getattr(keys, name) is not None:
                raise InvalidParameter(
                    name, getattr(keys, name), "absent: each secret has its own", "drop it"
                )
        if steps.calendar:
            raise InvalidParameter(
                "policy", "swellfish", "another one for calendar steps, which differ in length", "use hours"
            )
        zone = ZoneInfo(steps.zone)
        start = steps.begin(1).astimezone(zone).replace(tzinfo=None).isoformat()
        assert isinstance(steps.length, int)
        clock = Clock(start, steps.length, steps.zone)
        if clock.origin * 10**6 != steps.boundary(1):
            raise InvalidParameter(
                "start",
                start,
                "a time that the zone's clock shows once, because hours of secrets are counted from it",
                "begin an hour later",
            )
        touched = min(query.width, keys.touches or query.width)
        doubled = 2 if keys.adjacency == "replace" and query.width > 1 else 1
        allowance = query.grid * touched * doubled if query.rounding == "nearest" else 0
        try:
            return read_policy(
                self.path.parent / keys.specifications,
                clock=clock,
                horizon=keys.horizon,
                delta=keys.delta,
                promise=keys.promise,
                adjacency=keys.adjacency,
                mobility=keys.mobility,
                touches=keys.touches,
                allowance=allowance,
            )
        except InvalidInput as error:
            raise self.fail(str(error), "protect", "specifications") from None

    def policy_of(self, keys: ProtectKeys, change: Any, steps: Steps) -> Policy:
        """The policy of [protect], for values that one unit changes by so much."""
        common: dict[str, Any] = {
            "epsilon": keys.epsilon,
            "delta": keys.delta,
            "rho": keys.rho,
            "max_change": change,
            "adjacency": keys.adjacency,
            "mobility": keys.mobility,
            "touches": keys.touches,
            "horizon": keys.horizon,
        }
        if keys.policy == "user" and keys.horizon is None:
            common["horizon"] = steps.count
        if keys.policy == "w-event":
            if keys.window is None:
                raise InvalidParameter("window", None, "given for w-event", "write for example window = 24")
            return WEvent(window=steps.window("window", keys.window) + self.trailing(steps), **common)
        if keys.policy == "event" and self.trailing(steps):
            raise InvalidParameter(
                "policy",
                "event",
                "w-event where units count over several steps",
                'write policy = "w-event" and window = 1',
            )
        if keys.window is not None:
            raise InvalidParameter("window", keys.window, f"absent for {keys.policy}", "drop it")
        return Event(**common) if keys.policy == "event" else User(**common)

    def trailing(self, steps: Steps) -> int:
        """By how many steps what a unit does within a window changes more steps than the window has."""
        return max(steps.window("over", over) for over in self.overs or (1,)) - 1

    def mechanism(
        self, keys: MechanismKeys, extra: dict[str, Any], policy: Policy, query: Query, steps: Steps
    ) -> Mechanism:
        """The mechanism of [mechanism], with its own parameters."""
        if isinstance(policy, SwellfishPolicy) and keys.name == "auto":
            keys = MechanismKeys(name="Swellfish")
        if (keys.name == "Swellfish") != isinstance(policy, SwellfishPolicy):
            raise self.fail(
                'policy = "swellfish" in [protect] and name = "Swellfish" belong together, because no other mechanism '
                "follows specifications; change one of the two.",
                "mechanism",
                "name",
            )
        if query.requirements is not None and keys.name not in ("auto", *PERSONAL):
            raise self.fail(
                f'{keys.name} knows no requirements of units; write name = "{PERSONAL[0]}", or drop requirements in '
                "[protect].",
                "mechanism",
                "name",
            )
        if keys.name == "auto":
            return self.automatic(extra, policy, query, steps)
        kind = (
            find(keys.name) if ":" not in keys.name else None
        )  # a file names what is installed, and imports nothing
        if keys.name in NO_STREAMS:
            raise self.fail(NO_STREAMS[keys.name], "mechanism", "name")
        if kind is None:
            known = [*catalogue(), *installed()]
            near = _nearest(keys.name, known) or f"; there are auto, {', '.join(sorted(known))}."
            raise self.fail(f"unknown mechanism {keys.name!r}{near}", "mechanism", "name")
        if issubclass(kind, Blocks):
            return self.blocks(extra, policy, query, steps)
        own = {item.name: item for item in fields(kind) if item.init and item.name not in _GIVEN_BY_OTHERS}
        read = {}
        for key, value in extra.items():
            if key not in own:
                near = _nearest(key, ["name", *own]) or (
                    f"; those of {keys.name} are {', '.join(own)}."
                    if own
                    else f"; {keys.name} has no parameters of its own."
                )
                raise self.fail(f"unknown key {key!r} in [mechanism]{near}", "mechanism", key)
            if key in REFUSED and value != REFUSED[key].unless:
                raise self.fail(REFUSED[key].sentence, "mechanism", key)
            read[key] = self.parameter(key, value, str(own[key].type))
        arguments: dict[str, Any] = {"columns": query.width, "grid": query.grid, "rounding": query.rounding}
        if query.requirements is not None:
            read["requirements"] = requirements_of(query.requirements)
        if "nonnegative" in own:
            read["nonnegative"] = self.nonnegative(read, query)
        if "hierarchy" in own and query.levels is not None:
            if "hierarchy" in extra:
                raise self.fail("hierarchy belongs to [query]; move it there.", "mechanism", "hierarchy")
            read["hierarchy"] = query.levels.hierarchy
        if "horizon" in own and steps.count is not None and policy.horizon is None:
            read.setdefault("horizon", steps.count)
        return self.construct(kind, policy, arguments, read)

    def learning(
        self,
        keys: MechanismKeys,
        extra: dict[str, Any],
        policy: Policy,
        query: Query,
        steps: Steps,
        *,
        records: bool,
    ) -> Mechanism:
        """The mechanism of [mechanism], for values whose clip is learnt first."""
        bounded = query.clipped_at(query.bins.bound)

        def build(policy: Policy) -> Mechanism:
            return self.mechanism(keys, extra, policy, bounded, steps)

        if keys.name.startswith("Clipped"):
            raise self.fail(
                f'{keys.name} learns a clip of its own, of sums, and clip = "learn" one of single values; choose '
                'another mechanism, such as "BinaryTree".',
                "mechanism",
                "name",
            )
        build(policy)  # so that a refusal names its line
        assert query.learn is not None
        learnt, most = query.learn.steps, 1 if records else query.most
        if not isinstance(policy, Event | WEvent) or policy.rho is not None or policy.delta:
            raise self.fail(
                'clip = "learn" needs ε alone and policy = "event" or "w-event", because one user could own all values '
                "from which it is learnt; write bounds, or another policy.",
                "query",
                "clip",
            )
        return self.make(
            "query",
            lambda: ClippedRecords(
                policy,
                grid=query.grid,
                build=build,
                bins=query.bins,
                learn=learnt,
                most=most,
                reading=Learnt(query, records),
            ),
        )

    def construct(
        self, kind: type[Mechanism], policy: Policy, arguments: dict[str, Any], read: dict[str, Any]
    ) -> Mechanism:
        """A mechanism; a parameter in whose form it finds no sense is named, too."""
        try:
            found = self.make("mechanism", lambda: kind(policy, **arguments, **read))
            if found.outputs != found.columns and found.forest is None and "requirements" not in read:
                raise self.fail(
                    f"{kind.__name__} releases other columns than it is given, and a file has no names for them; use it "
                    "from Python.",
                    "mechanism",
                    "name",
                )
            return found
        except TidegateError:
            raise
        except _SENSELESS:
            pass
        key = "name"
        for key in read:
            others = {name: value for name, value in read.items() if name != key}
            with suppress(*_SENSELESS):
                kind(policy, **arguments, **others)
                break
        raise self.fail(
            f"{kind.__name__} cannot read what {key} is set to; docs/mechanisms says what it must be.",
            "mechanism",
            key,
        )

    def blocks(self, given: dict[str, Any], policy: Policy, query: Query, steps: Steps) -> Mechanism:
        """A mechanism for finite streams, on blocks that are as long as the window."""
        for key in given:
            if key != "mechanism":
                raise self.fail(
                    f"unknown key {key!r} in [mechanism]; Blocks has mechanism.", "mechanism", key
                )
        inner = given.get("mechanism")
        if not isinstance(inner, dict) or not isinstance(inner.get("name"), str) or inner["name"] == "auto":
            raise self.fail(
                'Blocks needs to know what runs on each block; write mechanism = { name = "Uniform" }.',
                "mechanism",
                "mechanism",
            )
        parameters = {key: value for key, value in inner.items() if key != "name"}
        block = self.make("protect", lambda: policy_of_a_block(policy))
        keys = MechanismKeys(name=inner["name"])
        return self.make("mechanism", lambda: Blocks(self.mechanism(keys, parameters, block, query, steps)))

    def nonnegative(self, given: dict[str, Any], query: Query) -> bool:
        """Whether no release may be negative: what the query guarantees, or what the curator knows beyond it."""
        wanted = given.get("nonnegative", query.nonnegative)
        if wanted is True and query.aggregate == "mean":
            raise self.fail(
                "nonnegative = true is refused for a mean, which is measured as deviations from the middle of "
                "the clip; drop it.",
                "mechanism",
                "nonnegative",
            )
        return wanted  # type: ignore[no-any-return]  # the mechanism refuses what is neither true nor false

    def automatic(self, extra: dict[str, Any], policy: Policy, query: Query, steps: Steps) -> Mechanism:
        """The mechanism of ``name = "auto"``; its keys say the order of magnitude of a value, and its sign."""
        from tidegate.config.auto import choose_for

        for key in extra:
            if key not in ("level", "nonnegative"):
                near = (
                    _nearest(key, ["name", "level", "nonnegative"]) or "; auto knows level and nonnegative."
                )
                raise self.fail(f"unknown key {key!r} in [mechanism]{near}", "mechanism", key)
        level = extra.get("level")
        if level is not None and (isinstance(level, bool) or not isinstance(level, int | Pointed)):
            raise self.fail(
                "level must be a number, the order of magnitude of a value.", "mechanism", "level"
            )
        return self.make(
            "mechanism",
            lambda: choose_for(policy, query, steps, level, nonnegative=self.nonnegative(extra, query)),
        )

    def parameter(self, name: str, value: Any, annotation: str) -> Any:
        """A mechanism's parameter; lists become tuples, and a number with a point needs a float to go to."""
        if isinstance(value, Pointed):
            if re.search(r"\bfloat\b", annotation) and "ExactLike" not in annotation:
                return float(value)
            raise self.fail(f'{name} = {value} is not exact; write {name} = "{value}".', "mechanism", name)
        if isinstance(value, list):
            return tuple(self.parameter(name, item, annotation) for item in value)
        if isinstance(value, dict):
            return self.table(name, value, annotation)
        return value

    def table(self, name: str, value: dict[str, Any], annotation: str) -> Any:
        """A parameter that is a table: adaptive = { reach = 3.0 }, decay = { exponential = "0.9" }."""
        if "Decay" in annotation and len(value) == 1 and next(iter(value)) in DECAYS:
            ((word, given),) = value.items()
            return self.make("mechanism", lambda: DECAYS[word](self.parameter(name, given, "ExactLike")))
        kind = next((TABLES[word] for word in re.findall(r"\w+", annotation) if word in TABLES), None)
        if kind is None:
            return {key: self.parameter(name, item, annotation) for key, item in value.items()}
        own = {item.name: str(item.type) for item in fields(kind)}
        for key in value:
            if key not in own:
                near = _nearest(key, list(own)) or f"; there are {', '.join(own)}."
                raise self.fail(f"unknown key {key!r} in {name}{near}", "mechanism", name)
        read = {key: self.parameter(key, item, own[key]) for key, item in value.items()}
        return self.make("mechanism", lambda: kind(**read))


def _parameters(keys: Any, kind: type[Any]) -> dict[str, Any]:
    """The keys of a section that are parameters of a class, by the same names."""
    known = {item.name for item in fields(kind) if item.init}
    return {item.name: getattr(keys, item.name) for item in fields(keys) if item.name in known}


def _check_end(steps: Steps) -> None:
    """Refuse steps whose times nobody could write down."""
    if steps.count is not None and steps.boundary(steps.count + 1) >= _LAST_YEAR:
        raise InvalidParameter(
            "count", steps.count, "such that the last step ends before the year 9999", "use fewer steps"
        )


def _learning(keys: QueryKeys, steps: Steps) -> tuple[Learning | None, tuple[Any, ...]]:
    """How the clip is learnt, where it is, and the bounds of values."""
    if keys.clip != LEARN:
        for name in ("learn", "bound"):
            if getattr(keys, name) is not None:
                raise InvalidParameter(name, getattr(keys, name), 'absent unless clip is "learn"', "drop it")
        assert not isinstance(keys.clip, str)
        return None, keys.clip
    if keys.learn is not None:
        count = steps.window("learn", keys.learn)
    elif steps.count is not None:
        count = max(1, steps.count // 10)
    else:
        raise InvalidParameter("learn", None, "given where the input has no end", 'write learn = "1 day"')
    if steps.count is not None and count >= steps.count:
        raise InvalidParameter(
            "learn", keys.learn, f"less than the {steps.count} steps of the stream", "learn from fewer"
        )
    grid = exact("grid", keys.grid)
    bound = LARGEST_VALUE * grid if keys.bound is None else exact("bound", keys.bound)
    return Learning(count), (0, bound)


def _query(keys: QueryKeys, folder: Path, steps: Steps, discovered: Discovered | None = None) -> Query:
    if keys.columns and keys.edges:
        raise InvalidParameter("edges", "given", "absent where columns are named", "drop one of the two")
    lookup = None if keys.lookup is None else read_lookup(folder / keys.lookup)
    columns: Columns | Intervals = ALL if lookup is None else Columns(lookup.names, keys.outside)
    levels = None
    learn, clip = _learning(keys, steps)
    if keys.aggregate == "quantile":
        columns, levels = _range(keys, lookup)
        clip = ()
    elif keys.bins is not None or keys.method != "auto":
        name = "bins" if keys.bins is not None else "method"
        raise InvalidParameter(name, getattr(keys, name), 'absent unless aggregate is "quantile"', "drop it")
    elif keys.hierarchy is not None:
        links = keys.hierarchy if not isinstance(keys.hierarchy, str) else read_links(folder / keys.hierarchy)
        tree = hierarchy_of(links, keys.columns or (() if lookup is None else lookup.names))
        levels = Levels(tree)
        columns = Columns(tuple(tree.names[leaf] for leaf in tree.leaves), keys.outside)
    elif keys.levels != "auto":
        raise InvalidParameter("levels", keys.levels, "absent without a hierarchy", "drop it")
    if keys.edges:
        columns = Intervals(keys.edges, keys.outside)
    elif not isinstance(keys.columns, str) and keys.columns and levels is None:
        columns = Columns(keys.columns, keys.outside)
    found = {
        "columns": discovered or columns,
        "clip": clip or None,
        "learn": learn,
        "lookup": lookup,
        "levels": levels,
    }
    over = 1 if keys.over is None else steps.window("over", keys.over)
    return Query(**_parameters(keys, Query) | found | {"over": over})  # which checks the number of bounds


def _range(keys: QueryKeys, lookup: Lookup | None) -> tuple[Range, Levels | None]:
    """The bins of a quantile, and the parts of the range that they are in where it pays or is asked for."""
    for name, given in (("columns", keys.columns), ("edges", keys.edges), ("hierarchy", keys.hierarchy)):
        if given:
            raise InvalidParameter(
                name,
                "given",
                "absent for quantile, which has bins of its range",
                "write a [[query]] with where",
            )
    if lookup is not None:
        raise InvalidParameter("lookup", keys.lookup, "absent for quantile", "write a [[query]] with where")
    if len(keys.clip) != 2 or isinstance(keys.clip, str):
        raise InvalidParameter(
            "clip", keys.clip or None, "the range of values for quantile", 'write clip = ["0", "100"]'
        )
    bins = Range.of(*keys.clip, 64 if keys.bins is None else keys.bins)
    if keys.method == "tree":
        return bins, Levels(tree_over(bins.labels), NODES, NODES)
    asked = [exact("quantiles", part) for part in keys.quantiles or ("1/2",)]
    known = all(0 < part < 1 for part in asked)  # others are refused with the rest of the query
    method = best_method(len(bins), asked) if keys.method == "auto" and known else keys.method
    own, part = METHODS.get(method, (1, 0))
    weights = () if own == part else (part, own)  # once each is what earlier versions described
    return bins, Levels(parts_over(bins.labels), NODES, NODES, weights=weights) if part else None


def _beyond_columns(keys: ProtectKeys, query: Query) -> Fraction:
    """What rounding adds to `max_change` where nodes are measured, beyond one grid unit for each of them.

    Readings are rounded before they are added up, so that every touched leaf may move each node above it by a unit;
    `Policy.grid_sensitivity` counts a unit for each touched column.
    """
    assert query.levels is not None
    factor, leaves = query.levels.factor, len(query.levels.hierarchy.leaves)
    units = 2 if keys.adjacency == "replace" else 1  # the one that is replaced and the one that replaces it
    touched = min(leaves, units * (keys.touches or leaves)) * factor
    counted = min(query.width, units * factor * keys.touches if keys.touches else query.width)
    return Fraction(query.grid) * max(0, touched - counted) / units


def _nearest(name: str, known: list[str]) -> str:
    """Words that end a sentence and offer the nearest known name; empty if none is near."""
    lower = {word.lower(): word for word in known}
    near = difflib.get_close_matches(name.lower(), list(lower), n=1, cutoff=0.6)
    return f"; did you mean {lower[near[0]]!r}?" if near else ""


def header_of(line: str) -> str:
    """The section that a line begins, [section] or [[section]]; empty where it begins none."""
    found = re.match(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?", line)
    is_list = re.match(r"\s*\[\s*[\"'\d]", line)  # of texts or numbers, over several lines
    return found[1].strip("\"' ") if found and not is_list else ""


def one_of(text: str, section: str, index: int, *, own_mechanism: bool = False) -> str:
    """The file as one of several sections [[section]] sees it: the lines of the others are empty, so that numbers stay.

    A table below it, [section.name], is [name] to it; one with a mechanism of its own does not see that of the file.
    """
    found, at, keep = [], -1, True
    for line in text.splitlines():
        name = header_of(line)
        if name == section:
            at += 1
            keep = at == index
        elif name.startswith(f"{section}."):
            line = f"[{name.removeprefix(f'{section}.')}]"
        elif name:
            keep = not (own_mechanism and name == "mechanism")
        found.append(line if keep else "")
    return "\n".join(found)


def line_of(text: str, section: str, name: str) -> int | None:
    """The line of a key, or of its section if the key is not there."""
    inside, header = section == "", None
    for number, line in enumerate(text.splitlines(), start=1):
        found = header_of(line)
        if found:
            inside = found == section
            header = number if inside else header
        elif inside and name and re.match(rf"\s*[\"']?{re.escape(name)}[\"']?\s*(=|\.)", line):
            return number
    return header
