"""Errors of any mechanism on a stream: configured for it, repeated, and compared with the best choice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.bench.metrics import cut_errors, interval_of_mean
from tidegate.core.session import Session
from tidegate.errors import TidegateError
from tidegate.mechanisms import Mechanism
from tidegate.noise import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.plan import Description
from tidegate.plan.predict import choices
from tidegate.plan.requirements import divided
from tidegate.policy import WEvent
from tidegate.queries import Hierarchy
from tidegate.releases import Releases

Row = dict[str, Any]

PLANNED_STEPS, PLANNED_CELLS = 2_000, 300_000  # of the made-up stream that a plan looks at
ORACLE_RUNS = 5
FEWEST = 3  # runs of what is slow
WARM_UP = 64  # steps
SECONDS = 2.0  # for the runs of one choice of a mechanism in one setting, beyond the fewest

# configurations of any mechanism ------------------------------------------------------------------------------

# What the benchmark cannot judge although it would run. Everything else is in it by being in the catalogue.
ELSEWHERE = {
    **dict.fromkeys(
        ("ClippedSum", "ToPS"),
        "sum single bounded observations, not counts of steps; `tidegate bench` has them where each value is one",
    ),
    **dict.fromkeys(
        ("ClippedAverage", "ClippedDecay", "ClippedHistogram"),
        "release other statistics of such observations",
    ),
    **dict.fromkeys(
        ("PersonalAbsorption", "PersonalDistribution"),
        "read columns for each requirement of units, and are BudgetAbsorption and BudgetDistribution without any; "
        "`tidegate bench --requirements` compares them",
    ),
}
ELSEWHERE["Discover"] = "finds categories of units, and is no release of given columns"
WIDEST_HIERARCHY = 64  # consistent answers of many hundred nodes take minutes a run


def configured(
    kind: type[Mechanism], policy: WEvent, columns: int, season: int | None, steps: int
) -> list[Mechanism]:
    """The public choices of a mechanism that a plan compares, or its defaults; none where it has no proof for the policy.

    Mechanisms that need to know the end of the stream get it, and those that need a hierarchy a binary tree over the
    columns.

    Examples
    --------
    >>> from tidegate.mechanisms import BinaryTree, Sample, Swellfish
    >>> policy = WEvent(epsilon="1", window=24)
    >>> [choice.every for choice in configured(Sample, policy, 1, None, 100)]
    [3, 6, 12, 24]
    >>> configured(BinaryTree, policy, 1, None, 100)[0].horizon
    100
    >>> configured(Swellfish, policy, 1, None, 100)
    []
    """
    if kind.__name__ in ELSEWHERE:
        return []
    found = choices(kind, policy, columns, season)
    if found:
        return found
    for attempt in _attempts(kind, policy, columns, steps):
        try:
            return [attempt()]
        except (TidegateError, TypeError):  # another policy, or a parameter that it does not have
            continue
    return []


def published(kind: type[Mechanism], policy: WEvent, columns: int, steps: int) -> list[Mechanism]:
    """A mechanism as its paper has it (`Mechanism.as_published`); none where it has no proof for the policy.

    Nothing is chosen for the stream.

    Examples
    --------
    >>> from tidegate.mechanisms import Sample
    >>> published(Sample, WEvent(epsilon="1", window=24), 1, 100)
    [Sample(WEvent(epsilon='1', window=24), noise='laplace', every=24)]
    """
    if kind.__name__ in ELSEWHERE:
        return []
    shapes: list[dict[str, Any]] = [{"columns": columns, "horizon": steps}]
    if 1 < columns <= WIDEST_HIERARCHY:
        shapes.append({"hierarchy": Hierarchy.balanced(columns)})
    for shape in (*shapes, {"columns": columns}):
        try:
            return [kind.as_published(policy, **shape)]
        except (TidegateError, TypeError):  # another policy, or a parameter that it does not have
            continue
    return []


def _attempts(
    kind: type[Mechanism], policy: WEvent, columns: int, steps: int
) -> Iterator[Callable[[], Mechanism]]:
    yield lambda: kind(policy, columns=columns, horizon=steps)  # type: ignore[call-arg]
    if 1 < columns <= WIDEST_HIERARCHY:
        tree = Hierarchy.balanced(columns)  # of counts, which are not negative
        yield lambda: kind(policy, hierarchy=tree, nonnegative=True)  # type: ignore[call-arg]
        yield lambda: kind(policy, hierarchy=tree)  # type: ignore[call-arg]
    yield lambda: kind(policy, columns=columns)


# errors -------------------------------------------------------------------------------------------------------

Matrix = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]
AT_ONCE, LATER, WINDOW_SUMS, SUMS = "at once", "delayed", "window sums", "running sums"
STATISTICS = (AT_ONCE, LATER, WINDOW_SUMS, SUMS)
WINDOW = 24  # steps of the window sums
SUMMED = ("Uniform", "Sample")  # whose sums are compared with those of mechanisms made for sums


def errors(mechanism: Mechanism, truth: Matrix) -> dict[str, tuple[float, float]]:
    """(mean absolute, mean relative) error of one run for each statistic it answers; values are cut at 0.

    Examples
    --------
    >>> from tidegate.mechanisms import Uniform
    >>> from tidegate.policy import WEvent
    >>> sorted(errors(Uniform(WEvent(epsilon="1", window=2)), np.ones((50, 1), dtype=np.int64)))
    ['at once', 'running sums', 'window sums']
    """
    releases = Session(mechanism).push_batch(divided(mechanism, truth))
    if mechanism.statistic == "sums":
        return {SUMS: cut_errors(releases.values, np.cumsum(truth, axis=0))}
    if mechanism.statistic == "windows":
        return {
            WINDOW_SUMS: cut_errors(releases.values, _windows(truth, getattr(mechanism, "window", WINDOW)))
        }
    hierarchy = mechanism.forest

    def values(given: Releases) -> Values:
        """Those of the leaves, where a hierarchy is released."""
        return given.values if hierarchy is None else given.values[:, list(hierarchy.leaves)]

    found = {AT_ONCE: cut_errors(values(releases), truth)}
    revised = releases.revised
    if revised is not None and len(revised):
        first = revised.first_step - 1
        found[LATER] = cut_errors(values(revised), truth[first : first + len(revised)])
    if type(mechanism).__name__ in SUMMED:  # not cut at 0 before they are summed: that would add up
        found[WINDOW_SUMS] = cut_errors(_windows(releases.values, WINDOW), _windows(truth, WINDOW))
        found[SUMS] = cut_errors(np.cumsum(releases.values, axis=0), np.cumsum(truth, axis=0))
    return found


def repeated(
    mechanism: Mechanism,
    truth: Matrix,
    least: int,
    most: int,
    seconds: float,
    took: list[float] | None = None,
) -> dict[str, npt.NDArray[np.float64]]:
    """Errors (runs × 2) of each statistic over `most` runs, or over as many as the time allows and at least `least`.

    A short run before the clock starts compiles what has to be compiled. `took` gets the processor seconds of each run.
    """
    if most:
        errors(mechanism, truth[:WARM_UP])
    began = time.process_time()
    runs: dict[str, list[tuple[float, float]]] = {}
    for run in range(most):
        start = time.process_time()
        if run >= least and start - began > seconds:
            break
        for statistic, pair in errors(mechanism, truth).items():
            runs.setdefault(statistic, []).append(pair)
        if took is not None:
            took.append(time.process_time() - start)
    return {statistic: np.array(pairs) for statistic, pairs in runs.items()}


def expected(mechanism: Mechanism, made_up: Matrix) -> dict[str, float]:
    """The absolute errors on a made-up stream; none where the mechanism does not run on it."""
    try:
        return {statistic: pair[0] for statistic, pair in errors(mechanism, made_up).items()}
    except TidegateError:
        return {}


def _windows(values: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    """The sum of the last steps at each step, of fewer at the beginning."""
    sums = np.cumsum(values, axis=0)
    sums[length:] -= sums[:-length].copy()
    return sums


# the choice of a plan, and the best one ----------------------------------------------------------------------


def planned_on(truth: Matrix, level: float, season: int | None) -> Matrix:
    """The made-up stream on which a plan chooses for a stream of this shape: what anybody knows without the data."""
    steps, columns = truth.shape
    return _made_up(level, columns, season, min(steps, PLANNED_STEPS, max(PLANNED_CELLS // columns, 1)))


@lru_cache(maxsize=4)
def _made_up(level: float, columns: int, season: int | None, steps: int) -> Matrix:
    with install(FixedEntropy("plan")):
        return Description(level=level, columns=columns, season=season).sample(steps, 0)


def compared(
    found: list[Mechanism],
    truth: Matrix,
    made_up: Matrix,
    few: int,
    runs: int,
    seconds: float = SECONDS,
) -> list[Row]:
    """For each statistic: the choice of the plan with its errors, and the regret against the best of all choices.

    Every choice has a `few` runs, that of the plan has up to `runs`; fewer where they take more than `seconds`.
    """
    took: list[list[float]] = [[] for _ in found]
    with install(FixedEntropy("plan")):  # the same question gets the same answer
        predicted = [expected(mechanism, made_up) for mechanism in found]
    errors = [
        repeated(mechanism, truth, min(few, FEWEST), few, seconds / 2, times)
        for mechanism, times in zip(found, took, strict=True)
    ]
    rows: list[Row] = []
    more: dict[int, dict[str, Any]] = {}
    for statistic in STATISTICS:
        if not all(statistic in each for each in errors):
            continue
        planned = int(np.argmin([each.get(statistic, np.inf) for each in predicted]))
        if planned not in more:
            fewer = any(len(each) < few for each in errors[planned].values())
            rest = {} if fewer else repeated(found[planned], truth, 0, runs - few, seconds / 2, took[planned])
            more[planned] = {
                key: np.concatenate([each, rest.get(key, each[:0])]) for key, each in errors[planned].items()
            }
        means = [float(each[statistic][:, 0].mean()) for each in errors]
        oracle = int(np.argmin(means))
        final = more[planned][statistic]
        low, high = interval_of_mean(final[:, 0])
        rows.append(
            {
                "statistic": statistic,
                "predicted": predicted[planned].get(statistic, np.inf),
                "error": float(final[:, 0].mean()),
                "deviation": float(final[:, 0].std(ddof=1) / np.sqrt(len(final))) if len(final) > 1 else 0.0,
                "half": (high - low) / 2,
                "relative": float(final[:, 1].mean()),
                "oracle": means[oracle],
                "oracle relative": float(errors[oracle][statistic][:, 1].mean()),
                "regret": means[planned] / max(means[oracle], 1e-12),
                "runs": len(final),
                "choices": len(found),
                "chosen": planned,
                "best": oracle,
                "seconds": float(np.mean(took[planned])),
            }
        )
    return rows
