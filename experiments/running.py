"""How experiments run mechanisms: in sessions in memory, and what papers print, which no session takes, without one."""

from __future__ import annotations

from typing import Any

from tidegate.audit import direct
from tidegate.core.session import Session


def releases_of(mechanism: Any, values: Any) -> Any:
    """The releases of a whole stream."""
    if isinstance(mechanism, direct.Printed):
        return direct.released(mechanism, values)
    return Session(mechanism).push_batch(values)
