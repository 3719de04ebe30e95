"""What `make test` leaves out, and why nobody can forget to say so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.conftest import pytest_collection_modifyitems

ROOT = Path(__file__).resolve().parent.parent


class _Item:
    """As much of a test as the rule looks at."""

    def __init__(self, *fixtures: str) -> None:
        self.fixturenames, self.marks = fixtures, []

    def get_closest_marker(self, name: str) -> object:
        return name in self.marks or None

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.name)


def test_whoever_needs_a_service_is_slow() -> None:
    """Directly or by a fixture: the names of a test hold those that its fixtures ask for."""
    items = [_Item("tmp_path"), _Item("broker", "require_service")]
    pytest_collection_modifyitems(items)  # type: ignore[arg-type]
    assert [item.marks for item in items] == [[], ["slow"]]


def test_a_service_asked_for_by_name_is_refused_in_the_quick_tier(request: pytest.FixtureRequest) -> None:
    """A fixture that a running test asks for is in no list of names: it fails with a sentence, and starts nothing."""
    if request.config.option.markexpr != "not slow":
        return
    with pytest.raises(pytest.fail.Exception, match=re.escape("mark it with pytest.mark.slow")):
        request.getfixturevalue("require_service")


def test_the_commands_divide_the_tests() -> None:
    """`make test` and what .ci/run adds are complements, and the quick tier has the same noise every time."""
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert 'TIDEGATE_REPEATABLE=1 $(BIN)/python -m pytest $(SPREAD) -m "not slow"\n' in rules
    assert "$(BIN)/python -m pytest $(SPREAD) -m slow\n" in rules
    steps = re.findall(r"^make (\S+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    assert [step for step in steps if step in ("test", "test-rest", "lint")] == ["test", "test-rest", "lint"]


def test_no_test_waits_for_a_fixed_time() -> None:
    """A test waits for a condition; these sleep to choose a moment of a kill, or between two looks."""
    allowed = {
        "pipeline/test_services.py": 1,  # whatever a broker has kept comes meanwhile
        "runtime/test_broker.py": 2,  # a slow acknowledgement; the moment of a kill
        "runtime/test_postgres_source.py": 5,
        "runtime/test_spark.py": 1,
        "runtime/test_stream_bounds.py": 1,  # between two looks
        "web/test_killed.py": 5,
    }
    found = {}
    for path in sorted((ROOT / "tests").glob("**/test_*.py")):
        if count := len(re.findall(r"\btime\.sleep\(", path.read_text(encoding="utf-8"))):
            found[path.relative_to(ROOT / "tests").as_posix()] = count
    found.pop("test_tiers.py", None)
    assert found == allowed
