from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.runtime.helpers import settings, write_events

from tidegate.cli import main
from tidegate.config.queries import one
from tidegate.mechanisms import Uniform
from tidegate.policy import WEvent


def test_from_events_to_releases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text for people: what was done, what is promised, where it is; the second time there is nothing new."""
    settings(tmp_path)
    assert main(["release", str(tmp_path / "tidegate.toml")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("Released 12 steps × 2 columns")
    for words in (
        "Protected",
        "any 4 hours, with ε = 1",
        "the last step is 12",
        "out.csv",
        "not for others",
    ):
        assert words.replace(" ", "") in shown.replace(" ", "")
    assert main(["release", str(tmp_path / "tidegate.toml")]) == 0
    assert "Nothing new: all 12 steps" in capsys.readouterr().out


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One object, and nothing on stderr."""
    settings(tmp_path)
    assert main(["release", str(tmp_path / "tidegate.toml"), "--json"]) == 0
    shown = capsys.readouterr()
    done = json.loads(shown.out)
    assert shown.err == ""
    assert (done["steps"], done["steps_now"], done["releases"], done["ledger_ok"]) == (12, 12, 12, True)
    assert done["columns"] == ["north", "south"]


def test_standard_output_holds_releases_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With "-" as the sink, everything that is said goes to stderr."""
    settings(tmp_path, (f"{tmp_path}/out.csv", "-"))
    assert main(["release", str(tmp_path / "tidegate.toml")]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 13
    assert "Protected" in shown.err


def test_report(tmp_path: Path) -> None:
    """One file that needs no other: no script, no link to anywhere, pictures in it, the promise in words."""
    settings(tmp_path, ('name = "Uniform"', 'name = "BudgetAbsorption"'), ('epsilon = "1"', 'epsilon = "9"'))
    report = tmp_path / "report.html"
    assert main(["release", str(tmp_path / "tidegate.toml"), "--report", str(report)]) == 0
    text = report.read_text()
    assert "9-differentially private" in text
    assert text.count("<svg") >= 2
    assert "<script" not in text
    assert re.findall(r"(?:src|href)=\"(?!#|data:image/png)[^\"]*\"", text) == []
    assert "url(" not in text
    for words in (
        "What is promised",
        "<section class=released",
        "What it cost",
        "What was measured",
        "Head of the log",
    ):
        assert words in text
    assert "<h2>How wrong" not in text


@pytest.mark.parametrize(
    ("mechanism", "mean"),
    [
        ('name = "Uniform"', "3.0"),
        ('name = "BinaryTree"\nhorizon = 12', "19.5"),
        ('name = "SlidingWindowTree"\nwindow = 2', "5.8"),
    ],
)
def test_truth_is_that_of_the_statistic(tmp_path: Path, mechanism: str, mean: str) -> None:
    """Steps, running sums and sums over windows: three units in the north at each of twelve steps."""
    settings(tmp_path, ('name = "Uniform"', mechanism))
    report = tmp_path / "inside.html"
    assert main(["release", str(tmp_path / "tidegate.toml"), "--report", str(report), "--compare-truth"]) == 0
    assert f"<td>north<td>{mean}<td>" in report.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--compare-truth"], "--report"),
        (["--report", "/nowhere/at/all.html"], "cannot be written"),
    ],
)
def test_bad_options_are_one_sentence(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and one line."""
    settings(tmp_path)
    assert main(["release", str(tmp_path / "tidegate.toml"), *arguments]) == 2
    shown = capsys.readouterr().err
    assert words in shown
    assert shown.count("\n") == 1


def test_truth_cannot_be_compared_while_following(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A live input cannot be read again."""
    settings(tmp_path)
    command = [
        "release",
        str(tmp_path / "tidegate.toml"),
        "--follow",
        "--compare-truth",
        "--report",
        "r.html",
    ]
    assert main(command) == 2
    assert "finite input" in capsys.readouterr().err


def test_a_changed_budget_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ε of a running stream."""
    settings(tmp_path)
    assert main(["release", str(tmp_path / "tidegate.toml")]) == 0
    settings(tmp_path, ('epsilon = "1"', 'epsilon = "3"'))
    capsys.readouterr()
    assert main(["release", str(tmp_path / "tidegate.toml")]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert 'epsilon = "1" and the configuration now says "3"' in shown.err
    assert shown.err.count("\n") == 1


def test_a_missing_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sentence names the file."""
    assert main(["release", str(tmp_path / "absent.toml")]) == 2
    assert "absent.toml" in capsys.readouterr().err


def test_live_view_shows_released_values_only(tmp_path: Path) -> None:
    """Steps, the window's budget, the last releases and the lag."""
    from rich.console import Console

    from tidegate.cli.live_view import View
    from tidegate.pipeline import open_pipeline

    write_events(tmp_path)
    config = settings(tmp_path)
    view = View(config, live=True)
    console = Console(width=100, record=True, file=(tmp_path / "screen").open("w"))
    console.print(view)
    with open_pipeline(one(config), observers={"query": view}) as pipeline:
        view.begin(pipeline, "query")
        intake = config.open(None)
        pipeline.drive(intake)
        intake.close()
        view.waiting("waiting for the broker at somewhere:1883.")
    console.print(view)
    console.file.close()
    shown = console.export_text()
    for words in (
        "12 of 12",
        "100% of the budget spent in the last 4 steps",
        "north",
        "fresh",
        "Lag",
        "broker",
    ):
        assert words in shown


def test_a_stream_that_fails_on_a_terminal_says_why(tmp_path: Path) -> None:
    """The live view does not put an error of its own in the place of the stream's."""
    from tidegate.cli.live_view import Observers, View
    from tidegate.pipeline.errors import LogUnavailable
    from tidegate.pipeline.status import StatusReporter

    write_events(tmp_path)
    config = settings(tmp_path)
    observers = Observers({config.name: View(config, live=True)})
    with (
        pytest.raises(LogUnavailable, match="is locked"),
        observers.of(StatusReporter(config, live=False)),
    ):
        raise LogUnavailable("the ledger is locked.")


def test_a_stream_that_is_stopped_before_its_first_step_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was released, and nothing was released before."""
    from tidegate.cli.release import show

    facts = {
        "in_one_line": "",
        "answers": [],
        "steps": 0,
        "steps_now": 0,
        "seconds": 1.0,
        "columns": ["a"],
        "guarantee": "",
        "ledger": "",
    }
    show({**facts, "sink": "out.csv", "ledger_file": "out.ledger"}, aside=False, inside=False)
    assert "Nothing yet" in capsys.readouterr().out


def test_noise_above_the_numbers_is_said_with_what_would_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three devices under a noise of 4: it is said, and longer steps, larger ε and fewer columns are predicted."""
    settings(tmp_path)
    assert main(["release", str(tmp_path / "tidegate.toml"), "--json"]) == 0
    off = json.loads(capsys.readouterr().out)["accuracy"]
    assert off["half_width"] == Uniform(WEvent(epsilon="1", window=4), columns=2).law.radius(1, 0.9)
    assert off["too_noisy"] == (0.45 * off["half_width"] > off["typical_value"])
    (tmp_path / "loud").mkdir()
    settings(tmp_path / "loud", ('epsilon = "1"', 'epsilon = "1/100"'))
    assert main(["release", str(tmp_path / "loud" / "tidegate.toml")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    if "noise is larger" in shown:  # released means of noise alone may be large by chance
        assert "Would help" in shown
        assert "ε = 0.04" in shown


def test_remedies_are_predictions() -> None:
    """A larger ε divides the error of Uniform by as much, and steps 24 times as long by about 24 · 24."""
    from fractions import Fraction

    from tidegate.mechanisms import Uniform
    from tidegate.plan import Description
    from tidegate.plan.remedies import remedies
    from tidegate.policy import WEvent

    now, *others = remedies(
        WEvent(epsilon="1", window=24),
        Description(level=30, columns=3, noise=0.0, spread=0.0),
        Fraction(3600),
        lambda policy, columns, seconds: Uniform(policy, columns=columns),
    )
    found = {remedy.words: remedy for remedy in others}
    assert now.absolute == pytest.approx(24 * 0.8, rel=0.25)  # cut at 0, which is free
    assert found["ε = 4"].absolute == pytest.approx(6, rel=0.2)
    assert found["steps 24 times as long"].relative == pytest.approx(1 / 720, rel=0.3)
    assert found["one column for all 3"].relative < now.relative / 2
