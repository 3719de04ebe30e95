from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

from made_up_data import write

ROOT = Path(__file__).resolve().parent.parent

# public data may stand beside the repository; where they do not, tests make up what they read
if "TIDEGATE_DATA" not in os.environ and (beside := ROOT.parent / "shared" / "data").is_dir():
    os.environ["TIDEGATE_DATA"] = str(beside)

# No deadline: the first call of a kernel compiles. No database: a test must not depend on earlier runs.
settings.register_profile("tidegate", deadline=None, database=None)
settings.register_profile("ci", parent=settings.get_profile("tidegate"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") or os.environ.get("TIDEGATE_REPEATABLE") else "tidegate")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever needs a service belongs to the full tier, also where nobody has said so."""
    for item in items:
        if "require_service" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.slow)


class _RequireService:
    """Call it where a test finds that a service is missing."""

    def __call__(self, name: str, reason: str) -> NoReturn:
        """Skip with a sentence on a user's machine, fail with the same sentence where CI is set."""
        sentence = f"{name} is needed: {reason}; run `make services`."
        if os.environ.get("CI") and name not in os.environ.get("TIDEGATE_WITHOUT", "").split():
            pytest.fail(sentence, pytrace=False)
        pytest.skip(sentence)


class _SharedData:
    """Finds files of the data folder, which users do not have; in their place stand made-up ones of the same shape."""

    def __init__(self, made_up: Path) -> None:
        self._made_up = made_up

    def is_real(self, name: str) -> bool:
        """Whether the file itself is here, with the numbers that papers have."""
        return bool(folder := os.environ.get("TIDEGATE_DATA")) and Path(folder, name).is_file()

    def __call__(self, name: str) -> Path:
        """The path of a file, real or made up."""
        if self.is_real(name):
            return Path(os.environ["TIDEGATE_DATA"], name)
        path = write(self._made_up, name)
        assert path is not None, f"nobody knows how to make up {name}; add it to tests/made_up_data.py."
        return path


@pytest.fixture(scope="session")
def require_service(pytestconfig: pytest.Config) -> _RequireService:
    """``require_service(name, reason)``: skip, or fail where CI is set, because a service is missing."""
    if pytestconfig.option.markexpr == "not slow":  # a fixture was asked for by its name while the test ran
        pytest.fail("this test uses a service: mark it with pytest.mark.slow.", pytrace=False)
    return _RequireService()


@pytest.fixture(scope="session")
def shared_data(tmp_path_factory: pytest.TempPathFactory) -> _SharedData:
    """``shared_data(name)``: the path of a file in the data folder, or of a made-up one like it."""
    return _SharedData(tmp_path_factory.mktemp("made_up"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT
