"""``tidegate ledger backup``, ``restore``, ``head`` and ``prune``: a ledger that is neither lost nor grows for ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.options import Machine
from tidegate.cli.targets import Target, check_target

if TYPE_CHECKING:
    from tidegate.runtime.copies import Copied

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
            help="A new file, or a folder for copies named by their last row; one that ends with / is made."
        ),
    ],
    as_json: Machine = False,
) -> None:
    """Copy a ledger while its stream goes on, and check every charge and release of the copy.

    A copy of the file by other means lacks what SQLite still holds in its log. Keep copies as you keep the ledger:
    they hold its state, and are readable by their owner only.
    """
    from tidegate.cli.progress import stages
    from tidegate.runtime.copies import back_up

    check_target(ledger)
    target = Path(place)
    if place.endswith("/") and not target.exists():
        target.mkdir(mode=0o700, parents=True)
    with stages(1, quiet=as_json) as begin:
        begin("copying and replaying all charges")
        found = back_up(ledger, target)
    _say(found, "backed up" if found.made else "nothing new since this copy", as_json)


def restore(
    copy: Annotated[Path, typer.Argument(help="A copy that `tidegate ledger backup` has made.")],
    ledger: Annotated[Path, typer.Argument(help="The ledger's file, where there must be none.")],
    head: Annotated[
        list[str] | None,
        typer.Option(
            help="A head kept outside: a receipt, a published account, or what `ledger head` printed."
        ),
    ] = None,
    as_json: Machine = False,
) -> None:
    """Put a copy in the place of a lost ledger, if it has forgotten nothing that was released.

    Every charge is replayed, and the copy is compared with heads that were kept outside. One that is older than a head is
    refused with what is lost: whoever went on with it would spend the same budget twice.
    """
    from tidegate.cli.progress import stages
    from tidegate.runtime.copies import restore as put_back
    from tidegate.runtime.heads import read_head

    check_target(str(copy))
    heads = [read_head(text) for text in head or ()]
    with stages(1, quiet=as_json) as begin:
        begin("replaying all charges")
        found = put_back(copy, ledger, heads)
    _say(found, "restored", as_json)
    if not heads and not as_json:
        typer.echo(
            "compared with no head: the next start compares it with the receipt of its output, as every start does"
        )


def head(ledger: Target, as_json: Machine = False) -> None:
    """Print the number and the hash of a ledger's last row, to be kept somewhere else.

    `tidegate ledger verify --head` tells later whether the ledger still has that row. Also while a stream is running.
    """
    from tidegate.runtime.heads import head_of
    from tidegate.runtime.store import open_durable

    check_target(ledger)
    with open_durable(ledger, read_only=True) as opened:
        found = head_of(opened)
    if as_json:
        typer.echo(
            json.dumps({"head": str(found), "rows": found.rows, "hash": found.hash, "step": found.step})
        )
    else:
        typer.echo(str(found))


def prune(
    config: Annotated[
        Path, typer.Argument(help="The configuration of the stream, which must not be running.")
    ],
    archives: Annotated[Path, typer.Argument(help="A folder for archives.")],
    keep: Annotated[
        int | None,
        typer.Option(help="How many of the last steps stay; by default twice a window, and at least 1,000."),
    ] = None,
    as_json: Machine = False,
) -> None:
    """Move old charges and releases into an archive that verifies by itself, so that the ledger stays small.

    What windows, sinks and the chain of hashes need stays. An archive has no state and no rows of open steps; nothing is
    added to it. `tidegate ledger verify --archive` proves that archives and ledger are one account from the first row on.
    """
    from tidegate.cli.progress import stages
    from tidegate.config import read_queries
    from tidegate.runtime.streams import prune_streams

    settings = read_queries(config)
    with stages(1, quiet=as_json) as begin:
        begin("archiving and replaying all charges")
        found = prune_streams(settings, archives, keep=keep)
    if as_json:
        facts = {
            "archive": None if found is None else str(found.archive.path),
            "rows": 0 if found is None else found.rows,
            "releases": 0 if found is None else found.number,
            "step": 0 if found is None else found.step,
        }
        typer.echo(json.dumps(facts, indent=2))
    elif found is None:
        typer.echo("nothing to archive: windows, sinks or --keep need all that there is")
    else:
        typer.echo(
            f"archived: rows 1 to {found.rows:,} and the releases up to step {found.step:,} are in {found.archive.path}"
        )


def _say(found: Copied, words: str, as_json: bool) -> None:
    verdict = found.verdict
    if as_json:
        facts = {
            "file": str(found.path),
            "made": found.made,
            "head": str(found.head),
            "rows": found.head.rows,
            "step": found.head.step,
            "releases": verdict.releases,
            "verdict": str(verdict),
        }
        typer.echo(json.dumps(facts, indent=2))
        return
    typer.echo(f"{words}: {found.path}")
    typer.echo(str(verdict))
    typer.echo(f"head {found.head}")
