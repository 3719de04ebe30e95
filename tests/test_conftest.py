from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def test_a_missing_service_skips_on_a_users_machine(
    require_service: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without CI the test is skipped, and the sentence says what to do."""
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(
        pytest.skip.Exception, match=r"postgres is needed: no server answers; run `make services`\."
    ):
        require_service("postgres", "no server answers")


def test_a_missing_service_fails_in_ci(
    require_service: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With CI set the same call fails."""
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="postgres is needed"):
        require_service("postgres", "no server answers")


def test_shared_data_finds_a_file_or_skips(
    shared_data: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """TIDEGATE_DATA names the folder; an absent file skips, in CI as well."""
    monkeypatch.setenv("TIDEGATE_DATA", str(tmp_path))
    monkeypatch.setenv("CI", "1")
    (tmp_path / "here.csv").touch()
    assert shared_data("here.csv") == tmp_path / "here.csv"
    with pytest.raises(pytest.skip.Exception, match=r"absent\.csv is not in the data folder"):
        shared_data("absent.csv")
