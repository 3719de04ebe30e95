"""Everyday commands: check, plan of a configuration, preview, and releases by cron."""

from __future__ import annotations

import datetime
import json
import shlex
from pathlib import Path

import pytest
from tests.runtime.helpers import TEXT, settings, write_events

from tidegate.cli import main


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """The JSON object that a command has printed."""
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_check_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All four parts are fine, and the folder is as it was; after a release it says where the ledger stands."""
    settings(tmp_path)
    before = sorted(file.name for file in tmp_path.iterdir())
    command = ["check", str(tmp_path / "tidegate.toml"), "--json"]
    assert main(command) == 0
    found = said(capsys)
    assert found["ok"] is True
    assert [one["name"] for one in found["checks"]] == ["configuration", "source", "ledger", "sink"]
    assert sorted(file.name for file in tmp_path.iterdir()) == before
    assert main(["release", command[1]]) == 0
    out = (tmp_path / "out.csv").read_bytes()
    capsys.readouterr()
    assert main(command) == 0
    assert "step 12" in json.dumps(said(capsys))
    assert (tmp_path / "out.csv").read_bytes() == out


def test_check_reads_receipts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A ledger that is gone, or an older copy, is refused beside releases of the newest one, as `release` refuses it."""
    toml = settings(tmp_path, ("count = 12", "count = 6")).path
    ledger = toml.with_suffix(".ledger")
    assert main(["release", str(toml)]) == 0
    older = ledger.read_bytes()
    settings(tmp_path)
    assert main(["release", str(toml)]) == 0
    capsys.readouterr()
    for content, words in ((None, "released from another log"), (older, "older copy")):
        ledger.unlink(missing_ok=True)  # a refused start leaves none
        if content is not None:
            ledger.write_bytes(content)
        assert main(["check", str(toml), "--json"]) == 2
        checks = {one["name"]: one for one in said(capsys)["checks"]}  # type: ignore[attr-defined]
        assert checks["ledger"]["ok"] is False
        assert words in checks["ledger"]["sentence"]
        assert main(["release", str(toml)]) == 2
        assert words in capsys.readouterr().err


def test_check_of_a_stream_that_has_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where a mechanism revises earlier steps, no step follows the last one, and `check` says so."""
    sample = ('name = "Uniform"', 'name = "OptStream"')
    toml = settings(tmp_path, sample, ("count = 12", "count = 8")).path
    assert main(["release", str(toml)]) == 0
    assert main(["check", str(toml)]) == 0
    settings(tmp_path, sample)
    capsys.readouterr()
    assert main(["check", str(toml)]) == 2
    sentence = "the stream was finished at step 8"
    assert sentence in capsys.readouterr().out
    assert main(["release", str(toml)]) == 2
    assert sentence in capsys.readouterr().err


def test_every_command_says_what_comes_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last line can be pasted into a shell, also where a folder's name has a space; it leads to a proof."""
    home = tmp_path / "my data"
    home.mkdir()
    settings(home)
    monkeypatch.chdir(tmp_path)
    config, report = "my data/tidegate.toml", "my data/report.html"
    release = f"Next: tidegate release '{config}' --report '{report}'"

    def last(*words: str) -> str:
        assert main(list(words)) == 0
        return capsys.readouterr().out.splitlines()[-1]

    assert last("explain", config) == f"Next: tidegate check '{config}'"
    assert last("check", config) == release
    assert last("check", config, "--follow").endswith(f"--follow --report '{report}'")
    assert last("plan", config, "--quick") == release
    assert last("preview", config) == release
    assert last("release", config) == release
    verify = last(*shlex.split(release)[2:])
    assert verify.startswith("Next: tidegate ledger verify ")
    assert last(*shlex.split(verify)[2:]).startswith("Not checked")
    assert main(["release", config, "--report", "my data/inside.html", "--compare-truth"]) == 0
    assert "not for publication" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("before", "after", "part", "words"),
    [
        ('epsilon = "1"', "epsilon = 0.1", "configuration", 'write epsilon = "0.1"'),
        ("events.csv", "absent.csv", "source", "absent.csv"),
        ('unit = "unit"', 'unit = "person"', "source", "person"),
        ('unit = "unit"', 'unit = "Unit"', "source", "write 'unit', as it does"),
        ("out.csv", "nowhere/out.csv", "sink", "nowhere"),
        ("{folder}/out.csv", "mqtt://127.0.0.1:1/x", "sink", "cannot be reached"),
    ],
)
def test_check_names_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str, after: str, part: str, words: str
) -> None:
    """One sentence for each part, exit code 2, and no record's content."""
    write_events(tmp_path)
    assert before in TEXT
    (tmp_path / "tidegate.toml").write_text(TEXT.replace(before, after).format(folder=tmp_path))
    assert main(["check", str(tmp_path / "tidegate.toml"), "--json"]) == 2
    checks = {one["name"]: one for one in said(capsys)["checks"]}
    assert checks[part]["ok"] is False
    assert words in checks[part]["sentence"]
    assert "walrus" not in json.dumps(checks)


def test_plan_of_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Policy, columns and clock are the configuration's; without a release the level is asked for."""
    settings(tmp_path)
    command = ["plan", str(tmp_path / "tidegate.toml"), "--quick", "--json"]
    assert main([*command, "--target", "5%"]) == 0
    found = said(capsys)
    assert "--level" in " ".join(found["reasons"])
    settings_found = {one["setting"]: one for one in found["target"]}
    assert set(settings_found) == {"epsilon", "window", "steps"}
    assert all(one["error"] <= 0.05 for one in found["target"] if one["value"] is not None)
    assert main(["release", command[1]]) == 0
    capsys.readouterr()
    assert main(command) == 0
    assert "--level" not in " ".join(said(capsys)["reasons"])
    assert main(["plan", "--target", "much"]) == 2


def test_preview_costs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A report that says it is made up; neither source, ledger nor sink is touched."""
    settings(tmp_path, ('name = "Uniform"', 'name = "auto"'))
    (tmp_path / "events.csv").unlink()
    report = tmp_path / "preview.html"
    assert main(["preview", str(tmp_path / "tidegate.toml"), "--report", str(report), "--json"]) == 0
    found = said(capsys)
    assert found["steps"] == 12
    assert "Made up" in report.read_text()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["preview.html", "tidegate.toml"]


def test_one_row_a_step_is_not_gone_on_with_by_all_revisions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A finite input that is followed later: the sentence says what the file is, and its remedy works."""
    settings(tmp_path, ('name = "Uniform"', 'name = "Tide"'))
    command = ["release", str(tmp_path / "tidegate.toml")]
    assert main(command) == 0
    assert main([*command, "--until", "now"]) == 2
    assert "has one row per step, with its newest value" in capsys.readouterr().err
    (out,) = (each for each in tmp_path.glob("*.csv") if each.name != "events.csv")
    out.rename(tmp_path / "earlier.csv")
    assert main([*command, "--until", "now"]) == 0
    assert "revision" in out.read_text().splitlines()[0]


def test_until_now_releases_what_has_closed_and_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that grows: two runs of cron release every closed step once, and no open one."""
    now = datetime.datetime.now(datetime.UTC).replace(minute=0, second=0, microsecond=0)
    start = now - datetime.timedelta(hours=5)
    text = TEXT.format(folder=tmp_path).replace("count = 12\n", "").replace("Europe/Berlin", "UTC")
    text = text.replace("2026-03-02T00:00", f"{start:%Y-%m-%dT%H:%M}")
    (tmp_path / "tidegate.toml").write_text(text)
    lines = ["time,unit,place"]
    lines += [
        f"{start + datetime.timedelta(hours=hour, minutes=5):%Y-%m-%dT%H:%M},u,north" for hour in range(6)
    ]
    (tmp_path / "events.csv").write_text("\n".join(lines[:4]) + "\n")
    command = ["release", str(tmp_path / "tidegate.toml"), "--until", "now", "--json"]
    assert main(command) == 0
    first = said(capsys)
    assert 5 <= first["steps"] <= 6  # the hour may end while this runs
    (tmp_path / "events.csv").write_text("\n".join(lines) + "\n")
    assert main(command) == 0
    second = said(capsys)
    assert second["steps_now"] == second["steps"] - first["steps"]
    assert main([*command[:2], "--until", "tomorrow"]) == 2
    assert "--until now" in capsys.readouterr().err


def test_until_now_needs_an_input_that_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of standard input nobody knows what has arrived."""
    settings(tmp_path, (f"{tmp_path}/events.csv", "-"))
    assert main(["release", str(tmp_path / "tidegate.toml"), "--until", "now"]) == 2
    assert "a file or a folder" in capsys.readouterr().err
