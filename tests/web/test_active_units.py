"""Units that count over several steps, of events that are sent: what is released is the same after restarts."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.web.helpers import served

from tidegate.config import Queries, parse_queries
from tidegate.web.http_source import HttpDriver, HttpIntake
from tidegate.web.spool import Spool, SpoolSource
from waiting import until

TEXT = """
[source]
location = "serve:"
time = "time"
unit = "unit"
[steps]
start = "1970-01-01"
length = "1s"
{query}
[protect]
epsilon = "1"
window = 2
[mechanism]
name = "Uniform"
[sink]
location = "released.csv"
"""
OVER = '[query]\naggregate = "distinct"\nover = 3'
DAILY = '[[query]]\nname = "daily"\naggregate = "distinct"\nshare = "1/2"\n'
SEVERAL = DAILY + '[[query]]\nname = "lately"\naggregate = "distinct"\nover = 3\nshare = "1/2"'


def configured(folder: Path, query: str = OVER) -> Queries:
    """A stream of events that are sent."""
    return parse_queries(TEXT.format(query=query), folder / "hall.toml", follow=True)


def events(*found: tuple[float, str]) -> pl.DataFrame:
    """Moments and units."""
    moments = pl.Series("time", [int(at * 1e6) for at, _ in found]).cast(pl.Datetime("us", "UTC"))
    return pl.DataFrame([moments, pl.Series("unit", [unit for _, unit in found])])


@pytest.mark.parametrize("query", [OVER, SEVERAL], ids=["alone", "beside another"])
@pytest.mark.parametrize("restarts", [False, True])
def test_events_stay_until_no_step_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, restarts: bool
) -> None:
    """A unit that was seen at step 1 counts at steps 1 to 3, also where the service was stopped in between."""
    monkeypatch.setattr(HttpIntake, "_patience", lambda _self: 0.0)
    queries = configured(tmp_path, query)
    spool, position, found = Spool(tmp_path / "spool", 0), None, []
    spool.put("key", events((0.5, "a"), (0.6, "b"), (1.5, "b")), np.array([1, 1, 2])).result()
    for step in range(1, 6):
        ticks = itertools.count(5 * step - 3)
        intake = HttpIntake(
            SpoolSource(spool, ("time", "unit")),
            queries.first.schema,
            queries.first.steps,
            queries.counted,
            position=position,
            follow=True,
            clock=lambda ticks=ticks: next(ticks) / 5,  # type: ignore[misc]
        )
        intake.spool = spool
        for block in intake:
            found.append(int(block.units[0, -1]))
            position = block.position
            intake.commit(position)
            if restarts or block.last_step == 5:
                break
        if not restarts:
            break
        spool.close()
        spool = Spool(tmp_path / "spool", step - 2)
    assert found == [2, 2, 2, 1, 0]
    assert not list(spool.read(2**62))
    spool.close()


def test_late_events_count_where_open_steps_count_them(tmp_path: Path) -> None:
    """And those of before the first step are not stored."""
    now = [0.5]
    queries = configured(tmp_path)
    with served([queries], tokens=tmp_path / "tokens.json", clock=lambda: now[0]) as (_, service):
        driver = service.drivers["hall"]
        assert isinstance(driver, HttpDriver)
        assert driver.current(events((-0.5, "a"), (0.4, "a")))[1].tolist() == [1]
        now[0] = 10.5
        until(lambda: driver.spool.floor == 10 - 2)
        assert driver.current(events((7.5, "a"), (8.5, "b"), (10.1, "c")))[1].tolist() == [9, 11]
