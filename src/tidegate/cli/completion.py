"""``tidegate completion``: a script that lets a shell complete commands and options."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli import COMPLETION
from tidegate.cli.options import Machine

EXAMPLE = "Example: tidegate completion bash"
SHELLS = ("bash", "zsh", "fish")


def completion(
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")],
    as_json: Machine = False,
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
    script = make(prog_name="tidegate", complete_var=COMPLETION, shell=shell)
    typer.echo(json.dumps({"shell": shell, "script": script}) if as_json else script)
