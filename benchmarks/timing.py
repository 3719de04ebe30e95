"""How the benchmarks measure: one thread, warm, rivals interleaved, the least processor time of several rounds.

Processor time, because other programs on the machine take little of it away; where a clock on the wall is right, as for
a disk or the way to a browser, the script says so. Bars are printed by :func:`bar`; everything.py says what they mean.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sizes import SMALL, scaled

MISSED = "BAR MISSED"

for variable in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(variable, "1")


def best(rivals: dict[str, Callable[[], Any]], rounds: int = 7) -> dict[str, float]:
    """The least processor time of each rival in seconds, interleaved, after one warm-up each."""
    times = dict.fromkeys(rivals, float("inf"))
    for function in rivals.values():
        function()
    for _ in range(scaled(rounds, 1)):
        for name, function in rivals.items():
            start = time.process_time()
            function()
            times[name] = min(times[name], time.process_time() - start)
    return times


def least(function: Callable[[], Any], rounds: int = 7) -> float:
    """The least processor time of one function in seconds, after a warm-up."""
    return best({"": function}, rounds)[""]


def bar(text: str, held: bool, wanted: str = "") -> None:
    """Print a line with a number that has a bar, what is wanted, and whether it was reached."""
    verdict = "small run" if SMALL else "ok" if held else MISSED
    print(f"{text}   {f'(bar: {wanted}) ' if wanted else ''}{verdict}", flush=True)


def data_file(name: str) -> Path | None:
    """A file of the folder that TIDEGATE_DATA names; where it is not here, one sentence and None."""
    folder = os.environ.get("TIDEGATE_DATA")
    if folder and Path(folder, name).exists():
        return Path(folder, name)
    print(f"{name} is not here; set TIDEGATE_DATA to a folder that has it, and this part runs as well.")
    return None
