"""What a file cannot say about mechanisms, each with its reason; and what is said in another way than in Python."""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.errors import InvalidParameter
from tidegate.mechanisms.plain.blocks import of_block
from tidegate.mechanisms.sampled.grouping import Grouping
from tidegate.mechanisms.sampled.kalman import Kalman
from tidegate.mechanisms.sampled.pid import Pid
from tidegate.policy import Policy, User, WEvent
from tidegate.queries.decayed import Exponential, Polynomial, Window


class Refused(NamedTuple):
    """A parameter that a file may not set to anything but one value."""

    unless: Any
    sentence: str


# names that are no mechanisms of streams
NO_STREAMS = {
    "Threshold": (
        'Threshold is one release and no stream, so it cannot be named here; name = "ClippedSum" learns one from the '
        "first steps of its stream and uses it."
    ),
}

DISCOVER = "discover"  # what stands for columns that nobody has listed
# parameters of mechanisms that are for Python only
REFUSED = {
    "experiment": Refused(
        False, "experiment = true is refused: it is for recorded streams in which nobody lives; drop the key."
    ),
    "requirements": Refused(
        None,
        'requirements belong to [protect], as a table of units; write requirements = "requirements.csv" there.',
    ),
    "pan_private": Refused(
        None,
        "pan_private is refused: a stream from a file adds up its events before the mechanism sees them, and an intruder "
        "would find them there; drop the key, or hand events to the mechanism one by one from Python.",
    ),
}

# parameters that are tables in a file: the class that one is read into, by its name in the parameter's type
TABLES: dict[str, type[Any]] = {"Pid": Pid, "Kalman": Kalman, "Grouping": Grouping}
DECAYS: dict[str, type[Any]] = {"exponential": Exponential, "polynomial": Polynomial, "window": Window}


def policy_of_a_block(policy: Policy) -> User:
    """The user-level policy of blocks that together keep a w-event policy.

    Examples
    --------
    >>> policy_of_a_block(WEvent(epsilon="1", window=24)).epsilon
    Fraction(1, 2)
    """
    if not isinstance(policy, WEvent) or policy.delta or policy.horizon is not None:
        raise InvalidParameter(
            "policy",
            policy.name,
            "w-event without delta and horizon for Blocks, whose blocks are as long as its window",
            'write policy = "w-event"',
        )
    return of_block(policy)
