"""Alarms on released values: public limits, and standing questions that raise one. Post-processing, free."""

from __future__ import annotations

import tomllib
from collections import OrderedDict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from tidegate.config import Config, ConfigError
from tidegate.queries.standing import Operator
from tidegate.sinks.answer_file import asked
from tidegate.sinks.chunks import Chunk

KEPT = 10_000  # events that are remembered
Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Alarm:
    """One alarm.

    Parameters
    ----------
    name
        How people call it.
    column
        The position of its column among the answers.
    above, below
        The limit; one of the two.
    sure
        Whether the whole range of a value must be beyond the limit, and not the value alone.
    """

    name: str
    column: int
    above: float | None = None
    below: float | None = None
    sure: bool = False

    def beyond(self, value: float, low: float, high: float) -> bool | None:
        """Whether a value is beyond the limit; None where there is none."""
        if self.above is not None:
            found = low if self.sure else value
            return None if np.isnan(found) else bool(found > self.above)
        found = high if self.sure else value
        return None if np.isnan(found) else bool(found < (self.below or 0.0))


@dataclass(frozen=True)
class Webhook:
    """Where events are sent to.

    Parameters
    ----------
    url
        An address that takes POST.
    releases
        Whether every release is sent, and not alarms alone.
    """

    url: str
    releases: bool = False


@dataclass(frozen=True)
class Standing:
    """A standing question of the configuration whose rows say whether there is an alarm.

    Parameters
    ----------
    name
        As in ``[[answer]]``.
    operator
        The question, which is asked of all releases in their order.
    """

    name: str
    operator: Operator


@dataclass
class Alarms:
    """All alarms of a query, and which of them are raised; it follows first releases in their order.

    So the same releases raise the same alarms with the same ids, before and after any restart.
    """

    alarms: tuple[Alarm, ...] = ()
    standing: tuple[Standing, ...] = ()
    hooks: tuple[Webhook, ...] = ()
    labels: tuple[str, ...] = ()
    on: dict[tuple[str, str], bool] = field(default_factory=dict)  # by the alarm's name and the column
    events: OrderedDict[int, list[dict[str, Any]]] = field(default_factory=OrderedDict)

    def follow(self, chunk: Chunk, answers: Values, low: Values, high: Values) -> None:
        """Look at releases; what is raised or cleared is filed under the number of the release that did it."""
        for index in np.flatnonzero(chunk.revision == 0).tolist() if self.alarms else ():
            for alarm in self.alarms:
                ends = (float(each[index, alarm.column]) for each in (answers, low, high))
                now = alarm.beyond(*ends)
                if now is not None:
                    value = float(answers[index, alarm.column])
                    self._file(chunk, index, alarm.name, self.labels[alarm.column], now, value, alarm.sure)
        for question in self.standing:
            at = question.operator.extras.index("alarm")
            for index, (_, rows) in enumerate(asked(question.operator, chunk)):
                for row in rows:
                    raised, certain = bool(row.more[at]), bool(row.more[at + 1])
                    self._file(chunk, index, question.name, row.column, raised, row.value, certain)
        while len(self.events) > KEPT:
            self.events.popitem(last=False)

    @property
    def key(self) -> list[Any]:
        """What the alarms are, ready for JSON: those of another file have another past."""
        return [self.labels, *(asdict(alarm) for alarm in self.alarms)]

    def summary(self) -> dict[str, Any]:
        """Which alarms are raised, and what is remembered of those that were, ready for JSON."""
        return {"on": [[*place, on] for place, on in self.on.items()], "events": list(self.events.items())}

    def resume(self, known: dict[str, Any]) -> None:
        """Resume from a summary."""
        self.on = {(name, column): on for name, column, on in known["on"]}
        self.events = OrderedDict((number, events) for number, events in known["events"])

    def _file(
        self, chunk: Chunk, index: int, name: str, column: str, now: bool, value: float, certain: bool
    ) -> None:
        if now == self.on.get((name, column), False):
            return
        self.on[name, column] = now
        event = {
            "alarm": name,
            "state": "raised" if now else "cleared",
            "step": int(chunk.step[index]),
            "column": column,
            "value": value,
            "certain": now and certain,
        }
        self.events.setdefault(chunk.first + index, []).append(event)


def read_alarms(config: Config, query: str = "", queries: tuple[str, ...] = ()) -> Alarms:
    """The alarms and hooks in the file beside a configuration, ``campus.alarms.toml`` for ``campus.toml``.

    Parameters
    ----------
    config
        The configuration, of one of the queries where there are several.
    query, queries
        The name of that query and those of all of them; each alarm then says which query it looks at.
    """
    labels = config.query.answer_labels
    questions = [Standing(answer.name, answer.ask()) for answer in config.answers]
    standing = tuple(each for each in questions if "alarm" in each.operator.extras)
    path = config.path.with_suffix(".alarms.toml")
    if not path.exists():
        return Alarms((), standing, labels=labels)
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ConfigError(path.name, None, "it is not valid TOML; correct it.") from None
    for name in found:
        listed = found[name] if isinstance(found[name], list) else [None]
        if name not in ("alarm", "webhook") or not all(isinstance(entry, dict) for entry in listed):
            raise ConfigError(path.name, None, "it has [[alarm]] and [[webhook]] only; correct it.")
    listed = found.get("alarm", [])
    if any(entry.get("query", "") not in (queries or ("",)) for entry in listed):
        which = (
            f"an alarm says which query it looks at, one of {', '.join(queries)}"
            if queries
            else ("the stream has one query, so no alarm names one")
        )
        raise ConfigError(path.name, None, f"{which}; correct it.")
    own = [entry for entry in listed if entry.get("query", "") == query]
    alarms = tuple(_alarm(path, entry, labels) for entry in own)
    if config.query.discovers and any(
        labels[alarm.column] not in config.query.rest_labels for alarm in alarms
    ):
        raise ConfigError(
            path.name, None, 'where categories are found, alarms look at column = "other" alone; correct it.'
        )
    names = [*(alarm.name for alarm in alarms), *(question.name for question in standing)]
    if len(set(names)) < len(names):
        raise ConfigError(
            path.name, None, "two alarms, or an alarm and an answer, have the same name; rename one."
        )
    hooks = tuple(_hook(path, entry) for entry in found.get("webhook", []))
    return Alarms(alarms, standing, hooks, labels)


def _alarm(path: Path, entry: dict[str, Any], labels: tuple[str, ...]) -> Alarm:
    unknown = set(entry) - {"name", "query", "column", "above", "below", "sure"}
    name, column = entry.get("name"), entry.get("column")
    limits = [entry.get("above"), entry.get("below")]
    fine = not unknown and isinstance(name, str) and name and isinstance(entry.get("sure", False), bool)
    numbers = [limit for limit in limits if isinstance(limit, int | float) and not isinstance(limit, bool)]
    if not fine or column not in labels or len(numbers) != 1 or limits.count(None) != 1:
        sentence = (
            "an alarm needs a name, a column of the stream, and above or below with a number; correct it."
        )
        raise ConfigError(path.name, None, sentence)
    above, below = (None if limit is None else float(limit) for limit in limits)
    return Alarm(str(name), labels.index(column), above, below, entry.get("sure", False))


def _hook(path: Path, entry: dict[str, Any]) -> Webhook:
    url, releases = entry.get("url"), entry.get("releases", False)
    parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
    if (
        set(entry) - {"url", "releases"}
        or parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.username
    ):
        sentence = (
            "a webhook needs a url with https:// or http:// and without a user, and may have releases = true."
        )
        raise ConfigError(path.name, None, sentence)
    return Webhook(str(url), bool(releases))
