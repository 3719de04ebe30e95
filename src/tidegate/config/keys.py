"""Every key of ``tidegate.toml``, documented once, for the reader, the page and the JSON schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from tidegate.ingest.query import AGGREGATES
from tidegate.ingest.sources.directory import RULES
from tidegate.ingest.sources.factory import FORMATS

ANSWERS = (
    "window",
    "jump",
    "low",
    "alarm",
    "average",
    "decayed",
    "smooth",
    "forecast",
    "unexpected",
    "ratio",
    "share",
    "top",
)

# in the page, in what `tidegate init` writes, and in the refusal of steps behind the end
THE_END = (
    "If the mechanism revises earlier steps (Tide does by default), count ends the stream permanently. For a stream that "
    "is to continue, leave count out and release it with --until now. After an end, begin a new stream with a new log, "
    "and leave out at least the w − 1 steps after the last step of the old stream."
)

SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")

# kind → (JSON schema, words)
KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "text": ({"type": "string"}, "text"),
    "whole": ({"type": "integer"}, "whole number"),
    "exact": ({"type": ["string", "integer"]}, "exact number"),
    "duration": ({"type": ["string", "integer"]}, "duration"),
    "seconds": ({"type": "number"}, "seconds"),
    "switch": ({"type": "boolean"}, "true or false"),
    "texts": ({"type": "array", "items": {"type": ["string", "integer"]}}, "list of texts"),
    "exacts": ({"type": "array", "items": {"type": ["string", "integer"]}}, "list of exact numbers"),
    "clip": (
        {"anyOf": [{"const": "learn"}, {"type": "array", "items": {"type": ["string", "integer"]}}]},
        'two exact numbers, or `"learn"`',
    ),
    "columns": (
        {
            "anyOf": [
                {"const": "discover"},
                {"type": "array", "items": {"type": ["string", "integer"]}},
            ]
        },
        'list of texts, or `"discover"`',
    ),
    "number": ({"type": "number"}, "number"),
    "table": ({"type": ["string", "object"]}, "text, or a table of texts"),
    "named": ({"type": ["string", "object"]}, "name, or the table `[query.mechanism]`"),
}


def key(doc: str, kind: str = "text", default: Any = MISSING, choices: tuple[str, ...] = ()) -> Any:
    """A key with its one description."""
    about = {"doc": doc, "kind": kind, "choices": choices}
    if default is MISSING:
        return field(metadata=about)
    return field(default=default, metadata=about)


@dataclass(frozen=True, kw_only=True)
class SourceKeys:
    """Where the events are, and which of their columns say when, who, where and how much."""

    location: str = key(
        'A file, a folder that files arrive in, "-" for standard input, a broker: "mqtt://host:1883/topic/#", '
        'a topic of Kafka: "kafka://host:9092/topic", or a table: '
        '"postgresql://reader@host/database?table=events&key=id". "serve:" takes what is sent to `tidegate serve`. '
        "Relative paths start at the folder of this file."
    )
    format: str = key("The format; auto goes by the file's name.", default="auto", choices=FORMATS)
    separator: str = key("The character between two fields of CSV.", default=",")
    time: str = key("The column of the event's time.")
    time_format: str = key(
        "auto reads timestamps, seconds since 1970 and ISO 8601; or iso, seconds, milliseconds, microseconds, "
        'nanoseconds, or a pattern such as "%d.%m.%Y %H:%M".',
        default="auto",
    )
    unit: str | None = key(
        "The column that names the protected unit: a person, a device, a household. Without it every record is a "
        "unit of its own, and a person with several records is not protected as one.",
        default=None,
    )
    column: str | None = key(
        "The column of the category, or of the series in long pre-aggregated input.", default=None
    )
    value: str | None = key("The column of the number that is added up, averaged or sorted.", default=None)
    order: str = key(
        "Whether a finite input must be in the order of time; any sorts it on disk where it is not.",
        default="any",
        choices=("any", "time"),
    )
    follow: bool = key(
        "Whether the input continues to arrive. Then each step is released when the public clock closes it.",
        kind="switch",
        default=False,
    )
    complete: bool = key(
        "Whether a finite input holds all events of all its steps, also of those that the clock has not closed yet: "
        "a forecast, a timetable, made-up data. Otherwise such steps are not released.",
        kind="switch",
        default=False,
    )
    pattern: str = key("Which files of a folder are read.", default="*")
    completed: str = key(
        "When a file of a folder is complete: it got its final name (rename), a file of the same name plus .done is "
        "beside it (done), or it has not changed for a while (stable).",
        default="rename",
        choices=RULES,
    )
    settle: float = key(
        "After how long without change a file is stable; for a table, how long after its key was drawn a transaction "
        "writes its first row, at most.",
        kind="seconds",
        default=10.0,
    )
    client: str = key(
        "The name of the session at the broker: the same at every start, different for every stream; by default one that "
        "belongs to the ledger.",
        default="",
    )
    fields: tuple[str, ...] = key("The fields of a message in CSV, in order.", kind="texts", default=())


@dataclass(frozen=True, kw_only=True)
class StepsKeys:
    """The public clock. Nothing in it may be taken from the data."""

    start: str = key('When step 1 begins, in the time zone or with an offset: "2026-03-02T00:00".')
    length: str | int = key(
        'The length of a step: "90s", "15min", "1h", a number of seconds, or "calendar day", "calendar week" or '
        '"calendar month" for those of the time zone, which have an hour less or more when summer time begins or ends.',
        kind="duration",
    )
    zone: str = key("The IANA time zone of the start and of times that carry none.", default="UTC")
    lateness: str | int = key(
        "How long after its end a step waits for events when the input is followed; events of steps "
        "that begin more than this, and more than a minute, after the present are dropped.",
        kind="duration",
        default=0,
    )
    count: int | None = key(
        f"The number of steps; needed where the input is finite, unless --until now is given. {THE_END}",
        kind="whole",
        default=None,
    )
    catch_up: int = key(
        "The most steps that may close at once when a stream that follows its input starts; more need --backfill, "
        "because a clock that is years ahead would close all of them as empty.",
        kind="whole",
        default=10_000,
    )


@dataclass(frozen=True, kw_only=True)
class EditionsKeys:
    """For devices that report late: every step is released several times, each time with what has arrived by then."""

    after: tuple[str, ...] = key(
        'How long after its end each edition of a step is released, from the first to the last: ["1h", "48h"]. Events '
        "that arrive later than the last are dropped.",
        kind="texts",
        default=(),
    )
    shares: tuple[str, ...] = key(
        "The part of the budget that each edition has, exactly; at most 1 together. Equal parts by default.",
        kind="exacts",
        default=(),
    )


@dataclass(frozen=True, kw_only=True)
class QueryKeys:
    """What is counted or added up for each step and column."""

    aggregate: str = key(
        "count: events. distinct: units, each once in a column. sum: of clipped values. mean: sum and count, "
        "which "
        "share the budget. histogram: events by intervals of the value. quantile: quantiles of the value, which are "
        "read from counts in bins of its range. given: the input is already aggregated.",
        default="count",
        choices=AGGREGATES,
    )
    columns: tuple[str, ...] | str = key(
        "The public list of categories (or of series, where the input is given). Without it there is one "
        'column. "discover": nobody has listed them, and a category is a column once enough units have it; needs delta, '
        "and Discover finds them.",
        kind="columns",
        default=(),
    )
    edges: tuple[str, ...] = key(
        "Edges of public intervals of the value, instead of a list of categories.", kind="exacts", default=()
    )
    where: str | None = key(
        'A public condition on the fields of a record: status == "paid" and amount >= 5, with and, or, not, in [...] and '
        "parentheses; a name with spaces in `backquotes`. Records for which it does not hold, or cannot be decided "
        "because a field is missing, count nowhere.",
        default=None,
    )
    lookup: str | None = key(
        "A CSV file with a public table: keys in its first column, their groups in its second. The input's category is "
        "the key, and its group is the column: stations of a district, meters of a zone. Without columns, all groups of "
        "the table are columns; a key that is not in the table is outside.",
        default=None,
    )
    hierarchy: str | Mapping[str, str] | None = key(
        "Of which region each column is a part, and so on: a CSV file with nodes in its first column and parents in "
        'its second, or a table: hierarchy = { north = "France", south = "France" }. All nodes are released, and '
        "parents are the sums of their children. Without columns, the lowest nodes are columns.",
        kind="table",
        default=None,
    )
    levels: str = key(
        "What is measured of a hierarchy. leaves: parents are their sums. all: every node, with as many times the noise "
        "as there are levels; the nearest consistent sums are released. auto: the one with the smaller errors, level by "
        "level. HierarchicalPeGaSus and HierarchicalOptStream measure in their own way.",
        default="auto",
        choices=("auto", "leaves", "all"),
    )
    outside: str = key(
        "What becomes of an event in no column: dropped, or counted in one more column. Never a new column.",
        default="drop",
        choices=("drop", "other"),
    )
    over: int | str | None = key(
        "For distinct: a unit counts at a step if it was seen in the last so many steps, or in such a duration: daily, "
        "weekly or monthly active users at every step. A unit then changes over − 1 more steps, so the account's "
        "window is over − 1 steps longer. What is protected stays window in [protect].",
        kind="duration",
        default=None,
    )
    most: int = key(
        "The most contributions of one unit in one step; the first ones by time are kept.",
        kind="whole",
        default=1,
    )
    weighting: str = key(
        "Whether each of several contributions counts in full (keep) or as 1/most (share).",
        default="keep",
        choices=("keep", "share"),
    )
    clip: tuple[str, ...] | str = key(
        "The bounds of one value for sum and mean, on the grid; for quantile the range of values, and those beyond count "
        'at its ends. "learn": the first steps find, with their budget, a threshold that nearly all values stay below, '
        "and every later value counts up to it; values are not negative then.",
        kind="clip",
        default=(),
    )
    learn: int | str | None = key(
        'For clip = "learn": from how many steps, or from how long; nothing is released of them. By default a tenth of '
        "the count in [steps].",
        kind="duration",
        default=None,
    )
    bound: str | int | None = key(
        'For clip = "learn": what no value exceeds, or else counts as; by default 2^32 times the grid.',
        kind="exact",
        default=None,
    )
    quantiles: tuple[str, ...] = key(
        'For quantile: which ones; by default ["1/2"], the median.', kind="exacts", default=()
    )
    bins: int | None = key(
        "For quantile: into how many bins the range is divided; by default 64.", kind="whole", default=None
    )
    method: str = key(
        "For quantile: histogram counts the bins; parts counts larger parts of the range as well, with twice the noise; "
        "parts 3:2 and parts 2:1 divide the budget in that way between bins and parts; auto: whichever has less noise in "
        "what the quantiles are read from. tree counts everything as well, with three times the noise, as version 0.2 "
        "did from 64 bins on.",
        default="auto",
        choices=("auto", "histogram", "parts", "parts 3:2", "parts 2:1", "tree"),
    )
    grid: str | int = key(
        "The public resolution of all values, one over a whole number.", kind="exact", default=1
    )
    share: str | int = key(
        "The part of the budget of a mean that goes to the sum.", kind="exact", default="1/2"
    )
    layout: str = key(
        "Whether given input has a row for each step and column (long) or for each step (wide).",
        default="long",
        choices=("long", "wide"),
    )
    fill: str | int | None = key(
        'How a missing reading of given input is filled. "missing": its cell is released as missing, which assumes '
        'that it is public which readings there are. "zero" or a public constant: that number replaces it, and '
        "nothing is assumed. Without this key a missing reading is refused.",
        kind="exact",
        default=None,
    )
    rounding: str = key(
        "Given readings that are not on the grid are refused, or rounded to the nearest, which costs "
        "accuracy.",
        default="refuse",
        choices=("refuse", "nearest"),
    )


@dataclass(frozen=True, kw_only=True)
class ListedQueryKeys(QueryKeys):
    """One of several statistics of one stream, under one budget. All keys of [query], and its own."""

    name: str = key("Its name, in letters, digits, - and _; part of the name of its output.")
    share: str | int = key(
        "Its part of the budget of [protect], exactly; all together at most 1. auto: what the others leave, divided so "
        "that the expected errors are in proportion to target, or to level where there is no target; equal parts of "
        "what one unit can change where neither is said.",
        kind="exact",
        default="auto",
    )
    sum_share: str | int = key(
        "The part of this query's budget that goes to the sum of a mean; in [query] this is called share.",
        kind="exact",
        default="1/2",
    )
    column: str | None = key("The column of the category, where it is not that of [source].", default=None)
    value: str | None = key("The column of the number, where it is not that of [source].", default=None)
    max_change: str | int | None = key(
        "By how much one unit can change one step of this query; as in [protect], where it is then absent.",
        kind="exact",
        default=None,
    )
    touches: int | None = key(
        "As in [protect], where it is then absent: the most columns of given input that one unit touches in a step.",
        kind="whole",
        default=None,
    )
    mechanism: str | None = key(
        "The mechanism of this query, where it is not that of [mechanism].", kind="named", default=None
    )
    level: int | float | None = key(
        "The order of magnitude of a value: your knowledge, never computed from the data; for share = auto.",
        kind="number",
        default=None,
    )
    target: str | int | None = key(
        "The error of one value that you can live with, exact; for share = auto.", kind="exact", default=None
    )
    counted: str | None = key("What a value is, in words; as in [about].", default=None)


@dataclass(frozen=True, kw_only=True)
class ProtectKeys:
    """Who is protected, how strongly, and where the account of the budget is kept."""

    policy: str = key(
        "event: one step of a unit. w-event: everything within any window of steps. user: a unit over all "
        "steps of a stream that ends. swellfish: the events that specifications name, at the times that they name.",
        default="w-event",
        choices=("event", "w-event", "user", "swellfish"),
    )
    specifications: str | None = key(
        "For swellfish: a file with the secrets of each household or class of units (.toml, .json, or .csv with a line "
        "for each secret), their heights, durations, ε, and when they are hidden.",
        default=None,
    )
    promise: str = key(
        "For swellfish: windowed hides one occurrence of one event; joint one of every event of a specification at once.",
        default="windowed",
        choices=("windowed", "joint"),
    )
    epsilon: str | int | None = key("The budget ε.", kind="exact", default=None)
    delta: str | int = key("The δ of (ε, δ); 0 for pure differential privacy.", kind="exact", default=0)
    rho: str | int | None = key("The budget ρ of zCDP, instead of epsilon.", kind="exact", default=None)
    window: int | str | None = key(
        'The w of w-event: how many consecutive steps, or a duration that they divide, such as "1 day".',
        kind="duration",
        default=None,
    )
    horizon: int | None = key(
        "After how many steps the stream ends; for user, by default the count of [steps].",
        kind="whole",
        default=None,
    )
    max_change: str | int | None = key(
        "By how much one unit can change one step (Δ). Without it, it is derived from the query; smaller than that "
        "is refused. Needed where the input is given.",
        kind="exact",
        default=None,
    )
    adjacency: str = key(
        "Whether a unit's contribution is added or removed, or replaced by another.",
        default="add-remove",
        choices=("add-remove", "replace"),
    )
    requirements: str | None = key(
        "For w-event: a CSV file, a public table of units that ask for more than all have: units in its first column, "
        "columns epsilon and window, of which empty fields say what is said here. Units are compared as text, without "
        "blanks at the edges; upper and lower case differ. Units that are in no table have what all have. "
        "PersonalAbsorption and PersonalDistribution follow it.",
        default=None,
    )
    population: int | None = key(
        "For requirements: about how many units there are, also those that are not in the table; by default as many as "
        "it has. Public knowledge; only accuracy depends on it.",
        kind="whole",
        default=None,
    )
    mobility: str = key(
        "Whether a unit may be in different columns at different steps of a window. `fixed` needs given input, or the "
        "column of units as `column`, as with a public lookup from units to columns.",
        default="moving",
        choices=("moving", "fixed"),
    )
    touches: int | None = key(
        "The most columns of given input that one unit touches in a step; by default all.",
        kind="whole",
        default=None,
    )
    ledger: str | None = key(
        "A file or a PostgreSQL URL for the ledger, the state and the positions; by default this file's name with "
        "the ending .ledger.",
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class MechanismKeys:
    """Which mechanism releases the steps. Further keys of this section are its own parameters."""

    name: str = key(
        "The mechanism's name, or auto: Tide on the days and weeks of the clock, or, where the key level says the "
        "order of magnitude of a value, what a plan predicts to be clearly better.",
        default="auto",
    )


@dataclass(frozen=True, kw_only=True)
class SinkKeys:
    """Where the releases go."""

    location: str = key(
        'A file, a folder for Parquet, "-" for standard output, a broker ("mqtt://host:1883/topic"), a topic of '
        'Kafka ("kafka://host:9092/topic"), or a table ("postgresql://user@host/database?table=released").',
        default="-",
    )
    format: str = key("The format; auto goes by the file's name.", default="auto", choices=FORMATS)
    layout: str = key(
        "One row a step (wide) or one row for each step and column (long); always long where categories are found.",
        default="wide",
        choices=("wide", "long"),
    )
    revisions: str = key(
        "For a mechanism that releases steps again when it knows more. newest: one row per step, its latest release, "
        "written when a finite input has ended. all: a row for every release. auto: newest where the input "
        "is finite, all where it is followed. The log has all.",
        default="auto",
        choices=("auto", "newest", "all"),
    )
    receipt: str | None = key(
        "A file that remembers from which ledger and how far the releases were made, so that a lost ledger, or an "
        "older copy of it, is noticed; by default beside the output, or, where that is no file, beside the ledger.",
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class AboutKeys:
    """Words for the people who read the report and the card. Nothing here changes a number."""

    title: str | None = key("The title of the report.", default=None)
    publisher: str | None = key("Who publishes the numbers.", default=None)
    contact: str | None = key("Where questions go.", default=None)
    unit: str | None = key(
        'One protected unit in words: "device", "household"; by default the name of the column.', default=None
    )
    units: str | None = key("Several of them; by default the unit with an s.", default=None)
    counted: str | None = key(
        'What a value is, in words, several of them: "devices", "kWh", "trips"; by default what the query counts.',
        default=None,
    )
    chosen: str | None = key(
        'How the parameters were chosen: "public knowledge", "tuned with ε = 1/10". Without it the report says that '
        "this is not stated.",
        default=None,
    )
    intended_use: str | None = key(
        "What the numbers are for. `tidegate card --registry` needs it.", default=None
    )
    region: str | None = key(
        "Which region the data describe, or whose laws apply. `tidegate card --registry` needs it.",
        default=None,
    )
    sector: str | None = key(
        "The sector, as the registry of deployments names it.", default=None, choices=SECTORS
    )
    publisher_type: str | None = key(
        'What kind of organisation the publisher is, in the registry\'s words: "Industry", "Nonprofit". '
        "`tidegate card --registry` needs it.",
        default=None,
    )
    publication_date: str | None = key(
        'The date of the first publication, as "2026-03-02". `tidegate card --registry` needs it.',
        default=None,
    )
    authors: tuple[str, ...] = key(
        "Who answers for the record of the registry. `tidegate card --registry` needs it.",
        kind="texts",
        default=(),
    )
    access: str | None = key(
        "Who can reach the raw data, the ledger and the machine, and how they are secured. "
        "`tidegate card --registry` needs it.",
        default=None,
    )
    unprotected: str | None = key(
        "What else is published about the same people without noise; by default the card says that nothing is "
        "known of it.",
        default=None,
    )
    account: str | None = key(
        "The address at which everybody can check the account, as `tidegate serve` publishes it: "
        '"https://host/streams/campus".',
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class PublishKeys:
    """How released numbers are shown. Nothing here changes a number, what it costs, or what is made from it."""

    withhold: str | None = key(
        'Numbers that are too uncertain to read are shown as withheld in report and table: "relative error > 50%". The '
        "relative error is half the width of the interval at 90 %, divided by the released number or by floor, whichever "
        "is larger. Withheld numbers are counted; releases, sums, windows and alarms use all of them.",
        default=None,
    )
    floor: str = key(
        "The smallest number that a relative error is taken of, in the unit of the values.",
        kind="exact",
        default="1",
    )


@dataclass(frozen=True, kw_only=True)
class RunKeys:
    """How a stream is run and watched. Nothing here changes a number, and everything may change at any start."""

    status: str | None = key(
        "A file with the state of the stream as JSON, written every second: last step, lag, budget, releases that "
        "sinks lack, whether the source is connected. Nothing in it comes from the data.",
        default=None,
    )
    log: str = key(
        "What is written to stderr when it is no terminal: sentences, or one JSON object per event.",
        default="text",
        choices=("text", "json"),
    )
    archives: str | None = key(
        "A folder: what no window and no sink needs any more moves there while the stream runs, so that the ledger "
        "stays small.",
        default=None,
    )
    keep: int | None = key(
        "How many of the last steps stay in the ledger when it is pruned, up to twice as many between two prunings; at "
        "least a window, by default 1,000.",
        kind="whole",
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class AnswerKeys:
    """A standing question to the releases, answered at every step into a file of its own. Answers cost no budget."""

    name: str = key("Its name, in letters, digits, - and _.")
    kind: str = key(
        "window: sum or mean of the last steps, or since a day, week or month of the calendar began. jump: a change by "
        "threshold or more. low: less than threshold in the last steps. alarm: a value beyond threshold. average: of all "
        "steps so far. decayed: an average in which the past counts less. smooth: the mean of a window where noise is "
        "above threshold. forecast: steps to come. unexpected: a value outside of its forecast's interval. ratio: one "
        "column by another, of the same query or of another. share: a column of counts as a part of all columns. "
        "top: the largest columns, and which ranks they can have.",
        choices=ANSWERS,
    )
    query: str | None = key("Of which query, where there are several.", default=None)
    location: str | None = key(
        "Its file, .csv or .jsonl; by default its name with the ending .csv beside this file.", default=None
    )
    columns: tuple[str, ...] = key("Which columns it is about; all by default.", kind="texts", default=())
    window: int | str | None = key(
        'So many steps, or a duration that they divide; for kind window also "calendar day", "calendar week" or '
        '"calendar month". For jump: how many steps lie between the values that are compared; by default one.',
        kind="duration",
        default=None,
    )
    statistic: str = key("Of a window.", default="sum", choices=("sum", "mean"))
    threshold: str | int | None = key(
        "Public, for jump, low and alarm; for smooth a scale of noise, by default 0.",
        kind="exact",
        default=None,
    )
    direction: str | None = key(
        "On which side there is an alarm: of threshold for alarm, by default above; of what it is compared with for jump "
        "and unexpected, by default both.",
        default=None,
        choices=("above", "below"),
    )
    half_life: int | str | None = key(
        "For decayed: after so many steps, or such a duration, a step counts half.",
        kind="duration",
        default=None,
    )
    ahead: int | str | None = key(
        "For forecast: how many steps, or how long, is forecast.", kind="duration", default=None
    )
    every: int | str | None = key(
        "For forecast: after how many steps, or how long, a new one is made; by default as long as it reaches.",
        kind="duration",
        default=None,
    )
    model: str = key(
        "For forecast: seasonal takes the profile of the day or of the week, or the level, whichever predicted best of "
        "late; arma is an ARMA(1, 1) model of the last steps.",
        default="seasonal",
        choices=("seasonal", "arma"),
    )
    train: int | str | None = key(
        "For arma: on how many of the last steps, or on how long, it is trained; by default 1000 steps.",
        kind="duration",
        default=None,
    )
    of: str | None = key(
        "For ratio: the column that is divided; not needed where its query has only one. For share: the part.",
        default=None,
    )
    by: str | None = key(
        "For ratio: the column that it is divided by; not needed where its query has only one.", default=None
    )
    by_query: str | None = key(
        "For ratio: the query that by is a column of, if it is another one than query.", default=None
    )
    count: int | None = key("For top: how many columns are listed.", kind="whole", default=None)


SECTIONS: dict[str, type[Any]] = {
    "source": SourceKeys,
    "steps": StepsKeys,
    "editions": EditionsKeys,
    "query": QueryKeys,
    "protect": ProtectKeys,
    "mechanism": MechanismKeys,
    "sink": SinkKeys,
    "about": AboutKeys,
    "publish": PublishKeys,
    "run": RunKeys,
}
LISTED: dict[str, type[Any]] = {"query": ListedQueryKeys}  # sections that may be there several times
REPEATED: dict[str, type[Any]] = {"answer": AnswerKeys}  # sections that are there any number of times
OPEN = {"mechanism"}  # sections with keys of their own


def required(section: type[Any]) -> list[str]:
    """The keys that have no default."""
    return [item.name for item in fields(section) if item.default is MISSING]
