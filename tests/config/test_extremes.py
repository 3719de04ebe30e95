"""Whatever stands in a configuration, it is read or refused by a sentence; no other error comes out of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.cli import main
from tidegate.config import parse_queries
from tidegate.errors import InvalidParameter, TidegateError, check_scheme, without_secrets
from tidegate.pipeline import open_pipeline
from tidegate.web.service import Settings, listen

BASE = {
    "source": {"location": '"events.csv"', "time": '"time"', "unit": '"unit"', "value": '"value"'},
    "steps": {"start": '"2026-03-02T00:00"', "length": '"1h"', "count": "12"},
    "query": {"aggregate": '"sum"', "clip": '["0", "5"]'},
    "protect": {"epsilon": '"1"', "window": "4"},
    "mechanism": {"name": '"Uniform"'},
    "sink": {"location": '"out.csv"'},
}
KEYS = {
    "source": ("settle",),
    "steps": ("start", "length", "zone", "lateness", "count", "catch_up"),
    "query": ("clip", "bound", "most", "learn", "bins", "grid", "share", "fill"),
    "protect": ("epsilon", "delta", "rho", "window", "horizon", "max_change", "touches"),
    "mechanism": ("level", "target", "delay", "periods", "samples"),
    "run": ("keep", "archives"),
}
LARGE = "1" + "0" * 400
VALUES = (
    *("0", "-1", "2147483648", "9223372036854775808", LARGE, "1e308", "inf", "nan"),
    *(
        f'"{text}"'
        for text in ("1e400", "1e-400", LARGE, f"1/{LARGE}", "1e99999999", "inf", "nan", "9" * 5000)
    ),
    *('"99999999999999w"', '"1e308s"', '"9999-12-31T23:59"', '"0001-01-01T00:00"', '"\\u0000"', '""'),
    *('["0", "1e400"]', '["-1e30", "1e30"]', f'["0", "1/{LARGE}"]', "[]"),
)


def text_of(section: str = "", key: str = "", value: str = "") -> str:
    """The configuration with one key changed."""
    found = {name: dict(keys) for name, keys in BASE.items()}
    if section:
        found.setdefault(section, {})[key] = value
        if key == "rho":
            del found["protect"]["epsilon"]
    return "\n".join(
        f"[{name}]\n" + "".join(f"{one} = {given}\n" for one, given in keys.items())
        for name, keys in found.items()
    )


@pytest.mark.parametrize(
    ("section", "key"), [(section, key) for section, keys in KEYS.items() for key in keys]
)
def test_extreme_values_are_read_or_refused(tmp_path: Path, section: str, key: str) -> None:
    """Numbers of any size, and texts that are no numbers."""
    parse_queries(text_of(), tmp_path / "s.toml")  # what is changed can be read
    for value in VALUES:
        try:
            found = parse_queries(text_of(section, key, value), tmp_path / "s.toml")
            assert found.guarantee
        except TidegateError:
            continue


@pytest.mark.xfail(
    strict=True, reason="the first push halts the stream: private, but the refusal comes too late"
)
def test_a_stream_that_no_machine_can_compute_is_refused(tmp_path: Path) -> None:
    """Where its run would begin, and nothing stays behind."""
    (tmp_path / "events.csv").write_text("time,unit,value\n")
    text = text_of("protect", "epsilon", f'"{LARGE}"').replace("Uniform", "PeGaSus")
    queries = parse_queries(text, tmp_path / "s.toml")
    with pytest.raises(InvalidParameter, match="too large or too small"):
        open_pipeline(queries)
    assert not list(tmp_path.glob("*.ledger"))


@pytest.mark.parametrize(("error", "words"), [(MemoryError, "memory"), (OverflowError, "too large")])
def test_commands_refuse_what_is_too_large(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: type[Exception], words: str
) -> None:
    """Options are numbers of any size, too."""

    def fail(*_: object, **__: object) -> None:
        raise error("quotes what it has met")

    monkeypatch.setattr("tidegate.cli.demo.run_demo", fail)
    assert main(["demo"]) == 2
    shown = capsys.readouterr().err
    assert words in shown
    assert "quotes" not in shown


@pytest.mark.parametrize("port", [-1, 65536, 2**31, 2**64])
def test_ports_that_cannot_be_are_refused(port: int) -> None:
    """By the sentence of a port that is taken."""
    with pytest.raises(InvalidParameter, match="0 to 65535"):
        listen(Settings(port=port))


@pytest.mark.parametrize("character", ["\\u0000", "\\u0007", "\\u001b", "\\u007f", "\\u009b"])
def test_control_characters_are_refused(tmp_path: Path, character: str) -> None:
    """They would reach terminals, the report and names of files, from any text and from files of names."""
    title = text_of() + f'[about]\ntitle = "a{character}b"\n'
    for text in (title, text_of("sink", "location", f'"a{character}.csv"')):
        with pytest.raises(TidegateError, match="control character"):
            parse_queries(text, tmp_path / "s.toml")
    named = text_of().replace('aggregate = "sum"\nclip = ["0", "5"]', f'columns = ["so{character}uth"]')
    with pytest.raises(TidegateError, match="columns has a control character"):
        parse_queries(named, tmp_path / "s.toml")


@pytest.mark.parametrize(
    "location",
    [
        "mqtt//ann:secret@host/topic",
        "mqtt:/ann:secret@host/topic",
        "mqtt:ann:secret@host/topic",
        "mqt://ann:secret@host/topic",
        "ann:secret@host/topic",
        "//ann:secret@host/topic",
        "mqtt//host/topic",
    ],
)
def test_an_address_that_is_misspelt_shows_no_password(location: str) -> None:
    """Neither in the refusal nor in any other sentence that names it."""
    with pytest.raises(InvalidParameter) as refused:
        check_scheme("location", location, ("mqtt", "kafka"))
    assert "secret" not in str(refused.value)
    assert "secret" not in without_secrets(f"there is no file {location!r}; check it.")
    for fine in ("out.csv", "folder//out.csv", "mqtt://host/topic", "a@b.csv", "mqtt.csv"):
        check_scheme("location", fine, ("mqtt", "kafka"))
