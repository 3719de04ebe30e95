"""Parameters chosen from data: right where there are many units, charged once, and never more than the price says."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from tidegate.cli import main
from tidegate.cli.tune import measured
from tidegate.config import parse_config, read_config
from tidegate.config.queries import read_queries
from tidegate.config.tuning import read_traits, set_key, shapes, tuning
from tidegate.core.commit import OPENED, PUSHED
from tidegate.ingest.tuning import ladder
from tidegate.pipeline.logs import rows_of

START = "2026-03-02T00:00"
TEXT = """
[source]
location = "{folder}/events.csv"
time = "time"
unit = "unit"
column = "place"
value = "value"

[steps]
start = "2026-03-02T00:00"
length = "1h"
count = 48

[query]
aggregate = "{aggregate}"
{columns}
{bounds}

[protect]
epsilon = "1"
window = 24

[mechanism]
name = "auto"

[sink]
location = "{folder}/out.csv"
"""


def shop(folder: Path, aggregate: str = "sum", units: int = 4_000, loud: int = 0, **more: str) -> Path:
    """Receipts of customers: most come once in an hour, one in ten three times; 98 % spend below 50, the rest 900."""
    rng = np.random.default_rng(7)
    lines = ["time,unit,place,value"]
    for unit in range(units):
        hour, times = int(rng.integers(48)), 3 if unit % 10 == 0 else 1
        for _ in range(times):
            value = 900 if unit % 50 == 3 else round(float(rng.uniform(1, 49)), 2)
            lines.append(f"2026-03-{2 + hour // 24:02d}T{hour % 24:02d}:30,u{unit},north,{value}")
    lines += [f"2026-03-02T01:30,loud,north,{10**5 + n}" for n in range(loud)]
    (folder / "events.csv").write_text("\n".join(lines) + "\n")
    bounds = {"sum": 'clip = ["0", "1"]\ngrid = "0.01"', "histogram": "", "count": "most = 1  # a guess"}
    columns = 'edges = ["0", "10", "20", "30", "40"]' if aggregate == "histogram" else 'columns = ["north"]'
    text = TEXT.format(folder=folder, aggregate=aggregate, columns=columns, bounds=bounds[aggregate])
    if aggregate == "histogram":
        text = text.replace('column = "place"\n', "")
    file = folder / "tidegate.toml"
    file.write_text(text)
    return file


def tuned(file: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, dict[str, str]]:
    """The lines that a tuning chooses."""
    assert main(["tune", str(file), "--epsilon", "1", "--json", *more]) == 0
    found: dict[str, dict[str, str]] = json.loads(capsys.readouterr().out)["chosen"]
    return found


def test_bounds_of_a_sum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nine in ten come once, all within three; 98 % spend below 50: the lines say so, and the file can be released."""
    file = shop(tmp_path)
    found = tuned(file, capsys, "--write", "--keep", "0.95")
    assert found["query"] == {"most": "3", "clip": '["0", "50"]'}
    assert found["mechanism"] == {"level": "3000"}  # 4,800 receipts in 48 steps, of about 30
    config = read_config(file)
    assert (config.query.most, config.query.clip) == (3, (0, 50))
    assert config.about.chosen == "tuned with ε = 1"
    assert main(["release", str(file), "--report", str(tmp_path / "r.html")]) == 0
    assert "tuned with ε = 1" in (tmp_path / "r.html").read_text()


def test_most_of_a_count_and_edges_of_a_histogram(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A comment beside a key stays; edges have about equally many units between them."""
    file = shop(tmp_path, "count")
    assert tuned(file, capsys, "--write", "--keep", "0.8")["query"] == {"most": "1"}
    assert "most = 1  # a guess" in file.read_text()
    (tmp_path / "two").mkdir()
    edges = json.loads(tuned(shop(tmp_path / "two", "histogram"), capsys)["query"]["edges"])
    assert sorted(map(float, edges)) == list(map(float, edges))
    assert 2 <= len(edges) <= 5


def test_a_second_look_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The account is kept, and whoever takes it away takes a file away that says what it is."""
    file = shop(tmp_path)
    tuned(file, capsys)
    before = file.read_text()
    for other in (["--epsilon", "1/2"], ["--epsilon", "1", "--largest", "500"]):
        assert main(["tune", str(file), *other, "--write"]) == 2
        assert "tuned on before" in capsys.readouterr().err
    file.write_text(before.replace('aggregate = "sum"', 'aggregate = "mean"'))
    assert main(["tune", str(file), "--epsilon", "1"]) == 2
    assert "tuned on before" in capsys.readouterr().err
    assert main(["ledger", "verify", str(tmp_path / "tidegate.tuned.ledger")]) == 0


def test_the_same_command_again_is_free(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What `tune` advises works: with --write it chooses again from what was released, and looks at no record."""
    file = shop(tmp_path)
    first = tuned(file, capsys)
    (tmp_path / "events.csv").rename(tmp_path / "away.csv")  # without the data the choice is the same
    assert main(["tune", str(file), "--epsilon", "1", "--write"]) == 0
    assert "nothing more was spent" in capsys.readouterr().out
    assert read_config(file).query.clip == (0, 50)
    assert tuned(file, capsys) == first
    narrow = tuned(file, capsys, "--keep", "0.5")["query"]
    assert narrow["most"] == "1"
    assert [row.kind for row in rows_of(tmp_path / "tidegate.tuned.ledger")] == [OPENED, PUSHED]


@pytest.mark.parametrize("way", ["inline", "dotted"])
def test_lines_that_cannot_be_written_are_refused_before_anything_is_charged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """A second section [query] is no TOML: nothing is spent, and without --write the lines are shown."""
    file = shop(tmp_path)
    text = file.read_text()
    query = tomllib.loads(text)["query"]
    begin = text.index("[query]")
    rest = text[:begin] + text[text.index("\n[", begin) + 1 :]
    keys = [f"{name} = {json.dumps(value)}" for name, value in query.items()]
    lines = [f"query = {{{', '.join(keys)}}}"] if way == "inline" else [f"query.{key}" for key in keys]
    file.write_text("\n".join([*lines, rest]))
    assert main(["tune", str(file), "--epsilon", "1", "--write"]) == 2
    assert "leave --write out" in capsys.readouterr().err
    assert not (tmp_path / "tidegate.tuned.ledger").exists()
    assert tuned(file, capsys)["query"]["most"] == "3"


def test_lines_that_were_paid_for_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the disk refuses them."""
    file = shop(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    assert main(["tune", str(file), "--epsilon", "1", "--write"]) != 0
    assert "most = 3" in capsys.readouterr().out


def test_one_unit_changes_each_histogram_by_one(tmp_path: Path) -> None:
    """Whatever it sends: a thousand huge receipts move one cell of each part, which is what the noise is for."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    quiet = read_traits(read_config(shop(tmp_path / "a")), 1e6)
    loud = read_traits(read_config(shop(tmp_path / "b", loud=1_000)), 1e6)
    changes = [np.abs(one.cells() - other.cells()).sum() for one, other in zip(quiet, loud, strict=True)]
    assert changes == [1] * len(quiet)
    assert [one.ends for one in quiet] == [other.ends for other in loud]
    cells = sum(len(trait.ends) for trait in quiet)
    assert tuning(cells, "1/10", len(quiet)).scale == 10 * len(quiet)
    # one cell less and another one more, in each part
    replaced = tuning(cells, "1/10", len(quiet), "replace")
    assert replaced.scale == 20 * len(quiet)


def test_bad_fields_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A value that is no number or a time that is none is a missing one: no error tells of it."""
    file = shop(tmp_path)
    events = tmp_path / "events.csv"
    events.write_text(events.read_text() + "walrus,w,north,walrus\n2026-03-02T01:30,w2,north,walrus\n")
    assert "walrus" not in str(tuned(file, capsys))


def test_too_few_units_are_not_tuned_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Noise alone chooses nothing."""
    file = shop(tmp_path, units=30)
    before = file.read_text()
    assert main(["tune", str(file), "--epsilon", "1/10", "--write"]) == 2
    assert "too few units" in capsys.readouterr().err
    assert file.read_text() == before


@pytest.mark.parametrize("wrong", [["--keep", "1"], ["--largest", "0"], ["--epsilon", "x"]])
def test_bad_options_spend_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str]
) -> None:
    """One sentence, and no ledger."""
    file = shop(tmp_path, units=5)
    assert main(["tune", str(file), *wrong]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "tidegate.tuned.ledger").exists()


def test_keys_are_set_where_they_stand(tmp_path: Path) -> None:
    """Lists over several lines, keys that are absent, sections that are: the rest of the file stays as it was."""
    text = shop(tmp_path).read_text()
    text = text.replace('clip = ["0", "1"]', 'clip = [\n  "0",\n  "1",\n]')
    for section, name, value in (
        ("query", "clip", '["0", "7"]'),
        ("query", "most", "4"),
        ("about", "chosen", '"x"'),
    ):
        text = set_key(text, section, name, value)
    config = parse_config(text, tmp_path / "tidegate.toml")
    assert (config.query.clip, config.query.most, config.about.chosen) == ((0, 7), 4, "x")
    assert ladder(0.01, 3)[0] == 0.01


def several(folder: Path) -> Path:
    """The shop with two statistics, and how many values are clipped."""
    file = shop(folder)
    text = file.read_text()
    before, _, after = text.partition("[query]")
    after = after[after.index("[protect]") :]
    queries = """[[query]]
name = "visits"
aggregate = "count"

[[query]]
name = "spent"  # of each receipt
aggregate = "sum"
clip = ["0", "100"]
grid = "0.01"

[[query]]
name = "clipped"
aggregate = "histogram"
edges = ["0", "100"]
outside = "other"

"""
    file.write_text(before.replace('column = "place"\n', "") + queries + after)
    return file


def test_several_queries_are_chosen_from_one_look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One charge, with noise for a unit that is in every histogram; what counts clipped values follows the clip."""
    file = several(tmp_path)
    parts = shapes(read_queries(file), 1e6)
    assert [len(each.histograms) for each in parts] == [2, 4, 0]
    mechanism, released, again = measured(parts, "1", 1e6)
    assert (mechanism.policy.max_change, again, len(released)) == (6, False, mechanism.columns)
    rows = list(rows_of(file.with_suffix(".tuned.ledger")))
    assert [row.kind for row in rows if row.kind != OPENED] == [PUSHED]
    assert main(["tune", str(file), "--epsilon", "1", "--write"]) == 0
    said = capsys.readouterr().out
    assert len(said.splitlines()) <= 12
    assert "nothing more was spent" in said
    found = tomllib.loads(file.read_text())
    visits, spent, clipped = found["query"]
    assert (visits["name"], visits["most"], spent["most"]) == ("visits", 3, 3)
    assert spent["clip"] == clipped["edges"] == ["0", "50"]
    assert "# of each receipt" in file.read_text()
    assert {each.name for each in read_queries(file).parts} == {"visits", "spent", "clipped"}


def test_several_queries_need_a_file(tmp_path: Path) -> None:
    """Each reads the whole input, which standard input gives once; nothing is charged."""
    file = several(tmp_path)
    file.write_text(file.read_text().replace(f'"{tmp_path}/events.csv"', '"-"'))
    assert main(["tune", str(file)]) == 2
    assert not file.with_suffix(".tuned.ledger").exists()
