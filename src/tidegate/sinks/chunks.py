"""Chunks: consecutive releases as they are sent, numbered in the order in which they left.

A step may be released more than once: a mechanism that learns more about a past step revises it. Revision 0 is
the first release of a step. The number of a release, counted from 1 over the whole stream, is its place in every
sink; step and revision are its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.releases import Errors, Release, Releases, Status
from tidegate.structures.category_names import OTHER

Integers = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]

CONFIDENCE = 0.9  # of the intervals that are kept and written
# (name, type): one entry per release
_COLUMNS = (
    ("step", "<i8"),
    ("source", "<i8"),
    ("units", "<i8"),
    ("scale", "<f8"),
    ("revision", "<i4"),
    ("delay", "<i4"),
    ("status", "<i1"),
)


class Categories(NamedTuple):
    """Which category each column of some releases is, where categories are found; the last column is all others.

    Parameters
    ----------
    names
        releases × columns × bytes; a column that is free has no name.
    opened
        The step at which each category opened; 0 where a column is free.
    units
        The noisy number of units that the last test of each category has seen.
    """

    names: npt.NDArray[np.int8]
    opened: Integers
    units: Values

    def picked(self, part: Any) -> Categories:
        """Those of some releases."""
        return Categories(self.names[part], self.opened[part], self.units[part])

    def of(self, index: int) -> list[tuple[int, str, int, float]]:
        """The columns of one release that have a category: column, name, since when, and how many units."""
        return [
            (place, self.names[index, place].tobytes().rstrip(b"\0").decode(), opened, units)
            for place, (opened, units) in enumerate(
                zip(self.opened[index].tolist(), self.units[index].tolist(), strict=True)
            )
            if opened
        ]


def columns_of_found(
    categories: Categories | None, index: int, width: int, parts: int
) -> list[tuple[int, str, int, float]]:
    """Where categories are found: the columns of one release that are open, and those of all others.

    Parameters
    ----------
    categories
        Of the releases; None where nothing is said.
    index
        Which of the releases.
    width, parts
        How many columns answers have, and in how many of them a category stands: of means the second ones are counts.

    Returns
    -------
    For each its position, its name, the step at which it opened (0 of the rest), and how many units its test has seen.
    """
    places = width // parts
    open_ = [*([] if categories is None else categories.of(index)), (places - 1, OTHER, 0, float("nan"))]
    return [
        (part * places + place, f"count of {name}" if part else name, opened, units)
        for part in range(parts)
        for place, name, opened, units in open_
    ]


@dataclass(frozen=True)
class Chunk:
    """Consecutive releases in columns.

    Parameters
    ----------
    first
        The number of the first of them, counted from 1 over the whole stream.
    step, source, units, scale, revision, delay, status
        One entry a release, as in :class:`tidegate.Release`; `revision` counts the releases of one step from 0.
    values
        releases × columns; NaN where given input had no reading.
    radius
        Half the widths of the intervals around values at 90 %: releases × columns, or releases × 1 where all columns
        have the same; NaN where none is known, None where none ever is.
    errors
        Of what the errors of values are made, for those who add steps up; None where nobody does, or nothing is known.
    categories
        Where categories are found: which of them the columns are.

    Examples
    --------
    >>> chunk = Chunk.of(1, [Release(1, np.array([3.0, 4.0]), 1, 1, 2.0, 1, 1)])
    >>> chunk.last, chunk.values.tolist()
    (1, [[3.0, 4.0]])
    """

    first: int
    step: Integers
    source: Integers
    units: Integers
    scale: Values
    revision: npt.NDArray[np.int32]
    delay: npt.NDArray[np.int32]
    status: npt.NDArray[np.int8]
    values: Values
    radius: Values | None = None
    errors: Errors | None = None
    categories: Categories | None = None

    def __len__(self) -> int:
        return len(self.step)

    @property
    def last(self) -> int:
        """The number of the last release."""
        return self.first + len(self.step) - 1

    @classmethod
    def of_batch(
        cls, first: int, releases: Releases, revisions: Integers | None = None, *, explained: bool = False
    ) -> Chunk:
        """Releases of consecutive steps, with the revision of each (by default 0); `explained`: with their errors."""
        count = len(releases)
        # revised values of a period become known together, each after a delay of its own
        ends = releases.ends
        delay = np.full(count, releases.delay) if ends is None else ends - releases.steps
        found = getattr(releases, "found", None)
        return cls(
            first,
            releases.steps,
            np.asarray(releases.source, dtype=np.int64),
            np.asarray(releases.units, dtype=np.int64),
            np.asarray(releases.scale, dtype=np.float64),
            np.zeros(count, dtype=np.int32) if revisions is None else revisions.astype(np.int32),
            delay.astype(np.int32),
            np.asarray(releases.status, dtype=np.int8),
            np.asarray(releases.values, dtype=np.float64),
            _known(releases.radius(CONFIDENCE)),
            releases.radii.errors() if explained and releases.radii is not None else None,
            None if found is None else Categories(*found),
        )

    @classmethod
    def of(cls, first: int, releases: Sequence[Release], revisions: Iterable[int] | None = None) -> Chunk:
        """Any releases, with the revision of each (by default 0)."""
        count = len(releases)
        return cls(
            first,
            np.array([release.step for release in releases], dtype=np.int64),
            np.array([release.source for release in releases], dtype=np.int64),
            np.array([release.units for release in releases], dtype=np.int64),
            np.array([release.scale for release in releases], dtype=np.float64),
            np.zeros(count, dtype=np.int32)
            if revisions is None
            else np.array(list(revisions), dtype=np.int32),
            np.array([release.delay for release in releases], dtype=np.int32),
            np.array([release.status for release in releases], dtype=np.int8),
            np.array([release.values for release in releases], dtype=np.float64),
            _known(_stacked([release.radius(CONFIDENCE) for release in releases])),
        )

    @classmethod
    def silent(cls, first: int, step: int, width: int) -> Chunk:
        """A step of which nothing is said."""
        return cls(
            first,
            np.array([step], dtype=np.int64),
            np.array([step], dtype=np.int64),
            np.zeros(1, dtype=np.int64),
            np.zeros(1),
            np.zeros(1, dtype=np.int32),
            np.zeros(1, dtype=np.int32),
            np.array([Status.SILENT], dtype=np.int8),
            np.full((1, width), np.nan),
        )

    def withheld(self, missing: npt.NDArray[np.bool_]) -> Chunk:
        """The same without the values of some cells; a release without any value is missing."""
        if not missing.any():
            return self
        nothing = missing.all(axis=1)
        status = np.where(nothing, np.int8(Status.MISSING), self.status).astype(np.int8)
        return replace(self, status=status, values=np.where(missing, np.nan, self.values))

    def after(self, number: int) -> Chunk:
        """The releases with a greater number."""
        skip = max(0, number - self.first + 1)
        return self if not skip else self[skip : len(self)]

    def __getitem__(self, part: slice) -> Chunk:
        begin = range(len(self))[part].start
        columns: dict[str, Any] = {name: getattr(self, name)[part] for name, _ in _COLUMNS}
        radius = None if self.radius is None else self.radius[part]
        errors = None if self.errors is None else Errors(*(each[part] for each in self.errors))
        categories = None if self.categories is None else self.categories.picked(part)
        return Chunk(
            self.first + begin,
            values=self.values[part],
            radius=radius,
            errors=errors,
            categories=categories,
            **columns,
        )

    def picked(self, index: Integers) -> Chunk:
        """Some of the releases, in any order, without their errors; their numbers are the caller's business."""
        columns: dict[str, Any] = {name: getattr(self, name)[index] for name, _ in _COLUMNS}
        radius = None if self.radius is None else self.radius[index]
        categories = None if self.categories is None else self.categories.picked(index)
        return Chunk(self.first, values=self.values[index], radius=radius, categories=categories, **columns)


def joined(chunks: Iterable[Chunk], width: int) -> Chunk:
    """Consecutive chunks as one."""
    found = list(chunks)
    if len(found) == 1:
        return found[0]
    if not found:
        return replace(Chunk.of(1, []), values=np.zeros((0, width)))
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(chunk, name) for chunk in found]) for name, _ in _COLUMNS
    }
    values = np.concatenate([chunk.values for chunk in found])
    return Chunk(
        found[0].first,
        values=values,
        radius=_joined_radius(found),
        errors=_joined_errors(found),
        categories=_joined_categories(found),
        **columns,
    )


def latest(chunk: Chunk) -> Chunk:
    """One release a step, the last revision of each, in the order of the steps."""
    return replace(chunk.picked(newest(chunk.step, chunk.revision)), first=1)


def newest(step: Integers, revision: npt.NDArray[np.integer[Any]]) -> Integers:
    """Where the last revision of each step stands, in the order of the steps.

    Examples
    --------
    >>> newest(np.array([2, 1, 2, 3]), np.array([0, 0, 1, 0])).tolist()
    [1, 2, 3]
    """
    order = np.lexsort((revision, step))
    last = np.append(np.diff(step[order]) != 0, True)[: len(order)]
    found: Integers = order[last.astype(bool)]
    return found


def _joined_radius(chunks: Sequence[Chunk]) -> Values | None:
    known = [chunk.radius for chunk in chunks if chunk.radius is not None]
    if not known:
        return None
    width = max(radius.shape[1] for radius in known)
    parts = [
        np.broadcast_to(np.nan if chunk.radius is None else chunk.radius, (len(chunk), width))
        for chunk in chunks
    ]
    return np.concatenate(parts)


def _joined_categories(chunks: Sequence[Chunk]) -> Categories | None:
    """Steps of which nothing is said have none."""
    known = next((chunk.categories for chunk in chunks if chunk.categories is not None), None)
    if known is None:
        return None
    parts = [chunk.categories or no_categories(len(chunk), known) for chunk in chunks]
    return Categories(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def no_categories(count: int, like: Categories) -> Categories:
    """So many releases in which no category is open, with columns as others have them."""
    return Categories(
        np.zeros((count, *like.names.shape[1:]), dtype=like.names.dtype),
        np.zeros((count, *like.opened.shape[1:]), dtype=like.opened.dtype),
        np.full((count, *like.units.shape[1:]), np.nan),
    )


def _joined_errors(chunks: Sequence[Chunk]) -> Errors | None:
    """NaN where none are known."""
    if all(chunk.errors is None for chunk in chunks):
        return None
    parts = [chunk.errors or Errors(*(np.full(chunk.values.shape, np.nan),) * 4) for chunk in chunks]
    return Errors(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _known(radius: Values | None) -> Values | None:
    """Radii as they are kept: NaN where nothing was measured yet, so that anything may be true."""
    return radius if radius is None else np.where(np.isfinite(radius), radius, np.nan)


def _stacked(radii: Sequence[Values | None]) -> Values | None:
    """The radii of single releases as rows; None where there is none at all."""
    width = max((len(radius) for radius in radii if radius is not None), default=0)
    if not width:
        return None
    return np.array([np.full(width, np.nan) if radius is None else radius for radius in radii])
