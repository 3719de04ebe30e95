"""What a first use costs: processor time of fresh processes, children included, with an empty cache of machine code.

Bars are those of an idle machine with two cores. `--help` and the first push of a process are measured warm.

    python benchmarks/first_use.py
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from timing import bar

BATCH = """
import numpy as np, tidegate as tg
from tidegate.mechanisms import {name}
tg.open({name}(tg.{policy}, columns=3)).push_batch(np.random.default_rng(1).integers(0, 50, (200, 3)))
"""
PUSH = """
import time, tidegate as tg
from tidegate.mechanisms import Uniform
session = tg.open(Uniform(tg.WEvent(epsilon="1", window=24)))
start = time.perf_counter()
session.push(12)
print(time.perf_counter() - start)
"""
FIRST_BATCHES = (
    ("Uniform", "WEvent(epsilon='1', window=100)", 3.0),
    ("BudgetAbsorption", "WEvent(epsilon='1', window=100)", 5.0),
    ("PeGaSus", "Event(epsilon='1')", 4.0),
    ("Tide", "WEvent(epsilon='1', window=100)", 10.0),
)
PREPARE = (  # a small file, and a configuration whose mechanism Tidegate chooses
    "datasets make campus --out wifi --weeks 1",
    "init wifi/events.csv --out wifi/stream.toml --unit device --start 2026-03-02 --count 168",
)
TIDEGATE = (sys.executable, "-m", "tidegate")


def run(command: tuple[str, ...], cache: Path, folder: Path) -> tuple[float, float, str]:
    """Processor time and wall time of a process with its children, and what it printed."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # pip compiles to bytecode when it installs
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, wall, done.stdout


def cold(name: str, command: tuple[str, ...], most: float, folder: Path) -> None:
    """Measure a command with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        used, _, _ = run(command, Path(cache), folder)
    bar(f"{name}: {used:.1f} s of processor time, cold", used <= most, f"{most:g} s")


def main() -> None:
    """All that has a bar."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        run((*TIDEGATE, "doctor"), folder / "cache", folder)  # bytecode, as an installation has it
        for name, policy, most in FIRST_BATCHES:
            code = BATCH.format(name=name, policy=policy)
            cold(f"first batch of {name}", (sys.executable, "-c", code), most, folder)
        cold("tidegate demo", (*TIDEGATE, "demo"), 20.0, folder)
        cache = folder / "cache"
        for words in PREPARE:
            run((*TIDEGATE, *words.split()), cache, folder)
        cold("first release of a small file", (*TIDEGATE, "release", "wifi/stream.toml"), 15.0, folder)
        for _ in range(2):
            _, wall, _ = run((*TIDEGATE, "--help"), cache, folder)
        bar(f"tidegate --help: {wall:.2f} s by the wall, warm", wall <= 0.15, "0.15 s")
        for _ in range(2):
            _, _, said = run((sys.executable, "-c", PUSH), cache, folder)
        bar(f"first push of a process: {float(said):.2f} s by the wall, warm", float(said) <= 0.5, "0.5 s")


if __name__ == "__main__":
    main()
