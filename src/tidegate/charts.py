"""A small chart of releases for notebooks: one drawing in the page itself, without scripts and without a library."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tidegate.releases import Releases

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 640, 180, 56, 8, 20
MOST_POINTS = 320  # of a line; of longer streams the mean of a few steps is drawn
COLOURS = ("#0b6e8f", "#b5532a", "#6b8e23", "#7b5ea7", "#c28b1d", "#4d5a68")

Values = npt.NDArray[np.float64]


def chart(releases: Releases) -> str:
    """Published values over the steps, a line for each of the first six columns, and what is known of their errors.

    Examples
    --------
    >>> import tidegate as tg
    >>> from tidegate.mechanisms import Uniform
    >>> releases = tg.open(Uniform(tg.WEvent(epsilon="1", window=3))).push_batch([[40], [50], [60]])
    >>> page = chart(releases)
    >>> page.startswith("<figure") and page.count("<polyline") == 1
    True
    """
    steps, columns = releases.values.shape
    caption = escape(repr(releases))
    shown = min(columns, len(COLOURS))
    if not steps or not shown or not np.isfinite(releases.values[:, :shown]).any():
        return f"<figure><figcaption>{caption}</figcaption></figure>"
    at = _thinned(releases.steps[:, np.newaxis])[:, 0]
    values = _thinned(releases.values[:, :shown])
    low, high = (_thinned(bound[:, :shown]) for bound in releases.interval(0.9))
    bottom, top = float(np.nanmin(values)), float(np.nanmax(values))
    if columns == 1 and np.isfinite(low).any():
        bottom, top = min(bottom, float(np.nanmin(low))), max(top, float(np.nanmax(high)))
    x = LEFT + (at - at[0]) / max(float(at[-1] - at[0]), 1.0) * (WIDTH - LEFT - 8)

    def height(numbers: Values) -> Values:
        return np.asarray(TOP + (top - numbers) / max(top - bottom, 1e-9) * (HEIGHT - TOP - BOTTOM))

    drawn = [_band(x, height(low[:, 0]), height(high[:, 0]))] if columns == 1 else []
    for column in range(shown):
        points = _points(x, height(values[:, column]))
        drawn.append(
            f'<polyline points="{points}" fill="none" stroke="{COLOURS[column]}" stroke-width="1.4"/>'
        )
    drawn += [
        _text(LEFT - 6, height(np.array([each]))[0] + 4, f"{each:,.4g}", "end") for each in (bottom, top)
    ]
    ends = ((LEFT, int(releases.steps[0]), "start"), (WIDTH - 8, int(releases.steps[-1]), "end"))
    drawn += [_text(place, HEIGHT - 5, f"step {step}", anchor) for place, step, anchor in ends]
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{caption}" font-size="11" font-family="sans-serif" fill="currentColor">{"".join(drawn)}</svg>'
        f"<figcaption>{_legend(releases, shown)}{caption}</figcaption></figure>"
    )


def _thinned(values: npt.NDArray[Any]) -> Values:
    """At most so many rows: each is the mean of the same number of consecutive steps."""
    cuts = np.arange(0, len(values), -(-len(values) // MOST_POINTS))
    counts = np.diff(np.append(cuts, len(values)))
    return np.asarray(np.add.reduceat(values, cuts) / counts[:, np.newaxis], dtype=np.float64)


def _points(x: Values, y: Values) -> str:
    return " ".join(
        f"{across:.1f},{down:.1f}" for across, down in zip(x, y, strict=True) if np.isfinite(down)
    )


def _band(x: Values, low: Values, high: Values) -> str:
    known = np.isfinite(low) & np.isfinite(high)
    if known.sum() < 2:
        return ""
    around = np.concatenate([x[known], x[known][::-1]]), np.concatenate([low[known], high[known][::-1]])
    return f'<polygon points="{_points(*around)}" fill="{COLOURS[0]}" opacity="0.18"/>'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(words)}</text>'


def _legend(releases: Releases, shown: int) -> str:
    columns = releases.values.shape[1]
    if columns == 1 and releases.names is None:
        return ""
    names = releases.names or tuple(str(number) for number in range(1, columns + 1))
    marks = [f'<span style="color:{COLOURS[at]}">■ {escape(names[at])}</span> ' for at in range(shown)]
    return "".join(marks) + (f"and {columns - shown} more. " if columns > shown else "")
