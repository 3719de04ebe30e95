"""Pictures of losses found against losses claimed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tidegate.audit.table import Line
    from tidegate.audit.verdicts import Finding

INK, QUIET, FAINT = "#1d2733", "#5c6773", "#d5dbe1"
FOUND, SAFE = "#c2410c", "#0f766e"
MOST = 12.0  # losses beyond it end in an arrow


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
    _plain(left)
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
        _plain(right)
    else:
        right.set_axis_off()
    _save(figure, path)


def draw_zoo(animals: Sequence[Line], mechanisms: Sequence[Line], path: Path) -> None:
    """All audits: what was found, on a logarithmic axis on which 1 is what was claimed."""
    from matplotlib.figure import Figure

    caught = sorted(animals, key=lambda line: min(line.verdict.ratio, 1e9))
    safe = sorted(mechanisms, key=lambda line: line.verdict.ratio)
    height = 0.17 * max(len(caught), len(safe) + 4) + 1.3
    figure = Figure(figsize=(12.5, height), layout="constrained")
    figure.suptitle(
        "Loss proved, as a multiple of the claim: broken mechanisms beyond the line, shipped ones below it",
        fontsize=13, color=INK, fontweight="bold", x=0.01, ha="left",
    )  # fmt: skip
    for axes, lines, color, title in zip(
        figure.subplots(1, 2),
        (caught, safe),
        (FOUND, SAFE),
        (f"the zoo: {len(caught)} broken mechanisms", f"{len(safe)} shipped configurations"),
        strict=True,
    ):
        rows = np.arange(len(lines))
        ratios = np.array([min(max(line.verdict.ratio, 0.05), MOST) for line in lines])
        endless = [not np.isfinite(line.verdict.ratio) or line.verdict.ratio > MOST for line in lines]
        axes.hlines(rows, 0.05, ratios, color=FAINT, linewidth=1)
        axes.scatter(ratios, rows, s=16, color=color, zorder=3)
        for row, beyond in zip(rows, endless, strict=True):
            if beyond:
                axes.annotate(
                    "→", (MOST, row), (3, 0), textcoords="offset points", va="center", fontsize=9, color=color
                )
        axes.axvline(1.0, color=INK, linewidth=1.2)
        axes.set_xscale("log")
        axes.set_xlim(0.05, MOST * 1.25)
        axes.set_xticks([0.1, 0.2, 0.5, 1, 2, 5, 10], ["0.1", "0.2", "0.5", "1", "2", "5", "10"])
        axes.set_xticks([], minor=True)
        axes.set_yticks(rows, [line.name for line in lines], fontsize=7.5, color=INK)
        axes.set_ylim(-0.8, len(lines) - 0.2)
        axes.set_title(title, loc="left", fontsize=10.5, color=color)
        axes.set_xlabel("times the claim (logarithmic)", color=QUIET)
        _plain(axes)
    _save(figure, path)


def _plain(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(colors=QUIET, labelsize=8)


def _wrapped(words: str) -> str:
    from textwrap import fill

    return fill(words, 112)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
