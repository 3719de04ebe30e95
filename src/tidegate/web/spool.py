"""The spool: batches that were acknowledged, on disk until their steps are committed, then gone.

Events of one step stand in one file, which is removed with the step's commit. A batch may touch several steps; its
number in the journal, which is written last, is what makes it count. So after a crash at any instruction a batch is
there as a whole or not at all, and a batch that comes again under its key is not written again.
"""

from __future__ import annotations

import hashlib
import io
import os
import queue
import struct
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.errors import TidegateError
from tidegate.ingest.sources.source import EventBatch, EventSource, Patience, Position, no_patience
from tidegate.ledger.file import sync
from tidegate.web.room import Room

_FRAME = struct.Struct("<4sQII")  # magic, number of the batch, length, checksum of what follows
_ENTRY = struct.Struct("<32sQd")  # digest of the key, number of the batch, when it came
_MAGIC = b"tide"
_STEP = "step-"
MOST_WAITING = 256 * 2**20  # bytes of batches that are not yet on disk
MOST_KEPT = 16 * 2**30  # bytes of events of open steps, of which one sender alone has half
KEYS_KEPT = 24 * 3600.0  # seconds after which a key may be forgotten; its events are late by then
_SHORTEN_EVERY = 600.0  # seconds
_FORGET_AT_ONCE = 10_000  # keys; for fewer the journal is not written again
_NEW_KEYS = "keys.new"
_AT_ONCE = 256  # batches that share one sync of the disk, and one hand-over to the stream


class SpoolFull(TidegateError):
    """More has come than could be put away; it must be sent again later."""


class SpoolFailed(TidegateError):
    """The disk does not take events; nothing was acknowledged."""


@dataclass
class _Waiting:
    """A batch that is not yet on disk."""

    key: bytes
    pieces: list[tuple[int, pl.DataFrame, bytes]]  # step, its events, the same as bytes
    size: int
    holder: str
    done: Future[None] = field(default_factory=Future)


class Spool:
    """Batches of one stream on their way to it.

    Parameters
    ----------
    folder
        Where it keeps its files; made if absent, for its owner only.
    committed
        The last step that the stream has committed.
    keep
        Seconds for which keys are remembered at least.
    """

    def __init__(self, folder: Path, committed: int, keep: float = KEYS_KEPT) -> None:
        self.folder, self.keep = folder, max(keep, KEYS_KEPT)
        self.arrived: queue.SimpleQueue[pl.DataFrame] = queue.SimpleQueue()
        self.floor = committed
        self._disk = threading.Lock()  # held while files change; taken before the other
        self._work = threading.Condition()  # held for moments only
        self._keys: dict[bytes, tuple[int, float]] = {}
        self._pending: dict[bytes, _Waiting] = {}
        self._queue: list[_Waiting] = []
        self._waiting = 0  # bytes
        self.kept = Room(MOST_KEPT)
        self._shares: dict[int, dict[str, int]] = {}  # bytes of each step, by who sent them
        self._files: dict[int, _File] = {}
        self._oldest: dict[int, int] = {}  # the number of the first batch in each of them
        self._shortened = 0.0
        self._broken = ""
        self._closed = False
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._journal = _File(folder / "keys")
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
        pieces = [(step, part, _bytes_of(part)) for step, part in _by_step(frame, steps)]
        waiting = _Waiting(digest, pieces, sum(len(content) for _, _, content in pieces), holder)
        with self._work:
            if digest in self._keys:
                waiting.done.set_result(None)
                return waiting.done
            if digest in self._pending:
                return self._pending[digest].done
            self.refuse_more(holder, waiting.size)
            self._pending[digest] = waiting
            self._queue.append(waiting)
            self._waiting += waiting.size
            self._work.notify()
        return waiting.done

    def refuse_more(self, holder: str, size: int = 0) -> None:
        """Refuse where there is no room, for anybody or for this sender."""
        if self._broken:
            raise SpoolFailed(f"events cannot be put away ({self._broken}); send the batch again later.")
        if self._closed or self._waiting + size > MOST_WAITING or not self.kept.fits(holder, size):
            raise SpoolFull("more events have come than can be put away; send the batch again later.")

    def forget(self, step: int) -> None:
        """Remove the events of all steps up to one that is committed."""
        with self._disk:
            self.floor = max(self.floor, step)
            done = [each for each in self._files if each <= step]
            for each in done:
                self._files.pop(each).remove()
                self._oldest.pop(each, None)
                for holder, size in self._shares.pop(each, {}).items():
                    self.kept.give(holder, size)
            if done:
                sync(self.folder)

    def reload(self, committed: int) -> None:
        """Hand over again everything that is on disk, for a stream that was opened anew."""
        self.forget(committed)
        with self._disk:
            while not self.arrived.empty():
                self.arrived.get_nowait()
            acknowledged = {number for number, _ in self._keys.values()}
            for step in sorted(self._files):
                for number, part, _ in frames(self._files[step].path):
                    if number in acknowledged:
                        self.arrived.put(part)

    def close(self) -> None:
        """Put away what waits, and let go of the files."""
        with self._work:
            self._closed = True
            self._work.notify()
        self._thread.join()
        with self._disk:
            for file in (*self._files.values(), self._journal):
                file.close()

    # the thread that writes ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._work:
                while not self._queue and not self._closed:
                    self._work.wait()
                if not self._queue:
                    return
                group, self._queue = self._queue[:_AT_ONCE], self._queue[_AT_ONCE:]
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
            for waiting in group:
                if problem:
                    waiting.done.set_exception(
                        SpoolFailed(f"events cannot be put away ({problem}); send the batch again later.")
                    )
                else:
                    waiting.done.set_result(None)

    def _write(self, group: Sequence[_Waiting]) -> None:
        """Events first, then the journal, which makes them count; one sync of each file for the whole group."""
        numbers = range(self._next, self._next + len(group))
        self._next += len(group)  # a number that failed is never used again
        contents: dict[int, list[bytes]] = {}
        counted: list[pl.DataFrame] = []
        sizes: list[tuple[int, str, int]] = []
        for number, waiting in zip(numbers, group, strict=True):
            for step, part, content in waiting.pieces:
                if step > self.floor:  # else it was committed while the batch was on its way: too late
                    head = _FRAME.pack(_MAGIC, number, len(content), zlib.crc32(content))
                    contents.setdefault(step, []).extend((head, content))
                    counted.append(part)
                    sizes.append((step, waiting.holder, len(head) + len(content)))
        now = time.time()
        entries = [_ENTRY.pack(each.key, number, now) for number, each in zip(numbers, group, strict=True)]
        touched: list[_File] = []
        try:
            fresh = [step for step in contents if step not in self._files]
            for step, parts in contents.items():
                if step not in self._files:
                    self._files[step] = _File(self._path(step))
                    self._oldest[step] = numbers[0]
                file = self._files[step]
                touched.append(file)
                file.append(b"".join(parts))
            if fresh:
                sync(self.folder)
            touched.append(self._journal)
            self._journal.append(b"".join(entries))
        except BaseException:
            self._take_back(touched)
            raise
        for file in touched:
            file.settle()
        with self._work:
            for number, waiting in zip(numbers, group, strict=True):
                self._keys[waiting.key] = number, now
        for part in counted:
            self.arrived.put(part)
        for share in sizes:
            self._keep(*share)
        self._shorten(now)

    def _take_back(self, touched: Sequence[_File]) -> None:
        """The disk has refused: what is half written would hide what is written after it."""
        try:
            for file in touched:
                file.take_back()
        except OSError as error:
            self._broken = error.strerror or type(error).__name__

    def _keep(self, step: int, holder: str, size: int) -> None:
        self.kept.take(holder, size)
        shares = self._shares.setdefault(step, {})
        shares[holder] = shares.get(holder, 0) + size

    def _shorten(self, now: float) -> None:
        """Forget old keys now and then, but none of batches whose events may be on disk."""
        if now - self._shortened < _SHORTEN_EVERY:
            return
        self._shortened = now
        needed = min(self._oldest.values(), default=self._next)
        kept = {
            key: (number, came)
            for key, (number, came) in self._keys.items()
            if number >= needed or now - came <= self.keep
        }
        if len(self._keys) - len(kept) < _FORGET_AT_ONCE:
            return
        content = b"".join(_ENTRY.pack(key, number, came) for key, (number, came) in kept.items())
        path = self.folder / _NEW_KEYS
        try:
            path.unlink(missing_ok=True)
            fresh = _File(path)
            try:
                fresh.append(content)
                path.replace(self._journal.path)
            except OSError:
                fresh.remove()
                raise
        except OSError:
            return  # the journal goes on as it is, with keys that could be forgotten
        fresh.settle()
        fresh.path, before, self._journal = self._journal.path, self._journal, fresh
        before.close()
        with self._work:
            self._keys = kept
        try:
            sync(self.folder)
        except (
            OSError
        ) as error:  # after a crash the journal may be the one before, which learns nothing any more
            self._broken = error.strerror or type(error).__name__

    # files --------------------------------------------------------------------------------------------------

    def _path(self, step: int) -> Path:
        return self.folder / f"{_STEP}{step:012d}"

    def _recover(self) -> None:
        """Take up what is on disk."""
        (self.folder / _NEW_KEYS).unlink(missing_ok=True)
        content, highest = self._journal.path.read_bytes(), 0
        whole = len(content) - len(content) % _ENTRY.size
        self._journal.cut(whole)  # the end of an entry that was never acknowledged
        for key, number, came in _ENTRY.iter_unpack(content[:whole]):
            self._keys[key] = number, came
            highest = max(highest, number)
        for path in sorted(self.folder.glob(f"{_STEP}*")):
            step = int(path.name.removeprefix(_STEP))
            if step <= self.floor:
                path.unlink()
                continue
            last = 0
            for number, _, end in frames(path):
                self._oldest.setdefault(step, number)
                highest, last = max(highest, number), end
            self._files[step] = _File(path)
            self._files[step].cut(last)
            self._keep(step, "", last)  # nobody remembers who sent it; it takes room from all
        sync(self.folder)
        self._next = highest + 1


class _File:
    """A file that only grows, except when something is taken back."""

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
    """What a spool hands over, for an intake; positions are empty, because steps that are committed are gone."""

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
        """Take batches as they come."""
        while True:
            frames = self._take(max(0.0, patience()))
            frame = pl.concat(frames) if frames else self.nothing()
            yield EventBatch(frame, {}, {}, caught_up=self.spool.arrived.empty())

    def _take(self, seconds: float) -> list[pl.DataFrame]:
        found: list[pl.DataFrame] = []
        try:
            found.append(
                self.spool.arrived.get(timeout=seconds) if seconds else self.spool.arrived.get_nowait()
            )
            while len(found) < _AT_ONCE:
                found.append(self.spool.arrived.get_nowait())
        except queue.Empty:
            pass
        return found


def frames(path: Path) -> Iterator[tuple[int, pl.DataFrame, int]]:
    """Whole pieces of a file: the batch's number, its events, and where the piece ends."""
    with path.open("rb") as file:
        end = 0
        while len(head := file.read(_FRAME.size)) == _FRAME.size:
            magic, number, length, checksum = _FRAME.unpack(head)
            content = file.read(length)
            if magic != _MAGIC or len(content) != length or zlib.crc32(content) != checksum:
                return
            end += _FRAME.size + length
            yield number, pl.read_ipc(io.BytesIO(content)), end


def _by_step(frame: pl.DataFrame, steps: npt.NDArray[np.int64]) -> Iterator[tuple[int, pl.DataFrame]]:
    if not len(steps):
        return
    if int(steps.min()) == int(steps.max()):
        yield int(steps[0]), frame
        return
    for step in np.unique(steps).tolist():
        yield step, frame.filter(pl.Series(steps == step))


def _bytes_of(frame: pl.DataFrame) -> bytes:
    file = io.BytesIO()
    frame.write_ipc(file, compression="uncompressed")
    return file.getvalue()


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
