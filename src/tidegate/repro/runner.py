"""Run experiments, in parallel over their settings, and keep rows, pictures and judgements."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tidegate.repro.experiment import Experiment, Judgement, MissingData, Outcome, Row, experiments

Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Result:
    """What became of one experiment; `judgement` is None where it was skipped."""

    experiment: Experiment
    judgement: Judgement | None
    skipped: str
    seconds: float
    small: bool


def run(
    experiment: Experiment,
    folder: Path,
    *,
    small: bool = False,
    workers: int = 2,
    tell: Tell = lambda words, done, total: None,
) -> Result:
    """Run one experiment and write <key>.parquet, <key>.png and <key>.json into the folder."""
    import polars as pl

    began = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        settings = list(experiment.settings(small))
        rows: list[Row] = []
        if workers <= 1 or len(settings) == 1:
            for done, setting in enumerate(settings):
                tell(experiment.key, done, len(settings))
                rows += experiment.measure(setting)
        else:
            # a fresh interpreter each: a fork would inherit compiled code in any state
            with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
                waiting = [pool.submit(_measure, experiment.key, setting) for setting in settings]
                for done, future in enumerate(as_completed(waiting)):
                    tell(experiment.key, done, len(settings))
                    rows += future.result()
    except MissingData as missing:
        result = Result(experiment, None, str(missing), time.perf_counter() - began, small)
        _write(result, folder)
        return result
    frame = pl.DataFrame(rows, infer_schema_length=None)
    frame = frame.sort([name for name in frame.columns if name not in ("error", "value")])
    frame.write_parquet(folder / f"{experiment.key}.parquet")
    _draw(experiment, frame, folder / f"{experiment.key}.png")
    result = Result(experiment, experiment.judge(frame), "", time.perf_counter() - began, small)
    _write(result, folder)
    return result


def again(experiment: Experiment, folder: Path) -> Result | None:
    """Judge and draw the rows of an earlier run again, without measuring; None where there are none."""
    import polars as pl

    earlier = read(experiment, folder)
    rows = folder / f"{experiment.key}.parquet"
    if earlier is None or not rows.exists():
        return earlier
    frame = pl.read_parquet(rows)
    _draw(experiment, frame, folder / f"{experiment.key}.png")
    result = Result(experiment, experiment.judge(frame), "", earlier.seconds, earlier.small)
    _write(result, folder)
    return result


def _measure(key: str, setting: dict[str, Any]) -> list[Row]:
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
        os.environ.setdefault(variable, "1")
    return experiments()[key].measure(setting)


def _draw(experiment: Experiment, frame: Any, file: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), dpi=100, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    experiment.draw(frame, figure)
    figure.suptitle(f"{experiment.paper}, {experiment.name}", fontsize=11)
    figure.savefig(file)


def _write(result: Result, folder: Path) -> None:
    judgement = result.judgement
    facts = {
        "key": result.experiment.key,
        "outcome": None if judgement is None else judgement.outcome.value,
        "words": None if judgement is None else judgement.words,
        "skipped": result.skipped,
        "seconds": round(result.seconds, 2),
        "small": result.small,
    }
    (folder / f"{result.experiment.key}.json").write_text(
        json.dumps(facts, indent=2) + "\n", encoding="utf-8"
    )


def read(experiment: Experiment, folder: Path) -> Result | None:
    """What an earlier run found, or None."""
    file = folder / f"{experiment.key}.json"
    if not file.exists():
        return None
    facts = json.loads(file.read_text(encoding="utf-8"))
    judgement = None if facts["outcome"] is None else Judgement(Outcome(facts["outcome"]), facts["words"])
    return Result(experiment, judgement, facts["skipped"], facts["seconds"], facts["small"])
