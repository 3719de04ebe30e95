"""A service whose log is in PostgreSQL, which goes away and comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from tests.web.helpers import live_text, served, write_events
from tests.web.test_account import fetched

from tidegate.config import parse_config
from tidegate.pipeline.public_account import check_published
from waiting import until


def test_the_database_goes_away_and_comes_back(tmp_path: Path, postgres: Any) -> None:
    """Readers are served from memory meanwhile; the stream continues afterwards, and its account holds."""
    write_events(tmp_path, 0)
    text = live_text(tmp_path, behind=20).replace(
        "window = 4", f'window = 4\nledger = "{postgres.new_stream()}"'
    )
    config = parse_config(text, tmp_path / "hall.toml")
    with served([config]) as (address, service):
        driver = service.drivers["hall"]
        until(lambda: driver.first.board.step >= 20)
        assert check_published(*fetched(f"{address}/streams/hall"))[0].ok
        postgres.stop()
        until(lambda: driver.state == "failed")
        assert httpx.get(f"{address}/streams/hall/releases").json()["last"] == driver.first.board.number
        assert httpx.get(f"{address}/readyz").status_code == 503
        assert httpx.get(f"{address}/streams/hall/account/rows").status_code == 503
        postgres.start()
        seen = driver.first.board.step
        until(lambda: driver.first.board.step > seen + 1)
        assert driver.state == "running"
        head, rows, releases = fetched(f"{address}/streams/hall")
        assert check_published(head, rows, releases)[0].ok
        assert [release[0] for release in releases] == list(range(1, len(releases) + 1))
