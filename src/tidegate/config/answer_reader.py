"""Reading ``[[answer]]``: keys → standing questions, each refused with its line."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from tidegate.clock.steps import CALENDAR, DAY, MONTH, WEEK, Steps
from tidegate.config.answer import Answer
from tidegate.config.auto import DAY as SECONDS_OF_A_DAY
from tidegate.config.config import Config
from tidegate.config.keys import AnswerKeys
from tidegate.config.reader import FileReader, one_of
from tidegate.errors import InvalidParameter
from tidegate.exact import exact, positive, whole
from tidegate.queries import standing
from tidegate.queries.standing import Meaning, Operator

MOST_AHEAD = 10_000  # steps of a forecast
LONGEST_WINDOW = 1_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
# which keys a kind has, besides name, kind, query and location
_KEYS = {
    "window": {"columns", "window", "statistic"},
    "jump": {"columns", "window", "threshold", "direction"},
    "low": {"columns", "window", "threshold"},
    "alarm": {"columns", "window", "statistic", "threshold", "direction"},
    "average": {"columns"},
    "decayed": {"columns", "half_life"},
    "smooth": {"columns", "window", "threshold"},
    "forecast": {"columns", "ahead", "every", "model", "train"},
    "unexpected": {"columns", "direction"},
    "ratio": {"of", "by", "by_query", "window"},
    "share": {"columns", "of", "window"},
    "top": {"columns", "count", "window"},
}
_NEEDED = {
    "window": ("window", 'write for example window = "24h"'),
    "jump": ("threshold", "write for example threshold = 50"),
    "low": ("threshold", "write for example threshold = 50"),
    "alarm": ("threshold", "write for example threshold = 50"),
    "decayed": ("half_life", "write for example half_life = 24"),
    "smooth": ("window", 'write for example window = "24h"'),
    "forecast": ("ahead", "write for example ahead = 24"),
    "share": ("of", 'write for example of = "other"'),
    "top": ("count", "write for example count = 3"),
}


def read_answers(
    reader: FileReader, found: dict[str, Any], config: Config, queries: Mapping[str, Config] | None = None
) -> tuple[Answer, ...]:
    """The standing questions of a file to one of its queries.

    Parameters
    ----------
    reader
        Who reads the file.
    found
        The file's tables.
    config
        The configuration without answers.
    queries
        All queries by their names, without answers, where there are several.
    """
    queries = queries or {}
    listed = found.get("answer", [])
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise reader.fail("'answer' must be sections; write [[answer]] for each.", "answer")
    if listed and config.run.archives is not None:
        raise reader.fail(
            "archives is refused beside [[answer]]: answers are made from all releases, so none of them can be archived; "
            "drop one of the two.",
            "run",
            "archives",
        )
    names: set[str] = set()
    taken = {Path(config.locate(place)) for place in (config.sink.location, config.source.location)}
    taken |= {config.path, Path(config.ledger)}
    answers = []
    for index, given in enumerate(listed):
        own = FileReader(one_of(reader.text, "answer", index), reader.path, reader.follow)
        keys: AnswerKeys = own.section(
            "answer", AnswerKeys, [item.name for item in fields(AnswerKeys)], given
        )
        _check(own, keys, given, names, queries)
        place = Path(config.locate(keys.location or f"{keys.name}.csv"))
        if place in taken:
            raise own.fail(
                f"{place.name} is the place of something else; give the answer a file of its own in location.",
                "answer",
                "location",
            )
        taken.add(place)
        if not queries or keys.query == config.name:
            answers.append(own.make("answer", lambda keys=keys: _answer(keys, config, queries)))  # type: ignore[misc]
    return tuple(answers)


def _check(
    reader: FileReader,
    keys: AnswerKeys,
    given: dict[str, Any],
    names: set[str],
    queries: Mapping[str, Config],
) -> None:
    """Refuse names that cannot be or are there twice, and keys that the kind does not have."""
    if not _NAME.fullmatch(keys.name) or keys.name in names:
        why = "the name of another answer" if keys.name in names else "no name"
        raise reader.fail(
            f"name = {keys.name!r} is {why}; take at most 40 letters, digits, - and _ that no other answer has.",
            "answer",
            "name",
        )
    names.add(keys.name)
    for key in given:
        if key not in _KEYS[keys.kind] | {"name", "kind", "query", "location"}:
            known = ", ".join(sorted(_KEYS[keys.kind]))
            raise reader.fail(
                f"{key} is no key of kind {keys.kind}, which has {known}; drop it.", "answer", key
            )
    if keys.query is not None and not queries:
        raise reader.fail("there is one query only, without a name; drop the key query.", "answer", "query")
    if queries and keys.query not in queries:
        raise reader.fail(
            f"query must say which one is asked, {', '.join(queries)}; write query = {next(iter(queries))!r}.",
            "answer",
            "query",
        )


def _answer(keys: AnswerKeys, config: Config, queries: Mapping[str, Config]) -> Answer:
    needed = _NEEDED.get(keys.kind)
    if needed is not None and getattr(keys, needed[0]) is None:
        raise InvalidParameter(needed[0], None, f"given for kind {keys.kind}", needed[1])
    location = keys.location or f"{keys.name}.csv"
    if not location.endswith((".csv", ".jsonl", ".ndjson")) or "://" in location:
        raise InvalidParameter(
            "location", location, "a file that ends in .csv or .jsonl", f'write "{keys.name}.csv"'
        )
    if config.query.discovers:
        raise InvalidParameter(
            "kind",
            keys.kind,
            "asked of a query with a list of columns, because those that are found come and go",
            "drop it, or list the columns",
        )
    meaning = meaning_of(config)
    for column in keys.columns:
        _check_column("columns", column, meaning)
    ask = _ratio(keys, config, meaning, queries) if keys.kind == "ratio" else _operator(keys, config, meaning)
    ask()  # refuses what cannot be, while nothing is charged
    beside = None if keys.by_query == keys.query else keys.by_query
    return Answer(keys.name, location, meaning, ask, beside)


def meaning_of(config: Config) -> Meaning:
    """What the released vectors of a configuration mean."""
    query = config.query
    return Meaning(
        query.answer_labels,
        query.answers,
        query.intervals,
        sums=config.mechanism.statistic == "sums",
        direct=query.aggregate not in ("mean", "quantile") and query.levels is None,
        grid=float(Fraction(query.grid)),
    )


def _check_column(name: str, column: str, meaning: Meaning) -> None:
    if column not in meaning.labels:
        known = ", ".join(meaning.labels[:20])
        raise InvalidParameter(name, column, f"one of {known}", "name a released column")


def _ratio(
    keys: AnswerKeys, config: Config, meaning: Meaning, queries: Mapping[str, Config]
) -> Callable[[], Operator]:
    """A ratio of two columns of one query, or of one column each of two."""
    length = None if keys.window is None else _length("window", keys.window, config.steps, LONGEST_WINDOW)
    other = config if keys.by_query in (None, keys.query) else queries.get(str(keys.by_query))
    if other is None:
        known = ", ".join(queries) or "none, because the file has one query"
        raise InvalidParameter("by_query", keys.by_query, f"one of {known}", "name a [[query]], or drop it")
    for each in (config, other):
        if length is not None and each.mechanism.statistic not in ("steps", "sums"):
            raise InvalidParameter(
                "window",
                keys.window,
                f"absent for {type(each.mechanism).__name__}, which releases no values of steps",
                "drop it",
            )
    if other is config:
        of, by = _the_column("of", keys.of, meaning), _the_column("by", keys.by, meaning)
        return lambda: standing.Ratio(
            meaning,
            of=of,
            by=by,
            window=None if length is None else standing.Window(meaning, (), length=length),
        )
    _check_alike(config, other, length)
    beside = meaning_of(other)
    of, by = _the_column("of", keys.of, meaning), _the_column("by", keys.by, beside)
    names = [
        config.name if len(meaning.labels) == 1 else f"{config.name} {of}",
        other.name if len(beside.labels) == 1 else f"{other.name} {by}",
    ]
    return lambda: standing.RatioOfTwo(meaning, beside, of=of, by=by, label=" / ".join(names), length=length)


def _the_column(name: str, column: str | None, meaning: Meaning) -> str:
    """A column that was named, or the only one that there is."""
    if column is None and len(meaning.labels) > 1:
        raise InvalidParameter(
            name, None, "given for kind ratio where there are several columns", "name a released column"
        )
    found = meaning.labels[0] if column is None else column
    _check_column(name, found, meaning)
    return found


def _check_alike(config: Config, other: Config, length: int | None) -> None:
    """Refuse to divide what is not about the same steps, or is not known at the same time."""
    if config.later != other.later:
        raise InvalidParameter(
            "by_query", other.name, "of the same edition", "name the edition that query has"
        )
    if length is None and _about(config) != _about(other):
        raise InvalidParameter(
            "by_query",
            other.name,
            f"released as sums of the same steps as {config.name}",
            "divide over a window, or give both queries the same mechanism",
        )


def _about(config: Config) -> tuple[str, int | None]:
    """What one release is about: a step, all steps so far, or so many of the last ones."""
    kind = config.mechanism.statistic
    return kind, getattr(config.mechanism, "window", None) if kind == "windows" else None


def _operator(keys: AnswerKeys, config: Config, meaning: Meaning) -> Callable[[], Operator]:
    steps, columns = config.steps, keys.columns
    if config.mechanism.statistic == "windows" and keys.kind in (
        "window",
        "low",
        "average",
        "decayed",
        "smooth",
    ):
        raise InvalidParameter(
            "kind",
            keys.kind,
            f"another one for {type(config.mechanism).__name__}, which releases sums of windows already",
            "ask for jump, alarm, forecast, unexpected, ratio, share or top",
        )
    if meaning.sums and keys.kind in ("forecast", "unexpected"):
        raise InvalidParameter(
            "kind",
            keys.kind,
            f"another one for {type(config.mechanism).__name__}, which releases running sums",
            "ask it of the steps of another mechanism",
        )
    threshold = 0.0 if keys.threshold is None else float(exact("threshold", keys.threshold))
    mean = keys.statistic == "mean"
    if keys.kind == "window" and keys.window in CALENDAR:
        period = calendar_periods(steps, str(keys.window))
        return lambda: standing.CalendarWindow(meaning, columns, period=period, mean=mean)
    length = None if keys.window is None else _length("window", keys.window, steps, LONGEST_WINDOW)
    if keys.kind == "window":
        assert length is not None
        return lambda: standing.Window(meaning, columns, length=length, mean=mean)
    below, above = keys.direction in (None, "below"), keys.direction in (None, "above")
    if keys.kind == "jump":
        return lambda: standing.Jump(
            meaning, columns, threshold=threshold, length=length or 1, below=below, above=above
        )
    if keys.kind == "unexpected":
        periods = _periods(steps)
        return lambda: standing.Unexpected(meaning, columns, periods=periods, below=below, above=above)
    if keys.kind == "low":
        return lambda: standing.LowSignal(meaning, columns, threshold=threshold, length=length or 1)

    def window() -> standing.Window | None:
        return None if length is None else standing.Window(meaning, columns, length=length, mean=mean)

    if keys.kind == "alarm":
        low = keys.direction == "below"
        return lambda: standing.Alarm(meaning, columns, threshold=threshold, below=low, window=window())
    if keys.kind == "average":
        return lambda: standing.RunningAverage(meaning, columns)
    if keys.kind == "smooth":
        return lambda: standing.SmoothWhereNoisy(meaning, columns, length=length or 1, threshold=threshold)
    if keys.kind == "decayed":
        life = _length("half_life", _given(keys.half_life), steps, LONGEST_WINDOW)
        return lambda: standing.DecayedAverage(meaning, columns, factor=2.0 ** (-1 / life))
    if keys.kind == "forecast":
        ahead = _length("ahead", _given(keys.ahead), steps, MOST_AHEAD)
        every = ahead if keys.every is None else _length("every", keys.every, steps, LONGEST_WINDOW)
        if keys.model == "arma":
            train = _length("train", 1000 if keys.train is None else keys.train, steps, LONGEST_WINDOW)
            return lambda: standing.ArmaForecast(meaning, columns, ahead=ahead, every=every, train=train)
        return lambda: standing.SeasonalForecast(
            meaning, columns, ahead=ahead, every=every, periods=_periods(steps)
        )
    if keys.kind == "share":
        of = _the_column("of", keys.of, meaning)
        if config.query.aggregate not in ("count", "distinct", "histogram"):
            raise InvalidParameter(
                "kind", "share", "asked of counts: count, distinct or histogram", "ask for a ratio"
            )
        return lambda: standing.Share(meaning, columns, of=of, window=window())
    count = whole("count", keys.count or 0, most=len(columns) or len(meaning.labels))
    return lambda: standing.Top(meaning, columns, count=count, window=window())


def _given(value: int | str | None) -> int | str:
    assert value is not None
    return value


def _length(name: str, value: int | str, steps: Steps, most: int) -> int:
    if value in CALENDAR:
        raise InvalidParameter(name, value, "a number of steps or a duration here", 'write for example "24h"')
    found = steps.window(name, value)
    if found > most:
        raise InvalidParameter(name, value, f"at most {most} steps", "make it shorter")
    return whole(name, found)


def _periods(steps: Steps) -> tuple[int, ...]:
    """Days and weeks in steps, where they are whole numbers of them."""
    if steps.calendar:
        return (7,) if steps.length == DAY else ()
    day = Fraction(SECONDS_OF_A_DAY) / Fraction(positive("length", steps.length))
    found = [int(day * times) for times in (1, 7) if (day * times).denominator == 1]
    return tuple(period for period in found if 2 <= period <= 50_000)


def calendar_periods(steps: Steps, kind: str) -> Callable[[int], tuple[int, int]]:
    """Which steps belong to the day, week or month of the time zone in which a step begins.

    Examples
    --------
    >>> hours = Steps(start="2026-03-28", length="1h", zone="Europe/Berlin")
    >>> of = calendar_periods(hours, "calendar day")
    >>> of(1), of(30)  # the second day is the one on which summer time begins
    ((1, 24), (25, 47))
    """
    zone = ZoneInfo(steps.zone)

    def midnight(day: datetime.date) -> int:
        begin = datetime.datetime.combine(day, datetime.time(), zone)
        return int(begin.timestamp()) * 10**6

    def first_from(moment: int, near: int) -> int:
        """The first step that does not begin before a moment, not far from another one."""
        if steps.calendar:
            while near > 1 and steps.boundary(near - 1) >= moment:
                near -= 1
            while steps.boundary(near) < moment:
                near += 1
            return near
        length = Fraction(positive("length", steps.length)) * 10**6
        return max(1, -(-(moment - steps.origin) // int(length)) + 1)

    known: list[tuple[int, int]] = []

    def period(step: int) -> tuple[int, int]:
        if known and known[0][0] <= step <= known[0][1]:
            return known[0]
        day = steps.begin(step).astimezone(zone).date()
        if kind == WEEK:
            day -= datetime.timedelta(days=day.weekday())
        if kind == MONTH:
            day = day.replace(day=1)
        after = day + datetime.timedelta(days={DAY: 1, WEEK: 7}.get(kind, 32))
        if kind == MONTH:
            after = after.replace(day=1)
        known[:] = [(first_from(midnight(day), step), first_from(midnight(after), step) - 1)]
        return known[0]

    return period
