"""The page and the JSON schema of the configuration, from its keys.

``python -m tidegate.config.document docs`` writes both.
"""

from __future__ import annotations

import json
import sys
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from tidegate.config.keys import KINDS, OPEN, SECTIONS, required

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
- [`schema/tidegate.schema.json`](schema/tidegate.schema.json) lets an editor complete and check the file.

This page is made from the code by `python -m tidegate.config.document docs`.
"""


def markdown() -> str:
    """The page docs/config.md."""
    parts = [INTRODUCTION]
    for name, section in SECTIONS.items():
        parts.append(f"\n## [{name}]\n\n{section.__doc__}\n\n")
        parts.append("| key | value | default | meaning |\n|---|---|---|---|\n")
        parts.extend(_row(item) for item in fields(section))
    return "".join(parts)


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
        properties: dict[str, Any] = {}
        for item in fields(section):
            about: dict[str, Any] = {**KINDS[item.metadata["kind"]][0], "description": item.metadata["doc"]}
            if item.metadata["choices"]:
                about["enum"] = list(item.metadata["choices"])
            if item.default is not MISSING and item.default is not None and item.default != ():
                about["default"] = item.default
            properties[item.name] = about
        sections[name] = {
            "type": "object",
            "description": section.__doc__,
            "properties": properties,
            "additionalProperties": name in OPEN,
        }
        if required(section):
            sections[name]["required"] = required(section)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tidegate.toml",
        "type": "object",
        "properties": sections,
        "required": [name for name, section in SECTIONS.items() if required(section)] + ["protect"],
        "additionalProperties": False,
    }


def write(folder: Path) -> None:
    """Write both files."""
    (folder / "schema").mkdir(parents=True, exist_ok=True)
    (folder / "config.md").write_text(markdown(), encoding="utf-8")
    text = json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    (folder / "schema" / "tidegate.schema.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
