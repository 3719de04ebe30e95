"""What a stream has learnt and released: the threshold at which its values are clipped, as the ledger has it."""

from __future__ import annotations

from fractions import Fraction

from tidegate.config import Config
from tidegate.errors import TidegateError
from tidegate.exact import show
from tidegate.ledger.rows import decode_text
from tidegate.mechanisms import Mechanism
from tidegate.mechanisms.clipped_records import ClippedRecords
from tidegate.runtime.store import open_durable

_ROWS = "SELECT detail FROM charges WHERE kind = 'learnt' AND scope = ? ORDER BY row DESC LIMIT 1"


def learnt_clip(config: Config) -> str | None:
    """The threshold, exactly; None where it is not learnt, or not yet."""
    learning = config.query.learn
    if learning is None:
        return None
    if learning.clip is not None:
        return show(learning.clip * Fraction(config.query.grid))
    try:
        with open_durable(config.ledger, read_only=True) as ledger:
            scope = f"{config.name}: learn" if ledger.shares else "learn"
            with ledger.told():
                found = ledger.connection.execute(_ROWS, (scope,)).fetchone()
    except TidegateError:
        return None
    return None if found is None else str(decode_text(bytes(found[0]))["clip"])


def released_by(mechanism: Mechanism) -> str:
    """The name of the mechanism that releases, whatever is learnt before."""
    return type(mechanism.bounded if isinstance(mechanism, ClippedRecords) else mechanism).__name__
