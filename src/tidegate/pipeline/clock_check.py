"""Whether the public clock may be believed when a stream starts.

A step that has closed is closed for ever. A machine that wakes up with its clock ten years ahead would close ten
years of steps as empty, and whatever arrives until then would be late. All numbers here are public: the clock, the
configuration and the last step in the ledger.
"""

from __future__ import annotations

import datetime

from tidegate.errors import TidegateError
from tidegate.ingest import Steps

SLACK = 3600  # seconds that a clock may have been set back without a word; the stream waits
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class ClockRefused(TidegateError):
    """The public clock and the ledger do not go together."""


NEXT = "start once with --backfill", "move the ledger away and begin a new stream with --new-stream"
IN_PYTHON = "raise catch_up", "begin a new log"


def check_clock(
    steps: Steps, last: int, now: float, *, most: int, backfill: bool, remedies: tuple[str, str] = NEXT
) -> None:
    """Refuse to start when the clock would close very many steps at once, or stands before what was released.

    Parameters
    ----------
    steps
        The public clock of the stream.
    last
        The last step in the ledger.
    now
        Seconds since 1970.
    most
        How many steps may be caught up with.
    backfill
        Accept more than that.
    remedies
        What to do where the clock is right, and where an earlier start had a wrong one.
    """
    due = steps.closed_by(now) - last
    if due > most and not backfill:
        reached = f"the stream stands at step {last:,}" if last else "the stream has not begun"
        raise ClockRefused(
            f"the clock says {shown(now)} and {reached}, so that {due:,} steps would close at once, more than "
            f"catch_up = {most:,} allows; set the clock right, or, if it is right, {remedies[0]}."
        )
    end = steps.boundary(last + 1) / 1e6
    if last and end > now + SLACK:
        raise ClockRefused(
            f"the clock says {shown(now)} and the ledger has released steps up to {shown(end)}, so that everything "
            f"until then would be late; set the clock right, or, if an earlier start had a wrong one, {remedies[1]}, "
            "whose budget adds to this one's."
        )


def check_closed(steps: Steps, last: int, now: float) -> None:
    """Refuse to release a finite input whose last step the clock has not closed: what it holds of that is not all.

    Parameters
    ----------
    steps
        The public clock of the stream, with the number of its steps.
    last
        The last step in the ledger.
    now
        Seconds since 1970.
    """
    count, closed = steps.count, steps.closed_by(now)
    if count is not None and last < count and closed < count:
        end = shown(steps.boundary(count + 1) / 1e6)
        raise ClockRefused(
            f"count = {count:,} in [steps] ends at {end} and the clock says {shown(now)}, "
            f"so that {count - max(closed, last):,} steps have not closed yet; start with --until now to release those "
            "that have, lower count, or write complete = true in [source] if the input holds everything of all steps."
        )


def shown(moment: float) -> str:
    """A moment for people; also one that no calendar has."""
    try:
        return f"{_EPOCH + datetime.timedelta(seconds=moment):%Y-%m-%d %H:%M} UTC"
    except OverflowError:
        return "a time after the year 9999"
