"""Snapshots: versioned bytes of a run's state. No pickle, no random state, a checksum over everything."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import SnapshotError

MAGIC = b"tidegate-run\n"
VERSION = 2
Fields = dict[str, Any]  # JSON values, or arrays of fixed-size numbers
_KINDS = "biuf"


def pack(header: Fields, state: Fields) -> bytes:
    """Write a header (who may read this) and a state (numbers and arrays) as bytes."""
    plain: Fields = {}
    arrays: list[tuple[str, npt.NDArray[Any]]] = []
    for name, value in state.items():
        if isinstance(value, np.ndarray):
            arrays.append((name, np.ascontiguousarray(value)))
        else:
            plain[name] = value
    described = {
        **header,
        "state": plain,
        "arrays": [[name, array.dtype.newbyteorder("<").str, list(array.shape)] for name, array in arrays],
    }
    text = json.dumps(described, sort_keys=True, separators=(",", ":")).encode()
    body = b"".join(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes() for _, array in arrays)
    whole = MAGIC + struct.pack("<HI", VERSION, len(text)) + text + body
    return whole + hashlib.sha256(whole).digest()


def unpack(data: bytes) -> tuple[Fields, Fields]:
    """Read (header, state) back; anything but an intact snapshot of this version is refused."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise SnapshotError("a snapshot must be bytes as returned by run.snapshot(); pass those.")
    data = bytes(data)
    prefix = len(MAGIC) + 6
    if len(data) < prefix + 32 or not data.startswith(MAGIC):
        raise SnapshotError("these bytes are not a Tidegate snapshot; pass what run.snapshot() returned.")
    version, size = struct.unpack_from("<HI", data, len(MAGIC))
    if version != VERSION:
        raise SnapshotError(
            f"the snapshot has format version {version} and this Tidegate reads version {VERSION}; "
            "use the Tidegate that wrote it."
        )
    whole, digest = data[:-32], data[-32:]
    if hashlib.sha256(whole).digest() != digest:
        raise SnapshotError("the snapshot is damaged (its checksum differs); use an intact copy.")
    header: Fields = json.loads(whole[prefix : prefix + size])
    state: Fields = dict(header.pop("state"))
    offset = prefix + size
    for name, kind, shape in header.pop("arrays"):
        dtype = np.dtype(kind)
        if dtype.kind not in _KINDS:
            raise SnapshotError(
                f"the snapshot's field {name!r} has a type that is not a number; use an intact copy."
            )
        count = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(whole, dtype=dtype, count=count, offset=offset).reshape(shape)
        state[name] = array.astype(dtype.newbyteorder("="))
        offset += count * dtype.itemsize
    return header, state
