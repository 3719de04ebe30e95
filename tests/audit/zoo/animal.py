"""One animal of the zoo: something that claims more privacy than it gives, and how it is caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from tests.audit.enumeration import enumerated

from tidegate.audit.auditor import audit
from tidegate.audit.neighbours import Pair
from tidegate.audit.search import Effort
from tidegate.audit.subjects import Subject
from tidegate.audit.verdicts import Finding
from tidegate.core.mechanism import Mechanism
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.noise import current, laplace

Floats: TypeAlias = Any  # what a callable releases: an array of numbers

SEARCH = "search"  # from the policy alone
PAIR = "stored pair"  # the streams are known, the event is not
EXACT = "enumeration"
REPLAY = "account"
FAILURE = "failure"

# What it is made of.
PRINTED = "printed"  # as a paper prints it
MUTANT = "mutant"  # shipped code with one thing changed
MISUSED = "misused"  # shipped code, unchanged, used against its contract
MODEL = "model"  # written for the zoo, because nothing like it is shipped


class Independent(Uniform):
    """Uniform with noise of its own at each step, of which one thing will be changed."""

    @property
    def may_share(self) -> bool:
        """No noise is shared."""
        return False


@dataclass(frozen=True)
class Animal:
    """A declaration.

    Attributes
    ----------
    name, what
        Its name, and what is wrong with it.
    make
        Builds it: a mechanism, or a subject of the auditor.
    loss
        How many times its claim it loses, as far as is known; infinite where nothing bounds it.
    how
        How it is caught.
    pairs
        The stored pair, where one is needed.
    steps
        The length of the streams, where the default does not suit.
    seconds
        How long the auditor may search.
    kind
        What it is made of: PRINTED, MUTANT, MISUSED or MODEL.
    """

    name: str
    what: str
    make: Callable[[], Mechanism | Subject]
    loss: float
    how: str = SEARCH
    pairs: tuple[Pair, ...] = ()
    steps: int | None = None
    seconds: float = 12.0
    kind: str = MUTANT

    @property
    def testers(self) -> tuple[str, ...]:
        """Which testers may catch it."""
        return ("replay",) if self.how == REPLAY else ("statistical",)

    @property
    def effort(self) -> Effort:
        """How much may be looked at: a stored pair is looked at alone."""
        return Effort(self.seconds, pairs=len(self.pairs)) if self.pairs else Effort(self.seconds)

    def audit(self, error: float = 1e-6) -> Finding:
        """Try to catch it."""
        options: dict[str, Any] = {
            "pairs": self.pairs,
            "steps": self.steps,
            "seconds": self.seconds,
            "seed": self.name,
        }
        if self.how == EXACT:
            verdict = enumerated(self.make(), **options)
        else:
            verdict = audit(self.make(), testers=self.testers, effort=self.effort, error=error, **options)
        verdict.name = self.name
        return verdict


def noise(scale: float, shape: tuple[int, int], stream: str = "zoo") -> npt.NDArray[np.int64]:
    """Exact discrete Laplace noise for many transcripts at once."""
    return laplace(current(), stream, 0, scale, shape)


def pair(first: list[int] | list[list[int]], second: list[int] | list[list[int]]) -> Pair:
    """A stored pair; a list of numbers is one column."""
    one, other = (np.array(given, dtype=np.int64).reshape(len(given), -1) for given in (first, second))
    return Pair(one, other, "stored")
