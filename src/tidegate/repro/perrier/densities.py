"""What Figures 8 and 10 share: the error of the last sum against a tree with noise scaled to the bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tidegate.repro.comparison import COLOURS, ratio_with_interval
from tidegate.repro.experiment import Judgement, Outcome, Row
from tidegate.repro.perrier.common import STREAMS, names_here, tidy
from tidegate.repro.perrier.last_sums import Stream, complete, last_sums, plans, tree_errors, tree_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SOUND, DEFAULT, PRINTED = "smooth threshold", "pure quantile (default here)", "as printed (not private)"
TREE, PRINTED_TREE = "tree with B", "tree with B, as printed (not private)"
NAMES = (TREE, SOUND, DEFAULT, PRINTED)


def settings(small: bool, generated: str, *real: str) -> list[dict[str, Any]]:
    """The generated stream and the real ones that are at hand."""
    names = [generated] if small else [generated, *names_here(*real)]
    return [
        {
            "stream": name,
            "count": min(150_000, STREAMS[name].count) if small else STREAMS[name].count,
            "runs": 40 if small else 1000,
            "complete": 1 if small else 4 if STREAMS[name].count > 10**6 else 200,
        }
        for name in names
    ]


def measure(setting: dict[str, Any]) -> list[Row]:
    """One row a run: the error of the last sum, over B."""
    name, runs = setting["stream"], setting["runs"]
    stream = Stream(name, setting["count"])
    tree = tree_of(name, stream.count)
    rows: list[Row] = []

    def keep(mechanism: str, errors: Any, clips: Any, *, whole: bool) -> None:
        rows.extend(
            {
                "stream": name,
                "mechanism": mechanism,
                "whole": whole,
                "run": run,
                "clip": float(clip),
                "over B": float(error) / stream.bound,
                "error": abs(float(error)),
            }
            for run, (error, clip) in enumerate(zip(errors, clips, strict=True))
        )

    bounds = np.full(runs, stream.bound)
    keep(TREE, tree_errors(tree, runs), bounds, whole=False)
    keep(PRINTED_TREE, tree_errors(tree, runs, printed=True), bounds, whole=False)
    keep(TREE, complete(tree, stream, setting["complete"]), bounds[: setting["complete"]], whole=True)
    for label, plan in plans(name, stream.count).items():
        found = last_sums(plan, stream, runs)
        keep(label, found.errors, found.clips, whole=False)
        if not plan.printed:
            whole = complete(plan.mechanism, stream, setting["complete"])
            keep(label, whole, np.full(len(whole), np.nan), whole=True)
    return rows


def judge(frame: pl.DataFrame, generated: str, claimed: float) -> Judgement:
    """Improvement factors with intervals; holds where the smooth threshold reaches 90 % of the claim on every stream."""
    words: list[str] = []
    sound: dict[str, float] = {}
    printed = 0.0
    for key, group in frame.group_by("stream", maintain_order=True):
        short_cut = group.filter(~pl.col("whole"))
        runs = {str(name[0]): part for name, part in short_cut.group_by("mechanism")}
        parts = []
        for label in (SOUND, DEFAULT, PRINTED):
            base = runs[PRINTED_TREE if label == PRINTED else TREE]["error"].to_numpy()
            factor, low, high = ratio_with_interval(base, runs[label]["error"].to_numpy())
            clip = float(np.median(runs[label]["clip"].to_numpy()))
            parts.append(
                f"{key[0]}, {label}: {factor:.2f} ({low:.2f} to {high:.2f}), median clip {clip:,.0f}"
            )
            if label == SOUND:
                sound[str(key[0])] = factor
            elif label == PRINTED and key[0] == generated:
                printed = factor
        check = [
            group.filter((pl.col("mechanism") == SOUND) & (pl.col("whole") == whole))["error"].to_numpy()
            for whole in (True, False)
        ]
        ratio, low, high = ratio_with_interval(*check)
        parts.append(
            f"{key[0]}, check: {len(check[0])} complete runs of the smooth threshold have {ratio:.2f} ({low:.2f} to "
            f"{high:.2f}) times the mean error of the others"
        )
        words += parts
    enough = 0.9 * claimed
    if all(factor >= enough for factor in sound.values()):
        outcome = Outcome.HOLDS
    elif sound[generated] < enough <= printed:
        outcome = Outcome.PRINTED_ONLY
    else:
        outcome = Outcome.PARTLY if max(sound.values()) > 1 else Outcome.FAILS
    return Judgement(
        outcome, f"Improvement over the tree with B (claimed: {claimed:g} times): " + "; ".join(words) + "."
    )


def draw(frame: pl.DataFrame, figure: Figure) -> None:
    """Densities of the error over B, one panel a stream."""
    frame = frame.filter(~pl.col("whole"))
    names = frame["stream"].unique(maintain_order=True).to_list()
    figure.set_size_inches(4.2 * len(names) + 1, 4.2)
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(names))), names, strict=True):
        part = frame.filter(pl.col("stream") == name)
        reach = np.quantile(np.abs(part.filter(pl.col("mechanism") == TREE)["over B"].to_numpy()), 0.97)
        edges = np.linspace(-reach, reach, 81)
        for number, label in enumerate(NAMES):
            values = part.filter(pl.col("mechanism") == label)["over B"].to_numpy()
            heights = np.histogram(values, edges)[0] / len(values) / np.diff(edges)
            smooth = np.convolve(heights, np.ones(7) / 7, mode="same")
            axes.plot((edges[1:] + edges[:-1]) / 2, smooth, color=COLOURS[number], linewidth=1.3, label=label)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("error of the last sum / B")
        axes.set_ylabel("density")
        tidy(axes)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)


NOTES = (
    "1,000 runs in place of 20,000, each with the threshold of the mechanism and the noise of the nodes of its last "
    "sum; a few complete runs check that. “Printed”: the quantile as defined, its constants, noise for log₂ n levels "
    "and a first sum that is not clipped, against the printed tree. Parameters of the smooth threshold come from "
    "another generated sample; on real streams they are the paper's recommendations (ε₁ = 0.85, r = 1.5)."
)
