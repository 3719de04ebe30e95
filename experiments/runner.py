"""Run experiments, in parallel over all their settings, and keep rows, pictures and judgements.

The settings of all chosen experiments are one list of tasks, the longest first, so that no process waits for the end of
an experiment. The rows of each task are kept as soon as it is done: an interrupted run goes on where it was.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.experiment import Experiment, Judgement, MissingData, Outcome, Row, Table, experiments
from tidegate.errors import InvalidParameter

if TYPE_CHECKING:
    import polars as pl

Tell = Callable[["Progress"], None]
FAILED = "failed with"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Result:
    """What became of one experiment; `judgement` is None where it was skipped. `seconds` are of processor time."""

    experiment: Experiment
    judgement: Judgement | None
    skipped: str
    seconds: float
    small: bool


@dataclass(frozen=True)
class Progress:
    """How far a run is: tasks done and in all, the share of the work, seconds so far, and what has just been judged."""

    done: int
    total: int
    share: float
    seconds: float
    result: Result | None = None

    @property
    def left(self) -> float:
        """The seconds that the rest will take at the pace so far."""
        return self.seconds * (1 - self.share) / self.share if self.share > 0 else float("nan")


@dataclass(frozen=True)
class Task:
    """One setting of one experiment, and the file that keeps its rows."""

    experiment: Experiment
    setting: dict[str, Any]
    file: Path

    @property
    def cost(self) -> float:
        """About how many seconds it takes in full."""
        return self.experiment.cost(self.setting)


def run(experiment: Experiment, folder: Path, *, small: bool = False, workers: int = 1) -> Result:
    """Run one experiment and write <key>.parquet, <key>.png and <key>.json into the folder."""
    return run_all([experiment], folder, small=small, workers=workers)[0]


def run_all(
    chosen: Sequence[Experiment],
    folder: Path,
    *,
    small: bool = False,
    workers: int = 2,
    fresh: bool = False,
    tell: Tell = lambda progress: None,
) -> list[Result]:
    """Run experiments; what an interrupted run of the same settings has left is used, unless `fresh`."""
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        return _run_all(chosen, folder, small=small, workers=workers, fresh=fresh, tell=tell)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Refuse a folder that another run uses: each would take away what the other has begun."""
    import fcntl  # other systems may read results

    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InvalidParameter(
            "folder",
            str(folder),
            "a folder that no other run uses",
            "wait for it, or name another with --results",
        ) from None
    else:
        yield
    finally:
        os.close(descriptor)


def _run_all(
    chosen: Sequence[Experiment], folder: Path, *, small: bool, workers: int, fresh: bool, tell: Tell
) -> list[Result]:
    began = time.perf_counter()
    parts = folder / "unfinished"
    if fresh and parts.exists():
        shutil.rmtree(parts)
    parts.mkdir(parents=True, exist_ok=True)
    tasks = {e.key: [_task(e, s, parts, small) for s in e.settings(small)] for e in chosen}
    left = {key: sum(not task.file.exists() for task in each) for key, each in tasks.items()}
    waiting = [task for each in tasks.values() for task in each if not task.file.exists()]
    waiting.sort(key=lambda task: -task.cost)
    whole = sum(task.cost for task in waiting) or 1.0
    results: dict[str, Result] = {}
    share, total = 0.0, len(waiting)

    def judged(experiment: Experiment) -> Result:
        results[experiment.key] = result = _finish(experiment, tasks[experiment.key], folder, small)
        return result

    for experiment in chosen:
        if not left[experiment.key]:
            tell(Progress(0, total, 0.0, time.perf_counter() - began, judged(experiment)))
    for done, task in enumerate(_measured(waiting, workers), start=1):
        key = task.experiment.key
        left[key] -= 1
        share += task.cost / whole
        result = judged(task.experiment) if not left[key] else None
        tell(Progress(done, total, min(share, 1.0), time.perf_counter() - began, result))
    shutil.rmtree(parts)
    return [results[experiment.key] for experiment in chosen]


def again(experiment: Experiment, folder: Path) -> Result | None:
    """Judge and draw the rows of an earlier run again, without measuring; None where there are none."""
    import polars as pl

    earlier = read(experiment, folder)
    rows = folder / f"{experiment.key}.parquet"
    if earlier is None or earlier.judgement is None or not rows.exists():
        return earlier
    frame = pl.read_parquet(rows)
    _draw(experiment, frame, folder / f"{experiment.key}.png")
    result = Result(experiment, _judged(experiment, frame, earlier.small), "", earlier.seconds, earlier.small)
    _write(result, folder)
    return result


def _task(experiment: Experiment, setting: dict[str, Any], parts: Path, small: bool) -> Task:
    """A task whose file is named by all that decides its rows within one version: changed code measures anew."""
    source = inspect.getsource(inspect.getmodule(experiment.measure) or experiment.measure)
    decisive = json.dumps([experiment.key, setting, small, source], sort_keys=True, default=str)
    digest = hashlib.sha256(decisive.encode()).hexdigest()[:24]
    return Task(experiment, setting, parts / f"{experiment.key}-{digest}.json")


def _measured(waiting: list[Task], workers: int) -> Iterator[Task]:
    """Measure the tasks, each written to its file; they are returned in the order in which they are done."""
    if workers <= 1 or len(waiting) <= 1:
        for task in waiting:
            _keep(task.file, *_timed(task.experiment, task.setting))
            yield task
        return
    for variable in THREADS:  # processes are the parallelism
        os.environ.setdefault(variable, "1")
    # a fresh interpreter each: a fork would inherit compiled code in any state
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        pending = {pool.submit(_measure, task.experiment.key, task.setting): task for task in waiting}
        try:
            for future in as_completed(pending):
                task = pending[future]
                _keep(task.file, *future.result())
                yield task
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _measure(key: str, setting: dict[str, Any]) -> tuple[list[Row], str, float]:
    return _timed(experiments()[key], setting)


def _timed(experiment: Experiment, setting: dict[str, Any]) -> tuple[list[Row], str, float]:
    """(rows, reason why there are none, seconds of processor time)."""
    began = time.process_time()
    try:
        rows, reason = experiment.measure(setting), ""
    except MissingData as missing:
        rows, reason = [], str(missing)
    except Exception as error:  # the others go on, and the command says that this one failed
        rows, reason = [], f"{FAILED} {type(error).__name__}: {error}"
    return rows, reason, time.process_time() - began


def _keep(file: Path, rows: list[Row], reason: str, seconds: float) -> None:
    """Written under another name first: a file that is there is complete."""
    draft, kept = file.with_suffix(".draft"), {"rows": rows, "reason": reason, "seconds": seconds}
    draft.write_text(json.dumps(kept, default=lambda number: number.item()), encoding="utf-8")
    draft.replace(file)


def _finish(experiment: Experiment, tasks: list[Task], folder: Path, small: bool) -> Result:
    """Put the rows together, judge and draw them."""
    kept = [json.loads(task.file.read_text(encoding="utf-8")) for task in tasks]
    seconds = sum(part["seconds"] for part in kept)
    reasons = [part["reason"] for part in kept if part["reason"]]
    if reasons:
        result = Result(experiment, None, reasons[0], seconds, small)
    else:
        frame = _frame([row for part in kept for row in part["rows"]])
        frame.write_parquet(folder / f"{experiment.key}.parquet")
        _draw(experiment, frame, folder / f"{experiment.key}.png")
        result = Result(experiment, _judged(experiment, frame, small), "", seconds, small)
    _write(result, folder)
    return result


def _judged(experiment: Experiment, frame: pl.DataFrame, small: bool) -> Judgement:
    """What the rows say. A claim is not judged by a small run: intervals of one or two runs say nothing."""
    found = experiment.judge(frame)
    if small and found.outcome is not Outcome.MEASURED:
        return replace(found, outcome=Outcome.ROUGH)
    return found


def _frame(rows: list[Row]) -> pl.DataFrame:
    import polars as pl

    frame = pl.DataFrame(rows, infer_schema_length=None)
    return frame.sort([name for name in frame.columns if name not in ("error", "value")], maintain_order=True)


def _draw(experiment: Experiment, frame: Any, file: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), dpi=100, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    experiment.draw(frame, figure)
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{experiment.paper}, {experiment.name}", fontsize=11)
    figure.savefig(file)


def _write(result: Result, folder: Path) -> None:
    judgement = result.judgement
    facts = {
        "key": result.experiment.key,
        "outcome": None if judgement is None else judgement.outcome.value,
        "words": None if judgement is None else judgement.words,
        "tables": [] if judgement is None else [asdict(table) for table in judgement.tables],
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
    if facts["outcome"] is None:
        return Result(experiment, None, facts["skipped"], facts["seconds"], facts["small"])
    tables = tuple(
        Table(table["title"], tuple(table["head"]), tuple(tuple(row) for row in table["rows"]))
        for table in facts.get("tables", [])
    )
    judgement = Judgement(Outcome(facts["outcome"]), facts["words"], tables)
    return Result(experiment, judgement, "", facts["seconds"], facts["small"])
