"""The pictures of a report, as SVG that stands in the page itself."""

from __future__ import annotations

import datetime
import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, QUIET, FAINT = "#1d2733", "#66717e", "#dfe3e8"
TRUE, RELEASED, LIMIT = "#9aa4af", "#0b6e8f", "#b3261e"
STATUS = {1: "#0b6e8f", 2: "#c9d3dc", 3: "#e7a33e", 4: "#8d6bb8", 5: "#63b1c9", 6: "#ffffff"}
MOST_POINTS = 1500  # of a line; longer streams are drawn as averages of neighbouring steps
Values = npt.NDArray[np.float64]


class Times(Protocol):
    """When steps begin."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> datetime.datetime: ...


@dataclass(frozen=True)
class Series:
    """One column: its name, what was released, the band around it, and, for the curator, the truth."""

    name: str
    values: Values
    low: Values
    high: Values
    truth: Values | None


def draw_stream(times: Times, many: Sequence[Series]) -> str:
    """Small pictures of all columns, two in a row."""
    across = 1 if len(many) == 1 else 2
    down = -(-len(many) // across)
    figure = _figure(10.4, 1.75 * down + 0.4)
    grid = figure.subplots(down, across, squeeze=False, gridspec_kw={"hspace": 0.55, "wspace": 0.12})
    figure.subplots_adjust(
        left=0.05, right=0.99, top=1 - 0.3 / figure.get_figheight(), bottom=0.3 / figure.get_figheight()
    )
    bins = _bins(len(times))
    moments = _thinned(times, bins)
    for axes, one in zip(grid.ravel(), many, strict=False):
        values = _averages(one.values, bins)
        # an average of neighbouring steps is surer than each of them, but the band is that of a value
        low, high = (_averages(np.where(np.isfinite(end), end, np.nan), bins) for end in (one.low, one.high))
        if not np.isnan(low).all():
            axes.fill_between(moments, low, high, color=RELEASED, alpha=0.16, linewidth=0)
        if one.truth is not None:
            axes.plot(moments, _averages(one.truth, bins), color=TRUE, linewidth=1.4)
        axes.plot(moments, values, color=RELEASED, linewidth=1.0)
        # a dollar would begin a formula
        axes.set_title(
            one.name.replace("$", r"\$"), loc="left", fontsize=10, fontweight="bold", color=INK, pad=3
        )
        _plain(axes, times)
    for axes in grid.ravel()[len(many) :]:
        axes.set_visible(False)
    return _svg(figure)


def draw_budget(times: Times, spent: Values, single: Values, limit: float, symbol: str) -> str:
    """The loss of the window up to each step against its limit, and of each step."""
    figure = _figure(10.4, 2.9)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2.2, 1), gridspec_kw={"hspace": 0.18})
    figure.subplots_adjust(left=0.06, right=0.99, top=0.95, bottom=0.1)
    bins = _bins(len(times))
    moments = _thinned(times, bins)
    high = _largest(spent, bins)
    upper.fill_between(moments, 0, high, color=RELEASED, alpha=0.22, linewidth=0, step="post")
    upper.plot(moments, high, color=RELEASED, linewidth=1.2, drawstyle="steps-post")
    upper.axhline(limit, color=LIMIT, linewidth=1.2, linestyle=(0, (5, 3)))
    upper.set_ylim(0, 1.15 * limit)
    upper.set_ylabel(f"{symbol} of the window", fontsize=9, color=QUIET)
    one = _largest(single, bins)
    lower.fill_between(moments, 0, one, color=INK, alpha=0.55, linewidth=0, step="post")
    lower.set_ylim(0, 1.2 * max(float(one.max(initial=0)), 1e-12))
    lower.set_ylabel("of a step", fontsize=9, color=QUIET)
    _plain(upper, times, number="{x:g}")
    _plain(lower, times, number="{x:g}", ticks=2)
    return _svg(figure)


def draw_status(times: Times, status: npt.NDArray[np.int8]) -> str:
    """A strip with the colour of each step."""
    figure = _figure(10.4, 0.75)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.01, right=0.97, top=0.98, bottom=0.5)
    from matplotlib.dates import date2num

    cuts = np.flatnonzero(np.diff(status)) + 1
    begins = [0, *cuts.tolist()]
    if len(begins) > 2000:  # finer than a screen: the first status of each part stands for it
        begins = np.linspace(0, len(status) - 1, 2000).astype(int).tolist()
    last = times[len(times) - 1]
    length = last - times[len(times) - 2] if len(times) > 1 else datetime.timedelta(hours=1)
    edges = date2num([*(times[begin] for begin in begins), last + length])  # type: ignore[no-untyped-call]
    for value, colour in STATUS.items():
        bars = [
            (edges[part], edges[part + 1] - edges[part])
            for part, begin in enumerate(begins)
            if status[begin] == value
        ]
        if bars:
            axes.broken_barh(bars, (0, 1), facecolors=colour, linewidth=0)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, 1)
    _plain(axes, times)
    axes.set_yticks([])
    return _svg(figure)


def _figure(width: float, height: float) -> Figure:
    # The object interface needs neither a display nor global state.
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasSVG(figure)
    return figure


def _svg(figure: Figure) -> str:
    """The figure as an element of the page, the same bytes each time."""
    from matplotlib import rc_context

    text = io.StringIO()
    with (
        rc_context({"svg.fonttype": "none", "svg.hashsalt": "tidegate", "font.family": "sans-serif"}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Glyph")  # of a name that the font cannot write
        figure.savefig(text, format="svg", metadata={"Date": None})
    found = text.getvalue()
    return found[found.index("<svg") :]


def _plain(axes: Axes, times: Times, number: str = "{x:,.0f}", ticks: int = 4) -> None:
    """Quiet axes with dates."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    zone = times[0].tzinfo
    locator = AutoDateLocator(minticks=3, maxticks=7, tz=zone)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    dates = ConciseDateFormatter(  # type: ignore[no-untyped-call]
        locator,
        tz=zone,
        show_offset=False,
        formats=["%Y", "%b", "%-d %b", "%H:%M", "%H:%M", "%H:%M:%S"],
        zero_formats=["", "%Y", "%-d %b", "%-d %b", "%H:%M", "%H:%M"],
    )
    axes.xaxis.set_major_formatter(dates)
    axes.margins(x=0)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=8.5, labelcolor=QUIET)
    axes.locator_params(axis="y", nbins=ticks)
    axes.yaxis.set_major_formatter(number)
    axes.grid(axis="y", color=FAINT, linewidth=0.7)
    axes.set_axisbelow(True)


def _bins(count: int) -> npt.NDArray[np.int64]:
    """Where the parts begin that are drawn as one point each."""
    size = -(-count // MOST_POINTS)
    return np.arange(0, count, max(size, 1), dtype=np.int64)


def _thinned(times: Times, bins: npt.NDArray[np.int64]) -> list[Any]:
    return [times[int(index)] for index in bins]


def _averages(values: Values, bins: npt.NDArray[np.int64]) -> Values:
    known = ~np.isnan(values)
    sizes = np.add.reduceat(known.astype(np.float64), bins)
    sums: Values = np.add.reduceat(np.where(known, values, 0.0), bins)
    found: Values = np.divide(sums, sizes, out=np.full(len(bins), np.nan), where=sizes > 0)
    return found


def _largest(values: Values, bins: npt.NDArray[np.int64]) -> Values:
    found: Values = np.maximum.reduceat(values, bins)
    return found
