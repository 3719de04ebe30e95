"""``tidegate plan`` on the command line."""

import json

import polars as pl
import pytest

from tidegate.cli import main

QUICK = ["plan", "--quick", "--epsilon", "1", "--window", "6"]


def test_plan_as_json(capsys):
    """Machines get the recommendation, the reasons and every prediction."""
    assert main([*QUICK, "--level", "50", "--season", "6", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["recommended"]["mechanism"]
    assert "[mechanism]" in facts["config"]
    assert len(facts["predictions"]) > 5


def test_plan_for_people(capsys):
    """People get a table, sentences and something to paste."""
    assert main([*QUICK, "--level", "50"]) == 0
    said = capsys.readouterr().out
    assert "Paste into tidegate.toml" in said
    assert "Uniform" in said
    assert "steps that it comes late" in " ".join(said.split())


def test_the_table_has_the_best_of_each_mechanism(capsys):
    """One row for a mechanism at once and one with delay; --all shows every setting."""
    assert main([*QUICK, "--season", "6"]) == 0
    short = capsys.readouterr().out
    assert "--all shows them" in short
    assert main([*QUICK, "--season", "6", "--all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > len(short.splitlines())


def test_a_raw_file_is_not_read(tmp_path, capsys):
    """Only files of releases are looked at, unless the user says that the data are public."""
    raw = tmp_path / "raw.csv"
    pl.DataFrame({"day": ["a"] * 60, "visits": list(range(7_000_000, 7_000_060))}).write_csv(raw)
    assert main([*QUICK, "--released", str(raw)]) == 2
    said = capsys.readouterr()
    assert "--public" in said.err
    assert "7000" not in said.err + said.out
    assert main([*QUICK, "--released", str(raw), "--public", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["expected_relative_error"] < 0.01


def test_whole_numbers_before_others_are_read(tmp_path, capsys):
    """A release whose first hundreds of values have no decimals and whose last one has some."""
    lines = [
        "step,A,status,scale,spent",
        *(f"{step},40,fresh,6,1" for step in range(1, 300)),
        "300,0.1,fresh,6,1",
    ]
    (tmp_path / "released.csv").write_text("\n".join(lines) + "\n")
    assert main([*QUICK, "--released", str(tmp_path / "released.csv"), "--json"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_an_earlier_release_is_a_profile(tmp_path, capsys, layout):
    """Both layouts of released files serve as descriptions."""
    step = list(range(1, 61))
    state = {"status": ["fresh"] * 60, "scale": [6.0] * 60, "spent": ["1/6"] * 60}
    wide = pl.DataFrame({"time": ["t"] * 60, "step": step, "A": [40.0] * 60, "B": [10.0] * 60, **state})
    frame = wide
    if layout == "long":
        frame = wide.unpivot(
            ["A", "B"], index=["time", "step", *state], variable_name="column", value_name="value"
        )
    frame.write_csv(tmp_path / "released.csv")
    assert main([*QUICK, "--released", str(tmp_path / "released.csv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["predictions"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--epsilon", "0"], "greater than 0"),
        (["--level", "-5"], "between 0"),
        (["--picture", "plan.png"], "drop --quick"),
        (["--released", "nowhere.csv"], "a file that exists"),
    ],
)
def test_bad_input_is_one_sentence(options, words, capsys):
    """Exit code 2 and one line."""
    assert main([*QUICK, *options]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.strip().splitlines()) == 1


def test_the_picture(tmp_path):
    """A picture is drawn; it is a PNG of some size."""
    file = tmp_path / "plan.png"
    assert main(["plan", "--window", "4", "--level", "50", "--picture", str(file)]) == 0
    assert file.read_bytes().startswith(b"\x89PNG")
    assert file.stat().st_size > 10_000


def test_sums_are_planned_at_a_size_that_units_can_add_up_to(tmp_path, capsys):
    """Where nothing is said of the size of a value, it is what a hundred units add at most, and that is said first."""
    file = tmp_path / "shop.csv"
    file.write_text("time,customer,amount\n2026-03-02T10:00,a,5\n")
    stream = str(tmp_path / "stream.toml")
    asked = ["--aggregate", "sum", "--value", "amount", "--clip", "0, 1000", "--start", "2026-03-02"]
    init = [
        "init",
        str(file),
        "--out",
        stream,
        "--unit",
        "customer",
        "--count",
        "24",
        "--window",
        "4",
        *asked,
    ]
    assert main([*init, "--yes"]) == 0
    capsys.readouterr()
    assert main(["plan", stream, "--quick", "--json"]) == 0
    reasons = json.loads(capsys.readouterr().out)["reasons"]
    assert reasons[0].startswith("Nothing is known of the size of a value, and 100,000 was taken")
    assert not any("No choice is accurate" in reason for reason in reasons)
