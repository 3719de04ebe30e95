from __future__ import annotations

import json
import tomllib
from dataclasses import fields
from pathlib import Path

from tidegate.config import parse_config
from tidegate.config.document import EXAMPLE, json_schema, markdown
from tidegate.config.keys import SECTIONS, THE_END

REMEDY = "run: python -m tidegate.config.document docs"


def test_the_page_and_the_schema_are_up_to_date(root: Path) -> None:
    """Both are made from the keys."""
    assert (root / "docs" / "reference" / "config.md").read_text(encoding="utf-8") == markdown(), REMEDY
    published = json.loads((root / "docs" / "schema" / "tidegate.schema.json").read_text(encoding="utf-8"))
    assert published == json_schema(), REMEDY


def test_page_and_guide_say_what_the_end_of_a_stream_is(root: Path) -> None:
    """The same sentence as in what `tidegate init` writes and in the refusal of later steps."""
    for page in ("reference/config.md", "tutorial.md"):
        text = (root / "docs" / page).read_text(encoding="utf-8").replace("`", "")
        assert THE_END in " ".join(text.split()), page


def test_every_key_is_documented() -> None:
    """A sentence each, and a place in the schema."""
    schema = json_schema()["properties"]
    for name, section in SECTIONS.items():
        assert section.__doc__
        for item in fields(section):
            assert item.metadata["doc"].endswith("."), item.name
            assert item.name in schema[name]["properties"]


def test_the_example_is_valid() -> None:
    """It parses, and every key of it is in the schema."""
    parse_config(EXAMPLE)
    schema = json_schema()
    for name, section in tomllib.loads(EXAMPLE).items():
        assert set(section) <= set(schema["properties"][name]["properties"])
        assert set(schema["properties"][name].get("required", ())) <= set(section)
