"""The pictures of a report, as small SVG that stands in the page itself: no library, no script, no network.

Long streams of hours would be solid blobs as lines. They are heat maps, a day a column and an hour a row; all other
streams are lines in their bands. Values appear where a pointer rests.
"""

from __future__ import annotations

import base64
import datetime
import html
import math
import struct
import zlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tidegate.report.wording import about
from tidegate.sinks.rounding import powers

# colours of the report's style, which knows light and dark screens
RELEASED, TRUE, LIMIT, QUIET, FAINT, INK = (
    f"var(--{name})" for name in ("released", "true", "limit", "quiet", "faint", "ink")
)
STATUS = {
    number: f"var(--{name})" for number, name in enumerate(("released", "s2", "noisy", "s4", "s5", "card"), 1)
}
RIGHT, TOP, BOTTOM = 6, 6, 18  # margins within a picture
MOST_POINTS = 240  # of a line; longer streams are drawn as averages of neighbouring steps
MOST_HOVERS = 60
MOST_DATES = 4
DAY = 86_400  # seconds
# between two dates that are not months apart: as many seconds, minutes, hours or days
SPACES = (1, 5, 15, 60, 300, 900, 1_800, 3_600, 10_800, 21_600, 43_200, DAY, 2 * DAY, 7 * DAY, 14 * DAY)
SHADES = 48
Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Frame:
    """How large a picture is, in its own units.

    Parameters
    ----------
    wide, tall
        All of it.
    left
        The margin for numbers.
    """

    wide: int
    tall: int
    left: int

    @property
    def width(self) -> int:
        """Of what is drawn."""
        return self.wide - self.left - RIGHT

    @property
    def height(self) -> int:
        """Of what is drawn."""
        return self.tall - TOP - BOTTOM


SMALL = Frame(500, 130, 44)  # one of several pictures side by side
LARGE = Frame(860, 240, 48)  # the one picture of a statistic, as wide as the page


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


@dataclass(frozen=True)
class Row:
    """A line of the table under a picture: when, and what was released then on average."""

    moment: str
    value: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


def meant(value: float, half: float = math.nan) -> str:
    """A number without the digits that an interval of this half width makes meaningless.

    Examples
    --------
    >>> meant(0.0151, 127.0), meant(11.13, 127.0), meant(11.13, 0.5), meant(55.26), meant(math.nan)
    ('0', '11', '11.1', '55', '–')
    >>> meant(32331.0, 380.0)  # two digits would not tell it from the ends of its interval
    '32,300'
    """
    if not math.isfinite(value):
        return "–"
    power = float(powers(np.array([half]))[0])
    if math.isnan(power):
        return about(value)
    kept = round(value * power) / power
    digits = -math.floor(math.log10(half / 3))
    finer = f"{round(kept, digits):,.{max(digits, 0)}f}"
    return about(kept) if kept == 0 or digits < 1 - math.floor(math.log10(abs(kept))) else finer


def draw_line(times: Times, one: Series, frame: Frame = SMALL) -> str:
    """A line in its band, with the truth behind it if it is known."""
    bins = bins_of(len(times), MOST_POINTS)
    values, (low, high) = averages(one.values, bins), ends(one, bins)
    truth = None if one.truth is None else averages(one.truth, bins)
    parts = [values, low, high] if truth is None else [values, low, high, truth]
    least, most = _range(parts)
    across, up = _across(len(bins), frame), _up(least, most, frame)
    marks = [_grid(least, most, frame), _dates(times, frame)]
    if np.isfinite(low).any():
        marks.append(f'<path d="{_band(across, up(low), up(high))}" fill="{RELEASED}" fill-opacity=".2"/>')
    if truth is not None:
        marks.append(f'<path d="{_path(across, up(truth))}" fill="none" stroke="{TRUE}" stroke-width="1.6"/>')
    marks.append(
        f'<path d="{_path(across, up(values))}" fill="none" stroke="{RELEASED}" stroke-width="1.2" '
        f'stroke-linecap="round"/>'
    )
    marks.append(_hovers(times, bins, values, (high - low) / 2, frame=frame))
    return _svg(frame.wide, frame.tall, marks, f"{one.name}: released values over time, with their band")


def draw_heat(times: Times, one: Series, day: int, frame: Frame = SMALL) -> str:
    """A day a column, an hour a row, darker for more."""
    first = _place_in_day(times[0], day)
    days = -(-(first + len(one.values)) // day)
    cells = np.full(days * day, np.nan)
    cells[first : first + len(one.values)] = one.values
    grid = cells.reshape(days, day).T  # hours × days, midnight at the top
    least, most = _shades(one)
    shade = np.clip((grid - least) / max(most - least, 1e-12) * (SHADES - 1), 0, SHADES - 1)
    indices = np.where(np.isfinite(grid), np.rint(np.nan_to_num(shade)) + 1, 0).astype(np.uint8)
    image = base64.b64encode(png(indices, _palette())).decode()
    width, height = frame.width, frame.height
    marks = [
        f'<image x="{frame.left}" y="{TOP}" width="{width}" height="{height}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" href="data:image/png;base64,{image}"/>'
    ]
    for hour, words in ((0, "0:00"), (day // 2, "12:00")):
        at = TOP + height * (hour + 0.5) / day + 3
        marks.append(f'<text x="{frame.left - 4}" y="{at:.0f}" text-anchor="end">{words}</text>')
    bins = bins_of(len(times), MOST_HOVERS)
    low, high = ends(one, bins)
    halves = (high - low) / 2
    marks += [_dates(times, frame), _hovers(times, bins, averages(one.values, bins), halves, frame=frame)]
    return _svg(
        frame.wide,
        frame.tall,
        marks,
        f"{one.name}: released values, a day a column, an hour a row, darker for more",
    )


def legend(one: Series) -> str:
    """Between which values the shades of a heat map lie."""
    least, most = _shades(one)
    return f"light {about(least)}, dark {about(most)}"


def _shades(one: Series) -> tuple[float, float]:
    """The ends of the shades: from 0 on, and never so close that noise alone would look like a pattern."""
    least, most = _range([one.values])
    half = (one.high - one.low)[np.isfinite(one.high - one.low)] / 2
    return min(least, 0.0), max(most, float(half.mean()) if len(half) else most)


def rows_of(times: Times, one: Series, most: int = 53) -> list[Row]:
    """The table under a picture: averages over parts of the stream."""
    bins = bins_of(len(times), most)
    parts = [averages(one.values, bins), *ends(one, bins)]
    return [
        Row(_moment(times, int(at)), *(float(part[index]) for part in parts)) for index, at in enumerate(bins)
    ]


def draw_budget(times: Times, spent: Values, limit: Values, symbol: str) -> str:
    """The loss of the window up to each step against its limit, which an amendment may change."""
    bins = bins_of(len(times), MOST_POINTS)
    high = np.maximum.reduceat(spent, bins)
    most = 1.15 * float(limit.max())
    across, up = _across(len(bins), SMALL), _up(0.0, most, SMALL)
    if limit.min() == limit.max():
        line = f"M{SMALL.left} {up(limit[:1])[0]:.1f}H{SMALL.wide - RIGHT}"
    else:
        line = _path(across, up(np.minimum.reduceat(limit, bins)))
    marks = [
        _grid(0.0, most, SMALL),
        _dates(times, SMALL),
        f'<path d="{_band(across, up(np.zeros(len(bins))), up(high))}" fill="{RELEASED}" fill-opacity=".25"/>',
        f'<path d="{_path(across, up(high))}" fill="none" stroke="{RELEASED}" stroke-width="1.2"/>',
        f'<path d="{line}" fill="none" stroke="{LIMIT}" stroke-dasharray="6 4"/>',
        _hovers(times, bins, high, np.full(len(bins), np.nan), np.max),
    ]
    return _svg(SMALL.wide, SMALL.tall, marks, f"{symbol} of the window up to each step, and its limit")


def draw_status(times: Times, status: npt.NDArray[np.int8]) -> str:
    """A strip with the colour of each step."""
    width, count = SMALL.width, len(status)
    begins = np.concatenate([[0], np.flatnonzero(np.diff(status)) + 1])
    if len(begins) > MOST_POINTS:  # finer than a screen: the first status of each part stands for it
        begins = bins_of(count, MOST_POINTS)
    ends = np.append(begins[1:], count)
    marks = []
    for value, colour in STATUS.items():
        bars = [
            f"M{SMALL.left + width * begin / count:.1f} 4h{across:.1f}v14h{-across:.1f}z"
            for begin, across in zip(begins, width * (ends - begins) / count, strict=True)
            if status[begin] == value
        ]
        if bars:
            marks.append(f'<path d="{"".join(bars)}" fill="{colour}"/>')
    marks.append(_dates(times, SMALL, below=30))
    return _svg(SMALL.wide, 40, marks, "how the values of each step came about")


def draw_odds(epsilon: float, before: Sequence[float] = (0.1, 0.5, 0.9)) -> str:
    """By how much the releases can move a suspicion: three suspicions, and the range in which each stays."""
    width, rows = SMALL.wide - 140, []
    for index, suspicion in enumerate(before):
        least, most = moved(suspicion, -epsilon), moved(suspicion, epsilon)
        at, y = 110 + width * suspicion, 16 + 24 * index
        rows.append(
            f'<text x="104" y="{y + 4}" text-anchor="end">{suspicion:.0%} before</text>'
            f'<rect x="110" y="{y - 5}" width="{width}" height="10" rx="5" fill="{FAINT}"/>'
            f'<rect x="{110 + width * least:.1f}" y="{y - 5}" width="{width * (most - least):.1f}" height="10" rx="5" '
            f'fill="{RELEASED}" fill-opacity=".55"><title>between {least:.1%} and {most:.1%}</title></rect>'
            f'<path d="M{at:.1f} {y - 8}v16" stroke="{INK}" stroke-width="2"/>'
        )
    high = 16 + 24 * len(before)
    rows += [
        f'<text x="{110 + width * part:.0f}" y="{high + 8}" text-anchor="middle">{part:.0%}</text>'
        for part in (0, 0.5, 1)
    ]
    return _svg(SMALL.wide, high + 14, rows, "how far the releases can move a suspicion")


def moved(suspicion: float, epsilon: float) -> float:
    """A probability after its odds were multiplied by e^ε.

    Examples
    --------
    >>> round(moved(0.5, 1.0), 3), round(moved(0.5, -1.0), 3), moved(0.5, 400.0)
    (0.731, 0.269, 1.0)
    """
    return 1 / (1 + (1 - suspicion) / suspicion * math.exp(-min(max(epsilon, -700.0), 700.0)))


def png(indices: npt.NDArray[np.uint8], palette: Sequence[tuple[int, int, int]]) -> bytes:
    """A picture of few colours, a row of pixels a row of indices."""
    height, width = indices.shape
    raw = b"".join(b"\0" + row.tobytes() for row in indices)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    colours = b"".join(bytes(colour) for colour in palette)
    parts = (
        chunk(b"IHDR", head),
        chunk(b"PLTE", colours),
        chunk(b"IDAT", zlib.compress(raw, 9)),
        chunk(b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def bins_of(count: int, most: int) -> npt.NDArray[np.int64]:
    """Where the parts begin that are drawn as one point each."""
    return np.arange(0, count, max(-(-count // most), 1), dtype=np.int64)


def ends(one: Series, bins: npt.NDArray[np.int64]) -> tuple[Values, Values]:
    """The mean ends of the intervals of each part; NaN where some value of it has none."""
    lacking = np.add.reduceat(np.isfinite(one.values) & ~np.isfinite(one.low), bins) > 0
    low, high = (np.where(lacking, np.nan, averages(each, bins)) for each in (one.low, one.high))
    return low, high


def averages(values: Values, bins: npt.NDArray[np.int64]) -> Values:
    """The mean of the known values of each part; NaN where there is none."""
    known = np.isfinite(values)
    sizes = np.add.reduceat(known.astype(np.float64), bins)
    sums: Values = np.add.reduceat(np.where(known, values, 0.0), bins)
    found: Values = np.divide(sums, sizes, out=np.full(len(bins), np.nan), where=sizes > 0)
    return found


# pieces -----------------------------------------------------------------------------------------------------


def _svg(width: int, height: int, marks: Sequence[str], words: str) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(words)}" '
        f'font-size="11" fill="{QUIET}">{"".join(marks)}</svg>'
    )


def _palette() -> list[tuple[int, int, int]]:
    """White for nothing, then from a pale to a dark blue."""
    ends = ((238, 244, 247), (56, 148, 178), (8, 48, 72))
    found = [(255, 255, 255)]
    for shade in range(SHADES):
        at = 2 * shade / (SHADES - 1)
        low, high = (ends[0], ends[1]) if at < 1 else (ends[1], ends[2])
        part = at if at < 1 else at - 1
        found.append(tuple(round(a + (b - a) * part) for a, b in zip(low, high, strict=True)))  # type: ignore[arg-type]
    return found


def _range(parts: Sequence[Values]) -> tuple[float, float]:
    known = np.concatenate([part[np.isfinite(part)] for part in parts])
    if not len(known):
        return 0.0, 1.0
    least, most = float(known.min()), float(known.max())
    return (least, most) if most > least else (least - 1, most + 1)


def _across(count: int, frame: Frame) -> Values:
    return frame.left + (np.arange(count) + 0.5) * frame.width / count


def _up(least: float, most: float, frame: Frame):  # type: ignore[no-untyped-def]
    return lambda values: TOP + frame.height * (1 - (values - least) / (most - least))


def _path(across: Values, up: Values) -> str:
    """A line that is broken where nothing is known."""
    found, pen = [], "M"
    for x, y in zip(across.tolist(), up.tolist(), strict=True):
        if math.isfinite(y):
            found.append(f"{pen}{x:.0f} {y:.1f}")
            pen = "L"
        else:
            if pen == "L" and found[-1].startswith("M"):  # alone between gaps: a dot
                found.append("h.01")
            pen = "M"
    return "".join(found)


def _band(across: Values, low: Values, high: Values) -> str:
    known = np.isfinite(low) & np.isfinite(high)
    found = []
    for part in np.split(np.arange(len(known)), np.flatnonzero(np.diff(known)) + 1):
        if not known[part[0]]:
            continue
        there = [f"{across[i]:.0f} {high[i]:.1f}" for i in part]
        back = [f"{across[i]:.0f} {low[i]:.1f}" for i in part[::-1]]
        found.append("M" + "L".join(there + back) + "z")
    return "".join(found)


def _grid(least: float, most: float, frame: Frame) -> str:
    """A few round numbers on the left."""
    size = 10 ** math.floor(math.log10(max(most - least, 1e-12)))
    step = next(size * part for part in (0.2, 0.5, 1, 2, 5) if (most - least) / (size * part) <= 4.5)
    up, found = _up(least, most, frame), []
    at = math.ceil(least / step) * step
    while at <= most + 1e-9 * step:
        y = float(up(at))
        shown = _short(at, step, max(abs(least), abs(most)))
        found.append(
            f'<path d="M{frame.left} {y:.1f}H{frame.wide - RIGHT}" stroke="{FAINT}"/>'
            f'<text x="{frame.left - 4}" y="{y + 4:.1f}" text-anchor="end">{shown}</text>'
        )
        at += step
    return "".join(found)


def _short(value: float, step: float, largest: float) -> str:
    """A number that has room at the left of a picture: in thousands or millions where the largest one is long."""
    sizes = ((1e9, 1e9, " G"), (1e6, 1e6, " M"), (1e5, 1e3, " k"), (0.0, 1.0, ""))
    size, letter = next((size, letter) for long, size, letter in sizes if largest >= long)
    value, step = value / size, step / size
    decimals = 0 if step >= 1 else -math.floor(math.log10(step) + 1e-9)
    return f"{value:,.{decimals}f}{letter}"


def _dates(times: Times, frame: Frame, below: int | None = None) -> str:
    """A few moments of the calendar under the picture, each where it stands."""
    width, count = frame.width, len(times)
    below = frame.tall - 4 if below is None else below
    found = []
    for moment, words in calendar(times):
        after = bisect_right(range(count), moment, key=times.__getitem__)
        begin, end = times[max(after - 1, 0)], times[min(after, count - 1)]
        part = (moment - begin) / (end - begin) if end > begin else 0.0
        x = frame.left + width * (after - 1 + part) / count
        side = "middle" if x > frame.left + 30 else "start"  # there is a number at the left
        if x < frame.wide - 30:  # else its words would not fit
            found.append(
                f'<text x="{x:.1f}" y="{below}" text-anchor="{side}">{words}</text>'
                f'<path d="M{x:.1f} {below - 14}v4" stroke="{QUIET}"/>'
            )
    return "".join(found)


def calendar(times: Times) -> list[tuple[datetime.datetime, str]]:
    """At most four round moments between the first step and the last, evenly spaced, with their words.

    Examples
    --------
    >>> hours = [datetime.datetime(2026, 3, 2) + datetime.timedelta(hours=hour) for hour in range(168)]
    >>> [words for _, words in calendar(hours)], [words for _, words in calendar(hours[5:30])]
    (['2 Mar 2026', '4 Mar 2026', '6 Mar 2026', '8 Mar 2026'], ['2 Mar 2026, 06:00', '2 Mar 12:00', ..., '3 Mar 00:00'])
    """
    first, last = times[0], times[len(times) - 1]
    step = times[1] - first if len(times) > 1 else datetime.timedelta(1)
    midnight = first.replace(hour=0, minute=0, second=0, microsecond=0)
    for seconds in SPACES:
        space, least = datetime.timedelta(seconds=seconds), datetime.timedelta(seconds=min(seconds, DAY))
        begin = midnight - (midnight - first) // least * least  # the first such moment that is not before
        if space >= step and begin + MOST_DATES * space > last >= begin:
            style = "%-d %b %Y" if seconds >= DAY else "%-d %b %H:%M" if seconds >= 60 else "%H:%M:%S"
            moments = [
                begin + number * space for number in range(MOST_DATES) if begin + number * space <= last
            ]
            full = (
                style if seconds >= DAY else f"%-d %b %Y, {style.removeprefix('%-d %b ')}"
            )  # the first has the year
            return [(moment, f"{moment:{full if moment == begin else style}}") for moment in moments]
    months = 12 * first.year + first.month - (first == midnight.replace(day=1))  # from which on they begin
    for apart in (1, 3, 6, *(12 * years for years in (1, 2, 5, 10, 20, 50, 100))):
        numbers = range(-(-months // apart) * apart, 12 * last.year + last.month, apart)
        if len(numbers) <= MOST_DATES:
            break
    style = "%b %Y" if apart < 12 else "%Y"
    moments = [midnight.replace(year=number // 12, month=number % 12 + 1, day=1) for number in numbers]
    return [(moment, f"{moment:{style}}") for moment in moments] or [(first, f"{first:%-d %b %Y, %H:%M}")]


def _hovers(
    times: Times,
    bins: npt.NDArray[np.int64],
    values: Values,
    halves: Values,
    of: Callable[[Values], float] = np.mean,
    frame: Frame = SMALL,
) -> str:
    """What is said where a pointer rests: a few wide areas, each with one number of its part."""
    width, count = frame.width, len(bins)
    size = -(-count // MOST_HOVERS)
    found = []
    for begin in range(0, count, size):
        part = values[begin : begin + size]
        known = part[np.isfinite(part)]
        around = halves[begin : begin + size]
        near = float(np.nanmean(around)) if np.isfinite(around).any() else math.nan
        words = meant(float(of(known)), near) if len(known) else "none"
        x, across = frame.left + width * begin / count, width * len(part) / count
        found.append(
            f'<rect x="{x:.0f}" y="{TOP}" width="{across:.1f}" height="{frame.height}">'
            f"<title>{_moment(times, int(bins[begin]))}: {words}</title></rect>"
        )
    return f'<g fill="none" pointer-events="all">{"".join(found)}</g>'


def _moment(times: Times, index: int) -> str:
    return f"{times[index]:%-d %b %Y, %H:%M}"


def _place_in_day(moment: datetime.datetime, day: int) -> int:
    seconds = moment.hour * 3600 + moment.minute * 60 + moment.second
    return seconds * day // 86_400
