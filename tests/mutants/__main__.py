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
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import mutate
import select_tests
import trace_tests
from mutate import ROOT, Mutant
from trace_tests import Map

from tidegate.audit import patching

RESULTS = ROOT / "build" / "mutants.jsonl"
MAP = ROOT / "build" / "mutants_map.json"
EXPLAINED = Path(__file__).with_name("explained.toml")
KILLED, SURVIVED = "killed", "survived"
BUDGET = 60.0  # seconds of processor time in tests that a mutant has to survive
COMPILING = 240.0  # seconds more where kernels are compiled anew
RUNS_ON = 120.0  # seconds of processor time beyond that, after which it is said to run for ever


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: killed or survived, by which test or after how many, and its processor time."""

    key: str
    outcome: str
    by: str
    seconds: float


class Runner:
    """Runs mutants and keeps what became of them."""

    def __init__(self, results: Path, traced: Map, budget: float) -> None:
        self.results = results
        self.traced = traced
        self.budget = budget
        self._lock = threading.Lock()
        self._nurseries = threading.local()
        self.done: dict[str, Outcome] = {}
        results.parent.mkdir(parents=True, exist_ok=True)
        for line in results.read_text(encoding="utf-8").splitlines() if results.exists() else []:
            outcome = Outcome(**json.loads(line))
            self.done[outcome.key] = outcome

    def run(self, mutant: Mutant) -> Outcome:
        """The tests that run its lines; where none does, those nearest to its module."""
        if not hasattr(self._nurseries, "own"):
            self._nurseries.own = Nursery()
        chosen = self._within_budget(self.traced.tests_of(mutant))
        while True:
            by, seconds = self._attempt(mutant, mutant.source(), chosen)
            if by not in chosen or not self._attempt(mutant, mutant.original(), [by])[0]:
                break
            chosen.remove(by)  # it fails without the mutant as well, now and then
        outcome = Outcome(
            mutant.key, KILLED if by else SURVIVED, by or f"{len(chosen)} tests", round(seconds, 1)
        )
        with self._lock, self.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(outcome.__dict__, ensure_ascii=False) + "\n")
        self.done[mutant.key] = outcome
        return outcome

    def _attempt(self, mutant: Mutant, source: str, tests: Sequence[str]) -> tuple[str, float]:
        """(what failed or nothing, seconds of processor time) with a text in the place of the mutant's module."""
        kernel = patching.is_kernel(mutant.module) and source == mutant.source()
        with tempfile.TemporaryDirectory(prefix="tidegate-mutant-") as folder:
            request = {
                "module": mutant.module,
                "source": source,
                "files": sorted({name.partition("::")[0] for name in tests})
                or select_tests.nearest(mutant.module),
                "tests": tests,
                "seconds": self.budget + kernel * COMPILING,
                "cache": patching.own_cache([mutant.module], Path(folder)) if kernel else "",
                "answer": str(Path(folder) / "answer"),
            }
            by, seconds = self._nurseries.own.run(request)
        return by, seconds

    def _within_budget(self, names: Sequence[str]) -> list[str]:
        spent, chosen = 0.0, []
        for name in names:
            spent += self.traced.tests[name].seconds
            if chosen and spent > self.budget:
                break
            chosen.append(name)
        return chosen


class Nursery:
    """A process that has imported all libraries and forks for each mutant, so that none waits for them."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--nursery"],
            cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "CI": "", "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip

    def run(self, request: Mapping[str, object]) -> tuple[str, float]:
        """(what killed the mutant or nothing, seconds of processor time)."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        by, seconds = json.loads(self._process.stdout.readline())
        return by, seconds


def nursery() -> int:
    """Fork for each line of the input, run its mutant in the child, and say what killed it."""
    import hypothesis  # noqa: F401
    import numba  # noqa: F401
    import numpy  # noqa: F401
    import polars  # noqa: F401
    import pytest  # noqa: F401

    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    silent = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):  # what the tests print is nobody's
        os.dup2(silent, number)
    for line in requests:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                os._exit(attempt(request))
            except BaseException:  # also where pytest itself breaks on the mutant
                os._exit(70)
        _, status, usage = os.wait4(child, 0)
        by = ""
        if status:
            answer = Path(request["answer"])
            by = answer.read_text(encoding="utf-8") if answer.exists() else _ended(status)
        answers.write(json.dumps([by, usage.ru_utime + usage.ru_stime]) + "\n")
        answers.flush()
    return 0


def _ended(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return "runs for ever" if code == -signal.SIGXCPU else f"ends with {code}"


def attempt(request: Mapping[str, Any]) -> int:
    """Run the chosen tests in this process, with the mutant in place; 0 if they all pass."""
    import pytest

    limit = int(request["seconds"] + RUNS_ON)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 10))
    if request["cache"]:
        os.environ["NUMBA_CACHE_DIR"] = request["cache"]
    patching.install_sources({request["module"]: request["source"]})
    wanted = {name: at for at, name in enumerate(request["tests"])}

    class Chosen:
        """Runs the tests in their order, and notes the first that fails."""

        def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
            """Only the chosen ones, in the order of the choice."""
            if wanted:
                items[:] = sorted(
                    (item for item in items if item.nodeid in wanted), key=lambda item: wanted[item.nodeid]
                )

        def pytest_runtest_setup(self, item: pytest.Item) -> None:
            """What is left is not run when the time is up."""
            if time.process_time() > request["seconds"] + 30:
                pytest.skip("the time is up")

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            """Note what failed."""
            if report.failed:
                Path(request["answer"]).write_text(report.nodeid, encoding="utf-8")

    arguments = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "--hypothesis-seed=1",
                 "-W", "ignore::pytest.PytestAssertRewriteWarning"]  # fmt: skip
    code = int(pytest.main([*arguments, *request["files"]], plugins=[Chosen()]))
    return 0 if code == 5 else code  # 5: no test was selected


def page(mutants: Sequence[Mutant], done: dict[str, Outcome]) -> str:
    """The table of all mutants that have been run, as Markdown."""
    explained = tomllib.loads(EXPLAINED.read_text(encoding="utf-8")) if EXPLAINED.exists() else {}
    run = [mutant for mutant in mutants if mutant.key in done]
    killed = sum(done[mutant.key].outcome == KILLED for mutant in run)
    survivors = [mutant for mutant in run if done[mutant.key].outcome == SURVIVED]
    unexplained = [mutant for mutant in survivors if mutant.key not in explained]
    text = [
        HEAD.format(
            run=len(run),
            sampled=len(mutants),
            killed=killed,
            survived=len(survivors),
            explained=len(survivors) - len(unexplained),
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

Written by `make mutants`, which goes on where it stopped: {run} of {sampled} have been run so far. Small mistakes are
made, one at a time, in lines of `mechanisms/`, `ledger/` and `noise/` that hold scales, charges, sensitivities and
comparisons, and the tests of these rooms that run the line are run against each, the quickest first, for a minute of
processor time. {killed} were noticed, {survived} were not. Of those {explained} are explained below: they change nothing
that can be observed, or nothing that matters for privacy, or a test has been added since. The choice is by a hash, so
that it does not depend on anybody.
"""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what has not been run yet; 0 if every survivor is explained."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--nursery"]:
        return nursery()
    parser = argparse.ArgumentParser(prog="python tests/mutants", description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=400, help="how many are sampled")
    parser.add_argument("--only", default="", help="a part of the paths or keys of those that are run")
    parser.add_argument("--first", type=int, help="run at most so many now")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, help="the Markdown page that is written")
    parser.add_argument(
        "--map", type=Path, default=MAP, help="which tests run what; made once where it is missing"
    )
    parser.add_argument(
        "--budget", type=float, default=BUDGET, help="seconds of tests that a mutant has to survive"
    )
    parser.add_argument("--again", action="store_true", help="run survivors once more")
    chosen = parser.parse_args(given)
    every = mutate.sampled(chosen.count)
    if not chosen.map.exists():
        print("the tests run once, to see which of them run what", flush=True)
        trace_tests.make(chosen.map, chosen.workers)
    runner = Runner(chosen.results, Map(chosen.map), chosen.budget)
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
