"""Everything Tidegate refuses, each as one sentence: name, value, constraint, remedy.

No message ever carries a record, a raw value or a count of them: messages name positions and shapes only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import SplitResult


def without_secrets(text: str) -> str:
    """A text whose addresses have lost their users and passwords, also those that are not quite addresses.

    Examples
    --------
    >>> without_secrets("mqtt://ann:se#cr/et@host/topic and postgress:/ann:secret@host?password=secret&port=1")
    'mqtt://…@host/topic and postgress:/…@host?password=…&port=1'
    >>> without_secrets("mqtt//ann:secret@host/topic")
    'mqtt//…@host/topic'
    """
    text = re.sub(r"(:/{0,3}|//)[^\s'\"]*@", r"\1…@", text)
    return re.sub(r"(?i)\b(\w*(?:password|passwd|secret|token|passfile))=[^&\s'\"#;]+", r"\1=…", text)


class TidegateError(Exception):
    """Base of every error that Tidegate raises on purpose; no sentence ever holds a password."""

    def __init__(self, *words: object) -> None:
        super().__init__(*(without_secrets(word) if isinstance(word, str) else word for word in words))


def check_scheme(name: str, location: str, known: Sequence[str]) -> None:
    """Refuse what looks like an address but is none: as a file's name it would show its password to everybody.

    Examples
    --------
    >>> check_scheme("location", "mqtt//ann:secret@host/topic", ["mqtt"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    tidegate.errors.InvalidParameter: location='mqtt…' is refused: location must be a file, or begin with mqtt://; ...
    """
    if location.startswith(tuple(f"{scheme}://" for scheme in known)):
        return
    begun = re.match(r"[A-Za-z][A-Za-z0-9+.-]*(?=:/|//)", location)
    if (begun and (location[begun.end()] == ":" or begun[0] in known)) or re.search(r"(:|//)\S*@", location):
        schemes = ", ".join(f"{scheme}://" for scheme in known)
        shown = f"{begun[0]}…" if begun else "…"
        raise InvalidParameter(name, shown, f"a file, or begin with {schemes}", "correct it")


def port_of(name: str, parts: SplitResult) -> int | None:
    """The port of an address; one that cannot be is refused."""
    try:
        if parts.port != 0:
            return parts.port
    except ValueError:
        pass
    raise InvalidParameter(
        name, f"{parts.scheme}://…", "an address with a port between 1 and 65535", "correct the port"
    )


class InvalidParameter(TidegateError, ValueError):
    """A parameter is outside its documented range."""

    def __init__(self, name: str, value: object, constraint: str, remedy: str) -> None:
        given = f"{name} is missing: it" if value is None else f"{name}={value!r} is refused: {name}"
        super().__init__(f"{given} must be {constraint}; {remedy}{'' if remedy.endswith('?') else '.'}")
        self.name = name


class InvalidInput(TidegateError, ValueError):
    """Pushed data has a wrong shape, type or range. The message never contains the data."""


class MissingPart(TidegateError, ImportError):
    """An optional library is not installed; the message says what to install."""


class UnsupportedSystem(TidegateError, ImportError):
    """The operating system lacks what a ledger needs to be safe."""


class SnapshotError(TidegateError, ValueError):
    """A snapshot is damaged, or of another mechanism or version."""
