"""``tidegate plan`` on the command line."""

import json
import tomllib

import polars as pl
import pytest
from tests.pipeline.streams import stalls, stalls_and_people

from tidegate.cli import main
from tidegate.config import read_queries

QUICK = ["plan", "--quick", "--epsilon", "1", "--window", "6"]


def test_plan_as_json(capsys):
    """Machines get the recommendation, the reasons and every prediction."""
    assert main([*QUICK, "--level", "50", "--season", "6", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["recommended"]["mechanism"]
    assert "[mechanism]" in facts["config"]
    assert len(facts["predictions"]) > 5


def test_plan_for_people(capsys):
    """People get sentences and something to paste, in 12 lines; a table if they ask."""
    assert main([*QUICK, "--level", "50"]) == 0
    said = capsys.readouterr().out
    assert "Paste into tidegate.toml" in said
    assert "Uniform" in said
    assert len(said.splitlines()) <= 12
    assert main([*QUICK, "--level", "50", "--verbose"]) == 0
    assert "up to N steps late" in " ".join(capsys.readouterr().out.split())


def test_the_table_has_the_best_of_each_mechanism(capsys):
    """One row for a mechanism at once and one with delay; --all shows every setting."""
    assert main([*QUICK, "--season", "6", "--verbose"]) == 0
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
        (["--released", "nowhere.csv"], "a file that exists"),
    ],
)
def test_bad_input_is_one_sentence(options, words, capsys):
    """Exit code 2 and one line."""
    assert main([*QUICK, *options]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.strip().splitlines()) == 1


def test_it_says_what_discovery_will_find(capsys):
    """With how many units a category opens, and what becomes of some; with a delta alone, and without a configuration."""
    asked = ["plan", "--discover", "900, 45,1", "--epsilon", "2", "--delta", "2e-6", "--window", "168"]
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert "opens with probability one half where it has 45 units" in said
    assert "Of 3 categories 1.5 are found" in said
    assert main([*asked, "--categories", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["needed"] == 92
    for wrong, word in (
        (["plan", "--discover", "900"], "delta"),
        (["plan", "--discover", "9,x"], "whole numbers"),
        (["plan", "stream.toml", "--discover", "9"], "no such file"),
    ):
        assert main(wrong) == 2
        assert word in capsys.readouterr().err


def test_it_says_what_a_configuration_will_find(tmp_path, capsys):
    """From its own parameters, also without sizes; beside other queries each has a line."""
    (tmp_path / "one.toml").write_text(stalls(tmp_path))
    assert main(["plan", str(tmp_path / "one.toml")]) == 0
    said = capsys.readouterr().out
    assert "opens with probability one half" in said
    assert "a single unit has opens with" in said
    assert "Of " not in said
    assert main(["plan", str(tmp_path / "one.toml"), "--discover", "40,30,1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["categories"] == 3
    assert found["lone"] < 0.01
    two = str(stalls_and_people(tmp_path).path)
    assert main(["plan", two]) == 0
    said = capsys.readouterr().out
    assert "stalls, 0.75 of the budget: A category opens" in said
    assert "people, 0.25 of the budget" in said
    assert main(["plan", two, "--discover", "9"]) == 2
    assert "--query" in capsys.readouterr().err


def shop(folder, *asked):
    """A configuration of receipts, of which a statistic is asked."""
    file, stream = folder / "shop.csv", folder / "stream.toml"
    file.write_text("time,customer,amount\n2026-03-02T10:00,a,5\n")
    options = f"--out {stream} --unit customer --count 24 --window 4 --value amount --start 2026-03-02 --yes"
    assert main(["init", str(file), *options.split(), *asked]) == 0
    return str(stream)


def test_sums_are_planned_at_a_size_that_units_can_add_up_to(tmp_path, capsys):
    """Where nothing is said of the size of a value, it is what a hundred units add at most, and that is said first."""
    stream = shop(tmp_path, "--aggregate", "sum", "--clip", "0, 1000")
    capsys.readouterr()
    assert main(["plan", stream, "--quick", "--json"]) == 0
    reasons = json.loads(capsys.readouterr().out)["reasons"]
    assert reasons[0].startswith("Nothing is known of the size of a value, and 100,000 was taken")
    assert not any("No choice is accurate" in reason for reason in reasons)


def test_means_are_planned_in_their_own_unit(tmp_path, capsys):
    """The error is that of a mean of so many records, and falls with their number; it was that of the sum behind it."""
    stream = shop(tmp_path, "--aggregate", "mean", "--clip", "0, 1000")
    capsys.readouterr()
    found = []
    for records in ("100", "400"):
        assert main(["plan", stream, "--quick", "--json", "--level", records]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts["reasons"][0].startswith(f"These are errors of a mean of {records} records")
        assert "of half of the clip" in facts["reasons"][1]
        plain = [each for each in facts["predictions"] if each["mechanism"] == "Uniform"]
        found.append(min(each["absolute_error"] for each in plain))
        assert min(each["relative_error"] for each in plain) == pytest.approx(found[-1] / 500, rel=0.2)
    # Δ is 1000, over a window of 4: noise of about 4,000 at most, of which each of 100 records has a part
    assert 10 < found[0] < 45
    assert found[1] == pytest.approx(found[0] / 4, rel=0.2)


def test_a_plan_for_quantiles_says_whose_errors_it_has(tmp_path, capsys):
    """They are those of counts in bins; what was released, which are quantiles, is no profile of them."""
    stream = shop(tmp_path, "--aggregate", "quantile", "--clip", "0, 1000")
    assert "read from counts in" in capsys.readouterr().out  # `init` gave their error in the unit of values
    assert main(["release", stream]) == 0
    capsys.readouterr()
    assert main(["plan", stream, "--quick", "--json"]) == 0
    reasons = json.loads(capsys.readouterr().out)["reasons"]
    assert any("errors of the counts in" in reason and "preview" in reason for reason in reasons)
    assert reasons[0].startswith("Nothing is known of the size of a value")
    assert main(["plan", stream, "--released", str(tmp_path / "released.csv")]) == 2
    assert "absent for means and quantiles" in capsys.readouterr().err


def test_the_level_of_the_file_is_known(tmp_path, capsys):
    """`tune` writes it: neither a plan nor a preview asks for it again."""
    stream = shop(tmp_path, "--aggregate", "sum", "--clip", "0, 1000")
    text = (tmp_path / "stream.toml").read_text().replace("[mechanism]", "[mechanism]\nlevel = 3000")
    (tmp_path / "stream.toml").write_text(text)
    capsys.readouterr()
    assert main(["plan", stream, "--quick", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert not any("Nothing is known" in reason for reason in facts["reasons"])
    made_up = facts["expected_absolute_error"] / facts["expected_relative_error"]
    assert made_up == pytest.approx(3000, rel=0.2)
    report = str(tmp_path / "preview.html")
    assert main(["preview", stream, "--report", report]) == 0
    assert "with about 3,000 a value" in capsys.readouterr().out
    (tmp_path / "stream.toml").write_text(text.replace("level = 3000", ""))
    assert main(["preview", stream, "--report", report]) == 0
    shown = capsys.readouterr().out
    assert "with about 100,000 a value" in shown
    assert "say it with --level" in shown


def test_a_plan_and_a_preview_know_what_their_stream_has_released(tmp_path, capsys):
    """Read from the log while nothing is written to it; of a file that was changed since, nothing is known."""
    lines = ["time,unit", *(f"2026-03-02T{hour:02d}:10,u{unit}" for hour in range(24) for unit in range(700))]
    (tmp_path / "events.csv").write_text("\n".join(lines) + "\n")
    file = tmp_path / "tidegate.toml"
    file.write_text(
        '[source]\nlocation = "events.csv"\ntime = "time"\nunit = "unit"\n[steps]\nstart = "2026-03-02"\n'
        'length = "1h"\ncount = 24\n[query]\naggregate = "distinct"\n[protect]\nepsilon = "4"\nwindow = 2\n'
        '[mechanism]\nname = "Uniform"\n[sink]\nlocation = "out.csv"\n[run]\narchives = "old"\n'
    )
    (tmp_path / "old").mkdir()
    report = str(tmp_path / "preview.html")
    assert main(["preview", str(file), "--report", report]) == 0
    assert "about 100 a value" in capsys.readouterr().out
    assert main(["release", str(file)]) == 0
    log = (tmp_path / "tidegate.ledger").read_bytes()
    capsys.readouterr()
    assert main(["preview", str(file), "--report", report]) == 0
    assert "about 700 a value" in capsys.readouterr().out
    assert main(["plan", str(file), "--quick"]) == 0
    assert "Nothing is known of the size" not in capsys.readouterr().out
    assert (tmp_path / "tidegate.ledger").read_bytes() == log
    file.write_text(file.read_text().replace("window = 2", "window = 3"))
    assert main(["plan", str(file), "--quick"]) == 0
    assert "Nothing is known of the size" in capsys.readouterr().out


SALES = """
[source]
location = "sales.csv"
time = "time"
unit = "customer"
[steps]
start = "2026-01-05"
length = "calendar week"
count = 8
[protect]
epsilon = "1"
window = 4
[sink]
location = "released.csv"
[[query]]
name = "orders"
aggregate = "count"
most = 2
share = "1/4"
[[query]]
name = "customers"
aggregate = "distinct"
share = "1/4"
[[query]]
name = "few"
aggregate = "histogram"
edges = ["0", "10"]
value = "amount"
outside = "other"
share = "1/20"
[[query]]
name = "receipt"
aggregate = "mean"
clip = ["0", "20"]
value = "amount"
share = "9/20"
"""


@pytest.fixture
def sales(tmp_path, monkeypatch):
    """A configuration of several statistics, of which one is a mean, in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sales.toml").write_text(SALES)
    return "sales.toml"


def test_a_plan_for_values_of_unknown_size_names_what_auto_takes(sales, capsys):
    """Although Fast is better for the size that is guessed; and what is pasted is for that query alone."""
    assert main(["plan", sales, "--query", "few", "--quick", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    best = min(
        (each for each in facts["predictions"] if not each["delay"]), key=lambda each: each["absolute_error"]
    )
    taken = type(read_queries(sales).part("few").mechanism).__name__
    assert facts["recommended"]["mechanism"] == taken == "Tide" != best["mechanism"]
    assert tomllib.loads(facts["config"]) == {"query": [{"name": "few", "mechanism": "Tide"}]}


def test_a_preview_of_a_mean_beside_counts(sales, capsys):
    """What is made up of counts keeps their relations; a mean is in none."""
    assert main(["preview", sales, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["queries"]) == {"orders", "customers", "few", "receipt"}
