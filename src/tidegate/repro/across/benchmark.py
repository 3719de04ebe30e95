"""Every mechanism × every stream × ε × w: the error with parameters from a plan, with the best ones, and the regret."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tidegate.mechanisms import Mechanism, catalogue
from tidegate.noise import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.plan import Description
from tidegate.policy import WEvent
from tidegate.repro.across import scores
from tidegate.repro.across.configured import ELSEWHERE, configured
from tidegate.repro.across.pictures import draw
from tidegate.repro.across.verdict import judge
from tidegate.repro.experiment import Experiment, Row
from tidegate.repro.metrics import interval_of_mean
from tidegate.repro.streams import STREAMS, here, load

EPSILONS = ("0.01", "0.1", "1")
WINDOWS = (1, 24, 48, 120, 240)
STEPS, CELLS = 10_000, 1_500_000  # of a stream, from its beginning
PLANNED_STEPS, PLANNED_CELLS = 2_000, 300_000  # of the made-up stream that a plan looks at
ORACLE_RUNS, RUNS = 5, 20
WIDE, WIDE_RUNS = 50_000, (2, 5)  # cells from which a stream has fewer runs
FEWEST = 3  # runs of what is slow
SECONDS = 2.0  # for the runs of one choice of a mechanism in one setting, beyond the fewest


def _settings(small: bool) -> list[dict[str, Any]]:
    names = ["unemployment", "load, Provence"] if small else here() or list(STREAMS)
    epsilons, windows = (EPSILONS[1:2], (24,)) if small else (EPSILONS, WINDOWS)
    runs, steps = (2, 600) if small else (RUNS, STEPS)
    return [
        {"stream": name, "w": w, "epsilons": list(epsilons), "runs": runs, "steps": steps}
        for name in names
        for w in windows
    ]


@lru_cache(maxsize=4)
def _made_up(level: float, columns: int, season: int, steps: int) -> scores.Matrix:
    with install(FixedEntropy("plan")):
        return Description(level=level, columns=columns, season=season).sample(steps, 0)


def _measure(setting: dict[str, Any]) -> list[Row]:
    stream, whole = STREAMS[setting["stream"]], load(setting["stream"])
    columns = whole.shape[1]
    truth = whole[: min(setting["steps"], CELLS // columns)]
    # what anybody knows without the data: an order of magnitude, the length of a day, the number of columns
    steps = min(len(truth), PLANNED_STEPS, PLANNED_CELLS // columns)
    made_up = _made_up(stream.level, columns, stream.season, steps)
    few, runs = min(ORACLE_RUNS, setting["runs"]), setting["runs"]
    if truth.size > WIDE:
        few, runs = (min(most, setting["runs"]) for most in WIDE_RUNS)
    rows: list[Row] = []
    for epsilon in setting["epsilons"]:
        policy = WEvent(epsilon=epsilon, w=setting["w"])
        labels = {
            "stream": stream.name,
            "columns": columns,
            "level": stream.level,
            "nothing": float(truth.mean()),  # the error of answering 0 everywhere
            "epsilon": float(epsilon),
            "w": setting["w"],
        }
        for name, kind in catalogue().items():
            found = configured(kind, policy, columns, stream.season, len(truth))
            if found:
                rows += [
                    {**labels, "mechanism": name, **row} for row in compared(found, truth, made_up, few, runs)
                ]
    return rows


def compared(
    found: list[Mechanism], truth: scores.Matrix, made_up: scores.Matrix, few: int, runs: int
) -> list[Row]:
    """For each statistic: the choice of the plan with its errors, and the regret against the best of all choices.

    Every choice has a `few` runs, that of the plan has up to `runs`.
    """
    with install(FixedEntropy("plan")):  # the same question gets the same answer
        predicted = [scores.expected(mechanism, made_up) for mechanism in found]
    errors = [scores.repeated(mechanism, truth, min(few, FEWEST), few, SECONDS / 2) for mechanism in found]
    rows: list[Row] = []
    more: dict[int, dict[str, Any]] = {}
    for statistic in scores.STATISTICS:
        if not all(statistic in each for each in errors):
            continue
        planned = int(np.argmin([each.get(statistic, np.inf) for each in predicted]))
        if planned not in more:
            fewer = any(len(each) < few for each in errors[planned].values())
            rest = {} if fewer else scores.repeated(found[planned], truth, 0, runs - few, SECONDS / 2)
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
            }
        )
    return rows


def _cost(setting: dict[str, Any]) -> float:
    wide = {"load, 12 regions": 45.0, "load, 20 zones": 20.0, "load, 4 regions": 15.0}
    words = setting["stream"].split()
    return wide.get(setting["stream"], 25.0 if any(word.isdigit() for word in words[:-1]) else 8.0)


EXPERIMENT = Experiment(
    paper="across",
    name="Benchmark",
    claim="None of the papers compares all mechanisms: here every one of the catalogue runs on every stream.",
    data="; ".join(sorted({f"{stream.source} ({stream.file})" for stream in STREAMS.values()})) + ".",
    settings=_settings,
    measure=_measure,
    judge=judge,
    draw=draw,
    cost=_cost,
    notes="The first 10,000 steps of every stream. One unit changes a step by 1. Parameters come from a plan that knows "
    "an order of magnitude, the length of a day and the number of columns, and tries its choices on a made-up stream; "
    "the oracle picks the best of the same choices by looking at the data, on five runs. 20 runs of the planned choice, "
    "5 on wide streams and at least 2 or 3 of slow mechanisms (the rows say how many). Values are cut at 0. Hierarchies "
    "are binary trees over up to 64 columns, judged at their leaves. Window sums are over 24 steps. Tide is this "
    "library's own mechanism, and its defaults were settled while looking at some of these streams, which those of the "
    "others were not. Not here: mechanisms that need another policy or budget (Swellfish, Factorization), Blocks, which "
    f"wraps another mechanism, and ClippedSum, which {ELSEWHERE['ClippedSum']} ClippedAverage, ClippedDecay and "
    "ClippedHistogram release other statistics of such observations.",
)
