"""The reference of all commands, written from the commands themselves.

``python -m tidegate.cli.reference docs/reference/cli.md`` writes it again.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from tidegate.cli import COMMANDS, app, load

HEAD = """\
# Commands

Generated from the code by `python -m tidegate.cli.reference docs/reference/cli.md`; a test compares the two.

Every command ends with exit code 0 when it is done, 2 and one sentence on stderr when its input is refused,
1 when something was found to be wrong or failed unexpectedly, and 130 when it was interrupted. Progress goes to
stderr, and only to a terminal; `bench` writes a line for each comparison where there is none.
"""


def reference() -> str:
    """All commands with their options, as Markdown."""
    return HEAD + "".join(_command("tidegate", whole()))


def whole() -> Any:
    """The command line with every command loaded."""
    root = typer.main.get_group(app)
    root.commands = {name: load(name) for name in COMMANDS}
    return root


def _command(name: str, command: Any) -> Iterator[str]:
    yield f"\n## `{name}`\n\n{inspect.cleandoc(command.help or '')}\n"
    if command.epilog:
        words, _, example = command.epilog.partition(": ")
        yield f"\n{words}:\n\n```\n{example}\n```\n"
    options = [parameter for parameter in command.params if getattr(parameter, "help", None)]
    if options:
        yield "\n| option | default | meaning |\n|---|---|---|\n"
    for option in options:
        default = "" if isinstance(option.default, bool) or option.default is None else f"`{option.default}`"
        yield f"| {', '.join(f'`{flag}`' for flag in option.opts)} | {default} | {option.help} |\n"
    for child, subcommand in sorted(getattr(command, "commands", {}).items()):
        yield from _command(f"{name} {child}", subcommand)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
