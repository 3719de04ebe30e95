"""Run the tests against sampled mutants of the code on which privacy hangs: ``make mutants``.

``python tests/mutants --count 400`` goes on where it stopped: results stand in ``build/mutants.jsonl``, one line each.
``--page docs/mutants.md`` writes the table of all that have been run, with the survivors and what
`tests/mutants/explained.toml` says about them. Code is changed in memory, in processes of their own; files stay as
they are.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import mutate
import select_tests
from mutate import ROOT, Mutant

from tidegate.audit import patching

RESULTS = ROOT / "build" / "mutants.jsonl"
EXPLAINED = Path(__file__).with_name("explained.toml")
KILLED, SURVIVED = "killed", "survived"
PATIENCE = 4  # a stage may take so many times as long as without the mutant, and a minute more
LIMIT = 600.0  # seconds of a stage without any mutant


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: killed or survived, and the stage that killed it or how many it survived."""

    key: str
    outcome: str
    by: str
    seconds: float


class Runner:
    """Runs mutants; knows how long stages take without one."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self._lock = threading.Lock()
        self._usual: dict[str, float] = {}
        self.done: dict[str, Outcome] = {}
        results.parent.mkdir(parents=True, exist_ok=True)
        for line in results.read_text(encoding="utf-8").splitlines() if results.exists() else []:
            entry = json.loads(line)
            if "stage" in entry:
                self._usual[entry["stage"]] = entry["seconds"]
            else:
                self.done[entry["key"]] = Outcome(**entry)

    def run(self, mutant: Mutant) -> Outcome:
        """All stages until one fails."""
        begun = time.monotonic()
        stages = select_tests.stages(mutant.module)
        outcome = Outcome(mutant.key, SURVIVED, f"{len(stages)} stages", 0.0)
        for stage in stages:
            usual = self._usually(stage)
            if usual is None:
                continue  # these tests fail or take too long without any mutant
            if not _passes(stage, PATIENCE * usual + 60, mutant):
                outcome = Outcome(mutant.key, KILLED, " ".join(stage)[:80], 0.0)
                break
        seconds = round(time.monotonic() - begun, 1)
        outcome = Outcome(outcome.key, outcome.outcome, outcome.by, seconds)
        self._write(outcome.__dict__)
        self.done[mutant.key] = outcome
        return outcome

    def _usually(self, stage: list[str]) -> float | None:
        """How long a stage takes without a mutant, in seconds; None where it does not pass."""
        name = " ".join(stage)
        if name not in self._usual:
            begun = time.monotonic()
            good = _passes(stage, LIMIT, None)
            self._usual[name] = time.monotonic() - begun if good else -1.0
            self._write({"stage": name, "seconds": round(self._usual[name], 1)})
        return self._usual[name] if self._usual[name] >= 0 else None

    def _write(self, entry: dict[str, object]) -> None:
        with self._lock, self.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def _passes(stage: list[str], limit: float, mutant: Mutant | None) -> bool:
    """Whether the tests pass, in a process of their own, within a time limit."""
    command = [sys.executable, str(Path(__file__).resolve()), "--child", *stage]
    environment = {**os.environ, "CI": "", "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryDirectory(prefix="tidegate-mutant-") as folder:
        if mutant is not None:
            file = Path(folder) / "mutant.json"
            file.write_text(json.dumps({mutant.module: mutant.source()}), encoding="utf-8")
            environment["TIDEGATE_MUTANT"] = str(file)
            if patching.is_kernel(mutant.module):
                environment["NUMBA_CACHE_DIR"] = patching.own_cache([mutant.module], Path(folder))
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            return False
    return done.returncode in (0, 5)  # 5: no test was selected


def child(arguments: Sequence[str]) -> int:
    """Run pytest in this process, with the mutant in place."""
    import pytest

    if "TIDEGATE_MUTANT" in os.environ:
        patching.install_sources(json.loads(Path(os.environ["TIDEGATE_MUTANT"]).read_text(encoding="utf-8")))
    return int(pytest.main(["-x", "-q", "-n0", "-p", "no:cacheprovider", *arguments]))


def page(mutants: Sequence[Mutant], done: dict[str, Outcome]) -> str:
    """The table of all mutants that have been run, as Markdown."""
    explained = tomllib.loads(EXPLAINED.read_text(encoding="utf-8")) if EXPLAINED.exists() else {}
    run = [mutant for mutant in mutants if mutant.key in done]
    killed = sum(done[mutant.key].outcome == KILLED for mutant in run)
    survivors = [mutant for mutant in run if done[mutant.key].outcome == SURVIVED]
    unexplained = [mutant for mutant in survivors if mutant.key not in explained]
    text = [
        HEAD.format(
            run=len(run), killed=killed, survived=len(survivors), explained=len(survivors) - len(unexplained)
        )
    ]
    for title, name in (
        ("room", lambda mutant: mutant.path.split("/")[0]),
        ("kind", lambda mutant: mutant.kind),
    ):
        text.append(f"\n| {title} | run | killed |\n|---|---:|---:|\n")
        every = Counter(name(mutant) for mutant in run)
        dead = Counter(name(mutant) for mutant in run if done[mutant.key].outcome == KILLED)
        text += [f"| {each} | {count} | {dead[each]} |\n" for each, count in sorted(every.items())]
    text.append("\n## Survivors\n\n| key | where | before | after | why |\n|---|---|---|---|---|\n")
    for mutant in sorted(survivors, key=lambda each: (each.path, each.function, each.key)):
        why = explained.get(mutant.key, {}).get("why", "**not explained**")
        where = f"{mutant.path}, {mutant.function}"
        text.append(
            f"| {mutant.key} | {where} | `{_cell(mutant.before)}` | `{_cell(mutant.after)}` | {why} |\n"
        )
    return "".join(text)


HEAD = """\
# Mutants

Written by `make mutants`. {run} small mistakes were made, one at a time, in lines of `mechanisms/`, `ledger/` and
`noise/` that hold scales, charges, sensitivities and comparisons, and the tests nearest to each were run against it:
{killed} were noticed, {survived} were not. Of those {explained} are explained below: they change nothing that can be
observed, or nothing that matters for privacy. The choice is by a hash, so that it does not depend on anybody.
"""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what has not been run yet; 0 if every survivor is explained."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--child"]:
        return child(given[1:])
    parser = argparse.ArgumentParser(prog="python tests/mutants", description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=400, help="how many are sampled")
    parser.add_argument("--only", default="", help="a part of the paths or keys of those that are run")
    parser.add_argument("--first", type=int, help="run at most so many now")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, help="the Markdown page that is written")
    parser.add_argument("--again", action="store_true", help="run survivors once more")
    chosen = parser.parse_args(given)
    every = mutate.sampled(chosen.count)
    runner = Runner(chosen.results)
    wanted = [mutant for mutant in every if chosen.only in f"{mutant.path} {mutant.key}"]
    waiting = [
        mutant
        for mutant in wanted
        if mutant.key not in runner.done or (chosen.again and runner.done[mutant.key].outcome == SURVIVED)
    ][: chosen.first]

    def one(mutant: Mutant) -> None:
        outcome = runner.run(mutant)
        where = f"{mutant.path}:{mutant.line}"
        print(f"{outcome.outcome:<8} {outcome.seconds:6.1f} s  {mutant.key} {where} {_cell(mutant.before)}"
              f" → {_cell(mutant.after)}", flush=True)  # fmt: skip

    with ThreadPoolExecutor(chosen.workers) as pool:
        list(pool.map(one, waiting))
    run = [runner.done[mutant.key] for mutant in wanted if mutant.key in runner.done]
    survivors = sum(outcome.outcome == SURVIVED for outcome in run)
    print(f"{len(run)} of {len(wanted)} run, {len(run) - survivors} killed, {survivors} survived")
    if chosen.page is not None:
        chosen.page.write_text(page(every, runner.done), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
