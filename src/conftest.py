"""Examples in modules of an extra run where the extra is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

EXTRAS = {"spark": "pyspark"}


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out packages whose extra is missing; an import that fails elsewhere is an error."""
    missing = [name for name, extra in EXTRAS.items() if importlib.util.find_spec(extra) is None]
    return True if set(missing) & set(collection_path.parts) else None
