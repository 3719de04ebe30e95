"""Every module can be imported: doctests of one that cannot are left out without a word, so this is where it shows."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path

import pytest

import tidegate

# what extras bring: a module may lack one of these, and nothing else
OPTIONAL = {
    "confluent_kafka", "dp_accounting", "opendp", "paho", "pandas", "psycopg", "py4j",
    "pyarrow", "pyspark", "starlette", "statsmodels", "uvicorn",
    "httptools", "uvloop", "zstandard",
}  # fmt: skip


def broken(names: list[str]) -> list[str]:
    """Modules that cannot be imported although everything that they may lack is there."""
    found = []
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in OPTIONAL or importlib.util.find_spec(missing) is not None:
                found.append(f"{name}: {error}")
    return found


def test_every_module_can_be_imported() -> None:
    """All of them, but for what only runs as a program; an extra that is not installed is the only excuse."""
    walked = pkgutil.walk_packages(tidegate.__path__, "tidegate.", onerror=lambda name: None)
    names = [found.name for found in walked if not found.name.endswith("__main__")]
    assert len(names) > 300
    assert broken(names) == []


def test_a_module_that_is_broken_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong versions: a name that is not there, a module that is not there; an extra that is not there is none."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in {
        "wrong_name": "from tidegate.errors import NoSuchError",
        "wrong_module": "import tidegate.no_such_room",
        "without_extra": "import opendp_is_not_here",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(sys.modules[__name__], "OPTIONAL", {"opendp_is_not_here"})
    found = broken(["wrong_name", "wrong_module", "without_extra"])
    assert [each.partition(":")[0] for each in found] == ["wrong_name", "wrong_module"]
