from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from made_up_data import MAKERS, write
from tidegate.noise import entropy


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


def test_shared_data_finds_a_file_or_makes_one_up(
    shared_data: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """TIDEGATE_DATA names the folder; for an absent file stands a made-up one of the same name."""
    monkeypatch.setenv("TIDEGATE_DATA", str(tmp_path))
    (tmp_path / "here.csv").touch()
    assert shared_data("here.csv") == tmp_path / "here.csv"
    name = "unemployment_478_months.csv"
    assert not shared_data.is_real(name)
    assert shared_data(name).name == name
    with pytest.raises(AssertionError, match=r"nobody knows how to make up absent\.csv"):
        shared_data("absent.csv")


@pytest.mark.parametrize("name", MAKERS)
def test_made_up_files_have_the_columns_of_the_real_ones(name: str, shared_data: Any, tmp_path: Path) -> None:
    """Names and types of columns; and they are made by a seed, so the same each time."""
    paths = []
    for folder in (tmp_path / "once", tmp_path / "again"):
        folder.mkdir()
        path = write(folder, name)
        assert path is not None
        paths.append(path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    if shared_data.is_real(name):
        read = pl.read_parquet if name.endswith(".parquet") else pl.read_csv
        real, made_up = read(shared_data(name)).schema, read(paths[0]).schema
        if name.startswith("montevideo"):  # whose columns are numbers of stops
            real, made_up = list(real.values()), list(made_up.values())
        assert made_up == real


def test_repeatable_noise_is_that_of_the_test(request: pytest.FixtureRequest) -> None:
    """Where changes are checked: each test has the same words every time, none of them twice, and a fork has others."""
    request.getfixturevalue("repeatable_noise")
    words = entropy.SYSTEM.words("noise", 0, 1, range(1000), 0, 1)
    assert int(words[0, 0]) == 15618563963429943991  # of this test's name
    assert not np.isin(words, entropy.SYSTEM.words("noise", 1, 1, range(1000), 0, 1)).any()
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writer, entropy.fresh_name().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 32).decode() != entropy.fresh_name()
    os.close(reader)
    os.close(writer)
