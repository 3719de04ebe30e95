"""Alarms on released values: where a column rises above or falls below a public limit. Post-processing, free."""

from __future__ import annotations

import tomllib
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from tidegate.config import Config, ConfigError
from tidegate.runtime import Chunk

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
        The position of its column.
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
class Hook:
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


@dataclass
class Alarms:
    """All alarms of a stream, and which of them are raised; it follows first releases in their order.

    So the same releases raise the same alarms with the same ids, before and after any restart.
    """

    alarms: tuple[Alarm, ...] = ()
    hooks: tuple[Hook, ...] = ()
    on: dict[str, bool] = field(default_factory=dict)
    events: OrderedDict[int, list[dict[str, Any]]] = field(default_factory=OrderedDict)

    def follow(self, chunk: Chunk, answers: Values, low: Values, high: Values) -> None:
        """Look at releases; what is raised or cleared is filed under the number of the release that did it."""
        if not self.alarms:
            return
        for index in np.flatnonzero(chunk.revision == 0).tolist():
            for alarm in self.alarms:
                ends = (float(each[index, alarm.column]) for each in (answers, low, high))
                now = alarm.beyond(*ends)
                if now is not None and now != self.on.get(alarm.name, False):
                    self.on[alarm.name] = now
                    event = {
                        "alarm": alarm.name,
                        "state": "raised" if now else "cleared",
                        "step": int(chunk.step[index]),
                        "column": alarm.column,
                        "value": float(answers[index, alarm.column]),
                    }
                    self.events.setdefault(chunk.first + index, []).append(event)
        while len(self.events) > KEPT:
            self.events.popitem(last=False)


def read_alarms(config: Config) -> Alarms:
    """The alarms and hooks in the file beside a configuration, ``campus.alarms.toml`` for ``campus.toml``."""
    path = config.path.with_suffix(".alarms.toml")
    if not path.exists():
        return Alarms()
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ConfigError(path.name, None, "it is not valid TOML; correct it.") from None
    for name in found:
        if name not in ("alarm", "webhook") or not isinstance(found[name], list):
            raise ConfigError(path.name, None, "it has [[alarm]] and [[webhook]] only; correct it.")
    labels = config.query.answer_labels
    alarms = tuple(_alarm(path, entry, labels) for entry in found.get("alarm", []))
    if len({alarm.name for alarm in alarms}) < len(alarms):
        raise ConfigError(path.name, None, "two alarms have the same name; rename one.")
    return Alarms(alarms, tuple(_hook(path, entry) for entry in found.get("webhook", [])))


def _alarm(path: Path, entry: dict[str, Any], labels: tuple[str, ...]) -> Alarm:
    unknown = set(entry) - {"name", "column", "above", "below", "sure"}
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


def _hook(path: Path, entry: dict[str, Any]) -> Hook:
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
    return Hook(str(url), bool(releases))
