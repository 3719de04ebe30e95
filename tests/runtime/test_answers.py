"""[[answer]] in a file: what is written, after crashes as well, and what is refused."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.pipeline import streams
from tests.runtime.helpers import settings
from tests.runtime.shop import shop

from tidegate.config import Config, ConfigError, parse_config
from tidegate.config.document import EXAMPLE, SEVERAL
from tidegate.config.queries import one, parse_queries, read_queries
from tidegate.core.mechanism import unit_of
from tidegate.errors import TidegateError
from tidegate.pipeline import Pipeline, open_pipeline, read_stream
from tidegate.pipeline.amend import amend
from tidegate.pipeline.outputs import answer_sinks, layout_of

WORKER = Path(__file__).with_name("killed_worker.py")
QUESTIONS = """
[[answer]]
name = "four"
kind = "window"
window = "4h"

[[answer]]
name = "day"
kind = "window"
window = "calendar day"
statistic = "mean"

[[answer]]
name = "jump"
kind = "jump"
threshold = 5

[[answer]]
name = "low"
kind = "low"
window = 3
threshold = "10"

[[answer]]
name = "alarm"
kind = "alarm"
threshold = 4
columns = ["north"]

[[answer]]
name = "average"
kind = "average"

[[answer]]
name = "decayed"
kind = "decayed"
half_life = "2h"
location = "decayed.jsonl"

[[answer]]
name = "smooth"
kind = "smooth"
window = 3

[[answer]]
name = "forecast"
kind = "forecast"
ahead = 3
every = 6

[[answer]]
name = "ratio"
kind = "ratio"
of = "north"
by = "south"
window = 6

[[answer]]
name = "top"
kind = "top"
count = 1
"""


def asked(folder: Path, *changes: tuple[str, str]) -> Config:
    """A stream with all kinds of answers."""
    return settings(folder, ('[protect]\nepsilon = "1"', f'{QUESTIONS}\n[protect]\nepsilon = "1"'), *changes)


def rows(path: Path) -> pl.DataFrame:
    """The lines of an answer."""
    return pl.read_ndjson(path) if path.suffix == ".jsonl" else pl.read_csv(path, infer_schema_length=None)


def release(config: Config) -> Pipeline:
    """Release everything; returns the closed stream."""
    return streams.release(one(config))


def released(file: Path) -> None:
    """Release what a file says."""
    streams.release(read_queries(file))


def assert_answers_are_those_of_the_log(config: Config) -> None:
    """Asked again from the committed releases one by one, every file comes out byte for byte."""
    with read_stream(one(config)) as stream:
        (found,) = stream.released.values()
        moved = tuple(
            replace(answer, location=f"again-{Path(answer.location).name}") for answer in config.answers
        )
        part = replace(found.config, answers=moved)
        layout = layout_of(part, 0, "", unit_of(found.mechanism), revised=part.mechanism.revises)
        for sink, answer in zip(answer_sinks(part, layout, {}, {}), config.answers, strict=True):
            assert sink.path is not None
            sink.resume(0, None)
            for chunk in found.chunks():
                for at in range(len(chunk)):
                    sink.write(chunk[at : at + 1])
            sink.close()
            again = sink.path.read_bytes()
            assert again == Path(config.locate(answer.location)).read_bytes(), answer.name
            sink.path.unlink()


def test_every_kind_is_answered_from_what_was_released(tmp_path: Path) -> None:
    """Compared with the released values; the account is that of a stream without answers."""
    config = asked(tmp_path, ('epsilon = "1"', 'epsilon = "50"'))
    release(config)
    with read_stream(one(config)) as stream:
        assert stream.step == 12
        values = np.concatenate([chunk.values for chunk in stream.released["query"].chunks()])
    four = rows(tmp_path / "four.csv").filter(pl.col("column") == "south")
    expected = [values[max(0, t - 4) : t, 1].sum() for t in range(1, 13)]
    assert four["value"].to_numpy() == pytest.approx(np.array(expected), abs=0.06)
    assert (four["low"] <= four["value"]).all()
    day = rows(tmp_path / "day.csv").filter(pl.col("column") == "north")
    assert day["part"].to_list() == [round(t / 24, 6) for t in range(1, 13)]
    assert day["value"][-1] == pytest.approx(values[:, 0].mean(), abs=0.06)
    assert rows(tmp_path / "average.csv")["value"][-1] == pytest.approx(values[:, 1].mean(), abs=0.06)
    assert rows(tmp_path / "jump.csv").height == 22
    assert rows(tmp_path / "smooth.csv")["value"][-1] == pytest.approx(values[-3:, 1].mean(), abs=0.06)
    assert (
        rows(tmp_path / "low.csv").filter(pl.col("column") == "south")["certain"].to_list()
        == [False] * 2 + [True] * 10
    )
    assert set(rows(tmp_path / "alarm.csv")["column"]) == {"north"}
    assert rows(tmp_path / "decayed.jsonl").height == 24
    forecast = rows(tmp_path / "forecast.csv")
    assert forecast["step"].unique().to_list() == [6, 12]
    assert forecast["time"][-1] == "2026-03-02T14:00:00+01:00"
    assert rows(tmp_path / "ratio.csv")["column"].unique().to_list() == ["north / south"]
    assert rows(tmp_path / "top.csv")["column"].to_list() == ["north"] * 12
    assert_answers_are_those_of_the_log(config)


@pytest.mark.parametrize("name", ["Tide", "OptStream", "BinaryTree", "Sample", "PeGaSus"])
def test_every_sort_of_mechanism_can_be_asked(name: str, tmp_path: Path) -> None:
    """Also those that revise, repeat, smooth or release sums."""
    changes = [('name = "Uniform"', f'name = "{name}"')]
    if name == "BinaryTree":  # running sums are no stream of steps to forecast
        changes.append(('kind = "forecast"\nahead = 3\nevery = 6', 'kind = "average"'))
    config = asked(tmp_path, *changes)
    release(config)
    assert rows(tmp_path / "four.csv")["step"].unique().to_list() == list(range(1, 13))
    assert_answers_are_those_of_the_log(config)


@pytest.mark.slow
def test_answers_survive_kills(tmp_path: Path) -> None:
    """Killed three times on the way: each answer is there once, and as one that was asked afterwards."""
    from tests.runtime.test_follow import live

    before = '[protect]\nepsilon = "1"'
    live(tmp_path, ("count = 12", "count = 10"), (before, f"{QUESTIONS}\n{before}"))
    for last in (2, 5, 9):
        code = subprocess.run([sys.executable, str(WORKER), str(tmp_path), str(last)], timeout=120).returncode
        assert code == -signal.SIGKILL
        with (tmp_path / "four.csv").open("a") as file:  # the end of a line that was being written
            file.write("2026")
        (tmp_path / "four.csv").write_text((tmp_path / "four.csv").read_text()[:-4])
    assert subprocess.run([sys.executable, str(WORKER), str(tmp_path), "0"], timeout=120).returncode == 0
    path = tmp_path / "tidegate.toml"
    config = parse_config(path.read_text(), path)
    assert rows(tmp_path / "four.csv")["step"].to_list() == [step for step in range(1, 11) for _ in range(2)]
    assert_answers_are_those_of_the_log(config)


def test_an_answer_may_be_added_changed_and_dropped(tmp_path: Path) -> None:
    """At any start, for no budget; what was published is set aside and not overwritten."""
    release(settings(tmp_path))
    ledger = (tmp_path / "tidegate.ledger").stat().st_size
    config = asked(tmp_path)
    release(config)
    assert rows(tmp_path / "four.csv").height == 24
    first = (tmp_path / "four.csv").read_bytes()
    release(asked(tmp_path, ('window = "4h"', 'window = "5h"')))
    assert (tmp_path / "four.earlier-1.csv").read_bytes() == first
    changed = (tmp_path / "four.csv").read_bytes()
    assert changed != first
    assert changed.splitlines()[:9] == first.splitlines()[:9]  # as long as both windows are not full
    release(settings(tmp_path))
    assert (tmp_path / "four.csv").read_bytes() == changed
    assert (tmp_path / "tidegate.ledger").stat().st_size >= ledger


def test_a_file_of_somebody_else_is_refused_and_nothing_is_charged(tmp_path: Path) -> None:
    """Before the stream has begun, and afterwards if it does not even begin like an answer."""
    (tmp_path / "four.csv").write_text("my notes\n")
    config = asked(tmp_path)
    with pytest.raises(TidegateError, match=r"four\.csv"):
        release(config)
    assert not (tmp_path / "tidegate.ledger").exists()
    assert not (tmp_path / "out.csv").exists()
    assert not (tmp_path / "day.csv").exists()
    assert (tmp_path / "four.csv").read_text() == "my notes\n"
    (tmp_path / "four.csv").unlink()
    release(config)
    (tmp_path / "four.csv").write_text("my notes\n")
    with pytest.raises(TidegateError, match=r"four\.csv"):
        open_pipeline(one(config))


def test_a_file_that_a_killed_start_has_begun_is_taken_up(tmp_path: Path) -> None:
    """Its header, or a part of it, stands there before anything was released; a byte more is somebody else's."""
    config = asked(tmp_path)
    (tmp_path / "four.csv").write_text("time,step,col")
    release(config)
    assert rows(tmp_path / "four.csv").height == 24
    other = tmp_path / "other"
    other.mkdir()
    (other / "four.csv").write_text("time,step,colour")
    with pytest.raises(TidegateError, match=r"four\.csv"):
        release(asked(other))


@pytest.mark.parametrize(
    ("lines", "key", "words"),
    [
        ('name = "x"\nkind = "windows"', "kind", "did you mean 'window'"),
        ('name = "x"\nkind = "window"', "[[answer]]", "given for kind window"),
        ('name = "x"\nkind = "window"\nwindow = "90min"', "window =", "whole number of steps"),
        ('name = "x"\nkind = "window"\nwindow = 3\nthreshold = 4', "threshold", "no key of kind window"),
        ('name = "x"\nkind = "share"', "[[answer]]", 'write for example of = "other"'),
        ('name = "x"\nkind = "share"\nof = "Attic"', "of", "one of Library, Cafeteria"),
        ('name = "x"\nkind = "unexpected"\nthreshold = 4', "threshold", "has columns, direction"),
        ('name = "x"\nkind = "jump"\nthreshold = 0.5', "threshold", 'write threshold = "0.5"'),
        ('name = "x"\nkind = "average"\ncolumns = ["Attic"]', "columns", "one of Library, Cafeteria"),
        ('name = "x"\nkind = "top"\ncount = 9', "count", "at most 2"),
        ('name = "x"\nkind = "ratio"\nof = "Library"\nby = "Library"', "by", "another column than of"),
        ('name = "x"\nkind = "average"\nquery = "orders"', "query", "drop the key query"),
        ('name = "x"\nkind = "average"\nlocation = "released.csv"', "location", "a file of its own"),
        ('name = "x"\nkind = "average"\nlocation = "x.parquet"', "location", ".csv or .jsonl"),
        ('name = "../x"\nkind = "average"', "name", "no name"),
    ],
)
def test_a_mistake_is_named_with_its_line(lines: str, key: str, words: str) -> None:
    """The line is that of the answer with the mistake, not of the one before it."""
    first = '[[answer]]\nname = "first"\nkind = "average"\n'
    text = EXAMPLE + "\n" + first + "\n[[answer]]\n" + lines + "\n"
    with pytest.raises(ConfigError) as refused:
        parse_config(text)
    assert words in str(refused.value)
    numbers = [number for number, line in enumerate(text.splitlines(), 1) if key in line]
    assert refused.value.line == numbers[-1]


def test_each_of_several_queries_is_asked_its_own() -> None:
    """By its name; without one, or with a wrong one, it is refused."""
    text = SEVERAL + '\n[[answer]]\nname = "week"\nkind = "window"\nwindow = 168\nquery = "revenue"\n'
    found = parse_queries(text)
    assert [len(part.answers) for part in found.parts] == [0, 0, 1]
    for wrong in ("", 'query = "orderz"'):
        with pytest.raises(ConfigError, match="which one is asked, orders, customers, revenue"):
            parse_queries(text.replace('query = "revenue"', wrong))


def test_releases_that_answers_are_made_from_are_not_archived(tmp_path: Path) -> None:
    """One sentence."""
    config = asked(tmp_path)
    release(config)
    with open_pipeline(one(config)) as pipeline, pytest.raises(TidegateError, match="outputs that only grow"):
        pipeline.archive()


RECEIPT = """
[[answer]]
name = "receipt"
kind = "ratio"
query = "revenue"
by_query = "orders"
{window}
"""


def latest_words(folder: Path, name: str, before: int) -> np.ndarray:
    """What a query had said about each step when it first released one: its rows up to there, the last of each step."""
    found = rows(folder / f"released-{name}.csv")
    first = found["step"].to_list().index(before)
    known = dict(zip(found["step"][: first + 1], found["all"][: first + 1], strict=True))
    return np.array([known[step] for step in range(1, before + 1)])


@pytest.mark.parametrize("revising", ["", "orders", "revenue"])
def test_one_query_is_divided_by_another(revising: str, tmp_path: Path) -> None:
    """Released values over released values of the same steps, with what each had said by then; revisions count later."""
    file = shop(tmp_path, 40)
    text = file.read_text().replace('epsilon = "1"', 'epsilon = "400"') + RECEIPT.format(window="window = 6")
    if revising:
        text = text.replace(f'name = "{revising}"', f'name = "{revising}"\nmechanism = "OptStream"', 1)
    text = text.replace('location = "released.csv"', 'location = "released.csv"\nrevisions = "all"')
    for count in (
        (40,) if revising else (8, 16, 24, 40)
    ):  # the end of a stream that is revised is its last word
        file.write_text(text.replace("count = 40", f"count = {count}"))
        released(file)
    found = rows(tmp_path / "receipt.csv").filter(pl.col("value").is_not_null())
    assert found.height > 20
    assert set(found["column"]) == {"revenue / orders"}
    for step, value in zip(found["step"], found["value"], strict=True):
        revenue, orders = (latest_words(tmp_path, name, step)[-6:].sum() for name in ("revenue", "orders"))
        assert value == pytest.approx(revenue / orders, rel=0.02)
    if not revising:
        assert (found["low"] < found["value"]).all()
        assert (found["high"] > found["value"]).all()
    again = (tmp_path / "receipt.csv").read_bytes()
    (tmp_path / "receipt.csv").unlink()
    with open_pipeline(read_queries(file)):  # asked again from the first release on, in other blocks
        pass
    assert (tmp_path / "receipt.csv").read_bytes() == again


def test_a_ratio_of_two_queries_begins_with_the_later_one(tmp_path: Path) -> None:
    """After an amendment both windows are about the same steps, and what was answered before stays."""
    file = shop(tmp_path, 20)
    file.write_text(
        file.read_text().replace('epsilon = "1"', 'epsilon = "400"') + RECEIPT.format(window="window = 6")
    )
    released(file)
    before = (tmp_path / "receipt.csv").read_bytes()
    changed = file.read_text().replace("count = 20", "count = 40").replace("most = 2", "most = 3")
    file.write_text(changed)
    amend(read_queries(file))
    released(file)
    assert (tmp_path / "receipt.csv").read_bytes() == before
    found = rows(tmp_path / "receipt.from-28.csv")  # until then windows hold what the ended query has read
    assert found["step"].to_list() == list(range(28, 41))
    revenue = rows(tmp_path / "released-revenue.csv")["all"].to_numpy()[27:]
    orders = rows(tmp_path / "released-orders.from-28.csv")["all"].to_numpy()
    for step, value in enumerate(found["value"], 1):
        last = slice(max(0, step - 6), step)
        assert value == pytest.approx(revenue[last].sum() / orders[last].sum(), rel=0.02)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('by_query = "orderz"', "one of orders, customers, revenue"),
        ('by_query = "orders"\nby = "most"', "one of all"),
        ("", "another column than of"),
        ('by_query = "customers"', "divide over a window"),
        ('by_query = "customers"\nwindow = "90min"', "whole number of steps"),
    ],
)
def test_two_queries_that_cannot_be_divided_are_refused(lines: str, words: str) -> None:
    """Unknown names, and numbers that are about different steps."""
    text = SEVERAL.replace('name = "customers"', 'name = "customers"\nmechanism = "BinaryTree"')
    text += '\n[[answer]]\nname = "x"\nkind = "ratio"\nquery = "revenue"\n' + lines
    text = text.replace("window = 24", 'policy = "event"', 1)
    with pytest.raises(ConfigError, match=words):
        parse_queries(text)
