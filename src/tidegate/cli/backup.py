"""``tidegate ledger backup``, ``restore``, ``head`` and ``prune``: a ledger that is neither lost nor grows for ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.ledger_argument import Target, check_target
from tidegate.cli.options import Machine

if TYPE_CHECKING:
    from tidegate.pipeline.backup import Copied

BACKUP_EXAMPLE = "Example: tidegate ledger backup tidegate.ledger backups/"
RESTORE_EXAMPLE = (
    "Example: tidegate ledger restore backups/copy.ledger tidegate.ledger --head released.csv.receipt"
)
HEAD_EXAMPLE = "Example: tidegate ledger head tidegate.ledger"
PRUNE_EXAMPLE = "Example: tidegate ledger prune tidegate.toml archives/ --keep 10000"


def backup(
    ledger: Target,
    place: Annotated[
        str,
        typer.Argument(
            help="A new file, or a folder for copies named by their last commit; one that ends with / is made."
        ),
    ],
    secrets: Annotated[
        bool,
        typer.Option(
            "--secrets",
            help="Also copy state, position and records of open steps. Whoever reads the copy then reads raw counts.",
        ),
    ] = False,
    as_json: Machine = False,
) -> None:
    """Copy a ledger while its stream runs, and recompute every charge of the copy.

    A copy of the file by other means lacks what SQLite has in its write-ahead log. A copy has no state: a stream that is
    restored from it is silent until no window contains a step from before.
    """
    from tidegate.cli.progress import stages
    from tidegate.core.postgres_log import is_url
    from tidegate.errors import InvalidParameter
    from tidegate.pipeline.backup import back_up

    if is_url(ledger):
        raise InvalidParameter("ledger", "in PostgreSQL", "a file", "back up its database with pg_dump")
    check_target(ledger)
    target = Path(place)
    if place.endswith("/") and not target.exists():
        target.mkdir(mode=0o700, parents=True)
    with stages(1, quiet=as_json) as begin:
        begin("copying and recomputing all charges")
        found = back_up(Path(ledger), target, secrets=secrets)
    _say(found, "backed up" if found.made else "nothing new since this copy", as_json)


def restore(
    copy: Annotated[Path, typer.Argument(help="A copy that `tidegate ledger backup` has made.")],
    ledger: Annotated[Path, typer.Argument(help="The ledger's file, where there must be none.")],
    head: Annotated[
        list[str] | None,
        typer.Option(help="A head kept outside: a receipt, a published head, or what `ledger head` printed."),
    ] = None,
    as_json: Machine = False,
) -> None:
    """Put a copy in the place of a lost ledger, if it has the charges of everything that was released.

    Every charge is recomputed, and the copy is compared with heads that were kept outside. One that is older than a head
    is refused: whoever continued it would spend the same budget twice.
    """
    from tidegate.cli.progress import stages
    from tidegate.pipeline.backup import restore as put_back
    from tidegate.pipeline.log_heads import read_head

    check_target(str(copy))
    heads = [read_head(text) for text in head or ()]
    with stages(1, quiet=as_json) as begin:
        begin("recomputing all charges")
        found = put_back(copy, ledger, heads)
    _say(found, "restored", as_json)
    if not heads and not as_json:
        typer.echo(
            "compared with no head: the next start needs the receipts of all outputs, and compares it with them"
        )


def head(ledger: Target, as_json: Machine = False) -> None:
    """Print the number and the hash of a ledger's last commit, to be kept somewhere else.

    `tidegate ledger verify --head` tells later whether the ledger still has that commit. Also while a stream is running.
    """
    from tidegate.pipeline.log_heads import head_of
    from tidegate.pipeline.logs import LogReader

    check_target(ledger)
    with LogReader(ledger) as log:
        found = head_of(log.rows(), log.shown)
    text = f"{found['commit']}:{found['head']}"
    typer.echo(json.dumps({"text": text, **found}) if as_json else text)


def prune(
    config: Annotated[
        Path, typer.Argument(help="The configuration of the stream, which must not be running.")
    ],
    archives: Annotated[Path, typer.Argument(help="A folder for archives.")],
    keep: Annotated[
        int | None,
        typer.Option(help="How many of the last steps stay; by default 1,000, and always a window."),
    ] = None,
    as_json: Machine = False,
) -> None:
    """Move old releases into an archive, so that the ledger stays small.

    All charges stay, with the hashes of all releases. Only releases move that every sink has. An archive has no state and
    no rows of open steps. `tidegate ledger verify --archive` compares archives with the hashes in the ledger.
    """
    from tidegate.cli.progress import stages
    from tidegate.config import read_queries
    from tidegate.pipeline.pipeline import prune as archive_old

    settings = read_queries(config)
    archives.mkdir(mode=0o700, parents=True, exist_ok=True)
    with stages(1, quiet=as_json) as begin:
        begin("archiving")
        found = archive_old(settings, archives, keep=keep)
    if as_json:
        typer.echo(json.dumps({"archive": None if found is None else str(found)}, indent=2))
    elif found is None:
        typer.echo("nothing to archive: windows, sinks or --keep need all that there is")
    else:
        typer.echo(f"archived: {found}")
        if settings.first.run.archives is None:
            typer.echo(f'write archives = "{archives}" in [run], where releases are looked for from now on')


def _say(copied: Copied, words: str, as_json: bool) -> None:
    found = copied.found
    if as_json:
        facts = {
            "file": str(copied.path),
            "made": copied.made,
            "head": str(copied.head),
            "commits": found.commits,
            "step": found.step,
            "verdict": str(found),
        }
        typer.echo(json.dumps(facts, indent=2))
        return
    typer.echo(f"{words}: {copied.path}")
    typer.echo(str(found))
    typer.echo(f"head {copied.head}")
