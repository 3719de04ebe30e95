from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import tidegate
from tidegate.cli import COMMANDS, demo, main
from tidegate.cli.reference import whole
from tidegate.errors import InvalidInput


def commands() -> Iterator[tuple[str, ...]]:
    """Every command that does something, as its words."""

    def walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        children = getattr(command, "commands", None)
        if children is None:
            yield words
        else:
            for name, child in children.items():
                yield from walk(child, (*words, name))

    yield from walk(whole(), ())


def test_help_loads_nothing_heavy() -> None:
    """`tidegate --help` answers at once because it imports no numerical library."""
    script = (
        "import sys; from tidegate.cli import main; code = main(['--help']); "
        "heavy = {'numpy', 'numba', 'scipy', 'polars', 'matplotlib'} & set(sys.modules); "
        "sys.exit(code or ' '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "demo" in done.stdout


def test_the_list_of_commands_says_what_the_commands_say() -> None:
    """Its lines are written apart, so that no command is loaded for them; each is the first sentence of its command."""
    said = {
        name: " ".join(command.help.partition("\n\n")[0].split())
        for name, command in whole().commands.items()
    }
    assert said == COMMANDS


@pytest.mark.parametrize(
    "name", ["", *(name for name in COMMANDS if hasattr(whole().commands[name], "commands"))]
)
def test_no_list_of_commands_is_cut(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What a command does can be read to its end."""
    assert main([*name.split(), "--help"]) == 0
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]


def test_only_the_command_that_is_called_is_loaded() -> None:
    """The other modules, and what they import, cost nothing."""
    script = (
        "import sys; from tidegate.cli import COMMANDS, main; main(['doctor', '--help']); "
        "print(*(name for name in COMMANDS if f'tidegate.cli.{name}' in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == "doctor\n"


def test_without_arguments_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """A first-time user learns what there is."""
    assert main([]) == 0
    assert "Commands" in capsys.readouterr().out


def test_the_package_is_a_command() -> None:
    """`python -m tidegate` answers like `tidegate`, for those whose path does not have it."""
    done = subprocess.run(
        [sys.executable, "-m", "tidegate", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"tidegate {tidegate.__version__}\n"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The version is that of the package."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tidegate {tidegate.__version__}\n"


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_has_an_example_and_json(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """--help shows an example of the command itself and offers --json."""
    assert main([*words, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Example: tidegate " + " ".join(words) in shown
    assert "--json" in shown


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["--nonsense"], ["demo", "--weeks", "x"], ["demo", "more"]]
)
def test_wrong_usage_is_one_sentence(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, one line, and where to look."""
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("tidegate: ")
    assert shown.err.count("\n") == 1
    assert "--help`." in shown.err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (InvalidInput("columns=3 is refused."), 2, "columns=3 is refused."),
        (FileNotFoundError(2, "No such file or directory", "there.csv"), 2, "'there.csv'"),
        (KeyError("a record of somebody"), 1, "unexpected KeyError"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_a_failure_is_one_sentence_and_never_quotes_data(
    error: BaseException,
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Our own errors are shown; of unknown ones only the kind; a traceback never."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.delenv("TIDEGATE_TRACEBACK", raising=False)
    monkeypatch.setattr(demo, "run_demo", fail)
    assert main(["demo"]) == code
    shown = capsys.readouterr().err
    assert words in shown
    assert "\n" not in shown.strip()
    assert "Traceback" not in shown
    assert "a record of somebody" not in shown


def test_a_traceback_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who develops sets TIDEGATE_TRACEBACK."""

    def fail(*_: object, **__: object) -> None:
        raise KeyError("word")

    monkeypatch.setenv("TIDEGATE_TRACEBACK", "1")
    monkeypatch.setattr(demo, "run_demo", fail)
    with pytest.raises(KeyError, match="word"):
        main(["demo"])


def test_a_misspelt_command_is_offered_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, and with the help to look at."""
    assert main(["relase"]) == 2
    shown = capsys.readouterr().err
    assert "relase" in shown
    assert "?;" not in shown
    assert shown.endswith("See `tidegate --help`.\n")


def test_a_system_without_locks_is_refused_by_a_sentence() -> None:
    """As Windows is: no command ends in a traceback, and an import of what needs locks says why."""
    windows = (
        "import sys, os, importlib.util as u; find = u.find_spec; "
        "u.find_spec = lambda name, *more: None if name == 'fcntl' else find(name, *more); "
        "sys.modules['fcntl'] = None; del os.fork, os.register_at_fork; "
    )
    command = windows + "from tidegate.cli import main; sys.exit(main(['ledger', 'show', 'x']))"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "WSL" in done.stderr
    assert "Traceback" not in done.stderr
    for package in ("tidegate.core.session", "tidegate.pipeline"):
        command = f"{windows}import {package}"
        done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False)
        assert "UnsupportedSystem: Tidegate does not run on" in done.stderr


def test_another_system_is_named_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Linux nothing is said."""
    from tidegate.system import system_notice

    monkeypatch.setattr(sys, "platform", "linux")
    assert system_notice() == ""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "on darwin" in system_notice()
