"""``tidegate completion``: a script that lets a shell complete commands and options."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLE = 'Example: eval "$(tidegate completion bash)"'
SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_TIDEGATE_COMPLETE"  # a shell that asks sets it


def completion(
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")],
) -> None:
    """Print a script that completes commands and options in a shell; docs/install.md says where it goes."""
    from importlib import import_module

    from tidegate.errors import InvalidParameter

    if shell not in SHELLS:
        raise InvalidParameter(
            "shell", shell, "bash, zsh or fish", "write for example `tidegate completion bash`"
        )
    script = import_module("typer.completion").get_completion_script
    typer.echo(script(prog_name="tidegate", complete_var=VARIABLE, shell=shell))


def prepare() -> None:
    """Let the command line answer a shell that asks how a word goes on."""
    from importlib import import_module

    import_module("typer.completion").completion_init()
