"""The spool: batches that were acknowledged, on disk until the steps that count them are committed, then gone.

Events are appended to one file at a time, a segment. The journal, which is written last, has the key of each batch and
where its events are: that makes it count. So after a crash at any instruction a batch is there as a whole or not at all,
and a batch that comes again under its key is not written again. Of the events nothing stays in memory here: they are
read when they are counted. With the step's commit they are overwritten, and a segment is removed with the last of its
steps.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import mmap
import os
import struct
import threading
import time
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.errors import TidegateError
from tidegate.ingest.sources.source import EventBatch, EventSource, Patience, Position, no_patience
from tidegate.sinks.file_writing import sync_path
from tidegate.web import limits
from tidegate.web.event_encoding import Columns, decoded, encoded
from tidegate.web.quotas import Quota

_HEAD = struct.Struct("<4sqIIII")  # magic, step, rows, length, checksum of the content, checksum of this
_CHECKED = struct.Struct("<qIII")  # what the last of them is of
_LIVE, _GONE = b"tide", b"gone"
_TOP = struct.Struct("<II")  # at the beginning of a segment: length and checksum of its columns
_ENTRY = np.dtype([("key", "S16"), ("begin", "<u8"), ("end", "<u8"), ("came", "<f8"), ("check", "<u8")])
_ODD = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93,
                 0xA0761D6478BD642F], dtype=np.uint64)  # fmt: skip
_EVENTS = "events-"
_JOURNAL, _NEW_JOURNAL = "journal", "journal.new"
KEYS_KEPT = 24 * 3600.0  # seconds after which a key may be forgotten; its events are late by then
_SHORTEN_EVERY = 600.0  # seconds
_FORGET_AT_ONCE = 10_000  # keys; for fewer the journal is not written again
_AT_ONCE = 256  # batches that share one sync of the disk
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 2**18, 16 * 2**20  # of events that are read together
_ROW_COST, _BYTE_COST = 340, 2  # bytes of memory that counting takes, for a row and for a byte of its event
DAMAGED = (
    "acknowledged events of open steps are damaged on disk and are not counted; check the disk of the spool."
)


class SpoolFull(TidegateError):
    """More has come than could be stored; it must be sent again later."""


class SpoolFailed(TidegateError):
    """The disk does not take events; nothing was acknowledged."""


@dataclass
class _Piece:
    """The events of a batch that are of one step."""

    step: int
    rows: int
    content: bytes

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return _HEAD.size + len(self.content)


@dataclass
class _Waiting:
    """A batch that is not yet on disk."""

    key: bytes
    columns: Columns
    pieces: list[_Piece]
    holder: str
    done: Future[None] = field(default_factory=Future)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(piece.size for piece in self.pieces)


class Spool:
    """Batches of one stream on their way to it.

    Parameters
    ----------
    folder
        Where it keeps its files; made if absent, for its owner only.
    done
        The last step whose events no open step counts.
    keep
        Seconds for which keys are remembered at least, where there is room for them.
    tell
        Hears when events on disk are found to be damaged.
    rows
        How many rows an event becomes when it is counted.
    """

    def __init__(
        self,
        folder: Path,
        done: int,
        keep: float = KEYS_KEPT,
        tell: Callable[[str], None] = lambda _sentence: None,
        rows: int = 1,
    ) -> None:
        self.folder, self.keep, self._tell, self._rows = folder, max(keep, KEYS_KEPT), tell, rows
        self.floor = done
        self.damaged = False
        self._disk = threading.Lock()  # held while files change; taken before the other
        self._work = threading.Condition()  # held for moments only: rooms, keys and what waits
        self._keys = _Keys()
        self._pending: dict[bytes, _Waiting] = {}
        self._queue: list[_Waiting] = []
        self._waiting = 0  # bytes
        self.kept = Quota(limits.MOST_KEPT)
        self.pieces = Quota(limits.MOST_PIECES)
        self._steps: dict[int, Quota] = {}  # what counting each open step takes
        self._segments: list[_Segment] = []  # by their beginning; only the last one grows
        self._shortened = 0.0
        self._broken = ""
        self._closed = False
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _refuse_earlier(folder)
            self._journal = _File(folder / _JOURNAL)
            self._recover()
        except OSError as error:
            raise SpoolFailed(
                f"the folder {folder} cannot be used ({error.strerror}); make it writable."
            ) from None
        self._thread = threading.Thread(target=self._run, name=f"spool {folder.name}", daemon=True)
        self._thread.start()

    # sending ------------------------------------------------------------------------------------------------

    def known(self, key: str) -> bool:
        """Whether a batch of this key is on disk or was."""
        with self._work:
            return _digest(key) in self._keys

    def put(
        self, key: str, frame: pl.DataFrame, steps: npt.NDArray[np.int64], holder: str = ""
    ) -> Future[None]:
        """Put a batch of somebody's away; the future is done when it is on disk, once, whoever asks how often."""
        digest = _digest(key)
        columns, parts = encoded(frame, steps)
        waiting = _Waiting(digest, columns, [_Piece(*part) for part in parts], holder)
        with self._work:
            if digest in self._keys:
                waiting.done.set_result(None)
                return waiting.done
            if digest in self._pending:
                return self._pending[digest].done
            self.refuse_more(holder, waiting.size, waiting.pieces)
            self._reserve(waiting.pieces, holder)
            self._pending[digest] = waiting
            self._queue.append(waiting)
            self._waiting += waiting.size
            self._work.notify()
        return waiting.done

    def refuse_more(self, holder: str, size: int = 0, pieces: Sequence[_Piece] = ()) -> None:
        """Refuse where there is no space, for anybody or for this sender."""
        if self._broken:
            raise SpoolFailed(f"events cannot be stored ({self._broken}); send the batch again later.")
        full = (
            self._closed
            or self._waiting + size > limits.MOST_WAITING
            or not self.kept.fits(holder, size)
            or not self.pieces.fits(holder, len(pieces))
            or self._journal.size // _ENTRY.itemsize + len(self._pending) >= limits.MOST_KEYS
        )
        if full:
            raise SpoolFull("more events have come than can be stored; send the batch again later.")
        fresh = sum(piece.step not in self._steps for piece in pieces)
        if len(self._steps) + fresh > limits.MOST_STEPS:
            raise SpoolFull(
                f"more than {limits.MOST_STEPS} steps are open; send the batch again when some have closed."
            )
        nothing = Quota(limits.MOST_COUNTED)
        if not all(self._steps.get(piece.step, nothing).fits(holder, self._cost(piece)) for piece in pieces):
            raise SpoolFull("a step has as many events as can be counted; send the batch again later.")

    def _reserve(self, pieces: Sequence[_Piece], holder: str) -> None:
        self.kept.take(holder, sum(piece.size for piece in pieces))
        self.pieces.take(holder, len(pieces))
        for piece in pieces:
            self._steps.setdefault(piece.step, Quota(limits.MOST_COUNTED)).take(holder, self._cost(piece))

    def _cost(self, piece: _Piece) -> int:
        return cost(self._rows * piece.rows, len(piece.content))

    def _give_back(self, pieces: Sequence[_Piece], holder: str) -> None:
        """What was reserved for pieces that are not on disk."""
        self.kept.give(holder, sum(piece.size for piece in pieces))
        self.pieces.give(holder, len(pieces))
        for piece in pieces:
            room = self._steps.get(piece.step)  # gone if its step was committed
            if room is not None:
                room.give(holder, self._cost(piece))
                if not room.taken:
                    del self._steps[piece.step]

    # counting -----------------------------------------------------------------------------------------------

    def until(self, first: int, last: int) -> int:
        """The last step up to which events can be counted together; at least the first."""
        with self._work:
            open_steps = sorted(step for step in self._steps if step <= last)
            total = 0
            for step in open_steps:
                total += self._steps[step].taken
                if total > limits.MOST_COUNTED and step > first:
                    return max(first, step - 1)
        return last

    def read(self, last: int) -> Iterator[pl.DataFrame]:
        """The events of all open steps up to one, in the order in which they came, some at a time."""
        for frame, _ in self.read_after(0, last):
            yield frame

    def read_after(self, place: int, last: int) -> Iterator[tuple[pl.DataFrame, int]]:
        """The same, of what came after a place; with each part the place behind it."""
        with self._disk:
            found = [(segment, *segment.pieces(place, self.floor, last)) for segment in self._segments]
        for segment, offsets, lengths in found:
            if len(offsets):
                yield from self._read(segment, offsets.tolist(), lengths.tolist())

    def _read(
        self, segment: _Segment, offsets: list[int], lengths: list[int]
    ) -> Iterator[tuple[pl.DataFrame, int]]:
        contents: list[tuple[int, bytes]] = []
        rows = size = place = 0
        with segment.path.open("rb", buffering=0) as file:
            for offset, length in zip(offsets, lengths, strict=True):
                whole = os.pread(file.fileno(), _HEAD.size + length, offset)
                place = segment.base + offset + len(whole)
                count = _intact(whole)
                if count is None:
                    self._damage()
                    continue
                contents.append((count, whole[_HEAD.size :]))
                rows, size = rows + count, size + length
                if rows >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
                    yield decoded(segment.columns, contents), place
                    contents, rows, size = [], 0, 0
        if contents:
            yield decoded(segment.columns, contents), place

    def forget(self, step: int) -> None:
        """Remove the events of all steps up to one: no open step counts them."""
        with self._disk:
            with self._work:
                self.floor = max(self.floor, step)
                for each in [each for each in self._steps if each <= step]:
                    del self._steps[each]
            before, self._segments = self._segments, []
            for segment in before:
                if not segment.any_after(step):
                    segment.remove()
                    self._release(segment.holders)
                    with self._work:
                        for holder, size in segment.sizes.items():
                            self.kept.give(holder, size)
                else:
                    self._release(segment.erase(step))
                    self._segments.append(segment)
            if len(before) > len(self._segments):
                sync_path(self.folder)

    def _release(self, holders: dict[str, int]) -> None:
        with self._work:
            for holder, count in holders.items():
                self.pieces.give(holder, count)

    def close(self) -> None:
        """Store what waits, and close the files."""
        with self._work:
            self._closed = True
            self._work.notify()
        self._thread.join()
        with self._disk:
            for segment in self._segments:
                segment.close()
            self._journal.close()

    # the thread that writes ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._work:
                while not self._queue and not self._closed:
                    self._work.wait()
                if not self._queue:
                    return
                alike = itertools.takewhile(
                    lambda each: each.columns == self._queue[0].columns, self._queue[:_AT_ONCE]
                )
                group = list(alike)
                self._queue = self._queue[len(group) :]
            try:
                with self._disk:
                    self._write(group)
                problem = ""
            except OSError as error:
                problem = error.strerror or type(error).__name__
            except Exception as error:
                problem = type(error).__name__
            with self._work:
                for waiting in group:
                    self._pending.pop(waiting.key, None)
                    self._waiting -= waiting.size
                    if problem:
                        self._give_back(waiting.pieces, waiting.holder)
            for waiting in group:
                if problem:
                    waiting.done.set_exception(
                        SpoolFailed(f"events cannot be stored ({problem}); send the batch again later.")
                    )
                else:
                    waiting.done.set_result(None)

    def _write(self, group: Sequence[_Waiting]) -> None:
        """Events first, then the journal, which makes them count; one sync of each file for the whole group."""
        segment, at = self._growing(group[0].columns)
        entries, written, late = np.zeros(len(group), dtype=_ENTRY), [], []
        entries["came"] = now = time.time()
        for entry, waiting in zip(entries, group, strict=True):
            entry["key"], entry["begin"] = waiting.key, at
            for piece in waiting.pieces:
                if piece.step > self.floor:
                    written.append((piece, waiting.holder))
                    at += piece.size
                else:  # it was committed while the batch was on its way: too late
                    late.append((piece, waiting.holder))
            entry["end"] = at
        entries["check"] = _checks(entries)
        touched: list[_File] = []
        try:
            if written:
                touched.append(segment.grow(self.folder))
                touched[0].append(b"".join(_framed(piece) for piece, _ in written))
            touched.append(self._journal)
            self._journal.append(entries.tobytes())
        except BaseException:
            self._take_back(touched)
            if segment not in self._segments:
                segment.remove()
            raise
        for piece, holder in written:
            segment.add(piece, holder)
        for file in touched:
            file.settle()
        if written and segment not in self._segments:
            self._segments.append(segment)
        self._next = at
        with self._work:
            self._keys.add([waiting.key for waiting in group])
            for piece, holder in late:
                self._give_back([piece], holder)
        self._shorten(now)

    def _growing(self, columns: Columns) -> tuple[_Segment, int]:
        """The segment that the next events go to, and where in all of them it stands."""
        last = self._segments[-1] if self._segments else None
        if (
            last is not None
            and last.columns == columns
            and last.size < limits.SEGMENT
            and last.file is not None
        ):
            return last, last.base + last.size
        if last is not None:
            last.close()
        fresh = _Segment(self.folder / f"{_EVENTS}{self._next:020d}", self._next, columns)
        return fresh, fresh.base + len(fresh.top)

    def _take_back(self, touched: Sequence[_File]) -> None:
        """The disk has refused: what is half written would hide what is written after it."""
        try:
            for file in touched:
                file.take_back()
        except OSError as error:
            self._broken = error.strerror or type(error).__name__

    def _shorten(self, now: float) -> None:
        """Forget old keys now and then, but none of batches whose events may be on disk."""
        count = self._journal.size // _ENTRY.itemsize
        crowded = count > 3 * limits.MOST_KEYS // 4
        if now - self._shortened < (min(1.0, _SHORTEN_EVERY) if crowded else _SHORTEN_EVERY):
            return
        self._shortened = now
        entries = np.fromfile(self._journal.path, dtype=_ENTRY)
        at = [segment.base + np.array(segment.offsets) for segment in self._segments]
        live = np.concatenate([np.zeros(0, dtype=np.uint64), *at])  # where there are events of open steps
        needed = np.searchsorted(live, entries["begin"]) < np.searchsorted(live, entries["end"])
        wanted = now - entries["came"] <= self.keep
        if crowded:  # of those that are not needed the older half goes: their events are late
            wanted[: len(wanted) // 2] = False
        kept = entries[needed | wanted]
        if len(entries) - len(kept) < min(_FORGET_AT_ONCE, limits.MOST_KEYS // 8):
            return
        path = self.folder / _NEW_JOURNAL
        try:
            path.unlink(missing_ok=True)
            fresh = _File(path)
            try:
                fresh.append(kept.tobytes())
                path.replace(self._journal.path)
            except OSError:
                fresh.remove()
                raise
        except OSError:
            return  # the journal continues as it is, with keys that could be forgotten
        fresh.settle()
        fresh.path, before, self._journal = self._journal.path, self._journal, fresh
        before.close()
        with self._work:
            self._keys = _Keys(kept["key"])
        try:
            sync_path(self.folder)
        except OSError as error:  # after a crash the journal may be the one before, which learns nothing more
            self._broken = error.strerror or type(error).__name__

    # files --------------------------------------------------------------------------------------------------

    def _damage(self) -> None:
        if not self.damaged:
            self.damaged = True
            self._tell(DAMAGED)

    def _recover(self) -> None:
        """Take up what is on disk: the journal and the heads of what it names, not the events."""
        (self.folder / _NEW_JOURNAL).unlink(missing_ok=True)
        whole = self._journal.size - self._journal.size % _ENTRY.itemsize
        self._journal.cut(whole)  # the end of an entry that was never acknowledged
        entries = np.fromfile(self._journal.path, dtype=_ENTRY)
        intact = entries["check"] == _checks(entries)
        if not intact.all():
            self._damage()
        entries = entries[intact]
        self._keys = _Keys(entries["key"])
        self._next = int(entries["end"].max(initial=0))
        events = entries[entries["end"] > entries["begin"]]
        events = events[np.argsort(events["begin"], kind="stable")]
        paths = {int(path.name.removeprefix(_EVENTS)): path for path in self.folder.glob(f"{_EVENTS}*")}
        for base, path in sorted(paths.items()):
            beyond = min((other for other in paths if other > base), default=2**63)
            own = events[(events["begin"] >= base) & (events["end"] <= beyond)]
            segment = _Segment.opened(path, base)
            if segment is None or not len(own):
                if len(own):
                    self._damage()
                path.unlink()  # never acknowledged, or nobody can read it
                continue
            if not segment.take_up(own["begin"].tolist(), own["end"].tolist()):
                self._damage()
            self._segments.append(segment)
            self.kept.take("", segment.size)  # nobody remembers who sent it; it takes space from all
            segment.sizes = {"": segment.size}
            self.pieces.take("", len(segment.steps))
            for step, taken in segment.costs(self._rows).items():
                self._steps.setdefault(step, Quota(limits.MOST_COUNTED)).take("", taken)
        sync_path(self.folder)
        self.forget(self.floor)


class _Segment:
    """A file of events, and where in it the pieces of open steps are."""

    def __init__(self, path: Path, base: int, columns: Columns) -> None:
        self.path, self.base, self.columns = path, base, columns
        header = json.dumps(columns).encode()
        self.top = _TOP.pack(len(header), zlib.crc32(header)) + header
        self.size = len(self.top)
        self.file: _File | None = None  # while it grows
        self.sizes: dict[str, int] = {}  # bytes, by who sent them; given back with the file
        self.steps, self.offsets = array("q"), array("Q")
        self.rows, self.lengths, self.senders = array("I"), array("I"), array("I")
        self._names: list[str] = []

    @classmethod
    def opened(cls, path: Path, base: int) -> _Segment | None:
        """One that is on disk; None if it does not say what it has."""
        with path.open("rb") as file:
            head = file.read(_TOP.size)
            if len(head) < _TOP.size:
                return None
            length, checksum = _TOP.unpack(head)
            header = file.read(length) if length < 2**20 else b""
        if len(header) != length or zlib.crc32(header) != checksum:
            return None
        return cls(path, base, tuple((name, kind) for name, kind in json.loads(header)))

    def grow(self, folder: Path) -> _File:
        """The file to append to."""
        if self.file is None:
            file = _File(self.path)
            try:
                file.cut(0)
                file.append(self.top)
                sync_path(folder)
            except BaseException:
                file.remove()
                raise
            file.settle()
            self.file = file
        return self.file

    def add(self, piece: _Piece, holder: str) -> None:
        """A piece was written at the end."""
        self._index(piece.step, self.size, piece.rows, len(piece.content), holder)
        self.size += piece.size
        self.sizes[holder] = self.sizes.get(holder, 0) + piece.size

    def _index(self, step: int, offset: int, rows: int, length: int, holder: str) -> None:
        if holder not in self._names:
            self._names.append(holder)
        self.steps.append(step)
        self.offsets.append(offset)
        self.rows.append(rows)
        self.lengths.append(length)
        self.senders.append(self._names.index(holder))

    def take_up(self, begins: list[int], ends: list[int]) -> bool:
        """Find the pieces of some batches, and leave out what comes after them; whether all were there."""
        good, size = True, self.path.stat().st_size
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for begin, end in zip(begins, ends, strict=True):
                at, stop = begin - self.base, end - self.base
                while at < stop:
                    head = content[at : at + _HEAD.size]
                    if len(head) < _HEAD.size:
                        good = False
                        break
                    magic, step, rows, length, checksum, check = _HEAD.unpack(head)
                    if check != zlib.crc32(_CHECKED.pack(step, rows, length, checksum)):
                        good = False
                        break
                    if magic != _GONE:
                        self._index(step, at, rows, length, "")
                    at += _HEAD.size + length
        self.size = min(size, max(ends) - self.base)
        _cut(self.path, self.size)
        return good

    def costs(self, rows_each: int) -> dict[int, int]:
        """Bytes of memory that counting each step takes, about."""
        found: dict[int, int] = {}
        for step, rows, length in zip(self.steps, self.rows, self.lengths, strict=True):
            found[step] = found.get(step, 0) + cost(rows_each * rows, length)
        return found

    def pieces(
        self, place: int, floor: int, last: int
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
        """Where the pieces behind a place of steps after `floor` up to `last` are, and how long."""
        steps, offsets = np.array(self.steps), np.array(self.offsets)
        chosen = (steps > floor) & (steps <= last) & (offsets >= max(0, place - self.base))
        return offsets[chosen], np.array(self.lengths)[chosen]

    def any_after(self, step: int) -> bool:
        """Whether it has events of later steps."""
        return bool((np.array(self.steps) > step).any())

    @property
    def holders(self) -> dict[str, int]:
        """How many pieces are whose."""
        return self._count(np.array(self.senders))

    def _count(self, senders: npt.NDArray[Any]) -> dict[str, int]:
        counts = np.bincount(senders.astype(np.int64), minlength=len(self._names)).tolist()
        return {name: count for name, count in zip(self._names, counts, strict=True) if count}

    def erase(self, last: int) -> dict[str, int]:
        """Overwrite the events of steps up to one; how many pieces were whose."""
        done = np.array(self.steps) <= last
        if not done.any():
            return {}
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            for offset, length in zip(
                np.array(self.offsets)[done].tolist(), np.array(self.lengths)[done].tolist(), strict=True
            ):
                _overwrite(descriptor, offset, length)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        found = self._count(np.array(self.senders)[done])
        for name in ("steps", "offsets", "rows", "lengths", "senders"):
            values = getattr(self, name)
            setattr(self, name, array(values.typecode, np.array(values)[~done].tobytes()))
        return found

    def close(self) -> None:
        """It grows no more."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def remove(self) -> None:
        """Let go of the file and of everything in it."""
        self.close()
        self.path.unlink(missing_ok=True)


class _Keys:
    """Digests of keys: sorted in one array, sixteen bytes each, and the newest of them in a set."""

    def __init__(self, keys: npt.NDArray[Any] | None = None) -> None:
        self._sorted = np.sort(np.zeros(0, dtype="S16") if keys is None else keys)
        self._newest: set[bytes] = set()

    def __contains__(self, key: bytes) -> bool:
        if key in self._newest:
            return True
        sought = np.array(key, dtype="S16")
        at = int(np.searchsorted(self._sorted, sought))
        return at < len(self._sorted) and bool(self._sorted[at] == sought)

    def add(self, keys: Sequence[bytes]) -> None:
        """Remember keys."""
        self._newest.update(keys)
        if len(self._newest) > max(4096, len(self._sorted) // 16):
            fresh = np.array(list(self._newest), dtype="S16")
            self._sorted = np.sort(np.concatenate([self._sorted, fresh]))
            self._newest = set()


class _File:
    """A file that only grows, except when something is rolled back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.size = self._settled = os.fstat(self._descriptor).st_size

    def append(self, content: bytes) -> None:
        """Write, and return when it is on disk."""
        view = memoryview(content)
        while view:
            written = os.write(self._descriptor, view)
            self.size += written
            view = view[written:]
        os.fdatasync(self._descriptor)

    def settle(self) -> None:
        """What was written stays."""
        self._settled = self.size

    def take_back(self) -> None:
        """What was written since goes."""
        self.cut(self._settled)

    def cut(self, size: int) -> None:
        """Shorten the file to a size."""
        if size < os.fstat(self._descriptor).st_size:
            os.ftruncate(self._descriptor, size)
            os.fdatasync(self._descriptor)
        self.size = self._settled = size

    def remove(self) -> None:
        """Let go of the file and of everything in it."""
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)


class SpoolSource(EventSource):
    """What a spool has, for an intake; positions are empty, because steps that are committed are gone."""

    typed = True

    def __init__(self, spool: Spool, columns: Sequence[str]) -> None:
        super().__init__("what producers send", columns)
        self.spool = spool

    def batches(
        self,
        position: Position | None = None,
        *,
        columns: Sequence[str] | None = None,
        patience: Patience = no_patience,
    ) -> Iterator[EventBatch]:
        """All events of open steps."""
        for batch, _ in self.after(0, 2**62):
            yield batch

    def after(self, place: int, last: int) -> Iterator[tuple[EventBatch, int]]:
        """The events of open steps up to one, behind a place; a column that was not read when they came is missing."""
        for frame, reached in self.spool.read_after(place, last):
            lacking = [name for name in self.columns if name not in frame.columns]
            nothing = [pl.lit(None, dtype=pl.String).alias(name) for name in lacking]
            yield (
                EventBatch(frame.with_columns(nothing).select(self.columns), {}, {}, caught_up=False),
                reached,
            )


def cost(rows: int, length: int) -> int:
    """Bytes of memory that counting so many rows takes, about; a test compares it with what is taken."""
    return _ROW_COST * rows + _BYTE_COST * length


def _framed(piece: _Piece) -> bytes:
    fields = piece.step, piece.rows, len(piece.content), zlib.crc32(piece.content)
    return _HEAD.pack(_LIVE, *fields, zlib.crc32(_CHECKED.pack(*fields))) + piece.content


def _intact(whole: bytes) -> int | None:
    """How many events a piece has; None if it is damaged."""
    if len(whole) < _HEAD.size:
        return None
    magic, step, rows, length, checksum, check = _HEAD.unpack_from(whole)
    content = memoryview(whole)[_HEAD.size :]
    good = (
        magic == _LIVE
        and check == zlib.crc32(_CHECKED.pack(step, rows, length, checksum))
        and len(content) == length
        and zlib.crc32(content) == checksum
    )
    return rows if good else None


def _overwrite(descriptor: int, offset: int, length: int) -> None:
    """Put zeros in the place of a piece's events, and say so in its head."""
    os.pwrite(descriptor, _GONE, offset)
    at, end = offset + _HEAD.size, offset + _HEAD.size + length
    while at < end:
        at += os.pwrite(descriptor, bytes(min(end - at, 2**20)), at)


def _cut(path: Path, size: int) -> None:
    file = _File(path)
    try:
        file.cut(size)
    finally:
        file.close()


def _checks(entries: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Checksums of entries: any one bit that differs changes them, because all factors are odd."""
    words = entries.view(np.uint64).reshape(len(entries), len(_ODD) + 1)[:, :-1]
    found: npt.NDArray[np.uint64] = (words * _ODD).sum(axis=1, dtype=np.uint64) + _ODD[0]
    return found


def _refuse_earlier(folder: Path) -> None:
    """Refuse events of a version that kept them in another form, and leave its keys."""
    if any(folder.glob("step-*")):
        raise SpoolFailed(
            f"the folder {folder} has events of an earlier version; let that version commit their steps, or remove it."
        )
    (folder / "keys").unlink(missing_ok=True)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()[:16]
