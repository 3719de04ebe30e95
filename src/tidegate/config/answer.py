"""One ``[[answer]]``: a standing question, ready to be asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidegate.queries.standing import Meaning, Operator


@dataclass(frozen=True)
class Answer:
    """A checked standing question.

    Parameters
    ----------
    name
        Its name.
    location
        Its file, as it was written.
    meaning
        What the released vectors mean.
    ask
        Makes the operator, at the beginning of the stream.
    beside
        The other query that it is made from, if there is one.
    """

    name: str
    location: str
    meaning: Meaning = field(repr=False)
    ask: Callable[[], Operator] = field(repr=False)
    beside: str | None = None
