"""Record transcripts, or compare with those that are stored.

``python tests/transcripts/record.py`` writes one file per family beside this one. With ``--check`` nothing is written,
and a difference that `differences.toml` does not list is an error. Names of families choose some of them. See README.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
import tomllib
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np
import numpy.typing as npt

HERE = Path(__file__).parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1]))

from tests.transcripts import driver  # noqa: E402  a script finds them by the path above
from tests.transcripts.cases import MODES, STREAMS, Case, cases, pieces, rows  # noqa: E402

SHOWN_STEPS, SHOWN_COLUMNS = 3, 3
SHOWN_STREAMS = ("jumps", "rough")  # of others one step is shown
CLOSE = 1e-10  # relative, of totals on another machine: rounding moves them by less

Line = dict[str, Any]


# digests -----------------------------------------------------------------------------------------------------------


def digest(content: npt.NDArray[Any] | Iterable[object]) -> str:
    """Twelve hexadecimal digits of an array's shape and numbers, or of a list's text; −0 is 0, and NaN is NaN."""
    if isinstance(content, np.ndarray):
        array = content
        if array.dtype.kind == "f":
            array = np.where(np.isnan(array), np.nan, array + 0.0)
        data = (
            f"{array.shape}".encode()
            + np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
        )
    else:
        data = "\n".join(str(each) for each in content).encode()
    return hashlib.blake2b(data, digest_size=6).hexdigest()


def total(array: npt.NDArray[np.float64]) -> float:
    """The sum of the absolute values of all finite numbers, with weights 1 to 7 in turn, to 13 digits."""
    flat = np.abs(array.ravel()) * (1 + np.arange(array.size) % 7)
    return float(f"{sum(flat[np.isfinite(flat)].tolist()):.13g}")


def digests(transcript: driver.Transcript) -> dict[str, str]:
    """One digest per field."""
    found = {name: digest(array) for name, array in transcript.fields.items()}
    found["charges"] = digest([step for steps, _ in transcript.charges for step in [*steps, "end"]])
    if any(spans for _, spans in transcript.charges):
        found["spans"] = digest(
            [span for _, spans in transcript.charges for span in [*map(_span, spans), "end"]]
        )
    return found


def _span(span: tuple[int, int, Fraction]) -> str:
    return f"{span[0]} {span[1]} {span[2]}"


# lines -------------------------------------------------------------------------------------------------------------


def line_of(case: Case) -> Line:
    """What is stored of a case: all modes run, their digests, and what people need to see what differs."""
    runs = {
        mode: driver.run(case.configuration, case.rows, pieces(mode, case.steps), reopened=mode == "reopened")
        for mode in MODES
    }
    first = runs[MODES[0]]
    shared = digests(first)
    line: Line = {"case": case.name, "steps": case.steps}
    if first.refused:
        line["refused"] = first.refused
    line["digests"] = shared
    line["totals"] = {name: total(array) for name, array in first.fields.items() if array.dtype.kind == "f"}
    line["first"] = shown(first, SHOWN_STEPS if case.stream in SHOWN_STREAMS else 1)
    line["spans"] = [_span(span) for _, spans in first.charges for span in spans][:SHOWN_STEPS]
    differs: dict[str, dict[str, str]] = {}
    for mode in MODES[1:]:
        other = digests(runs[mode])
        if runs[mode].refused != first.refused:
            differs.setdefault(mode, {})["refused"] = runs[mode].refused
        for name in sorted({*shared, *other}):
            if shared.get(name) != other.get(name):
                differs.setdefault(mode, {})[name] = other.get(name, "none")
    if differs:
        line["differs"] = differs
    return {name: value for name, value in line.items() if value}


def shown(transcript: driver.Transcript, steps: int) -> list[Line]:
    """The first steps in clear."""
    fields = transcript.fields
    found = []
    for at in range(min(steps, len(fields.get("values", ())))):
        entry: Line = {
            "values": [_number(value) for value in fields["values"][at, :SHOWN_COLUMNS].tolist()],
            "status": int(fields["status"][at]),
            "scale": _number(float(fields["scale"][at])),
        }
        charged = [str(account[at]) for account, _ in transcript.charges]
        entry["charged"] = charged[0] if len(charged) == 1 else charged[:SHOWN_COLUMNS]
        found.append(entry)
    return found


def _number(value: float) -> float | str:
    return value if np.isfinite(value) else str(value)


# families ----------------------------------------------------------------------------------------------------------


def families(*, quick: bool = False) -> dict[str, list[driver.Configuration]]:
    """Configurations by family, in order; thresholds and noise have none."""
    found: dict[str, list[driver.Configuration]] = {"noise": [], "thresholds": []}
    for each in driver.configurations(variants=not quick):
        found.setdefault(each.family, []).append(each)
    return found


def lines(
    family: str, configurations: Iterable[driver.Configuration], *, quick: bool = False
) -> Iterator[Line]:
    """What is stored of a family."""
    if family == "noise":
        yield from noise_lines()
    if family == "thresholds":
        yield from threshold_lines()
    for configuration in configurations:
        chosen = [case for case in cases(configuration) if case.quick or not quick]
        if chosen and configuration.kind == "example":
            yield {"configuration": configuration.name, "text": configuration.text}
        yield from map(line_of, chosen)


def threshold_lines() -> Iterator[Line]:
    """Thresholds that are released alone."""
    for name, kind in driver.thresholds():
        for stream in ("constant", "jumps", "rough", "large"):
            given = rows(stream, 60, 1, 1, 2**53)
            (value, charged), *others = (
                driver.threshold(kind, given, sizes) for sizes in ([1] * 60, [60], pieces("odd", 60) or [])
            )
            assert all(other == (value, charged) for other in others)
            yield {
                "case": f"{name}/{stream}",
                "digests": {"values": digest([value]), "charges": digest(charged)},
                "first": [{"values": [str(value)], "charge": str(charged[0])}],
            }


SCALES = (0.05, 0.3, 1.0, 2.5, 10.0, 1000.0 / 3, 2.0**20, 2.0**31 + 1, 1e12, 2.0**50, 2.0**56)


def noise_lines() -> Iterator[Line]:
    """Input streams; words and draws by address: small and large scales, wide rows, so many that some are undecided."""
    for stream in STREAMS:
        given = rows(stream, 60, 3, 100, 2**51)
        yield {"case": f"input {stream}", "digests": {"values": digest(given)}, "first": given[:2].tolist()}
    for stream, step, draw in (
        ("a", 1, 0),
        ("a", 2, 0),
        ("a", 1, 1),
        ("b", 1, 0),
        ("group 1: a", 2**40, 39_999),
    ):
        words = driver.words(stream, step, draw, 0, 4)
        yield {
            "case": f"words {stream!r} {step} {draw}",
            "digests": {"values": digest(words)},
            "first": words[:2],
        }
    for law in ("laplace", "gaussian"):
        for scale in SCALES:
            yield _drawn(f"{law} {scale!r}", law, 7, scale, (400, 3))
        each = np.array(SCALES)
        yield _drawn(f"{law} of each scale", law, 7, each, (50, len(each)))
        yield _drawn(f"{law} 40.5, wide", law, 1, 40.5, (2, 70_000))
        yield _drawn(f"{law} 1e9, wide", law, 1, 1e9, (2, 70_000))
        yield _drawn(f"{law} 40.5, many", law, 1, 40.5, (1 << 20, 1))
        yield _drawn(f"{law} 1e9, many", law, 1, 1e9, (1 << 20, 1))
        yield _drawn(f"{law} 40.5, far away", law, 2**40, 40.5, (50, 2))
    for scale in (0.3, 10.0, 1000.0 / 3, 2.0**31 + 1, 1e12):
        for named in (
            {"lengths": (8, 7)},
            {"lengths": (1,)},
            {"lengths": (5,), "columns": 3},
            {"lengths": (4, 3), "copies": 2},
            {"lengths": (2,), "columns": 2, "copies": 3},
        ):
            yield _shared("cube", scale, named)
        for named in (
            {"width": 4},
            {"width": 1},
            {"width": 12, "copies": 2},
            {"width": 3, "columns": 2},
            {"width": 4, "classes": 3},
        ):
            yield _shared("semiorder", scale, named)
    yield _drawn("cube 24.0, many", "cube", 1, 24.0, (1 << 20, 1), lengths=(8, 7))
    yield _drawn("cube 1e9, many", "cube", 1, 1e9, (1 << 18, 3), lengths=(5,), columns=3)
    yield _drawn("cube 24.0, wide", "cube", 1, 24.0, (4, 40_000), lengths=(2,), copies=40_000)
    yield _drawn("semiorder 24.0, many", "semiorder", 1, 24.0, (1 << 16, 1), width=6)
    yield _drawn("semiorder 24.0, wide", "semiorder", 1, 24.0, (4, 3_000), width=3, copies=3_000)


def _drawn(name: str, law: str, step: int, scale: Any, shape: tuple[int, int], **named: Any) -> Line:
    drawn = driver.noise(law, "noise", step, scale, shape, **named)
    return {"case": name, "digests": {"values": digest(drawn)}, "first": drawn[:2, :SHOWN_COLUMNS].tolist()}


def _shared(law: str, scale: float, named: dict[str, Any]) -> Line:
    """Noise that steps share, and the same in pieces."""
    width = named.get("columns", 1) * named.get("copies", 1)
    text = ", ".join(f"{name} {value}" for name, value in named.items())
    line = _drawn(f"{law} {scale!r}, {text}", law, 7, scale, (120, width), **named)
    for mode, cuts in (("single", [1] * 120), ("odd", pieces("odd", 120))):
        other = _drawn("", law, 7, scale, (120, width), cuts=cuts, **named)["digests"]
        if other != line["digests"]:
            line.setdefault("differs", {})[mode] = other
    return line


# files -------------------------------------------------------------------------------------------------------------


def machine() -> str:
    """On what floating point was rounded."""
    versions = f"numpy {np.__version__}, numba {numba.__version__}"
    return f"{platform.machine()} {llvmlite.binding.get_host_cpu_name()}, {versions}"


def stored(family: str) -> tuple[str, dict[str, Line]]:
    """The machine of a file, and its lines by case."""
    text = (HERE / f"{family}.jsonl").read_text(encoding="utf-8").splitlines()
    head, *rest = (json.loads(each) for each in text)
    return head["machine"], {line["case"]: line for line in rest if "case" in line}


def listed() -> list[Line]:
    """The differences that are intended."""
    found: list[Line] = tomllib.loads((HERE / "differences.toml").read_text(encoding="utf-8")).get(
        "difference", []
    )
    return found


def differences(family: str, found: Iterable[Line], *, quick: bool = False) -> list[str]:
    """What is not as it was stored and not listed, one sentence per case."""
    recorded_on, before = stored(family)
    here, intended = machine(), [each for each in listed() if each["family"] == family]
    sentences, seen = [], set()
    for line in found:
        if "case" not in line:
            continue
        name = line["case"]
        seen.add(name)
        old = before.get(name)
        fields = compare(old, line, same_machine=recorded_on == here)
        fields = [each for each in fields if not any(_intended(entry, each, old, line) for entry in intended)]
        if fields:
            sentences.append(f"{family}: {name} differs in {', '.join(fields)}{_told(old, line)}")
    gone = [] if quick else sorted(set(before) - seen)
    gone = [
        name for name in gone if not any(_intended(entry, "gone", None, before[name]) for entry in intended)
    ]
    return sentences + [f"{family}: {name} is stored and was not run" for name in gone]


def _intended(entry: Line, name: str, before: Line | None, after: Line) -> bool:
    """Whether an entry of the list allows a field of a case to differ."""
    wanted, case = entry["case"], after["case"]
    fits = case.startswith(wanted[:-1]) if wanted.endswith("*") else case == wanted
    if not fits or name not in entry["fields"]:
        return False
    return "within" not in entry or (before is not None and _close(name, before, after, entry["within"]))


def compare(before: Line | None, after: Line, *, same_machine: bool) -> list[str]:
    """The names of the fields that differ; those of a mode that deviates have its name in front."""
    if before is None:
        return ["new"]
    found = ["refused"] if before.get("refused") != after.get("refused") else []
    for mode, old, new in _by_mode(before, after):
        for name in sorted({*old, *new}):
            if old.get(name) == new.get(name):
                continue
            if not same_machine and _close(name, before, after, CLOSE):
                continue
            found.append(f"{mode}{name}")
    return found


def _by_mode(before: Line, after: Line) -> Iterator[tuple[str, dict[str, str], dict[str, str]]]:
    yield "", before["digests"], after["digests"]
    old, new = before.get("differs", {}), after.get("differs", {})
    for mode in sorted({*old, *new}):
        yield f"{mode}: ", old.get(mode, {}), new.get(mode, {})


def _close(name: str, before: Line, after: Line, within: float) -> bool:
    """Whether the totals of a field of floating-point numbers agree, but for a relative difference."""
    old, new = (line.get("totals", {}).get(name.split(": ")[-1]) for line in (before, after))
    return old is not None and new is not None and abs(old - new) <= within * max(abs(old), abs(new))


def _told(before: Line | None, after: Line) -> str:
    """Where the steps in clear part ways, or by how much totals differ."""
    if before is None:
        return ""
    for at, (old, new) in enumerate(zip(before.get("first", []), after.get("first", []), strict=False)):
        if old != new:
            return f"; step {at + 1} was {old} and is {new}"
    moved = [
        f"{name} from {old!r} to {after.get('totals', {}).get(name)!r}"
        for name, old in before.get("totals", {}).items()
        if old != after.get("totals", {}).get(name)
    ]
    return f"; totals: {', '.join(moved)}" if moved else ""


def write(family: str, found: Iterable[Line]) -> None:
    """Store a family."""
    text = [{"family": family, "machine": machine(), "seed": driver.SEED}, *found]
    content = "\n".join(json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in text)
    (HERE / f"{family}.jsonl").write_text(content + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Record, or check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("families", nargs="*", help="by default all")
    parser.add_argument("--check", action="store_true", help="compare with what is stored, and write nothing")
    parser.add_argument(
        "--quick", action="store_true", help="with --check: the small part that quick tests check"
    )
    chosen = parser.parse_args(arguments)
    if chosen.quick and not chosen.check:
        parser.error("--quick is for --check: what is stored is recorded as a whole")
    known = families(quick=chosen.quick)
    if unknown := sorted(set(chosen.families) - set(known)):
        parser.error(f"there is no family {unknown[0]!r}; choose from {', '.join(known)}")
    wrong: list[str] = []
    for family in chosen.families or known:
        found = lines(family, known[family], quick=chosen.quick)
        if chosen.check:
            wrong += differences(family, found, quick=chosen.quick)
        else:
            write(family, found)
            print(f"{family}: recorded")
    print("\n".join(wrong) if chosen.check and wrong else "no differences" if chosen.check else "done")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
