"""One's own mechanism, from the skeleton to plan, audit and bench; and one's own stream in the comparison."""

import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from tidegate.bench import measure, own_stream
from tidegate.cli import main
from tidegate.mechanisms import catalogue, chosen, find, installed
from tidegate.policy import WEvent


@pytest.fixture(scope="module")
def skeleton(tmp_path_factory):
    """A mechanism as `new mechanism` writes it."""
    folder = tmp_path_factory.mktemp("own")
    assert main(["new", "mechanism", "HourlyMedian", "--folder", str(folder)]) == 0
    return folder


@pytest.fixture
def at_hand(skeleton, monkeypatch):
    """The skeleton as if its package were installed."""
    home = skeleton / "hourly_median-0.1.0.dist-info"
    home.mkdir(exist_ok=True)
    (home / "METADATA").write_text("Metadata-Version: 2.1\nName: hourly-median\nVersion: 0.1.0\n")
    (home / "entry_points.txt").write_text(
        "[tidegate.mechanisms]\nHourlyMedian = hourly_median:HourlyMedian\nBroken = hourly_median:Nothing\n"
    )
    monkeypatch.syspath_prepend(str(skeleton))
    return skeleton


@pytest.mark.slow
def test_a_skeleton_conforms_and_its_proof_waits_to_be_read(skeleton):
    """All of its tests pass but one, which passes as soon as the page is accepted."""
    test = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    first = subprocess.run(test, cwd=skeleton, capture_output=True, text=True)
    assert "1 failed" in first.stdout, first.stdout
    assert "test_the_proof_was_read" in first.stdout
    accept = [sys.executable, "-m", "tidegate.testing.proofs", "--accept", "hourly_median"]
    assert subprocess.run(accept, cwd=skeleton).returncode == 0
    again = subprocess.run([*test, "-k", "proof"], cwd=skeleton, capture_output=True, text=True)
    assert "1 passed" in again.stdout, again.stdout


@pytest.mark.slow
def test_a_skeleton_that_decides_conforms(tmp_path):
    """Its loop decides which steps are published; every check passes."""
    assert main(["new", "mechanism", "ChangesOnly", "--decides", "--folder", str(tmp_path)]) == 0
    test = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "passes"]
    found = subprocess.run(test, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_the_page_is_of_the_mechanism_that_was_written(skeleton, tmp_path):
    """The pseudo-code of a mechanism that decides has its test."""
    assert main(["new", "mechanism", "ChangesOnly", "--decides", "--folder", str(tmp_path)]) == 0
    decides = (tmp_path / "docs" / "proofs" / "changes_only.md").read_text(encoding="utf-8")
    measures = (skeleton / "docs" / "proofs" / "hourly_median.md").read_text(encoding="utf-8")
    assert ("ε/2w" in decides, "ε/2w" in measures) == (True, False)
    assert "@" not in decides + measures


def test_it_never_overwrites(skeleton, capsys):
    """A second time it is refused by a sentence, and so are names that cannot be."""
    assert main(["new", "mechanism", "HourlyMedian", "--folder", str(skeleton)]) == 2
    assert "there already" in capsys.readouterr().err
    for name in ("Uniform", "no-class", "lower"):
        assert main(["new", "mechanism", name, "--folder", str(skeleton / "x")]) == 2


def test_others_are_found_by_name_and_path(at_hand):
    """By their entry point, and as module:Class; one that cannot be imported is refused where it is named."""
    assert "HourlyMedian" in installed()
    assert find("HourlyMedian").__name__ == find("hourly_median:HourlyMedian").__name__ == "HourlyMedian"
    assert "HourlyMedian" not in catalogue()
    assert set(chosen("HourlyMedian, Uniform")) == {"HourlyMedian", "Uniform"}
    with pytest.raises(ValueError, match="AttributeError"):
        find("Broken")
    with pytest.raises(ValueError, match="did you mean 'Uniform'"):
        chosen("Unifrom")


def test_a_file_names_what_is_installed(at_hand, tmp_path):
    """The configuration knows a mechanism of another package, and imports no module by its path."""
    (tmp_path / "events.csv").write_text("time,unit\n2026-03-02T00:10,a\n")
    made = [
        "init",
        str(tmp_path / "events.csv"),
        "--yes",
        "--unit",
        "unit",
        "--out",
        str(tmp_path / "t.toml"),
    ]
    assert main([*made, "--start", "2026-03-02", "--count", "168"]) == 0
    file = tmp_path / "t.toml"
    text = file.read_text()
    assert 'name = "auto"' in text
    file.write_text(text.replace('name = "auto"', 'name = "HourlyMedian"'))
    assert main(["release", str(file)]) == 0
    file.write_text(text.replace('name = "auto"', 'name = "hourly_median:HourlyMedian"'))
    assert main(["check", str(file)]) == 2


def test_bench_compares_on_a_stream_of_ones_own(at_hand, tmp_path, capsys):
    """Every table has every mechanism; the errors are those of the noise; what is not public says so."""
    rng = np.random.default_rng(3)
    counts = rng.poisson(500, (300, 2))
    pl.DataFrame({"day": [f"d{n}" for n in range(300)], "a": counts[:, 0], "b": counts[:, 1]}).write_csv(
        tmp_path / "c.csv"
    )
    asked = ["bench", str(tmp_path / "c.csv"), "--mechanisms", "Uniform,Sample,hourly_median:HourlyMedian"]
    asked += ["--epsilon", "1,4", "--window", "8", "--runs", "4", "--out", str(tmp_path / "out"), "--json"]
    assert main(asked) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["inside_only"] is True
    own = {
        row["epsilon"]: row["error"]
        for row in facts["rows"]
        if (row["mechanism"], row["statistic"]) == ("HourlyMedian", "at once")
    }
    assert own["1"] == pytest.approx(8, rel=0.2)  # 2,400 draws: six standard errors are 12 %
    assert own["4"] == pytest.approx(2, rel=0.2)
    table = (tmp_path / "out" / "compared.csv").read_text()
    assert table.startswith("# INSIDE ONLY")
    assert table.count("Sample") >= 2
    latex = (tmp_path / "out" / "compared.tex").read_text()
    assert r"\begin{tabular}" in latex
    assert "e+" not in latex
    assert (tmp_path / "out" / "compared.png").stat().st_size > 10_000
    assert main([*asked[:-1], "--public", "--columns", "a"]) == 0
    assert "INSIDE" not in capsys.readouterr().out
    assert "INSIDE" not in (tmp_path / "out" / "compared.csv").read_text()


def test_bench_reads_what_separates_the_columns(tmp_path, capsys):
    """A semicolon between the columns, as for `init`."""
    (tmp_path / "c.csv").write_text("hour;people\n" + "".join(f"h{n};{n % 7}\n" for n in range(50)))
    asked = [
        "bench",
        str(tmp_path / "c.csv"),
        "--mechanisms",
        "Uniform",
        "--runs",
        "2",
        "--window",
        "4",
        "--json",
    ]
    assert main([*asked, "--columns", "people"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"]


def test_bench_refuses_negative_values(tmp_path, capsys):
    """Releases are cut at 0, so that errors of negative values would be those of something else."""
    (tmp_path / "c.csv").write_text("a,b\n5,-7319064\n")
    assert main(["bench", str(tmp_path / "c.csv"), "--mechanisms", "Uniform", "--runs", "2"]) == 2
    said = capsys.readouterr().err
    assert "below 0" in said
    assert "7319064" not in said


@pytest.mark.parametrize(
    "wrong", [["--columns", "zebra"], ["--window", "x"], ["--epsilon", ","], ["--mechanisms", "Zebra"]]
)
def test_bench_refuses_in_one_sentence(wrong, tmp_path, capsys):
    """Bad options, and no value of the file in the answer."""
    (tmp_path / "c.csv").write_text("a\n7319064211\n")
    assert main(["bench", str(tmp_path / "c.csv"), *wrong]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "7319064211" not in said


def test_values_on_a_grid():
    """The error is in the unit of the values, whatever the grid."""
    values = np.full((200, 1), 12.34)
    found = own_stream.compare(
        values, chosen("Uniform"), epsilons=["1"], windows=[4], max_change="0.5", grid="0.01", runs=6
    )
    error = next(row["error"] for row in found.rows if row["statistic"] == "at once")
    assert 0.3 * 2 < error < 1.2 * 2  # at most wΔ/ε = 2


@pytest.fixture
def hours(tmp_path):
    """Three weeks of one value per hour that rises and falls with the day."""
    people = 300 + 250 * np.sin(2 * np.pi * np.arange(480) / 24)
    pl.DataFrame({"people": people.round().astype(int)}).write_csv(tmp_path / "hours.csv")
    return tmp_path / "hours.csv"


def rows_of(file, capsys, *more):
    """What `bench` says of Uniform and Sample, as JSON, by mechanism."""
    asked = ["bench", str(file), "--public", "--mechanisms", "Uniform,Sample", "--window", "24", "--json"]
    assert main([*asked, *more]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert {row["statistic"] for row in facts["rows"]} == {"at once"}  # sums are not asked for
    return facts, {row["mechanism"]: row for row in facts["rows"]}


def test_bench_as_published_tunes_nothing(hours, capsys):
    """Sample measures once in a window with noise of its own; the tuned variant is another algorithm, and says so."""
    facts, published = rows_of(hours, capsys, "--runs", "6", "--as-published")
    _, tuned = rows_of(hours, capsys, "--runs", "6", "--season", "24")
    assert facts["as_published"] is True
    assert published["Sample"]["parameters"] == "rounding = refuse, every = 24, noise = laplace"
    assert published["Uniform"]["parameters"] == "rounding = refuse, noise = laplace"
    assert published["Sample"]["choices"] == 1
    assert published["Sample"]["oracle"] == published["Sample"]["error"]
    assert "every = 24" not in tuned["Sample"]["parameters"]
    assert tuned["Sample"]["error"] < published["Sample"]["error"] / 1.5
    # Laplace noise of scale 24, cut at 0 rarely: 2,880 draws, six standard errors are 11 %
    assert published["Uniform"]["error"] == pytest.approx(24, rel=0.15)


def test_fast_as_published_runs_on_blocks():
    """The w-event paper runs FAST with half of ε on disjoint blocks; the default of Tidegate is another one."""
    (found,) = measure.published(catalogue()["Fast"], WEvent(epsilon="1", window=24), 1, 100)
    assert "blocks = true" in own_stream.parameters(found)
    assert "noise = laplace" in own_stream.parameters(found)


def test_bench_runs_as_often_as_it_was_asked_to(hours, capsys, monkeypatch):
    """Also where runs take longer than the benchmark of all streams waits; one run has no interval and is refused."""
    monkeypatch.setattr("tidegate.bench.measure.SECONDS", 0.0)
    for more in ((), ("--as-published",)):
        _, rows = rows_of(hours, capsys, "--runs", "9", *more)
        assert {row["runs"] for row in rows.values()} == {9}
    assert main(["bench", str(hours), "--runs", "1"]) == 2
    assert "runs" in capsys.readouterr().err


def test_bench_prints_and_writes_every_parameter(hours, tmp_path, capsys):
    """In the text, the CSV, the LaTeX and the JSON; each stage is a line where there is no terminal."""
    asked = ["bench", str(hours), "--public", "--mechanisms", "Sample", "--window", "24", "--runs", "3"]
    assert main([*asked, "--season", "24", "--max-change", "2", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert said.err == "1/1 Sample at ε = 1, w = 24\n"
    frame = pl.read_csv(tmp_path / "out" / "compared.csv")
    latex = (tmp_path / "out" / "compared.tex").read_text(encoding="utf-8")
    row = frame.row(0, named=True)
    assert frame.height == 1
    for name, value in {
        "max_change": 2,
        "grid": 1,
        "season": 24,
        "runs": 3,
        "steps": 480,
        "columns": 1,
    }.items():
        assert row[name] == value
        assert f"{name} = {value}" in said.out.replace("\n", " ")
        assert f"% {name} = {value}\n" in latex
    assert row["version"]
    assert row["seconds"] >= 0
    for text in (said.out, latex, row["parameters"]):
        assert "every = " in text
        assert "noise = " in text
    assert "Tuned variants" in said.out
    assert main([*asked, "--as-published"]) == 0
    assert "nothing tuned for the stream" in capsys.readouterr().out


def test_nothing_is_timed_before_it_was_warmed_up(monkeypatch):
    """A first run on a few steps is in no time and in no error."""
    seen = []
    monkeypatch.setattr(
        measure, "errors", lambda mechanism, truth: seen.append(len(truth)) or {"at once": (1.0, 1.0)}
    )
    took: list[float] = []
    found = measure.repeated(None, np.ones((500, 1), dtype=np.int64), 2, 2, np.inf, took)
    assert seen == [measure.WARM_UP, 500, 500]
    assert (len(took), found["at once"].shape) == (2, (2, 2))


def test_counters_of_event_level_and_of_single_values_are_compared():
    """With a window of one step; those that learn a clip where no value exceeds what a unit may change."""
    kinds = {
        name: catalogue()[name] for name in ("Uniform", "GradualTree", "ClippedSum", "ToPS", "ClippedAverage")
    }
    values = np.minimum(np.random.default_rng(2).exponential(30, (300, 1)).round(), 1000)
    settings = {"epsilons": ["1"], "windows": [1], "runs": 2}
    found = own_stream.compare(values, kinds, max_change=1000, **settings)
    sums = {row["mechanism"]: row["error"] for row in found.rows if row["statistic"] == measure.SUMS}
    assert set(sums) == {"Uniform", "GradualTree", "ClippedSum", "ToPS"}
    assert sums["ClippedSum"] < sums["GradualTree"]
    counts = own_stream.compare(values, kinds, **settings)
    assert {row["mechanism"] for row in counts.rows} == {"Uniform", "GradualTree"}
    assert {
        row["mechanism"] for row in own_stream.compare(values, kinds, **(settings | {"windows": [3]})).rows
    } == {"Uniform"}
