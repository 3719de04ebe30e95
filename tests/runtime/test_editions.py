"""Editions of a step: released early with what has arrived, and again when late devices have reported."""

from __future__ import annotations

import csv
import os
import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime.helpers import TEXT, open_one, publish, verified

from tidegate.cli import main
from tidegate.config import ConfigError, Queries, parse_config, parse_queries
from tidegate.errors import TidegateError
from tidegate.ingest.errors import InputChanged
from tidegate.mechanisms import Uniform
from tidegate.pipeline import open_pipeline
from tidegate.pipeline.amend import amend
from tidegate.pipeline.logs import LogReader
from tidegate.report.explanation import explain
from tiers import thinned
from waiting import until as until_so

HOUR = 3600.0
EDITIONS = '[editions]\nafter = ["1h", "5h"]\nshares = ["1/4", "3/4"]\n'
LATENESS = (1, 5)  # hours
NAMES = ("provisional", "final")


def text_of(folder: Path, *changes: tuple[str, str], editions: str = EDITIONS) -> str:
    """A followed file on a clock that begins in 1970, with editions and next to no noise."""
    text = TEXT.format(folder=folder)
    common = (
        ('start = "2026-03-02T00:00"', 'start = "1970-01-01T00:00Z"'),
        ('zone = "Europe/Berlin"\n', ""),
        ('column = "place"', 'column = "place"\nfollow = true'),
        ('epsilon = "1"', 'epsilon = "10000000"'),
        ("[query]", f"{editions}\n[query]"),
    )
    for before, after in (*common, *changes):
        assert before in text, before
        text = text.replace(before, after)
    return text


def edited(folder: Path, *changes: tuple[str, str], editions: str = EDITIONS) -> Queries:
    """The same as a configuration in its folder."""
    text = text_of(folder, *changes, editions=editions)
    (folder / "tidegate.toml").write_text(text)
    return parse_queries(text, folder / "tidegate.toml")


def until(queries: Queries, now: float) -> list[int]:
    """One start: release what the clock has closed, and end; the last step of each edition."""
    with open_pipeline(queries, follow=True, clock=lambda: now) as streams:
        intake = streams.queries.open(streams.position, follow=True, clock=lambda: now, once=True)
        streams.drive(intake)
        streams.finish()
        intake.close()
        return [streams.session.steps[part.name] for part in streams.queries.parts]


def released(folder: Path, name: str) -> list[tuple[int, int]]:
    """The north and the south of every step of an edition."""
    with (folder / f"out-{name}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(1, len(rows) + 1))
    return [(round(float(row["north"])), round(float(row["south"]))) for row in rows]


class Meters:
    """Records with the moment of their event and that of their arrival."""

    def __init__(self, seed: int, steps: int = 12) -> None:
        chance = random.Random(seed)
        self.records = []
        for _ in range(220):
            when = chance.random() * steps * HOUR
            late = chance.choice([0.0, 0.0, 0.5, 2.5, 4.9, 7.0]) * HOUR
            unit, place = f"u{chance.randrange(25)}", chance.choice(["north", "south"])
            self.records.append((when + late, when, unit, place))
        self.records.sort()
        self.sent = 0

    def arrive(self, folder: Path, now: float) -> None:
        """Append what has arrived by a moment."""
        with (folder / "events.csv").open("a") as file:
            while self.sent < len(self.records) and self.records[self.sent][0] <= now:
                _, when, unit, place = self.records[self.sent]
                file.write(f"{when},{unit},{place}\n")
                self.sent += 1

    def counts(self, moments: Sequence[float], lateness: int, steps: int = 12) -> list[tuple[int, int]]:
        """What an edition counts, by nothing but the standard library: each unit once, at its earliest record."""
        found = []
        for step in range(1, steps + 1):
            # a step is released at the first start after it has closed
            start = next(now for now in moments if now >= (step + lateness) * HOUR)
            first: dict[str, tuple[float, str]] = {}
            for arrived, when, unit, place in self.records:
                if arrived <= start and int(when // HOUR) + 1 == step:
                    first[unit] = min(first.get(unit, (when, place)), (when, place))
            places = Counter(place for _, place in first.values())
            found.append((places["north"], places["south"]))
        return found


def test_each_edition_counts_what_had_arrived(tmp_path: Path) -> None:
    """A followed file with late devices, stopped and started every 50 minutes: both editions are the counts."""
    (tmp_path / "events.csv").write_text("time,unit,place\n")
    queries, meters = edited(tmp_path), Meters(5)
    moments = [n * 50 * 60.0 for n in range(1, 24)]
    for now in moments:
        meters.arrive(tmp_path, now)
        steps = until(queries, now)
        expected = [min(12, max(0, int((now - late * HOUR) // HOUR))) for late in LATENESS]
        assert steps == expected
    for name, late in zip(NAMES, LATENESS, strict=True):
        assert released(tmp_path, name) == meters.counts(moments, late)
    assert released(tmp_path, "provisional") != released(tmp_path, "final")
    assert verified(queries.ledger).ok


def test_an_edition_is_what_a_stream_with_its_lateness_releases(tmp_path: Path) -> None:
    """The same file, followed by a plain stream for each lateness: the same numbers."""
    both, plain = tmp_path / "both", tmp_path / "plain"
    both.mkdir()
    plain.mkdir()
    (both / "events.csv").write_text("time,unit,place\n")
    (plain / "events.csv").write_text("time,unit,place\n")
    queries = edited(both)
    configs = []
    for late in LATENESS:
        folder = plain / str(late)
        folder.mkdir()
        text = text_of(plain, ("count = 12", f'count = 12\nlateness = "{late}h"'), editions="")
        text = text.replace(f"{plain}/out.csv", f"{folder}/out-alone.csv")
        configs.append(parse_config(text, folder / "tidegate.toml"))
    one, other = Meters(8), Meters(8)
    for now in [n * 97 * 60.0 for n in range(1, 13)]:
        one.arrive(both, now)
        other.arrive(plain, now)
        until(queries, now)
        for config in configs:
            with open_one(config, follow=True, clock=lambda now=now: now) as stream:  # type: ignore[misc]
                position = stream.position
                intake = config.open(position, follow=True, clock=lambda now=now: now, once=True)  # type: ignore[misc]
                stream.drive(intake)
                stream.finish()
                intake.close()
    for name, late in zip(NAMES, LATENESS, strict=True):
        assert released(both, name) == released(plain / str(late), "alone")


@pytest.mark.parametrize("seed", thinned(range(6), 3))
def test_one_unit_changes_each_edition_by_its_bound(seed: int, tmp_path: Path) -> None:
    """Whenever a unit's records arrive: in its window every edition changes by at most Δ a step, elsewhere not at all."""
    chance = random.Random(seed)
    window = range(4, 8)  # steps
    extra = []
    for _ in range(40):
        when = (chance.choice(window) - 1 + chance.random()) * HOUR
        extra.append((when + chance.random() * 7 * HOUR, when, "somebody", chance.choice(["north", "south"])))
    found = []
    for records in ([], extra):
        folder = tmp_path / str(len(records))
        folder.mkdir()
        (folder / "events.csv").write_text("time,unit,place\n")
        queries, meters = (
            edited(folder, ('aggregate = "distinct"', 'aggregate = "count"\nmost = 2')),
            Meters(seed),
        )
        meters.records = sorted([*meters.records, *records])
        for now in [n * 90 * 60.0 for n in range(1, 14)]:
            meters.arrive(folder, now)
            until(queries, now)
        found.append([np.array(released(folder, name)) for name in NAMES])
    assert queries.policy.step_sensitivity(2) == 1  # of the whole; each part has that of its query
    assert {part.policy.max_change for part in queries.parts} == {2}
    for without, with_somebody in zip(*found, strict=True):
        change = np.abs(without - with_somebody).sum(axis=1)
        assert change.max() <= 2
        assert change[: window[0] - 1].sum() + change[window[-1] :].sum() == 0
        assert change.sum() > 0


def test_a_finite_input_has_arrived_as_a_whole(tmp_path: Path) -> None:
    """Both editions of a file that has ended count everything, in one start or in several."""
    meters = Meters(3)
    (tmp_path / "events.csv").write_text("time,unit,place\n")
    meters.arrive(tmp_path, 1e9)
    queries = edited(tmp_path, ("follow = true\n", ""))
    with open_pipeline(queries) as streams:
        intake = streams.queries.open(streams.position)
        streams.drive(intake)
        streams.finish()
        intake.close()
    assert released(tmp_path, "provisional") == released(tmp_path, "final") == meters.counts([1e9], 5)
    assert main(["ledger", "verify", str(tmp_path / "tidegate.ledger")]) == 0


def test_messages_are_kept_until_the_final_edition(broker: Any, tmp_path: Path) -> None:
    """Rows from a broker are on disk from their arrival to the commit of the last edition, over restarts."""
    broker.start()
    queries = edited(
        tmp_path,
        (f'location = "{tmp_path}/events.csv"', f'location = "{broker.url}/events/#"'),
        ("\nfollow = true", ""),
        ("count = 12", "count = 2"),
    )

    def start(now: float, messages: int, wanted: list[int]) -> int:
        """Run until so many messages are taken and the editions stand at these steps; rows that are kept."""
        world = [0.0]
        with open_pipeline(queries, follow=True, clock=lambda: now) as streams:
            intake = streams.queries.open(streams.position, follow=True, clock=lambda: world[0])
            source: Any = intake.source

            def watch() -> None:
                until_so(lambda: not source.status.startswith("waiting") and source._done >= messages)
                world[0] = now
                until_so(
                    lambda: [streams.session.steps[part.name] for part in streams.queries.parts] == wanted
                )
                intake.stop()

            threading.Thread(target=watch, daemon=True).start()
            streams.drive(intake)
            streams.finish()
            intake.close()
            assert [streams.session.steps[part.name] for part in streams.queries.parts] == wanted
        with LogReader(queries.ledger) as log:
            return len(log.run("SELECT 1 FROM spooled"))

    def message(unit: str) -> bytes:
        return f'{{"time": 1800, "unit": "{unit}", "place": "north"}}'.encode()

    assert start(0.0, 0, [0, 0]) == 0
    publish(broker.port, [message(f"u{n}") for n in range(10)])
    assert start(2.1 * HOUR, 10, [1, 0]) >= 1
    publish(broker.port, [message(f"late{n}") for n in range(7)])
    assert start(3.1 * HOUR, 7, [2, 0]) >= 1
    assert start(7.1 * HOUR, 0, [2, 2]) == 0
    assert released(tmp_path, "provisional") == [(10, 0), (0, 0)]
    assert released(tmp_path, "final") == [(17, 0), (0, 0)]
    assert verified(queries.ledger).ok


def test_several_queries_have_editions_each(tmp_path: Path) -> None:
    """Names and shares are products; names that sort differently with their ending do not mix up columns."""
    text = text_of(tmp_path)
    begin, end = text.index("[query]"), text.index("[protect]")
    both = "".join(
        f'[[query]]\nname = "{name}"\naggregate = "{kind}"\nmost = {most}\nshare = "1/2"\ncolumns = {columns}\n'
        for name, kind, most, columns in (
            ("a-g", "count", 3, '["north"]'),
            ("a", "distinct", 1, '["north", "south"]'),
        )
    )
    queries = parse_queries(text[:begin] + both + text[end:], tmp_path / "tidegate.toml")
    assert queries.shares == {
        "a-g-provisional": Fraction(1, 8),
        "a-g-final": Fraction(3, 8),
        "a-provisional": Fraction(1, 8),
        "a-final": Fraction(3, 8),
    }
    meters = Meters(2)
    (tmp_path / "events.csv").write_text("time,unit,place\n")
    meters.arrive(tmp_path, 1e9)
    until(queries, 20 * HOUR)
    assert released(tmp_path, "a-provisional") == released(tmp_path, "a-final") == meters.counts([1e9], 5)


REFUSED = {
    'after = ["1h"]': "after must have 2 to 8 durations",
    'after = ["5h", "1h"]': "after must increase",
    'after = ["1h", "soon"]': "soon",
    'after = ["1h", "5h"]\nshares = ["1/2"]': "shares must be 2 positive numbers",
    'after = ["1h", "5h"]\nshares = ["1/2", "2/3"]': "at most 1 together",
    'after = ["1h", "5h"]\nshares = ["0", "1"]': "shares",
    'shares = ["1/2", "1/2"]': "after must have",
    'behind = ["1h"]': "unknown key 'behind' in [editions]",
}


@pytest.mark.parametrize("keys", REFUSED)
def test_what_is_refused(keys: str, tmp_path: Path) -> None:
    """One sentence with the line of the key."""
    with pytest.raises(ConfigError, match="line") as refusal:
        edited(tmp_path, editions=f"[editions]\n{keys}\n")
    assert REFUSED[keys] in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_what_does_not_go_together(tmp_path: Path) -> None:
    """A lateness, standard output, given readings without fill, a command for one stream, amendments."""
    with pytest.raises(ConfigError, match="lateness must be absent"):
        edited(tmp_path, ("count = 12", 'count = 12\nlateness = "1h"'))
    with pytest.raises(ConfigError, match="standard output"):
        edited(tmp_path, (f'location = "{tmp_path}/out.csv"', 'location = "-"'))
    given = (
        ('aggregate = "distinct"', 'aggregate = "given"'),
        ('unit = "unit"', 'value = "unit"'),
        ("window = 4", 'window = 4\nmax_change = "1"'),
    )
    with pytest.raises(ConfigError, match="fill is needed"):
        edited(tmp_path, *given)
    filled = (
        given[0],
        *given[1:],
        ('columns = ["north", "south"]', 'columns = ["north", "south"]\nfill = "zero"'),
    )
    assert {part.policy.max_change for part in edited(tmp_path, *filled).parts} == {1}
    with pytest.raises(ConfigError, match="unknown key 'name'"):
        edited(tmp_path, ("[query]", '[query]\nname = "orders"'))
    with pytest.raises(ConfigError, match="secrets are not divided"):
        edited(tmp_path, ("window = 4", 'policy = "swellfish"'))
    queries = edited(tmp_path)
    with pytest.raises(ConfigError, match="--query final"):
        parse_config((tmp_path / "tidegate.toml").read_text(), tmp_path / "tidegate.toml")
    (tmp_path / "events.csv").write_text("time,unit,place\n")
    until(queries, 3 * HOUR)
    with pytest.raises(TidegateError, match="cannot be amended"):
        amend(queries)
    with pytest.raises(TidegateError, match="cannot be amended"):
        amend(edited(tmp_path, editions=""))
    with pytest.raises(TidegateError):
        until(edited(tmp_path, editions=""), 4 * HOUR)


def test_people_read_which_edition_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the explanation, in the report and in the plan."""
    queries = edited(tmp_path, ("follow = true\n", ""), ('epsilon = "10000000"', 'epsilon = "1"'))
    (tmp_path / "events.csv").write_text("time,unit,place\n1,a,north\n")
    shown = " ".join(explain(queries))
    assert "Provisional: each hour is released 1 hour after its end, with what has arrived by then" in shown
    assert "Final: each hour is released for the last time 5 hours after its end" in shown
    assert "Its part of the budget is 0.25" in shown
    report = str(tmp_path / "report.html")
    assert main(["release", str(tmp_path / "tidegate.toml"), "--report", report, "--json"]) == 0
    assert "Final: each hour" in Path(report).read_text()
    assert "Provisional: each hour" in Path(report).read_text()
    capsys.readouterr()


def test_editions_in_other_orders_are_refused(tmp_path: Path) -> None:
    """A ledger in which a final edition is ahead of its provisional one is none of ours."""
    queries = edited(tmp_path)
    (tmp_path / "events.csv").write_text("time,unit,place\n")
    until(queries, 4 * HOUR)
    turned = replace(queries, parts=tuple(replace(part, later=1 - part.later) for part in queries.parts))
    with pytest.raises(TidegateError):
        until(turned, 5 * HOUR)


def test_a_last_word_takes_nothing_from_later_editions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a stream ends after its first edition, a mechanism's last word on it leaves what the final one counts."""
    monkeypatch.setattr(Uniform, "revises", True)  # as Tide's and OptStream's do
    here = (f'location = "{tmp_path}/events.csv"', 'location = "-"')
    queries = edited(tmp_path, here, ("count = 12", "count = 4"))

    def started(now: float, sent: str) -> None:
        """One start with an input that cannot be read again."""
        end, begin = os.pipe()
        os.write(begin, f"time,unit,place\n{sent}".encode())
        with open_pipeline(queries, follow=True, clock=lambda: now) as streams:
            with os.fdopen(end) as given, monkeypatch.context() as patched:
                patched.setattr("sys.stdin", given)
                intake = queries.open(streams.position, follow=True, clock=lambda: now, once=True)
                streams.drive(intake)
            streams.finish()
            intake.close()
        os.close(begin)

    started(5.5 * HOUR, "".join(f"5,u{k},north\n" for k in range(50)))
    with LogReader(queries.ledger) as log:
        assert log.run("SELECT 1 FROM spooled")
    started(60 * HOUR, "")
    assert released(tmp_path, "provisional")[0] == released(tmp_path, "final")[0] == (50, 0)


def test_records_that_are_lost_before_the_first_final_edition_are_missed(kafka: Any, tmp_path: Path) -> None:
    """The first edition remembers where it began, so that retention cannot take records from the final one in silence."""
    from confluent_kafka import TopicPartition

    topic = kafka.topic()
    queries = edited(tmp_path, (f'location = "{tmp_path}/events.csv"', f'location = "{kafka.url(topic)}"'))
    record = b'{"time": 1800, "unit": "%d", "place": "north"}'
    kafka.send(topic, [(0, record % number) for number in range(10)])
    assert until(queries, 2.1 * HOUR) == [1, 0]
    for removed in kafka.admin().delete_records([TopicPartition(topic, 0, 6)]).values():
        removed.result(20)
    with pytest.raises(InputChanged, match="were removed before they were read"):
        until(queries, 6.1 * HOUR)
    assert released(tmp_path, "provisional") == [(10, 0)]
