"""``tidegate new``: skeletons of one's own mechanisms."""

from __future__ import annotations

import json
import keyword
import re
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.options import Machine

EXAMPLE = "Example: tidegate new mechanism HourlyMedian --folder hourly-median"

app = typer.Typer(no_args_is_help=True, help="Skeletons of your own mechanisms.", epilog=EXAMPLE)


@app.callback()
def _group() -> None:
    """Skeletons of your own mechanisms."""


@app.command("mechanism", epilog=EXAMPLE)
def mechanism(
    name: Annotated[str, typer.Argument(help="The name of the class, as HourlyMedian.")],
    folder: Annotated[
        Path | None, typer.Option(help="Where it goes; by default a folder of that name here.")
    ] = None,
    decides: Annotated[
        bool,
        typer.Option("--decides", help="Write one that decides in a compiled loop which steps it publishes."),
    ] = False,
    as_json: Machine = False,
) -> None:
    """Write a mechanism that works, its tests, a proof page to be written, and a package that Tidegate finds.

    The mechanism is one file: configuration, state, charges and releases. It passes all checks and an audit as it is;
    the test of its proof fails until the page has been read and accepted. Once installed (pip install -e FOLDER) it can
    be named in tidegate.toml, and `plan`, `bench` and `audit` know it.
    """
    from importlib import resources

    from tidegate.errors import InvalidInput, InvalidParameter
    from tidegate.mechanisms import catalogue

    if not re.fullmatch(r"[A-Z][A-Za-z0-9]+", name) or keyword.iskeyword(name):
        raise InvalidParameter(
            "name", name, "the name of a class, in letters and digits", "write for example HourlyMedian"
        )
    if name in catalogue():
        raise InvalidParameter("name", name, "none of the catalogue's own", "choose another one")
    module = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    home = folder or Path(module.replace("_", "-"))
    contents = {
        f"{module}.py": "deciding" if decides else "mechanism",
        f"test_{module}.py": "test",
        f"docs/proofs/{module}.md": "deciding_proof" if decides else "proof",
        "pyproject.toml": "project",
    }
    taken = [path for path in contents if (home / path).exists()]
    if taken:
        raise InvalidInput(f"{home / taken[0]} is there already; choose another --folder or name.")
    words = {"@NAME@": name, "@MODULE@": module, "@PROJECT@": module.replace("_", "-")}
    try:
        for path, template in contents.items():
            text = (resources.files("tidegate.testing") / "skeleton" / f"{template}.txt").read_text(
                encoding="utf-8"
            )
            for mark, word in words.items():
                text = text.replace(mark, word)
            target = home / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{home} cannot be written: {error.strerror}.") from None
    written = [str(home / path) for path in contents]
    if as_json:
        typer.echo(json.dumps({"name": name, "files": written}, indent=2))
        return
    for path in written:
        typer.echo(f"Wrote {path}.")
    typer.echo(
        f'Next: cd {home}; python -m pytest; tidegate audit {module}:{name} --policy "w-event epsilon=1 window=3". The '
        "test of the proof fails until you have written the page, read it and run "
        f"`python -m tidegate.testing.proofs --accept {module}`. After `pip install -e .`, {name} is known by its name."
    )
