"""A picture of a specification: which secrets are relevant when, the temporal sensitivity, the noise scale."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tidegate.mechanisms.swellfish.swellfish import Swellfish

INK, QUIET, FAINT, SECRET, NOISE = "#1d2733", "#66717e", "#dfe3e8", "#0b6e8f", "#b5532a"
MOST_ROWS = 24


def draw(mechanism: Swellfish, file: str | Path, first: int, last: int, house: int = 0) -> None:
    """Draw one specification over the steps first to last into a PNG file.

    Parameters
    ----------
    mechanism
        The configured mechanism; all its specifications shape the noise.
    file
        Where the picture goes.
    first, last
        The steps to show.
    house
        The position of the specification whose secrets are shown.
    """
    # the object interface needs neither a display nor global state
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    policy = mechanism.secrets_policy
    shown = policy.specifications[house]
    rows, owners = shown.occurrences(policy.clock, first, last)
    relevant = list(dict.fromkeys(owners.tolist()))[:MOST_ROWS]
    height = 0.28 * len(relevant) + 3.6
    figure = Figure(figsize=(10, height), dpi=90, facecolor="white")
    FigureCanvasAgg(figure)
    top, middle, bottom = figure.subplots(
        3, 1, sharex=True, height_ratios=(0.28 * len(relevant) + 0.2, 1.2, 1.2), gridspec_kw={"hspace": 0.42}
    )
    figure.subplots_adjust(left=0.26, right=0.98, top=1 - 0.5 / height, bottom=0.5 / height)
    _secrets(top, mechanism, house, relevant, rows, owners, first, last)
    steps = np.arange(first, last + 2)
    sums = np.array(policy.temporal_sensitivity(first, last)[house], dtype=float)
    middle.step(steps, np.append(sums, sums[-1]), where="post", color=SECRET, linewidth=1.4)
    middle.set_title("temporal sensitivity Δ of this specification", loc="left", fontsize=9, color=INK)
    middle.set_ylim(bottom=0)
    scales = mechanism.scales(first, last)
    bottom.step(steps, np.append(scales, scales[-1]), where="post", color=NOISE, linewidth=1.4)
    many = (
        f", the largest of {len(policy.specifications)} specifications"
        if len(policy.specifications) > 1
        else ""
    )
    bottom.set_title(f"noise scale λ{many}", loc="left", fontsize=9, color=INK)
    bottom.set_yscale("log")
    bottom.set_xlabel("step", fontsize=9, color=QUIET)
    figure.suptitle(
        shown.label or "specification", x=0.01, y=1 - 0.12 / height, ha="left", fontsize=11, color=INK
    )
    for axes in (top, middle, bottom):
        _quiet(axes)
    bottom.set_xlim(first, last + 1)
    figure.savefig(file)


def _secrets(
    axes: Axes,
    mechanism: Swellfish,
    house: int,
    relevant: list[int],
    rows: object,
    owners: object,
    first: int,
    last: int,
) -> None:
    """One bar for each hiding interval; the darker part is as long as the event."""
    shown = mechanism.secrets_policy.specifications[house]
    for (begin, end), owner in zip(np.asarray(rows).tolist(), np.asarray(owners).tolist(), strict=True):
        if owner not in relevant:
            continue
        line = relevant.index(owner)
        left, right = max(begin, first), min(end, last) + 1
        axes.barh(line, right - left, left=left, height=0.62, color=SECRET, alpha=0.28, linewidth=0)
        event = min(shown.secrets[owner].duration, right - left)
        axes.barh(line, event, left=left, height=0.62, color=SECRET, linewidth=0)
    names = [
        f"{shown.secrets[at].label}  p={float(shown.secrets[at].height):g} T={shown.secrets[at].duration} "
        f"ε={float(shown.secrets[at].epsilon):g}"
        for at in relevant
    ]
    axes.set_yticks(range(len(relevant)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_title("hiding intervals (dark: the length of the event)", loc="left", fontsize=9, color=INK)


def _quiet(axes: Axes) -> None:
    axes.grid(axis="x", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8, colors=QUIET, length=2)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
