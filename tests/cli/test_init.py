from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.runtime.helpers import write_events

from tidegate.cli import main
from tidegate.config import read_config, read_queries
from waiting import LIMIT

CLOCK = ["--start", "2026-03-02", "--count", "24"]


def test_a_first_configuration_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Written from column names, it can be released at once."""
    write_events(tmp_path)
    out = tmp_path / "tidegate.toml"
    options = ["--unit", "unit", "--categories", "north, south", "--start", "2026-03-02", "--count", "12"]
    options += ["--window", "4", "--mechanism", "Uniform"]
    assert main(["init", str(tmp_path / "events.csv"), "--out", str(out), *options]) == 0
    assert "tidegate release" in capsys.readouterr().out
    config = read_config(out)
    assert (config.source.location, config.source.unit, config.source.column) == (
        "events.csv",
        "unit",
        "place",
    )
    assert config.query.labels == ("north", "south")
    assert main(["release", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 12
    assert len((tmp_path / "released.csv").read_text().splitlines()) == 13


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For machines: the file and what it will promise."""
    write_events(tmp_path)
    out = tmp_path / "new.toml"
    assert (
        main(["init", str(tmp_path / "events.csv"), "--out", str(out), "--unit", "unit", "--json", *CLOCK])
        == 0
    )
    assert "24 consecutive steps" in json.loads(capsys.readouterr().out)["guarantee"]


def test_questions_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no option says is asked for, and nothing of the data is offered as an answer."""
    write_events(tmp_path)
    asked: list[str] = []
    answers = {
        "event's time": "time",
        "person": "unit",
        "category": "place",
        "categories": "north",
        "step 1": "2026-03-02",
        "How many steps": "12",
    }

    def prompt(question: str, default: str = "", **_: object) -> str:
        asked.append(f"{question} {default}")
        return next((answer for word, answer in answers.items() if word in question), default)

    monkeypatch.setattr("typer.prompt", prompt)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    out = tmp_path / "asked.toml"
    assert main(["init", str(tmp_path / "events.csv"), "--out", str(out), "--epsilon", "1/2"]) == 0
    config = read_config(out)
    assert (config.query.labels, config.steps.count, config.protect.epsilon) == (("north",), 12, "1/2")
    assert not any("walrus" in question or "north" in question for question in asked)
    assert not any("ε" in question for question in asked)


def test_a_wrong_answer_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At once, with what is wrong; the other answers are not lost."""
    (tmp_path / "events.csv").write_text("time,unit,place,value\n")
    answers = {
        "event's time": ["wen", "time"],
        "published": ["average", "mean"],
        "number": ["", "price", "value"],
        "person": ["unit"],
        "category": ["place"],
        "categories": ["north"],
        "step 1": ["yesterday", "2026-03-02"],
        "length": ["1 fortnight", "1h"],
        "zone": ["Mars", "UTC"],
        "How many steps": ["many", "0", "12"],
        "ε": ["-1", "1/2"],
        "How many consecutive": ["2.5", "4"],
    }

    def prompt(question: str, default: str = "", **_: object) -> str:
        return next((left.pop(0) for word, left in answers.items() if word in question), default)

    monkeypatch.setattr("typer.prompt", prompt)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    out = tmp_path / "asked.toml"
    assert main(["init", str(tmp_path / "events.csv"), "--out", str(out)]) == 0
    config = read_config(out)
    assert (config.steps.count, config.protect.epsilon, config.protect.window) == (12, "1/2", 4)
    assert not any(answers.values())
    assert (config.query.aggregate, config.query.clip) == ("mean", (0, 100))
    said = capsys.readouterr().out
    assert "There is no column 'wen'." in said
    assert "'average' is none of distinct, count" in said
    assert "IANA time zone" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--unit", "nobody"], "nobody"),
        (["--epsilon", "0"], "epsilon"),
        (["--aggregate", "sum"], "value"),
        (["--length", "1 fortnight"], "length"),
        (["--mechanism", "Unifrom"], "Uniform"),
        (["--count", "0"], "count"),
    ],
)
def test_bad_input_is_one_sentence(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is written."""
    write_events(tmp_path)
    unit = [] if "--unit" in options else ["--unit", "unit"]
    clock = CLOCK[:2] if "--count" in options else CLOCK
    out = tmp_path / "bad.toml"
    assert main(["init", str(tmp_path / "events.csv"), "--out", str(out), *unit, *clock, *options]) == 2
    shown = capsys.readouterr().err
    assert words in shown
    assert shown.count("\n") == 1
    assert not out.exists()


def test_an_existing_file_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unless it is asked for."""
    write_events(tmp_path)
    out = tmp_path / "mine.toml"
    out.write_text("mine")
    assert main(["init", str(tmp_path / "events.csv"), "--out", str(out)]) == 2
    assert "--force" in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert (
        main(["init", str(tmp_path / "events.csv"), "--out", str(out), "--unit", "unit", "--force", *CLOCK])
        == 0
    )


@pytest.mark.parametrize(
    ("name", "separator"), [("events.csv", ";"), ("events.tsv", "\t"), ("events.txt", "|")]
)
def test_the_header_shows_the_separator(name: str, separator: str, tmp_path: Path) -> None:
    """A table from a spreadsheet with other settings needs no option, and its releases follow."""
    (tmp_path / name).write_text(
        separator.join(["time", "user", "place"])
        + "\n"
        + separator.join(["02.03.2026 00:10", "7", "north"])
        + "\n"
    )
    out = tmp_path / "new.toml"
    options = [
        "--unit",
        "user",
        "--categories",
        "north",
        "--start",
        "2026-03-02",
        "--count",
        "3",
        "--window",
        "2",
    ]
    pattern = ["--time-format", "%d.%m.%Y %H:%M"]
    assert main(["init", str(tmp_path / name), "--out", str(out), *options, *pattern]) == 0
    config = read_config(out)
    assert (config.source.separator, config.source.column) == (separator, "place")
    assert config.source.time_format == pattern[1]
    assert main(["release", str(out), "--json"]) == 0


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("events.xlsx", b"PK", "save it in one of these formats"),
        ("events.csv", b"time,user\xff\n", "UTF-8"),
        ("events.csv", b"1,2,3\n", "the first line must name the columns"),
        ("", b"", "is a folder"),
    ],
)
def test_an_input_that_will_not_do_is_one_sentence(
    name: str, data: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what to do about it."""
    if name:
        (tmp_path / name).write_bytes(data)
    assert (
        main(["init", str(tmp_path / name), "--out", str(tmp_path / "new.toml"), "--each-record", *CLOCK])
        == 2
    )
    shown = capsys.readouterr().err
    assert words in shown
    assert shown.count("\n") == 1


def test_a_refusal_names_no_line_of_a_file_that_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The options are meant, not the lines of a configuration nobody has."""
    write_events(tmp_path)
    out = tmp_path / "bad.toml"
    assert (
        main(
            [
                "init",
                str(tmp_path / "events.csv"),
                "--out",
                str(out),
                "--each-record",
                "--start",
                "02.03.2026",
                "--count",
                "24",
            ]
        )
        == 2
    )
    shown = capsys.readouterr().err
    assert "line" not in shown
    assert "Nothing was written" in shown


@pytest.mark.slow
def test_ctrl_c_ends_a_question(tmp_path: Path) -> None:
    """On a real terminal, where the libraries that are loaded have handlers of their own."""
    pty = pytest.importorskip("pty")
    write_events(tmp_path)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tidegate", "init", str(tmp_path / "events.csv")]
    command += ["--out", str(tmp_path / "new.toml")]

    def hear() -> None:  # where the tests themselves run in the background, the signal is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        preexec_fn=hear,
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline().startswith("Columns of the input")
            while child.stdout.read(1) != ":":  # the end of its question: it waits for the answer
                pass
            child.send_signal(signal.SIGINT)
            _, said = child.communicate(timeout=LIMIT)
        finally:
            child.kill()
            os.close(ours)
            os.close(theirs)
    assert child.returncode == 130
    assert said.strip().endswith("tidegate: interrupted.")


def test_the_unit_is_never_guessed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A station that is protected is no person that is: who is meant must be said, or that it is each record."""
    (tmp_path / "bike.csv").write_text("time,station_id,user\n2026-03-02T00:00,5,7\n")
    start = ["init", str(tmp_path / "bike.csv"), "--out", str(tmp_path / "new.toml"), "--yes"]
    assert main(start) == 2
    shown = capsys.readouterr().err
    assert "tidegate: unit is missing: " in shown
    assert "never guessed" in shown
    assert "--each-record" in shown
    wide = "time," + ",".join(f"stop{number}" for number in range(900))
    (tmp_path / "wide.csv").write_text(f"{wide}\n")
    assert main(["init", str(tmp_path / "wide.csv"), "--out", str(tmp_path / "wide.toml"), "--yes"]) == 2
    shown = capsys.readouterr().err
    assert "--aggregate given" in shown
    assert len(shown) < 500
    assert main([*start, "--each-record", *CLOCK]) == 0
    shown = capsys.readouterr().out
    assert "not protected as one" in shown
    assert "Expected error: at most about 17 records per value" in shown
    assert f"Next: tidegate release {tmp_path / 'new.toml'} --report" in shown
    config = read_config(tmp_path / "new.toml")
    assert (config.schema.unit, config.query.aggregate) == (None, "count")


@pytest.mark.parametrize(
    ("header", "row", "options"),
    [
        (
            "time,a,b",
            "2026-03-02T00:00,3,",
            ["--aggregate", "given", "--layout", "wide", "--max-change", "1"],
        ),
        (
            "time,meter,value",
            "2026-03-02T00:00,a,3",
            ["--aggregate", "given", "--max-change", "2", "--categories", "a, b", "--column", "meter"],
        ),
        (
            "time,person,value",
            "2026-03-02T00:00,p,3",
            ["--aggregate", "histogram", "--unit", "person", "--edges", "0, 2, 4"],
        ),
        ("time,person", "2026-03-02T00:00,p", ["--unit", "person", "--policy", "event"]),
        ("time,person", "2026-03-02T00:00,p", ["--unit", "person", "--policy", "user"]),
        (
            "time,person,amount",
            "2026-03-02T00:00,p,-3.5",
            ["--unit", "person", "--aggregate", "mean", "--clip=-5, 5", "--grid", "0.1", "--most", "2"],
        ),
    ],
)
def test_every_kind_of_stream_from_options_alone(
    header: str, row: str, options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder is made, what is written can be released at once, and the last line says how."""
    (tmp_path / "x.csv").write_text(f"{header}\n{row}\n")
    out = tmp_path / "new" / "deep" / "stream.toml"
    fill = ["--fill", "missing"] if "given" in options else []
    more = ["--start", "2026-03-02", "--count", "5", "--epsilon", "2", *fill]
    assert main(["init", str(tmp_path / "x.csv"), "--out", str(out), *options, *more]) == 0
    shown = capsys.readouterr().out
    assert "off by" in shown or "Expected error" in shown
    assert main(["release", str(out)]) == 0
    assert len((out.parent / "released.csv").read_text().splitlines()) >= 6


RECEIPTS = "time,customer,shop,amount\n2026-03-02T00:10,anna,north,12\n2026-03-02T00:20,ben,south,7\n"
SEVERAL = [
    "--query",
    "name=orders aggregate=count most=2 share=1/4",
    "--query",
    "name=revenue aggregate=sum value=amount clip=0,200 columns='north, south' column=shop share=3/4",
]


def test_several_statistics_by_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each --query is a section; the file is released with one output for each."""
    (tmp_path / "receipts.csv").write_text(RECEIPTS)
    out = tmp_path / "tidegate.toml"
    command = ["init", str(tmp_path / "receipts.csv"), "--out", str(out), "--unit", "customer"]
    command += ["--start", "2026-03-02", "--count", "24", "--yes"]
    assert main([*command, *SEVERAL, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert list(done["expected_error"]) == ["orders", "revenue"]
    assert done["guarantee"].startswith("All queries together are 1-differentially private")
    queries = read_queries(out)
    assert [str(part.share) for part in queries.parts] == ["1/4", "3/4"]
    assert queries.part("revenue").query.labels == ("north", "south")
    assert main(["release", str(out), "--json"]) == 0
    assert (tmp_path / "released-revenue.csv").exists()
    assert main([*command, *SEVERAL, "--force"]) == 0
    assert "revenue, with 3/4 of the budget: Expected error:" in capsys.readouterr().out


def test_how_many_values_are_clipped_is_a_statistic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its own part of the budget, by one word; its share of all is an answer. What clipping does is printed."""
    lines = [f"2026-03-02T{hour:02d}:10,c{unit},{5 * unit}" for hour in range(24) for unit in range(1000)]
    (tmp_path / "receipts.csv").write_text("\n".join(["time,customer,amount", *lines]) + "\n")
    out = tmp_path / "tidegate.toml"
    command = [
        "init",
        str(tmp_path / "receipts.csv"),
        "--out",
        str(out),
        "--unit",
        "customer",
        "--epsilon",
        "100",
    ]
    command += ["--start", "2026-03-02", "--count", "24", "--yes", "--mechanism", "Uniform", "--window", "2"]
    statistic = "name=revenue aggregate=sum value=amount clip=0,4000"
    assert main([*command, "--query", f"{statistic} clipped=1/20"]) == 0
    queries = read_queries(out)
    assert {part.name: str(part.share) for part in queries.parts} == {
        "revenue": "19/20",
        "revenue-clipped": "1/20",
    }
    capsys.readouterr()
    assert main(["release", str(out)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) <= 12
    (bounded,) = [line for line in printed if line.startswith("Bounded")]
    assert "revenue: values of amount above 4000 count as 4000" in bounded
    shares = (tmp_path / "revenue-clipped-share.csv").read_text().splitlines()
    assert len(shares) == 25
    for line in shares[1:]:
        share, low, high = map(float, line.split(",")[3:6])
        assert low < share < high
        assert share == pytest.approx(0.2, abs=0.02)  # amounts of 4000 and more
    assert main([*command, "--force", "--query", "name=orders aggregate=count clipped=1/20"]) == 2
    assert "clipped" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", ["orders", "name=orders agg=count", "name='orders", "name=orders aggregate=sum value=nothing"]
)
def test_a_statistic_that_makes_no_sense_is_one_sentence(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written."""
    (tmp_path / "receipts.csv").write_text(RECEIPTS)
    out = tmp_path / "tidegate.toml"
    command = [
        "init",
        str(tmp_path / "receipts.csv"),
        "--out",
        str(out),
        "--unit",
        "customer",
        "--yes",
        *CLOCK,
    ]
    assert main([*command, "--query", words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not out.exists()


def test_several_statistics_by_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal: names of further statistics, and what each of them is."""
    (tmp_path / "receipts.csv").write_text(RECEIPTS)
    out = tmp_path / "tidegate.toml"
    answers = ["", "", "customer", "shop", "north, south", "2026-03-02", "1h", "UTC", "24", "1", "24"]
    answers += ["revenue", "customers", "sum", "amount", "0, 200"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(answers) + "\n"))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert main(["init", str(tmp_path / "receipts.csv"), "--out", str(out)]) == 0
    queries = read_queries(out)
    assert [(part.name, part.query.aggregate) for part in queries.parts] == [
        ("customers", "distinct"),
        ("revenue", "sum"),
    ]
    assert all(part.query.labels == ("north", "south") for part in queries.parts)
    assert sum(part.share for part in queries.parts) == 1


@pytest.mark.parametrize("missing", ["start", "count"])
def test_the_clock_is_never_a_silent_default(
    missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which steps there are decides what is released: also --yes takes no date and no number of them."""
    write_events(tmp_path)
    clock = {"start": ["--start", "2026-03-02"], "count": ["--count", "24"]}
    rest = [word for name, words in clock.items() if name != missing for word in words]
    out = tmp_path / "new.toml"
    command = ["init", str(tmp_path / "events.csv"), "--out", str(out), "--unit", "unit", "--yes", *rest]
    assert main(command) == 2
    assert f"{missing} is missing: it must be " in (said := capsys.readouterr().err)
    assert f"write --{missing}" in said
    assert not out.exists()


def test_enter_takes_nothing_that_decides_who_is_protected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal: the unit, the start and the number of steps are asked for until they are said."""
    write_events(tmp_path)
    out = tmp_path / "asked.toml"
    answers = [
        "",
        "count",
        "",
        "each record",
        "place",
        "",
        "north",
        "",
        "2026-03-02",
        "1h",
        "UTC",
        "",
        "12",
        "1",
        "24",
        "",
    ]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(answers) + "\n"))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert main(["init", str(tmp_path / "events.csv"), "--out", str(out)]) == 0
    assert capsys.readouterr().out.count("It must be said.") == 4
    config = read_config(out)
    assert (config.schema.unit, config.steps.count, config.query.labels) == (None, 12, ("north",))


@pytest.mark.parametrize("option", ["time", "unit", "column", "value"])
def test_a_column_that_is_not_there_is_answered_with_the_nearest(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the option and the columns that exist, whichever option it is."""
    (tmp_path / "x.csv").write_text("moment,person,building,amount\n")
    right = {"time": "moment", "unit": "person", "column": "building", "value": "amount"}
    options = [
        word for name, given in right.items() for word in (f"--{name}", given + "s" * (name == option))
    ]
    assert main(["init", str(tmp_path / "x.csv"), "--out", str(tmp_path / "x.toml"), *options, *CLOCK]) == 2
    said = capsys.readouterr().err
    assert f"{option}='{right[option]}s' is refused" in said
    assert "moment, person, building, amount; did you mean" in said
    assert f"did you mean {right[option]!r}?" in said


def test_a_column_without_its_categories_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was left out in silence, and one column of everything was released."""
    write_events(tmp_path)
    command = [
        "init",
        str(tmp_path / "events.csv"),
        "--out",
        str(tmp_path / "x.toml"),
        "--unit",
        "unit",
        *CLOCK,
    ]
    assert main([*command, "--column", "place"]) == 2
    assert (
        "categories is missing: it must be the public list of what 'place' may hold"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "option", [["--most", "2"], ["--clip", "0,10"], ["--aggregate", "count"], ["--categories", "north"]]
)
def test_what_is_said_of_one_statistic_is_refused_beside_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    """It would not be in the configuration."""
    write_events(tmp_path)
    given = ["init", str(tmp_path / "events.csv"), "--out", str(tmp_path / "tidegate.toml"), "--unit", "unit"]
    assert main([*given, *CLOCK, "--query", "name=people aggregate=distinct", *option]) == 2
    assert "said in each --query" in capsys.readouterr().err
    assert not (tmp_path / "tidegate.toml").exists()
