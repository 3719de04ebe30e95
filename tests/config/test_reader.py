from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from tidegate.config import ConfigError, parse_config, read_config
from tidegate.config.document import EXAMPLE
from tidegate.core.session import Session
from tidegate.mechanisms import catalogue
from tidegate.policy import Event, User, WEvent

EVENTS = """time,device,building
2026-03-02T00:10,1,Library
2026-03-02T00:20,1,Cafeteria
2026-03-02T00:30,2,Cafeteria
2026-03-02T01:00,2,Library
2026-03-02T01:00,2,Attic
"""


def changed(old: str, new: str) -> str:
    """The example with one change."""
    assert old in EXAMPLE
    return EXAMPLE.replace(old, new)


def line_of(text: str, part: str) -> int:
    """The number of the line that contains something."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


def test_without_columns_everything_counts(tmp_path: Path) -> None:
    """There is one column of all events; a column of categories without their public list is refused."""
    (tmp_path / "sightings.csv").write_text(EVENTS)
    text = changed('columns = ["Library", "Cafeteria"]\n', "")
    with pytest.raises(ConfigError, match=r'column = "building" needs the public list of its categories'):
        parse_config(text, tmp_path / "tidegate.toml")
    text = text.replace('column = "building"', "")
    blocks = list(parse_config(text, tmp_path / "tidegate.toml").open())
    assert [row for block in blocks for row in block.values.tolist()][:3] == [[2], [1], [0]]


def test_a_file_says_it_all(tmp_path: Path) -> None:
    """From the file to closed steps and a mechanism that takes them."""
    (tmp_path / "sightings.csv").write_text(EVENTS)
    path = tmp_path / "tidegate.toml"
    path.write_text(EXAMPLE)
    config = read_config(path)
    assert config.policy == WEvent(epsilon="1", window=24)
    assert config.ledger == str(tmp_path / "tidegate.ledger")
    assert config.sink.location == "released.csv"
    intake = config.open()
    session = Session(config.mechanism)
    blocks = list(intake)
    assert [row for block in blocks for row in block.values.tolist()][:3] == [[1, 1], [1, 0], [0, 0]]
    assert sum(len(session.push_batch(block.values).values) for block in blocks) == config.steps.count == 168


def test_the_fingerprint_knows_what_matters() -> None:
    """Another ε is another stream; another file name is not."""
    same = parse_config(changed("sightings.csv", "other.csv")).fingerprint
    assert parse_config(EXAMPLE).fingerprint == same
    assert parse_config(changed('epsilon = "1"', 'epsilon = "2"')).fingerprint != same
    assert parse_config(changed('length = "1h"', 'length = "2h"')).fingerprint != same
    assert parse_config(changed('"Cafeteria"]', '"Cafeteria", "Attic"]')).fingerprint != same


@pytest.mark.parametrize(
    ("old", "new", "part", "words"),
    [
        ("aggregate =", "agregate =", "agregate", "did you mean 'aggregate'"),
        ("[protect]", "[protection]", "[protection]", "did you mean 'protect'"),
        ('name = "auto"', 'name = "uniforn"', "uniforn", "did you mean 'Uniform'?"),
        ('name = "auto"', 'name = "Wavelet"', "Wavelet", "there are auto, "),
        ('name = "auto"', 'name = "Uniform"\nsampels = 3', "sampels", "unknown key 'sampels'"),
        ('epsilon = "1"', "epsilon = 0.1", "epsilon", 'write epsilon = "0.1"'),
        ('epsilon = "1"', "epsilon = true", "epsilon", "epsilon must be"),
        ('epsilon = "1"', 'epsilon = "-1"', "epsilon", "greater than 0"),
        ("window = 24", 'window = "24"', "window", 'write for example "90s"'),
        ("window = 24", 'window = "1 day"', "window", "25h"),
        ("window = 24", 'window = "90min"', "window", "write window = 2"),
        ("window = 24", "window = 0", "window", "window=0 is refused: window must"),
        ("window = 24", "", "[protect]", "window"),
        ('policy = "w-event"', 'policy = "wevent"', "policy", "did you mean 'w-event'"),
        ('policy = "w-event"', 'policy = "event"', "window", "absent for event"),
        ('length = "1h"', 'length = "1d"', "length", "24h"),
        ('zone = "Europe/Berlin"', 'zone = "Berlin"', "zone", "IANA"),
        ("count = 168", "", "[steps]", "count"),
        ('time = "time"', "", "[source]", "needs the key 'time'"),
        ('columns = ["Library", "Cafeteria"]', 'columns = "Library"', "columns", "must be a list"),
        ('columns = ["Library", "Cafeteria"]', 'columns = ["x", "x"]', "columns", "each category once"),
        ("count = 168", "count = 168\n?", "?", "not valid TOML"),
        ('aggregate = "distinct"', 'aggregate = "distinct"\nmost = 2\n[protect.x]', "[protect.x]", ""),
        ("window = 24", 'window = 24\nmax_change = "1/2"', "max_change", 'write max_change="1"'),
        ('aggregate = "distinct"', 'aggregate = "sum"', "[query]", "clip"),
        ('column = "building"', "", "[source]", "column"),
    ],
)
def test_a_mistake_is_named_with_its_line(old: str, new: str, part: str, words: str) -> None:
    """File, line, what is wrong and what to write."""
    text = changed(old, new)
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    sentence = str(caught.value)
    assert words in sentence
    assert "\n" not in sentence
    if words:
        assert sentence.startswith(f"tidegate.toml, line {line_of(text, part)}:"), sentence


def test_data_are_not_a_configuration(tmp_path: Path) -> None:
    """Whoever gives the file with the data is told which command wants it."""
    file = tmp_path / "events.csv"
    file.write_text("time,zone\n1,a\n")
    with pytest.raises(ConfigError, match="`tidegate init` writes one"):
        read_config(file)


def test_parameters_of_a_mechanism_are_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """With their types; others are refused with the nearest name."""
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Own(catalogue()["Uniform"]):  # type: ignore[misc]
        """A mechanism with parameters of its own."""

        threshold: float = 1.0
        pair: tuple[int, ...] = ()

    monkeypatch.setattr("tidegate.config.reader.find", lambda name: {"Own": Own}.get(name))
    text = changed('name = "auto"', 'name = "Own"\nthreshold = 0.5\npair = [1, 2]')
    mechanism = parse_config(text).mechanism
    assert (mechanism.threshold, mechanism.pair) == (0.5, (1, 2))  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="did you mean 'threshold'"):
        parse_config(text.replace("threshold", "treshold"))


def test_max_change_is_derived(tmp_path: Path) -> None:
    """Without it the query's Δ is used; given input must declare it."""
    text = changed('aggregate = "distinct"', 'aggregate = "sum"\nclip = ["-2", "5"]\nmost = 3')
    text = text.replace('column = "building"', 'column = "building"\nvalue = "kwh"')
    assert parse_config(text).policy.max_change == 15
    replace = text.replace("window = 24", 'window = 24\nadjacency = "replace"')
    assert parse_config(replace).policy.max_change == 21
    given = changed('aggregate = "distinct"', 'aggregate = "given"\nlayout = "wide"\nrounding = "nearest"')
    with pytest.raises(ConfigError, match="only you know it"):
        parse_config(given)
    config = parse_config(given.replace("window = 24", "window = 24\nmax_change = 4\ntouches = 1"))
    assert config.mechanism.sensitivity == 5


def test_policies_and_means() -> None:
    """The other policies, and a mean with twice the columns."""
    user = changed('policy = "w-event"', 'policy = "user"').replace("window = 24", "")
    assert parse_config(user).policy == User(epsilon="1", horizon=168)
    event = changed('policy = "w-event"', 'policy = "event"').replace("window = 24", 'delta = "1e-9"')
    assert parse_config(event).policy == Event(epsilon="1", delta="1e-9")
    mean = changed('aggregate = "distinct"', 'aggregate = "mean"\nclip = ["0", "8"]\ngrid = "0.5"')
    config = parse_config(mean.replace('column = "building"', 'column = "building"\nvalue = "kwh"'))
    assert config.mechanism.columns == 4
    assert config.policy.max_change == Fraction(8)
    edges = changed('columns = ["Library", "Cafeteria"]', 'edges = [0, "0.5", "2"]')
    edges = edges.replace('column = "building"', 'value = "kwh"').replace('"distinct"', '"histogram"')
    assert parse_config(edges).query.labels == ("[0, 0.5)", "[0.5, 2)")


def test_unreadable_files_are_one_sentence(tmp_path: Path) -> None:
    """Absent, not text, or far too large."""
    with pytest.raises(ConfigError, match=r"absent\.toml: there is no such file; .* `tidegate init`"):
        read_config(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config(tmp_path)
    path = tmp_path / "tidegate.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        read_config(path)


def test_following_by_option_needs_no_count() -> None:
    """--follow stands for follow = true, also where the number of steps is not known."""
    text = changed("count = 168", "")
    assert parse_config(text, follow=True).steps.count is None
    with pytest.raises(ConfigError, match="follow = true"):
        parse_config(text)


def test_conditions_and_lookups_stand_in_the_file(tmp_path: Path) -> None:
    """The groups are the columns; the table lies beside the file."""
    (tmp_path / "campus.csv").write_text("building,part\nLibrary,north\nCafeteria,south\nAttic,north\n")
    (tmp_path / "sightings.csv").write_text(EVENTS)
    path = tmp_path / "tidegate.toml"
    lines = 'lookup = "campus.csv"\nwhere = "device != 1 or building == \'Library\'"'
    path.write_text(changed('columns = ["Library", "Cafeteria"]', lines))
    config = read_config(path)
    assert config.query.answer_labels == ("north", "south")
    blocks = list(config.open())
    assert [row for block in blocks for row in block.values.tolist()][:2] == [[1, 1], [1, 0]]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            'where = "building = 3"',
            'at character 10 it needs a field, a comparison or a value; equality is written "=="',
        ),
        ('lookup = "nowhere.csv"', "lookup='nowhere.csv' is refused: lookup must be a file that can be read"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(tmp_path: Path, line: str, words: str) -> None:
    """Key and line; nothing is made."""
    path = tmp_path / "tidegate.toml"
    path.write_text(changed('columns = ["Library", "Cafeteria"]', line))
    with pytest.raises(ConfigError) as refused:
        read_config(path)
    assert refused.value.line == line_of(path.read_text(), line)
    assert words in str(refused.value)
    assert [file.name for file in tmp_path.iterdir()] == ["tidegate.toml"]
