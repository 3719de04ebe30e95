"""Several queries at work on one ledger, and streams that are amended."""

from __future__ import annotations

import csv
import json
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.runtime.helpers import verified
from tidegate.runtime.amend import Amended, amend, told_of
from tidegate.runtime.kept import Kept
from tidegate.runtime.store import open_durable

from tidegate.cli import main
from tidegate.config import ConfigError, Queries, parse_queries, read_queries
from tidegate.config.document import SEVERAL
from tidegate.errors import LedgerMismatch, TidegateError
from tidegate.ingest.keeping import packed, unpacked
from tidegate.ingest.schema import TextUnits
from tidegate.ingest.several import read_rows, step_vectors
from tidegate.ingest.times import TimeReader
from tidegate.ledger.replay import verify_file
from tidegate.pipeline import open_pipeline
from tidegate.runtime.errors import LogMismatch

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


def amended(folder: Path, *changes: tuple[str, str]) -> Amended:
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
    verdict = verified(tmp_path / "tidegate.ledger")
    assert verdict.ok
    assert (verdict.steps, verdict.spent, verdict.releases) == (STEPS, 1, 3 * STEPS)
    assert max(window_sums(tmp_path / "tidegate.ledger", 8)) == 1


def test_all_charges_of_a_step_are_committed_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the last query fails, nothing of the others is charged, kept or sent."""
    file = shop(tmp_path, 10)
    with open_pipeline(read_queries(file)) as streams:
        intake = streams.queries.open(streams.position)
        last = streams.streams[-1]

        def fail(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(last, "put", fail)
        with pytest.raises(ZeroDivisionError):
            streams.drive(intake)
        intake.close()
        assert streams.ledger.step == 0
    assert not list(tmp_path.glob("released*"))
    assert not list(tmp_path.glob("*.ledger"))


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
    assert (done["steps"], done["releases"], done["fullest_window"]) == (20, 60, "1")
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "One account" in report
    assert "customers has 0.25 of the budget" in report
    assert [f'id="released-{name}"' in report for name in ("orders", "customers", "revenue")] == [True] * 3
    card = json.loads((tmp_path / "card.json").read_text(encoding="utf-8"))
    assert card["privacy"]["epsilon"] == "1"
    assert card["queries"]["revenue"]["privacy"]["share_of_the_budget"] == "0.5"
    assert main(["ledger", "verify", str(tmp_path / "tidegate.ledger"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["releases"] == 60
    edited(tmp_path, ("count = 20", "count = 30"), ('clip = ["0", "200"]', 'clip = ["0", "100"]'))
    assert main(["amend", str(file), "--json"]) == 0
    changes = {each["name"]: each for each in json.loads(capsys.readouterr().out)["changes"]}
    assert {name: each["change"] for name, each in changes.items()} == {
        "orders": "goes on",
        "customers": "goes on",
        "revenue": "begins anew",
    }
    assert main(["release", str(file), "--report", places[0]]) == 0
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Amended from step 21 on" in report
    assert "straddle" in report


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
    assert "Amended from step 21 on" in said
    assert ("What was released before was promised something else." in said) == other
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "</span>silent<td>" in report
    assert "were missing" not in report


def test_a_changed_file_is_refused_without_an_amendment(tmp_path: Path) -> None:
    """The sentence says what differs, and which command takes it up; nothing is charged."""
    released(shop(tmp_path, 20))
    before = verify_file(tmp_path / "tidegate.ledger").head
    edited(tmp_path, ('share = "1/2"', 'share = "1/4"'))
    with pytest.raises(LogMismatch, match="tidegate amend"):
        released(tmp_path / "tidegate.toml")
    assert verify_file(tmp_path / "tidegate.ledger").head == before


def test_what_stays_goes_on_and_what_changes_begins_anew(tmp_path: Path) -> None:
    """Another mechanism for one query: the others keep their runs, files and every release; all windows hold ε."""
    released(shop(tmp_path, 20))
    before = (tmp_path / "released-orders.csv").read_bytes()
    change = 'aggregate = "distinct"\nmechanism = "Sample"'
    done = amended(tmp_path, ('aggregate = "distinct"', change), ("count = 20", "count = 40"))
    assert done.step == 21
    released(tmp_path / "tidegate.toml")
    assert (tmp_path / "released-orders.csv").read_bytes().startswith(before)
    assert len(rows(tmp_path / "released-orders.csv")) == 40
    assert len(rows(tmp_path / "released-customers.csv")) == 20
    later = rows(tmp_path / "released-customers.from-21.csv")
    assert [int(row["step"]) for row in later] == list(range(21, 41))
    verdict = verified(tmp_path / "tidegate.ledger")
    assert verdict.ok
    assert verdict.releases == 40 + 20 + 20 + 40
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
    silent = [int(row["step"]) for row in later if row["status"] == "silent"]
    assert max(silent, default=0) < 28
    assert verified(tmp_path / "tidegate.ledger").ok


def test_queries_come_and_go(tmp_path: Path) -> None:
    """One is dropped, one is added with what it leaves, columns are added to a third; twice amended on the way."""
    released(shop(tmp_path, 20))
    text = (tmp_path / "tidegate.toml").read_text(encoding="utf-8")
    begin, end = text.index('[[query]]\nname = "customers"'), text.index('[[query]]\nname = "revenue"')
    new = text[begin:end].replace('"customers"', '"big"').replace('"distinct"', '"count"')
    (tmp_path / "tidegate.toml").write_text(text[:begin] + new + text[end:], encoding="utf-8")
    done = amended(tmp_path, ("count = 20", "count = 40"))
    changes = {change.name: change.change for change in done.changes}
    assert changes == {"orders": "goes on", "big": "begins", "revenue": "goes on", "customers": "ends"}
    released(tmp_path / "tidegate.toml")
    edges = 'aggregate = "histogram"\nedges = ["0", "50", "100"]'
    amended(tmp_path, ('aggregate = "count"\nmost = 2', edges), ("count = 40", "count = 60"))
    released(tmp_path / "tidegate.toml")
    assert len(rows(tmp_path / "released-orders.from-41.csv")) == 20
    assert len(rows(tmp_path / "released-big.from-21.csv")) == 40
    assert max(window_sums(tmp_path / "tidegate.ledger", 8)) <= 1
    verdict = verified(tmp_path / "tidegate.ledger")
    assert verdict.ok
    assert verdict.steps == 60
    with open_durable(tmp_path / "tidegate.ledger", read_only=True) as ledger:
        told = "\n".join(told_of(ledger))
    assert "Amended from step 21 on" in told
    assert "Amended from step 41 on" in told
    assert "customers was released by Uniform with ε = 0.25, steps 1 to 20" in told


@pytest.mark.parametrize("mechanism", ["BudgetAbsorption", "BudgetDistribution", "PeGaSus", "Tide", "Sample"])
def test_any_mechanism_follows_another(tmp_path: Path, mechanism: str) -> None:
    """Begun on a window full of charges, it is silent or releases what it may, and no window is overspent."""
    released(shop(tmp_path, 20))
    amended(tmp_path, ('name = "Uniform"', f'name = "{mechanism}"'), ("count = 20", "count = 45"))
    released(tmp_path / "tidegate.toml")
    for name in ("orders", "customers", "revenue"):
        found = rows(tmp_path / f"released-{name}.from-21.csv")
        assert [int(row["step"]) for row in found][:25] == list(range(21, 46))
        assert any(row["status"] == "fresh" for row in found)
        assert all(row["status"] == "silent" or abs(float(row["all"])) < 1e6 for row in found)
    assert max(window_sums(tmp_path / "tidegate.ledger", 8)) <= 1
    assert verified(tmp_path / "tidegate.ledger").ok


@pytest.mark.parametrize(
    "mechanism", ["BudgetAbsorption", "BudgetDistribution", "PeGaSus", "Tide", "Uniform"]
)
def test_a_query_is_added_where_there_is_room(tmp_path: Path, mechanism: str) -> None:
    """Nobody has charged its share: it begins within a window, also where it decides on raw data, and goes on."""
    shop(tmp_path, 20)
    text = (
        '[source]\nlocation = "receipts.csv"\ntime = "time"\nunit = "customer"\n'
        '[steps]\nstart = "2026-03-02"\nlength = "1h"\ncount = 20\n'
        '[protect]\nepsilon = "1"\nwindow = 8\nledger = "tidegate.ledger"\n[sink]\nlocation = "released.csv"\n'
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
    assert max(window_sums(tmp_path / "tidegate.ledger", 8)) <= 1
    assert verified(tmp_path / "tidegate.ledger").ok


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("window = 8", "window = 9"), "window"),
        (('length = "1h"', 'length = "30min"'), "length"),
        (('start = "2026-03-02T00:00"', 'start = "2026-03-01T00:00"'), "start"),
        (("window = 8", 'window = 8\nadjacency = "replace"'), "adjacency"),
        (("window = 8", 'policy = "event"'), "policy"),
    ],
)
def test_what_cannot_be_amended_is_refused_with_its_line(
    tmp_path: Path, change: tuple[str, str], key: str
) -> None:
    """Windows are counted by the same clock and for the same units for ever; nothing is charged."""
    released(shop(tmp_path, 20))
    before = verify_file(tmp_path / "tidegate.ledger").head
    with pytest.raises(ConfigError, match=f"{key} cannot be amended") as refusal:
        amended(tmp_path, change)
    lines = (tmp_path / "tidegate.toml").read_text(encoding="utf-8").splitlines()
    assert refusal.value.line is not None
    assert lines[refusal.value.line - 1].startswith(key)
    assert verify_file(tmp_path / "tidegate.ledger").head == before


def test_nothing_to_amend_is_refused(tmp_path: Path) -> None:
    """The same file, a stream that has not begun, and a ledger that is not there."""
    file = shop(tmp_path, 20)
    assert main(["amend", str(file)]) == 2
    assert not list(tmp_path.glob("*.ledger"))
    released(file)
    with pytest.raises(ConfigError, match="already"):
        amend(read_queries(file))


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


def test_a_stream_of_version_0_1_is_upgraded_and_amended(tmp_path: Path) -> None:
    """One query becomes two on the account that 0.1.0 has begun; old charges stay, and both verify."""
    folder = Path(shutil.copytree(OLD, tmp_path / "old"))
    before = verify_file(folder / "tidegate.ledger")
    text = (folder / "tidegate.toml").read_text(encoding="utf-8")
    begin = text.index("[query]")
    end = text.index("[", begin + 2)
    while text[end - 1] != "\n":
        end = text.index("[", end + 1)
    query = text[begin:end].replace("[query]", "[[query]]")
    both = query + 'name = "first"\nshare = "1/2"\n' + query + 'name = "second"\nshare = "1/2"\n'
    (folder / "tidegate.toml").write_text(text[:begin] + both + text[end:], encoding="utf-8")
    done = amend(read_queries(folder / "tidegate.toml", follow=True))
    assert done.step == 7
    assert {change.change for change in done.changes} == {"begins anew"}
    queries = released(folder / "tidegate.toml")
    assert len(queries.parts) == 2
    verdict = verified(folder / "tidegate.ledger")
    assert verdict.ok
    assert verdict.rows > before.rows
    assert verdict.steps == 10
    with open_durable(folder / "tidegate.ledger", read_only=True) as ledger:
        assert "the one query that the stream was begun with" in "\n".join(told_of(ledger))


def test_a_ledger_of_python_is_amended_in_python(tmp_path: Path) -> None:
    """The command says where."""
    import tidegate as tg
    from tidegate.mechanisms import Uniform

    with tg.open(Uniform(tg.WEvent(epsilon="1", w=8)), tmp_path / "tidegate.ledger") as run:
        run.push(3)
    file = shop(tmp_path)
    with pytest.raises(LedgerMismatch, match="Python"):
        amend(read_queries(file))


def test_amendments_are_proved_by_the_chain(tmp_path: Path) -> None:
    """An amendment that the ledger's chain does not have is noticed."""
    import sqlite3

    released(shop(tmp_path, 20))
    amended(tmp_path, ('share = "1/2"', 'share = "1/4"'), ("count = 20", "count = 30"))
    released(tmp_path / "tidegate.toml")
    assert verified(tmp_path / "tidegate.ledger").ok
    with sqlite3.connect(tmp_path / "tidegate.ledger") as connection:
        connection.execute("UPDATE amendments SET fingerprint = 'another' WHERE number = 2")
    connection.close()
    verdict = verified(tmp_path / "tidegate.ledger")
    assert "amendment 2" in verdict.problem


@pytest.fixture(scope="module")
def amended_shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shop whose shares were changed, with a query that revises; to be copied."""
    folder = tmp_path_factory.mktemp("shop")
    released(shop(folder, 12))
    amended(folder, ('share = "1/2"', 'share = "1/4"'), ("count = 12", "count = 20"))
    released(folder / "tidegate.toml")
    return folder


@pytest.mark.parametrize(
    "damage",
    [
        "SELECT 1",
        "DELETE FROM amendments",
        "DELETE FROM amendments WHERE number = 1",
        "DELETE FROM amendments WHERE number = 2",
        "UPDATE amendments SET step = step + 1 WHERE number = 2",
        "UPDATE amendments SET number = 3 WHERE number = 2",
        "UPDATE amendments SET described = replace(described, '1/4', '1/3') WHERE number = 2",
        "DELETE FROM parts",
        "DELETE FROM parts WHERE part = 1",
        "DELETE FROM parts WHERE part = (SELECT max(part) FROM parts)",
        "UPDATE parts SET since = 3 WHERE part = (SELECT max(part) FROM parts)",
        "UPDATE parts SET until = NULL",
        "UPDATE parts SET query = 'other' WHERE part = 1",
        "UPDATE parts SET described = '[]' WHERE part = 1",
        "UPDATE parts SET described = replace(described, 'count', 'cound')",
        "UPDATE stream_1 SET described = replace(described, 'count', 'cound')",
        "INSERT INTO revisions_1 VALUES (1, 2, 1)",
    ],
)
def test_damage_of_parts_and_amendments_is_noticed(tmp_path: Path, amended_shop: Path, damage: str) -> None:
    """By `verify`; a release ends in a sentence that says what to do, or goes on with what is sound."""
    import sqlite3

    folder = tmp_path / "shop"
    shutil.copytree(amended_shop, folder)
    ledger = folder / "tidegate.ledger"
    with sqlite3.connect(ledger) as connection:
        connection.execute(damage)
    connection.close()
    verdict = verified(ledger)
    assert verdict.ok == (damage == "SELECT 1")
    assert verdict.ok or verdict.problem.endswith("restore the ledger from a backup.")
    said = ""
    try:
        released(folder / "tidegate.toml")
    except TidegateError as error:
        said = str(error)
    assert not said or ("backup" in said and not verdict.ok)
    with pytest.raises(TidegateError, match=r"backup|nothing is to be amended"):
        amend(read_queries(folder / "tidegate.toml"))


def test_a_smaller_budget_is_said_of_later_steps_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the summary, the report, the card and by `ledger verify`; the steps before were promised another one."""
    file = shop(tmp_path, 20)
    released(file)
    amended(tmp_path, ('epsilon = "1"', 'epsilon = "1/4"'), ("count = 20", "count = 40"))
    card, report = tmp_path / "card.json", tmp_path / "report.html"
    assert main(["release", str(file), "--json", "--card", str(card), "--report", str(report)]) == 0
    facts = json.loads(capsys.readouterr().out)
    words = "no window of 8 steps spent more than 1 in steps 1 to 20 or 0.25 from step 21 on"
    assert words in facts["ledger"]
    assert facts["fullest_window"] == "1"
    assert main(["ledger", "verify", str(tmp_path / "tidegate.ledger")]) == 0
    assert words in capsys.readouterr().out
    assert words in (tmp_path / "report.html").read_text(encoding="utf-8")
    history = json.loads((tmp_path / "card.json").read_text(encoding="utf-8"))["privacy"]["history"]
    assert any(sentence.startswith("Amended from step 21 on: ε = 0.25") for sentence in history)
    assert any("with ε = 0.25, steps 1 to 20" in sentence for sentence in history)  # a quarter of 1


def test_a_followed_stream_with_several_queries(tmp_path: Path) -> None:
    """Steps close by the clock for all queries at once, and a second start goes on."""
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


@pytest.mark.parametrize("listed", [True, False])
def test_records_of_an_open_step_stay_with_the_queries_that_count_them(tmp_path: Path, listed: bool) -> None:
    """What a broker cannot hand out again is kept by those that count the same; others begin with what arrives."""
    file = shop(tmp_path, 20)
    if not listed:  # the stream begins with one query, the orders
        text = file.read_text(encoding="utf-8")
        begin, end = text.index('[[query]]\nname = "customers"'), text.index("[protect]")
        one = text[:begin].replace('[[query]]\nname = "orders"', "[query]").replace('share = "1/4"\n', "")
        file.write_text(one + text[end:], encoding="utf-8")
    queries = released(file)
    frame = pl.DataFrame(
        {
            "time": ["2026-03-02T20:10:00"] * 3,
            "customer": ["a", "a", "b"],
            "amount": ["5", "7", "90"],
        }
    )
    intake = queries.open()
    kept = read_rows(intake.query, frame, intake.schema, TimeReader("auto", "UTC"), TextUnits())
    intake.close()
    with open_durable(tmp_path / "tidegate.ledger") as ledger:
        Kept(ledger).keep(list(packed(kept, np.full(len(kept), 21))), None)
    if listed:
        amended(tmp_path, ('share = "1/4"', 'share = "1/8"'), ('clip = ["0", "200"]', 'clip = ["0", "100"]'))
    else:
        shop(tmp_path, 20)
        amend(read_queries(file, follow=True))
    with open_durable(tmp_path / "tidegate.ledger", read_only=True) as ledger:
        entries = [(step, unpacked(content)) for step, content in Kept(ledger).entries()]
    assert {step for step, _ in entries} == {21}
    rows_now = pl.concat([rows for _, rows in entries])
    intake = read_queries(file).open()
    vectors, _ = step_vectors(intake.query, rows_now, np.full(len(rows_now), 21), 21, 1)
    intake.close()
    # customers, orders, revenue: what is new counts nothing of them
    assert vectors.tolist() == ([[2, 3, 0]] if listed else [[0, 3, 0]])


def test_records_of_an_open_step_are_kept_once_however_often_a_stream_is_amended(tmp_path: Path) -> None:
    """Where two queries count the same, each goes on with the rows of one of them: a record never counts twice."""
    file = shop(tmp_path, 20)
    edited(tmp_path, ('share = "1/4"', 'share = "1/8"'))
    twin = '[[query]]\nname = "again"\naggregate = "count"\nmost = 2\nshare = "1/8"\n\n[protect]'
    queries = released(edited(tmp_path, ("[protect]", twin)))
    frame = pl.DataFrame(
        {"time": ["2026-03-02T20:10:00"] * 3, "customer": ["a", "b", "c"], "amount": ["5", "7", "9"]}
    )
    intake = queries.open()
    kept = read_rows(intake.query, frame, intake.schema, TimeReader("auto", "UTC"), TextUnits())
    intake.close()
    with open_durable(tmp_path / "tidegate.ledger") as ledger:
        Kept(ledger).keep(list(packed(kept, np.full(len(kept), 21))), None)
    for before, after in (("200", "100"), ("100", "50"), ("50", "25")):
        amended(tmp_path, (f'clip = ["0", "{before}"]', f'clip = ["0", "{after}"]'))
        with open_durable(tmp_path / "tidegate.ledger", read_only=True) as ledger:
            rows_now = pl.concat([unpacked(content) for _, content in Kept(ledger).entries()])
        # again, customers and orders of three customers; the revenue of another clip begins with what arrives
        assert len(rows_now) == 9
    intake = read_queries(file).open()
    vectors, _ = step_vectors(intake.query, rows_now, np.full(len(rows_now), 21), 21, 1)
    intake.close()
    assert vectors.tolist() == [[3, 3, 3, 0]]
