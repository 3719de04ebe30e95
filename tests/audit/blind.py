"""The blind test: mutants of shipped code that somebody wrote who has not seen the attack, and how many it catches.

``python -m tests.audit.blind tests/audit/blind_first.toml`` runs all of them, two at a time, and prints the rate with its
interval; ``make blind`` does so for every ``blind*.toml`` there. ``--page tests/reports/audit_first.md`` also puts the
table into that page, which is begun where there is none. ``--check`` only tries whether every edit can be made, ``--only
TEXT`` takes the mutants whose names contain a text, and ``--unchanged`` attacks the same configurations without any
edit: nothing may be accused then.

The file is TOML, with one table for each mutant::

    tuned = true                                  # optional, first of all: the attack was changed after a look at these

    [[mutant]]
    name = "Uniform: noise of half the scale"
    why = "scale is Δw/(2ε), so each window loses 2 ε"
    module = "tidegate.mechanisms.plain.uniform"        # in tidegate.mechanisms, .core or .noise, kernels included
    function = "Uniform.scale"                    # optional: where `find` must occur exactly once
    find = "self.units / budget.epsilon"          # exactly as it stands in the file, several lines if need be
    replace = "self.units / (2 * budget.epsilon)"
    audit = ["Uniform, w = 3"]                    # what is attacked
    loss = 2.0                                    # optional: how many times its claim it loses, if known
    subtle = true                                 # optional: a factor below 2, a rare state, one column of several

    # more than one edit: instead of module, function, find and replace
    [[mutant.edit]]
    module = "…"
    find = "…"
    replace = "…"

Each entry of ``audit`` is the name of a configuration in `tests.audit.shipped`, or a Python expression for a
mechanism, with all mechanisms of the catalogue, all policies (``Swellfish`` is the mechanism, ``SwellfishPolicy`` the
policy), ``Fraction``, ``Hierarchy``, ``ValueBins`` and ``whole_period`` at hand:
``'BinaryTree(Event(epsilon="1"), horizon=7)'``. Choose a small one on which the mutant loses more than it claims, on some
pair of streams, by releases, by decisions, by its charges, after a restart, or (pan-private) to an intruder: nothing else
is said to the auditor, neither streams nor lengths. Several entries share the error and the time. A mutant must lose more
than it claims for some input; one that only crashes, or that only loses accuracy, is not a mutant in this sense.

An edit is made in memory in a process of its own; files stay as they are. Edits of kernels compile in a folder of
their own, which takes up to a minute or two.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.audit import patching
from tests.audit.patching import Edit

from tidegate.errors import InvalidInput

ERROR = 1e-6 / 40  # of each mutant: an accusation must mean something here too
SECONDS = 55.0  # of processor time, of the attack on one mutant
ROOT = Path(__file__).resolve().parents[2]
LONGEST = 3600.0  # seconds after which a process is given up: on a busy machine it waits longer than it works
BEGIN, END = "<!-- blind test -->\n", "<!-- end of the blind test -->\n"
HAND = "<!-- by hand -->\n"  # what stands between it and the end of the section is kept
HEADING = "# Another blind test of the audit\n"  # of a page that is begun
FIELDS = {"name", "why", "module", "function", "find", "replace", "audit", "loss", "subtle", "edit"}


@dataclass(frozen=True)
class Mutant:
    """One entry of the file."""

    name: str
    why: str
    edits: tuple[Edit, ...]
    audited: tuple[str, ...]
    loss: float | None = None
    subtle: bool = False


@dataclass(frozen=True)
class Result:
    """What became of one mutant.

    Attributes
    ----------
    caught
        Whether it was accused, or failed.
    found
        The largest loss that was proved, as a multiple of the claim.
    sentence, proof
        The verdict's sentence, and pair, event and counts as JSON.
    """

    name: str
    why: str
    caught: bool
    found: float
    angle: str
    sentence: str
    seconds: float
    proof: dict[str, Any]
    evidence: list[str] = field(default_factory=list)
    subtle: bool = False


def read(path: Path | str) -> list[Mutant]:
    """The mutants of a file; anything wrong with it is one sentence."""
    try:
        with Path(path).open("rb") as file:
            entries = tomllib.load(file).get("mutant", [])
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read as TOML ({error}); see tests.audit.blind.") from None
    found = [_mutant(entry, number) for number, entry in enumerate(entries, 1)]
    names = [mutant.name for mutant in found]
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise InvalidInput(f"the name {double[0]!r} stands for more than one mutant; rename one.")
    return found


def tuned(path: Path | str) -> bool:
    """Whether the attack was changed after a look at the mutants of a file: then its rate is no estimate any more."""
    with Path(path).open("rb") as file:
        return bool(tomllib.load(file).get("tuned", False))


def _mutant(entry: dict[str, Any], number: int) -> Mutant:
    unknown = sorted(set(entry) - FIELDS)
    missing = sorted({"name", "why", "audit"} - set(entry))
    if unknown or missing:
        what = f"has the unknown field {unknown[0]!r}" if unknown else f"lacks {missing[0]!r}"
        raise InvalidInput(f"mutant {number} {what}; see tests.audit.blind for the format.")
    plain: dict[str, Any] = {
        name: entry[name] for name in ("module", "find", "replace", "function") if name in entry
    }
    edits: list[dict[str, Any]] = [plain] if plain else entry.get("edit", [])
    try:
        made = tuple(Edit(**edit) for edit in edits)
        if not made:
            raise ValueError("it has no edit.")
        patching.check(made)
    except (TypeError, ValueError, OSError, SyntaxError) as error:
        raise InvalidInput(
            f"mutant {entry['name']!r} cannot be made: {str(error).rstrip('.')}; mend its edit."
        ) from None
    audited = entry["audit"]
    configurations = (audited,) if isinstance(audited, str) else tuple(audited)
    subtle = bool(entry.get("subtle", False))
    return Mutant(
        entry["name"], " ".join(entry["why"].split()), made, configurations, entry.get("loss"), subtle
    )


def attack_one(mutant: Mutant, seconds: float, error: float, *, unchanged: bool = False) -> Result:
    """Attack one mutant in this process, which must not have imported what it changes."""
    begun = time.process_time()
    if not unchanged:
        patching.install(mutant.edits)
    from tests.audit.attack import attack

    from tidegate.audit.verdicts import CLEAN

    share = len(mutant.audited)
    worst = None
    for words in mutant.audited:
        verdict = attack(configuration(words), error=error / share, seconds=seconds / share, name=mutant.name)
        if worst is None or verdict.ratio > worst.ratio:
            worst = verdict
        if verdict.outcome != CLEAN:
            worst = verdict
            break
    assert worst is not None
    described = worst.describe()
    proof = {name: described[name] for name in ("pair", "event", "counts", "trials", "tester", "error")}
    return Result(
        mutant.name,
        mutant.why,
        worst.outcome != CLEAN,
        worst.ratio,
        worst.angle,
        str(worst),
        time.process_time() - begun,
        proof,
        worst.evidence(),
    )


def configuration(words: str) -> Any:
    """A shipped configuration by its name, or what an expression makes."""
    from fractions import Fraction

    from tests.audit.shipped import shipped

    from tidegate import policy
    from tidegate.mechanisms import catalogue
    from tidegate.mechanisms.clipped_records import ClippedRecords
    from tidegate.mechanisms.clipping.threshold import Threshold
    from tidegate.mechanisms.optstream.feature_trees import whole_period
    from tidegate.structures.hierarchy import Hierarchy
    from tidegate.structures.value_bins import ValueBins

    for each in shipped():
        if each.name == words:
            return each.mechanism
    names = {name: getattr(policy, name) for name in policy.__all__}
    names["SwellfishPolicy"] = policy.Swellfish
    names |= catalogue()
    names |= {"Fraction": Fraction, "Hierarchy": Hierarchy, "whole_period": whole_period}
    names |= {"ClippedRecords": ClippedRecords, "Threshold": Threshold, "ValueBins": ValueBins}
    try:
        return eval(words, names)  # the file is part of the repository, and so is what it says
    except Exception as error:
        raise InvalidInput(
            f"{words!r} is neither the name of a shipped configuration nor an expression for one "
            f"({type(error).__name__}: {error})."
        ) from None


def run(
    path: Path,
    mutants: Sequence[Mutant],
    *,
    seconds: float = SECONDS,
    processes: int = 2,
    unchanged: bool = False,
) -> list[Result]:
    """Attack each mutant in a process of its own."""

    def one(mutant: Mutant) -> Result:
        result = replace(_in_a_process(path, mutant, seconds, unchanged), subtle=mutant.subtle)
        print(_line(result), flush=True)
        return result

    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(one, mutants))


def _in_a_process(path: Path, mutant: Mutant, seconds: float, unchanged: bool) -> Result:
    begun = time.monotonic()
    command = [sys.executable, "-m", "tests.audit.blind", str(path), "--child", mutant.name]
    command += ["--seconds", str(seconds), *(["--unchanged"] if unchanged else [])]
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory(prefix="tidegate-blind-") as folder:
        if patching.touches_kernels(mutant.edits) and not unchanged:
            # machine code of a mutant is nobody else's
            environment["NUMBA_CACHE_DIR"] = patching.own_cache(
                [edit.module for edit in mutant.edits], Path(folder)
            )
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False
            )
        except subprocess.TimeoutExpired:
            sentence = f"it was given up after {LONGEST:g} s."
            return Result(mutant.name, mutant.why, False, 0.0, "", sentence, time.monotonic() - begun, {})
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["without a word"])[-1]
        sentence = f"it could not be attacked: {last}"
        return Result(mutant.name, mutant.why, False, 0.0, "", sentence, time.monotonic() - begun, {})
    return Result(**json.loads(done.stdout.splitlines()[-1]))


def _line(result: Result) -> str:
    mark = "caught " if result.caught else "escaped"
    lines = [f"{mark} {result.seconds:6.1f} s  {result.sentence}"]
    return "\n".join(lines + [f"    {line}" for line in result.evidence if result.caught])


def section(
    results: Sequence[Result], file: str = "tests/audit/blind_first.toml", *, tuned: bool = False
) -> str:
    """The part of the page about one set of mutants, as Markdown."""
    caught = sum(result.caught for result in results)
    low, high = interval(caught, len(results))
    text = [
        "## The blind test\n\n",
        f"{caught} of {len(results)} mutants were caught: {caught / max(len(results), 1):.0%}",
        "" if tuned else f", with 95 % confidence between {low:.0%} and {high:.0%} (Clopper and\nPearson)",
        _of_subtle(results),
        ". They are changes of shipped code, written by somebody who had not seen the attack",
        SEEN if tuned else BLIND,
        INTRODUCTION.format(file=file),
        "| mutant | why it is wrong | found | by |\n|---|---|---:|---|\n",
    ]
    for result in results:
        name = f"{result.name} (subtle)" if result.subtle else result.name
        by = (result.proof.get("tester") or "–") + (f", {result.angle}" if result.angle else "")
        found = f"{result.found:.3g}" if result.caught else f"**escaped** ({result.found:.3g})"
        text.append(f"| {name} | {result.why} | {found} | {by} |\n")
    escaped = [result for result in results if not result.caught]
    if escaped:
        text.append("\nWhat escaped:\n\n")
        text += [f"- {result.name}: {result.sentence}\n" for result in escaped]
    return "".join(text) + "\n"


def _of_subtle(results: Sequence[Result]) -> str:
    """How many of the subtle ones were caught, where any are known to be subtle."""
    subtle = [result.caught for result in results if result.subtle]
    return f", and {sum(subtle)} of the {len(subtle)} subtle ones" if subtle else ""


BLIND = " and not used to tune it; the\n"
SEEN = """. The attack
was changed after a look at what had escaped, so that these mutants are blind no longer and the rate is no estimate of
what would be caught of others. The
"""
INTRODUCTION = """\
auditor is given a configuration and nothing else (`{file}`, run by `make blind`). “Found” is the loss
that was proved, as a multiple of the claim.

"""


def interval(successes: int, trials: int, error: float = 0.05) -> tuple[float, float]:
    """Clopper and Pearson's interval of a rate.

    Examples
    --------
    >>> [round(end, 3) for end in interval(27, 30)]
    [0.735, 0.979]
    """
    from tidegate.audit.bounds import at_least, at_most

    if not trials:
        return 0.0, 1.0
    return float(at_least(successes, trials, error / 2)), float(at_most(successes, trials, error / 2))


def put_into(page: str, text: str) -> str:
    r"""A page with the section in its place, or at its end where it has none yet; remarks by hand stay.

    Examples
    --------
    >>> once = put_into("# Page\n", "new\n")
    >>> put_into(once, "newer\n") == put_into("# Page\n", "newer\n")
    True
    >>> remarked = once.replace(END, HAND + "a remark\n" + END)
    >>> put_into(remarked, "newer\n") == put_into("# Page\n", "newer\n" + HAND + "a remark\n")
    True
    """
    before, found, rest = page.partition(BEGIN)
    if not found:
        return page.rstrip("\n") + "\n\n" + BEGIN + text + END
    old, _, after = rest.partition(END)
    _, marked, remarks = old.partition(HAND)
    return before + BEGIN + text + marked + remarks + END + after


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the blind test; 0 unless the file is wrong, or something unchanged was accused."""
    parser = argparse.ArgumentParser(prog="python -m tests.audit.blind", description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path, help="the mutants, as TOML")
    parser.add_argument("--page", type=Path, help="a Markdown page whose section is written anew")
    parser.add_argument(
        "--verdicts", type=Path, help="a JSON file for all verdicts: pairs, events and counts"
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the attack on each")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", help="a part of the names of those that are wanted")
    parser.add_argument("--check", action="store_true", help="only try whether the edits can be made")
    parser.add_argument(
        "--unchanged", action="store_true", help="attack without the edits: nothing may be accused"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    try:
        mutants = read(chosen.file)
    except InvalidInput as error:
        print(error, file=sys.stderr)
        return 2
    if chosen.child is not None:
        mutant = next(each for each in mutants if each.name == chosen.child)
        result = attack_one(mutant, chosen.seconds, ERROR, unchanged=chosen.unchanged)
        print(json.dumps(result.__dict__, default=str))
        return 0
    wanted = [mutant for mutant in mutants if chosen.only in mutant.name]
    if chosen.check:
        print(f"{len(wanted)} mutants can be made")
        return 0
    begun = time.monotonic()
    results = run(
        chosen.file, wanted, seconds=chosen.seconds, processes=chosen.processes, unchanged=chosen.unchanged
    )
    caught = sum(result.caught for result in results)
    low, high = interval(caught, len(results))
    minutes = (time.monotonic() - begun) / 60
    print(f"caught {caught} of {len(results)} ({low:.0%} to {high:.0%} with 95 %), {minutes:.1f} minutes")
    if chosen.verdicts is not None:
        found = [result.__dict__ for result in results]
        chosen.verdicts.write_text(json.dumps(found, ensure_ascii=False, indent=1, default=str) + "\n")
    if chosen.page is not None and not chosen.unchanged:
        page = chosen.page.read_text(encoding="utf-8") if chosen.page.exists() else HEADING
        text = section(results, chosen.file.as_posix(), tuned=tuned(chosen.file))
        chosen.page.write_text(put_into(page, text), encoding="utf-8")
    return 1 if chosen.unchanged and caught else 0


if __name__ == "__main__":
    sys.exit(main())
