"""The report: its sentences against independent numbers, its size, its card."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tests.report_sentences import HIDDEN, NUMBER, Left, Told
from tests.runtime.helpers import settings

from tidegate.cli import main
from tidegate.config import parse_queries
from tidegate.ingest import StepBlock
from tidegate.pipeline import open_pipeline
from tidegate.report.accuracy import Accuracy
from tidegate.report.card import card
from tidegate.report.pictures import SMALL, Series, _grid, averages, bins_of, ends, moved, png
from tidegate.report.report import _chosen, write_report
from tidegate.report.wording import Words

ABOUT = """
[about]
title = "Walruses <here>"
publisher = "The harbour"
unit = "walrus"
units = "walruses"
counted = "walruses"
"""


def text_of(folder: Path, *changes: tuple[str, str], inside: bool = False) -> str:
    """The report of the small stream."""
    settings(folder, *changes)
    report = folder / "report.html"
    more = ["--compare-truth"] if inside else []
    assert main(["release", str(folder / "tidegate.toml"), "--report", str(report), *more]) == 0
    return report.read_text()


def test_the_first_lines_say_who_how_long_and_how_far_off(tmp_path: Path) -> None:
    """Words of [about], calendar words, the half width of Laplace noise at 90 %, and odds of e^ε."""
    laplace = 'name = "Uniform"\nnoise = "laplace"\n'
    text = text_of(tmp_path, ('name = "Uniform"\n', laplace), ("[sink]", ABOUT + "\n[sink]"))
    assert "<h1>Walruses &lt;here&gt;</h1>" in text
    half = float(re.search(r"<strong>±&nbsp;([\d.]+) walruses</strong>", text)[1])  # type: ignore[index]
    assert abs(half - 4 * math.log(10)) < 0.6  # scale w·Δ/ε = 4, on a grid of 1
    assert "any walrus, any 4 hours" in text
    assert "published by The harbour" in text
    assert f"factor of {math.e:.1f} at most" in text
    assert "between 27% and 73%" in text


def test_longer_presences_lose_what_windows_cover(tmp_path: Path) -> None:
    """A day of 24 steps meets 6 windows of 4; a year 2,190; two units lose twice as much."""
    config = settings(tmp_path)
    rows = {name: float(budget.total) for name, budget in Words(config).lifetimes()}
    assert rows == {
        "one unit, a day": 6.0,
        "one unit, a week": 42.0,
        "one unit, a year": 2190.0,
        "two units, 4 hours": 2.0,
    }
    text = text_of(tmp_path)
    assert "<td>one unit, a year<td>ε = 2190<td>over 99.9%" in text


def test_the_inside_report_says_what_was_left_out(tmp_path: Path) -> None:
    """Of 15 records three are elsewhere or too late, and two of a unit's three in an hour do not count."""
    lines = ["time,unit,place"]
    lines += [f"2026-03-02T{hour:02d}:10,u{hour},north" for hour in range(10)]
    lines += ["2026-03-02T01:20,u1,north", "2026-03-02T01:30,u1,north"]
    lines += ["2026-03-02T02:00,v,west", "2026-03-02T03:00,v,east", "2027-01-01T00:00,v,north"]
    (tmp_path / "events.csv").write_text("\n".join(lines) + "\n")
    text = text_of(tmp_path, ('"distinct"', '"count"'), inside=True)
    assert "<td>dropped<td>20.0%" in text
    assert "<td>bounded<td>16.7%" in text
    assert "16.7% away from those of the file" in text
    assert "Not for publication" in text
    assert "left out" not in text_of(tmp_path, ('"distinct"', '"count"'))


@pytest.mark.parametrize(
    ("aggregate", "file", "bounded"), [("sum", "2,010.0", "110.0"), ("mean", "670.0", "55.0")]
)
def test_what_clipping_does_is_said(aggregate: str, file: str, bounded: str, tmp_path: Path) -> None:
    """In sight of everybody; and the inside report compares with the file, not with the clipped values."""
    lines = ["time,unit,place,amount"]
    for hour in range(12):
        each = [("a", 10), ("b", 1000), ("b", 1000)]
        lines += [
            f"2026-03-02T{hour:02d}:1{at},{unit},north,{value}" for at, (unit, value) in enumerate(each)
        ]
    (tmp_path / "events.csv").write_text("\n".join(lines) + "\n")
    changes = (
        ('"distinct"', f'"{aggregate}"\nclip = ["0", "100"]'),
        ('columns = ["north", "south"]', 'columns = ["north"]'),
        ('column = "place"', 'column = "place"\nvalue = "amount"'),
        ('epsilon = "1"', 'epsilon = "1000000"'),
    )
    text = text_of(tmp_path, *changes, inside=True)
    said = "Values of amount above 100 count as 100, and below 0 as 0; at most 1 record of one unit counts in one hour."
    assert (
        f"<p class=bounded><strong>Bounded values.</strong> {said} Where that leaves something out, the "
        in text
    )
    assert "nine of ten bounded values lie" in text
    assert "true values lie" not in text
    assert "mean true value" not in text
    assert f"(mean of the file <strong>{file}</strong>, bounded {bounded}). The band holds 0.0%" in text


YEAR = """
[source]
location = "none.csv"
complete = true
time = "time"
[steps]
start = "2026-01-01"
length = "1h"
count = 8760
[query]
aggregate = "given"
layout = "wide"
columns = [{columns}]
[protect]
epsilon = "1"
window = 24
max_change = "1"
[mechanism]
name = "Uniform"
[sink]
location = "out.csv"
"""


def test_a_year_of_hours_in_20_columns_is_small(tmp_path: Path) -> None:
    """At most 400 kB, with a heat map and a table for each column and no line that is a solid blob."""
    names = ", ".join(f'"Building {k}"' for k in range(20))
    queries = parse_queries(YEAR.format(columns=names), tmp_path / "year.toml")
    hours = np.arange(8760)[:, None]
    values = (200 + 150 * np.sin(2 * np.pi * (hours + 3 * np.arange(20)) / 24)).astype(np.int64)
    with open_pipeline(queries) as pipeline:
        pipeline.process(queries.parts, [StepBlock(1, values, Fraction(1), {"step": 8760, "source": None})])
        pipeline.finish()
        write_report(tmp_path / "report.html", list(pipeline.released.values()), pipeline.verify())
    text = (tmp_path / "report.html").read_text()
    assert len(text.encode()) <= 400_000
    assert text.count("data:image/png;base64") == 20
    assert text.count("As a table") == 20
    assert "<script" not in text


HOURS = """
[source]
location = "hours.csv"
time = "time"
[steps]
start = "2026-01-01"
length = "1h"
count = 600
[query]
aggregate = "given"
layout = "wide"
fill = "missing"
columns = [{columns}]
[protect]
epsilon = "1/2"
window = 24
max_change = "1"
[mechanism]
name = "auto"
[sink]
location = "out.csv"
"""


def both(folder: Path) -> tuple[tuple[Path, ...], Path, Path]:
    """Release what a folder's configuration says: what reports are compared with, and the two reports."""
    config, public, inside = folder / "tidegate.toml", folder / "public.html", folder / "inside.html"
    card = folder / "card.json"
    assert main(["release", str(config), "--report", str(public), "--card", str(card)]) == 0
    assert main(["release", str(config), "--report", str(inside), "--compare-truth"]) == 0
    return (config, folder / "out.csv", card), public, inside


def three_and_one() -> tuple[np.ndarray[tuple[int, int], np.dtype[np.float64]], Left]:
    """The true counts of the small stream, and that nothing of it is left out."""
    truth = np.tile([3.0, 1.0], (12, 1))
    return truth, Left(48, 0.0, 0.0, counts=truth)


def test_every_number_is_known(tmp_path: Path) -> None:
    """Sentences, remedies, pictures, tables and card of a small stream, for everybody and for the curator."""
    settings(tmp_path)
    files, public, inside = both(tmp_path)
    Told.of(public, *files).check()
    Told.of(inside, *files, *three_and_one()).check()
    assert "What would help" in public.read_text()


def test_every_number_of_a_long_stream_is_known(tmp_path: Path) -> None:
    """Heat maps, more columns than are drawn, readings that are missing, and noise that steps share."""
    names = [f"room {number}" for number in range(22)]
    hours = np.arange(600)
    truth = np.array([np.rint(90 + 80 * np.sin(hours / 24 * 2 * np.pi) + 9 * place) for place in range(22)]).T
    truth[40:60, 3] = np.nan
    lines = [",".join(["time", *names])]
    for hour, row in enumerate(truth):
        moment = np.datetime64("2026-01-01T00:00") + np.timedelta64(hour, "h")
        lines.append(",".join([str(moment), *("" if np.isnan(each) else f"{each:.0f}" for each in row)]))
    (tmp_path / "hours.csv").write_text("\n".join(lines) + "\n")
    listed = ", ".join(f'"{name}"' for name in names)
    (tmp_path / "tidegate.toml").write_text(HOURS.format(columns=listed))
    files, public, inside = both(tmp_path)
    Told.of(public, *files).check()
    Told.of(inside, *files, truth).check()
    assert "data:image/png" in public.read_text()


def test_a_wrong_number_anywhere_is_noticed(tmp_path: Path) -> None:
    """Every ninth number of the page gets another first digit, and a sentence is added: no rule lets it pass."""
    settings(tmp_path)
    files, _, inside = both(tmp_path)
    told = Told.of(inside, *files, *three_and_one())
    told.check()
    plain = HIDDEN.sub(lambda found: " " * len(found[0]), told.text)
    places = [found.start() for found in NUMBER.finditer(plain)]
    passed = []
    for at in places[::9]:
        other = str((int(told.text[at]) + 5) % 10)
        wrong = replace(told, text=told.text[:at] + other + told.text[at + 1 :], claimed=set())
        try:
            wrong.check()
        except (AssertionError, ValueError, KeyError):
            continue
        passed.append(plain[at - 60 : at + 20])
    assert passed == []
    assert len(places) > 300
    added = replace(told, text=told.text.replace("</footer>", "<p>17 more</p></footer>"), claimed=set())
    with pytest.raises(AssertionError, match="17 more"):
        added.check()


def test_windows_that_share_noise_are_drawn_with_what_they_cost(tmp_path: Path) -> None:
    """A group of steps is charged at its first one and costs every window that meets it: no later one is free."""
    text = text_of(tmp_path, ('name = "Uniform"', 'name = "auto"'))
    part = text[text.index("What it cost") :]
    hovers = [float(found) for found in re.findall(r"<title>[^<]*: ([\d.]+)</title>", part)]
    assert len(hovers) == 12
    assert min(hovers) > 0


@pytest.mark.parametrize("aggregate", ["sum", "mean", "quantile"])
def test_contributions_beyond_the_bound_are_said_of_every_aggregate(aggregate: str, tmp_path: Path) -> None:
    """Two of a unit's three values in an hour do not count, whatever is made of the others."""
    lines = ["time,unit,place,value"]
    lines += [f"2026-03-02T{hour:02d}:{minute},u,north,5" for hour in range(10) for minute in (10, 20, 30)]
    (tmp_path / "events.csv").write_text("\n".join(lines) + "\n")
    query = f'aggregate = "{aggregate}"\nclip = ["0", "100"]'
    changes = [('aggregate = "distinct"', query), ('column = "place"', 'value = "value"')]
    text = text_of(tmp_path, *changes, ('columns = ["north", "south"]\n', ""), inside=True)
    assert "<td>bounded<td>66.7%" in text
    assert "× 1 column," in text


def test_means_are_not_averaged_with_their_counts(tmp_path: Path) -> None:
    """Below the columns of a mean and their counts stands one row, of the means alone."""
    lines = ["time,unit,place,value"]
    lines += [
        f"2026-03-02T{hour:02d}:{10 + unit},{unit},{place},{value}"
        for hour in range(12)
        for unit, (place, value) in enumerate((("north", 20), ("north", 40), ("south", 60)))
    ]
    (tmp_path / "events.csv").write_text("\n".join(lines) + "\n")
    mean = 'aggregate = "mean"\nclip = ["0", "100"]'
    text = text_of(
        tmp_path,
        ('aggregate = "distinct"', mean),
        ('column = "place"', 'column = "place"\nvalue = "value"'),
        inside=True,
    )
    rows = re.findall(r"<tr><td>([^<]+)<td>([\d.]+)<td>[\d.]+<td>[\d.]+%", text)
    assert rows == [
        ("north", "30.0"),
        ("south", "60.0"),
        ("count of north", "2.0"),
        ("count of south", "1.0"),
        ("all 2 columns", "45.0"),
    ]


def test_the_card_is_what_the_configuration_says(tmp_path: Path) -> None:
    """As JSON in a file, and nothing else is replaced by it."""
    config = settings(tmp_path, ("[sink]", ABOUT + "\n[sink]"))
    file = tmp_path / "card.json"
    assert main(["release", str(tmp_path / "tidegate.toml"), "--card", str(file)]) == 0
    found = json.loads(file.read_text())
    assert found == card(config)
    privacy = found["privacy"]
    assert (privacy["epsilon"], privacy["delta"], privacy["window_steps"]) == ("1", "0", 4)
    assert (privacy["unit"], privacy["parameters_chosen"]) == ("walrus", "not stated")
    file.write_text("mine")
    assert main(["release", str(tmp_path / "tidegate.toml"), "--card", str(file)]) == 2
    assert file.read_text() == "mine"


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_a_moved_suspicion_has_moved_odds(epsilon: float) -> None:
    """Odds are multiplied by e^ε, up and down."""
    for before in (0.01, 0.5, 0.9):
        after = moved(before, epsilon)
        assert after / (1 - after) == pytest.approx(math.exp(epsilon) * before / (1 - before))
        assert moved(after, -epsilon) == pytest.approx(before)


def test_pieces_of_pictures() -> None:
    """Averages leave out what is missing, and a heat map is a picture that others can read."""
    values = np.array([1.0, np.nan, 3.0, np.nan, np.nan])
    bins = bins_of(5, 3)
    np.testing.assert_array_equal(averages(values, bins), [1.0, 3.0, np.nan])
    from io import BytesIO

    from matplotlib.image import imread

    indices = np.array([[0, 1], [1, 0]], dtype=np.uint8)
    found = imread(BytesIO(png(indices, [(0, 0, 0), (255, 255, 255)])))
    np.testing.assert_array_equal(found[..., 0] > 0.5, indices == 1)


@pytest.mark.parametrize("most", [0.004, 0.7, 3.0, 99.0, 5e3, 9.9e4, 1.4e5, 7e5, 1.6e6, 3.5e8, 2e9, 7e11])
def test_numbers_at_the_left_have_room(most: float) -> None:
    """No label is longer than seven characters, and each says the number at which it stands."""
    found = re.findall(r'y="([\d.]+)" text-anchor="end">(-?[\d,.]+)( [kMG])?<', _grid(-most / 9, most, SMALL))
    assert len(found) > 1
    for y, shown, size in found:
        assert len(shown + size) <= 7
        value = float(shown.replace(",", "")) * {"": 1, " k": 1e3, " M": 1e6, " G": 1e9}[size]
        at = most - (float(y) - 10) / 106 * most * 10 / 9
        assert value == pytest.approx(at, abs=0.002 * most)


def test_unlikely_shapes_have_reports(tmp_path: Path) -> None:
    """One step, one column, steps of ten seconds, a user's budget: the page is written, and holds no nan."""
    text = text_of(tmp_path, ("count = 12", "count = 1"), ('["north", "south"]', '["north"]'))
    assert "nan" not in re.sub(r"base64,[^\"]*", "", text).lower()
    (tmp_path / "user").mkdir()
    changes = (("window = 4", 'policy = "user"'), ('length = "1h"', 'length = "10s"'))
    text = text_of(tmp_path / "user", *changes)
    assert "over the whole stream" in text


def test_calendar_days_are_days(tmp_path: Path) -> None:
    """A day of the calendar may have 23 hours or 25."""
    config = settings(tmp_path, ('length = "1h"', 'length = "calendar day"'), ("window = 4", "window = 1"))
    assert Words(config).span(1) == "1 day"
    assert Words(config).span(7) == "7 days"


def test_the_largest_columns_come_first() -> None:
    """As the sentence above them says."""
    totals = np.arange(30.0)[np.newaxis, :]
    assert _chosen(totals) == (list(range(29, 9, -1)), 10)


def test_one_number_does_not_speak_for_uneven_columns(tmp_path: Path) -> None:
    """On the terminal as in the report: from the narrowest column to the widest."""
    found = Accuracy(0.68, 0.3, 5.0, (), 0.68, 27.0)
    said = Words(settings(tmp_path)).accuracy(found)
    assert (
        said == "± 0.68 units around a typical value, from ± 0.68 to ± 27 by column, where a typical one is 5"
    )


def test_the_headline_says_so_where_few_values_have_an_interval() -> None:
    """What was measured is not what most values are."""
    found = Accuracy(2.0, 0.9, 5.0, (), 2.0, 2.0, known=0.06)
    assert Words.spread(found) == (
        "what was measured; 94% of the values were not measured, and nobody knows how far off they are"
    )


def test_a_part_with_a_value_of_unknown_error_has_no_range() -> None:
    """The mean of seven values is not in the range of one of them."""
    low, high = np.array([0, np.nan, 2, 2]), np.array([2, np.nan, 4, 4])
    found = ends(Series("a", np.array([1.0, 3, 3, 3]), low, high, None), np.array([0, 2]))
    assert np.isnan([found[0][0], found[1][0]]).all()
    assert (found[0][1], found[1][1]) == (2, 4)
