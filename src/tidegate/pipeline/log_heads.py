"""Heads: the number of a commit and its hash, which stands for all commits before it.

It is in every receipt, in what `head_of` writes for others to keep, and in whatever an operator has written down. A log
without it is an older copy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tidegate.core.commit import Row
from tidegate.core.errors import LogDamaged
from tidegate.errors import InvalidParameter
from tidegate.pipeline.receipts import LogIsOlder, parsed
from tidegate.sinks.errors import AnotherStream

TEXT = re.compile(r"(\d{1,18}):([0-9a-f]{64})")


class Head(NamedTuple):
    """A commit of a log, as somebody else remembers it.

    Attributes
    ----------
    commit, hash
        Its number and its hash.
    identity
        The hash of the log's first commit; empty where it is not known.
    where
        Who remembers it.
    """

    commit: int
    hash: str
    identity: str = ""
    where: str = "the head"

    def __str__(self) -> str:
        return f"{self.commit}:{self.hash}"


def head_of(rows: Iterable[Row], name: str) -> dict[str, Any]:
    """What may be published of a log, for others to keep: JSON that `read_head` reads."""
    first = last = None
    for row in rows:
        first, last = first or row, row
    if first is None or last is None:
        raise LogDamaged(f"{name} has no commit yet; push a step first.")
    return {"log": first.head.hex(), "commit": last.number, "head": last.head.hex(), "step": last.last}


def read_head(text: str) -> Head:
    """A head as it was written down: its text or a file with it, a receipt, or a file with what `head_of` has made."""
    found = TEXT.fullmatch(text.strip())
    if found is not None:
        return Head(int(found[1]), found[2])
    try:
        content = Path(text).read_bytes()[: 2**20]
        found = TEXT.fullmatch(content.decode("utf-8").strip())
        if found is not None:
            return Head(int(found[1]), found[2])
        receipt = parsed(content)
        if receipt is not None:
            return Head(receipt.written.commit, receipt.written.head, receipt.origin.identity, text)
        published = json.loads(content)
        return Head(int(published["commit"]), str(published["head"]), str(published["log"]), text)
    except (OSError, ValueError, TypeError, KeyError):
        raise InvalidParameter(
            "head",
            text[:100],
            "a receipt, a published head, or commit:hash",
            "write for example out.csv.receipt",
        ) from None


def check_heads(rows: Iterable[Row], heads: Sequence[Head], name: str) -> None:
    """Refuse a log that lacks a commit that somebody remembers."""
    wanted = {head.commit for head in heads}
    found = {row.number: row.head.hex() for row in rows if row.number in wanted or row.number == 0}
    for head in heads:
        if head.identity and found.get(0) != head.identity:
            raise AnotherStream(
                f"{head.where} belongs to another log than {name}; give the head of this stream."
            )
        if head.hash and found.get(head.commit) != head.hash:
            raise LogIsOlder(
                f"{name} does not have commit {head.commit} that {head.where} names: it lacks charges that were "
                "made; find a newer copy, or begin a new stream with --new-stream, whose budget adds to this one's."
            )
