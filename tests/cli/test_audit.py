from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegate.audit.spelling import read_options, read_policy
from tidegate.cli import main
from tidegate.errors import InvalidParameter

FUNCTION = """
from tidegate.noise import current, laplace


def halved(stream):
    return stream + laplace(current(), "test", 0, 0.5, stream.shape)


number = 3
"""


@pytest.mark.slow
def test_a_sound_mechanism_ends_with_0(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A sentence with the power, and a file."""
    file = tmp_path / "verdict.json"
    arguments = ["audit", "Uniform", "--minutes", "0.03", "--steps", "1"]
    assert main([*arguments, "--save", str(file)]) == 0
    said = capsys.readouterr().out
    assert "Uniform: no violation found; power: would have found" in said
    assert main(["audit", "--replay", str(file)]) == 0
    assert "no violation found" in capsys.readouterr().out


@pytest.mark.slow
def test_a_broken_one_ends_with_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """By its charges, as JSON, and by sampling."""
    claim = ["--policy", "w-event epsilon=1 window=4", "--set", "noise=laplace"]
    arguments = ["audit", "tests.audit.zoo.publishing:Literal", *claim]
    assert main([*arguments, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["outcome"] == "violates"
    assert told["loss"] == pytest.approx(1.375)
    assert main(arguments) == 1
    said = capsys.readouterr().out
    assert "one stream [" in said
    assert "no event was counted" in said
    file = tmp_path / "verdict.json"
    assert (
        main(["audit", "tests.audit.zoo.alterations:OneSided", "--minutes", "0.1", "--save", str(file)]) == 1
    )
    assert main(["audit", "--replay", str(file)]) == 1
    assert "OneSided violates" in capsys.readouterr().out


@pytest.mark.slow
def test_a_function_of_ones_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """module:function, from the folder one is in."""
    (tmp_path / "audited_function.py").write_text(FUNCTION)
    monkeypatch.chdir(tmp_path)
    assert main(["audit", "audited_function:halved", "--minutes", "0.08", "--steps", "1"]) == 1
    assert "audited_function:halved violates: at least 1." in capsys.readouterr().out
    assert main(["audit", "audited_function:number"]) == 2
    capsys.readouterr()
    # as docs/howto/auditing.md has it: a verdict that Python has saved, and the name of what it is about
    import audited_function  # type: ignore[import-not-found]

    import tidegate as tg
    from tidegate.audit import audit

    verdict = audit(audited_function.halved, tg.Event(epsilon="1"), seconds=3, steps=1)
    verdict.save("verdict.json")
    assert main(["audit", "--replay", "verdict.json"]) == 2
    assert "module:function" in capsys.readouterr().err
    assert main(["audit", "--replay", "verdict.json", "audited_function:halved"]) == 1
    said = capsys.readouterr().out
    assert "one stream" in said
    assert "neighbour" in said
    assert "it happened" in said
    assert (
        main(["audit", "--replay", "verdict.json", "audited_function:halved", "--policy", "event epsilon=3"])
        == 2
    )
    assert main(["audit", "audited_function:absent"]) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["Unifrom"], "did you mean 'Uniform'"),
        (["Uniform", "--policy", "weekly"], "must be event or w-event or user"),
        (["Uniform", "--policy", "event epsilon=1 window=3"], "absent for event"),
        (["Uniform", "--policy", "w-event epsilon=1"], "given for w-event"),
        (["Uniform", "--policy", "w-event epsilon=1 window=x"], "a whole number"),
        (["Uniform", "--set", "nothing=1"], "a parameter of Uniform"),
        (["Uniform", "--set", "nothing"], "name=value"),
        (["Uniform", "--minutes", "0"], "minutes"),
        (["Uniform", "--replay", "x.json"], "cannot be used"),
        (["Blocks"], "with a User policy"),
        (["--replay", "absent.json"], "cannot be used"),
        ([], "name one of the two"),
    ],
)
def test_bad_input(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    """One sentence and exit code 2."""
    assert main(["audit", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.strip().splitlines()) == 1


def test_words_are_read_exactly() -> None:
    """Exact numbers stay what was typed, tuples and switches become what they are."""
    assert str(read_policy("event, epsilon=0.1, delta=1e-9").epsilon) == "1/10"
    read = read_options(["grid=0.01", "groups=((0,),(1,))", "shift=true", "noise=laplace"])
    assert read == {"grid": "0.01", "groups": ((0,), (1,)), "shift": True, "noise": "laplace"}
    with pytest.raises(InvalidParameter, match="one of epsilon"):
        read_policy("event budget=1")
