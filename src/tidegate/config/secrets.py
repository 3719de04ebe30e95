"""Secrets in addresses: named in the file, taken from the environment or from another file when they are needed.

A configuration is copied, shown, mailed and kept in repositories: a password in it is one that others have.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote

from tidegate.errors import InvalidParameter

_NAMED = re.compile(r"\$\{([^}]*)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_FILE = re.compile(r"([?&](?:sslrootcert|sslcert|sslkey|passfile|settings)=)([^&#/][^&#]*)")
_SECRET = re.compile(r"(?i)[?&](?:ssl)?(?:password|passwd|secret|token)=([^&#]+)")
_LARGEST = 64 * 1024


def holds_secret(location: str) -> bool:
    """Whether an address says a password itself, instead of naming it.

    Examples
    --------
    >>> holds_secret("mqtt://ann:hunter2@host/topic"), holds_secret("mqtt://ann:${MQTT_PASSWORD}@host/topic")
    (True, False)
    """
    begin = _ADDRESS.match(location)
    if begin is None:
        return False
    plain = _NAMED.sub("", location)
    who = re.split(r"[/?#]", plain[begin.end() :], maxsplit=1)[0].rpartition("@")[0]
    return bool(who.partition(":")[2]) or _SECRET.search(plain) is not None


def expanded(location: str, folder: Path) -> str:
    """An address with what it names: ${NAME} from the environment, ${file:path} from a file.

    Parameters
    ----------
    location
        As it is in the configuration; what is no address stays as it is.
    folder
        Where relative paths start.
    """
    if _ADDRESS.match(location) is None:
        return location
    found = _FILE.sub(lambda match: match[1] + quote(str(folder / match[2])), location)
    return _NAMED.sub(lambda match: quote(_value(match[1], folder), safe=""), found)


def _value(name: str, folder: Path) -> str:
    if name.startswith("file:"):
        return _content(name[5:], folder)
    if _VARIABLE.fullmatch(name) is None:
        raise InvalidParameter(
            "location",
            f"${{{name[:40]}}}",
            "the name of a variable, or file: and a path",
            "write ${MQTT_PASSWORD}",
        )
    if name in os.environ:
        return os.environ[name]
    if f"{name}_FILE" in os.environ:
        return _content(os.environ[f"{name}_FILE"], folder)
    raise InvalidParameter(
        "location",
        f"${{{name}}}",
        "a variable of the environment, and there is none of that name",
        f"set {name}, or {name}_FILE to a file that holds it",
    )


def _content(path: str, folder: Path) -> str:
    try:
        with (folder / path).open("rb") as file:
            return file.read(_LARGEST).decode().rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InvalidParameter(
            "location", f"${{file:{path}}}", f"a file that can be read ({reason})", "make it readable"
        ) from None
