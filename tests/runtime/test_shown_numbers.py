"""What people see of all queries of a stream: one report, one table, nothing that contradicts, nothing that is hidden."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from tests.runtime.shop import edited, rows, shop

from tidegate.cli import main

NAMES = ("orders", "customers", "revenue")
NOISY = ('epsilon = "1"', 'epsilon = "1/2"')
WEEK = """
[[answer]]
name = "shift"
kind = "window"
query = "orders"
window = 8

[[answer]]
name = "rush"
kind = "alarm"
query = "orders"
threshold = "30"
"""


def shown(folder: Path, *more: str, options: tuple[str, ...] = ()) -> tuple[str, list[dict[str, str]]]:
    """The report and the table of the shop, with more lines in its configuration."""
    file = shop(folder)
    edited(folder, NOISY)
    file.write_text(file.read_text(encoding="utf-8") + "".join(more), encoding="utf-8")
    places = [str(folder / name) for name in ("report.html", "table.csv")]
    assert main(["release", str(file), "--report", places[0], "--table", places[1], *options]) == 0
    with Path(places[1]).open(encoding="utf-8", newline="") as lines:
        return Path(places[0]).read_text(encoding="utf-8"), list(csv.DictReader(lines))


def numbers(table: list[dict[str, str]], query: str, field: str) -> np.ndarray:
    """A column of the table, of one query."""
    return np.array([float(row[field]) for row in table if row["query"] == query])


def section(report: str, name: str) -> str:
    """The part of the report about one query."""
    found = re.search(rf'<section class=released id="released-{name}">.*?</section>', report, re.DOTALL)
    assert found
    return found[0]


def test_numbers_do_not_contradict_each_other(tmp_path: Path) -> None:
    """Never more customers than orders, nothing below 0; files keep what was released, and the report says how many."""
    report, table = shown(tmp_path)
    assert (numbers(table, "customers", "value") > numbers(table, "orders", "value")).any()
    assert (numbers(table, "customers", "adjusted") <= numbers(table, "orders", "adjusted")).all()
    for name in NAMES:
        assert (numbers(table, name, "adjusted") >= 0).all()
        kept = np.array([float(row["all"]) for row in rows(tmp_path / f"released-{name}.csv")])
        np.testing.assert_array_equal(numbers(table, name, "value"), kept)
        changed = int((numbers(table, name, "value") != numbers(table, name, "adjusted")).sum())
        said = re.findall(r"Adjusted\.</strong> ([\d,]+) of ([\d,]+) numbers", section(report, name))
        assert said == ([(str(changed), str(len(kept)))] if changed else [])
    assert "customers is at most orders" in section(report, "orders")
    assert "customers is at most orders" not in section(report, "revenue")


def test_the_report_begins_with_the_numbers(tmp_path: Path) -> None:
    """One wide picture for each statistic, its heading with the error; then the promise, then the cost."""
    report, _ = shown(tmp_path, WEEK)
    headings = re.findall(r"<h2>([^<]*)(?:<span class=off><strong>(±[^<]*)</strong>)?", report)
    assert [words.strip() for words, _ in headings[:3]] == [
        "orders: records per hour",
        "customers: customers per hour",
        "revenue: sum of amount per hour",
    ]
    assert all(off for _, off in headings[:3])
    later = [words for words, _ in headings[3:]]
    assert later[:3] == ["What is promised", "How the budget is shared, and amendments", "What it cost"]
    for name in NAMES:
        assert section(report, name).count('viewBox="0 0 860 240"') == 1
    year = f"{24 * 365 // 8 / 2:g}"
    assert (
        f"any customer, any 8 hours, with ε = 0.5; one that is there all year: ε = {year} at most." in report
    )


def test_answers_are_in_the_report_and_among_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last window, and how many alarms there were, as the files of the answers have them."""
    report, _ = shown(tmp_path, WEEK)
    assert "shift.csv" in capsys.readouterr().out
    part = section(report, "orders")
    last = rows(tmp_path / "shift.csv")[-1]
    (value,) = re.findall(r"<h3>shift</h3>.*?<td>all<td>([\d,.-]+)<td>", part, re.DOTALL)
    assert float(value.replace(",", "")) == pytest.approx(float(last["value"]), rel=0.06, abs=1)
    alarms = [row for row in rows(tmp_path / "rush.csv") if row["alarm"] == "true"]
    found = re.findall(r"<h3>rush</h3><p>(?:No alarm in|([\d,]+) alarms in) ([\d,]+) steps", part)
    assert found == [(str(len(alarms)) if alarms else "", "60")]


def test_withheld_numbers_are_counted_and_nothing_else_changes(tmp_path: Path) -> None:
    """By half width and released number; in table and report, with the coverage of what is shown where truth is known."""
    rule = '\n[publish]\nwithhold = "relative error > 50%"\nfloor = "4"\n'
    report, table = shown(tmp_path, rule, options=("--compare-truth",))
    for name in NAMES:
        values, high = numbers(table, name, "value"), numbers(table, name, "high")
        halves = high - values  # the lower end is cut at 0
        relative = halves / np.maximum(np.abs(values), 4)
        held_back = np.array([row["shown"] == "withheld" for row in table if row["query"] == name])
        sure = np.abs(relative - 0.5) > 0.05  # the table is rounded
        np.testing.assert_array_equal(held_back[sure], relative[sure] > 0.5)
        part = section(report, name)
        assert re.findall(r"Withheld\.</strong> ([\d,]+) of ([\d,]+) numbers", part) == [
            (str(int(held_back.sum())), "60")
        ]
        among = re.findall(
            r"Intervals hold ([\d.]+)% of .*? among shown numbers, and ([\d.]+)% among all", part
        )
        assert len(among) == (not held_back.all())
    other = tmp_path / "other"
    other.mkdir()
    assert main(["check", str(tmp_path / "tidegate.toml")]) == 0
    text = (tmp_path / "tidegate.toml").read_text(encoding="utf-8")
    (tmp_path / "tidegate.toml").write_text(text.replace(rule, ""), encoding="utf-8")
    assert (
        main(["release", str(tmp_path / "tidegate.toml")]) == 0
    )  # the same stream: it is no part of what was promised


@pytest.mark.parametrize("rule", ["error > 50%", "relative error > 0%", "relative error > half", "50%"])
def test_a_rule_that_is_none_is_refused(
    rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what would be one."""
    file = shop(tmp_path)
    file.write_text(
        file.read_text(encoding="utf-8") + f'\n[publish]\nwithhold = "{rule}"\n', encoding="utf-8"
    )
    assert main(["check", str(file)]) == 2
    assert "withhold" in capsys.readouterr().out


def test_no_command_of_the_walk_says_more_than_twelve_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless somebody asks."""
    file = shop(tmp_path)
    report = str(tmp_path / "report.html")
    for words in (
        ["check", str(file)],
        ["plan", str(file)],
        ["preview", str(file), "--report", str(tmp_path / "preview.html")],
        ["release", str(file), "--report", report, "--card", str(tmp_path / "card.json")],
        ["release", str(file)],
        ["ledger", "verify", str(tmp_path / "tidegate.ledger")],
    ):
        capsys.readouterr()
        assert main(words) == 0
        said = capsys.readouterr()
        assert len((said.out + said.err).splitlines()) <= 12, (words, said)
    assert main(["release", str(file), "--verbose"]) == 0
    assert "All queries together are 1-differentially private" in " ".join(capsys.readouterr().out.split())


def test_many_statistics_take_no_more_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What clipping and bounding do is still said, of all of them."""
    file = shop(tmp_path)
    text = file.read_text(encoding="utf-8")
    more = "".join(
        f'[[query]]\nname = "more{number}"\naggregate = "count"\nmost = {number}\n\n' for number in (1, 2, 3)
    )
    text = re.sub(r"share = .*\n", "", text).replace("[protect]", f"{more}[protect]", 1)
    file.write_text(text, encoding="utf-8")
    assert main(["release", str(file), "--report", str(tmp_path / "report.html")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) <= 12
    assert any("and 3 more statistics" in line for line in said)
    (bounded,) = [line for line in said if line.startswith("Bounded")]
    assert "more3: at most 3 records" in bounded
    assert bounded.count("Where that leaves something out") == 1


def test_a_file_that_is_no_table_is_not_replaced(tmp_path: Path) -> None:
    """And nothing is charged."""
    file = shop(tmp_path)
    (tmp_path / "table.csv").write_text("mine\n", encoding="utf-8")
    assert main(["release", str(file), "--table", str(tmp_path / "table.csv")]) == 2
    assert not (tmp_path / "tidegate.ledger").exists()
