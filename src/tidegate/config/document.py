"""The page and the JSON schema of the configuration, from its keys.

``python -m tidegate.config.document docs`` writes both.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tidegate.config.keys import KINDS, LISTED, OPEN, REPEATED, SECTIONS, required

EXAMPLE = """[source]
location = "sightings.csv"
time = "time"
unit = "device"
column = "building"

[steps]
start = "2026-03-02T00:00"
length = "1h"
zone = "Europe/Berlin"
count = 168

[query]
aggregate = "distinct"
columns = ["Library", "Cafeteria"]

[protect]
policy = "w-event"
epsilon = "1"
window = 24

[mechanism]
name = "auto"

[sink]
location = "released.csv"
"""

SEVERAL = """[source]
location = "receipts.csv"
time = "time"
unit = "customer"
value = "amount"

[steps]
start = "2026-03-02T00:00"
length = "1h"
count = 168

[[query]]
name = "orders"
aggregate = "count"
most = 2
share = "1/4"

[[query]]
name = "customers"
aggregate = "distinct"
share = "1/4"

[[query]]
name = "revenue"
aggregate = "sum"
clip = ["0", "200"]
share = "1/2"

[protect]
epsilon = "1"
window = 24

[mechanism]
name = "Uniform"

[sink]
location = "released.csv"
"""

INTRODUCTION = f"""# `tidegate.toml`

One file says everything about a stream: where its events are, the public clock, what is counted, who is
protected, by which mechanism, and where the releases go. Everything in it is public; nothing in it may be
taken from the data.

```toml
{EXAMPLE}```

- **Exact numbers** are whole numbers or texts such as `"0.1"` and `"1/3"`. A number with a point is refused,
  because `0.1` in a file is not one tenth in a computer; the message shows the text to write.
- **Durations** are whole numbers of seconds, or texts such as `"90s"`, `"15min"`, `"1h"`.
- An unknown key is refused, with its line and the nearest known one.
- [`tidegate.schema.json`](../schema/tidegate.schema.json) lets an editor complete and check the file.

This page is made from the code by `python -m tidegate.config.document docs`.
"""

LISTS = {
    "query": f"""Three statistics of one shop, of the same customers, under one ε:

```toml
{SEVERAL}```

The source is read once. All queries have one ledger and one account: in any window they spend at most the ε of
`[protect]` together, each of them its share, and all charges of a step are committed together or none. Each query may
have a mechanism of its own: `mechanism = "Tide"`, or its parameters in `[query.mechanism]` below it.

Each query has an output of its own: `released.csv` becomes `released-orders.csv` and so on, a folder gets a folder for
each, an MQTT topic a level more, and `{{query}}` in `location` is replaced by the name. `max_change` and `touches` are
those of a query. A running stream takes up other queries, shares or mechanisms by `tidegate amend`.
""",
    "answer": """A day's total, an alarm and a forecast from one stream, each in a file of its own:

```toml
[[answer]]
name = "day"
kind = "window"
window = "calendar day"

[[answer]]
name = "crowded"
kind = "alarm"
threshold = 400

[[answer]]
name = "tomorrow"
kind = "forecast"
ahead = 24

[[answer]]
name = "unusual"
kind = "unexpected"
```

A file has a row for each step and column: `time`, `step`, `column`, `value`, the interval from `low` to `high` at 90 %,
and what is particular to the kind: `part` of the calendar's day that has passed; `alarm`, and whether it is `certain`,
that is raised by the whole interval; steps `ahead`; `rank` with the `best` and the `worst` that it can be. An answer is
what was known at its step: where a mechanism revises earlier steps, the later word counts from then on.

`unexpected` needs no threshold. It compares each value with its forecast from the step before, and says on which side it
lies: `direction`, `expected`, and the interval from `expected_low` to `expected_high` that holds 99 of 100 of the
forecast's errors so far. A value outside of it by less than a tenth of its own half-width raises no alarm. So at most
about one step in a hundred is an alarm where nothing has happened, and more while fewer than 99 errors are known. It
begins with 20.

How many values are clipped is a statistic of its own, with a small share of the budget: a histogram of the values inside
of the clip and `other`, and the part that is `other`. Values at the upper end itself count as `other`.
`tidegate init --query 'name=revenue aggregate=sum value=amount clip=0,200 clipped=1/20'` writes both.

```toml
[[query]]
name = "revenue-clipped"
aggregate = "histogram"
value = "amount"
edges = ["0", "200"]
outside = "other"
share = "1/20"

[[answer]]
name = "revenue-clipped-share"
kind = "share"
query = "revenue-clipped"
of = "other"
```

Answers are made from the committed releases only. So they cost nothing, may be added, changed or dropped at any start,
and are the same however often a stream is killed. Where one was changed, its earlier file is set aside under another
name. At a start an answer is computed again from the first release on.

Intervals: those of sums and means know how the errors of their steps go together: noise of their own and the scatter of
counts add up as variances, noise that steps repeat and a level that is followed late add up as they are. A later word on
a step says nothing of that; from then on half widths are added up, which is too wide. Those of `top` hold for all columns
at once. A forecast's is as wide as nine of ten earlier ones were off, and wider by what releases hide.

What one query releases over what another does, for example the mean receipt of the last day:

```toml
[[answer]]
name = "receipt"
kind = "ratio"
query = "revenue"
by_query = "orders"
window = 24
```

`of` and `by` name columns where a query has several. Both numbers are about the same steps: one of which a query says
nothing counts in neither, and after an amendment the answer begins with the later of the two. Each is in an interval at
95 %, and the answer's holds every quotient of numbers in these, whatever the noise of one query has to do with that of
the other; there is none where the divisor may be 0.
""",
}


def markdown() -> str:
    """The page docs/reference/config.md."""
    parts = [INTRODUCTION]
    for name, section in SECTIONS.items():
        parts.append(f"\n## [{name}]\n\n{section.__doc__}\n\n{_table(section)}")
        if name in LISTED:
            parts.append(_list(name, LISTED[name], {item.name: item.metadata for item in fields(section)}))
    parts.extend(_list(name, section) for name, section in REPEATED.items())
    return "".join(parts)


def _list(name: str, section: type[Any], said: Mapping[str, Any] = MappingProxyType({})) -> str:
    """A section that may stand several times, with the keys that were not said before."""
    return f"\n## [[{name}]]\n\n{section.__doc__}\n\n{LISTS[name]}\n{_table(section, said)}"


def _table(section: type[Any], said: Mapping[str, Any] = MappingProxyType({})) -> str:
    rows = [_row(item) for item in fields(section) if item.metadata != said.get(item.name)]
    return "".join(["| key | value | default | meaning |\n|---|---|---|---|\n", *rows])


def _row(item: Field[Any]) -> str:
    words = KINDS[item.metadata["kind"]][1]
    if item.metadata["choices"]:
        words = " · ".join(f"`{choice}`" for choice in item.metadata["choices"])
    if item.default is MISSING:
        default = "required"
    elif item.default is None or item.default == ():
        default = ""
    else:
        default = f"`{json.dumps(item.default)}`"
    meaning = item.metadata["doc"].replace("|", "\\|")
    return f"| `{item.name}` | {words} | {default} | {meaning} |\n"


def json_schema() -> dict[str, Any]:
    """The schema docs/schema/tidegate.schema.json."""
    sections: dict[str, Any] = {}
    for name, section in SECTIONS.items():
        sections[name] = _object(section, name in OPEN)
        if name in LISTED:  # as a table, or as a list of tables
            sections[name] |= {"type": ["object", "array"], "items": _object(LISTED[name], False)}
    for name, section in REPEATED.items():
        sections[name] = {"type": "array", "items": _object(section, False)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tidegate.toml",
        "type": "object",
        "properties": sections,
        "required": [name for name, section in SECTIONS.items() if required(section)] + ["protect"],
        "additionalProperties": False,
    }


def _object(section: type[Any], further: bool) -> dict[str, Any]:
    """The schema of a section; `further` is whether it may have keys of its own."""
    properties: dict[str, Any] = {}
    for item in fields(section):
        about: dict[str, Any] = {**KINDS[item.metadata["kind"]][0], "description": item.metadata["doc"]}
        if item.metadata["choices"]:
            about["enum"] = list(item.metadata["choices"])
        if item.default is not MISSING and item.default is not None and item.default != ():
            about["default"] = item.default
        properties[item.name] = about
    found = {
        "type": "object",
        "description": section.__doc__,
        "properties": properties,
        "additionalProperties": further,
    }
    return found | ({"required": required(section)} if required(section) else {})


def write(folder: Path) -> None:
    """Write both files."""
    for name in ("reference", "schema"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "reference" / "config.md").write_text(markdown(), encoding="utf-8")
    text = json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    (folder / "schema" / "tidegate.schema.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
