"""Pictures of losses found against losses claimed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tidegate.audit.verdicts import Finding

INK, QUIET, FAINT = "#1d2733", "#5c6773", "#d5dbe1"
FOUND, SAFE = "#c2410c", "#0f766e"


def draw_verdict(verdict: Finding, path: Path) -> None:
    """One audit: the claim, what was proved, and how often the event happened under each stream."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    figure = Figure(figsize=(8.6, 3.2), layout="constrained")
    figure.suptitle(_wrapped(str(verdict)), fontsize=10.5, color=INK, x=0.012, ha="left")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    beyond = verdict.outcome != "no violation found"
    found = min(verdict.loss if np.isfinite(verdict.loss) else 4 * verdict.claim, 12 * verdict.claim)
    left.barh([0], [verdict.claim], color=FAINT, height=0.5)
    left.barh([1], [found], color=FOUND if beyond else SAFE, height=0.5)
    left.axvline(verdict.claim, color=INK, linewidth=1.2)
    left.set_yticks([0, 1], ["claimed", "proved to be lost"], color=INK)
    left.set_xlabel(f"privacy loss ({verdict.measure})", color=QUIET)
    if np.isfinite(verdict.power) and not beyond:
        reach = verdict.claim * verdict.power
        left.plot([reach], [1], marker="|", markersize=20, color=QUIET)
        left.annotate("would have been\nfound from here", (reach, 1), (4, 0), textcoords="offset points",
                      fontsize=8, color=QUIET, va="center")  # fmt: skip
        left.set_xlim(0, max(reach * 1.45, verdict.claim * 1.2))
    plain(left)
    if verdict.trials:
        shares = np.maximum(np.array(verdict.counts) / verdict.trials, 0.3 / verdict.trials)
        right.bar([0, 1], shares, color=[FOUND if beyond else SAFE, FAINT], width=0.6)
        if shares.max() > 20 * shares.min():  # the smaller one would be a line
            right.set_yscale("log")
            right.yaxis.set_minor_locator(NullLocator())
            right.set_ylim(shares.min() / 4, 4 * shares.max())
        else:
            right.set_ylim(0, 1.15 * shares.max())
        right.set_xticks([0, 1], ["one stream", "its neighbour"], color=INK)
        right.set_ylabel("chance of the event", color=QUIET)
        for at, count in enumerate(verdict.counts):
            right.annotate(
                f"{count:,}",
                (at, shares[at]),
                (0, 3),
                ha="center",
                fontsize=8,
                textcoords="offset points",
                color=INK,
            )
        plain(right)
    else:
        right.set_axis_off()
    save(figure, path)


def plain(axes: Any) -> None:
    """Axes without a frame, in quiet colours."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(colors=QUIET, labelsize=8)


def _wrapped(words: str) -> str:
    from textwrap import fill

    return fill(words, 112)


def save(figure: Any, path: Path) -> None:
    """Write a picture, and its folder where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
