"""Several queries at work on one ledger, and streams that are amended."""

from __future__ import annotations

import csv
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.runtime.helpers import verified

from tidegate.cli import main
from tidegate.config import Queries, parse_queries, read_queries
from tidegate.config.document import SEVERAL
from tidegate.core.errors import LogMismatch
from tidegate.ingest.checkpoint import packed
from tidegate.ingest.combined_query import read_rows
from tidegate.ingest.schema import TextUnits
from tidegate.ingest.times import TimeReader
from tidegate.pipeline import open_pipeline
from tidegate.pipeline.amend import Planned, amend

STEPS = 60
OLD = Path(__file__).parents[1] / "ledger" / "fixtures" / "0.1.0" / "stream"


def shop(folder: Path, steps: int = STEPS) -> Path:
    """A shop's receipts, and the file with three statistics of them."""
    rng = np.random.default_rng(2)
    lines = ["time,customer,amount"]
    for minute in np.sort(rng.integers(0, STEPS * 60, 2000)).tolist():
        hour, rest = divmod(minute, 60)
        day, hour = divmod(hour, 24)
        lines.append(
            f"2026-03-{2 + day:02d}T{hour:02d}:{rest:02d}:00,c{rng.integers(90)},{rng.integers(150)}"
        )
    (folder / "receipts.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return edited(folder, ("count = 168", f"count = {steps}"), ("window = 24", "window = 8"), text=SEVERAL)


def edited(folder: Path, *changes: tuple[str, str], text: str | None = None) -> Path:
    """The file with other words in some places."""
    file = folder / "tidegate.toml"
    text = file.read_text(encoding="utf-8") if text is None else text
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after, 1)
    file.write_text(text, encoding="utf-8")
    return file


def released(file: Path) -> Queries:
    """Release everything that there is."""
    queries = read_queries(file)
    with open_pipeline(queries) as streams:
        intake = streams.queries.open(streams.position)
        streams.drive(intake)
        streams.finish()
        intake.close()
        found = streams.queries
    return found


def rows(file: Path) -> list[dict[str, str]]:
    """The rows of a released file."""
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def amended(folder: Path, *changes: tuple[str, str]) -> Planned:
    """Change the file, and amend the stream."""
    return amend(read_queries(edited(folder, *changes), follow=True))


def window_sums(target: Path, window: int) -> list[Fraction]:
    """What every window was charged, by brute force from the released files: their column of spent budget."""
    spent: dict[int, Fraction] = {}
    for file in sorted(target.parent.glob("released*.csv")):
        for row in rows(file):
            spent[int(row["step"])] = spent.get(int(row["step"]), Fraction(0)) + Fraction(row["spent"])
    last = max(spent)
    return [
        sum((spent.get(step, Fraction(0)) for step in range(end - window + 1, end + 1)), Fraction(0))
        for end in range(1, last + 1)
    ]


def test_three_statistics_of_a_shop_share_one_budget(tmp_path: Path) -> None:
    """Each has a file of its own; together no window spends more than ε, and they spend all of it."""
    released(shop(tmp_path))
    for name in ("orders", "customers", "revenue"):
        found = rows(tmp_path / f"released-{name}.csv")
        assert [int(row["step"]) for row in found] == list(range(1, STEPS + 1))
        assert all(row["status"] == "fresh" for row in found)
    found = verified(tmp_path / "tidegate.ledger")
    assert (found.ok, found.step) == (True, STEPS)
    assert max(window_sums(tmp_path / "tidegate.ledger", 8)) == 1


@pytest.mark.parametrize(
    "change",
    [('share = "1/2"', 'share = "3/4"'), ('"receipts.csv"', '"absent.csv"'), ('"Uniform"', '"Tied"')],
)
def test_a_refused_start_leaves_nothing_behind(tmp_path: Path, change: tuple[str, str]) -> None:
    """No file is written, and nothing is charged."""
    shop(tmp_path)
    edited(tmp_path, change)
    before = sorted(tmp_path.iterdir())
    assert main(["release", str(tmp_path / "tidegate.toml")]) == 2
    assert [path for path in sorted(tmp_path.iterdir()) if path.suffix != ".lock"] == before


def test_an_output_that_is_taken_refuses_all_queries(tmp_path: Path) -> None:
    """Also where it is the output of the last one."""
    file = shop(tmp_path)
    (tmp_path / "released-revenue.csv").write_text("mine\n", encoding="utf-8")
    before = sorted(tmp_path.iterdir())
    assert main(["release", str(file)]) == 2
    assert [path for path in sorted(tmp_path.iterdir()) if path.suffix != ".lock"] == before


def test_the_commands_know_several_queries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """check, release with report and card, ledger show and verify, amend; as JSON where there is one."""
    file = shop(tmp_path, 20)
    assert main(["check", str(file), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["checks"]) == 6
    places = [str(tmp_path / name) for name in ("report.html", "card.json")]
    assert main(["release", str(file), "--json", "--report", places[0], "--card", places[1]]) == 0
    done = json.loads(capsys.readouterr().out)
    assert [query["name"] for query in done["queries"]] == ["orders", "customers", "revenue"]
    assert (done["steps"], done["releases"]) == (20, 60)
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert [f'id="released-{name}"' in report for name in ("orders", "customers", "revenue")] == [True] * 3
    card = json.loads((tmp_path / "card.json").read_text(encoding="utf-8"))
    assert card["privacy"]["epsilon"] == "1"
    assert card["queries"]["revenue"]["privacy"]["share_of_the_budget"] == "0.5"
    assert main(["ledger", "verify", str(tmp_path / "tidegate.ledger"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checked"]["scopes"] == 3
    edited(tmp_path, ("count = 20", "count = 30"), ('clip = ["0", "200"]', 'clip = ["0", "100"]'))
    assert main(["amend", str(file), "--json"]) == 0
    changes = {each["name"]: each for each in json.loads(capsys.readouterr().out)["queries"]}
    assert {name: each["change"] for name, each in changes.items()} == {
        "orders": "continues",
        "customers": "continues",
        "revenue": "begins",
    }
    assert changes["revenue"]["silent_until"] == 27
    assert main(["release", str(file), "--report", places[0]]) == 0
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Amended: " in report


@pytest.mark.parametrize(
    ("before", "after", "other"), [('"200"', '"100"', False), ('epsilon = "1"', 'epsilon = "1/2"', True)]
)
def test_what_was_promised_before_an_amendment_is_said(
    before: str, after: str, other: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Something else only where it was; and steps that are silent because of it are no missing readings."""
    released(shop(tmp_path, 20))
    file = edited(tmp_path, ("count = 20", "count = 30"), (before, after))
    assert main(["amend", str(file)]) == 0
    capsys.readouterr()
    assert main(["release", str(file), "--report", str(tmp_path / "report.html")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Amended: " in said
    assert ("where it was ε = 1 before" in said) == other
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "</span>silent<td>" in report
    assert "were missing" not in report
    assert ("there were other bounds of what one contribution" in report) != other


def test_a_changed_file_is_refused_without_an_amendment(tmp_path: Path) -> None:
    """The sentence says what differs, and which command takes it up; nothing is charged."""
    released(shop(tmp_path, 20))
    before = verified(tmp_path / "tidegate.ledger").head
    edited(tmp_path, ('share = "1/2"', 'share = "1/4"'))
    with pytest.raises(LogMismatch, match="amend the stream"):
        released(tmp_path / "tidegate.toml")
    assert verified(tmp_path / "tidegate.ledger").head == before


def test_what_stays_goes_on_and_what_changes_begins_anew(tmp_path: Path) -> None:
    """Another mechanism for one query: the others keep their runs, files and every release; all windows hold ε."""
    released(shop(tmp_path, 20))
    before = (tmp_path / "released-orders.csv").read_bytes()
    change = 'aggregate = "distinct"\nmechanism = "Sample"'
    done = amended(tmp_path, ('aggregate = "distinct"', change), ("count = 20", "count = 40"))
    assert done.step == 20
    released(tmp_path / "tidegate.toml")
    assert (tmp_path / "released-orders.csv").read_bytes().startswith(before)
    assert len(rows(tmp_path / "released-orders.csv")) == 40
    assert len(rows(tmp_path / "released-customers.csv")) == 20
    begin = done.begun["customers"]
    assert begin == 28  # no window holds what the ended one has read
    later = rows(tmp_path / f"released-customers.from-{begin}.csv")
    assert [int(row["step"]) for row in later] == list(range(begin, 41))
    assert verified(tmp_path / "tidegate.ledger").ok
    assert max(window_sums(tmp_path / "tidegate.ledger", 8)) <= 1


@pytest.mark.parametrize(("epsilon", "smaller"), [("1/2", "1/2"), ("2", "1")])
def test_windows_that_straddle_hold_the_smaller_promise(tmp_path: Path, epsilon: str, smaller: str) -> None:
    """After a cut as after a raise: as far as anything is charged after the change, at most the smaller ε."""
    released(shop(tmp_path, 20))
    amended(tmp_path, ('epsilon = "1"', f'epsilon = "{epsilon}"'), ("count = 20", "count = 50"))
    released(tmp_path / "tidegate.toml")
    sums = window_sums(tmp_path / "tidegate.ledger", 8)
    later = [row for file in tmp_path.glob("released*from*.csv") for row in rows(file)]
    first = min(int(row["step"]) for row in later if Fraction(row["spent"]))
    straddling = [total for end, total in enumerate(sums, 1) if first <= end < 20 + 8]
    assert all(total <= Fraction(smaller) for total in straddling)
    assert max(sums[27:]) == Fraction(epsilon)
    assert verified(tmp_path / "tidegate.ledger").ok


def test_queries_come_and_go(tmp_path: Path) -> None:
    """One is dropped, one is added with what it leaves, columns are added to a third; twice amended on the way."""
    released(shop(tmp_path, 20))
    text = (tmp_path / "tidegate.toml").read_text(encoding="utf-8")
    begin, end = text.index('[[query]]\nname = "customers"'), text.index('[[query]]\nname = "revenue"')
    new = text[begin:end].replace('"customers"', '"big"').replace('"distinct"', '"count"')
    (tmp_path / "tidegate.toml").write_text(text[:begin] + new + text[end:], encoding="utf-8")
    done = amended(tmp_path, ("count = 20", "count = 40"))
    assert (set(done.unchanged), set(done.begun), done.ended) == (
        {"orders", "revenue"},
        {"big"},
        ("customers",),
    )
    released(tmp_path / "tidegate.toml")
    edges = 'aggregate = "histogram"\nedges = ["0", "50", "100"]'
    amended(tmp_path, ('aggregate = "count"\nmost = 2', edges), ("count = 40", "count = 60"))
    released(tmp_path / "tidegate.toml")
    assert len(rows(tmp_path / "released-orders.from-48.csv")) == 13
    assert len(rows(tmp_path / "released-big.from-28.csv")) == 33
    assert max(window_sums(tmp_path / "tidegate.ledger", 8)) <= 1
    found = verified(tmp_path / "tidegate.ledger")
    assert (found.ok, found.step, found.checked["amended"]) == (True, 60, 2)


@pytest.mark.parametrize("mechanism", ["BudgetAbsorption", "BudgetDistribution", "PeGaSus", "Tide", "Sample"])
def test_any_mechanism_follows_another(tmp_path: Path, mechanism: str) -> None:
    """Begun on a window full of charges, it is silent or releases what it may, and no window is overspent."""
    released(shop(tmp_path, 20))
    amended(tmp_path, ('name = "Uniform"', f'name = "{mechanism}"'), ("count = 20", "count = 45"))
    released(tmp_path / "tidegate.toml")
    for name in ("orders", "customers", "revenue"):
        found = rows(tmp_path / f"released-{name}.from-28.csv")
        assert [int(row["step"]) for row in found][:18] == list(range(28, 46))
        assert any(row["status"] == "fresh" for row in found)
        assert all(row["status"] == "silent" or abs(float(row["all"])) < 1e6 for row in found)
    assert max(window_sums(tmp_path / "tidegate.ledger", 8)) <= 1
    assert verified(tmp_path / "tidegate.ledger").ok


@pytest.mark.parametrize("mechanism", ["BudgetAbsorption", "BudgetDistribution", "PeGaSus", "Uniform"])
def test_a_query_is_added_where_there_is_room(tmp_path: Path, mechanism: str) -> None:
    """Nobody has charged its share: it begins within a window, also where it decides on raw data, and continues.

    ε is so large that the counts of customers, which differ from hour to hour, are published.
    """
    shop(tmp_path, 20)
    text = (
        '[source]\nlocation = "receipts.csv"\ntime = "time"\nunit = "customer"\n'
        '[steps]\nstart = "2026-03-02"\nlength = "1h"\ncount = 20\n'
        '[protect]\nepsilon = "1000"\nwindow = 8\nledger = "tidegate.ledger"\n[sink]\nlocation = "released.csv"\n'
        '[[query]]\nname = "orders"\naggregate = "count"\nmost = 2\nshare = "1/2"\nmechanism = "Uniform"\n'
    )
    released(edited(tmp_path, text=text))
    added = f'\n[[query]]\nname = "added"\naggregate = "distinct"\nshare = "1/8"\nmechanism = "{mechanism}"'
    amended(
        tmp_path, ('mechanism = "Uniform"', f'mechanism = "Uniform"{added}'), ("count = 20", "count = 30")
    )
    released(tmp_path / "tidegate.toml")
    released(edited(tmp_path, ("count = 30", "count = 45")))
    (file,) = tmp_path.glob("released-added*.csv")
    found = rows(file)
    assert [int(row["step"]) for row in found][:25] == list(range(21, 46))
    assert any(row["status"] == "fresh" for row in found[:8])
    assert max(window_sums(tmp_path / "tidegate.ledger", 8)) <= 1000
    assert verified(tmp_path / "tidegate.ledger").ok


@pytest.mark.parametrize(
    "change",
    [
        ("window = 8", "window = 9"),
        ('length = "1h"', 'length = "30min"'),
        ('start = "2026-03-02T00:00"', 'start = "2026-03-01T00:00"'),
        ("window = 8", 'window = 8\nadjacency = "replace"'),
        ("window = 8", 'policy = "event"'),
    ],
)
def test_what_cannot_be_amended_is_refused(tmp_path: Path, change: tuple[str, str]) -> None:
    """Windows are counted by the same clock and for the same units for ever; nothing is written."""
    released(shop(tmp_path, 20))
    before = verified(tmp_path / "tidegate.ledger").head
    with pytest.raises(LogMismatch):
        amended(tmp_path, change)
    assert verified(tmp_path / "tidegate.ledger").head == before


def test_nothing_to_amend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A stream that has not begun is refused; the same file changes nothing."""
    file = shop(tmp_path, 20)
    assert main(["amend", str(file)]) == 2
    assert not list(tmp_path.glob("*.ledger"))
    released(file)
    before = verified(tmp_path / "tidegate.ledger").head
    capsys.readouterr()
    assert main(["amend", str(file)]) == 0
    assert "Nothing to amend" in capsys.readouterr().out
    assert verified(tmp_path / "tidegate.ledger").head == before


def test_the_order_of_queries_in_the_file_is_free(tmp_path: Path) -> None:
    """Another order is the same stream."""
    released(shop(tmp_path, 20))
    text = (tmp_path / "tidegate.toml").read_text(encoding="utf-8")
    first, second = text.index("[[query]]"), text.index('[[query]]\nname = "customers"')
    third = text.index('[[query]]\nname = "revenue"')
    text = text[:first] + text[second:third] + text[first:second] + text[third:]
    (tmp_path / "tidegate.toml").write_text(text.replace("count = 20", "count = 30"), encoding="utf-8")
    released(tmp_path / "tidegate.toml")
    assert len(rows(tmp_path / "released-orders.csv")) == 30


def test_a_followed_stream_with_several_queries(tmp_path: Path) -> None:
    """Steps close by the clock for all queries at once, and a second start continues."""
    file = shop(tmp_path)
    text = file.read_text(encoding="utf-8").replace("count = 60\n", "")
    queries = parse_queries(text, file, follow=True)
    begin = 1772409600  # 2 March 2026, midnight

    def released_by(hours: float) -> int:
        with open_pipeline(queries, follow=True, clock=lambda: begin + 3600 * hours) as streams:
            intake = streams.queries.open(
                streams.position, follow=True, once=True, clock=lambda: begin + 3600 * hours
            )
            streams.drive(intake)
            streams.finish()
            intake.close()
            return streams.step

    assert released_by(10.5) == 10
    assert released_by(25.5) == 25
    found: list[Any] = [len(rows(tmp_path / f"released-{part.name}.csv")) for part in queries.parts]
    assert found == [25, 25, 25]
    assert verified(tmp_path / "tidegate.ledger").ok


def test_records_of_an_open_step_are_never_counted_by_another_query(tmp_path: Path) -> None:
    """What a broker has delivered is dropped where a query reads otherwise, and stays where only the budget changes."""
    queries = released(shop(tmp_path, 20))
    frame = pl.DataFrame({"time": ["2026-03-02T20:10:00"] * 2, "customer": ["a", "b"], "amount": ["5", "90"]})
    intake = queries.open()
    kept = read_rows(intake.query, frame, intake.schema, TimeReader("auto", "UTC"), TextUnits())
    intake.close()

    def entries() -> int:
        with open_pipeline(read_queries(tmp_path / "tidegate.toml")) as pipeline:
            return len(list(pipeline.side_tables.entries()))

    with open_pipeline(queries) as pipeline:
        pipeline.side_tables.keep(list(packed(kept, np.full(len(kept), 21))), None)
    count = entries()
    assert count > 0
    amended(tmp_path, ("count = 20", "count = 40"), ('epsilon = "1"', 'epsilon = "1/2"'))
    assert entries() == count
    amended(tmp_path, ('clip = ["0", "200"]', 'clip = ["0", "100"]'))
    assert entries() == 0
