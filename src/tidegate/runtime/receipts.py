"""Receipts: what a sink remembers of the ledger it was written from.

A ledger that is lost, or replaced by an older copy of itself, has forgotten budget that was spent, and whoever goes
on with it, or begins anew, spends that budget again. Only somebody else can notice. So beside every output lies a
small file that names the stream and the last row of the ledger from which anything has left. It is written before
the releases themselves, and a ledger that does not have that row is refused. Receipts of outputs that the stream has
left, by an amendment or for another location, follow the ledger as well: each of them knows all that was spent.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path

from tidegate.errors import LedgerMismatch
from tidegate.exact import show
from tidegate.ledger import SQLiteLedger
from tidegate.ledger.durable import DurableLedger
from tidegate.ledger.file import budget_text, sync
from tidegate.policy.budget import Budget, ZeroConcentrated
from tidegate.runtime.errors import AnotherStream, LedgerIsOlder, SinkError
from tidegate.runtime.files import unused_name
from tidegate.runtime.parts import amendments_of
from tidegate.runtime.store import Store

ENDING = ".receipt"
_SLOT = (
    256  # bytes of a place for how far a sink was written; within a sector, so that it is never half written
)
_VERSION = 1


@dataclass(frozen=True)
class Origin:
    """The stream that an output was released from.

    Parameters
    ----------
    identity, fingerprint
        Of its ledger, and of its configuration.
    budget, window
        What it promised; the largest budget of a window where it was amended.
    step
        Up to which step an earlier stream was released.
    """

    identity: str
    fingerprint: str
    budget: str
    window: int | None
    step: int = 0

    @classmethod
    def of(cls, store: Store) -> Origin:
        """The stream of an open store."""
        ledger = store.ledger
        policy = ledger.policy
        return cls(ledger.identity, ledger.fingerprint, budget_text(_largest(ledger)), policy.window)


def _largest(ledger: DurableLedger) -> Budget:
    """The largest budget that any window of a stream was ever promised."""
    budget = ledger.policy.budget
    name = "rho" if isinstance(budget, ZeroConcentrated) else "epsilon"
    described = (amendment.described for amendment in amendments_of(ledger))
    policies = [facts["policy"] if "policy" in facts else facts["mechanism"]["policy"] for facts in described]
    most = max([budget.total, *(Fraction(policy[name]) for policy in policies)])
    return budget.of(most)


@dataclass(frozen=True)
class Written:
    """How far a sink was written: the last step and release, and the last row of the ledger before it."""

    step: int = 0
    number: int = 0
    rows: int = 0
    head: str = ""

    def encode(self, identity: str) -> bytes:
        """A line of fixed length."""
        content = json.dumps(asdict(self), separators=(",", ":"))
        check = f"{zlib.crc32(content.encode() + identity.encode()):08x}"
        line = f'{content[:-1]},"check":"{check}"}}'
        return line.ljust(_SLOT - 1).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes, identity: str) -> Written | None:
        """What `encode` wrote for this stream; None for anything else."""
        try:
            fields = json.loads(line)
            del fields["check"]
            found = cls(**fields)
        except (ValueError, TypeError, KeyError):
            return None
        return found if found.encode(identity) == line else None


class Receipt:
    """The receipt of one sink for the stream of an open store.

    Parameters
    ----------
    path
        Its file, made before the first release leaves.
    store
        The stream.
    """

    def __init__(self, path: Path, store: Store) -> None:
        self.path = path
        self._store = store
        self.origin = Origin.of(store)
        self.earlier: tuple[Origin, ...] = ()
        self._descriptor = -1
        self._turn = 0
        self._before: tuple[Origin, Written] | None = None  # what the file says that is there
        self._noted: Written | None = None  # by this process
        self._undone: bytes | None = None  # what was there before the stream began anew
        self.others: Sequence[Receipt] = ()  # of outputs that the stream has left
        self._read()

    # reading ------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._refused(error) from None
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self._damaged()
            content = file.read(2**20)
        found = _parsed(content)
        if found is None:
            raise self._damaged()
        origin, self.earlier, written = found
        self._before = origin, written

    @property
    def matches(self) -> bool:
        """Whether the sink was written from this very ledger."""
        return self._before is not None and self._before[0].identity == self.origin.identity

    @property
    def _step(self) -> int:
        """How far the stream has got, also where this part of it has ended."""
        step = self._store.progress.step
        return step if self._store.part.until is None else max(step, self._store.ledger.step)

    @property
    def there(self) -> bool:
        """Whether there is a file."""
        return self._before is not None

    def check(self, sink: str) -> bool:
        """Whether the sink knows another stream, from which it has releases.

        Raises
        ------
        LedgerIsOlder
            When the ledger is an older copy of the one that the sink was written from.
        """
        ledger = self._store.ledger
        if self._before is None:
            if ledger.restored:
                raise LedgerIsOlder(
                    f"the ledger {ledger.where} is a copy that was put back, and the receipt {self.path} of its output, "
                    "which would show whether it is the newest, is missing; put the receipt back, or restore the copy "
                    "again with --head."
                )
            return False
        if not self.matches:
            return self._before[1].number > 0
        if self.archived:
            written, base = self._before[1], ledger.base()
            raise LedgerMismatch(
                f"{sink} was last written at step {written.step}, and the ledger {ledger.where} has archived what it "
                f"lacks since, rows 1 to {base.row if base else 0}; name the location in [sink] that was written last, "
                "which goes on."
            )
        self.refuse_older(sink)
        ledger.compared()
        return False

    def refuse_older(self, sink: str) -> None:
        """Refuse a ledger that is an older copy of the one that the receipt was written from."""
        assert self._before is not None
        (origin, written), ledger, progress = self._before, self._store.ledger, self._store.progress
        same = written.rows == 0 or ledger.hash_of(written.rows) == written.head
        if written.number > progress.number or not same:
            raise LedgerIsOlder(
                f"the ledger {ledger.where} ends at step {self._step} and {sink} knows of releases up to step "
                f"{written.step}: it is an older copy that has forgotten what was spent; put the newest copy back, or "
                f"move the ledger away and begin a new stream with --begin-anew, after which {cost([origin] * 2)}."
            )

    @property
    def archived(self) -> bool:
        """Whether the row that it remembers is in an archive of the ledger, which has gone on since."""
        base = self._store.ledger.base()
        return base is not None and self._before is not None and 0 < self._before[1].rows < base.row

    def refuse(self, sink: str) -> AnotherStream:
        """Why a stream that the sink does not know may not begin there."""
        assert self._before is not None
        origin, written = self._before
        everything = [*self.earlier, origin, self.origin]
        remedy = (
            "name another location in [sink], or put back the ledger that it was released from"
            if self._store.progress.number
            else "put that ledger back, name another location in [sink], or accept the cost with --begin-anew"
        )
        return AnotherStream(
            f"{sink} was released from another ledger than {self._store.ledger.where}, up to step {written.step}, and "
            f"a second stream spends a second budget, so that {cost(everything)}; {remedy}."
        )

    # writing ------------------------------------------------------------------------------------------------

    def begin_anew(self) -> None:
        """Remember the stream that was there as an earlier one."""
        self._undone = self.path.read_bytes() if self.path.exists() else b""
        if self._before is not None and not self.matches:
            origin, written = self._before
            self.earlier = (*self.earlier, replace(origin, step=written.step))
        self._make(Written())

    def take_back(self) -> None:
        """Let the file be what it was before `begin_anew`: nothing was released."""
        if self._undone:
            self._put(self._undone)
        elif self._undone is not None:
            self.path.unlink(missing_ok=True)
        self._undone = None

    def note(self) -> None:
        """Remember how far the ledger has got, also where the stream was released before; before any of it leaves."""
        for each in self.others:
            each.note()
        ledger, progress = self._store.ledger, self._store.progress
        written = Written(self._step, progress.number, *ledger.head)
        if written == self._noted:
            return
        if self._descriptor < 0 and self._before is not None and self._before[0] == self.origin:
            self._open()
        if self._descriptor < 0:
            self._make(written)
        else:
            try:
                os.pwrite(self._descriptor, written.encode(self.origin.identity), self._turn * _SLOT)
            except OSError as error:
                raise self._refused(error) from None
            self._turn = 1 - self._turn
        self._noted = written

    def _open(self) -> None:
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise self._refused(error) from None
        # the older of two places is written next, or one that a loss of power has spoilt
        content = os.pread(self._descriptor, 2 * _SLOT, 0)
        places = [Written.decode(content[at : at + _SLOT], self.origin.identity) for at in (0, _SLOT)]
        first, second = ((-1, 0) if place is None else (place.number, place.rows) for place in places)
        self._turn = 0 if first <= second else 1

    def _make(self, written: Written) -> None:
        """Write the whole file anew, complete and on disk before it has its name."""
        about = {
            "receipt": _VERSION,
            "origin": asdict(self.origin),
            "earlier": [asdict(each) for each in self.earlier],
        }
        line = written.encode(self.origin.identity)
        self._put(2 * line + json.dumps(about, ensure_ascii=False).encode() + b"\n")
        self._turn = 1
        self._before = self.origin, written

    def _put(self, content: bytes) -> None:
        fresh = unused_name(self.path)
        try:
            descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, content)
                os.fsync(descriptor)
                fresh.replace(self.path)
            except OSError:
                os.close(descriptor)
                fresh.unlink(missing_ok=True)
                raise
            sync(self.path.parent)
        except OSError as error:
            raise self._refused(error) from None
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor

    def sync(self) -> None:
        """What was noted is on disk."""
        for each in self.others:
            each.sync()
        if self._descriptor >= 0:
            try:
                os.fsync(self._descriptor)
            except OSError as error:
                raise self._refused(error) from None

    def close(self) -> None:
        """Let go of the file."""
        for each in self.others:
            each.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    # what it says -------------------------------------------------------------------------------------------

    @property
    def together(self) -> str:
        """What this stream and the earlier ones cost together; empty if there were none."""
        return cost([*self.earlier, self.origin]) if self.earlier else ""

    def _refused(self, error: OSError) -> SinkError:
        return SinkError(
            f"the receipt {self.path} cannot be used ({error.strerror or type(error).__name__}), and without it nobody "
            "would notice a lost ledger; make it writable, or name another file with receipt in [sink]."
        )

    def _damaged(self) -> SinkError:
        return SinkError(
            f"{self.path} is not a receipt, or is damaged; put it back from a backup, or remove it if you are sure "
            "that the ledger is the newest one that was ever used for this output."
        )


def remembered_place(path: Path, ledger: DurableLedger) -> str:
    """Where a receipt lies, as its ledger remembers it: from its own folder on, so that both may be moved together."""
    home = _home(ledger)
    return str(path.absolute()) if home is None else os.path.relpath(path.resolve(), home)


def known_places(store: Store) -> list[Path]:
    """Where the receipts of everything lie that a query was ever released to, as its ledger remembers."""
    home, found = _home(store.ledger) or Path(), []
    for name, facts in store.sinks().items():
        kind, _, path = name.partition(" ")
        if "receipt" in facts:
            found.append(home / facts["receipt"])
        elif kind in ("file", "folder"):  # of a version that did not remember it
            found.append(Path(path + ENDING))
    return found


def _home(ledger: DurableLedger) -> Path | None:
    """The folder of a ledger that is a file."""
    return ledger.path.resolve().parent if isinstance(ledger, SQLiteLedger) else None


def _parsed(content: bytes) -> tuple[Origin, tuple[Origin, ...], Written] | None:
    """The stream, the earlier ones and how far the sink was written, as a receipt says; None if it is none."""
    try:
        about = json.loads(content[2 * _SLOT :])
        origin = Origin(**about["origin"])
        earlier = tuple(Origin(**each) for each in about["earlier"])
        if about["receipt"] != _VERSION:
            return None
    except (ValueError, TypeError, KeyError):
        return None
    slots = [content[at : at + _SLOT] for at in (0, _SLOT)]
    sound = [found for slot in slots if (found := Written.decode(slot, origin.identity)) is not None]
    if not sound:
        return None
    return origin, earlier, max(sound, key=lambda written: (written.number, written.rows))


def written_in(content: bytes) -> tuple[Origin, Written] | None:
    """The stream and how far the sink was written, as the bytes of a receipt say; None if they are none."""
    found = _parsed(content)
    return None if found is None else (found[0], found[2])


def cost(origins: Sequence[Origin]) -> str:
    """What several releases of one stream cost whoever is in all of them, in words.

    Examples
    --------
    >>> once = Origin("a", "f", "pure 1/2", 24)
    >>> cost([once, once])
    'both together cost ε = 1, 2 × 0.5, for any 24 consecutive steps'
    """
    budgets = [origin.budget.split() for origin in origins]
    numbers = [[Fraction(number) for number in (*rest, "0")[:2]] for _, *rest in budgets]
    concentrated = [kind == "zero-concentrated" for kind, *_ in budgets]
    epsilon, delta = (sum(parts, Fraction(0)) for parts in zip(*numbers, strict=True))
    if all(concentrated):
        total = f"ρ = {show(epsilon)}"
    elif any(concentrated):
        total = " + ".join(
            f"{'ρ' if at else 'ε'} = {show(number[0])}"
            for at, number in zip(concentrated, numbers, strict=True)
        )
    else:
        total = f"ε = {show(epsilon)}" + (f" and δ = {float(delta):.3g}" if delta else "")
    words = "both together cost" if len(origins) == 2 else f"all {len(origins)} together cost"
    parts = [show(number[0]) for number in numbers]
    sum_ = f"{len(parts)} × {parts[0]}" if len(set(parts)) == 1 else " + ".join(parts)
    if len({origin.fingerprint for origin in origins}) > 1:
        place = "where they tell of the same people"
    elif origins[-1].window is None:
        place = "for all steps together"
    else:
        place = f"for any {origins[-1].window:,} consecutive steps"
    return f"{words} {total}, {sum_}, {place}"
