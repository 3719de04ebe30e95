"""What the service may use of its machine; docs/operation.md has the table of what grows with what."""

from __future__ import annotations

import os
import resource
from pathlib import Path

_GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory() -> int:
    """Bytes of memory that this process may use: of the machine, of its control group, or of its own limits."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in _GROUPS:
        try:
            found.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # no such file, or no limit
            continue
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft = resource.getrlimit(kind)[0]
        if soft != resource.RLIM_INFINITY:
            found.append(soft)
    return min(found)


MEMORY = memory()

# events on their way to a stream
MOST_BODIES = min(256 * 2**20, MEMORY // 8)  # bytes of bodies that are read or parsed
MOST_WAITING = min(256 * 2**20, MEMORY // 8)  # bytes of batches that are not yet on disk, of each stream
MOST_KEPT = 16 * 2**30  # bytes on disk of events of open steps, of each stream
MOST_COUNTED = (
    3 * MEMORY // 8
)  # bytes that counting the events of one step may take, by the estimate in `spool`
MOST_STEPS = 2**16  # open steps of a stream that have events
MOST_PIECES = 2**20  # parts of batches on disk, each of one step, of each stream
MOST_KEYS = 2**21  # keys of batches that are remembered, of each stream
SEGMENT = 64 * 2**20  # bytes after which a new file of events begins
