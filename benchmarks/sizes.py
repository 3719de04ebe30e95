"""How large benchmarks are: in full, or with TIDEGATE_SMALL set a run of seconds, to see that everything still works."""

from __future__ import annotations

import os
from typing import Any

SMALL = bool(os.environ.get("TIDEGATE_SMALL"))


def scaled(full: Any, small: Any) -> Any:
    """The full size, or the small one."""
    return small if SMALL else full
