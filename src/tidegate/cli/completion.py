"""``tidegate completion``: a script that lets a shell complete commands and options."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLE = "Example: tidegate completion bash"
SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_TIDEGATE_COMPLETE"  # a shell that asks sets it


def completion(
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Print a script that completes commands and options in a shell; docs/install.md says where it goes."""
    import json
    from importlib import import_module

    from tidegate.errors import InvalidParameter

    if shell not in SHELLS:
        raise InvalidParameter(
            "shell", shell, "bash, zsh or fish", "write for example `tidegate completion bash`"
        )
    make = import_module("typer.completion").get_completion_script
    script = make(prog_name="tidegate", complete_var=VARIABLE, shell=shell)
    typer.echo(json.dumps({"shell": shell, "script": script}) if as_json else script)


def prepare() -> None:
    """Let the command line answer a shell that asks how a word goes on."""
    from importlib import import_module

    import_module("typer.completion").completion_init()
