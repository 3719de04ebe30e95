"""The command line: one module a command, each of them thin.

Commands import what they need when they run, so that ``tidegate --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from tidegate.cli import (
    amend,
    audit,
    bench,
    check,
    completion,
    datasets,
    demo,
    doctor,
    explain,
    init,
    ledger,
    new,
    plan,
    preview,
    release,
    repro,
    serve,
    tune,
    verify,
)
from tidegate.errors import TidegateError, without_secrets
from tidegate.system import check_system
from tidegate.version import __version__

# Pretty exceptions print local variables, and a local variable may be a record.
app = typer.Typer(
    name="tidegate",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo", epilog=demo.EXAMPLE)(demo.demo)
app.command("init", epilog=init.EXAMPLE)(init.init)
app.command("plan", epilog=plan.EXAMPLE)(plan.plan)
app.command("check", epilog=check.EXAMPLE)(check.check)
app.command("explain", epilog=explain.EXAMPLE)(explain.explain)
app.command("preview", epilog=preview.EXAMPLE)(preview.preview)
app.command("tune", epilog=tune.EXAMPLE)(tune.tune)
app.command("release", epilog=release.EXAMPLE)(release.release)
app.command("amend", epilog=amend.EXAMPLE)(amend.amend)
app.command("audit", epilog=audit.EXAMPLE)(audit.audit)
app.command("bench", epilog=bench.EXAMPLE)(bench.bench)
app.command("verify", epilog=verify.EXAMPLE)(verify.verify)
app.command("doctor", epilog=doctor.EXAMPLE)(doctor.doctor)
app.command("completion", epilog=completion.EXAMPLE)(completion.completion)
app.add_typer(serve.app, name="serve")
app.add_typer(ledger.app, name="ledger")
app.add_typer(new.app, name="new")
app.add_typer(repro.app, name="repro")
app.add_typer(datasets.app, name="datasets")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidegate {__version__}")
        raise typer.Exit


@app.callback(epilog=demo.EXAMPLE, invoke_without_command=True)
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
    try:
        check_system()
        if completion.VARIABLE in os.environ:
            completion.prepare()
        code = app(
            args=None if arguments is None else list(arguments), prog_name="tidegate", standalone_mode=False
        )
        if code == 130:  # newer typer turns an interruption into this code, older ones into Abort
            return _fail("interrupted.", 130)
        return code if isinstance(code, int) else 0
    except TidegateError as error:
        return _fail(str(error), 2)
    except BrokenPipeError:
        # The reader has left, for example `head`; the interpreter must not complain when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        name = f" {error.filename!r}" if error.filename else ""
        return _fail(f"the file{name} cannot be used: {error.strerror or type(error).__name__}.", 2)
    except Exception as error:
        if hasattr(error, "format_message"):  # wrong usage: the message names the option
            context = getattr(error, "ctx", None)
            command = context.command_path if context else "tidegate"
            words = error.format_message().rstrip(".")
            return _fail(f"{words}{'' if words.endswith('?') else '.'} See `{command} --help`.", 2)
        if isinstance(error, RuntimeError) and "cannot cache function" in str(error):  # the compiler's words
            sentence = "no folder can be written for compiled code; set NUMBA_CACHE_DIR to one that can."
            return _fail(sentence, 2)
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
