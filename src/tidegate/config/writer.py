"""Writing a first ``tidegate.toml``, from the names and types of the input's columns alone."""

from __future__ import annotations

import csv
import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import polars as pl

from tidegate.config.keys import THE_END
from tidegate.errors import InvalidParameter
from tidegate.ingest.errors import EmptyInput, NotUtf8, SourceUnavailable, UnreadableInput, attempt
from tidegate.ingest.schema import check_header
from tidegate.ingest.sources.directory import FORMATS, format_of
from tidegate.ingest.sources.text import LONGEST_LINE, separator_of
from tidegate.naming import listed, nearest

_TIME = ("time", "timestamp", "datetime", "date", "ts", "when", "at", "hour", "day")
_PLACE = (
    "column",
    "category",
    "place",
    "building",
    "region",
    "zone",
    "station",
    "location",
    "site",
    "group",
    "type",
)
_VALUE = ("value", "amount", "consumption", "power", "load", "price", "duration", "quantity", "reading")


def header_separator(location: str | Path) -> str:
    """What separates the columns in the header of a CSV; a comma where there is no such header."""
    path = Path(location)
    if format_of(path) != "csv" or not path.is_file():
        return ","
    with path.open("rb") as file:
        return separator_of(file.readline(LONGEST_LINE))


def input_columns(location: str | Path, *, format: str = "auto", separator: str = ",") -> dict[str, str]:
    r"""Names and types of a file's columns, from its header or schema; no record of CSV or Parquet is read.

    Of JSON lines the first line is read for its keys and kinds of values, since there is no header.

    Parameters
    ----------
    location
        A file.
    format
        "csv", "jsonl" or "parquet"; "auto" goes by the name of the file.
    separator
        The character between two fields of CSV.

    Returns
    -------
    dict
        Name → "time", "number", "whole number", "text" or "unknown".

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "events.csv"
    ...     _ = file.write_text("time,device,place\n")
    ...     list(input_columns(file))
    ['time', 'device', 'place']
    """
    path = Path(location)
    kind = format_of(path) if format == "auto" else format
    refusal = UnreadableInput(f"the header of {path.name!r} cannot be read; check the file and its format.")
    if path.is_dir():
        raise SourceUnavailable(
            f"{str(path)!r} is a folder; give one of its files, and write the folder as location afterwards."
        )
    if kind is None:
        endings = ", ".join(FORMATS)
        raise SourceUnavailable(f"{path.name!r} ends in none of {endings}; save it in one of these formats.")
    if kind == "parquet":
        schema = attempt(lambda: pl.read_parquet_schema(path), refusal)
        return {name: _words(dtype) for name, dtype in schema.items()}
    try:
        with path.open("rb") as file:
            line = file.readline(LONGEST_LINE)
    except OSError as error:
        raise SourceUnavailable(
            f"{str(path)!r} cannot be opened ({error.strerror}); check its name and who may read it."
        ) from None
    if not line.strip():
        raise EmptyInput(f"{path.name!r} is empty; it needs at least a header or one record.")
    if kind == "jsonl":
        found = attempt(lambda: json.loads(line), refusal)
        if not isinstance(found, dict):
            raise refusal
        return {name: _json_words(value) for name, value in found.items()}
    text = attempt(
        lambda: line.decode("utf-8-sig"),
        NotUtf8(
            f"{path.name!r} is not UTF-8 text; convert it first, for example with iconv -f ISO-8859-1 -t UTF-8."
        ),
    )
    names = [name.strip() for name in next(csv.reader([text.rstrip("\r\n")], delimiter=separator), [])]
    check_header(names, (), repr(path.name))
    return dict.fromkeys(names, "unknown")


def _words(dtype: pl.DataType) -> str:
    if dtype.is_temporal():
        return "time"
    if dtype.is_integer():
        return "whole number"
    return "number" if dtype.is_numeric() else "text"


def _json_words(value: object) -> str:
    if isinstance(value, bool | str) or value is None:
        return "text"
    return "whole number" if isinstance(value, int) else "number"


def _guess(
    columns: Mapping[str, str], words: Sequence[str], taken: set[str], kinds: Sequence[str]
) -> str | None:
    """The first column of a fitting type whose name is, has as one of its words, ends in or contains one of the words.

    Examples
    --------
    >>> columns = dict.fromkeys(("lat", "counts", "ts_local"), "unknown")
    >>> _guess(columns, _TIME, set(), ())
    'ts_local'
    """
    free = [name for name, kind in columns.items() if name not in taken and kind in (*kinds, "unknown")]
    for fits in (str.__eq__, _has, str.endswith, str.__contains__):
        for word in words:
            if len(word) <= 3 and fits in (str.endswith, str.__contains__):
                continue  # it is in many others
            for name in free:
                if fits(name.lower() if fits is not _has else name, word):
                    return name
    return None


def _has(name: str, word: str) -> bool:
    """Whether a word is one of those that a name is made of: ts_local, startTime."""
    return word in [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)]


def check_name(name: str, given: str, columns: Mapping[str, str]) -> None:
    """Refuse what is no column of the input.

    Parameters
    ----------
    name
        The key that names it.
    given
        What it says.
    columns
        Names of the input's columns.

    Examples
    --------
    >>> check_name("unit", "devise", {"time": "time", "device": "text"})
    Traceback (most recent call last):
    tidegate.errors.InvalidParameter: unit='devise' is refused: ... did you mean 'device'?
    """
    if given in columns:
        return
    near = nearest(given, columns)
    remedy = f"did you mean {near!r}?" if near else f"write --{name} with one of them"
    raise InvalidParameter(name, given, f"a column of the input: {listed(list(columns))}", remedy)


def write_config(
    location: str | Path,
    columns: Mapping[str, str],
    *,
    time: str | None = None,
    unit: str | None = None,
    column: str | None = None,
    value: str | None = None,
    time_format: str | None = None,
    aggregate: str = "distinct",
    categories: Sequence[str] = (),
    clip: Sequence[str] = (),
    edges: Sequence[str] = (),
    most: int = 1,
    grid: str = "1",
    layout: str = "long",
    fill: str | None = None,
    policy: str = "w-event",
    max_change: str | None = None,
    start: str,
    length: str = "1h",
    zone: str = "UTC",
    count: int,
    epsilon: str = "1",
    delta: str | None = None,
    window: int = 24,
    mechanism: str = "auto",
    sink: str = "released.csv",
    queries: Sequence[Mapping[str, str]] = (),
) -> str:
    """A commented configuration as text.

    Parameters
    ----------
    location
        Where the input is.
    columns
        Names and types of its columns, as :func:`input_columns` gives them. What is not named is guessed
        from these, except for the unit.
    time, column, value
        The columns to use.
    unit
        The column that names who is protected. Never guessed: without it every record is a unit of its own.
    time_format
        How times are written, where they are neither ISO 8601 nor seconds.
    aggregate, categories, clip, edges, most, grid, layout, fill, policy, max_change, start, length, zone, count, \
    epsilon, delta, window, mechanism, sink
        The keys of the file. With the single category "discover" nobody lists them, and `delta` is needed.
    queries
        The keys of each of several statistics under one budget, in place of one; see :func:`listed_query`.

    Examples
    --------
    >>> text = write_config("events.csv", {"time": "time", "device": "text"}, unit="device", start="2026-03-02", count=24)
    >>> 'unit = "device"' in text
    True
    """
    for name, given in (("time", time), ("unit", unit), ("column", column), ("value", value)):
        if given is not None:
            check_name(name, given, columns)
    check_header(list(columns), (), "the input")
    taken = {name for name in (time, unit, column, value) if name}
    if time is None:
        time = next((name for name, kind in columns.items() if kind == "time" and name not in taken), None)
        time = time or _guess(columns, _TIME, taken, ("time", "whole number", "text"))
        if time is None:
            raise InvalidParameter(
                "time",
                None,
                "the column of the event's time",
                f"the first line must name the columns, and none of {listed(list(columns))} sounds like a time: write "
                "--time with the one it is",
            )
        taken.add(time)
    finds = list(categories) == [DISCOVER]
    if finds and delta is None:
        raise InvalidParameter(
            "delta", None, "given where categories are found by a test", "write --delta 1e-6"
        )
    wide = aggregate == "given" and layout == "wide"
    if wide and not categories:
        categories = [name for name in columns if name not in taken]
    if column is None and categories and not wide:
        column = _guess(columns, _PLACE, taken, ("text", "whole number"))
        taken |= {column} if column else set()
    if value is None and aggregate in ("sum", "mean", "histogram", "quantile", "given") and not wide:
        value = _guess(columns, _VALUE, taken, ("number", "whole number"))
    if unit is None and aggregate == "distinct":
        aggregate = "count"
    if (
        column is not None
        and not (categories or queries)
        and aggregate in ("count", "distinct", "sum", "mean")
    ):
        raise InvalidParameter(
            "categories",
            None,
            f"the public list of what {column!r} may hold, because it is never taken from the data",
            "write --categories 'north, south'; --categories discover, which finds them by a private test; or drop "
            "--column to count everything in one",
        )
    quoted = json.dumps

    def line(key: str, given: str | None, comment: str) -> str:
        text = f"{key} = {quoted(given, ensure_ascii=False)}" if given is not None else f'# {key} = "…"'
        return f"{text}{' ' * max(1, 34 - len(text))}# {comment}\n"

    the_end = textwrap.fill(THE_END, 100, initial_indent="# ", subsequent_indent="# ")
    names = ", ".join(quoted(str(name), ensure_ascii=False) for name in categories)
    listed_columns = f"columns = [{names}]" if names else '# columns = ["…", "…"]'
    if finds:
        listed_columns = f"columns = {names}"
        mechanism = "Discover" if mechanism == "auto" else mechanism
    bounds = ", ".join(quoted(str(bound)) for bound in clip)
    counted = aggregate in ("count", "distinct", "sum", "mean", "histogram", "quantile")
    bounded = "# most: of given input nothing is bounded\n"
    if counted:
        bounded = f"most = {most}{' ' * max(1, 27 - len(str(most)))}# contributions of one unit in one step\n"
    protected = ""
    if policy == "w-event":
        space = " " * max(1, 25 - len(str(window)))
        protected += f"window = {window}{space}# how many consecutive steps are protected together\n"
    if delta is not None:
        protected += line("delta", delta, "pays for the names that are found")
    if max_change is not None:
        protected += line("max_change", max_change, "by how much one unit can change one step: you know it")
    more = ""
    if edges:
        more += f"edges = [{', '.join(quoted(str(edge)) for edge in edges)}]  # of public intervals of the value\n"
    if grid != "1":
        more += line("grid", grid, "the resolution of values")
    if not counted:
        more += line("layout", layout, "long: a row for each step and series; wide: a row for each step")
        more += line(
            "fill", fill, 'a missing reading: "missing" (then it is public which there are), "zero", …'
        )

    one = f"""\
[query]
{line("aggregate", aggregate, "count, distinct, sum, mean, histogram, quantile or given")}\
{listed_columns}  # {"found by a private test, which delta pays for" if finds else "the public list of categories"}
{bounded}\
{f"clip = [{bounds}]" if bounds else '# clip = ["0", "100"]'}  # bounds of one value, for a sum or a mean
{more}"""
    asked = "\n".join(listed_query(each, columns) for each in queries) if queries else one
    return f"""\
# Everything in this file is public. Nothing in it may be taken from the data. All keys: docs/reference/config.md

[source]
{line("location", str(location), "a file, a folder, - for standard input, or mqtt://host/topic")}\
{line("time", time, "when")}\
{line("time_format", time_format, 'if not ISO 8601: "%d.%m.%Y %H:%M", …')}\
{line("unit", unit, "who: the person or device that is protected; without it, each record by itself")}\
{line("column", column, "where: the category")}\
{line("value", value, "how much, for a sum or a mean")}
[steps]
{line("start", start, "when step 1 begins: chosen by you, not the first event")}\
{line("length", length, "of a step")}\
{line("zone", zone, "of the start, and of times that carry none")}\
count = {count}{" " * max(1, 26 - len(str(count)))}# how many steps there are
{the_end}

{asked}
[protect]
{line("policy", policy, "event, w-event or user")}\
{line("epsilon", epsilon, "the budget of any window")}\
{protected}\

[mechanism]
{line("name", mechanism, "how the budget is spent")}\
{FOUND if finds else ""}
[sink]
{line("location", sink, "where the releases go")}
# [about]                         # words for the report, the card and the page
{line("title", None, "its first line")}\
{line("publisher", None, "who publishes")}\
{line("unit", None, "one protected unit: device, customer, household")}\
{line("counted", None, "what values count or measure: devices, trips, minutes")}"""


DISCOVER = "discover"
FOUND = """\
columns = 50                      # the most categories at once
categories = 2                    # in how many of them one unit counts in an epoch; an epoch is as long as the window
"""
LISTED = {  # keys of one of several statistics, and whether each is a list
    "name": False,
    "aggregate": False,
    "share": False,
    "column": False,
    "columns": True,
    "value": False,
    "clip": True,
    "edges": True,
    "quantiles": True,
    "grid": False,
    "target": False,
    "level": False,
    "mechanism": False,
    "counted": False,
}
CLIPPED = "clipped"  # the share of the budget for how many values are clipped


def listed_query(given: Mapping[str, str], columns: Mapping[str, str] = MappingProxyType({})) -> str:
    """One of several statistics as a section of the file.

    Parameters
    ----------
    given
        Its keys as texts; lists are separated by commas.
    columns
        Names of the input's columns, among which those of category and value must be.

    Examples
    --------
    >>> print(listed_query({"name": "revenue", "aggregate": "sum", "clip": "0, 200"}), end="")
    [[query]]
    name = "revenue"
    aggregate = "sum"
    clip = ["0", "200"]
    """
    lines = ["[[query]]"]
    clipped = given.get(CLIPPED)
    for key, text in given.items():
        if key == CLIPPED:
            continue
        if key == "most" and text.isdecimal():
            lines.append(f"most = {int(text)}")
            continue
        if key not in LISTED:
            known = ", ".join(("most", *LISTED, CLIPPED))
            near = nearest(key, ("most", *LISTED, CLIPPED))
            remedy = f"did you mean {near!r}?" if near else "write for example name=orders aggregate=count"
            raise InvalidParameter("query", key, f"made of {known}", remedy)
        if key in ("column", "value") and columns:
            check_name(key, text, columns)
        value = [part.strip() for part in text.split(",") if part.strip()] if LISTED[key] else text
        shown = text if key == "level" else json.dumps(value, ensure_ascii=False)
        lines.append(f"{key} = {shown}")
    return "\n".join(lines) + "\n" + ("" if clipped is None else "\n" + _clipped(given, clipped))


def _clipped(given: Mapping[str, str], share: str) -> str:
    """A histogram of two columns, inside of the clip and outside of it, and the part that is outside."""
    name, bounds = given.get("name", ""), [part.strip() for part in given.get("clip", "").split(",")]
    if len(bounds) != 2 or given.get("aggregate") not in ("sum", "mean") or not name:
        raise InvalidParameter(
            CLIPPED, share, "beside a name and a clip of two bounds, of a sum or a mean", f"drop {CLIPPED}"
        )
    keys = {"name": f"{name}-clipped", "aggregate": "histogram", "edges": given["clip"]}
    keys |= {key: given[key] for key in ("value", "most") if key in given}
    return (
        '# how many values are clipped: those outside of its edges are in the column "other"\n'
        + listed_query({**keys, "share": share}).rstrip("\n")
        + '\noutside = "other"\n\n'
        + f'[[answer]]\nname = "{name}-clipped-share"\nkind = "share"\nquery = "{name}-clipped"\nof = "other"\n'
    )
