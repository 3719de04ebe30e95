"""The file of a durable ledger: creating, opening, locking, and every failure as one sentence."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from tidegate.errors import LedgerBusy, LedgerCorrupt, LedgerError, LedgerMismatch
from tidegate.ledger.rows import genesis
from tidegate.policy.budget import Approximate, Budget, Pure, ZeroConcentrated
from tidegate.policy.swellfish import Swellfish, policy_from

FORMAT = 2  # of new ledgers; docs/ledger.md
READABLE = ("1", "2")
APPLICATION = 0x54494445  # "TIDE", in the file's header
MAGIC = b"SQLite format 3\0"
SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE charges (
    row INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,      -- see docs/ledger.md
    first INTEGER NOT NULL,  -- the steps whose data were touched
    last INTEGER NOT NULL,
    units INTEGER NOT NULL,  -- of the unit in meta; a batch's sum
    scope TEXT NOT NULL,
    parts TEXT NOT NULL,     -- groups (the largest counts) and levels (they add), as JSON
    detail BLOB,             -- a batch's units, compressed
    hash BLOB NOT NULL       -- SHA-256 over the hash of the row before and this row
) STRICT;
CREATE INDEX marks ON charges (row) WHERE kind = 'mark';
CREATE TABLE head (only INTEGER PRIMARY KEY CHECK (only = 1), rows INTEGER NOT NULL, step INTEGER NOT NULL,
                   hash BLOB NOT NULL) STRICT;
CREATE TABLE checkpoint (only INTEGER PRIMARY KEY CHECK (only = 1), row INTEGER NOT NULL, hash BLOB NOT NULL,
                         account BLOB NOT NULL, digest BLOB NOT NULL) STRICT;
"""

# States of some mechanisms hold raw values, and positions count records. SQLite gives its side files the mode of the
# file that they belong to, so that one must have its own before SQLite opens it.
PRIVATE = 0o600

_locks: set[int] = set()
_abandoned: list[Any] = []


def _leave_locks() -> None:
    """In a forked child: let go of the parent's locks, which stay the parent's."""
    for descriptor in _locks:
        os.close(descriptor)
    _locks.clear()


os.register_at_fork(after_in_child=_leave_locks)


@dataclass(frozen=True)
class StoredPolicy:
    """As much of a policy as a ledger's file tells: enough to check the account without the program."""

    budget: Budget
    window: int | None
    horizon: int | None
    described: str

    def describe(self) -> dict[str, Any]:
        """The policy exactly, ready for JSON."""
        described: dict[str, Any] = json.loads(self.described)
        return described


def budget_text(budget: Budget) -> str:
    """A budget as text that `stored_policy` reads back exactly."""
    if isinstance(budget, Approximate):
        return f"approximate {budget.epsilon} {budget.delta}"
    if isinstance(budget, ZeroConcentrated):
        return f"zero-concentrated {budget.rho}"
    return f"pure {budget.epsilon}"


def stored_policy(meta: Mapping[str, str]) -> StoredPolicy | Swellfish:
    """The policy that a file's meta describe."""
    described = json.loads(meta["policy"])
    if described.get("policy") == "Swellfish":  # its specifications are needed to check the account
        return policy_from(described)
    kinds = {"pure": Pure, "approximate": Approximate, "zero-concentrated": ZeroConcentrated}
    try:
        kind, *numbers = meta["budget"].split()
        budget: Budget = kinds[kind](*(Fraction(number) for number in numbers))
        window, horizon = (int(meta[name]) or None for name in ("window", "horizon"))
    except (KeyError, TypeError, ValueError):
        raise LedgerCorrupt("the ledger's budget or window is damaged; restore it from a backup.") from None
    return StoredPolicy(budget, window, horizon, meta["policy"])


def refusal(path: Path, error: Exception) -> LedgerError:
    """A failure of the database as one sentence."""
    name = str(getattr(error, "sqlite_errorname", "") or "")
    if name.startswith("SQLITE_FULL"):
        return LedgerError(
            f"the disk of the ledger {path} is full; nothing was charged since the last commit; free some space."
        )
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return LedgerError(
            f"the ledger {path} cannot be written; make its folder writable or open it read-only."
        )
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return LedgerBusy(
            f"another program has locked the ledger {path}; nothing was charged; close that program."
        )
    words = str(error)
    if isinstance(error, UnicodeDecodeError) or "Could not decode" in words:  # it quotes what is damaged
        return LedgerCorrupt(f"the ledger {path} is damaged; restore it from a backup.")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or (
        isinstance(error, sqlite3.OperationalError)
        and ("no such table" in words or "no such column" in words)
    ):
        return LedgerCorrupt(
            f"the ledger {path} is truncated or damaged ({error}); restore it from a backup."
        )
    return LedgerError(
        f"the ledger {path} cannot be used ({name or type(error).__name__}); nothing was charged; "
        "check its disk and try again."
    )


class Rows(sqlite3.Cursor):
    """Rows are read when they are asked for, and what is damaged is found then: one sentence says so there, too."""

    connection: Connection

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise refusal(self.connection.path, error) from None

    def fetchone(self) -> Any:
        """The next row, or None."""
        return next(self, None)

    def fetchall(self) -> list[Any]:
        """All rows that are left."""
        try:
            return super().fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise refusal(self.connection.path, error) from None


class Connection(sqlite3.Connection):
    """A connection to the file of a ledger."""

    path: Path

    def execute(self, statement: str, values: Any = (), /) -> Rows:
        """Run a statement."""
        return self.cursor(Rows).execute(statement, values)


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn every failure of the database or the file system into one sentence."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise refusal(path, error) from None
    except OSError as error:
        raise LedgerError(
            f"the ledger {path} cannot be used ({error.strerror}); make its folder writable."
        ) from None


def take_lock(path: Path) -> int:
    """Hold the lock beside the file, as its one writer; the system frees it when the process dies."""
    beside = f"{path}.lock"
    while True:
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise LedgerBusy(
                f"another run is writing to the ledger {path}; stop it, or open the ledger read-only."
            ) from None
        try:
            if os.path.samestat(os.fstat(descriptor), os.lstat(beside)):
                _locks.add(descriptor)
                return descriptor
        except FileNotFoundError:
            pass
        os.close(
            descriptor
        )  # whoever held it has removed an unused ledger with it: that lock keeps nobody out


def remove(path: Path) -> None:
    """Remove a ledger that was never charged, with what lies beside it; only while its lock is held."""
    for name in (str(path), f"{path}-wal", f"{path}-shm", f"{path}-journal", f"{path}.lock"):
        Path(name).unlink(missing_ok=True)


def leave_lock(descriptor: int) -> None:
    """Let go of the lock."""
    if descriptor in _locks:
        _locks.discard(descriptor)
        os.close(descriptor)


def abandon(connection: sqlite3.Connection) -> None:
    """Keep a connection of the parent alive but untouched: closing it could disturb the parent."""
    _abandoned.append(connection)


def create(path: Path, meta: Mapping[str, str]) -> None:
    """Write a new, empty ledger; it appears under its name only when it is complete and on disk."""
    fresh = path.with_name(path.name + ".new")
    for leftover in (fresh, Path(f"{fresh}-journal")):
        leftover.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
    connection = sqlite3.connect(fresh, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA application_id={APPLICATION}")
        connection.execute("BEGIN")
        for statement in SCHEMA.split(";\n"):
            connection.execute(statement)
        connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        connection.execute("INSERT INTO head VALUES (1, 0, 0, ?)", (genesis(meta),))
        connection.execute("COMMIT")
    finally:
        connection.close()
    fresh.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Make sure that a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def mark_restored(connection: sqlite3.Connection, restored: bool = True) -> None:
    """Note beside the account that a file is a copy which was put back and has been compared with nothing."""
    connection.execute(f"PRAGMA user_version={int(restored)}")


def look(path: Path) -> None:
    """Refuse a file that is visibly no ledger, before SQLite touches it."""
    with path.open("rb") as stream:
        header = stream.read(100)
    if not header:
        raise LedgerCorrupt(
            f"the ledger {path} is empty; restore it from a backup, or delete it to begin anew."
        )
    if header[: len(MAGIC)] != MAGIC[: len(header)]:
        raise LedgerMismatch(f"{path} is not a ledger; give the path of a ledger or of a new file.")
    if len(header) < 100:
        raise LedgerCorrupt(f"the ledger {path} is truncated; restore it from a backup.")
    if int.from_bytes(header[68:72], "big") != APPLICATION:
        raise LedgerMismatch(
            f"{path} is a database but not a ledger; give the path of a ledger or of a new file."
        )


def _written_here(path: Path) -> bool:
    """Whether this process is the writer of a ledger: then it holds the lock beside it."""
    try:
        beside = Path(f"{path}.lock").stat()
    except OSError:
        return False
    return any(os.path.samestat(os.fstat(descriptor), beside) for descriptor in _locks)


def _only_name(path: Path) -> None:
    """Refuse a file with a second name: locks and side files lie beside one of them, and the other has none of those."""
    if path.stat().st_nlink > 1:
        raise LedgerError(
            f"the ledger {path} has a second name (a hard link), under which another program could spend its budget "
            "again; remove that name, and copy ledgers with tidegate ledger backup."
        )


def _close_to_others(path: Path) -> None:
    """Let nobody read side files, of an earlier version or a dead process, who may not read the ledger."""
    allowed = path.stat().st_mode & 0o777
    for side in ("-wal", "-shm", "-journal", ".lock"):
        beside = Path(f"{path}{side}")
        if beside.exists() and not beside.is_symlink() and beside.stat().st_mode & 0o777 & ~allowed:
            beside.chmod(allowed)


def _reader(path: Path) -> Connection:
    """A connection that only reads, and leaves no side files behind that it did not find.

    SQLite creates `-wal` and `-shm` for whoever reads, and at the end removes them only for a connection that may
    write. So this one may write, where its user may, and refuses every change. A log that holds something is the
    work of a writer, alive or killed: it is read, and left to the next writer.
    """
    log = Path(f"{path}-wal")
    held = log.stat().st_size if log.exists() else -1
    folder = os.access(path.parent, os.W_OK)
    mode = "rw" if held <= 0 and folder and os.access(path, os.W_OK) else "ro"
    if held < 0 and not folder:
        mode += "&immutable=1"  # nobody can be writing here, and SQLite could not create its side files
    address = f"{path.as_uri()}?mode={mode}"
    connection = sqlite3.connect(
        address, uri=True, isolation_level=None, check_same_thread=False, factory=Connection
    )
    connection.path = path
    connection.execute("PRAGMA query_only=ON")
    return connection


def connect(path: Path, *, read_only: bool) -> Connection:
    """Open an existing ledger file: WAL, and on disk before a commit returns."""
    # closing any descriptor of a file drops every lock that this process has on it, those of SQLite too
    if not (read_only and _written_here(path)):
        look(path)
    if read_only:
        connection = _reader(path)
    else:
        _only_name(path)
        _close_to_others(path)
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=2, factory=Connection
        )
        connection.path = path
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(
                "PRAGMA fullfsync=ON"
            )  # macOS answers before the disk has it; elsewhere no difference
            connection.execute("PRAGMA checkpoint_fullfsync=ON")
            connection.execute("PRAGMA secure_delete=ON")  # rows of steps that were committed are overwritten
            # what was overwritten leaves the log as well: it is written over often, and cut when it is
            connection.execute("PRAGMA wal_autocheckpoint=256")
            connection.execute("PRAGMA journal_size_limit=0")
        except sqlite3.Error:
            connection.close()
            raise
    return connection


def read_meta(connection: sqlite3.Connection, path: Path) -> dict[str, str]:
    """What the ledger is for; a newer format is refused."""
    meta = dict(connection.execute("SELECT name, value FROM meta"))
    if not all(isinstance(text, str) for pair in meta.items() for text in pair):
        raise LedgerCorrupt(f"the ledger {path} is damaged in its description; restore it from a backup.")
    missing = {"format", "policy", "budget", "window", "horizon", "units", "schedule"} - set(meta)
    if missing:
        raise LedgerCorrupt(
            f"the ledger {path} lacks {', '.join(sorted(missing))}; restore it from a backup."
        )
    if meta["format"] not in READABLE:
        raise LedgerMismatch(
            f"the ledger {path} has format {meta['format']} and this program reads formats up to {FORMAT}; "
            "use the version of Tidegate that wrote it, or a newer one."
        )
    return meta
