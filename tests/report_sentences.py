"""Every number of a report and of its card, computed again from configuration, releases, log and true values.

Each rule reads numbers from the page, compares them with its own computation, and so claims them. A number that no rule
has claimed fails as well: whoever adds a sentence with a number adds a rule that knows it.
"""

from __future__ import annotations

import datetime
import hashlib
import html
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

import tidegate
from tidegate.config import parse_config, read_queries
from tidegate.core.commit import Row
from tidegate.core.session import Session
from tidegate.pipeline import read_stream
from tidegate.pipeline.charge_export import losses
from tidegate.pipeline.logs import rows_of
from tidegate.plan import Description

Values = npt.NDArray[np.float64]
DAY = 86_400
WORDS = {"second": 1, "minute": 60, "hour": 3600, "day": DAY, "week": 7 * DAY}
SECONDS = {"calendar day": DAY, "calendar week": 7 * DAY, "24h": DAY, "1h": 3600, "10min": 600}
NUMBER = re.compile(r"\d(?:[\d,.]*\d)?")
HIDDEN = re.compile(r"<style>.*?</style>|<[^>]*>|&[#\w]+;", re.DOTALL)
LONG, SHORT = r"\d+ \w+ \d{4}, \d\d:\d\d", r"(?:\d+ )?[A-Z][a-z][a-z] (?:\d{4}, \d\d:\d\d|\d{4}|\d\d:\d\d)"
MEAN_OF_HALF = 0.45
TOP = 6.0  # where pictures have their largest value
# how many units below their smallest one is, where numbers end at the left, where what is drawn begins, and its width
SMALL, LARGE = (106.0, 40, 44, 450), (216.0, 44, 48, 806)


@dataclass(frozen=True)
class Left:
    """What bounding and clipping must be said to have left out: records, shares, and what the file says without them."""

    records: int
    dropped: float
    bounded: float
    clipped: float | None = None
    counts: Values | None = None


@dataclass
class Told:
    """A report and what it must agree with.

    Parameters
    ----------
    text
        The report, as HTML.
    folder
        Where the configuration and the log are.
    keys
        The configuration's tables.
    released
        The releases as they were written, one row a step.
    card
        The card as JSON.
    written
        When the report was written, as its file says.
    truth, left
        The true answers, steps × columns of the query, and what was left out; None where the report is for everybody.
    """

    text: str
    config: Path
    keys: dict[str, Any]
    released: pl.DataFrame
    card: dict[str, Any]
    truth: Values | None = None
    left: Left | None = None
    written: datetime.datetime = datetime.datetime.max
    claimed: set[int] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        report: Path,
        config: Path,
        released: Path,
        card: Path,
        truth: Values | None = None,
        left: Left | None = None,
    ) -> Told:
        """Read all of it."""
        keys = tomllib.loads(config.read_text())
        rows = pl.read_csv(released, infer_schema_length=None)
        written = datetime.datetime.fromtimestamp(report.stat().st_mtime, datetime.UTC)
        return cls(report.read_text(), config, keys, rows, json.loads(card.read_text()), truth, left, written)

    def check(self) -> None:
        """All sentences, pictures and tables, and that nothing is left over."""
        for rule in (self.headline, self.noise, self.promise, self.lifetimes, self.in_full, self.verified):
            rule()
        self.bounding()
        self.pictures()
        self.costs()
        self.statuses()
        self.silent()
        self.missing()
        self.errors()
        self.left_out()
        self.card_page()
        self.footer()
        more = self.unclaimed()
        assert not more, f"numbers that no rule knows: {more}"

    # reading ------------------------------------------------------------------------------------------------

    def each(self, pattern: str, within: tuple[int, int] | None = None) -> list[tuple[str, ...]]:
        """The numbers of all sentences like this, which are claimed by that."""
        found = []
        for match in re.compile(pattern, re.DOTALL).finditer(self.text, *(within or ())):
            for group in range(1, (match.re.groups or 0) + 1):
                self.claimed.update(range(*match.span(group)))
            found.append(tuple(part or "" for part in match.groups()))
        return found

    def one(self, pattern: str, within: tuple[int, int] | None = None) -> tuple[str, ...]:
        """The numbers of a sentence that is there once."""
        found = self.each(pattern, within)
        assert len(found) == 1, (pattern, found)
        return found[0]

    def section(self, heading: str) -> tuple[int, int] | None:
        """Where a section begins and ends; None where it is not there."""
        found = re.search(
            rf"<section[^>]*>(?:<details><summary>)?<h2>{heading}.*?</section>|<div[^>]*><h3>{heading}.*?</div>",
            self.text,
            re.DOTALL,
        )
        return None if found is None else found.span()

    def unclaimed(self) -> list[str]:
        """Numbers that no rule knows, with what stands around them."""
        plain = HIDDEN.sub(lambda found: " " * len(found[0]), self.text)
        return [
            plain[max(0, found.start() - 40) : found.end() + 20].strip()
            for found in NUMBER.finditer(plain)
            if not self.claimed.issuperset(range(*found.span()))
        ]

    # what they are compared with ----------------------------------------------------------------------------

    @property
    def aggregate(self) -> str:
        """What is released."""
        return str(self.keys["query"]["aggregate"])

    @cached_property
    def columns(self) -> list[str]:
        """All columns that were released, the counts of a mean included."""
        return [name.removesuffix(" low") for name in self.released.columns if name.endswith(" low")]

    @cached_property
    def labels(self) -> list[str]:
        """The columns of the query; of a mean, without its counts."""
        return [name for name in self.columns if not name.startswith("count of ")]

    @property
    def steps(self) -> int:
        """How many were released."""
        return len(self.released)

    @property
    def length(self) -> int:
        """Seconds of a step."""
        return SECONDS[self.keys["steps"]["length"]]

    @property
    def epsilon(self) -> float:
        """The budget of a window."""
        return float(Fraction(self.keys["protect"]["epsilon"]))

    @property
    def window(self) -> int:
        """Steps of a window."""
        return int(self.keys["protect"]["window"])

    def moment(self, step: int) -> datetime.datetime:
        """When the step with this number, from 0 on, begins."""
        start = datetime.datetime.fromisoformat(self.keys["steps"]["start"])
        return start + datetime.timedelta(seconds=self.length * step)

    def series(self, label: str) -> tuple[Values, Values, Values]:
        """Values of a column and the ends of their intervals."""
        value, low, high = (
            self.released[name].cast(pl.Float64).to_numpy()
            for name in (label, f"{label} low", f"{label} high")
        )
        return value, low, high

    def halves(self, label: str) -> float:
        """Half the width of a column's typical interval."""
        value, low, high = self.series(label)
        # the lower end may be cut at 0, the upper one of a count is not
        around = (high - low) / 2 if self.aggregate in ("mean", "quantile") else high - value
        return float(np.nanmedian(around))

    @cached_property
    def typical(self) -> float:
        """The median, over columns, of a column's mean."""
        return float(np.median([abs(np.nanmean(self.series(label)[0])) for label in self.labels]))

    @cached_property
    def spent(self) -> Values:
        """What each window has spent: the sum of the losses that meet it."""
        found = np.zeros(self.steps)
        for loss in losses(self.rows):
            assert loss.epsilon is not None
            found[loss.first - 1 : loss.last + self.window - 1] += float(loss.epsilon * loss.times)
        return found

    @cached_property
    def rows(self) -> list[Row]:
        """All commits of the log."""
        return list(rows_of(self.config.with_suffix(".ledger")))

    # the page from its top ----------------------------------------------------------------------------------

    def headline(self) -> None:
        """The title, how many steps and columns, from when to when, for how long, and ± how much."""
        titles = self.each(r"(?:<title>(?:NOT FOR PUBLICATION: )?|<h1>)([^<]*)</(?:title>(?=\n<meta)|h1>)")
        assert [html.unescape(title) for (title,) in titles] == [self.card["title"]] * 2
        if found := re.fullmatch(r"[^\d]*, every (.*)", self.card["title"]):
            assert lasting(found[1]) == self.length
        steps, step, columns = self.one(r"<p class=lead>([\d,]+) steps? of ([\w, ]+) × ([\d,]+) columns?")
        assert (number(steps), number(columns)) == (self.steps, len(self.labels))
        assert lasting(step) == self.length
        begin, end = self.one(rf"from ({LONG}) to ({LONG})")
        assert tuple(date(each) for each in (begin, end)) == (self.moment(0), self.moment(self.steps))
        for (protected,) in self.each(r"(?:Protected: any|<strong>Any|<td>any) [^,<]*, any ([^.,<]*)"):
            assert lasting(protected) == self.length * self.window
        epsilon, yearly = self.one(r", with ε = ([\d./]+); one that is there all year: ε = ([\d./]+) at most")
        windows = math.ceil(math.ceil(365 * DAY / self.length) / self.window)
        assert (float(Fraction(epsilon)), float(Fraction(yearly))) == pytest.approx(
            (self.epsilon, windows * self.epsilon)
        )
        (step,) = self.one(r"<h2>[^<]* per ([\w ]+) <span class=off>")
        assert lasting(step.strip()) == self.length
        halves = [self.halves(label) for label in self.labels]
        half, narrowest, widest = self.one(
            r"<strong>±&nbsp;([\d,.]+)[^<]*</strong> around (?:each value|a typical value, from ± ([\d,.]+) to "
            r"± ([\d,.]+) by)"
        )
        assert number(half) == pytest.approx(float(np.median(halves)), rel=0.12)
        if narrowest:
            assert (number(narrowest), number(widest)) == pytest.approx((min(halves), max(halves)), rel=0.12)
        else:
            assert max(halves) / 1.7 < number(half) < 1.7 * min(halves)

    def noise(self) -> None:
        """Whether noise is larger than the numbers, in how many columns, and what would help."""
        halves = {label: self.halves(label) for label in self.labels}
        part = self.section("Mind the noise")
        if part is None:
            assert not self._drowned(halves, 0.85)
            return
        half, narrowest, widest, below, typical = self.one(
            r"<p>± ([\d,.]+)[^,]* around (?:a value|a typical value, from ± ([\d,.]+) to ± ([\d,.]+) by column), where a "
            r"typical one is (less than )?([\d,.]*\d)",
            part,
        )
        assert number(half) == pytest.approx(float(np.median(list(halves.values()))), rel=0.12)
        if narrowest:
            ends = min(halves.values()), max(halves.values())
            assert (number(narrowest), number(widest)) == pytest.approx(ends, rel=0.12)
        written_to = max(resolution(self.series(label)[0]) for label in self.labels)
        if below:
            assert number(typical) == pytest.approx(number(half) / 20, rel=0.12)
            assert self.typical < number(typical) + written_to / 2
        else:
            assert number(typical) == pytest.approx(self.typical, rel=0.12, abs=written_to / 2)
        if self.each(r": the noise is larger (than) the numbers", part):
            assert MEAN_OF_HALF * number(half) > 0.85 * number(typical)
        else:
            few, many = self.one(r"in ([\d,]+) of ([\d,]+) columns the noise is larger", part)
            assert number(many) == len(self.labels)
            assert len(self._drowned(halves, 0.85)) <= number(few) <= len(self._drowned(halves, 1.15))
            (named,) = self.one(r"<p>Columns: (.*?)\.</p>", part)
            assert set(html.unescape(named).split(", ")) <= set(self._drowned(halves, 1.15))
        for (level,) in self.each(r"predicts it for values of ([\d,.]+):", part):
            assert level == typical
        for words, percent in self.each(r"<li>([^<]*): off by ([\d,.]+)% of a value on average", part):
            wanted = 100 * self._tried(html.unescape(words), number(typical))
            assert number(percent) == pytest.approx(wanted, rel=0.4), (words, percent, wanted)

    def _drowned(self, halves: dict[str, float], more: float) -> list[str]:
        """Columns in which the noise, times so much, is larger than the numbers."""
        return [
            label
            for label, half in halves.items()
            if more * MEAN_OF_HALF * half > abs(np.nanmean(self.series(label)[0]))
        ]

    def _tried(self, words: str, level: float) -> float:
        """The relative error of a stream like this one under another setting: made up, released and compared."""
        keys = {name: dict(table) for name, table in self.keys.items()}
        columns, length = len(self.labels), self.length
        if found := re.fullmatch(r"steps (\d+) times as long", words):
            times = int(found[1])
            level, length = level * times, length * times
            keys["protect"]["window"] = max(1, -(-self.window // times))
        elif found := re.fullmatch(r"one column for all ([\d,]+)", words):
            assert number(found[1]) == columns
            level, columns = level * columns, 1
        elif found := re.fullmatch(r"ε = (\d+)", words):
            assert int(found[1]) == 4 * self.epsilon
            keys["protect"]["epsilon"] = found[1]
        else:
            found = re.fullmatch(r"a window of ([\d,]+) steps?", words)
            assert found, words
            assert number(found[1]) == self.window // 4
            keys["protect"]["window"] = int(number(found[1]))
        season = DAY // length if length * 2 <= DAY else None
        stream = Description(level=level, columns=columns, season=season)
        plain = {"location": "none.csv", "time": "time"}
        names = [f"c{place}" for place in range(columns)]
        query = {"aggregate": "given", "layout": "wide", "columns": names, "fill": "zero"}
        protect = {"max_change": "1", **keys["protect"]}
        steps = {"start": "2026-01-01", "length": f"{length}s", "count": 100_000}
        tables = {"source": plain, "steps": steps, "query": query, "protect": protect}
        text = written({**tables, "mechanism": keys["mechanism"], "sink": {"location": "-"}})
        return relative_error(text, stream, max(400, 8 * int(keys["protect"]["window"]), 21 * (season or 1)))

    def promise(self) -> None:
        """Odds by e to the ε, what becomes of a suspicion of one half, and the same as bars."""
        factor, half, least, most = self.one(
            r"factor of ([\d.]+) at most\. A suspicion of (\d+)% stays between (\d+)% and (\d+)%"
        )
        assert float(factor) == pytest.approx(math.exp(self.epsilon), rel=0.05)
        assert (int(half), int(least), int(most)) == (50, *(round(each) for each in self._moved(0.5)))
        stated = self.each(r"</strong>: ε = ([\d./]+)\.") + self.each(r"<p>ε = ([\d./]+) means")
        assert [float(Fraction(each)) for (each,) in stated] == [self.epsilon] * 2
        bars = self.each(r">(\d+)% before<.*?<title>between ([\d.]+)% and ([\d.]+)%")
        assert [int(before) for before, _, _ in bars] == [10, 50, 90]
        for before, *ends in bars:
            assert [float(end) for end in ends] == pytest.approx(self._moved(int(before) / 100), abs=0.051)
        axis = self.each(r'<text x="(\d+)" y="\d+" text-anchor="middle">(\d+)%</text>')
        assert [(int(x) - 110) / 3.6 for x, _ in axis] == [float(shown) for _, shown in axis]

    def _moved(self, before: float) -> list[float]:
        """Between which percentages a suspicion stays."""
        odds = before / (1 - before)
        return [100 / (1 + math.exp(-sign * self.epsilon) / odds) for sign in (-1, 1)]

    def lifetimes(self) -> None:
        """Whoever stays for longer meets so many windows, and two of them lose twice as much."""
        assert self.each(r"<th>a suspicion of (\d+)% becomes") == [("50",)]
        rows = self.each(r"<tr><td>(one|two) [^<,]*, ([^<]*)<td>ε = ([\d./]+)<td>(over )?([\d.]+)%")
        self._lasting(rows)
        (listed,) = self.one(r"<td>privacy lifetimes<td>([^<]*)")
        assert listed == "; ".join(
            f"{who}: {lost}" for who, lost in self.card["privacy"]["lifetimes"].items()
        )
        self._lasting(re.findall(r"(one|two) [^,;]*, ([^:]*): ε = ([\d./]+)()()", listed))

    def _lasting(self, rows: list[tuple[str, ...]]) -> None:
        lengths = {"a day": DAY, "a week": 7 * DAY, "a year": 365 * DAY}
        assert len(rows) == 1 + sum(seconds >= self.length for seconds in lengths.values())
        for who, how_long, shown, over, percent in rows:
            if who == "two":
                assert lasting(how_long) == self.length * self.window
            windows = (
                math.ceil(math.ceil(lengths[how_long] / self.length) / self.window) if who == "one" else 2
            )
            assert float(Fraction(shown)) == pytest.approx(windows * self.epsilon), how_long
            sure = 100 / (1 + math.exp(-windows * self.epsilon))
            if percent:
                assert (
                    (sure >= 99.9 and percent == "99.9")
                    if over
                    else float(percent) == pytest.approx(sure, abs=0.051)
                )

    def in_full(self) -> None:
        """The guarantee's own sentence, in the promise and on the card."""
        sentences = self.each(
            r"(?:in full</summary><p class=quiet>|<td>privacy guarantee<td>)"
            r"\w+ is ([\d./]+)-differentially private for everything within any "
            r"(\d+) consecutive steps?: a change of at most ([\d./]+) in each of them \(w-event"
        )
        assert len(sentences) == 2
        for epsilon, window, change in sentences:
            assert (float(Fraction(epsilon)), int(window)) == (self.epsilon, self.window)
            self._change(Fraction(change))

    def _change(self, shown: Fraction) -> None:
        """By how much one unit changes a step: what its contributions can add up to."""
        query = self.keys["query"]
        most = Fraction(query.get("most", 1))
        if self.aggregate == "given":
            assert shown == Fraction(self.keys["protect"]["max_change"])
        elif self.aggregate == "sum":
            assert shown == most * max(abs(Fraction(bound)) for bound in query["clip"])
        elif (
            self.aggregate == "mean"
        ):  # half for the sum around the middle of the clip, and as much for the count
            low, high = (Fraction(bound) for bound in query["clip"])
            assert shown == most * (high - low)
        elif self.aggregate == "quantile":  # one node on every level of a tree over 64 bins
            assert any(branches ** int(shown) == 64 for branches in (2, 4, 8))
        else:
            assert shown == most

    def verified(self) -> None:
        """No window spent more than ε, and the fullest is where the charges say."""
        commits, first, last, spent = self.one(
            r"The log was recomputed: ([\d,]+) commits? agree\. No window spent more than its budget "
            r"\(the fullest, steps? ([\d,]+)(?: to ([\d,]+))?, spent ([\d./]+)\)"
        )
        assert number(commits) == len(self.rows)
        end, first = int(number(last or first)), number(first)
        assert int(first) == max(1, end - self.window + 1)
        assert float(Fraction(spent)) == pytest.approx(self.spent.max()) == pytest.approx(self.spent[end - 1])
        assert self.spent.max() <= self.epsilon + 1e-12

    # pictures and what belongs to them ----------------------------------------------------------------------

    @property
    def bounds(self) -> list[Fraction]:
        """The numbers of what clipping and bounding do: the ends of the clip, and how often a unit counts."""
        query, found = self.keys["query"], []
        if self.aggregate in ("sum", "mean", "quantile"):
            found += [Fraction(bound) for bound in query["clip"]]
        most = query.get("most", 1)
        one = self.aggregate == "distinct" and most >= len(self.labels)
        if "unit" in self.keys["source"] and self.aggregate != "given" and not one:
            found.append(Fraction(most))
        return found

    def bounding(self) -> None:
        """What clipping and bounding do, in sight, and of what the band speaks."""
        found = self.each(r"<p class=bounded><strong>Bounded values\.</strong> (.*?)</p>")
        assert len(found) == bool(self.bounds)
        for (sentence,) in found:
            shown = [Fraction(number) for number in re.findall(r"-?\d+(?:[./]\d+)?", sentence)]
            assert set(self.bounds) <= set(shown)
            assert self.card["data_product"]["bounded"] in html.unescape(sentence)
        for (kind,) in self.each(r"nine of ten (\w+) values lie"):
            assert kind == ("bounded" if self.bounds else "true")

    def pictures(self) -> None:
        """Labels, scales, dates, hover values and the table of each column."""
        found = re.search(r"<section class=released.*?</section>", self.text, re.DOTALL)
        assert found
        part = found.span()
        self.adjusted(part)
        figures = list(re.compile(r"<figure>.*?</figure>", re.DOTALL).finditer(self.text, *part))
        shown = self.columns
        if len(shown) > 20:
            few, all_of_them = self.one(
                r"The (\d+) columns with the largest released totals of ([\d,]+)", part
            )
            assert (int(few), number(all_of_them)) == (20, len(shown))
            totals = {label: np.nansum(self.series(label)[0]) for label in shown}
            largest = sorted(shown, key=lambda label: -totals[label])[:20]
            shown = largest
        assert len(figures) == len(shown)
        for figure, label in zip(figures, shown, strict=True):
            self._figure(figure.span(), label)

    @property
    def counts(self) -> bool:
        """Whether no number can be below 0."""
        clip = self.keys["query"].get("clip", ["-1"])
        return self.aggregate in ("count", "distinct", "histogram") or (
            self.aggregate == "sum" and clip != "learn" and Fraction(clip[0]) >= 0
        )

    def adjusted(self, part: tuple[int, int]) -> None:
        """How many numbers are drawn as others, because they cannot be."""
        values = self.released.select(self.columns).to_numpy().astype(float)
        below = int((values < 0).sum()) if self.counts else 0
        found = self.each(
            r"Adjusted\.</strong> ([\d,]+) of ([\d,]+) numbers .*? with which no number is below (0)\.", part
        )
        assert [(number(few), number(many)) for few, many, _ in found] == (
            [(below, values.size)] if below else []
        )

    def _figure(self, part: tuple[int, int], label: str) -> None:
        (name,) = self.one(r"<figcaption><strong(?: class=only)?>(.*?)</strong>", part)
        assert html.unescape(name) == label
        value, low, high = self.series(label)
        if self.counts:
            value = np.maximum(value, 0.0)
        near = (
            resolution(value) + 0.05 * float(np.nanmean((high - low) / 2)) if np.isfinite(high).any() else 0.0
        )
        near = 1.0 if np.isnan(near) else max(near, resolution(value))
        # ends of intervals are written rounded outwards, those of 40 and wider to whole numbers
        outwards = near + (1.0 if np.any(high - low >= 40) else resolution(value))
        truth = None if self.truth is None else self.truth[:, self.columns.index(label)]
        if self.each(r"<span class=quiet>\((light) ", part):
            least, most = self.one(r"light ([\d,.-]+), dark ([\d,.-]+)", part)
            wide = max(float(np.nanmax(value)), float(np.nanmean((high - low) / 2)))
            assert close(number(least), min(float(np.nanmin(value)), 0.0), near)
            assert close(number(most), wide, near)
            assert self.each(r">(\d+:\d\d)</text>", part) == [("0:00",), ("12:00",)]
            self._hovers(part, averaged(value, 60), 60, near)
        else:
            drawn = [averaged(each, 240) for each in (value, low, high, truth) if each is not None]
            known = np.concatenate([each[np.isfinite(each)] for each in drawn])
            self._scale(part, float(known.min()), float(known.max()), near)
            self._hovers(part, drawn[0], 240, near)
        self._dates(part)
        rows = self.each(rf"<tr><td>({LONG})<td>([^<]*)<td>([^<]*)<td>([^<]*)", part)
        means = [averaged(each, 53) for each in (value, low, high)]
        assert len(rows) == len(means[0])
        for index, (begin, *cells) in enumerate(rows):
            assert date(begin) == self.moment(index * -(-self.steps // 53))
            for cell, mean in zip(cells, means, strict=True):
                assert cell == "–" if np.isnan(mean[index]) else close(number(cell), mean[index], outwards), (
                    label, begin, cell, mean[index],
                )  # fmt: skip

    def _scale(self, part: tuple[int, int], least: float, most: float, near: float) -> None:
        """The round numbers at the left stand where they belong."""
        if least == most:
            least, most = least - 1, most + 1
        tall, at, *_ = self._frame(part)
        ticks = self.each(rf'<text x="{at}" y="([\d.]+)" text-anchor="end">(-?[\d,.]+)( [kMG])?</text>', part)
        assert ticks
        for y, shown, size in ticks:
            wanted = most - (float(y) - 4 - TOP) / tall * (most - least)
            assert len(shown + size) <= 7  # there is no room for more
            assert number(shown) * {"": 1, " k": 1e3, " M": 1e6, " G": 1e9}[size] == pytest.approx(
                wanted, abs=0.01 * (most - least) + 2 * near
            )

    def _frame(self, part: tuple[int, int]) -> tuple[float, int, int, int]:
        """How large a picture is."""
        return LARGE if 'viewBox="0 0 860 240"' in self.text[slice(*part)] else SMALL

    def _hovers(
        self,
        part: tuple[int, int],
        means: Values,
        most: int,
        near: float,
        of: Callable[[Values], Any] = np.mean,
    ) -> None:
        """What is said where a pointer rests."""
        found = self.each(rf"<title>({LONG}): ([\d,.-]+|none)</title>", part)
        size, bins = -(-len(means) // 60), -(-self.steps // most)
        parts = [means[begin : begin + size] for begin in range(0, len(means), size)]
        assert len(found) == len(parts)
        for index, ((begin, shown), values) in enumerate(zip(found, parts, strict=True)):
            assert date(begin) == self.moment(index * size * bins)
            known = values[np.isfinite(values)]
            assert shown == "none" if not len(known) else close(number(shown), float(of(known)), near), begin

    def _dates(self, part: tuple[int, int]) -> None:
        """At most four dates below, each where it stands."""
        found = self.each(
            rf'<text x="([\d.]+)" y="\d+" text-anchor="(?:middle|start)">({SHORT})</text>', part
        )
        pictures = len(self.each("(<svg )", part))
        assert pictures <= len(found) <= 4 * pictures
        first, last = self.moment(0), self.moment(self.steps)
        *_, left, wide = self._frame(part)
        for x, words in found:
            if "," in words:
                moment = date(words)
            else:
                style = "%d %b %H:%M %Y" if ":" in words else "%d %b %Y" if words[0].isdigit() else "%b %Y"
                moment = datetime.datetime.strptime(f"{words} {first.year}" if ":" in words else words, style)
            assert float(x) == pytest.approx(left + wide * ((moment - first) / (last - first)), abs=0.11)

    def costs(self) -> None:
        """The loss of every window, as the log has it, against its limit."""
        part = self.section("What it cost")
        assert part
        window, limit = self.one(
            r"of the ([\d,]+) steps? up to each step, which may never exceed ([\d./]+) ", part
        )
        assert (number(window), float(Fraction(limit))) == (self.window, self.epsilon)
        size = -(-self.steps // 240)
        highest = np.array([self.spent[at : at + size].max() for at in range(0, self.steps, size)])
        self._scale(part, 0.0, 1.15 * self.epsilon, 0.0)
        self._hovers(part, highest, 240, 0.0, np.max)
        self._dates(part)

    def statuses(self) -> None:
        """How many steps were measured, and which share of all."""
        part = self.section("What was measured")
        assert part
        rows = self.each(r"</span>(\w+)<td>([\d,]+)<td>([\d.]+)%", part)
        counted = dict(self.released["status"].value_counts().iter_rows())
        assert {label: number(count) for label, count, _ in rows} == counted
        for _, count, share in rows:
            assert float(share) == pytest.approx(100 * number(count) / self.steps, abs=0.051)
        for (revised,) in self.each(r"<p>([\d,]+) steps were revised", part):
            with read_stream(read_queries(self.config)) as stream:
                (released,) = stream.released.values()
                chunks = list(released.chunks())
            again = {int(step) for chunk in chunks for step in chunk.step[chunk.revision > 0]}
            assert number(revised) == len(again)
        if len(rows) > 1:
            self._dates(part)

    def silent(self) -> None:
        """How many steps say nothing."""
        none = int((self.released["status"] == "silent").sum())
        found = self.each(r"<p>([\d,]+) of ([\d,]+) steps? (?:is|are) silent: ([\d,]+)(?: to ([\d,]+))?\.")
        assert [(number(few), number(many)) for few, many, *_ in found] == (
            [(none, self.steps)] if none else []
        )
        for *_, first, last in found:  # those from which a clip is learnt
            assert (number(first), number(last or first)) == (1, none)

    def missing(self) -> None:
        """How many readings there are not; of a silent step none is missing."""
        said = self.released.filter(pl.col("status") != "silent")
        values = said.select(self.columns).to_numpy().astype(float)
        none = int(np.isnan(values).sum())
        found = self.each(r"<p>([\d,]+) of ([\d,]+) readings \(([\d.]+)%\) were missing")
        assert [(number(few), number(many)) for few, many, _ in found] == (
            [(none, values.size)] if none else []
        )
        for few, many, share in found:
            assert float(share) == pytest.approx(100 * number(few) / number(many), abs=0.051)

    # for the curator ----------------------------------------------------------------------------------------

    def errors(self) -> None:
        """True means, errors of what was released, and their ratio, column by column and for all."""
        part = self.section("How wrong it is")
        assert (part is None) == (self.truth is None)
        if part is None or self.truth is None:
            return
        assert self.one(r"<th>(\d+) % of errors below", part) == ("95",)
        found = self.each(r"<tr><td>([^<]+)<td>(-?[\d,.]+)<td>([\d,.]+)<td>(–|[\d,.]+%)<td>([\d,.]+)", part)
        rows = {html.unescape(name): shown for name, *shown in found}
        values = self.released.select(self.columns).to_numpy().astype(float)
        own = len(self.labels)
        for column, label in enumerate(self.columns):
            if len(self.columns) <= 20 or label in rows:
                self._row(rows[label], self.truth[:, column], values[:, column])
        if own > 1:
            self._row(rows[f"all {own} columns"], self.truth[:, :own].ravel(), values[:, :own].ravel())

    @staticmethod
    def _row(shown: list[str], truth: Values, values: Values) -> None:
        off = np.abs(values - truth)
        size, total = float(np.nanmean(off)), float(np.nansum(np.abs(truth)))
        near = 0.06 + 0.02 * max(size, 1e-3) + 0.001 * float(np.nanmean(np.abs(truth)))  # outputs are rounded
        assert number(shown[0]) == pytest.approx(float(np.nanmean(truth)), abs=0.06, rel=1e-3)
        assert number(shown[1]) == pytest.approx(size, abs=near)
        if total:
            wanted = 100 * float(np.nansum(off)) / total
            assert number(shown[2].rstrip("%")) == pytest.approx(
                wanted, abs=0.1 + 100 * near * len(off) / total
            )
        else:
            assert shown[2] == "–"
        written_to = float(
            np.max(np.abs(values - np.trunc(values)) < 1e-9)
        )  # some are written as whole numbers
        wide = 2 * near + written_to / 2
        assert number(shown[3]) == pytest.approx(float(np.nanquantile(off, 0.95)), abs=wide, rel=0.05)

    def left_out(self) -> None:
        """How many records there are, which shares count nowhere, and how far that is from the file."""
        part, left = self.section("What was left out"), self.left
        assert (part is None) == (left is None)
        if part is None or left is None:
            return
        assert number(self.one(r"Of ([\d,]+) records:", part)[0]) == left.records
        rows = dict(self.each(r"<tr><td>(dropped|bounded|clipped)<td>([\d.]+)%", part))
        wanted = {"dropped": left.dropped, "bounded": left.bounded, "clipped": left.clipped}
        for name, share in wanted.items():
            assert (name in rows) == (share is not None), name
            if share is not None:
                assert float(rows[name]) == pytest.approx(100 * share, abs=0.051), name
        (most,) = self.one(r"beyond ([\d,]+) contributions? of one", part)
        assert number(most) == self.keys["query"].get("most", 1)
        away = self.each(
            r"The bounded (?:counts|sums|means) are ([\d.]+)% away from those of the file, and the released ones "
            r"([\d.]+)% \(mean of the file <strong>([\d,.-]+)</strong>, bounded ([\d,.-]+)\)\."
            r"(?: The band holds ([\d.]+)% of)?",
            part,
        )
        assert len(away) == (left.counts is not None)
        if left.counts is not None:
            assert self.truth is not None
            own = slice(len(self.labels))
            values = self.released.select(self.columns).to_numpy().astype(float)[:, own]
            file, truth = left.counts[:, own], self.truth[:, own]
            total = float(np.nansum(np.abs(file)))
            bounded, seen = (np.nansum(np.abs(each - file)) / total for each in (truth, values))
            means = [float(np.nanmean(each)) for each in (file, truth)]
            assert [number(each) for each in away[0][2:4]] == pytest.approx(means, abs=0.051)
            low, high = (np.array([self.series(label)[end] for label in self.labels]).T for end in (1, 2))
            known, near = np.isfinite(low) & np.isfinite(file), resolution(values)
            ends = [((low - out <= file) & (file <= high + out))[known].mean() for out in (-near, near)]
            assert 100 * ends[0] - 0.051 <= float(away[0][4]) <= 100 * ends[1] + 0.051
            assert float(away[0][0]) == pytest.approx(100 * bounded, abs=0.051)
            rounded = 50 * max(resolution(values), 1e-9) * values.size / total
            assert float(away[0][1]) == pytest.approx(100 * seen, abs=0.051 + rounded)

    # the card and the foot ----------------------------------------------------------------------------------

    def card_page(self) -> None:
        """The page has what the JSON has, and the JSON what the configuration says."""
        part = self.section("The card of this deployment")
        assert part
        rows = {name: html.unescape(value) for name, value in self.each(r"<tr><td>([^<]+)<td>([^<]*)", part)}
        assert rows == dict(flat(self.card))
        product, privacy = self.card["data_product"], self.card["privacy"]
        assert (product["aggregate"], product["columns"]) == (self.aggregate, self.columns)
        assert (product["steps"], lasting(product["step"])) == (self.keys["steps"]["count"], self.length)
        assert datetime.datetime.fromisoformat(product["start"]).replace(tzinfo=None) == self.moment(0)
        assert (privacy["window_steps"], float(Fraction(privacy["epsilon"]))) == (self.window, self.epsilon)
        assert (privacy["delta"], privacy["rho"]) == ("0", None)
        self._change(Fraction(privacy["max_change"]))
        most = None if self.aggregate == "given" else self.keys["query"].get("most", 1)
        assert privacy["most_contributions_a_step"] == most
        (protected,) = re.findall(r"any [^,]*, any (.*)", privacy["protects"])
        assert lasting(protected) == self.length * self.window
        mechanism = self.card["mechanism"]
        clip = self.keys["query"].get("clip")
        if self.aggregate in ("sum", "mean"):
            assert [Fraction(bound) for bound in mechanism["clip"]] == [Fraction(bound) for bound in clip]
        assert Fraction(mechanism["grid"]) == Fraction(self.keys["query"].get("grid", "1"))
        assert mechanism["parameters"] == {
            name: str(value) for name, value in self.keys["mechanism"].items() if name != "name"
        }
        program = self.card["implementation"]
        assert program["version"] == tidegate.__version__
        (described,) = json.loads(self.rows[0].charges)["description"]["queries"].values()
        about = {name: value for name, value in described["about"].items() if name != "read"}
        digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
        assert program["fingerprint"] == digest[:32]

    def footer(self) -> None:
        """Parameters, bounds, the log's head and the version."""
        part = self.text.index("<footer>"), len(self.text)
        (parameters,) = self.one(r"Mechanism \w+ \((.*?)\)\. ", part)
        given = [f"{name} = {value}" for name, value in self.keys["mechanism"].items() if name != "name"]
        assert html.unescape(parameters) == (", ".join(given) or "defaults")
        bounds = self.each(r"(?:at most ([\d,./]+) (?:is declared|times? a step|columns? a step))", part)
        if self.aggregate == "given":
            assert [Fraction(bound) for (bound,) in bounds] == [Fraction(self.keys["protect"]["max_change"])]
        elif "unit" in self.keys["source"]:
            assert [number(bound) for (bound,) in bounds] == [self.keys["query"].get("most", 1)]
        head, commits = self.one(r"<code>([0-9a-f]{16})</code>, after ([\d,]+) commits?", part)
        assert (number(commits), head) == (len(self.rows), self.rows[-1].head.hex()[:16])
        version, written_at = self.one(r"Tidegate ([\d.]+\w*), (\d{4}-\d\d-\d\d \d\d:\d\d) UTC", part)
        assert version == tidegate.__version__
        age = self.written - datetime.datetime.fromisoformat(f"{written_at}+00:00")
        assert datetime.timedelta(0) <= age < datetime.timedelta(minutes=2)  # written down to the minute


@cache
def relative_error(config: str, stream: Description, steps: int) -> float:
    """How far a configuration's releases of a made-up stream are off, as a part of its values."""
    mechanism, found = parse_config(config, Path("other.toml")).mechanism, []
    for seed in (1, 2, 3):
        truth = stream.sample(steps, seed)
        released = Session(mechanism).push_batch(truth).values
        found.append(float(np.abs(released - truth).mean() / np.abs(truth).mean()))
    return float(np.mean(found))


def number(text: str) -> float:
    """A number with commas."""
    return float(text.replace(",", ""))


def date(text: str) -> datetime.datetime:
    """A moment as reports write it."""
    style = "%d %B %Y, %H:%M" if len(text.split()[1].rstrip(",")) > 3 else "%d %b %Y, %H:%M"
    return datetime.datetime.strptime(text, style)


def lasting(words: str) -> int:
    """Seconds of "24 hours", "day" or "one week"."""
    found = re.fullmatch(r"(?:([\d,]+|one) )?(\w+?)s?", words)
    assert found, words
    many = 1 if found[1] in (None, "one") else int(number(found[1]))
    return many * WORDS[found[2]]


def averaged(values: Values, most: int) -> Values:
    """Means of what is known in parts of equal length, at most so many."""
    size = -(-len(values) // most)
    parts = [values[at : at + size] for at in range(0, len(values), size)]
    return np.array([part[np.isfinite(part)].mean() if np.isfinite(part).any() else np.nan for part in parts])


def resolution(values: Values) -> float:
    """The last decimal of numbers as they were written."""
    known = values[np.isfinite(values)]
    decimals = max((len(str(each).partition(".")[2]) for each in known.tolist() if each % 1), default=0)
    return 10.0**-decimals


def close(shown: float, wanted: float, near: float) -> bool:
    """Equal up to two digits that mean something, and the noise's last decimal."""
    return abs(shown - wanted) <= 0.051 * abs(wanted) + near + 1e-9


def flat(card: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The card's fields as the page names them, without those that say nothing."""
    for name, value in card.items():
        for key, part in value.items() if isinstance(value, dict) else [("", value)]:
            shown = part
            if isinstance(part, dict):
                shown = "; ".join(f"{one}: {two}" for one, two in part.items())
            elif isinstance(part, list):
                shown = ", ".join(map(str, part[:20])) + (", …" if len(part) > 20 else "")
            if shown not in (None, ""):
                yield f"{name} {key}".strip().replace("_", " "), str(shown)


def written(tables: dict[str, dict[str, Any]]) -> str:
    """Plain tables as TOML, whose values are written as in JSON."""
    lines = []
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"
