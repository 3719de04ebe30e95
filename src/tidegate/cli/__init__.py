"""The command line: one module a command, each of them thin.

Commands import what they need when they run, so that ``tidegate --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from tidegate.cli.options import SETTINGS
from tidegate.errors import TidegateError, without_secrets
from tidegate.system import check_system
from tidegate.version import __version__

# What the list of commands says of each; modules of the same names are loaded when they are called. A test compares.
COMMANDS = {
    "demo": "Release the occupancy of a made-up campus under w-event privacy and draw it.",
    "init": "Write a commented configuration for a file of events.",
    "plan": "Predict the error of every mechanism from public knowledge, and recommend one.",
    "check": "Check a configuration, its source, ledger and sink, as `release` does at its start.",
    "explain": "Say in sentences what is published, who is protected when and how well, and what is assumed.",
    "card": "Print the card of a deployment, as JSON or as a record for the public registry.",
    "preview": "Release a made-up stream under a configuration, and write the report that the real one would have.",
    "tune": "Choose most, clip, edges and level from the data under differential privacy, and write the lines.",
    "release": "Release the stream of a configuration, and resume where an earlier start stopped.",
    "amend": "Apply configuration changes to a stream: other queries, columns, mechanisms, shares or budget.",
    "audit": "Search for a pair of streams and an event that refute a privacy claim.",
    "bench": "Compare mechanisms on a stream of your own: errors with intervals over runs, at once and delayed.",
    "verify": "Recompute every window of a published account, and compare it with what was seen before.",
    "doctor": "Print versions and optional parts, and try noise and ledger for a moment.",
    "completion": "Print a script that completes commands and options in a shell; docs/install.md says where it goes.",
    "serve": "Serve streams over HTTP, or manage tokens.",
    "ledger": "Look at a ledger, verify it, back it up, put it back or prune it.",
    "new": "Skeletons of your own mechanisms.",
    "datasets": "Sample streams: make one, or load a public one that you have downloaded.",
}
COMPLETION = "_TIDEGATE_COMPLETE"  # a shell that asks how a word continues sets it


def load(name: str) -> Any:
    """The command of a name, from its module: a function of the same name, or an ``app`` of several commands."""
    module, alone = import_module(f"tidegate.cli.{name}"), typer.Typer(**SETTINGS)
    if hasattr(module, "app"):
        alone.add_typer(module.app, name=name)
    else:
        alone.command(name, epilog=module.EXAMPLE)(getattr(module, name))
    found = get_group(alone).commands[name]
    for part in getattr(found, "commands", {}).values():
        part.short_help = part.help.partition("\n\n")[0]  # which is never cut, as that of `tidegate --help`
    return found


class _LoadedWhenCalled(TyperGroup):
    """Commands by name and summary; the one that is called, or completed, is loaded."""

    def __init__(self, **attributes: Any) -> None:
        attributes["commands"] = {
            name: TyperCommand(name=name, help=summary, short_help=summary)
            for name, summary in COMMANDS.items()
        }
        super().__init__(**attributes)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else load(name), rest


app = typer.Typer(name="tidegate", cls=_LoadedWhenCalled, **SETTINGS)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidegate {__version__}")
        raise typer.Exit


@app.callback(
    epilog="Example: tidegate demo --out week --weeks 1 --epsilon 1/2 --window 12",
    invoke_without_command=True,
)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Publish live statistics about people under differential privacy."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; every failure is one sentence on stderr and an exit code other than 0.

    Parameters
    ----------
    arguments : sequence of str, optional
        What stands after the program's name; by default what the shell passed.

    Returns
    -------
    int
        The exit code: 0 done, 1 an unexpected failure, 2 bad input, 130 interrupted.
    """
    return run_app(app, "tidegate", arguments)


def run_app(commands: typer.Typer, name: str, arguments: Sequence[str] | None = None) -> int:
    """Run commands of any program of this project by the rules of `main`."""
    try:
        check_system()
        if COMPLETION in os.environ:
            import_module("typer.completion").completion_init()
        given = None if arguments is None else list(arguments)
        code = commands(args=given, prog_name=name, standalone_mode=False)
        if code == 130:  # newer typer turns an interruption into this code, older ones into Abort
            return _fail("interrupted.", 130)
        return code if isinstance(code, int) else 0
    except TidegateError as error:
        return _fail(str(error), 2)
    except BrokenPipeError:
        # The reader has left, for example `head`; the interpreter must not complain when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except MemoryError:
        return _fail("the memory does not suffice; take a smaller window, fewer columns or less input.", 2)
    except OverflowError:
        return _fail("a number is too large or too small to compute with; give one nearer to 1.", 2)
    except OSError as error:
        name = f" {error.filename!r}" if error.filename else ""
        return _fail(f"the file{name} cannot be used: {error.strerror or type(error).__name__}.", 2)
    except Exception as error:
        if hasattr(error, "format_message"):  # wrong usage: the message names the option
            context = getattr(error, "ctx", None)
            command = context.command_path if context else "tidegate"
            words = error.format_message().rstrip(".")
            return _fail(f"{words}{'' if words.endswith('?') else '.'} See `{command} --help`.", 2)
        if type(error).__name__ == "Abort":
            return _fail("interrupted.", 130)
        if os.environ.get("TIDEGATE_TRACEBACK"):
            raise
        # The text of an unknown error may quote data, so only its kind is shown.
        return _fail(
            f"unexpected {type(error).__name__}; set TIDEGATE_TRACEBACK=1 to see where it came from.", 1
        )


def _fail(sentence: str, code: int) -> int:
    text = " ".join(without_secrets(sentence).split())
    typer.echo(f"tidegate: {text}", err=True)
    return code
