"""Topics of Kafka, against a real broker: offsets of our own, what is lost, bad records, kills of both sides."""

from __future__ import annotations

import json
import os
import random
import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.runtime.helpers import EXACT, START, open_one, release, settings, verified

from tidegate.cli import main
from tidegate.config import Config
from tidegate.errors import InvalidInput, InvalidParameter, TidegateError
from tidegate.ingest import open_source
from tidegate.ingest.errors import InputChanged, SourceUnavailable
from tidegate.ingest.sources import kafka as module
from tidegate.ingest.sources.kafka import KafkaSource
from tidegate.sinks import kafka as sink_module
from tidegate.sinks.errors import SinkError
from tidegate.sinks.kafka import KafkaSink
from waiting import LIMIT

COLUMNS = ("time", "unit", "place")


def event(unit: str, second: float = 1.0, place: str = "north") -> bytes:
    """A record of one event."""
    return json.dumps({"time": START + second, "unit": unit, "place": place}).encode()


COMPLETE = ('unit = "unit"', 'unit = "unit"\ncomplete = true')  # its steps are ahead of the clock


def topical(folder: Path, url: str, *changes: tuple[str, str]) -> Config:
    """Two steps of a thousand seconds with next to no noise, from a topic."""
    return settings(folder, (f"{folder}/events.csv", url), *EXACT, *changes)


def released(folder: Path) -> list[int]:
    """The counts of the north."""
    lines = (folder / "out.csv").read_text().splitlines()
    place = lines[0].split(",").index("north")
    return [round(float(line.split(",")[place])) for line in lines[1:]]


def until_caught_up(source: Any, position: Any = None) -> tuple[list[str], Any]:
    """The units of all records that have come, and the position after them."""
    units: list[str] = []
    end = time.monotonic() + LIMIT
    for batch in source.batches(position, patience=lambda: 0.05):
        units += batch.frame["unit"].to_list()
        if batch.caught_up:
            return units, batch.after
        assert time.monotonic() < end
    raise AssertionError


def test_offsets_are_ours(kafka: Any) -> None:
    """Three partitions, one of them idle: read on from a position, and from partitions that were added."""
    topic = kafka.topic(3)
    kafka.send(topic, [(n % 2, event(f"u{n}")) for n in range(10)])
    with open_source(kafka.url(topic), COLUMNS, follow=True) as source:
        units, position = until_caught_up(source)
    assert sorted(units) == sorted(f"u{n}" for n in range(10))
    assert position["offsets"] == {"0": 5, "1": 5, "2": 0}
    kafka.grow(topic, 4)
    kafka.send(topic, [(3, event("new")), (0, event("more"))], grown=True)
    with open_source(kafka.url(topic), COLUMNS, follow=True) as source:
        units, after = until_caught_up(source, position)
    assert sorted(units) == ["more", "new"]
    assert after == {"topic": position["topic"], "offsets": {"0": 6, "1": 5, "2": 0, "3": 1}}
    with pytest.raises(InputChanged, match="ends before"), open_source(kafka.url(topic), COLUMNS) as source:
        list(source.batches({"offsets": {"0": 7}}))


def test_an_answer_without_a_number_is_none(kafka: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a broker gives that has just started: nothing is refused, and nobody takes it for the end of the topic."""
    topic = kafka.topic()
    kafka.send(topic, [(0, event(f"u{n}")) for n in range(5)])
    admin = module.library(".admin").AdminClient
    ask, without = admin.list_offsets, [False, True, True, True, True]  # the last is for the first question

    def starting(self: Any, wanted: Any, **more: Any) -> Any:
        answers = ask(self, wanted, **more)
        if without and without.pop():
            for place in answers:
                answers[place] = Future()
                answers[place].set_result(SimpleNamespace(offset=-1001))
        return answers

    monkeypatch.setattr(admin, "list_offsets", starting)
    with open_source(kafka.url(topic), COLUMNS, follow=True) as source:
        found = [next(batches) for batches in [source.batches()] for _ in range(4)]
    assert [batch.caught_up for batch in found] == [False] * 4
    assert all(not len(batch.frame) for batch in found)
    monkeypatch.setattr(admin, "list_offsets", ask)
    with open_source(kafka.url(topic), COLUMNS, follow=True) as source:
        assert len(until_caught_up(source)[0]) == 5
    without.append(True)
    monkeypatch.setattr(admin, "list_offsets", starting)
    with (
        pytest.raises(SourceUnavailable, match="do not answer"),
        open_source(kafka.url(topic), COLUMNS) as one,
    ):
        list(one.batches())


def test_a_topic_that_was_made_anew_is_refused(kafka: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it has grown past the offsets: at a start, and while it is followed; unless the loss is accepted."""
    monkeypatch.setattr(module, "NEW_PARTITIONS", 0.0)
    topic = kafka.topic()
    kafka.send(topic, [(0, event(f"u{n}")) for n in range(5)])
    with open_source(kafka.url(topic), COLUMNS, follow=True) as source:
        units, position = until_caught_up(source)
        assert len(units) == 5
        kafka.make_anew(topic)
        kafka.send(topic, [(0, event(f"new{n}")) for n in range(9)])
        source._topic = position["topic"]
        with pytest.raises(InputChanged, match="was recreated"):
            source._new_partitions({0: 5})
    for follow in (False, True):
        with (
            pytest.raises(InputChanged, match=r"was recreated.*lost=accepted"),
            open_source(kafka.url(topic), COLUMNS, follow=follow) as source,
        ):
            list(source.batches(position))
    with open_source(kafka.url(topic) + "?lost=accepted", COLUMNS, follow=True) as source:
        units, after = until_caught_up(source, position)
    assert units == [f"new{n}" for n in range(9)]
    assert after["topic"] != position["topic"]
    old = {"offsets": position["offsets"]}  # as earlier versions wrote it
    with open_source(kafka.url(topic), COLUMNS, follow=True) as source:
        assert until_caught_up(source, old)[1] == after


def test_partitions_that_are_added_while_it_runs(kafka: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read from their beginning."""
    monkeypatch.setattr(module, "NEW_PARTITIONS", 0.0)
    topic = kafka.topic()
    with open_source(kafka.url(topic), COLUMNS, follow=True) as source:
        batches, units = source.batches(patience=lambda: 0.05), []
        next(batches)
        kafka.grow(topic, 2)
        kafka.send(topic, [(1, event("new"))], grown=True)
        for batch in batches:
            units += batch.frame["unit"].to_list()
            if units:
                break
    assert units == ["new"]


def test_what_retention_has_removed_is_named(kafka: Any) -> None:
    """At a start and while reading: which offsets are gone, and never a silent gap; unless the gap is accepted."""
    from confluent_kafka import TopicPartition

    topic = kafka.topic()
    kafka.send(topic, [(0, event(f"u{n}")) for n in range(10)])
    for removed in kafka.admin().delete_records([TopicPartition(topic, 0, 6)]).values():
        removed.result(20)
    position = {"offsets": {"0": 2}}
    for follow in (False, True):
        with (
            pytest.raises(InputChanged, match=r"records of partition 0 .* were removed before"),
            open_source(kafka.url(topic), COLUMNS, follow=follow) as source,
        ):
            list(source.batches(position))
    with open_source(kafka.url(topic) + "?lost=accepted", COLUMNS, follow=True) as source:
        assert until_caught_up(source, position)[0] == ["u6", "u7", "u8", "u9"]
    with open_source(kafka.url(topic), COLUMNS, follow=True) as source:
        assert len(until_caught_up(source)[0]) == 4  # what was gone before the first start was never ours
    with open_source(kafka.url(topic), COLUMNS, follow=True) as source:
        begin = source._begin
        source._begin = lambda _: {**begin(None), 0: 2}  # as if it had been removed after the start
        with pytest.raises(InputChanged, match=r"records of partition 0 .* were removed before"):
            until_caught_up(source)


def test_open_and_aborted_transactions(kafka: Any) -> None:
    """Records count when they are committed; one that is open holds up no step, and aborted ones never come."""
    from confluent_kafka import Producer

    topic = kafka.topic()
    producer = Producer(
        {"bootstrap.servers": kafka.servers, "transactional.id": f"writer {topic}", "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, event("kept"), partition=0)
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, event("dropped"), partition=0)
    producer.flush(10)
    with open_source(kafka.url(topic), COLUMNS, follow=True) as source:
        units, position = until_caught_up(source)
        assert units == ["kept"]
        producer.abort_transaction(30)
        assert until_caught_up(source, position)[0] == []


BAD = [b"{", b"17", b"\xff", b"[" * 3000, b'{"time": "noon", "unit": "mallory", "place": "north"}', None, b""]


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_bad_records(kafka: Any, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left out without a word where the topic is followed, refused without their content where it is finite."""
    monkeypatch.setattr("tidegate.ingest.sources.kafka.LARGEST_RECORD", 400)
    topic = kafka.topic()
    large = f"{START + 1},{'u' * 400},north".encode() if kind == "csv" else event("u" * 400)
    good = [f"{START + 1},u{n},north".encode() if kind == "csv" else event(f"u{n}") for n in range(3)]
    kafka.send(topic, [(0, one) for one in [good[0], *BAD, large, *good[1:]]])
    csv = ('unit = "unit"', 'unit = "unit"\nformat = "csv"\nfields = ["time", "unit", "place"]')
    changes = [csv] if kind == "csv" else []
    config = topical(tmp_path, kafka.url(topic), *changes)
    with open_one(config, follow=True, clock=lambda: START + 2001.0, backfill=True) as stream:
        intake = config.open(None, follow=True, clock=lambda: START + 2001.0)
        stream.drive(intake)
        stream.finish()
        intake.close()
    assert released(tmp_path) == [3, 0]
    other = tmp_path / "finite"
    other.mkdir()
    with pytest.raises(InvalidInput) as refusal:
        release(topical(other, kafka.url(topic), *changes, COMPLETE))
    assert "mallory" not in str(refusal.value)
    assert "noon" not in str(refusal.value)


def test_a_finite_topic_ends_where_it_ended_at_first(kafka: Any, tmp_path: Path) -> None:
    """What is sent while it is read is for the next start; the command line releases it."""
    topic = kafka.topic(2)
    kafka.send(topic, [(n % 2, event(f"u{n}")) for n in range(20)])
    config = topical(tmp_path, kafka.url(topic), COMPLETE)
    source = KafkaSource(kafka.url(topic), COLUMNS)
    assert sum(len(batch.frame) for batch in source.batches()) == 20
    kafka.send(topic, [(0, event("more"))])
    assert sum(len(batch.frame) for batch in source.batches()) == 20
    source.close()
    assert main(["check", str(config.path)]) == 0
    assert main(["release", str(config.path)]) == 0
    assert released(tmp_path) == [21, 0]


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("kafka://ann:xyzzy@127.0.0.1:1/topic", "without user and password"),
        ("kafka://127.0.0.1:1", "a topic"),
        ("kafka://127.0.0.1:1/a/b", "a topic"),
        ("kafka://127.0.0.1:1/topic#xyzzy", "a topic"),
        ("kafka://127.0.0.1:1/topic?password=xyzzy", "known parameters"),
        ("kafka://127.0.0.1:1/topic?settings=/nowhere/xyzzz", "can be read"),
    ],
)
def test_addresses_are_checked(tmp_path: Path, location: str, words: str) -> None:
    """One sentence, never with a password."""
    pytest.importorskip("confluent_kafka")
    with pytest.raises(InvalidParameter, match=words) as refusal:
        list(KafkaSource(location, COLUMNS).batches())
    assert "xyzzy" not in str(refusal.value)


def test_secrets_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named in the address or by the environment; its lines reach the client, and no message."""
    from tidegate.servers.kafka import SETTINGS, TopicAddress

    (tmp_path / "client.properties").write_text("# ours\nsasl.username = ann\nsasl.password=xy=zzy\n")
    named = TopicAddress(f"kafka://host/topic?settings={tmp_path}/client.properties")
    monkeypatch.setenv(SETTINGS, f"{tmp_path}/client.properties")
    for address in (named, TopicAddress("kafka://host/topic")):
        found = address.settings(group_id="x")
        assert (found["sasl.password"], found["group.id"]) == ("xy=zzy", "x")
        assert "zzy" not in address.shown


def secured(kafka: Any, folder: Path, **changes: str) -> Path:
    """A file of settings for the listener with TLS and passwords."""
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": kafka.password,
        "ssl.ca.location": str(kafka.folder / "broker.crt"),
    } | {name.replace("_", "."): value for name, value in changes.items()}
    path = folder / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    return path


def test_tls_and_a_password(kafka: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From topic to topic by TLS, with a certificate of the test's own and a password out of a file."""
    topic, out = kafka.topic(), kafka.topic()
    kafka.send(topic, [(0, event(f"u{n}")) for n in range(5)])
    file = secured(kafka, tmp_path)
    place = f"kafka://127.0.0.1:{kafka.secure}"
    monkeypatch.setenv("TIDEGATE_KAFKA_SETTINGS", str(file))
    config = topical(tmp_path, f"{place}/{topic}", (f"{tmp_path}/out.csv", f"{place}/{out}"), COMPLETE)
    release(config)
    assert [round(json.loads(one.value())["values"]["north"]) for one in kafka.read(out)] == [5, 0]
    for kept in tmp_path.iterdir():
        assert kept == file or kafka.password.encode() not in kept.read_bytes()


@pytest.mark.parametrize(
    "changes",
    [
        {"sasl_password": "wrong-secret-3"},
        {"ssl_ca_location": "{folder}/other.crt"},
        {"security_protocol": "SASL_PLAINTEXT"},
    ],
    ids=["a wrong password", "another certificate", "no TLS"],
)
def test_whoever_is_not_trusted_is_not_read(
    kafka: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str]
) -> None:
    """One sentence, which names no secret."""
    monkeypatch.setattr(module, "ANSWER", 2.0)
    topic = kafka.topic()
    file = secured(kafka, tmp_path, **{n: v.format(folder=kafka.folder) for n, v in changes.items()})
    url = f"kafka://127.0.0.1:{kafka.secure}/{topic}?settings={file}"
    with (
        pytest.raises(SourceUnavailable, match="do not answer") as refusal,
        open_source(url, COLUMNS) as source,
    ):
        source.check()  # type: ignore[attr-defined]
    assert "secret" not in str(refusal.value)
    assert kafka.password not in str(refusal.value)


def test_what_a_guarantee_assumes_of_a_topic(tmp_path: Path) -> None:
    """An open transaction hides what stands behind it; for tables it is the sequence of the keys."""
    (said,) = topical(tmp_path, "kafka://one/events").assumptions
    assert "transaction.max.timeout.ms" in said
    (said,) = topical(tmp_path, "postgresql://ann@host/db?table=events").assumptions
    assert "sequence" in said


def test_a_topic_that_is_not_there(kafka: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence, finite or followed; brokers that are not there refuse finite input."""
    monkeypatch.setattr(module, "ANSWER", 2.0)
    for follow in (False, True):
        with (
            pytest.raises(SourceUnavailable, match="is not there"),
            open_source(kafka.url("nowhere"), COLUMNS, follow=follow) as source,
        ):
            next(iter(source.batches()))
    with pytest.raises(SourceUnavailable, match="do not answer"):
        list(KafkaSource("kafka://127.0.0.1:9/topic", COLUMNS).batches())


# releases -------------------------------------------------------------------------------------------------------


TIDE = ('name = "Uniform"', 'name = "Tide"\ndelay = 4')


def into(folder: Path, url: str, *changes: tuple[str, str]) -> Config:
    """The usual stream with a topic as its sink."""
    return settings(folder, (f"{folder}/out.csv", url), *changes)


def seen(messages: list[Any]) -> list[tuple[int, int]]:
    """Step and revision of each record, as its headers say."""
    found = []
    for message in messages:
        headers = {name: value.decode() for name, value in message.headers()}
        body = json.loads(message.value())
        assert int(headers["step"]) == body["step"]
        assert body["id"] == f"{headers['stream']}-{headers['step']}.{headers['revision']}"
        assert message.key().decode() == f"{headers['stream']}-{headers['step']}"
        found.append((int(headers["step"]), int(headers["revision"])))
    return found


def test_a_topic_has_each_release_once_and_in_order(kafka: Any, tmp_path: Path) -> None:
    """Key, headers and JSON; a second start adds nothing, and a longer stream continues after the last."""
    topic = kafka.topic()
    config = into(tmp_path, kafka.url(topic), TIDE, ("count = 12", "count = 8"))
    stream = release(config, finished=False)
    first = kafka.read(topic)
    assert len(first) == stream.releases > 8
    assert dict(first[0].headers())["guarantee"] == config.fingerprint.encode()
    release(config, finished=False)
    assert len(kafka.read(topic)) == len(first)
    longer = release(into(tmp_path, kafka.url(topic), TIDE))
    found = seen(kafka.read(topic))
    assert len(found) == len(set(found)) == longer.releases
    assert main(["check", str(config.path)]) == 0


@pytest.mark.parametrize(
    "headers",
    [
        None,
        {"stream": None},
        {"number": b"7"},
        {"number": b"seven", "step": b"1"},
        {"number": b"9" * 5000, "step": b"1", "revision": b"0"},
        {"number": b"3", "step": b""},
    ],
)
def test_records_of_others_in_a_topic_are_passed_over(
    kafka: Any, tmp_path: Path, headers: dict[str, bytes | None] | None
) -> None:
    """Anybody may write to a topic, also under the name of the stream: a start continues after the last release."""
    library = pytest.importorskip("confluent_kafka")
    topic = kafka.topic()
    config = into(tmp_path, kafka.url(topic), ("count = 12", "count = 8"))
    release(config)
    name = dict(kafka.read(topic)[0].headers())["stream"]
    given = None if headers is None else {"stream": name, **headers}
    producer = library.Producer({"bootstrap.servers": kafka.url(topic).split("/")[2]})
    producer.produce(topic, b"hello", partition=0, headers=given)
    assert producer.flush(60) == 0
    longer = release(into(tmp_path, kafka.url(topic)))
    assert longer.releases == 12
    found = [dict(message.headers() or ()) for message in kafka.read(topic)]
    assert [each["number"] for each in found if "guarantee" in each] == [b"%d" % at for at in range(1, 13)]


def test_a_zombie_is_fenced(kafka: Any, tmp_path: Path) -> None:
    """Whoever starts last writes: the one before is refused, and nothing of it is ever seen."""
    topic = kafka.topic()
    config = into(tmp_path, kafka.url(topic))
    with open_one(config) as stream:
        intake = config.open(None)
        sink: Any = next(state.sink for _, state in stream.states)
        other = KafkaSink(kafka.url(topic), sink._layout)
        assert other.resume(0, None) == 0
        with pytest.raises(SinkError, match="taken over"):
            stream.drive(intake)
        intake.close()
        other.close()
    assert kafka.read(topic) == []
    release(config)
    assert [step for step, _ in seen(kafka.read(topic))] == list(range(1, 13))


def test_a_broker_that_goes_away_gets_everything_later(
    kafka: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream continues without it; each release is there once in the end."""
    monkeypatch.setattr(sink_module, "PATIENCE", 2.0)
    topic = kafka.topic()
    config = into(tmp_path, kafka.url(topic))
    with open_one(config) as stream:
        intake = config.open(None)
        kafka.stop()
        try:
            stream.drive(intake)
            assert stream.behind
        finally:
            intake.close()
            kafka.start()
        monkeypatch.setattr(sink_module, "PATIENCE", 10.0)
        stream.finish()
        assert not stream.behind
    assert [step for step, _ in seen(kafka.read(topic))] == list(range(1, 13))


def test_sinks_that_cannot_be_used_are_one_sentence(kafka: Any, tmp_path: Path) -> None:
    """No topic of that name, a partition that is not there, a password in the address."""
    for location, words in (
        (kafka.url("nowhere"), "is not there"),
        (kafka.url(kafka.topic()) + "?partition=7", "is not there"),
        (kafka.url("x") + "?partition=one", "a number"),
        ("kafka://ann:xyzzy@127.0.0.1:1/topic", "password"),
        ("kafka://ann@127.0.0.1:1/topic", "without user and password"),
    ):
        with pytest.raises(TidegateError, match=words) as refusal:
            open_one(into(tmp_path, location))
        assert "xyzzy" not in str(refusal.value)


def test_killed_while_it_sends(kafka: Any, starter: Any, tmp_path: Path) -> None:
    """20 kills of Tidegate and 3 of the broker: a careful reader sees each release once, in order, as it was stored."""
    topic = kafka.topic()
    (tmp_path / "events.csv").write_text("time,unit,place\n2026-03-02T00:10,walrus1,north\n")
    kills = int(os.environ.get("TIDEGATE_KILLS", "20"))
    steps, chance = 200 * kills, random.Random(4)
    config = into(tmp_path, kafka.url(topic), TIDE, ("count = 12", f"count = {steps}"), ('"1h"', '"1min"'))
    crashes = set(chance.sample(range(kills), max(3, kills // 10)))
    for kill in range(kills):
        if kill in crashes:
            away, moment = chance.uniform(0.0, 0.5), chance.uniform(0.0, 2.0)
            assert starter.start_while(kafka, config.path, size=5, seconds=moment, away=away)
        else:
            assert starter.start(config.path, size=5, seconds=chance.uniform(0.0, 0.2))
    stream = release(config)
    with open_one(config) as again:
        sink: Any = next(state.sink for _, state in again.states)
        chunks = [chunk for released in again.released.values() for chunk in released.chunks()]
    stored = [(int(step), int(n)) for one in chunks for step, n in zip(one.step, one.revision, strict=True)]
    messages = kafka.read(topic)
    assert seen(messages) == stored
    assert [message.value() + b"\n" for message in messages] == [
        line for one in chunks for line in sink._layout.objects(one)
    ]
    assert len(stored) == stream.releases > steps
    assert verified(config.ledger).ok


def test_killed_at_random_every_record_counts_once(kafka: Any, starter: Any, tmp_path: Path) -> None:
    """20 kills of Tidegate and 3 of the broker while records arrive: counted once, no window over its budget."""
    topic = kafka.topic(3)
    kills = int(os.environ.get("TIDEGATE_KILLS", "20"))
    crashes = set(random.Random(5).sample(range(kills), max(3, kills // 10)))
    config = topical(tmp_path, kafka.url(topic))
    clock = tmp_path / "clock"
    clock.write_text(str(START + 5.0))
    chance, sent = random.Random(9), [0, 0]
    for kill in range(kills):
        step = int(kill >= kills // 2)
        if kill == kills // 2:
            clock.write_text(str(START + 1005.0))
        count = chance.randint(1, 200)
        kafka.send(topic, [(n % 2, event(f"u{n % 7}", 1000 * step + 1 + n / 100)) for n in range(count)])
        sent[step] += count
        order = {"follow": True, "clock": str(clock)}
        if kill in crashes:
            away, moment = chance.uniform(0.0, 0.5), chance.uniform(0.0, 2.0)
            assert starter.start_while(kafka, config.path, seconds=moment, away=away, **order)
        else:
            assert starter.start(config.path, seconds=chance.uniform(0.0, 0.4), **order)
    clock.write_text(str(START + 2001.0))
    assert not starter.start(config.path, follow=True, clock=str(clock))
    assert released(tmp_path) == sent
    assert verified(config.ledger).ok
