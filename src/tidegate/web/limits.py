"""What the service may use of its machine; docs/operating/resources.md has the table of what grows with what."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from tidegate.errors import InvalidParameter

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
MOST_BODIES = min(256 * 2**20, MEMORY // 16)  # bytes of bodies that are read or parsed
MOST_WAITING = min(256 * 2**20, MEMORY // 16)  # bytes of batches that are not yet on disk, of each stream
MOST_KEPT = 16 * 2**30  # bytes on disk of events of open steps, of each stream
MOST_COUNTED = (
    3 * MEMORY // 8
)  # bytes that counting the events of one step may take, by the estimate in `spool`
MOST_HELD = MEMORY // 8  # bytes of events that all streams together have read before their steps close
MOST_STEPS = 2**16  # open steps of a stream that have events
MOST_PIECES = 2**20  # parts of batches on disk, each of one step, of each stream
MOST_KEYS = 2**21  # keys of batches that are remembered, of each stream
SEGMENT = 64 * 2**20  # bytes after which a new file of events begins

# connections, and answers on their way to readers
MOST_CONNECTIONS = 20_000  # or fewer, where fewer files may be open
RESERVED, RESERVED_EACH = (
    256,
    32,
)  # descriptors that connections leave free: for the process, and for each stream
BACKLOG = 128  # connections that wait to be accepted
MOST_HEAD = 64 * 2**10  # bytes of a request before its body
MOST_PIPELINED = 16  # requests that wait behind another of their connection
FIRST_SECONDS = 10.0  # from a connection to the end of the head of its first request
NEXT_SECONDS = 30.0  # from an answer to the end of the head of the next request
STALLED_SECONDS = 30.0  # without room for more of an answer
SEND_BUFFER = 256 * 2**10  # bytes that the system keeps of an answer
MOST_ANSWERS = min(512 * 2**20, MEMORY // 8)  # bytes of answers that readers have not yet taken
SLICE = 64 * 2**10  # bytes of an answer that are handed to the system together
MAKERS = 2  # answers that are made at a time


def open_files() -> int:
    """How many files this process may have open, after asking for as many as are useful."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MOST_CONNECTIONS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else soft


def connections(streams: int) -> int:
    """How many connections there may be beside so many streams."""
    left = open_files() - RESERVED - RESERVED_EACH * streams
    if left < 64:
        raise InvalidParameter(
            "open files",
            open_files(),
            f"at least {RESERVED + RESERVED_EACH * streams + 64} for {streams} streams",
            "raise the limit with `ulimit -n` or LimitNOFILE=",
        )
    return min(left, MOST_CONNECTIONS)
