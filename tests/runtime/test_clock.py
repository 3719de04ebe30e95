"""A clock that is years ahead, or behind what was released, is refused before anything closes."""

from __future__ import annotations

import datetime
import json
import time
from pathlib import Path

import pytest
from tests.runtime.helpers import TEXT, open_one, settings, verified, write_events

from tidegate.cli import main
from tidegate.config import Config
from tidegate.config.errors import ConfigError
from tidegate.ingest import Steps
from tidegate.pipeline.clock_check import ClockRefused, check_clock

BEGIN = datetime.datetime(2026, 3, 2, tzinfo=datetime.UTC).timestamp() - 3600  # midnight in Berlin
YEARS = 10 * 365 * 86400
FOLLOWED = (('column = "place"', 'column = "place"\nfollow = true'), ("count = 12\n", ""))


def drive(config: Config, now: float, *, backfill: bool = False) -> int:
    """Start a followed stream at a time of the clock, and stop when it has caught up; the step it stands at."""
    clock = lambda: now  # noqa: E731  a clock that stands still
    with open_one(config, follow=True, backfill=backfill, clock=clock) as stream:
        intake = config.open(stream.position, follow=True, clock=clock)
        due = config.steps.closed_by(now)
        for block in intake if due > stream.step else ():
            stream.process(stream.editions[0], [block])
            if stream.step >= due:
                break
        intake.close()
        return stream.step


def test_a_clock_years_ahead_closes_nothing(tmp_path: Path) -> None:
    """Refused at the first start and when going on; the stream continues as soon as the clock is right again."""
    config = settings(tmp_path, *FOLLOWED)
    with pytest.raises(ClockRefused, match=r"2036-.* has not begun.* steps would close at once.*--backfill"):
        drive(config, BEGIN + YEARS)
    assert drive(config, BEGIN + 5 * 3600) == 5
    with pytest.raises(ClockRefused, match=r"stands at step 5"):
        drive(config, BEGIN + YEARS)
    assert verified(config.ledger).step == 5
    assert drive(config, BEGIN + 7 * 3600) == 7


def test_backfill_and_the_way_back(tmp_path: Path) -> None:
    """More steps than allowed only when said; a ledger that is ahead of the clock says how to get back."""
    config = settings(tmp_path, *FOLLOWED, ('length = "1h"', 'length = "1h"\ncatch_up = 100'))
    assert drive(config, BEGIN + 100 * 3600) == 100
    with pytest.raises(ClockRefused, match=r"101 steps would close at once, more than catch_up = 100"):
        drive(config, BEGIN + 201 * 3600)
    assert drive(config, BEGIN + 201 * 3600, backfill=True) == 201
    with pytest.raises(
        ClockRefused, match=r"clock says 2026-03-02 04:00 UTC .* up to 2026-03-10 08:00 UTC.*--new-stream"
    ):
        drive(config, BEGIN + 5 * 3600)
    assert drive(config, BEGIN + 201 * 3600 - 60) == 201  # a small correction is waited for


def test_the_command_refuses_a_wrong_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence, exit code 2, and nothing was released."""
    settings(tmp_path, *FOLLOWED)
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + YEARS)
    assert main(["release", str(tmp_path / "tidegate.toml")]) == 2
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    assert "set the clock right" in shown.err
    assert not (tmp_path / "out.csv").exists()


def test_catch_up_must_be_a_number_of_steps(tmp_path: Path) -> None:
    """The line of the file is named."""
    with pytest.raises(ConfigError, match=r"line \d+: catch_up=0 is refused"):
        settings(tmp_path, ('length = "1h"', 'length = "1h"\ncatch_up = 0'))


def test_times_that_no_calendar_has() -> None:
    """A clock of the year 20000 is refused with a sentence as well."""
    steps = Steps(start="2026-03-02", length="1s")
    with pytest.raises(ClockRefused, match="after the year 9999"):
        check_clock(steps, 0, 6e11, most=10, backfill=False)


def test_what_has_not_happened_is_not_released(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A finite input whose steps the clock has not closed is refused, unless it is declared complete."""
    write_events(tmp_path)
    now = datetime.datetime.now(datetime.UTC)
    start = now.replace(minute=0, second=0, microsecond=0) - datetime.timedelta(hours=5)
    text = TEXT.format(folder=tmp_path).replace(
        'start = "2026-03-02T00:00"', f'start = "{start.isoformat()}"'
    )
    file = tmp_path / "stream.toml"
    file.write_text(text)
    assert main(["release", str(file)]) == 2
    said = capsys.readouterr().err
    assert "count = 12 in [steps] ends at" in said
    assert "7 steps have not closed yet" in said or "6 steps have not closed yet" in said  # at the full hour
    assert "--until now" in said
    assert not (tmp_path / "out.csv").exists()
    assert main(["release", str(file), "--until", "now", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] in (5, 6)
    other = tmp_path / "made_up.toml"
    other.write_text(text.replace("[steps]", "complete = true\n\n[steps]").replace("out.csv", "other.csv"))
    assert main(["release", str(other), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 12
