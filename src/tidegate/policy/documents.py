"""Specifications that people write: TOML or JSON files, read with the line of every mistake.

A file names the public clock and one specification a household, each with its secrets; docs/mechanisms/swellfish.md and
docs/examples show it. Numbers such as 3.92 are read as the decimals that they are.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from tidegate.clock.calendar_rules import Clock
from tidegate.clock.durations import DAY, seconds
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.policy.secrets import Secret
from tidegate.policy.specification import Specification
from tidegate.policy.swellfish import Swellfish, check_clock

Where = tuple[Any, ...]  # the path of a value: ("specification", 0, "secret", 2, "height")

TOP = {"zone", "start", "step", "promise", "delta", "horizon", "allowance", "longest", "specification"}
SPECIFICATION = {"label", "secret"}
SECRET = {"label", "height", "duration", "epsilon", "hidden"}
COLUMNS = ("specification", "label", "height", "duration", "epsilon", "hidden")  # of a table
_TIME = r"\d{4}-\d{2}-\d{2}[T ]\d{1,2}:\d{2}"
_STRETCH = re.compile(rf"^(?P<begin>{_TIME})\s+to\s+(?P<end>{_TIME})$")
_HEADER = re.compile(r"^\s*\[\[\s*(?P<name>[\w.]+)\s*\]\]")
_KEY = re.compile(r"^\s*(?P<name>\w+)\s*=")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')


def read_policy(
    source: str | Path, released: int = 0, *, clock: Clock | None = None, **more: Any
) -> Swellfish:
    """Read a Swellfish policy from a file, or from its text.

    Parameters
    ----------
    source
        The path of a .toml, .json or .csv file, or the text of one of the first two. A table has a header and a line for
        each secret: label of the specification, label of the secret, height, duration, epsilon, hidden; several times at
        which it is hidden are separated by semicolons.
    released
        The last step that a running stream has released: secrets that begin before it are refused.
    clock
        The clock of the stream, which a file need not repeat, and may not contradict.
    more
        Further fields of the policy, where the file does not have them.

    Examples
    --------
    >>> policy = read_policy('''
    ... start = "2026-01-05T00:00"
    ... zone = "Europe/Berlin"
    ... [[specification]]
    ... label = "house 1"
    ... [[specification.secret]]
    ... label = "somebody is at home"
    ... height = 0.5
    ... duration = 1
    ... epsilon = 1
    ... hidden = "always"
    ... [[specification.secret]]
    ... label = "cooking"
    ... height = 3
    ... duration = "30 min"
    ... epsilon = 0.5
    ... hidden = "every weekday 18:00-23:00"
    ... ''')
    >>> policy.window, policy.as_w_event().window
    (2, 2)
    """
    reader = _Reader(source, released, clock)
    return reader.policy(more)


class _Reader:
    """One document, and where each of its values stands."""

    def __init__(self, source: str | Path, released: int, clock: Clock | None = None) -> None:
        self.name, text = _text(source)
        self.released = released
        self.given_clock = clock
        self.lines: dict[Where, int] = {}
        try:
            if self.name.endswith(".csv"):
                self._table_of_secrets(text)
            elif text.lstrip().startswith("{"):
                self.content = json.loads(text, parse_float=Decimal)
                self._json_lines(text)
            else:
                self.content = tomllib.loads(text, parse_float=Decimal)
                self._toml_lines(text)
        except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
            raise InvalidInput(f"{self.name} cannot be read: {error}; correct that line.") from None

    # where things stand

    def _table_of_secrets(self, text: str) -> None:
        """A line for each secret, of a class of units that is named in its first field."""
        houses: dict[str, list[dict[str, Any]]] = {}
        rows = csv.reader(io.StringIO(text, newline=""))
        next(rows, None)
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            if len(row) != len(COLUMNS):
                raise InvalidInput(
                    f"{self.name}, line {rows.line_num}: a secret has the fields {', '.join(COLUMNS)}; write them all."
                )
            house, label, height, duration, epsilon, hidden = (cell.strip() for cell in row)
            secrets = houses.setdefault(house, [])
            where = ("specification", list(houses).index(house), "secret", len(secrets))
            self.lines[where] = rows.line_num
            times = [part.strip() for part in hidden.split(";") if part.strip()]
            secrets.append(
                {
                    "label": label,
                    "height": height,
                    "duration": int(duration) if duration.isdecimal() else duration,
                    "epsilon": epsilon,
                    "hidden": "always" if times == ["always"] else times,
                }
            )
        self.content = {"specification": [{"label": name, "secret": of} for name, of in houses.items()]}

    def _toml_lines(self, text: str) -> None:
        where: Where = ()
        counts = {"specification": -1, "specification.secret": -1}
        for number, line in enumerate(text.splitlines(), 1):
            header, key = _HEADER.match(line), _KEY.match(line)
            if header and header["name"] in counts:
                counts[header["name"]] += 1
                if header["name"] == "specification":
                    counts["specification.secret"] = -1
                    where = ("specification", counts["specification"])
                else:
                    where = ("specification", counts["specification"], "secret", counts[header["name"]])
                self.lines[where] = number
            elif key:
                self.lines.setdefault((*where, key["name"]), number)

    def _json_lines(self, text: str) -> None:
        stack: list[list[Any]] = []  # [closing bracket, key or index]
        expecting_key = False
        for found in _TOKEN.finditer(text):
            token, number = found[0], text.count("\n", 0, found.start()) + 1
            path = tuple(level[1] for level in stack)
            if token in "{[":
                self.lines.setdefault(path, number)
                stack.append(["}", None] if token == "{" else ["]", 0])
                expecting_key = token == "{"
            elif token in "}]":
                stack.pop()
            elif token == ",":
                expecting_key = stack[-1][0] == "}"
                if not expecting_key:
                    stack[-1][1] += 1
            elif expecting_key and token.startswith('"'):
                stack[-1][1] = json.loads(token)
                self.lines.setdefault(tuple(level[1] for level in stack), number)
                expecting_key = False

    def _refuse(self, where: Where, sentence: str) -> InvalidInput:
        found = next((self.lines[where[:n]] for n in range(len(where), -1, -1) if where[:n] in self.lines), 1)
        return InvalidInput(f"{self.name}, line {found}: {sentence}")

    # reading

    def policy(self, more: Mapping[str, Any]) -> Swellfish:
        content = self._table((), self.content, TOP)
        fields = dict(more) | {
            name: content[name] for name in TOP & set(content) - {"zone", "start", "step", "specification"}
        }
        clock = self._clock(content)
        given = content.get("specification", [])
        if not isinstance(given, list) or not given:
            raise self._refuse(
                ("specification",), "there is no [[specification]]; write one for each household."
            )
        houses = tuple(
            self._specification(("specification", at), each, clock) for at, each in enumerate(given)
        )
        try:
            policy = Swellfish(specifications=houses, clock=clock, **fields)
        except InvalidParameter as error:
            raise self._refuse((error.name,), str(error)) from None
        for at, house in enumerate(houses):
            bare = house.uncovered(clock, policy.horizon)
            if bare is not None:
                raise self._refuse(
                    ("specification", at),
                    f"{house.label!r} hides nothing at step {bare}, which would be published without noise; "
                    'add a baseline secret with hidden = "always".',
                )
        return policy

    def _clock(self, content: Mapping[str, Any]) -> Clock | None:
        if "start" not in content:
            for name in {"zone", "step"} & set(content):
                raise self._refuse((name,), f"{name} needs start; write when step 1 begins.")
            return self.given_clock
        values = {name: content[name] for name in ("start", "step", "zone") if name in content}
        try:
            clock = Clock(**{**values, "start": str(values["start"])})
        except InvalidParameter as error:
            raise self._refuse((error.name,), str(error)) from None
        other = self.given_clock
        if other is not None and (clock.origin, clock.length) != (other.origin, other.length):
            raise self._refuse(("start",), "the stream has another clock; drop start, step and zone here.")
        return clock

    def _table(self, where: Where, content: Any, known: set[str]) -> dict[str, Any]:
        if not isinstance(content, dict):
            raise self._refuse(where, f"this must be a table with {', '.join(sorted(known))}; write one.")
        for name in content:
            if name not in known:
                raise self._refuse(
                    (*where, name), f"{name} is not known here; use one of {', '.join(sorted(known))}."
                )
        return content

    def _specification(self, where: Where, content: Any, clock: Clock | None) -> Specification:
        table = self._table(where, content, SPECIFICATION)
        given = table.get("secret", [])
        if not isinstance(given, list):
            raise self._refuse(
                where, "secrets are a list; write [[specification.secret]] before each of them."
            )
        secrets = tuple(self._secret((*where, "secret", at), each, clock) for at, each in enumerate(given))
        try:
            specification = Specification(secrets, str(table.get("label", "")))
            check_clock(specification, clock)
        except InvalidParameter as error:
            same = [at for at, each in enumerate(secrets) if f"={each.label!r} " in str(error)]
            last = (*where, "secret", same[-1]) if len(same) > 1 else where
            raise self._refuse(last, str(error)) from None
        return specification

    def _secret(self, where: Where, content: Any, clock: Clock | None) -> Secret:
        table = self._table(where, content, SECRET)
        for name in ("height", "duration", "epsilon", "hidden"):
            if name not in table:
                raise self._refuse(where, f"the secret has no {name}; write it.")
        try:
            intervals, rules = self._hidden((*where, "hidden"), table["hidden"], clock)
            duration = table["duration"]
            if isinstance(duration, str):
                if clock is None:
                    raise self._refuse((*where, "duration"), "a duration in time needs start; write steps.")
                # what an event lasts is elapsed time: its days have 24 hours in every zone
                duration = -(-seconds("duration", duration, most=366 * DAY) // clock.length)
            label = str(table.get("label", ""))
            secret = Secret(table["height"], duration, intervals, table["epsilon"], label, rules)
            if clock is not None and secret.fits(clock) is not None:
                raise InvalidParameter(
                    "recurring",
                    str(secret.fits(clock)),
                    f"at least as long as the event's duration of {duration} steps",
                    "widen the hours or shorten the event",
                )
        except InvalidParameter as error:
            name = {"intervals": "hidden", "recurring": "hidden", "hours": "hidden"}.get(
                error.name, error.name
            )
            raise self._refuse((*where, name), str(error)) from None
        rows = secret.intervals.rows
        if len(rows) and rows[0, 0] <= self.released and not secret.endless:
            raise self._refuse(
                (*where, "hidden"),
                f"step {rows[0, 0]} lies in the past of the stream, which has released step {self.released}; "
                f"hide the event from step {self.released + 1} on.",
            )
        return secret

    def _hidden(self, where: Where, hidden: Any, clock: Clock | None) -> tuple[Any, tuple[str, ...]]:
        """Intervals of steps, and recurring rules."""
        if hidden == "always":
            return "always", ()
        entries = hidden if isinstance(hidden, list) and not _is_pair(hidden) else [hidden]
        intervals, rules = [], []
        for entry in entries:
            stretch = _STRETCH.match(entry.strip()) if isinstance(entry, str) else None
            if _is_pair(entry):
                intervals.append(tuple(entry))
            elif stretch and clock is not None:
                intervals.append(clock.interval(stretch["begin"], stretch["end"]))
            elif isinstance(entry, str) and clock is not None:
                rules.append(entry)
            elif isinstance(entry, str):
                raise self._refuse(where, f"{entry!r} needs the clock; write start at the top of the file.")
            else:
                raise self._refuse(
                    where, 'hidden must be "always", hours, a stretch of time or [first, last].'
                )
        return intervals, tuple(rules)


def _is_pair(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and all(type(number) is int for number in entry)


def _text(source: str | Path) -> tuple[str, str]:
    if isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{")):
        return "the specification", source
    path = Path(source)
    try:
        return path.name, path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InvalidInput(f"{path.name} cannot be read; give the path of a TOML or JSON file.") from None
