"""Arrays as bytes: fixed width, no text, no compression, so that a record's size depends on its shapes alone.

A *state* is a tuple of arrays, of parts that know how they are stored, and of further such tuples (NamedTuples).
`flat` lists its arrays in order, `rebuilt` puts arrays back into the form of a template.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from tidegate.core.errors import LogDamaged

Array = npt.NDArray[Any]
_S = TypeVar("_S")

KINDS = tuple(np.dtype(name) for name in ("<i8", "<u8", "<f8", "|i1", "|b1"))
CODES = {kind: code for code, kind in enumerate(KINDS)}
HEAD = struct.Struct("<BB")  # kind, number of dimensions
SIZE = struct.Struct("<q")
MOST_DIMENSIONS = 3


def encode(arrays: Iterable[Array]) -> bytes:
    """All arrays, one behind the other.

    Examples
    --------
    >>> [part.tolist() for part in decode(encode([np.arange(3), np.array([[0.5]])]))]
    [[0, 1, 2], [[0.5]]]
    """
    parts = []
    for array in arrays:
        if array.ndim > MOST_DIMENSIONS:
            raise ValueError("an array has more dimensions than can be read again")
        parts.append(HEAD.pack(CODES[array.dtype], array.ndim))
        parts += [SIZE.pack(length) for length in array.shape]
        parts.append(array.tobytes())
    return b"".join(parts)


def decode(data: bytes) -> list[Array]:
    """What `encode` has written; the arrays are their own, and may be written to."""
    arrays, at = [], 0
    try:
        while at < len(data):
            code, dimensions = HEAD.unpack_from(data, at)
            at += HEAD.size
            if dimensions > MOST_DIMENSIONS:
                raise ValueError
            shape = [SIZE.unpack_from(data, at + SIZE.size * axis)[0] for axis in range(dimensions)]
            at += SIZE.size * dimensions
            kind, count = KINDS[code], math.prod(shape)
            if min(shape, default=0) < 0 or count * kind.itemsize > len(data) - at:
                raise ValueError
            arrays.append(np.frombuffer(data, kind, count, at).reshape(shape).copy())
            at += count * kind.itemsize
    except (struct.error, IndexError, ValueError):
        raise LogDamaged(
            "a record of the log is not one that Tidegate has written; restore a backup."
        ) from None
    return arrays


class Stored(Protocol):
    """A part of a state that is worked with in another form than it is stored in."""

    def stored(self) -> tuple[Array, ...]:
        """Its arrays, of public sizes."""

    def loaded(self, stored: Iterator[Array]) -> Self:
        """The same part with the next arrays as its content."""


def flat(state: Any) -> Iterator[Array]:
    """The arrays of a state, in order."""
    if isinstance(state, tuple):
        for part in state:
            yield from flat(part)
    elif isinstance(state, np.ndarray):
        yield state
    else:
        yield from state.stored()


def rebuilt(template: _S, arrays: Iterator[Array]) -> _S:
    """A state of the template's form from the next arrays; their kinds and dimensions are checked, not their lengths."""
    if isinstance(template, tuple):
        parts = [rebuilt(part, arrays) for part in template]
        make = getattr(type(template), "_make", tuple)
        return cast(_S, make(parts))
    if not isinstance(template, np.ndarray):
        return cast(_S, cast(Stored, template).loaded(arrays))
    found = next(arrays, None)
    expected = cast(Array, template)
    if found is None or found.dtype != expected.dtype or found.ndim != expected.ndim:
        raise LogDamaged(
            "the log's state has another form than this mechanism's; open it with its own configuration."
        )
    return cast(_S, found)
