"""Every mechanism × every stream × ε × w: the error with parameters from a plan, with the best ones, and the regret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.errors import TidegateError
from tidegate.mechanisms import Mechanism, catalogue
from tidegate.plan import Description
from tidegate.plan.predict import choices, predict
from tidegate.policy import Event, Policy, WEvent
from tidegate.repro.comparison import short
from tidegate.repro.data import STREAMS, load
from tidegate.repro.experiment import Experiment, Judgement, Outcome, Row
from tidegate.repro.metrics import mean_absolute_error, mean_relative_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPSILONS = ("0.01", "0.1", "1")
WINDOWS = (1, 24, 48, 120, 240)
STEPS, CELLS = 10_000, 400_000
PLANNED_STEPS, PLANNED_CELLS = 2_000, 60_000


def _settings(small: bool) -> list[dict[str, Any]]:
    names = ("unemployment", "load, Provence") if small else tuple(STREAMS)
    return [
        {
            "stream": name,
            "epsilon": epsilon,
            "w": w,
            "runs": 1 if small else 5,
            "steps": 600 if small else STEPS,
        }
        for name in names
        for epsilon in (EPSILONS[1:2] if small else EPSILONS)
        for w in ((24,) if small else WINDOWS)
    ]


def _policy(epsilon: str, w: int) -> Policy:
    return Event(epsilon=epsilon) if w == 1 else WEvent(epsilon=epsilon, w=w)


def _measure(setting: dict[str, Any]) -> list[Row]:
    stream = STREAMS[setting["stream"]]
    whole = load(setting["stream"])
    truth = whole[: min(setting["steps"], max(1, CELLS // whole.shape[1]))]
    policy = _policy(setting["epsilon"], setting["w"])
    # what anybody knows without the data: an order of magnitude, the length of a day, the number of columns
    public = Description(level=stream.level, columns=truth.shape[1], season=stream.season)
    steps = max(min(PLANNED_STEPS, PLANNED_CELLS // truth.shape[1], len(truth)), min(60, len(truth)))
    made_up = public.sample(steps, 0)
    rows: list[Row] = []
    for name, kind in catalogue().items():
        found = choices(kind, policy, truth.shape[1], stream.season)
        if not found:
            continue
        expected = [_expected(mechanism, made_up) for mechanism in found]
        planned = int(np.argmin(expected))
        errors = [_errors(mechanism, truth, setting["runs"]) for mechanism in found]
        for late in (False, True):
            means = [float(np.mean([e[late][0] for e in one])) for one in errors]
            if not np.isfinite(means[planned]):
                continue
            oracle = int(np.nanargmin(means))
            rows.append(
                {
                    "stream": setting["stream"],
                    "epsilon": float(setting["epsilon"]),
                    "w": setting["w"],
                    "mechanism": f"{name}, delayed" if late else name,
                    "delayed": late,
                    "error": means[planned],
                    "relative": float(np.mean([e[late][1] for e in errors[planned]])),
                    "oracle": means[oracle],
                    "regret": means[planned] / max(means[oracle], 1e-12),
                    "choices": len(found),
                }
            )
    return rows


def _expected(mechanism: Mechanism, made_up: npt.NDArray[np.int64]) -> float:
    try:
        return min(prediction.absolute for prediction in predict(mechanism, [made_up]))
    except TidegateError:
        return float("inf")


def _errors(
    mechanism: Mechanism, truth: npt.NDArray[np.int64], runs: int
) -> list[dict[bool, tuple[float, float]]]:
    """For each run the (absolute, relative) error at once, and of revised values where there are any."""
    found = []
    for _ in range(runs):
        releases = mechanism.start().push_batch(truth)
        one = {False: _pair(releases.values, truth), True: (np.nan, np.nan)}
        revised = getattr(releases, "revised", None)
        if revised is not None and len(revised):
            first = revised.first_step - 1
            one[True] = _pair(revised.values, truth[first : first + len(revised)])
        found.append(one)
    return found


def _pair(values: npt.NDArray[np.float64], truth: npt.NDArray[np.int64]) -> tuple[float, float]:
    shown = np.maximum(values, 0.0)
    return mean_absolute_error(shown, truth), mean_relative_error(shown, truth)


def _judge(frame: pl.DataFrame) -> Judgement:
    """Who wins how often, at once and with a delay, and what choosing blindly costs."""
    words = []
    for late in (False, True):
        part = frame.filter(pl.col("delayed") == late) if not late else frame
        best = part.sort("error").group_by(["stream", "epsilon", "w"], maintain_order=True).first()
        wins = best.group_by("mechanism").len().sort("len", descending=True)
        told = ", ".join(f"{name} {count}" for name, count in wins.rows())
        words.append(f"{'Delayed values allowed' if late else 'At once'}, settings won: {told}")
    regret = frame.filter(pl.col("choices") > 1)["regret"].to_numpy()
    if regret.size:
        words.append(
            f"Parameters chosen without the data cost a median factor {short(float(np.median(regret)))} "
            f"and at most {short(float(regret.max()))} over the best choice"
        )
    return Judgement(Outcome.HOLDS, ". ".join(words) + ".")


def _draw(frame: pl.DataFrame, figure: Figure) -> None:
    """For each setting the error over Uniform's, one row a mechanism; the best one is marked."""
    from matplotlib.colors import LogNorm

    settings = frame.select("stream", "epsilon", "w").unique().sort("stream", "epsilon", "w").rows()
    names = frame.group_by("mechanism").agg(pl.col("error").count()).sort("mechanism")["mechanism"].to_list()
    table = {(r["stream"], r["epsilon"], r["w"], r["mechanism"]): r["error"] for r in frame.to_dicts()}
    ratio = np.full((len(names), len(settings)), np.nan)
    for column, setting in enumerate(settings):
        plain = table.get((*setting, "Uniform"), np.nan)
        for row, name in enumerate(names):
            ratio[row, column] = table.get((*setting, name), np.nan) / plain
    figure.set_size_inches(max(8, 0.16 * len(settings) + 3), 0.3 * len(names) + 2.6)
    axes = figure.subplots()
    axes.imshow(ratio, norm=LogNorm(0.02, 50), cmap="RdYlGn_r", aspect="auto")
    for column in range(len(settings)):
        if np.isfinite(ratio[:, column]).any():
            axes.plot(column, int(np.nanargmin(ratio[:, column])), "k.", markersize=4)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    starts = [i for i, s in enumerate(settings) if i == 0 or settings[i - 1][0] != s[0]]
    axes.set_xticks(starts, [settings[i][0] for i in starts], fontsize=8, rotation=20, ha="left")
    axes.xaxis.tick_top()
    axes.set_xlabel(
        "each stream: ε = 0.01, 0.1, 1 and within each w = 1 … 240; colour: error over Uniform's, dot: the best"
    )


EXPERIMENT = Experiment(
    paper="across",
    name="Benchmark",
    claim="None of the papers compares all of them: here every mechanism of the catalogue runs on every stream.",
    data="; ".join(f"{stream.name}: {stream.source}" for stream in STREAMS.values()) + ".",
    settings=_settings,
    measure=_measure,
    judge=_judge,
    draw=_draw,
    notes="Parameters come from a plan that knows an order of magnitude, the length of a day and the number of columns; "
    "the oracle picks the best of the same choices by looking at the data.",
)
