"""A small part of the campaign, so that it works when it is wanted."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.campaign import __main__ as campaign
from tests.campaign import fuzz, year
from tests.campaign.brokers import Mqtt
from tests.runtime.conftest import broker as broker
from tests.runtime.conftest import postgres as postgres

pytestmark = pytest.mark.slow  # kills


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, postgres: Any) -> Iterator[campaign.Campaign]:
    """A campaign with a database server."""
    folder = tmp_path_factory.mktemp("campaign")
    found = campaign.Campaign(folder / "campaign.jsonl", folder / "streams", postgres)
    yield found
    found.worker.close()


@pytest.mark.parametrize(("kind", "events"), [("kill", 36), ("flip", 6), ("database", 1)])
def test_nothing_is_wrong(running: campaign.Campaign, kind: str, events: int) -> None:
    """A few trials of each kind; what was run is remembered."""
    running.run(kind, events, float("inf"))
    mine = [trial for trial in running.done if trial.kind == kind]
    assert [trial.wrong for trial in mine if trial.wrong] == []
    assert sum(trial.events for trial in mine) >= events
    again = campaign.Campaign.__new__(campaign.Campaign)
    again.done = [campaign.Trial(**vars(trial)) for trial in running.done]
    assert again.count(kind) == running.count(kind)


def test_editions_survive_kills(running: campaign.Campaign) -> None:
    """Both editions of every step are there once, as promised, however often the stream dies."""
    where, kills, outcome = running.kill(random.Random(4), editions=True)
    assert "editions" in where
    assert kills > 0
    assert outcome == "resumed"


def test_tables_survive_kills(running: campaign.Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a table to a table, finite and followed: each row counts once, and each release is there once."""
    monkeypatch.setattr(campaign, "KILLS", 6)
    chance = random.Random(5)
    mechanism = campaign.MECHANISMS[2]
    kills = 0
    while kills < 6:  # a stream that is quick ends before it has been killed so often
        kills += running._kill_finite(chance, "table", mechanism, "table", "postgresql", editions=False)[1]
    assert running._kill_followed(chance, "table")[1] >= 2


def test_brokers_survive_kills(
    running: campaign.Campaign, broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that come count once, and a reader who compares ids sees each release once."""
    monkeypatch.setattr(campaign, "KILLS", 6)
    mine = Mqtt(broker.program, tmp_path / "mqtt")
    try:
        running.brokers["mqtt"] = mine
        chance = random.Random(6)
        mechanism = campaign.MECHANISMS[2]
        kills = 0
        while kills < 6:  # a stream that is quick ends before it has been killed so often
            kills += running._kill_finite(chance, "csv", mechanism, "messages", "sqlite", editions=False)[1]
        assert running._kill_followed(chance, "mqtt")[1] >= 2
    finally:
        del running.brokers["mqtt"]
        mine.stop()


def test_full_disks(running: campaign.Campaign) -> None:
    """One stream, given a little more room after each refusal."""
    if os.getuid() != 0:
        pytest.skip("a small file system cannot be mounted here; run the tests as root to see this one.")
    running.run("full", 1, float("inf"))
    assert [trial.wrong for trial in running.done if trial.kind == "full" and trial.wrong] == []


@pytest.mark.parametrize("remembers", [True, False])
def test_a_lost_broker(running: campaign.Campaign, broker: Any, tmp_path: Path, remembers: bool) -> None:
    """Stopped in the middle of its deliveries, or killed and restarted without memory: each message counts once."""
    mine = Mqtt(broker.program, tmp_path / "mqtt")
    try:
        running.brokers["mqtt"] = mine
        mine.losses = 1
        seed = next(n for n in range(99) if (random.Random(n).random() < 0.5) is remembers)
        kind, losses, outcome = running.broker(random.Random(seed))
        assert kind.startswith("mqtt")
        assert (losses, outcome) == (1, "each message counts once")
    finally:
        del running.brokers["mqtt"]
        mine.stop()


def test_a_wrong_stream_is_noticed(running: campaign.Campaign) -> None:
    """A row that was changed, dropped or doubled is not what was promised."""
    mechanism, sink = campaign.MECHANISMS[0], "out.csv"
    promised = running.promised(mechanism, sink)
    setting = running.setting("wrong", mechanism, "csv", sink, "sqlite")
    assert running.worker.start(setting.folder)["code"] == 0
    path = setting.folder / sink
    whole = path.read_bytes()
    running.check(setting, promised, ended=True)
    lines = whole.splitlines(keepends=True)
    for wrong in (lines[:-1], [*lines, lines[-1]], [*lines[:5], lines[6], *lines[7:]]):
        path.write_bytes(b"".join(wrong))
        with pytest.raises(campaign.Wrong):
            running.check(setting, promised, ended=True)


def test_the_page_counts_what_was_run() -> None:
    """Wrong trials are counted as such."""
    trials = [
        campaign.Trial("kill", 1, "csv → Uniform → out.csv on sqlite", 12, "resumed"),
        campaign.Trial("kill", 2, "", 1, "WRONG", "lost"),
    ]
    text = campaign.page(trials)
    assert "| SIGKILLs | 10,000 | 13 | 2 | 1 | resumed: 1, WRONG: 1 |" in text
    assert "- SIGKILLs by source: csv 12\n" in text
    assert "- SIGKILLs by store: SQLite 12\n" in text


def test_a_week_of_the_year(tmp_path: Path) -> None:
    """Eight days of minutes, with a rotation."""
    facts = year.run(tmp_path, 8, seed=3)
    assert facts["steps"] == 8 * 1440
    assert facts["archives"] >= 1


MOMENT = """
import random, sys
from pathlib import Path
from tests.campaign import fuzz
kind, fuzz.FOLDER, chance = sys.argv[1], Path(sys.argv[2]), random.Random(7)
for _ in range(60 if kind != "commands" else 25):
    fuzz.KINDS[kind](fuzz.mutated(chance.choice(fuzz.seeds(kind)), chance))
"""


@pytest.mark.parametrize("kind", list(fuzz.KINDS))
def test_a_moment_of_fuzzing(kind: str, tmp_path: Path) -> None:
    """Random inputs: every one is read, or refused by a sentence without its content.

    In a process of its own, because fuzzing takes what takes long out of the program.
    """
    root = Path(campaign.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", MOMENT, kind, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_command_knows_its_options() -> None:
    """As `make campaign` calls it."""
    script = Path(campaign.__file__).parent
    done = subprocess.run(
        [sys.executable, str(script), "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "--part" in done.stdout
