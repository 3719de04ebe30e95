"""How the benchmarks measure: one thread, warm, rivals interleaved, the best of several rounds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sizes import scaled

for variable in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(variable, "1")


def best(rivals: dict[str, Callable[[], Any]], rounds: int = 7) -> dict[str, float]:
    """The best time of each rival in seconds, interleaved, after one warm-up each."""
    times = dict.fromkeys(rivals, float("inf"))
    for function in rivals.values():
        function()
    for _ in range(scaled(rounds, 1)):
        for name, function in rivals.items():
            start = time.perf_counter()
            function()
            times[name] = min(times[name], time.perf_counter() - start)
    return times


def data_file(name: str) -> Path | None:
    """A file of the folder that TIDEGATE_DATA names; where it is not here, one sentence and None."""
    folder = os.environ.get("TIDEGATE_DATA")
    if folder and Path(folder, name).exists():
        return Path(folder, name)
    print(f"{name} is not here; set TIDEGATE_DATA to a folder that has it, and this part runs as well.")
    return None
