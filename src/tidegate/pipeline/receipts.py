"""Receipts: what an output remembers of the log that it was written from.

A log that is lost, or replaced by an older copy of itself, lacks charges that were made. The log itself cannot notice
this. So every output has a small file beside it, with the log's identity and the last commit of which releases may have
been sent. It is written before the releases are. A log that does not have that commit is refused. A stream may have
written to other outputs earlier. Their receipts are updated as well, so each of them knows how far the log has got.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tidegate.core.errors import LogMismatch
from tidegate.core.log import Log
from tidegate.exact import show
from tidegate.policy.budget import Approximate, Budget, ZeroConcentrated
from tidegate.sinks.errors import AnotherStream, SinkError
from tidegate.sinks.file_writing import replacing

if TYPE_CHECKING:
    from tidegate.pipeline.logs import LogReader

ENDING = ".receipt"
SLOT = 256  # bytes of a note; within a sector, so that it is never half written
VERSION = 2


class LogIsOlder(LogMismatch):
    """A log is an older copy of the one that an output was written from."""


@dataclass(frozen=True)
class Origin:
    """A stream that an output was released from.

    Parameters
    ----------
    identity
        The hash of the log's first commit.
    configuration
        A digest of what was configured.
    kind, total, delta, window
        What it promises: "ε" or "ρ" of a window, δ, and the window's length.
    step
        The last step that was released, if it is an earlier stream.
    """

    identity: str
    configuration: str
    kind: str
    total: str
    delta: str
    window: int | None
    step: int = 0

    @classmethod
    def of(cls, identity: str, configuration: str, budget: Budget, window: int | None) -> Origin:
        """A stream from its budget."""
        kind = "ρ" if isinstance(budget, ZeroConcentrated) else "ε"
        delta = budget.delta if isinstance(budget, Approximate) else Fraction(0)
        return cls(identity, configuration, kind, str(budget.total), str(delta), window)

    def with_budgets_of(self, others: Iterable[Origin]) -> Origin:
        """The same with the largest budget of all, where amendments have changed it."""
        known = [self, *(other for other in others if other.kind == self.kind)]
        total, delta = (
            max(Fraction(each.total) for each in known),
            max(Fraction(each.delta) for each in known),
        )
        return replace(self, total=str(total), delta=str(delta))


class Written(NamedTuple):
    """How far an output was written: the last step, and the last commit with its head."""

    step: int = 0
    commit: int = 0
    head: str = ""

    def encode(self, identity: str) -> bytes:
        """A line of fixed length."""
        content = json.dumps(self, separators=(",", ":"))
        check = f"{zlib.crc32(content.encode() + identity.encode()):08x}"
        return f"{check} {content}".ljust(SLOT - 1).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes, identity: str) -> Written | None:
        """What `encode` wrote for this stream; None for anything else."""
        try:
            found = cls(*json.loads(line[9:]))
        except (ValueError, TypeError):
            return None
        return found if found.encode(identity) == line else None


class Content(NamedTuple):
    """What the file of a receipt says."""

    origin: Origin
    earlier: tuple[Origin, ...]
    written: Written


def parsed(content: bytes) -> Content | None:
    """What the bytes of a receipt say; None if they are no receipt."""
    try:
        about = json.loads(content[2 * SLOT :])
        origin, earlier = Origin(**about["origin"]), tuple(Origin(**each) for each in about["earlier"])
        if about["receipt"] != VERSION:
            return None
    except (ValueError, TypeError, KeyError):
        return None
    slots = (Written.decode(content[at : at + SLOT], origin.identity) for at in (0, SLOT))
    sound = [written for written in slots if written is not None]
    return Content(origin, earlier, max(sound, key=lambda written: written.commit)) if sound else None


class Receipt:
    """The receipt of one output.

    Parameters
    ----------
    path
        Its file, made before the first release leaves.
    origin
        The present stream.
    """

    def __init__(self, path: Path, origin: Origin) -> None:
        self.path, self.origin = path, origin
        self._noted: Written | None = None  # by this process
        self._descriptor, self._slot = -1, 0
        self._replaced: bytes | None = None  # what was there before `begin_new_stream`
        self.found = self._read()
        self.earlier = () if self.found is None else self.found.earlier

    def _read(self) -> Content | None:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(error) from None
        with os.fdopen(descriptor, "rb") as file:
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            found = parsed(file.read(2**20)) if regular else None
        if found is None:
            raise SinkError(
                f"{self.path} is not a receipt, or is damaged; put it back from a backup, or remove it if you are sure "
                "that the log is the newest one that was ever used for this output."
            )
        return found

    # comparing ---------------------------------------------------------------------------------------------------

    @property
    def matches(self) -> bool:
        """Whether the output was written from this very log."""
        return self.found is not None and self.found.origin.identity == self.origin.identity

    @property
    def of_another(self) -> bool:
        """Whether the output has releases of another log."""
        return self.found is not None and not self.matches and self.found.written.commit > 0

    def refuse_older(self, log: Log | LogReader, sink: str) -> None:
        """Refuse a log that does not have the commit that this receipt remembers."""
        if not self.matches:
            return
        assert self.found is not None
        written = self.found.written
        row = next(log.rows(written.commit), None)
        if row is None or (written.head and row.head.hex() != written.head):
            raise LogIsOlder(
                f"the log does not have commit {written.commit}, after which {sink} was written up to step "
                f"{written.step}: it is an older copy that lacks the latest charges; restore the newest copy, or "
                "move the log away and begin a new stream with --new-stream, after which "
                f"{cost([self.found.origin] * 2)}."
            )

    def refuse_another(self, sink: str, *, begun: bool) -> AnotherStream:
        """Make the error for a stream that the output does not know; the caller raises it."""
        assert self.found is not None
        together = cost([*self.earlier, self.found.origin, self.origin])
        remedy = "" if begun else ", or accept the cost with --new-stream"
        return AnotherStream(
            f"{sink} was released from another log, up to step {self.found.written.step}, and a second stream spends a "
            f"second budget, so that {together}; put that log back, name another location in [sink]{remedy}."
        )

    # writing -----------------------------------------------------------------------------------------------------

    def begin_new_stream(self) -> None:
        """Remember the stream that was there as an earlier one."""
        self._replaced = self.path.read_bytes() if self.path.exists() else b""
        if self.found is not None and not self.matches:
            self.earlier = (*self.earlier, replace(self.found.origin, step=self.found.written.step))
        self._write_all(Written())

    def on_rollback(self) -> None:
        """Undo `begin_new_stream`: nothing was released."""
        if self._replaced:
            self._replace(self._replaced)
        elif self._replaced is not None:
            self.path.unlink(missing_ok=True)
        self._replaced = None

    def note(self, written: Written) -> None:
        """Remember how far the log has got. This happens before anything is released."""
        if written == self._noted:
            return
        if self._descriptor < 0 and self.found is not None and self.found.origin == self.origin:
            self._open()
        if self._descriptor < 0:
            self._write_all(written)
        else:
            try:
                os.pwrite(self._descriptor, written.encode(self.origin.identity), self._slot * SLOT)
            except OSError as error:
                raise self._unusable(error) from None
            self._slot = 1 - self._slot
        self._noted = written

    def _open(self) -> None:
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise self._unusable(error) from None
        content = os.pread(self._descriptor, 2 * SLOT, 0)
        places = [Written.decode(content[at : at + SLOT], self.origin.identity) for at in (0, SLOT)]
        first, second = (-1 if place is None else place.commit for place in places)
        self._slot = 0 if first <= second else 1  # the next one to write: the older one, or a damaged one

    def _write_all(self, written: Written) -> None:
        """Write the whole file again."""
        about = {
            "receipt": VERSION,
            "origin": asdict(self.origin),
            "earlier": [asdict(each) for each in self.earlier],
        }
        self._replace(2 * written.encode(self.origin.identity) + json.dumps(about).encode() + b"\n")
        self.found, self._slot = Content(self.origin, self.earlier, written), 1

    def _replace(self, content: bytes) -> None:
        self.close()
        try:
            with replacing(self.path, 0o600) as file:
                file.write(content)
        except OSError as error:
            raise self._unusable(error) from None

    def sync(self) -> None:
        """What was noted is on disk."""
        if self._descriptor >= 0:
            try:
                os.fsync(self._descriptor)
            except OSError as error:
                raise self._unusable(error) from None

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def together(self) -> str:
        """What this stream and the earlier ones cost together; empty if there were none."""
        return cost([*self.earlier, self.origin]) if self.earlier else ""

    def _unusable(self, error: OSError) -> SinkError:
        return SinkError(
            f"the receipt {self.path} cannot be used ({error.strerror or type(error).__name__}), and without it nobody "
            "would notice a lost log; make it writable, or name another file with receipt in [sink]."
        )


def cost(origins: Sequence[Origin]) -> str:
    """In words: what somebody loses who is in all of these streams.

    Examples
    --------
    >>> once = Origin("a", "f", "ε", "1/2", "0", 24)
    >>> cost([once, once])
    'both together cost ε = 1 for any 24 consecutive steps'
    """
    sums: dict[str, Fraction] = {}
    for origin in origins:
        for kind, number in ((origin.kind, origin.total), ("δ", origin.delta)):
            sums[kind] = sums.get(kind, Fraction(0)) + Fraction(number)
    total = " and ".join(f"{kind} = {show(number)}" for kind, number in sums.items() if number)
    words = "both together cost" if len(origins) == 2 else f"all {len(origins)} together cost"
    if len({origin.configuration for origin in origins}) > 1:
        place = "where they tell of the same people"
    elif origins[-1].window is None:
        place = "for all steps together"
    else:
        place = f"for any {origins[-1].window:,} consecutive steps"
    return f"{words} {total} {place}"
