"""Amendments: what continues, what is silent for how long, and what is refused."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tests.pipeline.streams import release, settings, shop

from tidegate.core.errors import LogMismatch
from tidegate.ingest import blocks as blocks_module
from tidegate.pipeline import open_pipeline
from tidegate.pipeline.amend import Planned, amend, plan
from tidegate.pipeline.backup import verify_log
from tidegate.pipeline.logs import open_log, rows_of
from tidegate.pipeline.side_tables import SideTables


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight blocks per stream."""
    monkeypatch.setattr(blocks_module, "BLOCK_STEPS", 5)


def steps_of(path: Path) -> list[int]:
    """The steps of a CSV file, in order."""
    return [int(line.split(",")[1]) for line in path.read_text().splitlines()[1:]]


def test_a_changed_query_begins_again_and_the_others_continue(tmp_path: Path) -> None:
    """It waits for a window, and has an output of its own; the plan says so and writes nothing."""
    release(settings(tmp_path, shop(tmp_path)), blocks=4)
    before = (tmp_path / "tidegate.ledger").read_bytes()
    other = settings(tmp_path, shop(tmp_path), ('clip = ["0", "20"]', 'clip = ["0", "10"]'))
    with pytest.raises(LogMismatch, match="amend"):
        open_pipeline(other)
    expected = Planned(("orders",), {"revenue": 26}, (), first={"orders": 1}, step=20, steps={"revenue": 20})
    assert plan(other) == expected
    assert (tmp_path / "tidegate.ledger").read_bytes() == before
    assert amend(other) == expected
    assert release(other).step == 40
    assert steps_of(tmp_path / "out-orders.csv") == list(range(1, 41))
    assert steps_of(tmp_path / "out-revenue.csv") == list(range(1, 21))
    assert steps_of(tmp_path / "out-revenue.from-26.csv") == list(range(26, 41))
    assert verify_log(rows_of(tmp_path / "tidegate.ledger")).ok
    (tmp_path / "out-revenue.from-26.csv").unlink()
    release(other)  # made again from the log
    assert steps_of(tmp_path / "out-revenue.from-26.csv") == list(range(26, 41))


def test_a_cut_of_the_budget_silences_all_queries(tmp_path: Path) -> None:
    """For a window."""
    release(settings(tmp_path, shop(tmp_path)), blocks=4)
    less = settings(tmp_path, shop(tmp_path), ('epsilon = "1"', 'epsilon = "1/2"'))
    assert plan(less).begun == {"orders": 26, "revenue": 26}
    amend(less)
    release(less)
    assert steps_of(tmp_path / "out-orders.from-26.csv") == list(range(26, 41))


def test_what_is_never_amended(tmp_path: Path) -> None:
    """The clock and the unit; and nothing while an output lacks releases."""
    release(settings(tmp_path, shop(tmp_path)), blocks=4)
    for before, after in (('length = "1h"', 'length = "2h"'), ('unit = "unit"', 'unit = "amount"')):
        with pytest.raises(LogMismatch, match="cannot be amended"):
            plan(settings(tmp_path, shop(tmp_path), (before, after)))
    queries = settings(tmp_path, shop(tmp_path))
    with open_pipeline(queries) as running:
        intake = queries.open(running.position)
        block = next(iter(intake))
        running.process(running.editions[0], intake.query.apart(block))  # type: ignore[union-attr]
        intake.close()
    with pytest.raises(LogMismatch, match="lack releases"):
        plan(settings(tmp_path, shop(tmp_path), ('clip = ["0", "20"]', 'clip = ["0", "10"]')))


def test_a_stream_at_its_last_step_is_not_amended(tmp_path: Path) -> None:
    """No query could begin; with more steps there is one that can."""
    release(settings(tmp_path, shop(tmp_path)))
    change = ('clip = ["0", "20"]', 'clip = ["0", "10"]')
    with pytest.raises(LogMismatch, match="all of its 40 steps"):
        plan(settings(tmp_path, shop(tmp_path), change))
    assert plan(settings(tmp_path, shop(tmp_path), change, ("count = 40", "count = 80"))).begun == {
        "revenue": 46
    }


def test_a_refused_amendment_removes_nothing(tmp_path: Path) -> None:
    """Rows of open steps go after its commit; one that was interrupted there is finished at the next start."""
    log, moved = tmp_path / "tidegate.ledger", tmp_path / "moved.ledger"
    change, kept = ('clip = ["0", "20"]', 'clip = ["0", "10"]'), [(21, b"row")]

    def tables(path: Path) -> SideTables:
        return SideTables(opened.enter_context(closing(open_log(str(path)))), str(path))

    release(settings(tmp_path, shop(tmp_path)), blocks=4)
    with ExitStack() as opened, closing(tables(log)) as found:
        found.replace_all(kept)
    moved.write_bytes(log.read_bytes())
    with pytest.raises(LogMismatch, match="copy"):
        amend(settings(tmp_path, shop(tmp_path), change, ("[protect]", '[protect]\nledger = "moved.ledger"')))
    for path in (log, moved):
        with ExitStack() as opened, closing(tables(path)) as found:
            assert list(found.entries()) == kept
            assert found.note("amending") is None
    amend(settings(tmp_path, shop(tmp_path), change))
    with ExitStack() as opened, closing(tables(log)) as found:
        assert list(found.entries()) == []
        found.replace_all(kept)
        found.mark_for_removal(bytes(32))  # as if it had been killed behind its commit
    release(settings(tmp_path, shop(tmp_path), change), blocks=1)
    with ExitStack() as opened, closing(tables(log)) as found:
        assert list(found.entries()) == []
