"""Pictures that the demo draws."""

from __future__ import annotations

import datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tidegate.exact import show

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tidegate.datasets.streams import Events
    from tidegate.policy import WEvent
    from tidegate.releases import Releases

INK, QUIET, FAINT = "#1d2733", "#66717e", "#dfe3e8"
TRUE, RELEASED = "#aeb6c0", "#0b6e8f"
LEFT = 0.052
# What is worth a word in the made-up stream: building, day, words.
REMARKS = (("Sports centre", 18.8, "concert"), ("Library", 23.5, "exam week"))


def draw_demo(
    events: Events, counts: npt.NDArray[np.int64], releases: Releases, policy: WEvent, file: Path
) -> None:
    """Draw true and released counts of each building: all weeks on the left, one day close up on the right.

    Parameters
    ----------
    events
        The made-up stream: names and clock.
    counts
        The true counts, steps × columns.
    releases
        What was published.
    policy
        What the headline states.
    file
        Where the picture goes.
    """
    # The object interface needs neither a display nor global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = len(events.names)
    height = 1.12 * rows + 1.55
    figure = Figure(figsize=(11, height), dpi=90, facecolor="white")
    FigureCanvasAgg(figure)
    grid = figure.subplots(
        rows, 2, width_ratios=(2.9, 1), gridspec_kw={"hspace": 0.5, "wspace": 0.07}, squeeze=False
    )
    figure.subplots_adjust(left=LEFT, right=0.985, top=1 - 1.2 / height, bottom=0.32 / height)
    low, high = releases.interval()
    half_bands = (high - low) / 2
    typical = float(np.nanmean(half_bands))
    times = np.arange(events.steps) / 24
    day = _close_up(counts)
    for column, name in enumerate(events.names):
        half_band = half_bands[:, column]
        top = 1.1 * max(float(counts[:, column].max()), typical)
        for axes, hours in zip(grid[column], (slice(0, events.steps), day), strict=True):
            _panel(
                axes, times[hours], counts[hours, column], releases.values[hours, column], half_band[hours]
            )
            axes.set_ylim(-0.9 * typical, top)
        grid[column, 0].set_title(name, loc="left", fontsize=11, fontweight="bold", color=INK, pad=3)
        _weeks_axis(grid[column, 0], events, named=column == rows - 1)
        _day_axis(grid[column, 1], day, named=column == rows - 1)
        for building, at, words in REMARKS:
            if building == name and at < events.steps / 24:
                grid[column, 0].annotate(
                    words,
                    (at, 1.0),
                    xycoords=("data", "axes fraction"),
                    xytext=(0, 3),
                    color=INK,
                    textcoords="offset points",
                    fontsize=9,
                    ha="center",
                    style="italic",
                )
    date = datetime.datetime.fromtimestamp(events.start + day.start * events.length, datetime.UTC)
    grid[0, 1].set_title(f"{date:%A}, {date.day} {date:%B}", loc="left", fontsize=10, color=QUIET, pad=3)
    _headline(figure, policy, typical)
    figure.savefig(file, metadata={"Software": None}, pil_kwargs={"optimize": True})


def _panel(
    axes: Axes,
    times: npt.NDArray[np.float64],
    true: npt.NDArray[np.int64],
    released: npt.NDArray[np.float64],
    half_band: npt.NDArray[np.float64],
) -> None:
    """One panel: the true counts as an area, the released ones as a line in its band."""
    close = len(times) <= 48
    edges = np.append(times, times[-1] + 1 / 24)  # an hour lasts until the next one begins
    axes.stairs(true, edges, fill=True, color=TRUE, alpha=0.8)
    axes.stairs(
        released + half_band, edges, baseline=released - half_band, fill=True, color=RELEASED, alpha=0.2
    )
    if close:
        axes.stairs(true, edges, baseline=None, color=INK, linewidth=0.9)
    axes.stairs(released, edges, baseline=None, color=RELEASED, linewidth=1.6 if close else 0.8)
    axes.margins(x=0)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=8.5, labelcolor=QUIET)
    axes.locator_params(axis="y", nbins=3, steps=[1, 2, 5, 10])
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="y", color=FAINT, linewidth=0.7)
    axes.set_axisbelow(True)


def _weeks_axis(axes: Axes, events: Events, *, named: bool) -> None:
    """Mark the Mondays, and name them under the last row only."""
    mondays = range(0, events.steps // 24, 7)
    start = datetime.datetime.fromtimestamp(events.start, datetime.UTC)
    dates = [start + datetime.timedelta(days=monday) for monday in mondays]
    axes.set_xticks(
        list(mondays), [f"Mon {date.day} {date:%b}" if named else "" for date in dates], ha="left"
    )
    for monday in mondays:
        axes.axvline(monday, color=FAINT, linewidth=0.9, zorder=0)


def _day_axis(axes: Axes, day: slice, *, named: bool) -> None:
    """Mark every sixth hour, and name the hours under the last row only."""
    hours = range(0, 24, 6)
    axes.set_xticks(
        [(day.start + hour) / 24 for hour in hours], [f"{hour}:00" if named else "" for hour in hours]
    )
    axes.set_yticklabels([])


def _close_up(counts: npt.NDArray[np.int64]) -> slice:
    """The hours of the day with the highest peaks, each building's peak measured by its highest."""
    peaks = counts.reshape(-1, 24, counts.shape[1]).max(axis=1)
    busiest = int((peaks / np.maximum(peaks.max(axis=0), 1)).sum(axis=1).argmax())
    return slice(24 * busiest, 24 * busiest + 24)


def _headline(figure: Figure, policy: WEvent, half_band: float) -> None:
    """State the guarantee and the noise, and explain the marks in their own colours."""
    height = figure.get_figheight()
    epsilon = show(Fraction(policy.epsilon or 0))
    figure.text(
        LEFT,
        1 - 0.37 / height,
        f"A campus, published hour by hour: ε = {epsilon} for any {policy.window} hours of any device",
        fontsize=15.5,
        fontweight="bold",
        color=INK,
    )
    words = (
        ("Devices in each building: ", QUIET, "normal"),
        ("true counts", "#7d8894", "bold"),
        (", which stay inside, and ", QUIET, "normal"),
        ("released counts", RELEASED, "bold"),
        (f" with their 90 % band, ± {half_band:,.0f} on average.", QUIET, "normal"),
    )
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]  # the Agg canvas has one
    at = LEFT
    for text, color, weight in words:
        piece = figure.text(at, 1 - 0.67 / height, text, fontsize=10.5, color=color, fontweight=weight)
        at += piece.get_window_extent(renderer).width / figure.bbox.width
