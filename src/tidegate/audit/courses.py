"""What a stream shows: a course drives a mechanism over a stream, and all that is released is laid out as numbers.

A course is one way in which a stream may come to its releases: here all steps at once. What is refused is part of the
transcript.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.audit import direct
from tidegate.audit.neighbours import Counts
from tidegate.releases import Release, Releases, Status

Floats = npt.NDArray[np.float64]
MARKS = 3  # numbers of a step that are no values: its status, what it was charged, its noise scale


@dataclass(frozen=True)
class Refused:
    """So many steps that were not released."""

    steps: int


Part = Releases | Release | Refused
Drive = Callable[[Any, Counts], list[Part]]


@dataclass(frozen=True)
class Course:
    """What happens to a stream.

    Attributes
    ----------
    name
        In words.
    drive
        Pushes a stream to a mechanism and gives back all that was released and refused, in that order.
    long
        Whether it needs streams of more than two cycles to show anything.
    moments
        Steps of a stream of some length just before or after which something happens; none where it does everywhere.
    alone
        Whether a run has the mechanism's own columns and no copies of them, which go another way or share what happens.
    """

    name: str
    drive: Drive
    long: bool = False
    moments: Callable[[int], tuple[int, ...]] = lambda steps: ()
    alone: bool = False

    def transcript(self, mechanism: Any, stream: Counts, *, marks: bool) -> Floats:
        """Once: steps × numbers, or all numbers in one row where steps differ in how many they have."""
        seen = laid_out(self.drive(mechanism, stream), mechanism.outputs, marks=marks)
        return seen.rows if not len(seen.rest) else np.concatenate([seen.rows.reshape(-1), seen.rest])[None]


class Seen(NamedTuple):
    """Numbers of a transcript: steps × numbers, and what does not fit into them, because steps differ in it."""

    rows: Floats
    rest: Floats


def laid_out(parts: list[Part], outputs: int, *, marks: bool) -> Seen:
    """All that several parts show, each step with as many numbers as the others."""
    seen = [_seen(part, outputs, marks, apart=False) for part in parts]
    if any(len(each.rest) for each in seen) or len({each.rows.shape[1] for each in seen}) > 1:
        seen = [_seen(part, outputs, marks, apart=True) for part in parts]
    rows, rest = zip(*seen, strict=True)
    return Seen(np.concatenate(rows), np.concatenate(rest))


def _seen(part: Part, outputs: int, marks: bool, apart: bool) -> Seen:
    if isinstance(part, Refused):
        return Seen(np.full((part.steps, outputs + MARKS * marks), np.nan), np.zeros(0))
    return _looked_at(part, marks, apart)


def visible(released: Releases | Release, *, marks: bool = False) -> Floats:
    """All that a release shows, steps × numbers: its values, and the measurements and groups behind them.

    With `marks` also, last, the status of each step, what it was charged, and its noise scale, or 0 where nothing was
    measured. Where other numbers than values are there for fewer or more steps than values, all are in one row: the
    values and marks of all steps, then the others.
    """
    seen = _looked_at(released, marks, apart=False)
    return seen.rows if not len(seen.rest) else np.concatenate([seen.rows.reshape(-1), seen.rest])[None]


def _looked_at(released: Releases | Release, marks: bool, apart: bool) -> Seen:
    """Values and marks of each step and, in the same rows or apart, what else is shown."""
    values = np.atleast_2d(released.values)
    others: list[Floats] = []
    better = released.final if isinstance(released, Releases) else released.revised
    if better is not None and better is not released:
        others.append(np.atleast_2d(better.values))
    if (measured := released.measured) is not None:
        others += [np.atleast_2d(measured.noisy), np.atleast_2d(measured.groups.astype(np.float64))]
    apart = apart or any(len(other) != len(values) for other in others)
    parts = [values] if apart else [values, *others]
    if marks:
        status, units, scale = (
            np.atleast_1d(np.asarray(each)) for each in (released.status, released.units, released.scale)
        )
        spent = units * float(released.unit)
        fresh = (status == Status.FRESH) | (status == Status.PARTIAL)
        scales = np.where(fresh, scale, 0.0)
        parts.append(np.stack([status, spent, scales], axis=1).astype(np.float64))
    rest = [other.reshape(-1) for other in others] if apart else []
    return Seen(np.concatenate(parts, axis=1), np.concatenate([np.zeros(0), *rest]))


def at_once(mechanism: Any, stream: Counts) -> list[Part]:
    """One batch, without a session: a broken mechanism may charge more than an account allows."""
    return [direct.released(mechanism, stream)]


def singly(mechanism: Any, stream: Counts) -> list[Part]:
    """The same, one step after the other."""
    return list(direct.recorded(mechanism, stream, singly=True).releases)


AT_ONCE = Course("at once", at_once)
SINGLY = Course("pushed singly", singly, alone=True)
