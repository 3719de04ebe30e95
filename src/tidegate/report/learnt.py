"""Where values are clipped, if that is learnt: as it was released."""

from __future__ import annotations

from fractions import Fraction

from tidegate.config import Config, Queries
from tidegate.core.errors import LogMismatch
from tidegate.exact import show
from tidegate.mechanisms import Mechanism
from tidegate.mechanisms.clipped_records import ClippedRecords
from tidegate.pipeline.errors import LogUnavailable
from tidegate.pipeline.logs import log_exists
from tidegate.pipeline.stream_reader import read_stream
from tidegate.policy import Policy


def read_clips(queries: Queries) -> None:
    """Let queries know what their stream has learnt, for `learnt_clip`; nothing where it has not begun."""
    if not any(part.query.learn is not None for part in queries.parts):
        return
    try:
        if log_exists(queries.ledger):
            read_stream(queries).close()
    except (LogMismatch, LogUnavailable):
        return  # of another configuration, or elsewhere: nothing is known here


def learnt_clip(config: Config) -> str | None:
    """The threshold, exactly; None where it is not learnt, or not yet."""
    learning = config.query.learn
    if learning is None or learning.clip is None:
        return None
    return show(learning.clip * Fraction(config.query.grid))


def learnt_nothing(config: Config) -> str:
    """A warning if values continue to count up to their bound, which is as public as what was learnt; or empty."""
    found = learnt_clip(config)
    if found is None or config.query.clip is None or Fraction(found) < Fraction(config.query.clip[1]):
        return ""
    assert isinstance(config.mechanism, ClippedRecords)
    return (
        f"Nothing was learnt of where values end, so they count up to their bound, {found}: the first "
        f"{config.mechanism.learn:,} steps had fewer than about {config.mechanism.records_needed:,} records, or values "
        "that come near the bound; amend the stream with a longer learn, or with a smaller bound."
    )


def at_what_was_learnt(config: Config) -> Policy:
    """The policy of what is released: with the change of the learnt clip, or of the bound while there is none."""
    found = learnt_clip(config)
    if found is None or not isinstance(config.mechanism, ClippedRecords):
        return config.policy
    return config.mechanism.at(int(Fraction(found) / Fraction(config.query.grid))).policy


def released_by(mechanism: Mechanism) -> str:
    """The name of the mechanism that releases, whatever is learnt before."""
    return type(mechanism.bounded if isinstance(mechanism, ClippedRecords) else mechanism).__name__
