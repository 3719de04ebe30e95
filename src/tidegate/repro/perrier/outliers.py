"""What Figures 9 and 11 share: what clipping really loses against what equation 16 foresees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tidegate.repro.comparison import COLOURS, short
from tidegate.repro.experiment import Judgement, Outcome, Row
from tidegate.repro.metrics import interval_of_share
from tidegate.repro.perrier.common import STREAMS, names_here, tidy
from tidegate.repro.perrier.densities import DEFAULT, PRINTED, SOUND
from tidegate.repro.perrier.last_sums import Stream, last_sums, plans

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def settings(small: bool, generated: str, *real: str) -> list[dict[str, Any]]:
    """The generated stream and the real ones that are at hand."""
    names = [generated] if small else [generated, *names_here(*real)]
    return [
        {
            "stream": name,
            "count": min(150_000, STREAMS[name].count) if small else STREAMS[name].count,
            "runs": 40 if small else 1000,
        }
        for name in names
    ]


def measure(setting: dict[str, Any]) -> list[Row]:
    """One row a run: real over foreseen outlier error."""
    name = setting["stream"]
    stream = Stream(name, setting["count"])
    rows: list[Row] = []
    for label, plan in plans(name, stream.count).items():
        found = last_sums(plan, stream, setting["runs"])
        rows += [
            {
                "stream": name,
                "mechanism": label,
                "run": run,
                "clip": float(found.clips[run]),
                "lost": float(found.lost[run]),
                "foreseen": float(found.foreseen[run]),
                "ratio": float(found.lost[run] / found.foreseen[run]),
            }
            for run in range(setting["runs"])
        ]
    return rows


def judge(frame: pl.DataFrame, generated: str) -> Judgement:
    """Whether the real error is almost always below the foreseen one."""
    words: list[str] = []
    kept: dict[tuple[object, ...], float] = {}
    for key, group in frame.group_by(["stream", "mechanism"], maintain_order=True):
        ratios = group["ratio"].to_numpy()
        below = float((ratios <= 1).mean())
        kept[key] = below
        low, top = interval_of_share(int((ratios <= 1).sum()), len(ratios))
        high = np.quantile(ratios, 0.95)
        words.append(
            f"{key[0]}, {key[1]}: below 1 in {below:.1%} of runs ({low:.1%} to {top:.1%}), median "
            f"{short(float(np.median(ratios)))}, 95 % up to {short(float(high))} "
            f"(foreseen {short(float(group['foreseen'][0]))})"
        )
    made_up = kept[generated, SOUND]
    everywhere = min(share for key, share in kept.items() if key[1] == SOUND)
    outcome = Outcome.HOLDS if everywhere >= 0.98 else Outcome.PARTLY if made_up >= 0.98 else Outcome.FAILS
    return Judgement(outcome, "; ".join(words) + ".")


def draw(frame: pl.DataFrame, figure: Figure) -> None:
    """How the ratio is distributed, one panel a stream; a ratio of 0 means that nothing was clipped."""
    names = frame["stream"].unique(maintain_order=True).to_list()
    figure.set_size_inches(4.2 * len(names) + 1, 4.2)
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(names))), names, strict=True):
        for number, label in enumerate((SOUND, DEFAULT, PRINTED), start=1):  # colours as in Figures 8 and 10
            part = frame.filter((pl.col("stream") == name) & (pl.col("mechanism") == label))
            ratios = np.sort(part["ratio"].to_numpy())
            share = np.arange(1, len(ratios) + 1) / len(ratios)
            axes.plot(
                ratios, share, color=COLOURS[number], linewidth=1.4, drawstyle="steps-post", label=label
            )
        axes.axvline(1, color="#111827", linewidth=0.8, linestyle=":")
        axes.set_xscale("symlog", linthresh=1e-3)
        axes.set_xlim(0, None)
        axes.set_ylim(0, 1.02)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("real / foreseen outlier error")
        axes.set_ylabel("share of runs at or below")
        tidy(axes)
    handles, texts = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside lower center", ncols=3, frameon=False, fontsize=8)


NOTES = (
    "1,000 runs in place of 20,000. The default threshold of this library promises no such bound; the same formula "
    "is put to its p and r. On real streams the parameters are the paper's recommendations. Shown as shares of runs, "
    "since many runs clip nothing at all."
)
