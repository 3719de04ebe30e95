"""How large benchmarks are: the usual size takes a minute or two, ``--full`` is that of the documentation's tables.

With TIDEGATE_SMALL set everything is a run of seconds, to see that it still works.
"""

from __future__ import annotations

import os
import sys
from typing import Any

SMALL = bool(os.environ.get("TIDEGATE_SMALL"))
FULL = "--full" in sys.argv


def scaled(full: Any, small: Any, usual: Any = None) -> Any:
    """The size of this run; the usual one is the full one where no other is given."""
    if SMALL:
        return small
    return full if FULL or usual is None else usual
