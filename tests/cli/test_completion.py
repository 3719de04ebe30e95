from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.cli import main

# how each shell is asked for the words that may follow `tidegate le`, and what it must run to find out
ASKED = {
    "bash": 'COMP_WORDS=(tidegate le); COMP_CWORD=1; _tidegate_completion tidegate; echo "${COMPREPLY[*]}"',
    "zsh": "compdef _tidegate_completion tidegate; echo $_comps[tidegate]; "
    'env _TYPER_COMPLETE_ARGS="tidegate le" _TIDEGATE_COMPLETE=complete_zsh tidegate',
    "fish": "complete --do-complete 'tidegate le'",
}
BEFORE = {"zsh": "autoload -U compinit; compinit -u -D; "}


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH whose `tidegate` is the one under test."""
    command = tmp_path / "tidegate"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tidegate "$@"\n')
    command.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


@pytest.mark.parametrize("shell", ASKED)
def test_a_shell_completes_commands(shell: str, path: str, tmp_path: Path) -> None:
    """The script is read by the shell itself, which then completes `le` to `ledger`."""
    if not shutil.which(shell):
        pytest.skip(f"{shell} is needed: install it with your system's packages.")
    script = tmp_path / "script"
    with script.open("w") as file:
        asked = [sys.executable, "-m", "tidegate", "completion", shell]
        subprocess.run(asked, stdout=file, check=True)
    line = f"{BEFORE.get(shell, '')}source {script}; {ASKED[shell]}"
    surroundings = {**os.environ, "PATH": path, "HOME": str(tmp_path)}
    flags = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    command = [shell, *flags, "-c", line]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    assert "ledger" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (
            {"_TIDEGATE_COMPLETE": "complete_bash", "COMP_WORDS": "tidegate release --fo", "COMP_CWORD": "2"},
            "--follow",
        ),
        ({"_TIDEGATE_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "tidegate ledger ver"}, "verify"),
        (
            {
                "_TIDEGATE_COMPLETE": "complete_fish",
                "_TYPER_COMPLETE_FISH_ACTION": "get-args",
                "_TYPER_COMPLETE_ARGS": "tidegate datasets ",
            },
            "make",
        ),
    ],
    ids=["bash", "zsh", "fish"],
)
def test_a_question_of_a_shell_is_answered(asked: dict[str, str], expected: str) -> None:
    """What scripts ask, also where the shell is not installed."""
    command = [sys.executable, "-m", "tidegate"]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=False)
    assert expected in done.stdout, done.stderr


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence, with those that are known."""
    assert main(["completion", "tcsh"]) == 2
    assert "bash, zsh or fish" in capsys.readouterr().err
