"""What is lost through noise that steps share, recomputed from its law, from the policy and from the steps measured.

Steps that share noise lose together. A group of a cube loses Δ over its scale, once in every window that has a
measurement of it, and a semiorder loses that for each of its classes, as long as a window has no more measurements of a
class than the law was made for. Δ is the policy's own; a mechanism is only asked which law it draws from.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.losses import noise_losses, policy_change
from tidegate.mechanisms.pegasus.pegasus import PeGaSus
from tidegate.mechanisms.plain.blocks import Blocks
from tidegate.mechanisms.plain.sample import Sample
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.sampled.fast import Fast
from tidegate.mechanisms.sharing import Sharing, SharingMechanism
from tidegate.mechanisms.tide import plan
from tidegate.mechanisms.tide.tide import Tide
from tidegate.mechanisms.w_event.publishing import Publishing
from tidegate.policy import Pure
from tidegate.releases import Releases, Status

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lost:
    """What measurements lose together.

    Attributes
    ----------
    at
        Which steps of the releases they are, from 0, in order.
    each
        What a window loses that has one of them; of a semiorder, for each class.
    classes, width
        Of a semiorder: measurements take turns in so many classes, and a window may have so many of each. Otherwise 1, 0.
    """

    at: Integers
    each: float
    classes: int = 1
    width: int = 0

    @property
    def charged(self) -> float:
        """What the first of them has to pay for all that are within a window of it."""
        return self.each * min(self.classes, len(self.at))

    def windows(self, steps: int, window: int) -> Floats:
        """What is lost in the windows that end at each of so many steps."""
        measured = np.zeros(steps, dtype=np.int64)
        measured[self.at] = 1
        sums = np.cumsum(np.concatenate([np.zeros(window, dtype=np.int64), measured]))
        inside = sums[window:] - sums[:-window]
        times = np.minimum(inside, self.classes).astype(np.float64)
        if self.width:  # measurements that are further apart than a window of the law share nothing
            times *= np.ceil(np.ceil(inside / self.classes) / self.width)
        return np.asarray(times * self.each)


@dataclass(frozen=True)
class Price:
    """How many times what they are charged measurements that share noise lose, and the part of a budget for them."""

    times: float
    part: float

    @property
    def words(self) -> str:
        """As a sentence."""
        return f"measurements that share noise lose {self.times:.4g} times what they are charged"


def losses(mechanism: Any, releases: Releases) -> tuple[Floats, list[Lost]] | None:
    """What each step lost for itself, and what steps lost together; None where releases do not tell."""
    sharing = mechanism.sharing if isinstance(mechanism, SharingMechanism) else None
    if sharing is None:
        alone = None if mechanism.shares_noise else mechanism.step_losses(releases)
        return None if alone is None else (alone, [])
    every = np.arange(len(releases), dtype=np.int64)
    fresh = np.flatnonzero(np.isin(releases.status, [Status.FRESH, Status.PARTIAL]))
    nothing = np.zeros(len(releases))
    if isinstance(mechanism, Publishing):  # each step is tested, and publications have noise of their own
        published = noise_losses(mechanism, releases)
        return None if published is None else (published, groups(mechanism, sharing, every))
    if isinstance(mechanism, PeGaSus):
        grouping, change = mechanism.grouping, policy_change(mechanism)
        tests = 2 * change / grouping.threshold_scale + 4 * change / grouping.question_scale
        return nothing + tests, groups(mechanism, sharing, every)
    plain = isinstance(mechanism, Uniform | Sample) or (isinstance(mechanism, Fast) and not mechanism.blocks)
    return (nothing, groups(mechanism, sharing, fresh)) if plain else None


def groups(mechanism: Any, sharing: Sharing, at: Integers) -> list[Lost]:
    """What measurements at these steps lose together: those of one group of a cube, or all of a semiorder."""
    law: Any = sharing.law
    change = _change(mechanism)
    if sharing.choice.law == "semiorder":
        each = change * _columns_met(mechanism, sharing, len(at)) / law.prepared.value
        return [Lost(at, each, law.classes, law.width)] if len(at) else []
    found: list[Lost] = []
    first = 0
    for length in cycle(law.lengths):
        if first >= len(at):
            return found
        each = change * _columns_met(mechanism, sharing, length) / law.prepared.value
        found.append(Lost(at[first : first + length], each))
        first += length
    return found


def undercharged(mechanism: Any) -> Price | None:
    """The law whose groups lose most against what they are charged, whatever is measured; None where none is shared."""
    if isinstance(mechanism, Blocks):
        return undercharged(mechanism.mechanism)
    budget = mechanism.policy.budget
    if not isinstance(mechanism, SharingMechanism) or not isinstance(budget, Pure):
        return None
    priced: list[tuple[Sharing | None, float]] = []
    pays = 1.0
    if isinstance(mechanism, Tide):
        tables = mechanism.choices
        if not tables.gaussian:
            units, charges = tables.units, tables.shares[:, plan.CHARGE]
            priced = [(law, charge / units) for law, charge in zip(tables.laws, charges, strict=True)]
    elif mechanism.sharing is not None:
        priced, pays = (
            [(mechanism.sharing, float(mechanism.sharing.group_part))],
            float(mechanism.sharing.part),
        )
    worst: Price | None = None
    for law, part in priced:
        if law is None:
            continue
        own: Any = law.law
        most = max(own.lengths) if law.choice.law == "cube" else own.width
        lost = _change(mechanism) * _columns_met(mechanism, law, most) / own.prepared.value
        lost *= 1 if law.choice.law == "cube" else own.classes
        times = lost / (part * float(budget.epsilon))
        if worst is None or times > worst.times:
            worst = Price(times, pays)
    return worst


def _change(mechanism: Any) -> float:
    """By how many grid units one unit of the policy changes a measurement."""
    change = policy_change(mechanism)
    return change * mechanism.measure.sensitivity if isinstance(mechanism, Publishing) else change


def _columns_met(mechanism: Any, sharing: Sharing, measurements: int) -> int:
    """In how many columns with noise of their own a unit can be at so many measurements."""
    return min(sharing.copies, measurements) if mechanism.policy.mobility == "moving" else 1
