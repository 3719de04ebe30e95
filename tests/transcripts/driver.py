"""The only part of the transcripts that knows the library: it lists configurations, runs them and reads what came out.

A core with another interface needs another driver with the same functions: `configurations`, `run`, `thresholds`,
`noise` and `words`. Everything that they return is plain numbers: charges are fractions of the budget of one window.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.core.log import MemoryLog
from tidegate.core.mechanism import HasAccount
from tidegate.core.parallel_account import ParallelAccount
from tidegate.core.session import Session, charges_of
from tidegate.core.values import ValueReader
from tidegate.core.verify import verify
from tidegate.errors import TidegateError
from tidegate.mechanisms import Mechanism, catalogue
from tidegate.mechanisms.clipped_records import ClippedRecords
from tidegate.mechanisms.clipping.threshold import Threshold
from tidegate.noise import gaussian, laplace
from tidegate.noise.fixed import FixedEntropy
from tidegate.noise.shared.cube import Cube
from tidegate.noise.shared.semiorder import Semiorder
from tidegate.policy import Event, WEvent
from tidegate.releases import Release, Releases, Status
from tidegate.structures.clamping import most_units
from tidegate.testing.entropy import fixed_entropy

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SEED = "transcripts"  # of all words
NOISES = ("auto", "laplace", "cube", "semiorder")
ENDS_AT = 37  # where streams with a horizon end
BEGINS_AT = 50  # where streams that do not begin at step 1 begin
CLAMP = 50
WIDE = 40_000  # columns: more than a pool of 2^15 words has
# what a run may repeat after so many steps
LENGTHS = ("window", "lag", "every", "delay", "period", "periods", "bands", "longest_group", "learn", "back",
           "regroup_every")  # fmt: skip


@dataclass(frozen=True)
class Configuration:
    """One mechanism as it is run.

    Attributes
    ----------
    family, name
        Where it belongs, and its name: the class, the number of the example, what was changed.
    mechanism
        What is run.
    columns, per_one, most
        The width of a step, grid units per 1, and the largest number of them.
    lengths
        After how many steps something may repeat.
    kind
        "example", or what was changed: "noise", "budget", "clamp", "ending", "later", "wide".
    first, horizon
        The first step, and the last one where there is one.
    text
        The configuration in words, for people.
    """

    family: str
    name: str
    mechanism: Any
    columns: int
    per_one: int
    most: int
    lengths: tuple[int, ...]
    kind: str = "example"
    first: int = 1
    horizon: int | None = None
    text: str = ""


@dataclass
class Transcript:
    """What one run released and charged.

    Attributes
    ----------
    fields
        Arrays with one entry per step, and those of revised values (`revised …`) and of what `finish` gave (`last …`),
        which have one entry per revised step.
    charges
        For each account: what each step was charged, and the spans (first, last, fraction) in order.
    refused
        The step at which an error ended the run, and its class; empty where there was none.
    """

    fields: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    charges: list[tuple[list[Fraction], list[tuple[int, int, Fraction]]]] = field(default_factory=list)
    refused: str = ""


# what there is -----------------------------------------------------------------------------------------------------


def configurations(*, variants: bool = True) -> Iterator[Configuration]:
    """Every example of every mechanism, and its variants."""
    for name, kind in {**catalogue(), "ClippedRecords": ClippedRecords}.items():
        family = kind.__module__.split(".")[2]
        family = "records" if family == "clipped_records" else family
        examples = kind.examples()
        known = {example.fingerprint for example in examples}
        for number, example in enumerate(examples):
            yield _configuration(family, f"{name}-{number}", example)
        if not variants:
            continue
        for number, example in enumerate(examples):
            for label, what, changed in _variants(example, number):
                if changed.fingerprint not in known:
                    known.add(changed.fingerprint)
                    yield _configuration(family, f"{name}-{number} {label}", changed, what)
        yield dataclasses.replace(
            _configuration(family, f"{name}-0 from step {BEGINS_AT}", examples[0], "later"), first=BEGINS_AT
        )


def _configuration(family: str, name: str, mechanism: Mechanism, kind: str = "example") -> Configuration:
    grid = Fraction(mechanism.grid)
    found: list[int] = [mechanism.policy.window or 1]
    for each in (mechanism, getattr(mechanism, "mechanism", None)):  # of Blocks
        for length in LENGTHS:
            value = getattr(each, length, None)
            found += [value] if type(value) is int else [*value] if type(value) is tuple else []
    return Configuration(
        family,
        name,
        mechanism,
        mechanism.columns,
        grid.denominator,
        most_units(grid),
        tuple(sorted(set(found))),
        kind,
        horizon=mechanism.policy.horizon,
        text=_short(mechanism.describe()),
    )


def _short(described: Mapping[str, Any]) -> str:
    """A configuration in words, without what is long."""
    text = {}
    for name, value in described.items():
        said = json.dumps(value, ensure_ascii=False)
        text[name] = value if len(said) <= 200 else f"{len(said)} characters"
    return json.dumps(text, ensure_ascii=False)


def _variants(example: Mechanism, number: int) -> Iterator[tuple[str, str, Mechanism]]:
    """The same with other noise, another budget, a clamp, an end, many columns, as far as it is accepted."""
    policy = example.policy
    if hasattr(example, "noise"):
        for noise in NOISES:
            yield from _changed(example, f"noise {noise}", "noise", noise=noise)
    if number == 0:
        plain = {"epsilon": None, "delta": 0, "rho": None}
        for label, budget in {
            "epsilon 2": {"epsilon": "2"},
            "rho 1/2": {"rho": "1/2"},
            "epsilon 1, delta 1e-6": {"epsilon": "1", "delta": "1e-6"},
        }.items():
            yield from _changed(example, label, "budget", policy={**plain, **budget})
        yield from _changed(example, f"clamp {CLAMP}", "clamp", clamp=CLAMP)
        yield from _changed(example, "rounding nearest", "clamp", rounding="nearest")
        yield from _changed(example, f"columns {WIDE}", "wide", columns=WIDE)
        yield from _changed(example, f"columns {WIDE}, noise laplace", "wide", columns=WIDE, noise="laplace")
        wide = {**plain, "rho": "1/2"}
        yield from _changed(example, f"columns {WIDE}, rho 1/2", "wide", columns=WIDE, policy=wide)
    if policy.horizon is None or policy.window is None:
        yield from _changed(example, f"horizon {ENDS_AT}", "ending", policy={"horizon": ENDS_AT})


def _changed(
    example: Mechanism, label: str, kind: str, **changes: Any
) -> Iterator[tuple[str, str, Mechanism]]:
    """The variant, if there is one."""
    if kind == "wide" and type(example).__name__ not in WIDE_ONES:
        return
    try:
        if "policy" in changes:
            changes["policy"] = dataclasses.replace(example.policy, **changes["policy"])
        changed = dataclasses.replace(example, **changes)
        changed.begin(1)
    except (TidegateError, ValueError, TypeError):
        return
    yield label, kind, changed


# not the catalogue: work per column of others is much, and their draws are these
WIDE_ONES = ("Uniform", "Sample", "BudgetAbsorption", "BudgetDistribution", "Fast", "PeGaSus", "BinaryTree")


# sessions ----------------------------------------------------------------------------------------------------------


def run(
    configuration: Configuration,
    rows: Integers,
    pieces: Iterable[int] | None,
    *,
    reopened: bool = False,
    seed: str = SEED,
) -> Transcript:
    """Push rows of grid units to a session, and finish it.

    Parameters
    ----------
    configuration, rows
        What is run, on which steps.
    pieces
        The sizes of the batches, together all rows; None for single pushes.
    reopened
        Whether every batch has a session of its own on the log.
    seed
        Of the entropy.
    """
    mechanism, log = configuration.mechanism, MemoryLog()
    found, last, at = Transcript(), None, 0
    whole = _values(rows, configuration)
    got: list[Release | Releases] = []
    with fixed_entropy(seed):
        session = _opened(mechanism, log)
        try:
            for size in [1] * len(rows) if pieces is None else pieces:
                session = _opened(mechanism, log) if reopened else session
                given = whole[at : at + size]
                first = configuration.first + at
                got.append(
                    session.push(given[0], first) if pieces is None else session.push_batch(given, first)
                )
                at += size
            ended = session.finish()
            last = None if ended is None else ended.revised
        except TidegateError as error:
            found.refused = f"{at + 1}: {type(error).__name__}"
    assert verify(log.rows()).ok
    found.fields = _fields(got, configuration.first, mechanism.outputs, last)
    if (
        isinstance(mechanism, ClippedRecords) and got
    ):  # silent steps had their own number as their source, and have 0
        silent = np.flatnonzero(found.fields["status"] == int(Status.SILENT))
        assert not found.fields["source"][silent].any()
        found.fields["source"][silent] = silent + configuration.first
    found.charges = _charges(log, mechanism, configuration.first, len(rows))
    return found


def _opened(mechanism: Any, log: MemoryLog) -> Session:
    """A session; one that is pushed records takes any numbers, as it did, and not only those of records."""
    session = Session(mechanism, log)
    if isinstance(mechanism, ClippedRecords):
        session._queries[0].reader = ValueReader(mechanism.columns, Fraction(mechanism.grid))
    return session


def _values(units: Integers, configuration: Configuration) -> npt.NDArray[Any]:
    mechanism = configuration.mechanism
    if not mechanism.reads_columns:
        return _visits(units, mechanism, configuration.first)
    return units if configuration.per_one == 1 else units / configuration.per_one


def _visits(units: Integers, mechanism: Any, first: int) -> npt.NDArray[Any]:
    """Units and categories: of each column so many units, and one unit with a category of its own."""
    collector, found = mechanism.collector(after=first - 1), np.empty(len(units), dtype=object)
    for at, row in enumerate((np.abs(units) % 97).tolist()):
        pairs = [
            (f"{number % 60}", f"category {column}")
            for column, many in enumerate(row)
            for number in range(many)
        ]
        rows: list[Any] = [*pairs, (f"{at % 7}", f"lone {at}")]
        if mechanism.adds_values:
            rows = [(*pair, number % 13 - 2) for number, pair in enumerate(rows)]
        found[at] = collector.step(rows)
    return found


def _fields(
    got: list[Release | Releases], first: int, outputs: int, last: Releases | None
) -> dict[str, npt.NDArray[Any]]:
    """All fields of all releases, one entry per step."""
    fields = _columns(got, outputs)
    if not got:
        return fields  # refused at once
    assert np.array_equal(fields.pop("step"), np.arange(first, first + len(fields["values"])))
    revised = [each.revised for each in got if each.revised is not None]
    fields |= {f"revised {name}": part for name, part in _columns(revised, outputs).items()}
    if last is not None:
        fields |= {f"last {name}": part for name, part in _columns([last], outputs).items()}
    return fields


def _columns(got: list[Any], outputs: int) -> dict[str, npt.NDArray[Any]]:
    found: dict[str, list[npt.NDArray[Any]]] = {}

    def put(name: str, value: Any, kind: Any, width: int = 0) -> None:
        if value is not None:
            array = np.asarray(value, dtype=kind)
            array = array.reshape(-1, array.shape[-1] if array.ndim else 1) if width else array.reshape(-1)
            whole = np.broadcast_to(array, (len(array), width)) if width else array
            found.setdefault(name, []).append(whole)

    for each in got:
        steps = [each.step] if isinstance(each, Release) else each.steps
        put("step", steps, np.int64)
        put("values", each.values, np.float64, outputs)
        for name in ("status", "source"):
            put(name, getattr(each, name), np.int64)
        put("scale", each.scale, np.float64)
        put("deviation", each.deviation, np.float64, outputs)
        if each.measured is not None:
            put("noisy", each.measured.noisy, np.float64, outputs)
            put("groups", each.measured.groups, np.int64, outputs)
            put("weights", each.measured.weights, np.int64, outputs)
        put("known at", getattr(each, "ends", None), np.int64)
    return {name: np.concatenate(parts) for name, parts in found.items()}


# charges -----------------------------------------------------------------------------------------------------------


def _charges(
    log: MemoryLog, mechanism: Any, first: int, count: int
) -> list[tuple[list[Fraction], list[tuple[int, int, Fraction]]]]:
    """For each account: what each step was charged, and the spans as they were in the end."""
    account = mechanism.account() if isinstance(mechanism, HasAccount) else None
    parts = len(account.parts) if isinstance(account, ParallelAccount) else 0
    steps = np.zeros((max(1, parts), first + count), dtype=np.int64)
    spans: dict[tuple[int, int], list[int]] = {}
    for row in log.rows():
        if row.last >= row.first:
            _, charges = charges_of(row)[0]  # of the only query
            if parts:  # accounts side by side have their units as spans of one step
                for part, _, step, _, units in charges.spans.tolist():
                    steps[part, step] = units
                continue
            steps[0, row.first : row.last + 1] = charges.units
            spans |= {(law, ordinal): rest for law, ordinal, *rest in charges.spans.tolist() if rest[2]}
    whole = mechanism.units
    live = sorted((begin, last, Fraction(cost, whole)) for begin, last, cost in spans.values())
    return [([Fraction(each, whole) for each in own[first:].tolist()], live) for own in steps]


# what draws besides ------------------------------------------------------------------------------------------------


def thresholds() -> Iterator[tuple[str, Threshold]]:
    """Thresholds that are released alone, of every method, by name."""
    event, change = {"epsilon": "1", "max_change": 500}, {"adjacency": "replace"}
    smooth = Event(epsilon="4", delta="1e-3", max_change=500, **change)
    yield from {
        "quantile": Threshold(Event(**event), sample=60, above=6),
        "quantile of a window": Threshold(WEvent(**event, window=3), sample=60, exceeding="1/8"),
        "quantile, bound unknown": Threshold(
            Event(**event), sample=60, above=6, bound="unknown", grid="0.01"
        ),
        "smooth": Threshold(smooth, sample=60, exceeding="0.1", method="smooth", too_low=0.1),
        "smooth-gaussian": Threshold(
            smooth, sample=60, exceeding="0.1", method="smooth-gaussian", too_low=0.1
        ),
    }.items()


def threshold(kind: Threshold, rows: Integers, sizes: Iterable[int]) -> tuple[Fraction, list[Fraction]]:
    """The released value, and the fraction of the budget that each step of the sample was charged."""
    log, at, found = MemoryLog(), 0, None
    with fixed_entropy(SEED):
        for size in sizes:
            found = kind.read(Session(kind, log).push_batch(rows[at : at + size]))
            at += size
    assert found is not None
    assert verify(log.rows()).ok
    return found.value, _charges(log, kind, 1, len(rows))[0][0]


def noise(
    law: str, stream: str, step: int, scale: float | Floats, shape: tuple[int, int], **named: Any
) -> Integers:
    """Noise by its address, (steps, columns): that of steps `step`, `step` + 1, …, all at once.

    `scale` may have one entry per column. "cube" and "semiorder" take the parameters of their laws, begin at `step`,
    and are drawn in pieces of `cuts` steps.
    """
    source = FixedEntropy(SEED)
    if law in ("laplace", "gaussian"):
        found: Integers = (laplace if law == "laplace" else gaussian)(source, stream, step, scale, shape)
        return found
    cuts = named.pop("cuts", [shape[0]])
    shared = Cube(scale, **named) if law == "cube" else Semiorder(scale, **named)
    state, drawn = shared.start(), []
    for size in cuts:
        part, state = shared.draw(source, stream, step, state, size)
        drawn.append(part)
        step += size
    return np.concatenate(drawn)


def words(stream: str, step: int, draw: int, index: int, count: int) -> list[int]:
    """Words of the fixed entropy by their address."""
    source = FixedEntropy(SEED)
    return [source.word(stream, step, draw, index + at) for at in range(count)]
