"""Predicted errors of every mechanism and parameter choice, by running them on made-up streams."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.composition import zcdp_rho
from tidegate.core.session import Session
from tidegate.errors import InvalidParameter, TidegateError
from tidegate.exact import show
from tidegate.mechanisms import Mechanism, catalogue
from tidegate.mechanisms.w_event.personal import Personal, Requirement
from tidegate.noise import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.plan.description import Profile, StreamModel
from tidegate.plan.requirements import divided, strictest, with_requirements
from tidegate.policy import Approximate, Policy, WEvent

CELLS = 400_000  # of one made-up stream: enough for a ranking, little enough for half a minute in all
FEWEST_STEPS = 200
MOST_STEPS = 6_000
COUNTED = 2_000  # steps of running sums, where nobody has said how many there are
CURVE_CELLS = 60_000
PLAIN = ("Uniform", "Sample")  # what anybody understands at once
OF_VALUES = ("ClippedSum", "ToPS")  # sums of single values, of which each is a step
TIE = 0.03
CLEARLY = 0.9  # another mechanism must promise this part of Tide's error, or less


@dataclass(frozen=True)
class Prediction:
    """What one choice can be expected to do.

    Attributes
    ----------
    mechanism
        The configured mechanism.
    absolute
        The mean absolute error of one value.
    relative
        The mean absolute error over the mean value.
    uncertainty
        The standard error of `absolute` over the made-up streams.
    delay
        How many steps a value is late.

    Examples
    --------
    >>> from tidegate.mechanisms import Uniform
    >>> Prediction(Uniform(WEvent(epsilon="1", window=4)), 4.0, 0.04, 0.1).label
    'Uniform'
    """

    mechanism: Mechanism
    absolute: float
    relative: float
    uncertainty: float
    delay: int = 0

    @property
    def name(self) -> str:
        """The mechanism's name."""
        return type(self.mechanism).__name__

    @property
    def label(self) -> str:
        """The name, and whether the values come late."""
        return f"{self.name}, delayed" if self.delay else self.name

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that differ from the defaults, as a configuration file would have them."""
        plain = _plain(self.mechanism)
        told: dict[str, Any] = {}
        for item in dataclasses.fields(self.mechanism):
            if item.name in ("policy", "columns", "grid", "rounding", "nonnegative", "horizon"):
                continue  # what the other sections of a configuration say
            value = getattr(self.mechanism, item.name)
            usual = item.default if plain is None else getattr(plain, item.name)
            if value != usual and _writable(value):
                told[item.name] = value
        return told

    def toml(self, query: str | None = None) -> str:
        """The section to paste into tidegate.toml; of one of several queries its lines."""
        lines = [f'name = "{self.name}"']
        for name, value in self.parameters.items():
            lines.append(f"{name} = {_written(value)}")
        if query is None:
            return "[mechanism]\n" + "\n".join(lines)
        own = f"{{ {', '.join(lines)} }}" if self.parameters else f'"{self.name}"'
        return f'[[query]]\nname = "{query}"\nmechanism = {own}'


@dataclass(frozen=True)
class Plan:
    """Every prediction, the best one first.

    Attributes
    ----------
    policy, stream
        What was asked.
    predictions
        One for each choice that was tried, the best one first.
    concentrated
        For an (ε, δ): the choice with the least error, at once, whose ρ implies it; see `concentrated_policy`.
    strict
        Where units have requirements: the best of all other mechanisms, with the strictest of them for every unit.
    part_of
        What relative errors are parts of.
    guessed
        Whether nobody has said how large values are: then "auto" takes Tide, and a plan for the guess changes nothing.

    Examples
    --------
    >>> from tidegate.plan import Description, make_plan
    >>> plan = make_plan(WEvent(epsilon="1", window=4), Description(level=50), runs=1)
    >>> plan.best().absolute <= min(each.absolute for each in plan.predictions if each.name == "Sample")
    True
    """

    policy: Policy
    stream: StreamModel
    predictions: tuple[Prediction, ...]
    concentrated: Prediction | None = None
    strict: Prediction | None = None
    part_of: str = "the mean value"
    guessed: bool = False

    def of_means(self, records: float) -> Plan:
        """The same for means of so many records: a sum's error is divided among them.

        Sums are measured around the middle of the clip, so errors are parts of half of it, beyond which no mean can be.
        """

        def divided(found: Prediction) -> Prediction:
            return dataclasses.replace(
                found, absolute=found.absolute / records, uncertainty=found.uncertainty / records
            )

        return dataclasses.replace(
            self,
            predictions=tuple(map(divided, self.predictions)),
            concentrated=self.concentrated and divided(self.concentrated),
            part_of="half of the clip",
        )

    def best(self, *, delay: int = 0) -> Prediction:
        """The recommended choice among those that are not later than `delay` steps, which is also what "auto" takes.

        Tide, unless another one is clearly better for values whose size is known; among those plain ones win ties.
        """
        timely = [prediction for prediction in self.predictions if prediction.delay <= delay]
        close = [p for p in timely if p.absolute <= timely[0].absolute * (1 + TIE)]
        plain = [p for name in PLAIN for p in close if p.name == name]
        best, tide = (plain or close)[0], next((p for p in timely if p.name == "Tide"), None)
        clearly = tide is None or best.absolute <= CLEARLY * tide.absolute
        return best if tide is None or (clearly and not (self.guessed and delay == 0)) else tide

    def reasons(self, *, delay: int = 0) -> list[str]:
        """Why, in a few sentences."""
        best = self.best(delay=delay)
        said = [
            f"{describe(best)} is expected to be off by {number(best.absolute)} on average, "
            f"{percent(best.relative)} of {self.part_of}."
        ]
        plain = {p.name: p for p in reversed(self.predictions) if p.name in PLAIN}
        for name, other in plain.items():
            if name != best.name:
                times = other.absolute / best.absolute if best.absolute else float("inf")
                said.append(f"{name} would be off by {number(other.absolute)}, {times:.1f} times as much.")
        late = next((p for p in self.predictions if p.delay > delay), None)
        if late is not None and late.absolute < 0.9 * best.absolute:
            said.append(
                f"Whoever can wait {late.delay} steps gets {number(late.absolute)} with {describe(late)}."
            )
        if self.concentrated is not None:
            said.append(self._of_rho(self.concentrated, best))
        if self.strict is not None:
            times = self.strict.absolute / best.absolute if best.absolute else float("inf")
            said.append(
                f"{describe(self.strict)} with the strictest requirement for every unit, "
                f"{settings_of(self.strict.mechanism.policy)}, would be off by {number(self.strict.absolute)}, "
                f"{times:.1f} times as much."
            )
        if best.relative > 0.5:
            said.append(
                "No choice is accurate here: use longer steps, fewer columns, a shorter window or a larger ε."
            )
        return said

    def _of_rho(self, other: Prediction, best: Prediction) -> str:
        """What an (ε, δ) gains that is written as ρ."""
        rho = show(other.mechanism.policy.budget.total)
        implied = f"ρ = {rho} (zCDP) implies this ε and δ"
        part = other.absolute / best.absolute if best.absolute else 1.0
        if part >= 1:
            return f"{implied}, and gains nothing here."
        return (
            f'{implied}: {describe(other)} with rho = "{rho}" instead of epsilon and delta would be off by '
            f"{number(other.absolute)}, {part:.2f} times as much."
        )


def _plain(mechanism: Mechanism) -> Mechanism | None:
    """The same mechanism with all its defaults, if there is such a thing."""
    shape: dict[str, Any] = {"columns": mechanism.columns}
    if getattr(mechanism, "horizon", None) is not None:
        shape["horizon"] = mechanism.horizon  # type: ignore[attr-defined]
    try:
        return type(mechanism)(mechanism.policy, **shape)
    except (TidegateError, TypeError):
        return None


def _writable(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(isinstance(item, int | float) for item in value)
    return isinstance(value, bool | int | str)


def _written(value: Any) -> str:
    """A parameter as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        whole = (int(item) if float(item).is_integer() else item for item in value)
        return f"[{', '.join(map(str, whole))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def describe(prediction: Prediction) -> str:
    """A mechanism and its parameters in a few words."""
    told = ", ".join(f"{name}={value}" for name, value in prediction.parameters.items())
    return f"{prediction.name} ({told})" if told else prediction.name


def percent(part: float) -> str:
    """A part of something; one that says nothing, because there is hardly anything, has no digits.

    Examples
    --------
    >>> percent(0.051), percent(5e8)
    ('5.1%', 'over 1,000%')
    """
    return f"{part:.1%}" if part <= 10 else "over 1,000%"


def number(value: float) -> str:
    """Three digits without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def make_plan(
    policy: Policy,
    stream: StreamModel,
    *,
    runs: int = 3,
    tell: Callable[[str], None] = lambda words: None,
    kinds: Mapping[str, type[Mechanism]] | None = None,
    requirements: Sequence[Requirement] = (),
    sums: bool = False,
) -> Plan:
    """Predict the errors of every mechanism of the catalogue that the policy allows.

    Parameters
    ----------
    policy
        What is protected.
    stream
        What is publicly known: a :class:`Description` or a :class:`Profile`.
    runs
        On how many made-up streams each choice is tried.
    tell
        Called with a few words at each stage.
    kinds
        Mechanisms by name; by default the catalogue.
    requirements
        What some units ask for: then mechanisms that follow them are compared.
    sums
        Whether running sums are wanted, and not steps.

    Examples
    --------
    >>> from tidegate.plan import Description, make_plan
    >>> plan = make_plan(WEvent(epsilon="1", window=24), Description(level=500, season=24), runs=1)
    >>> len({prediction.name for prediction in plan.predictions}) > 5
    True
    """
    with install(FixedEntropy("plan")):  # the same question gets the same answer
        known = catalogue() if kinds is None else kinds
        if sums:
            return _plan_of_sums(policy, stream, runs, tell, known)
        return _make_plan(policy, stream, runs, tell, known, requirements)


def _make_plan(
    policy: Policy,
    stream: StreamModel,
    runs: int,
    tell: Callable[[str], None],
    kinds: Mapping[str, type[Mechanism]],
    requirements: Sequence[Requirement],
) -> Plan:
    all_units = strictest(policy, requirements) if requirements else policy
    steps, columns = size_of(all_units, stream, CELLS)
    truths = [stream.sample(steps, run)[:, :columns] for run in range(runs)]
    mean = mean_of(stream, truths)
    predictions: list[Prediction] = []
    others: list[Prediction] = []
    for name, kind in kinds.items():
        tell(name)
        if requirements and issubclass(kind, Personal):
            predictions += predict(with_requirements(kind, policy, columns, requirements), truths, mean)
            continue
        for mechanism in choices(kind, all_units, columns, stream.season):
            (others if requirements else predictions).extend(predict(mechanism, truths, mean))
    if not predictions:
        raise InvalidParameter(
            "policy", str(policy.budget), "one that some mechanism supports", "write epsilon alone"
        )
    predictions.sort(key=lambda prediction: prediction.absolute)
    concentrated = _concentrated(policy, stream, columns, truths, kinds)
    at_once = [prediction for prediction in others if not prediction.delay]
    strict = min(at_once, key=lambda prediction: prediction.absolute, default=None)
    return Plan(policy, stream, tuple(predictions), concentrated=concentrated, strict=strict)


def _plan_of_sums(
    policy: Policy,
    stream: StreamModel,
    runs: int,
    tell: Callable[[str], None],
    kinds: Mapping[str, type[Mechanism]],
) -> Plan:
    """The same for running sums; beside counters Uniform, whose releases can be added up."""
    steps = policy.horizon or max(COUNTED, size_of(policy, stream, CELLS)[0])
    steps = min(steps, MOST_STEPS)
    columns = max(1, min(stream.columns, CELLS // steps))
    truths = [stream.sample(steps, run)[:, :columns] for run in range(runs)]
    single = single_values(policy, truths)
    predictions = []
    for name, kind in kinds.items():
        tell(name)
        for mechanism in counters(kind, policy, columns, steps, single=single):
            predictions += predict(mechanism, truths, sums=True)
    if not predictions:
        raise InvalidParameter(
            "policy", str(policy.budget), "one that some counter supports", "write epsilon alone"
        )
    predictions.sort(key=lambda prediction: prediction.absolute)
    part_of = f"the mean sum of {steps:,} steps"
    return Plan(policy, stream, tuple(predictions), part_of=part_of)


def single_values(policy: Policy, streams: Sequence[npt.NDArray[np.int64]]) -> bool:
    """Whether each step can be one value of one unit, whose clip is learnt: no step has more than a unit may change."""
    most = max((int(stream.max(initial=0)) for stream in streams), default=0)
    return streams[0].shape[1] == 1 and 1 < most <= Fraction(policy.max_change)


def counters(
    kind: type[Mechanism], policy: Policy, columns: int, steps: int, *, single: bool
) -> list[Mechanism]:
    """A mechanism for running sums of so many steps; none where it is for others, or has no proof for the policy.

    Examples
    --------
    >>> from tidegate.mechanisms import BinaryTree, Tide
    >>> policy = WEvent(epsilon="1", window=24)
    >>> [len(counters(kind, policy, 1, 100, single=False)) for kind in (BinaryTree, Tide)]
    [1, 0]
    """
    if kind.statistic != "sums" and kind.__name__ != PLAIN[0]:
        return []
    if kind.__name__ in OF_VALUES and not single:
        return []
    shapes: tuple[dict[str, Any], ...] = ({"horizon": steps}, {})
    for shape in shapes:
        try:
            return [kind(policy, columns=columns, **shape)]
        except (TidegateError, TypeError):  # another policy, or a parameter that it does not have
            continue
    return []


def choices(kind: type[Mechanism], policy: Policy, columns: int, season: int | None) -> list[Mechanism]:
    """The public parameter choices of a mechanism; none where it has no proof for the policy."""
    if kind.statistic != "steps":
        return []
    try:
        return kind.candidates(policy, columns, season)
    except (TidegateError, TypeError):  # another policy, or a shape that a description does not have
        return []


def mean_of(stream: StreamModel, truths: list[npt.NDArray[np.int64]]) -> float:
    """What relative errors are parts of: the mean of all of an earlier release, also where its beginning is tried."""
    if isinstance(stream, Profile):
        return float(np.maximum(stream.values[:, : truths[0].shape[1]], 0.0).mean())
    return float(np.mean([truth.mean() for truth in truths]))


def predict(
    mechanism: Mechanism,
    truths: list[npt.NDArray[np.int64]],
    mean: float | None = None,
    *,
    sums: bool = False,
) -> list[Prediction]:
    """Run a mechanism on made-up streams; mechanisms that revise their values are predicted twice.

    Parameters
    ----------
    mechanism
        What is run.
    truths
        The made-up streams.
    mean
        What relative errors are parts of; by default the mean of the streams.
    sums
        Whether running sums are compared; those of a mechanism that releases steps are added up.
    """
    errors: dict[int, list[float]] = {}
    wanted = [np.cumsum(truth, axis=0) for truth in truths] if sums else truths
    for run, (given, truth) in enumerate(zip(truths, wanted, strict=True)):
        releases = Session(mechanism).push_batch(divided(mechanism, given, run))
        if sums and mechanism.statistic == "steps":
            _note(errors, 0, np.cumsum(releases.values, axis=0), truth)
            continue
        _note(errors, 0, releases.values, truth)
        revised = releases.revised
        if revised is not None and len(revised):
            first = revised.first_step - 1
            _note(errors, int(revised.delay) or 1, revised.values, truth[first : first + len(revised)])
    mean = max(float(np.mean([truth.mean() for truth in wanted])) if mean is None else mean, 1e-12)
    found = []
    for delay, wrong in errors.items():
        spread = float(np.std(wrong) / np.sqrt(len(wrong))) if len(wrong) > 1 else 0.0
        found.append(
            Prediction(mechanism, float(np.mean(wrong)), float(np.mean(wrong)) / mean, spread, delay)
        )
    return found


def _note(
    errors: dict[int, list[float]],
    delay: int,
    values: npt.NDArray[np.float64],
    truth: npt.NDArray[np.int64],
) -> None:
    # counts are not negative, and cutting releases at 0 is free
    errors.setdefault(delay, []).append(float(np.abs(np.maximum(values, 0.0) - truth).mean()))


def size_of(policy: Policy, stream: StreamModel, cells: int) -> tuple[int, int]:
    """Steps and columns of a made-up stream: several windows and a few weeks, within the number of cells."""
    length = policy.window or policy.horizon or FEWEST_STEPS
    wanted = max(FEWEST_STEPS, 8 * min(length, 2_000), 21 * (stream.season or 1))
    steps = min(wanted, MOST_STEPS, policy.horizon or MOST_STEPS)
    return steps, max(1, min(stream.columns, cells // steps))


def concentrated_policy(policy: Policy) -> Policy | None:
    """The same promise made by ρ: the largest of three digits that implies the policy's (ε, δ); None without a δ.

    Examples
    --------
    >>> concentrated_policy(WEvent(epsilon="1", delta="1e-6", window=120)).budget
    ZeroConcentrated(rho=Fraction(243, 10000))
    """
    if not isinstance(policy.budget, Approximate):
        return None
    largest = zcdp_rho(policy.budget.epsilon, policy.budget.delta)
    digits = 10 ** (2 - math.floor(math.log10(largest)))
    rho = Fraction(math.floor(largest * digits), digits)
    return dataclasses.replace(policy, epsilon=None, delta=0, rho=rho)


def _concentrated(
    policy: Policy,
    stream: StreamModel,
    columns: int,
    truths: list[npt.NDArray[np.int64]],
    kinds: Mapping[str, type[Mechanism]],
) -> Prediction | None:
    """The best choice for an (ε, δ) that is promised by ρ."""
    other = concentrated_policy(policy)
    if other is None:
        return None
    found = [
        prediction
        for kind in kinds.values()
        for mechanism in choices(kind, other, columns, stream.season)
        for prediction in predict(mechanism, truths, mean_of(stream, truths))
        if not prediction.delay
    ]
    return min(found, key=lambda prediction: prediction.absolute, default=None)


def settings_of(policy: Policy) -> str:
    """The policy in a few words, for titles."""
    words = f"ε = {show(policy.budget.total)}" if policy.rho is None else f"ρ = {show(policy.budget.total)}"
    return f"{words}, w = {policy.window}" if isinstance(policy, WEvent) else f"{words}, {policy.name}"
