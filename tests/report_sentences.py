"""Every number in the sentences of a report, computed again from the configuration, the releases and the true values."""

from __future__ import annotations

import datetime
import math
import re
import tomllib
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

Values = npt.NDArray[np.float64]
SECONDS = {"calendar day": 86_400, "calendar week": 7 * 86_400, "24h": 86_400, "1h": 3600, "10min": 600}
DAY = 86_400


@dataclass
class Told:
    """A report and what it must agree with.

    Parameters
    ----------
    text
        The report, as HTML.
    keys
        The configuration's tables.
    released
        The releases as they were written, one row a step.
    truth
        The true answers, steps × columns of the query; None where the report is for everybody.
    """

    text: str
    keys: dict[str, Any]
    released: pl.DataFrame
    truth: Values | None = None

    @classmethod
    def of(cls, report: Path, config: Path, released: Path, truth: Values | None = None) -> Told:
        """Read all of it."""
        keys = tomllib.loads(config.read_text())
        return cls(report.read_text(), keys, pl.read_csv(released, infer_schema_length=None), truth)

    @property
    def labels(self) -> list[str]:
        """The columns of the query; of a mean, without its counts."""
        known = [name.removesuffix(" low") for name in self.released.columns if name.endswith(" low")]
        return [name for name in known if not name.startswith("count of ")]

    def one(self, pattern: str) -> tuple[str, ...]:
        """The numbers of a sentence that is there once."""
        found = re.findall(pattern, self.text)
        assert len(found) == 1, (pattern, found)
        return found[0] if isinstance(found[0], tuple) else (found[0],)

    def check(self) -> None:
        """All sentences."""
        self.headline()
        self.promise()
        self.lifetimes()
        self.ledger()
        self.statuses()
        if self.truth is not None:
            self.errors()

    def headline(self) -> None:
        """How many steps and columns, from when to when, and ± how much."""
        steps, columns = self.one(r"([\d,]+) steps? \([^)]*\) × ([\d,]+) columns?")
        assert (number(steps), number(columns)) == (len(self.released), len(self.labels))
        begin, end = self.one(r"from (\d+ \w+ \d+, \d\d:\d\d) to (\d+ \w+ \d+, \d\d:\d\d)")
        start = datetime.datetime.fromisoformat(self.keys["steps"]["start"])
        length = SECONDS[self.keys["steps"]["length"]]
        wanted = start, start + datetime.timedelta(seconds=length * len(self.released))
        assert tuple(datetime.datetime.strptime(each, "%d %B %Y, %H:%M") for each in (begin, end)) == wanted
        halves = []
        for label in self.labels:
            low, value, high = (
                self.released[name].to_numpy() for name in (f"{label} low", label, f"{label} high")
            )
            middle = self.keys["query"]["aggregate"] in ("mean", "quantile")
            # the lower end may be cut at 0, the upper one of a count is not
            halves.append(float(np.nanmedian((high - low) / 2 if middle else high - value)))
        (shown,) = self.one(r"<strong>± ([\d,.]+)[^<]*</strong>")
        assert number(shown) == pytest.approx(float(np.median(halves)), rel=0.2)

    def promise(self) -> None:
        """Odds by e to the ε, and what becomes of a suspicion of one half."""
        epsilon = float(self.keys["protect"]["epsilon"])
        factor, least, most = self.one(
            r"factor of ([\d.]+) at most\. A suspicion of 50% stays between (\d+)% and (\d+)%"
        )
        assert float(factor) == pytest.approx(math.exp(epsilon), rel=0.05)
        sure = math.exp(epsilon) / (1 + math.exp(epsilon))
        assert (int(least), int(most)) == (round(100 * (1 - sure)), round(100 * sure))

    def lifetimes(self) -> None:
        """Whoever stays for longer meets so many windows, and two of them lose twice as much."""
        rows = re.findall(
            r"<tr><td>(one|two) [^<,]*, ([^<]*)<td>ε = ([\d.]+)<td>(over )?([\d.]+)%", self.text
        )
        epsilon, window = float(self.keys["protect"]["epsilon"]), self.keys["protect"]["window"]
        length = SECONDS[self.keys["steps"]["length"]]
        lasting = {"a day": DAY, "a week": 7 * DAY, "a year": 365 * DAY}
        assert len(rows) == 1 + sum(seconds >= length for seconds in lasting.values())
        for who, how_long, shown, over, percent in rows:
            windows = math.ceil(math.ceil(lasting[how_long] / length) / window) if who == "one" else 2
            assert float(shown) == pytest.approx(windows * epsilon), how_long
            sure = 100 / (1 + math.exp(-windows * epsilon))
            assert sure >= 99.9 if over else float(percent) == pytest.approx(sure, abs=0.051)

    def ledger(self) -> None:
        """No window spent more than ε, as the spent column says as well."""
        steps, window, most, spent = self.one(
            r"Ledger verified: (\d+) steps?, no window of (\d+) steps? spent more than ([\d.]+) "
            r"\(the fullest, steps? [^,]*, spent ([\d.]+)\)"
        )
        assert (int(steps), int(window)) == (len(self.released), self.keys["protect"]["window"])
        assert float(spent) <= float(most) == float(self.keys["protect"]["epsilon"])
        charged = np.array([float(Fraction(str(each))) for each in self.released["spent"]])
        if not self.revised():  # a revised step is one row, and says what it cost at first or later
            sums = np.convolve(charged, np.ones(int(window)))[: len(charged)]
            assert sums.max() <= float(most) + 1e-9

    def revised(self) -> bool:
        """Whether better values have replaced first ones."""
        found = re.findall(r"<p>([\d,]+) steps were revised", self.text)
        assert not found or number(found[0]) <= len(self.released)
        return bool(found)

    def statuses(self) -> None:
        """How many steps were measured, and which share of all."""
        rows = re.findall(r"</span>(\w+)<td>([\d,]+)<td>([\d.]+)%", self.text)
        counted = dict(self.released["status"].value_counts().iter_rows())
        assert {label: number(count) for label, count, _ in rows} == counted
        for _, count, share in rows:
            assert float(share) == pytest.approx(100 * number(count) / len(self.released), abs=0.051)

    def errors(self) -> None:
        """True means, errors of what was released, and their ratio, column by column and for all."""
        truth = self.truth
        assert truth is not None
        rows = {
            name: tuple(map(number, shown))
            for name, *shown in re.findall(
                r"<tr><td>([^<]+)<td>(-?[\d,.]+)<td>([\d,.]+)<td>([\d,.]+)%<td>([\d,.]+)", self.text
            )
        }
        values = self.released.select(self.labels).to_numpy().astype(float)
        for column, label in enumerate(self.labels):
            self._row(rows[label], truth[:, column], values[:, column])
        if len(self.labels) > 1:
            self._row(rows[f"all {len(self.labels)} columns"], truth.ravel(), values.ravel())

    @staticmethod
    def _row(shown: tuple[float, ...], truth: Values, values: Values) -> None:
        off = np.abs(values - truth)
        size = float(np.nanmean(off))
        near = 0.06 + 0.02 * max(size, 1e-3) + 0.001 * float(np.nanmean(np.abs(truth)))  # outputs are rounded
        assert shown[0] == pytest.approx(float(np.nanmean(truth)), abs=0.06, rel=1e-3)
        assert shown[1] == pytest.approx(size, abs=near)
        total = float(np.nansum(np.abs(truth)))
        assert shown[2] == pytest.approx(
            100 * float(np.nansum(off)) / total, abs=0.1 + 100 * near * len(off) / total
        )
        assert shown[3] == pytest.approx(float(np.nanquantile(off, 0.95)), abs=2 * near, rel=0.05)

    def left_out(self, records: int, dropped: float, bounded: float | None, clipped: float | None) -> None:
        """How many records there are, and which shares of them count nowhere, are too many, or are cut."""
        (shown,) = self.one(r"Of ([\d,]+) records:")
        assert number(shown) == records
        rows = dict(re.findall(r"<tr><td>(dropped|bounded|clipped)<td>([\d.]+)%", self.text))
        wanted = {"dropped": dropped, "bounded": bounded, "clipped": clipped}
        for name, share in wanted.items():
            if share is not None:
                assert float(rows[name]) == pytest.approx(100 * share, abs=0.051), name


def number(text: str) -> float:
    """A number with commas."""
    return float(text.replace(",", ""))
