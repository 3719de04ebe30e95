"""One column of a stream as a picture with a stable address: an SVG that stands for itself, for pages of others."""

from __future__ import annotations

import datetime
import html
import re
from zoneinfo import ZoneInfo

import numpy as np

from tidegate.config import Config
from tidegate.report.pictures import LARGE, Series, draw_line, meant
from tidegate.report.style import DARK, LIGHT
from tidegate.report.wording import Words
from tidegate.web.release_cache import Selection

ABOVE, BELOW = 48, 24  # of the picture, for its words
MOST_STEPS = 10_000
MOST_LETTERS = 110  # of a line below the picture
WIDE, TALL = LARGE.wide, LARGE.tall + ABOVE + BELOW


def chart_svg(config: Config, found: Selection, label: str, *, dark: bool = False) -> bytes:
    """The picture of the newest values of some steps.

    Parameters
    ----------
    config
        The query.
    found
        The newest release of each step, of one column.
    label
        The name of that column.
    dark
        For a dark page.
    """
    words = Words(config)
    steps, values = found.chunk.step, found.answers[:, 0]
    low, high = found.low[:, 0], found.high[:, 0]
    title = words.title if len(config.query.answer_labels) == 1 else f"{words.title}: {label}"
    known = np.flatnonzero(np.isfinite(values))
    said, picture = "The first number comes when the first step has closed.", ""
    if len(known):
        zone, last = ZoneInfo(config.steps.zone), int(known[-1])
        times = [config.steps.begin(step).astimezone(zone) for step in steps.tolist()]
        half = float(high[last] - low[last]) / 2
        around = f" ({meant(low[last], half)} to {meant(high[last], half)})" if np.isfinite(half) else ""
        said = f"{words.statistic}: {meant(values[last], half)}{around}, {_moment(times[last])} ({zone.key})"
        drawn = draw_line(times, Series(label, values, low, high, None), LARGE)
        picture = drawn.replace("<svg ", f'<svg y="{ABOVE}" width="{LARGE.wide}" height="{LARGE.tall}" ', 1)
    colours = {**LIGHT, **(DARK if dark else {})}
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {TALL}" width="{WIDE}" height="{TALL}" '
        f'role="img" font-family="system-ui, sans-serif" fill="var(--ink)"><title>{html.escape(title)}</title>'
        f'<rect width="{WIDE}" height="{TALL}" fill="var(--card)"/>'
        f'<text x="6" y="18" font-size="16" font-weight="600">{html.escape(_short(title))}</text>'
        f'<text x="6" y="38" font-size="13">{html.escape(_short(said))}</text>{picture}'
        f'<text x="6" y="{TALL - 8}" font-size="11" fill="var(--quiet)">'
        f"{html.escape(_short(f'Band: nine of ten. Protected: {words.in_one_line}'))}</text></svg>\n"
    )
    return re.sub(r"var\(--(\w+)\)", lambda name: colours[name[1]], text).encode()


def _short(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"


def _moment(moment: datetime.datetime) -> str:
    return f"{moment:%-d %B %Y, %H:%M}"
