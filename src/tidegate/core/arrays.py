"""Arrays as bytes: fixed width, no text, no compression, so that a record's size depends on its shapes alone.

A record is a header with the kinds and shapes of all arrays, then their numbers. The header is made once per list of
shapes. Every part begins at a multiple of 8 bytes, so a state can live in the very bytes that are stored (`Packed`).

A *state* is a tuple of arrays, of parts that know how they are stored, and of further such tuples (NamedTuples).
`flat` lists its arrays in order, `rebuilt` puts arrays back into the form of a template.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Protocol, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from tidegate.core.errors import LogDamaged

Array = npt.NDArray[Any]
_S = TypeVar("_S")

KINDS = tuple(np.dtype(name) for name in ("<i8", "<u8", "<f8", "|i1", "|b1"))
CODES = {kind: code for code, kind in enumerate(KINDS)}
WORD = 8  # bytes; everything is padded to a multiple
MOST_DIMENSIONS = 3
PADDING = tuple(bytes(count) for count in range(WORD))


@lru_cache(maxsize=1024)
def header(forms: tuple[tuple[np.dtype[Any], tuple[int, ...]], ...]) -> bytes:
    """Kinds and shapes of arrays; what cannot be read again is refused."""
    numbers = [len(forms)]
    for kind, shape in forms:
        if len(shape) > MOST_DIMENSIONS:
            raise ValueError("an array has more dimensions than can be read again")
        numbers += [CODES[kind], len(shape), *shape]
    return struct.pack(f"<{len(numbers)}q", *numbers)


def encode(arrays: Iterable[Array]) -> bytes:
    """All arrays, one behind the other.

    Examples
    --------
    >>> [part.tolist() for part in decode(encode([np.arange(3), np.array([[0.5]])]))]
    [[0, 1, 2], [[0.5]]]
    """
    given = list(arrays)
    parts = [header(tuple([(array.dtype, array.shape) for array in given]))]
    for array in given:
        parts.append(array.tobytes())
        if rest := array.nbytes % WORD:
            parts.append(PADDING[WORD - rest])
    return b"".join(parts)


def decode(data: bytes) -> list[Array]:
    """What `encode` has written, also several records behind each other; the arrays may be written to."""
    arrays: list[Array] = []
    if not data:
        return arrays
    content, at = np.frombuffer(data, np.uint8).copy(), 0  # one copy for all of them
    try:
        while at < len(data):
            forms, at = _forms(data, at)
            found, at = _views(forms, content, at)
            arrays += found
        if at != len(data):
            raise ValueError
    except (struct.error, IndexError, ValueError):
        raise LogDamaged(
            "a record of the log is not one that Tidegate has written; restore a backup."
        ) from None
    return arrays


def _forms(data: bytes, at: int) -> tuple[list[tuple[np.dtype[Any], tuple[int, ...]]], int]:
    """The kinds and shapes of a record, and where its numbers begin."""
    (count,) = struct.unpack_from("<q", data, at)
    if not 0 <= count <= len(data):
        raise ValueError
    at, forms = at + WORD, []
    for _ in range(count):
        code, dimensions = struct.unpack_from("<qq", data, at)
        at += 2 * WORD
        if code < 0 or not 0 <= dimensions <= MOST_DIMENSIONS:
            raise ValueError
        shape = struct.unpack_from(f"<{dimensions}q", data, at)
        at += dimensions * WORD
        if min(shape, default=0) < 0:
            raise ValueError
        forms.append((KINDS[code], shape))
    return forms, at


def _views(
    forms: Sequence[tuple[np.dtype[Any], tuple[int, ...]]], content: npt.NDArray[np.uint8], at: int
) -> tuple[list[Array], int]:
    """Arrays of these forms in a piece of memory, one behind the other, and where they end."""
    arrays = []
    for kind, shape in forms:
        size = math.prod(shape) * kind.itemsize
        if size > content.size - at:
            raise ValueError
        arrays.append(content[at : at + size].view(kind).reshape(shape))
        at += size + -size % WORD
    return arrays, at


class Packed:
    """Arrays that live in one piece of memory, in the form that `encode` gives them: to store them is one copy.

    Attributes
    ----------
    arrays
        The arrays, with the values of those that were given.

    Examples
    --------
    >>> packed = Packed([np.arange(3), np.array([[0.5]])])
    >>> packed.arrays[0][1] = 7
    >>> [part.tolist() for part in decode(packed.stored())]
    [[0, 7, 2], [[0.5]]]
    """

    __slots__ = ("arrays", "stored")

    def __init__(self, given: Sequence[Array]) -> None:
        data = np.frombuffer(bytearray(encode(given)), np.uint8)
        forms = [(array.dtype, array.shape) for array in given]
        self.arrays, _ = _views(forms, data, len(header(tuple(forms))))
        self.stored = data.tobytes  # what `encode` would give


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


def in_one_piece(state: Any) -> bool:
    """Whether all of a state is arrays, or parts that store nothing: then its arrays may live in a `Packed`."""
    if isinstance(state, tuple):
        return all(in_one_piece(part) for part in state)
    return isinstance(state, np.ndarray) or not state.stored()


def moved(state: _S, arrays: Iterator[Array]) -> _S:
    """The same state with the next arrays in place of its own; parts that store nothing are kept."""
    if isinstance(state, tuple):
        make = getattr(type(state), "_make", tuple)
        return cast(_S, make([moved(part, arrays) for part in state]))
    return cast(_S, next(arrays)) if isinstance(state, np.ndarray) else state


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
