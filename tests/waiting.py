"""Waiting for a condition, never for a duration."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

LIMIT = 600.0  # seconds after which something hangs; no machine that works is as slow as that


def until(condition: Callable[[], Any], seconds: float = LIMIT) -> Any:
    """Wait until something is so; what the condition returned then."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"it did not come to that within {seconds:.0f} seconds: it hangs."
        time.sleep(0.02)
    return found
