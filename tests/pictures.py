"""Pictures of the documentation and the scripts that draw them: `python tests/pictures.py` names those that are stale.

docs/pictures/made.toml has for every script its command, its pictures, and a digest of both. Who changes a script draws
its pictures again (or looks whether they would be the same) and says so: `python tests/pictures.py --accept SCRIPT`.
"""

from __future__ import annotations

import hashlib
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
LIST = PICTURES / "made.toml"


def made() -> list[dict[str, Any]]:
    """What the list says: scripts, commands, pictures and digests."""
    with LIST.open("rb") as file:
        found: list[dict[str, Any]] = tomllib.load(file)["made"]
    return found


def digest(entry: dict[str, Any]) -> str:
    """A digest of a script and of its pictures, as they are now."""
    found = hashlib.sha256((ROOT / entry["script"]).read_bytes())
    for name in entry["pictures"]:
        found.update(name.encode() + b"\0" + (PICTURES / name).read_bytes())
    return found.hexdigest()[:16]


def stale() -> list[str]:
    """A sentence for each script that was changed after its pictures were drawn."""
    return [
        f"{entry['script']} or its pictures changed; run `{entry['command']}`, look at them, and say so with "
        f"`python tests/pictures.py --accept {entry['script']}`."
        for entry in made()
        if digest(entry) != entry["digest"]
    ]


def accept(script: str) -> None:
    """Write down that the pictures of a script are as it draws them."""
    text = LIST.read_text(encoding="utf-8")
    for entry in made():
        if entry["script"] == script:
            before, after = text.split(f'script = "{script}"\n', 1)
            text = before + f'script = "{script}"\n' + after.replace(entry["digest"], digest(entry), 1)
    LIST.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--accept"]:
        for each in sys.argv[2:]:
            accept(each)
    sys.exit("\n".join(stale()) or None)
