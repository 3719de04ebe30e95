"""Run the tests against sampled mutants of the code on which privacy hangs: ``make mutants``.

``python tests/mutants --count 400`` goes on where it stopped: results stand in ``outcomes.jsonl`` beside this file.
``--page tests/reports/mutants.md`` writes the table of all that have been run, with the survivors and what
`tests/mutants/explained.toml` says about them. Code is changed in memory, in processes of their own; files stay as
they are.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import mutate
import select_tests
import switches
from mutate import Mutant
from tests.audit import patching

RESULTS = Path(__file__).with_name("outcomes.jsonl")
EXPLAINED = Path(__file__).with_name("explained.toml")
KILLED, SURVIVED = "killed", "survived"
EARLIER = "earlier run"  # what stands for a test where only the outcome is known
NEAR = "near tests"  # what ends the words about a survivor that only the tests nearest to it have tried
BUDGET = 10.0  # seconds of processor time in tests that a mutant has to survive


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: killed or survived, by which test or after how many, and its processor time."""

    key: str
    outcome: str
    by: str
    seconds: float


def read(results: Path) -> dict[str, Outcome]:
    """What is known already, by key."""
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    return {outcome.key: outcome for outcome in (Outcome(**json.loads(line)) for line in lines)}


def attack(
    mutants: Sequence[Mutant],
    tests: Sequence[str],
    budget: float,
    results: Path,
    kernels: bool,
    near: bool,
    tier: str,
) -> None:
    """Run the tests against mutants in this process and its children, and note what became of each."""
    results.parent.mkdir(parents=True, exist_ok=True)
    terminal = os.fdopen(os.dup(1), "w")
    silent = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):  # what the tests print is nobody's
        os.dup2(silent, number)

    def say(each: switches.Alive, by: str) -> None:
        mutant = each.mutant
        tried = f"{each.tests} {NEAR if near else 'tests'}"
        outcome = Outcome(mutant.key, KILLED if by else SURVIVED, by or tried, round(each.seconds, 1))
        if not by and (not each.tests or (tests is not switches.ROOMS and not near)):
            return  # some tests only, or none that reaches it: that they do not notice it says little
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(outcome.__dict__, ensure_ascii=False) + "\n")
        where = f"{mutant.path}:{mutant.line}"
        print(f"{outcome.outcome:<8} {outcome.seconds:6.1f} s  {mutant.key} {where} {_cell(mutant.before)}"
              f" → {_cell(mutant.after)}", file=terminal, flush=True)  # fmt: skip

    switches.serve(mutants, tests, budget, kernels, say, near, tier)


def page(mutants: Sequence[Mutant], done: dict[str, Outcome], budget: float) -> str:
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
            earlier=sum(done[mutant.key].by == EARLIER for mutant in run),
            near=sum(done[mutant.key].by.endswith(NEAR) for mutant in survivors),
            unreached=sum(done[mutant.key].by == f"0 {NEAR}" for mutant in survivors),
            budget=budget,
        )
    ]
    if len(run) < len(mutants):
        text.append(UNFINISHED.format(left=len(mutants) - len(run)))
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
made, one at a time, in lines of `mechanisms/`, `core/` and `noise/` that hold scales, charges, sensitivities and
comparisons. Each stands behind a switch. The tests of these rooms run one after the other, and after each the mutants
that it reached are tried with the same test, until they are noticed or have had {budget:.0f} seconds of processor time.
Those of kernels are switched in machine code. {killed} were noticed, {survived} were not.
Of those {explained} are explained below: they change nothing that can be observed, or nothing that matters for
privacy. The choice is by a hash, so that it does not depend on anybody. Of {earlier} the outcome was taken over from an
earlier run: the same mistakes, while other lines of the code have changed since. {near} of the survivors were tried with
the tests nearest to them only (`--near`): the files that import the module most directly, and the conformance suite of
its family; {unreached} of these stand in lines that no test of them runs.
"""
UNFINISHED = """
The others that have been run are not the first ones by the hash: those on which most hangs came first, each with a few
tests that should notice it, and one that these did not notice counts as not yet run. So the part that was noticed says
nothing about the {left} that are left.
"""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what has not been run yet; 0 if every survivor is explained."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python tests/mutants", description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=400, help="how many are sampled")
    parser.add_argument(
        "--only", nargs="+", default=[""], help="parts of the paths or keys of those that are run"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, help="the Markdown page that is written")
    parser.add_argument(
        "--budget", type=float, default=BUDGET, help="seconds of tests that a mutant has to survive"
    )
    parser.add_argument("--tests", nargs="+", default=switches.ROOMS, help="the files of tests that are run")
    parser.add_argument(
        "--near", action="store_true", help="run the files nearest to each, and the conformance of its family"
    )
    parser.add_argument(
        "--tier", default="", help="which tests, as -m of pytest: 'not slow' are the quick ones"
    )
    parser.add_argument("--again", action="store_true", help="run survivors once more")
    parser.add_argument(
        "--kernels", choices=("with", "without", "alone"), default="with", help="which are run"
    )
    chosen = parser.parse_args(given)
    every = mutate.sampled(chosen.count)
    known = read(chosen.results)
    wanted = [
        mutant for mutant in every if any(part in f"{mutant.path} {mutant.key}" for part in chosen.only)
    ]
    waiting = [
        mutant
        for mutant in wanted
        if mutant.key not in known or (chosen.again and known[mutant.key].outcome == SURVIVED)
    ]
    tests = select_tests.near(mutant.module for mutant in waiting) if chosen.near else chosen.tests
    processes = []
    for kernels in (False, True):
        own = [mutant for mutant in waiting if patching.is_kernel(mutant.module) == kernels]
        if own and chosen.kernels != ("alone", "without")[kernels]:
            child = os.fork()
            if child == 0:
                attack(own, tests, chosen.budget, chosen.results, kernels, chosen.near, chosen.tier)
                os._exit(0)
            processes.append(child)
    for child in processes:
        os.waitpid(child, 0)
    known = read(chosen.results)
    run = [known[mutant.key] for mutant in wanted if mutant.key in known]
    survivors = sum(outcome.outcome == SURVIVED for outcome in run)
    print(f"{len(run)} of {len(wanted)} run, {len(run) - survivors} killed, {survivors} survived")
    if chosen.page is not None:
        chosen.page.write_text(page(every, known, chosen.budget), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
