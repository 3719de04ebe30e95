from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from tidegate import compiled
from tidegate.cli import doctor, main

ROOT = Path(__file__).resolve().parents[2]


def test_a_sound_installation(capsys: pytest.CaptureFixture[str]) -> None:
    """Versions, optional parts and both trials, as JSON."""
    assert main(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["ok"]
    assert facts["trials"] == {"noise": "works", "ledger": "works"}
    assert set(facts["optional"]) == set(doctor.OPTIONAL)
    assert facts["compiled_code"] == compiled.cache_folder()


def test_code_that_is_not_kept_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It works all the same, and the remedy is said."""
    monkeypatch.setattr(compiled, "cache_folder", lambda: "/dev/null/cache")
    assert main(["doctor"]) == 0
    assert "compiled code is not kept" in capsys.readouterr().out


def test_every_extra_is_known() -> None:
    """What users can install is looked for, with the libraries of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert set(doctor.OPTIONAL) == set(extras) - {"bench", "docs", "test"}
    for part, (libraries, _) in doctor.OPTIONAL.items():
        assert {re.split(r"[\[<>=]", wanted)[0] for wanted in extras[part]} == set(libraries)
    assert {re.split(r"[<>=]", wanted)[0] for wanted in project["dependencies"]} == set(doctor.NEEDED)


def test_what_is_missing_has_a_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An optional part says how to get it and is no failure; a needed library is one."""
    monkeypatch.setitem(doctor.OPTIONAL, "web", (("no-such-library",), "the service"))
    assert main(["doctor"]) == 0
    assert "pip install 'tidegate[web]'" in capsys.readouterr().out
    monkeypatch.setattr(doctor, "NEEDED", ("no-such-library",))
    assert main(["doctor"]) == 1
    assert "no-such-library is missing" in capsys.readouterr().out


def test_wrong_noise_is_noticed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise that is a tenth too large fails the trial."""
    import tidegate.noise

    right = tidegate.noise.laplace
    monkeypatch.setattr(
        tidegate.noise,
        "laplace",
        lambda source, name, step, scale, shape: 1.1 * right(source, name, step, scale, shape),
    )
    assert main(["doctor"]) == 1
    assert "another size" in capsys.readouterr().out
