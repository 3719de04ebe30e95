"""Tokens: who may send events and who may look behind the scenes. The file has hashes only."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tidegate.errors import InvalidParameter, TidegateError
from tidegate.noise.entropy import UNBUFFERED
from tidegate.sinks.file_writing import replacing

ROLES = ("producer", "operator")
PREFIX = "tide_"


@dataclass(frozen=True)
class Token:
    """One entry of the file.

    Parameters
    ----------
    name
        What people call its holder.
    role
        "producer" sends events; "operator" sees budget, lag and configuration as well.
    streams
        The streams that a producer may send to; empty for all.
    digest
        SHA-256 of the token, which has 256 random bits, so that nothing slower is needed.
    """

    name: str
    role: str
    streams: tuple[str, ...]
    digest: str


class Tokens:
    """The file of tokens, read again when it has changed, so that a token can be revoked while the service runs.

    Parameters
    ----------
    path
        The file; it need not exist.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._entries: tuple[Token, ...] = ()

    @property
    def entries(self) -> tuple[Token, ...]:
        """What the file says now; a file that cannot be read lets nobody in."""
        with self._lock:
            try:
                status = self.path.stat()
            except OSError:
                self._seen, self._entries = None, ()
                return ()
            seen = (status.st_mtime_ns, status.st_size, status.st_ino)
            if seen != self._seen:
                self._entries, self._seen = self._read(), seen
            return self._entries

    def _read(self) -> tuple[Token, ...]:
        try:
            return _parsed(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return ()

    def _kept(self) -> tuple[Token, ...]:
        """All entries of the file that is to be replaced; one that is no file of tokens, or is damaged, is refused."""
        try:
            return _parsed(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise InvalidParameter(
                "tokens",
                str(self.path),
                "a file of tokens that can be read, because it is written again with all of its tokens",
                "name another file, or put this one back from a copy",
            ) from None

    def holder(self, presented: str) -> Token | None:
        """The entry of a token; every entry is compared in constant time, found or not."""
        digest, found = _digest(presented), None
        for entry in self.entries:
            if hmac.compare_digest(digest, entry.digest):
                found = entry
        return found

    def add(self, role: str, name: str, streams: tuple[str, ...] = ()) -> str:
        """Make a token; it is shown once and kept nowhere."""
        if role not in ROLES:
            raise InvalidParameter("role", role, "producer or operator", "write for example producer")
        kept = self._kept()
        if not name or any(entry.name == name for entry in kept):
            raise InvalidParameter("name", name, "a name that no other token has", "choose another name")
        random = UNBUFFERED.words("serve: token", 1, 1, range(4), 0, 1).tobytes()
        token = PREFIX + base64.urlsafe_b64encode(random).decode().rstrip("=")
        self._write((*kept, Token(name, role, streams, _digest(token))))
        return token

    def revoke(self, name: str) -> None:
        """Take a token out; the service refuses it from the next request on."""
        kept = self._kept()
        left = tuple(entry for entry in kept if entry.name != name)
        if len(left) == len(kept):
            raise InvalidParameter(
                "name", name, "the name of a token in the file", "list them to see the names"
            )
        self._write(left)

    def _write(self, entries: tuple[Token, ...]) -> None:
        document: dict[str, Any] = {"tokens": [asdict(entry) for entry in entries]}
        try:
            with replacing(self.path, 0o600) as file:
                file.write(json.dumps(document, indent=2).encode())
        except OSError as error:
            raise TidegateError(
                f"the file of tokens {self.path} cannot be written: {error.strerror}; name another one."
            ) from None


def _parsed(text: str) -> tuple[Token, ...]:
    """The entries of a file; raises ValueError, KeyError, TypeError or AttributeError where it is none."""
    return tuple(
        Token(each["name"], each["role"], tuple(each["streams"]), each["digest"])
        for each in json.loads(text)["tokens"]
        if each["role"] in ROLES
    )


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
