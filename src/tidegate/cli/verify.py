"""``tidegate verify``: check the account that a service publishes, from anywhere."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.cli.options import Machine

EXAMPLE = "Example: tidegate verify http://127.0.0.1:8470/streams/campus"
LARGEST = 64 * 2**20  # bytes of one answer


def verify(
    address: Annotated[
        str, typer.Argument(help="A stream's address, as its service publishes it.", metavar="URL")
    ],
    seen: Annotated[
        Path | None,
        typer.Option(help="Where heads that were seen are kept; by default in the user's folder."),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="The publisher's key, if it is known from elsewhere.")
    ] = None,
    as_json: Machine = False,
) -> None:
    """Recompute every window of a published account, and compare it with what was seen before.

    Needs nothing but the address. Tells when a window was overspent, a charge was changed or dropped, the account was
    rolled back since an earlier check, or the key has changed. Exit code 1 when it does not hold.
    """
    from tidegate.cli.progress import stages
    from tidegate.core.errors import LogDamaged

    base = address.rstrip("/")
    file = seen or _default()
    known = _read(file)
    with stages(3, quiet=as_json) as begin:
        begin("reading the signed head")
        head = _ask(f"{base}/account")
        if key is not None and head.get("key", key) != key:
            raise LogDamaged("the account is signed by another key than the one given.")
        named = head.get("queries")
        heads = {base: head} if named is None else {f"{base}/{name}": None for name in named}
        found = _checked(heads, known, key, begin)
    facts = [facts for _, facts in found]
    if all(each["ok"] for each in facts):
        _write(file, known)
    if as_json:
        queries = dict(zip(named or (), facts, strict=False))
        together = {"ok": all(each["ok"] for each in facts), "queries": queries}
        typer.echo(json.dumps(facts[0] if named is None else together, indent=2))
    else:
        _say(found, named is not None)
    if not all(each["ok"] for each in facts):
        raise typer.Exit(1)


def _checked(
    heads: dict[str, Any], known: dict[str, Any], key: str | None, begin: Callable[[str], None]
) -> list[tuple[str, dict[str, Any]]]:
    """The facts of each account; those of several queries must be of one chain of charges."""
    from dataclasses import replace

    from tidegate.core.errors import LogDamaged
    from tidegate.pipeline.public_account import Seen, check_published

    found: list[tuple[str, dict[str, Any]]] = []
    chain: list[Seen] = []  # the charges that the queries before have, without their releases
    for base, given in heads.items():
        head = given or _ask(f"{base}/account")
        if key is not None and head.get("key") != key:
            raise LogDamaged("the account is signed by another key than the one given.")
        begin("replaying all charges")
        earlier = [Seen(**each) for each in known.get(base, [])]
        rows = _pages(f"{base}/account/rows", "rows", head.get("commits", 0))
        begin("hashing all releases")
        releases = _pages(f"{base}/account/transcript", "releases", head.get("number", 0))
        verdict, now = check_published(head, rows, releases, [*earlier, *chain])
        chain.append(replace(now, scope=-1, number=0, transcript=""))
        if verdict.ok and now not in earlier:
            known[base] = [*known.get(base, []), vars(now)]
        facts: dict[str, Any] = {
            "ok": verdict.ok,
            "verdict": str(verdict),
            "commits": verdict.commits,
            "step": verdict.step,
            "head": verdict.head.hex(),
            "key": now.key,
            "signed_at": head.get("time"),
            "earlier_heads": len(earlier),
        }
        found.append((base, facts))
    return found


def _say(found: list[tuple[str, dict[str, Any]]], several: bool) -> None:
    before = {0: "first check of this account", 1: "continues from the head seen before"}
    for base, facts in found:
        seen = facts["earlier_heads"]
        typer.echo(f"{base.rpartition('/')[2]}: {facts['verdict']}" if several else facts["verdict"])
        typer.echo(before.get(seen, f"continues from all {seen} heads seen before"))
        typer.echo(f"signed by {facts['key']} at {facts['signed_at']}")


def _pages(address: str, name: str, count: int) -> Iterator[list[Any]]:
    """Everything up to a number; more may have come since the head was signed."""
    after = 0
    while after < count:
        page = _ask(f"{address}?after={after}").get(name, [])
        if not page:
            return
        yield from page[: count - after]
        after += len(page)


def _ask(address: str) -> dict[str, Any]:
    from urllib.error import URLError
    from urllib.request import Request, urlopen

    from tidegate.errors import InvalidParameter, TidegateError

    if not address.startswith(("http://", "https://")):
        raise InvalidParameter(
            "url", address, "an address that begins with https:// or http://", f"see {EXAMPLE}"
        )
    try:
        with urlopen(Request(address, headers={"Accept": "application/json"}), timeout=60) as found:
            document = json.loads(found.read(LARGEST))
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or "it is no JSON"
        raise TidegateError(f"{address} cannot be read ({reason}); check the address.") from None
    if not isinstance(document, dict):
        raise TidegateError(f"{address} is no account; give the address of a stream.")
    return document


def _default() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "tidegate" / "heads.json"


def _read(file: Path) -> dict[str, Any]:
    from tidegate.errors import TidegateError

    if not file.exists():
        return {}
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise TidegateError(f"{file} cannot be read; move it away, or name another with --seen.") from None
    return found


def _write(file: Path, known: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(json.dumps(known, indent=2), encoding="utf-8")
    fresh.replace(file)
