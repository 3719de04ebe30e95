"""Two versions of the package against each other: processor time of the same work, new over old.

    git worktree add ../before v0.1.0
    python benchmarks/compare.py ../before [--cases push Tide] [--rounds 5]

Every version and case has a process of its own, old and new take turns, and each counts the best of five; what is printed
is the median of the rounds. Machine code of each version is kept apart. Cases are written for what both versions have:
"own noise" is Laplace noise of its own at each step, "default" whatever a version uses by itself.
"""

from __future__ import annotations

import argparse
import inspect
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
LEAST = 0.1  # seconds that are timed at once
INSIDE = 5  # of which the best counts
SCALAR = {  # options beside the policy, and w
    "Uniform": ({}, 24),
    "Sample": ({}, 24),
    "BudgetDistribution": ({}, 120),
    "BudgetAbsorption": ({}, 120),
    "Fast": ({}, 120),
    "RescueDP": ({}, 120),
    "PeGaSus": ({}, 24),
    "OptStream": ({"samples": 12}, 48),
    "BinaryTree": ({"horizon": 2**24}, 0),
    "SlidingWindowTree": ({"window": 256}, 0),
    "Tide": ({"periods": (48, 336)}, 120),
}
SHARING = ("Uniform", "BudgetDistribution", "BudgetAbsorption", "Fast", "PeGaSus", "OptStream")
WIDE = ("Uniform", "Sample", "BudgetDistribution", "BudgetAbsorption", "Fast", "RescueDP", "Tide")


def mechanism(name: str, columns: int = 1, own: bool = True) -> Any:
    """A mechanism of whichever version is imported."""
    import tidegate as tg

    form = getattr(tg.mechanisms, name)
    options, w = SCALAR[name]
    accepted = inspect.signature(form).parameters
    more: dict[str, Any] = {"noise": "laplace"} if own and name in SHARING and "noise" in accepted else {}
    if columns > 1:
        more["columns"] = columns
    return form(tg.WEvent(epsilon="1", window=w) if w else tg.Event(epsilon="1"), **options, **more)


def opened(made: Any) -> Any:
    """A session in memory; what versions before 1.0 have instead."""
    before = getattr(made, "start", None)
    if before is not None:
        return before()
    from tidegate.core.session import Session

    return Session(made)


def stream(steps: int, columns: int = 1) -> Any:
    """Counts with a daily swing."""
    import numpy as np

    swing = (
        500 + 300 * np.sin(np.arange(steps) / 48 * 2 * np.pi) + np.random.default_rng(2).normal(0, 20, steps)
    )
    return (
        swing[:, np.newaxis] * np.linspace(0.1, 2, columns) if columns > 1 else swing[:, np.newaxis]
    ).astype("i8")


def pushed(name: str, own: bool = True) -> Callable[[], object]:
    session, values = opened(mechanism(name, own=own)), stream(960)[:, 0].tolist()
    return lambda: [session.push(value) for value in values]


def batched(name: str, steps: int, columns: int = 1, own: bool = True) -> Callable[[], object]:
    """Whole sessions of a batch each, so that all kinds of steps are in it."""
    made, rows = mechanism(name, columns, own), stream(steps, columns)
    return lambda: opened(made).push_batch(rows)


def in_parts(name: str, own: bool = True) -> Callable[[], object]:
    """One session, in batches of 48 steps."""
    session, rows = opened(mechanism(name, own=own)), stream(48)
    return lambda: session.push_batch(rows)


def cases() -> Iterator[tuple[str, Callable[[], Callable[[], object]]]]:
    """What is timed, by name; each makes itself ready and answers with the work."""
    for name in SCALAR:
        yield f"push {name}", lambda name=name: pushed(name)
        yield f"batches of 48 {name}", lambda name=name: in_parts(name)
        yield f"batch of 100,000 {name}", lambda name=name: batched(name, 100_800)
    for name in SHARING:
        yield f"push {name}, default", lambda name=name: pushed(name, own=False)
        yield f"batch of 100,000 {name}, default", lambda name=name: batched(name, 100_800, own=False)
    for name in WIDE:
        yield f"240 × 10,000 {name}", lambda name=name: batched(name, 240, 10_000)


def seconds(work: Callable[[], object]) -> float:
    """The least processor time of one call, warm."""
    work()
    repeats, found = 1, float("inf")
    while True:
        begin = time.process_time()
        for _ in range(repeats):
            work()
        taken = time.process_time() - begin
        if taken > LEAST / 2:
            break
        repeats *= 2
    for _ in range(INSIDE):
        begin = time.process_time()
        for _ in range(repeats):
            work()
        found = min(found, (time.process_time() - begin) / repeats)
    return found


def elsewhere(tree: Path, name: str, caches: Path) -> float | None:
    """The time of a case in a process that imports the package from a tree; None where it cannot be run."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    place = {"PYTHONPATH": str(tree / "src"), "NUMBA_CACHE_DIR": str(caches / tree.name)}
    command = [sys.executable, "-W", "ignore", str(HERE), str(tree), "--alone", name]
    done = subprocess.run(
        command, env={**os.environ, **threads, **place}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"{name} cannot be run in {tree}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, help="the folder of the other version")
    parser.add_argument("--cases", nargs="*", default=[], help="words, all of which a case's name has")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--caches", type=Path, default=Path(tempfile.gettempdir(), "tidegate-compare"))
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        print(seconds(dict(cases())[options.alone]()))
        return
    trees = {"old": options.old.resolve(), "new": HERE.parent.parent}
    chosen = [name for name, _ in cases() if all(word in name for word in options.cases)]
    print(f"{'':44} {'old':>10} {'new':>10} {'new/old':>8}   all rounds")
    for name in chosen:
        found: dict[str, list[float]] = {which: [] for which in trees}
        for _ in range(options.rounds):
            taken = {which: elsewhere(tree, name, options.caches) for which, tree in trees.items()}
            if None in taken.values():
                break
            for which, one in taken.items():
                found[which].append(one or 0.0)
        if not found["new"]:
            continue
        ratios = [new / old for old, new in zip(found["old"], found["new"], strict=True)]
        old, new, ratio = map(statistics.median, (found["old"], found["new"], ratios))
        shown = " ".join(f"{each:.2f}" for each in ratios)
        print(f"{name:44} {old * 1e6:8.1f}µs {new * 1e6:8.1f}µs {ratio:8.2f}   {shown}", flush=True)


if __name__ == "__main__":
    main()
