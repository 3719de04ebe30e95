from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

# No deadline: the first call of a kernel compiles. No database: a test must not depend on earlier runs.
settings.register_profile("tidegate", deadline=None, database=None)
settings.register_profile("ci", parent=settings.get_profile("tidegate"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "tidegate")


class _RequireService:
    """Call it where a test finds that a service is missing."""

    def __call__(self, name: str, reason: str) -> NoReturn:
        """Skip with a sentence on a user's machine, fail with the same sentence where CI is set."""
        sentence = f"{name} is needed: {reason}; run `make services`."
        if os.environ.get("CI"):
            pytest.fail(sentence, pytrace=False)
        pytest.skip(sentence)


class _SharedData:
    """Finds files of the data folder, which users do not have."""

    def __call__(self, name: str) -> Path:
        """The path of a file, or a skip with one sentence (in CI as well)."""
        folder = Path(os.environ.get("TIDEGATE_DATA") or ROOT.parent / "shared" / "data")
        path = folder / name
        if not path.is_file():
            pytest.skip(f"{name} is not in the data folder; set TIDEGATE_DATA to a folder that has it.")
        return path


@pytest.fixture(scope="session")
def require_service() -> _RequireService:
    """``require_service(name, reason)``: skip, or fail where CI is set, because a service is missing."""
    return _RequireService()


@pytest.fixture(scope="session")
def shared_data() -> _SharedData:
    """``shared_data(name)``: the path of a file in the data folder, or a skip."""
    return _SharedData()


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT
