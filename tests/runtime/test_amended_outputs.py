"""Streams that are amended, restored or begun twice, for every kind of sink: no budget is spent twice unnoticed."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.runtime.helpers import TEXT, release, settings, write_events

from tidegate.config import Config, read_queries
from tidegate.core.errors import LogMismatch
from tidegate.errors import InvalidParameter, TidegateError
from tidegate.pipeline import open_pipeline
from tidegate.pipeline.amend import amend
from tidegate.pipeline.backup import back_up, restore
from tidegate.pipeline.log_heads import check_heads, head_of, read_head
from tidegate.pipeline.logs import rows_of
from tidegate.pipeline.receipts import LogIsOlder, parsed
from tidegate.sinks.errors import AnotherStream
from tiers import slow

FILES = ["out.csv", "out.jsonl", "out.parquet", "parts/", "parts"]
SINKS = [*FILES, "-", *slow("broker", "table", "topic")]
TWICE = ('epsilon = "1"', 'epsilon = "2"')
Request = pytest.FixtureRequest


class Place:
    """A sink of some kind, and what it has."""

    def __init__(self, kind: str, folder: Path, request: Request) -> None:
        self.kind, self.folder = kind, folder
        self.server: Any = None
        if kind == "broker":
            self.server = request.getfixturevalue("broker")
            self.server.start()
            self.location = f"{self.server.url}/released"
        elif kind == "table":
            self.server = request.getfixturevalue("database")
            self.location = self.server.url()
        elif kind == "topic":
            self.server = request.getfixturevalue("kafka")
            self.topic = self.server.topic()
            self.location = self.server.url(self.topic)
        else:
            self.location = kind if kind == "-" else f"{folder}/{kind}"
        if kind == "parts":  # a folder by what it is, not by its name
            (folder / kind).mkdir()

    def config(self, *changes: tuple[str, str], steps: int = 12) -> Config:
        """The usual stream into this sink."""
        return settings(
            self.folder,
            (f"{self.folder}/out.csv", self.location),
            ("count = 12", f"count = {steps}"),
            *changes,
        )

    @property
    def receipt(self) -> Path:
        """The receipt of what the stream was first released to."""
        if self.kind in FILES:
            return self.folder / f"{self.kind.rstrip('/')}.receipt"
        return self.folder / "tidegate.ledger.receipt"

    def steps(self) -> list[int] | None:
        """The steps that are there, each as often as it is; None where nobody keeps them."""
        if self.kind == "table":
            return [
                step for (step,) in self.server.sql("SELECT step FROM released WHERE \"column\" = 'north'")
            ]
        if self.kind == "topic":
            return [json.loads(message.value())["step"] for message in self.server.read(self.topic)]
        if self.kind in ("-", "broker"):
            return None
        found = []
        for path in self.folder.rglob("*"):
            if path.suffix == ".csv" and path.name != "events.csv":
                found += pl.read_csv(path)["step"].to_list()
            elif path.suffix == ".jsonl":
                found += pl.read_ndjson(path)["step"].to_list()
            elif path.suffix == ".parquet":
                found += pl.read_parquet(path)["step"].to_list()
        return found


@pytest.fixture(params=SINKS)
def place(request: Request, tmp_path: Path) -> Place:
    """Each kind of sink."""
    return Place(request.param, tmp_path, request)


def ledger_of(folder: Path) -> Path:
    """Where the ledger lies."""
    return folder / "tidegate.ledger"


def lose(folder: Path, *, receipts: bool = False) -> Path:
    """Let the ledger be lost, with what lies beside it if that is wanted."""
    lost = folder / f"lost-{len(list(folder.glob('lost-*')))}"
    lost.mkdir()
    for path in folder.glob("tidegate.ledger*"):
        if receipts or path.suffix != ".receipt":
            path.rename(lost / path.name)
    return lost


def amended(place: Place, *changes: tuple[str, str], steps: int = 12) -> Config:
    """Amend the stream, and give the configuration back."""
    config = place.config(*changes, steps=steps)
    amend(read_queries(config.path))
    return config


def test_an_amended_stream_goes_on_in_every_sink(place: Place) -> None:
    """Every step is there once, also after further starts and amendments, but for those that wait for a window."""
    release(place.config(steps=4))
    config = amended(place, TWICE, steps=8)
    for _ in range(2):
        assert release(config).step == 8
    config = amended(place, ('epsilon = "1"', 'epsilon = "3"'))
    for _ in range(2):
        assert release(config).step == 12
    assert place.steps() is None or sorted(place.steps() or []) == [1, 2, 3, 4, 8, 12]


def test_a_copy_from_before_an_amendment_is_refused(place: Place) -> None:
    """By the receipt of the output that was left: as a head, and by a start with the earlier configuration."""
    release(place.config(steps=4))
    copy = back_up(ledger_of(place.folder), place.folder / "copy.ledger").path
    config = amended(place, TWICE)
    release(config)
    with pytest.raises(LogIsOlder):
        check_heads(rows_of(copy), [read_head(str(place.receipt))], str(copy))
    later = back_up(ledger_of(place.folder), place.folder / "later.ledger").path
    head = read_head(str(place.receipt))
    check_heads(rows_of(ledger_of(place.folder)), [head], "the log")
    lose(place.folder)
    with pytest.raises(LogIsOlder):
        restore(copy, ledger_of(place.folder), [head])
    for heads in ([], [read_head(str(ledger_text(copy, place.folder)))]):
        restore(copy, ledger_of(place.folder), heads)
        with pytest.raises(LogIsOlder, match=r"does not have commit .* up to step 12"):
            release(place.config())
        config = amended(place, TWICE)
        with pytest.raises(LogIsOlder, match=r"does not have commit .* up to step 12"):
            release(config)
        lose(place.folder)
    restore(later, ledger_of(place.folder), [head])
    assert release(place.config(TWICE)).step == 12


def ledger_text(copy: Path, folder: Path) -> Path:
    """The head of a copy as somebody wrote it down, which says nothing about later rows."""
    file = folder / "head.json"
    file.write_text(json.dumps(head_of(rows_of(copy), str(copy))))
    return file


def test_an_older_copy_is_not_amended(place: Place) -> None:
    """A copy must be opened first, which the receipt refuses, also where it is missing."""
    release(place.config(steps=4))
    copy = back_up(ledger_of(place.folder), place.folder / "copy.ledger").path
    release(place.config(steps=8))
    lose(place.folder)
    restore(copy, ledger_of(place.folder))
    with pytest.raises(LogMismatch, match="copy"):
        amended(place, TWICE)
    with pytest.raises(LogIsOlder, match=r"does not have commit .* up to step 8"):
        release(place.config(steps=8))
    receipt = place.receipt.rename(place.folder / "kept")
    with pytest.raises(LogIsOlder, match="is missing"):
        release(place.config(steps=8))
    receipt.rename(place.receipt)
    with pytest.raises(LogIsOlder):
        release(place.config(steps=8))


def test_what_was_left_for_another_location_follows(tmp_path: Path) -> None:
    """Without any amendment: the receipt of an earlier output knows what was released to another one since."""
    release(settings(tmp_path, ("count = 12", "count = 4")))
    copy = back_up(ledger_of(tmp_path), tmp_path / "copy.ledger").path
    release(settings(tmp_path, ("out.csv", "other.csv")))
    lose(tmp_path)
    with pytest.raises(LogIsOlder):
        restore(copy, ledger_of(tmp_path), [read_head(str(tmp_path / "out.csv.receipt"))])
    shutil.copy(copy, ledger_of(tmp_path))
    with pytest.raises(LogIsOlder, match=r"does not have commit .* up to step 12"):
        release(settings(tmp_path))


def test_the_largest_promise_is_what_a_second_stream_adds_to(tmp_path: Path) -> None:
    """Never the one that the stream was begun with, where windows were promised more since."""
    release(settings(tmp_path, ("count = 12", "count = 4")))
    for epsilon, steps in (("2", 8), ("1/2", 12)):
        config = settings(
            tmp_path, ('epsilon = "1"', f'epsilon = "{epsilon}"'), ("count = 12", f"count = {steps}")
        )
        amend(read_queries(config.path))
        release(config)
    receipts = sorted(path for path in tmp_path.glob("*.receipt"))
    assert len(receipts) == 3
    for path in receipts:
        found = parsed(path.read_bytes())
        assert found is not None
        assert (found.origin.kind, found.origin.total, found.written.step) == ("ε", "2", 12)
    lose(tmp_path)
    again = settings(tmp_path, TWICE)
    with pytest.raises(AnotherStream, match=r"both together cost ε = 4 "):
        release(again)
    assert release(again, new_stream=True).together.startswith("both together cost ε = 4 ")


def test_a_topic_knows_another_stream(kafka: Any, tmp_path: Path, request: Request) -> None:
    """A ledger that is lost with the receipt beside it: refused before anything is charged, until the flag is given."""
    place = Place("topic", tmp_path, request)
    release(place.config())
    lose(tmp_path, receipts=True)
    for _ in range(2):
        with pytest.raises(AnotherStream, match=r"releases of another stream.*--new-stream"):
            release(place.config())
    assert len(place.steps() or []) == 12
    assert not ledger_of(tmp_path).exists()
    assert release(place.config(), new_stream=True).step == 12
    assert release(place.config()).step == 12
    assert len(place.steps() or []) == 24


# several queries ------------------------------------------------------------------------------------------------


def several(place: Place, *names: str) -> Path:
    """The usual query under several names, with equal shares."""
    write_events(place.folder)
    text = TEXT.format(folder=place.folder).replace(f"{place.folder}/out.csv", place.location)
    begin, end = text.index("[query]"), text.index("[protect]")
    query = text[begin:end].replace("[query]", "[[query]]")
    every = "".join(f'{query}name = "{name}"\nshare = "1/{len(names)}"\n' for name in names)
    file = place.folder / "tidegate.toml"
    file.write_text(text[:begin] + every + text[end:])
    return file


def released(file: Path, *, new_stream: bool = False) -> str:
    """Release everything; returns what this stream and earlier ones cost together."""
    with open_pipeline(read_queries(file), new_stream=new_stream) as streams:
        with contextlib.closing(streams.queries.open(streams.position)) as intake:
            streams.drive(intake)
            streams.finish()
        return streams.together


MANY = ["out.csv", "parts/", *slow("table")]


@pytest.fixture(params=MANY)
def many(request: Request, tmp_path: Path) -> Place:
    """Each kind of sink that several queries have in one of its ways."""
    return Place(request.param, tmp_path, request)


def present(place: Place) -> dict[str, Any]:
    """Everything that a refused start must leave as it is."""
    found: dict[str, Any] = {
        str(path.relative_to(place.folder)): path.read_bytes()
        for path in place.folder.rglob("*")
        if path.is_file() and "lost" not in str(path.relative_to(place.folder)) and path.suffix != ".toml"
    }
    if place.kind == "table":
        names = [
            name
            for (name,) in place.server.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        ]
        found |= {
            name: sorted(place.server.sql(f"SELECT * FROM {name}"), key=repr)
            for name in names
            if not name.endswith("_stream")  # whose worker counts starts
        }
    return found


def published(found: dict[str, Any]) -> dict[str, Any]:
    """Without ledger and receipts, whose bytes change with every start."""
    return {
        name: value
        for name, value in found.items()
        if not name.startswith("tidegate.") and ".receipt" not in name
    }


@pytest.mark.slow
@pytest.mark.parametrize("receipts", [False, True], ids=["ledger lost", "ledger and receipts lost"])
@pytest.mark.parametrize("order", [("first", "second", "third"), ("third", "first", "second")])
def test_all_queries_begin_a_new_stream_together(many: Place, receipts: bool, order: tuple[str, ...]) -> None:
    """Also where one of them has no output yet; without the flag, or with a source that fails, nothing changes."""
    released(several(many, "first", "second"))
    lose(many.folder, receipts=receipts)
    for path in many.folder.rglob("*.receipt") if receipts else ():
        path.unlink()
    file, before = several(many, *order), present(many)
    for _ in range(2):
        with pytest.raises(TidegateError):
            released(file)
        assert present(many) == before
    text = file.read_text()
    file.write_text(text.replace("events.csv", "nowhere.csv"))
    with pytest.raises(TidegateError):
        released(file, new_stream=True)
    assert present(many) == before
    file.write_text(text)
    together = released(file, new_stream=True)
    assert receipts or together.startswith("both together cost ε = 2")
    now = present(many)
    if many.kind == "table":
        assert now["released_earlier_1"] == before["released"]
        assert "released_earlier_2" not in now
        assert len(now["released"]) == 3 * 24
    else:
        assert set(published(before).values()) <= set(now.values())
    assert released(file) == together
    with pytest.raises(InvalidParameter, match="new-stream"):
        released(file, new_stream=True)
    assert published(present(many)) == published(now)


def test_one_query_of_several_is_amended(many: Place) -> None:
    """The other continues, and both have every step once, but for those that wait for a window."""
    file = several(many, "first", "second")
    text = file.read_text()
    file.write_text(text.replace("count = 12", "count = 4"))
    released(file)
    file.write_text(text.replace('share = "1/2"', 'share = "1/4"', 1))
    amend(read_queries(file))
    for _ in range(2):
        released(file)
    found = many.steps() or []
    assert sorted(found) == sorted([*range(1, 13), *range(1, 5), *range(8, 13)])
