"""Which file a log is: noise to come is used in the file that it was written in, and in no copy of it.

A file is known by its device, its inode and the time at which it was made: a copy often gets the inode of the file that
was just removed. A copy that is written over the file has all three. So a small file beside the log has a random mark,
which the log has as well, and the number of the last commit. A log with another mark, or with fewer commits, is a copy.
docs/proofs/core.md says why the number needs no wait for the disk.
"""

from __future__ import annotations

import ctypes
import os
import struct
from hashlib import sha256
from pathlib import Path

from tidegate.noise.entropy import fresh_bytes

ENDING = "-last"
MARK_BYTES = 16
NUMBER = struct.Struct("<q")
PRIVATE = 0o600

NO_FOLDER, BIRTH = -100, 0x800  # AT_FDCWD and STATX_BTIME of Linux
STATUS_BYTES, BIRTH_AT = 256, 80  # struct statx, and where seconds and nanoseconds of the birth stand in it


def born(path: Path) -> int:
    """When a file was made, in nanoseconds: no program can set it. 0 where the file system does not know."""
    known = getattr(path.stat(), "st_birthtime", None)
    if known is not None:
        return int(known * 10**9)
    call = getattr(ctypes.CDLL(None), "statx", None)
    found = ctypes.create_string_buffer(STATUS_BYTES)
    if call is None or call(NO_FOLDER, os.fsencode(path), 0, BIRTH, found) != 0:
        return 0
    (mask,) = struct.unpack_from("=I", found)
    seconds, rest = struct.unpack_from("=qI", found, BIRTH_AT)
    return int(seconds * 10**9 + rest) if mask & BIRTH else 0


class Place:
    """The place of a log: its file, and the number beside it.

    Parameters
    ----------
    log
        The log's file, which is there.
    """

    def __init__(self, log: Path) -> None:
        self.path = Path(f"{log}{ENDING}")
        found = log.stat()
        self._file = found.st_dev, found.st_ino, born(log)
        self._beside = -1  # the open file beside the log
        self.renew()

    def renew(self) -> None:
        """Choose another mark, so that all that was written in this file before is a copy; `store` writes it."""
        self._choose(fresh_bytes(MARK_BYTES))

    def _choose(self, mark: bytes) -> None:
        device, inode, birth = self._file
        self._mark = mark
        # what the log keeps with its secret: the device, and one number for all the rest
        self.name = device, int.from_bytes(sha256(struct.pack("<Qq", inode, birth) + mark).digest()[:7])

    def read(self) -> int:
        """Read the mark, and return the number beside it; where there is none, no log has the mark."""
        self.close()
        self.renew()
        try:
            self._beside = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return 0
        content = os.pread(self._beside, MARK_BYTES + NUMBER.size, 0)
        if len(content) < MARK_BYTES + NUMBER.size:
            return 0
        self._choose(content[:MARK_BYTES])
        return int(NUMBER.unpack_from(content, MARK_BYTES)[0])

    def store(self) -> None:
        """Write the mark, with no number yet."""
        self.close()
        self._beside = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE)
        os.pwrite(self._beside, self._mark + NUMBER.pack(0), 0)
        os.fsync(self._beside)

    def note(self, number: int) -> None:
        """Write the number of a commit that the log has on disk."""
        os.pwrite(self._beside, NUMBER.pack(number), MARK_BYTES)

    def close(self) -> None:
        """Close the file beside the log."""
        beside, self._beside = self._beside, -1
        if beside >= 0:
            try:
                os.fsync(beside)
            finally:
                os.close(beside)
