"""The only part of the transcripts that knows the library: it lists configurations, runs them and reads what came out.

A core with another interface needs another driver with the same functions: `configurations`, `run`, `thresholds`,
`noise` and `words`. Everything that they return is plain numbers, in units that no ledger decides: charges are fractions
of the budget of one window.
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

from tidegate.errors import TidegateError
from tidegate.ledger import Group, Ledger, MemoryLedger
from tidegate.ledger.parallel import ParallelLedger
from tidegate.mechanisms import Mechanism, catalogue
from tidegate.mechanisms.clipped_records import ClippedRecords
from tidegate.mechanisms.clipping.threshold import Threshold
from tidegate.noise import gaussian, laplace
from tidegate.noise.fixed import FixedEntropy
from tidegate.noise.shared.cube import Cube
from tidegate.noise.shared.semiorder import Semiorder
from tidegate.policy import Event, WEvent
from tidegate.releases import Release, Releases
from tidegate.structures.clamping import most_units
from tidegate.testing.entropy import fixed_entropy

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SEED = "transcripts"  # of all words
CONFIDENCE = 0.9  # of intervals
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
        "example", or what was changed: "noise", "budget", "clamp", "ending", "later", "wide", "intrusions".
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
    spent
        What each release says that it spent, as a fraction of the budget.
    charges
        For each account: what each step was charged, and the spans (first, last, fraction) in order.
    refused
        The step at which an error ended the run, and its class; empty where there was none.
    """

    fields: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    spent: list[Fraction] = field(default_factory=list)
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
            if getattr(example, "pan_private", None) == "announced":
                yield _configuration(family, f"{name}-{number} intrusions", example, "intrusions")
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


# runs --------------------------------------------------------------------------------------------------------------


def run(
    configuration: Configuration,
    rows: Integers,
    pieces: Iterable[int] | None,
    intrusions: Iterable[int] = (),
    *,
    recorded: bool = True,
    seed: str = SEED,
) -> Transcript:
    """Run a configuration on rows of grid units, and finish it.

    Parameters
    ----------
    configuration, rows
        What is run, on which steps.
    pieces
        The sizes of the batches, together all rows; None for single pushes.
    intrusions
        Indices of steps in the middle of which an intrusion is announced.
    recorded
        Whether charges are read; else the run has a ledger of its own, as users start it.
    seed
        Of the entropy.
    """
    mechanism: Mechanism = configuration.mechanism
    found, announced = Transcript(), set(intrusions)
    with fixed_entropy(seed):
        started = mechanism.start()
        if recorded:
            started = mechanism.start(ledger=_recording(started.ledger))
        if configuration.first != 1:
            started.begin_at(configuration.first)
        got: list[Release | Releases] = []
        at = 0
        try:
            if pieces is None:
                for at, row in enumerate(rows):
                    got.append(_pushed(started, row, configuration, intruded=at in announced))
                    _radius(got[-1])  # as whoever reads one release at a time asks
            else:
                for size in pieces:
                    got.append(started.push_batch(_values(rows[at : at + size], configuration)))
                    at += size
            last = started.flush()
        except TidegateError as error:
            found.refused, last = f"{at + 1}: {type(error).__name__}", None
    budget = started.ledger.unit * started.ledger.units
    for each in got:
        units = [each.units] if isinstance(each, Release) else each.units.tolist()
        found.spent += [unit * each.unit / budget for unit in units]
    found.fields = _fields(got, configuration.first, mechanism.outputs, last)
    if recorded:
        found.charges = _charges(started.ledger, configuration.first, len(rows))
    return found


def _pushed(started: Any, row: Integers, configuration: Configuration, *, intruded: bool) -> Release:
    values = _values(row, configuration)
    if not intruded:
        release: Release = started.push(int(row[0]) if values.dtype == np.int64 and len(row) == 1 else values)
        return release
    started.open_step()
    for column, value in enumerate(values.tolist()):
        if 2 * column >= len(row):  # in the middle
            started.announce_intrusion()
        started.arrive(column, value)
    return started.close_step()


def _values(units: Integers, configuration: Configuration) -> npt.NDArray[Any]:
    return units if configuration.per_one == 1 else units / configuration.per_one


def _radius(release: Release | Releases) -> Floats | None:
    return release.radius(CONFIDENCE)


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
        put("radius", _radius(each), np.float64, outputs)
        put("deviation", each.deviation, np.float64, outputs)
        if each.measured is not None:
            put("noisy", each.measured.noisy, np.float64, outputs)
            put("groups", each.measured.groups, np.int64, outputs)
            put("weights", each.measured.weights, np.int64, outputs)
        put("known at", getattr(each, "ends", None), np.int64)
    return {name: np.concatenate(parts) for name, parts in found.items()}


# charges -----------------------------------------------------------------------------------------------------------


class RecordingLedger(MemoryLedger):
    """A ledger in memory that also keeps every charge."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.kept: list[
            tuple[int, int, int, int, int]
        ] = []  # rows, first, last, units, and what it reaches on to

    def _keep(self, first: int, last: int, units: int, further: int = 0) -> None:
        self.kept.append((self._rows, first, last, units, further))

    def _take_back(self, rows: int, stamp: int = 0) -> None:
        super()._take_back(rows, stamp)
        self.kept = [each for each in self.kept if each[0] <= rows]

    def charge(self, step: int, units: int = 0, **named: Any) -> None:
        """Charge a step."""
        assert not named.get("groups"), "nobody charges by group of columns"
        assert not named.get("levels"), "nobody charges by level of a tree"
        super().charge(step, units, **named)
        self._keep(step, 0, units)

    def charge_batch(
        self, first: int, units: Any, *, groups: Any = None, extended: Any = None, scope: str = ""
    ) -> None:
        """Charge consecutive steps."""
        super().charge_batch(first, units, groups=groups, extended=extended, scope=scope)
        for at, amount in enumerate(np.asarray(units).tolist()):
            self._keep(first + at, 0, amount)
        for group in () if groups is None else np.asarray(groups).reshape(-1, 3).tolist():
            self._keep(*group)
        for group in () if extended is None else np.asarray(extended).reshape(-1, 4).tolist():
            self._keep(*group)

    def charge_group(self, first: int, last: int, units: int, *, scope: str = "") -> Group:
        """Charge a span."""
        group = super().charge_group(first, last, units, scope=scope)
        self._keep(*group)
        return group

    def extend_group(self, group: Group, last: int, *, scope: str = "") -> Group:
        """Extend a span."""
        further = super().extend_group(group, last, scope=scope)
        self._keep(*group, further.last)
        return further

    def by_step(self, first: int, count: int) -> tuple[list[Fraction], list[tuple[int, int, Fraction]]]:
        """What each step was charged, and the spans as they were in the end."""
        steps: dict[int, int] = {}
        spans: list[tuple[int, int, int]] = []
        for _, begin, last, units, further in self.kept:
            if not last:
                steps[begin] = steps.get(begin, 0) + units
            elif further:
                spans[spans.index((begin, last, units))] = (begin, further, units)
            else:
                spans.append((begin, last, units))
        end = max([first + count - 1, *(step for step, units in steps.items() if units)])
        return (
            [Fraction(steps.get(step, 0), self.units) for step in range(first, end + 1)],
            sorted((begin, last, Fraction(units, self.units)) for begin, last, units in spans if units),
        )


def _recording(ledger: Ledger) -> Ledger:
    """A ledger like this one, or accounts side by side like these, that keeps charges."""
    if isinstance(ledger, ParallelLedger):
        return ParallelLedger([RecordingLedger(part.policy, part.units) for part in ledger.parts])
    return RecordingLedger(ledger.policy, ledger.units, ledger.rule.schedule)


def _charges(
    ledger: Ledger, first: int, count: int
) -> list[tuple[list[Fraction], list[tuple[int, int, Fraction]]]]:
    parts = ledger.parts if isinstance(ledger, ParallelLedger) else [ledger]
    return [part.by_step(first, count) for part in parts if isinstance(part, RecordingLedger)]


# what draws besides ------------------------------------------------------------------------------------------------


def thresholds() -> Iterator[tuple[str, Any]]:
    """Thresholds that are released alone, of every method: a name, and a function of m observations."""
    event, change = {"epsilon": "1", "max_change": 500}, {"adjacency": "replace"}
    smooth = Event(epsilon="4", delta="1e-3", max_change=500, **change)
    for name, threshold in {
        "quantile": Threshold(Event(**event), sample=60, above=6),
        "quantile of a window": Threshold(WEvent(**event, w=3), sample=60, exceeding="1/8"),
        "quantile, bound unknown": Threshold(
            Event(**event), sample=60, above=6, bound="unknown", grid="0.01"
        ),
        "smooth": Threshold(smooth, sample=60, exceeding="0.1", method="smooth", too_low=0.1),
        "smooth-gaussian": Threshold(
            smooth, sample=60, exceeding="0.1", method="smooth-gaussian", too_low=0.1
        ),
    }.items():
        yield name, lambda rows, threshold=threshold: _threshold(threshold, rows)


def _threshold(threshold: Threshold, rows: Integers) -> tuple[Fraction, list[Fraction]]:
    """The released value, and the fraction of the budget that each step of the sample was charged."""
    ledger = RecordingLedger(threshold.policy, threshold.policy.steps_charged)
    with fixed_entropy(SEED):
        released = threshold.release(rows, ledger)
    return released.value, ledger.by_step(1, len(rows))[0]


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
