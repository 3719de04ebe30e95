"""``tidegate serve``: streams at work, with an address that tools read and a page that people look at."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tidegate.cli.options import SETTINGS, Machine

if TYPE_CHECKING:
    from tidegate.web.tokens import Tokens

EXAMPLE = "Example: tidegate serve run stream.toml --port 8470"
DEMO_EXAMPLE = "Example: tidegate serve demo --hour 2"
ADD_EXAMPLE = "Example: tidegate serve token add producer --as gateway"
REVOKE_EXAMPLE = "Example: tidegate serve token revoke gateway"
LIST_EXAMPLE = "Example: tidegate serve token list"
TokenFile = Annotated[Path, typer.Option("--tokens", help="The file of tokens; it has their hashes only.")]
TOKENS = Path("tokens.json")


class _FilesOrToken(TyperGroup):
    """``serve stream.toml`` is short for ``serve run stream.toml``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the word in where a file or an option is in its place."""
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = ["run", *args]
        return list(super().parse_args(ctx, args))


_GROUP = {**SETTINGS, "no_args_is_help": True}
app = typer.Typer(
    cls=_FilesOrToken, help="Serve streams over HTTP, or manage tokens.", epilog=EXAMPLE, **_GROUP
)
token = typer.Typer(help="Who may send events, and who may operate.", epilog=ADD_EXAMPLE, **_GROUP)
app.add_typer(token, name="token")


@app.command("run", epilog=EXAMPLE)
def run(
    files: Annotated[
        list[Path], typer.Argument(help="Configurations; each is one stream, named like its file.")
    ],
    host: Annotated[
        str, typer.Option(help="The address to listen at; others than this machine's need tokens.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.")] = 8470,
    tokens: TokenFile = TOKENS,
    name: Annotated[
        list[str] | None, typer.Option(help="A further name of this service, for example behind a proxy.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="A certificate in PEM, for TLS.")] = None,
    key: Annotated[Path | None, typer.Option(help="The certificate's key.")] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(help="An origin whose pages may read what is public with scripts; * for all."),
    ] = None,
    embed: Annotated[
        list[str] | None,
        typer.Option(help="An origin whose pages may show charts of this service; * for all."),
    ] = None,
    backfill: Annotated[
        bool, typer.Option("--backfill", help="Close more steps at once than catch_up in [steps] allows.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as a JSON object.")] = False,
) -> None:
    """Drive streams in this process and serve what they release, until it is stopped.

    What is released, and how it is made durable, is what `tidegate release` does. Readers need no token; whoever
    sends events or operates does. Logs are JSON lines on stderr.
    """
    from tidegate.exact import whole

    web = web_room()
    whole("port", port, least=0, most=65535)
    settings = web.Settings(
        host=host,
        port=port,
        tokens=tokens,
        names=tuple(name or ()),
        certificate=certificate,
        key=key,
        cors=tuple(cors or ()),
        embed=tuple(embed or ()),
        backfill=backfill,
    )

    def ready(address: str) -> None:
        typer.echo(json.dumps({"address": address}) if as_json else f"Serving at {address}")
        sys.stdout.flush()

    web.serve(files, settings, ready)


@app.command("demo", epilog=DEMO_EXAMPLE)
def demo(
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.")] = 8470,
    hour: Annotated[float, typer.Option(help="How many seconds a made-up hour takes.")] = 2.0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the addresses as a JSON object.")] = False,
) -> None:
    """Serve a made-up campus, live, on a clock that runs fast.

    Six thousand made-up devices are seen in six buildings. Their sightings are sent to the service as they happen, and
    an hour takes two seconds. Nothing is kept when it ends.
    """
    import webbrowser

    from tidegate.errors import InvalidParameter

    web_room()
    if not 0.2 <= hour <= 3600:
        raise InvalidParameter("hour", hour, "between 0.2 and 3600 seconds", "write for example --hour 2")
    from tidegate.web.demo import run_demo

    def ready(address: str, token: str) -> None:
        page = f"{address}view/campus"
        if as_json:
            typer.echo(json.dumps({"address": address, "page": page, "operator_token": token}))
        else:
            typer.echo(
                f"The made-up campus is live at {page}\nOperator's page {address}operator, token {token}"
            )
            typer.echo("Ctrl-C ends it.")
        sys.stdout.flush()
        if browser and not as_json:
            webbrowser.open(page)

    if not as_json:
        typer.echo("Making up four weeks of a campus, and releasing the first two …")
    run_demo(port, 3600 / hour, ready)


@token.command("add", epilog=ADD_EXAMPLE)
def add(
    role: Annotated[
        str, typer.Argument(help="producer (sends events) or operator (sees the budget as well).")
    ],
    holder: Annotated[str, typer.Option("--as", help="What people call its holder; used to revoke it.")],
    stream: Annotated[
        list[str] | None, typer.Option(help="A stream that a producer may send to; all by default.")
    ] = None,
    tokens: TokenFile = TOKENS,
    as_json: Machine = False,
) -> None:
    """Make a token and print it; it is shown this once and kept nowhere."""
    made = _tokens(tokens).add(role, holder, tuple(stream or ()))
    typer.echo(json.dumps({"token": made, "role": role, "name": holder}) if as_json else made)


@token.command("revoke", epilog=REVOKE_EXAMPLE)
def revoke(
    holder: Annotated[str, typer.Argument(help="The holder's name.")],
    tokens: TokenFile = TOKENS,
    as_json: Machine = False,
) -> None:
    """Take a token back; a running service refuses it from the next request on."""
    _tokens(tokens).revoke(holder)
    typer.echo(json.dumps({"revoked": holder}) if as_json else f"Revoked {holder}.")


@token.command("list", epilog=LIST_EXAMPLE)
def show(tokens: TokenFile = TOKENS, as_json: Machine = False) -> None:
    """List the holders of tokens."""
    entries = _tokens(tokens).entries
    found = [{"name": each.name, "role": each.role, "streams": list(each.streams)} for each in entries]
    if as_json:
        typer.echo(json.dumps({"tokens": found}))
        return
    for each in found:
        where = ", ".join(each["streams"]) or "all streams"
        typer.echo(f"{each['name']}  {each['role']}  {where}")


def web_room() -> Any:
    """The service, which is an extra."""
    from importlib.util import find_spec

    from tidegate.errors import TidegateError

    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise TidegateError('the service needs the extra "web"; install tidegate[web].')
    import tidegate.web

    return tidegate.web


def _tokens(path: Path) -> Tokens:
    web_room()
    from tidegate.web.tokens import Tokens

    return Tokens(path)
