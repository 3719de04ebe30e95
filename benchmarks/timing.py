"""How the benchmarks measure: one thread, warm, rivals interleaved, the best of several rounds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

for variable in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(variable, "1")


def best(rivals: dict[str, Callable[[], Any]], rounds: int = 7) -> dict[str, float]:
    """The best time of each rival in seconds, interleaved, after one warm-up each."""
    times = dict.fromkeys(rivals, float("inf"))
    for function in rivals.values():
        function()
    for _ in range(rounds):
        for name, function in rivals.items():
            start = time.perf_counter()
            function()
            times[name] = min(times[name], time.perf_counter() - start)
    return times
