"""Heads that are kept outside of a ledger: whoever keeps one can tell that a ledger has forgotten something.

A head is the number of a row and its hash, which stands for all rows before it. It is in the receipt beside an output,
in the account that a service publishes, and in whatever an operator has written down.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.errors import InvalidParameter, LedgerMismatch
from tidegate.ledger.durable import DurableLedger
from tidegate.runtime.errors import AnotherStream, LedgerIsOlder
from tidegate.runtime.receipts import written_in

_TEXT = re.compile(r"(\d{1,18}):([0-9a-f]{64})")
_LARGEST = 2**20  # bytes of a file with a head


@dataclass(frozen=True)
class Head:
    """A row of a ledger, as somebody else remembers it.

    Parameters
    ----------
    rows, hash
        How many rows there were, and the hash of the last one.
    identity
        The ledger's, where it is known.
    step
        The last step that was released from it, where that is known.
    where
        Who remembers it, in words.

    Examples
    --------
    >>> str(Head(3, "ab" * 32))[:8]
    '3:ababab'
    """

    rows: int
    hash: str
    identity: str = ""
    step: int | None = None
    where: str = "the head"

    def __str__(self) -> str:
        return f"{self.rows}:{self.hash}"


def head_of(ledger: DurableLedger) -> Head:
    """Where a ledger stands."""
    rows, digest = ledger.head
    return Head(rows, digest, ledger.identity, ledger.step, str(ledger.where))


def read_head(text: str) -> Head:
    """A head as it was written down: its text, a receipt, or a file with the text or with a published account."""
    found = _TEXT.fullmatch(text.strip())
    if found is not None:
        return Head(int(found[1]), found[2])
    path = Path(text)
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST)
    except (OSError, ValueError):
        raise _no_head(text) from None
    found = _TEXT.fullmatch(content.decode(errors="replace").strip())
    if found is not None:
        return Head(int(found[1]), found[2], where=str(path))
    receipt = written_in(content)
    if receipt is not None:
        origin, written = receipt
        return Head(written.rows, written.head, origin.identity, written.step, str(path))
    try:
        account = json.loads(content)
    except ValueError:
        raise _no_head(text) from None
    return _published(account, text)


def _published(account: Any, text: str) -> Head:
    """The head in what a service publishes of its account."""
    if isinstance(account, Mapping):
        rows, digest, genesis = (account.get(name) for name in ("rows", "head", "genesis"))
        step = account.get("step")
        if isinstance(rows, int) and isinstance(digest, str) and isinstance(genesis, str):
            return Head(rows, digest, genesis[:32], step if isinstance(step, int) else None, text)
    raise _no_head(text)


def _no_head(text: str) -> InvalidParameter:
    return InvalidParameter(
        "head",
        text if len(text) <= 100 else text[:97] + "…",
        "a receipt, a published account, or what `tidegate ledger head` has printed",
        "write for example --head released.csv.receipt",
    )


def check_head(ledger: DurableLedger, head: Head) -> int:
    """How many rows a ledger has added since a head was kept.

    Raises
    ------
    AnotherStream
        When the head is that of another ledger.
    LedgerIsOlder
        When the ledger ends before the head, or has another row in its place.
    """
    if head.identity and head.identity != ledger.identity:
        raise AnotherStream(
            f"{head.where} belongs to another ledger than {ledger.where}; give the head of this stream."
        )
    rows, _ = ledger.head
    base = ledger.base()
    if base is not None and 0 < head.rows < base.row:
        raise LedgerMismatch(
            f"{head.where} remembers row {head.rows}, and rows 1 to {base.row} of the ledger {ledger.where} are in its "
            "archives; verify them together with it, by --archive, or compare a newer head."
        )
    if head.rows and ledger.hash_of(head.rows) != head.hash:
        raise LedgerIsOlder(_forgotten(ledger, head, rows))
    return rows - head.rows


def _forgotten(ledger: DurableLedger, head: Head, rows: int) -> str:
    """What a ledger has forgotten, in words."""
    if rows >= head.rows:
        lost = f"its row {head.rows} is another than {head.where} remembers: the two have parted"
    else:
        count = head.rows - rows
        lost = f"{head.where} remembers row {head.rows}: {count} {'row' if count == 1 else 'rows'} of charges are lost"
        steps = 0 if head.step is None else head.step - ledger.step
        if steps > 0:
            lost += f", those of {steps} {'step' if steps == 1 else 'steps'} that were released up to step {head.step}"
    return (
        f"the ledger {ledger.where} ends at row {rows}, step {ledger.step}, and {lost}; what was spent must not be "
        "forgotten, so find a newer copy, or begin a new stream with --begin-anew, whose budget adds to this one's."
    )
