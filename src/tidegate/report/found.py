"""Categories that were found, for readers: each with its numbers, when it opened and when it closed."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tidegate.config import Config
from tidegate.ingest import Columns
from tidegate.mechanisms.discovery.discover import Discover
from tidegate.report.wording import Words, several
from tidegate.sinks.chunks import Chunk
from tidegate.structures.category_names import OTHER

Values = npt.NDArray[np.float64]
MOST_LISTED = 200  # categories in the table of a page


@dataclass(frozen=True)
class Life:
    """What was released of a category besides its numbers.

    Parameters
    ----------
    name
        Its name.
    spans
        The first and the last step of each time in which it was open.
    units
        The noisy number of units that its last test has seen, while it was open.
    """

    name: str
    spans: tuple[tuple[int, int], ...]
    units: float


def lives(newest: Chunk) -> list[Life]:
    """All categories that were ever open, in the order in which they opened."""
    spans: dict[str, list[list[int]]] = {}
    units: dict[str, float] = {}
    found = newest.categories
    if found is None:
        return []
    changed = np.ones(len(newest), dtype=np.bool_)
    changed[1:] = (np.diff(newest.step) != 1) | (found.opened[1:] != found.opened[:-1]).any(axis=1)
    changed[1:] |= ~(np.isclose(found.units[1:], found.units[:-1], equal_nan=True).all(axis=1))
    edges = [*np.flatnonzero(changed).tolist(), len(newest)]
    for begin, end in pairwise(edges):
        first, last = int(newest.step[begin]), int(newest.step[end - 1])
        for _, name, _, counted in found.of(begin):
            known = spans.setdefault(name, [])
            if known and known[-1][1] == first - 1:
                known[-1][1] = last
            else:
                known.append([first, last])
            units[name] = counted
    return [Life(name, tuple((a, b) for a, b in each), units[name]) for name, each in spans.items()]


def as_listed(config: Config, newest: Chunk) -> tuple[Config, Chunk]:
    """The query as if the categories that were found had been listed: a column for each, nothing while it is not open."""
    if not config.query.discovers:
        return config, newest
    names = [life.name for life in lives(newest)]
    place, parts = {name: at for at, name in enumerate(names)}, config.query.parts
    given = newest.values.reshape(len(newest), parts, -1)  # of means the sums, then the counts
    placed = np.full((len(newest), parts, len(names) + 1), np.nan)
    placed[:, :, -1] = given[:, :, -1]
    found = newest.categories
    if found is not None:
        for row in range(len(newest)):
            for column, name, _, _ in found.of(row):
                placed[row, :, place[name]] = given[row, :, column]
    values = placed.reshape(len(newest), -1)
    radius = newest.radius
    if radius is not None and radius.shape[1] > 1:
        radius = np.broadcast_to(radius.max(axis=1, keepdims=True), values.shape)
    if radius is not None:
        radius = np.where(np.isnan(values), np.nan, radius)
    # what all are in, if none was found: the rest alone
    columns = Columns(tuple(names), outside=OTHER) if names else Columns((OTHER,))
    query = replace(config.query, columns=columns)
    return replace(config, query=query), replace(newest, values=values, radius=radius, errors=None)


def true_answers(config: Config, listed: Config, numbers: Values, last: int) -> Values:
    """The exact answers to what was released: of each category while it was open, and of all others. Not private."""
    mechanism, query = config.mechanism, config.query
    assert isinstance(mechanism, Discover)
    names = listed.query.columns.labels
    place = {name: at for at, name in enumerate(names[:-1])}
    found = np.where(np.isnan(numbers), np.nan, 0.0)
    own = ["unit", "category"]
    added, counts = (
        found[:, : len(names)],
        found[:, len(names) :],
    )  # of means deviations from the middle, and weights
    if mechanism.adds_values:
        own.append("value")
    intake = config.open(None, follow=False)
    try:
        for block in intake:
            for (step,), rows in block.records[0].group_by("step", maintain_order=True):
                row = int(str(step)) - 1
                if row >= min(last, len(found)):
                    continue
                open_ = {name for name, at in place.items() if not np.isnan(found[row, at])}
                seen: dict[object, set[str]] = {}
                times: dict[object, int] = {}
                for unit, category, *value in rows.select(own).iter_rows():
                    name = category if category in open_ else OTHER
                    if query.aggregate == "distinct" and name in seen.setdefault(unit, set()):
                        continue
                    seen.setdefault(unit, set()).add(name)
                    times[unit] = times.get(unit, 0) + 1
                    if times[unit] <= query.most:
                        column = place.get(name, len(names) - 1)
                        added[row, column] += value[0] / query.ticks if value else 1
                        if query.aggregate == "mean":
                            counts[row, column] += query.count_weight / query.ticks
    finally:
        intake.close()
    return listed.query.exact_answers(found)


def categories_section(config: Config, newest: Chunk, begins: Callable[[int], str]) -> str:
    """When each category opened and closed, and what is in the rest."""
    mechanism = config.mechanism
    if not isinstance(mechanism, Discover) or not len(newest):
        return ""
    words, found, last = Words(config), lives(newest), int(newest.step[-1])
    rows = "".join(
        f"<tr><td>{html.escape(life.name)}"
        f"<td>{'; '.join(_span(span, last, begins) for span in life.spans)}"
        f"<td>{life.units:,.0f}"
        for life in found[:MOST_LISTED]
    )
    more = f"<p>And {len(found) - MOST_LISTED:,} more.</p>" if len(found) > MOST_LISTED else ""
    table = (
        f"<table class=words><tr><th>category<th>open<th>{html.escape(words.units)} in its last test{rows}</table>{more}"
        if found
        else "<p>No category has opened yet: all records are in <em>other</em>.</p>"
    )
    return (
        f"<div class=found><h3>Categories that were found</h3><p>{html.escape(rule(config))}</p>{table}"
        f"<p>{html.escape(about_other(config, newest))}</p></div>\n"
    )


def _span(span: tuple[int, int], last: int, begins: Callable[[int], str]) -> str:
    first, end = span
    return f"since {begins(first)}" if end == last else f"from {begins(first)} to {begins(end + 1)}"


def rule(config: Config) -> str:
    """By which public rule categories open and close."""
    mechanism, words = config.mechanism, Words(config)
    assert isinstance(mechanism, Discover)
    epoch = several(mechanism.steps_per_epoch, "step")
    least, often = mechanism.selection.threshold, mechanism.units_needed()
    if mechanism.early:
        return (
            f"Nobody has listed the categories. At every {words.step} the {words.units} that each has had so far in "
            f"its epoch of {epoch} are counted with noise. A category opens where that number is at least a threshold, "
            f"which is {least:,} at the end of an epoch. It closes there where it is below {mechanism.staying:,}. "
            f"In an epoch a {words.unit} counts in at most {_categories(mechanism.categories)}. At most "
            f"{mechanism.columns:,} are open at once."
        )
    return (
        f"Nobody has listed the categories. At the end of every {epoch} the {words.units} of each are counted with "
        f"noise. A category opens where that number is at least {least:,}, as it is with probability one half for "
        f"{often:,} {words.units}, and stays where it is at least {mechanism.staying:,}. In one such time a "
        f"{words.unit} counts in at most {_categories(mechanism.categories)}. At most {mechanism.columns:,} are open "
        "at once."
    )


def _categories(count: int) -> str:
    return "1 category" if count == 1 else f"{count:,} categories"


def columns_of(config: Config, recent: Chunk) -> list[str]:
    """The names of the columns: of those that are found, the ones of the last release."""
    if not config.query.discovers:
        return list(config.query.answer_labels)
    found = recent.categories if len(recent) else None
    return [*([] if found is None else [name for _, name, _, _ in found.of(len(recent) - 1)]), OTHER]


def about_other(config: Config, newest: Chunk) -> str:
    """What the rest holds, by what was released."""
    counts = newest.values[:, -newest.values.shape[1] // config.query.parts :]  # of means
    rest, total = float(np.nansum(counts[:, -1])), float(np.nansum(counts))
    signed = config.query.aggregate == "sum" and not config.query.nonnegative
    share = f", {rest / total:.0%} of everything that was released so far" if total > 0 and not signed else ""
    return (
        f"other holds all records that count and whose category is not open{share}. It does not say how many categories "
        "these are."
    )
