"""The experiments: every file is found and complete, the runner keeps what it must, small runs of all of them."""

import json
import re
from dataclasses import replace

import polars as pl
import pytest

from experiments import Experiment, Judgement, Outcome, experiments, report, streams
from experiments.__main__ import main
from experiments.experiment import MissingData, Table
from experiments.report import listed, markdown, page
from experiments.runner import again, read, run, run_all
from tidegate.errors import InvalidParameter


def made_up(measure):
    """A tiny experiment."""
    return Experiment(
        "w-event",
        "Figure 0",
        "One is less than two.",
        "Made up.",
        lambda small: [{"x": 1}, {"x": 2}],
        measure,
        lambda frame: Judgement(Outcome.HOLDS, f"{frame['error'].min()} is less."),
        lambda frame, figure: figure.subplots().plot(frame["x"], frame["error"]),
    )


def test_every_experiment_is_complete():
    """Claims and data are sentences, keys are unique and name a figure or table."""
    found = experiments()
    assert len(found) >= 5
    for key, experiment in found.items():
        assert experiment.claim.endswith("."), key
        assert experiment.data.rstrip(")").endswith("."), key
        assert re.search(r"figure|table|experiment|benchmark|example|theorem", key), key
        assert experiment.settings(True), key


def test_rows_picture_judgement_and_pages(tmp_path):
    """A run leaves a Parquet file, a PNG and a JSON file, and both pages tell of it."""
    experiment = made_up(
        lambda setting: [{"x": setting["x"], "mechanism": "A", "error": float(setting["x"])}]
    )
    result = run(experiment, tmp_path, workers=1)
    assert result.judgement.outcome is Outcome.HOLDS
    assert pl.read_parquet(tmp_path / "w-event-figure-0.parquet").height == 2
    assert (tmp_path / "w-event-figure-0.png").read_bytes().startswith(b"\x89PNG")
    assert read(experiment, tmp_path).judgement == result.judgement
    assert again(experiment, tmp_path).judgement == result.judgement


def test_a_small_run_judges_no_claim(tmp_path):
    """Intervals of one or two runs say nothing, neither when it runs nor when it is judged again."""
    experiment = made_up(lambda setting: [{"x": setting["x"], "mechanism": "A", "error": 1.0}])
    assert run(experiment, tmp_path, small=True, workers=1).judgement.outcome is Outcome.ROUGH
    assert read(experiment, tmp_path).judgement.outcome is Outcome.ROUGH
    assert again(experiment, tmp_path).judgement.outcome is Outcome.ROUGH
    assert run(experiment, tmp_path, workers=1).judgement.outcome is Outcome.HOLDS


def test_missing_data_are_a_reason_to_skip(tmp_path):
    """An experiment whose data are not here says which and is not judged."""

    def measure(setting):
        raise MissingData("rome.parquet is not in data; set TIDEGATE_DATA to the folder that has it.")

    result = run(made_up(measure), tmp_path, workers=1)
    assert result.judgement is None
    assert "TIDEGATE_DATA" in result.skipped


def test_commands(tmp_path, capsys):
    """List, run one in small, report in Markdown and HTML; unknown names are one sentence."""
    assert main(["list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(experiments())
    assert main(["report", "--results", str(tmp_path / "none")]) == 2
    assert main(["run", "figure-99"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 2
    folder = str(tmp_path / "results")
    assert main(["run", "w-event-figure-10", "--small", "--workers", "1", "--results", folder]) == 0
    for name in ("repro.md", "repro.html"):
        assert main(["report", "--results", folder, "--page", str(tmp_path / name)]) == 0
        assert "Figure 10" in (tmp_path / name).read_text()
    shown = (tmp_path / "repro.html").read_text()
    assert '<img src="data:image/png;base64,' in shown
    assert shown.count("<table>") == (tmp_path / "repro.md").read_text().count("\n|---")


def test_an_interrupted_run_goes_on_where_it_was(tmp_path):
    """What was measured before the interruption is not measured again, and nothing of it is left in the end."""
    measured, dies = [], [True]

    def measure(setting):
        if setting["x"] == 2 and dies[0]:
            raise KeyboardInterrupt
        measured.append(setting["x"])
        return [{"x": setting["x"], "mechanism": "A", "error": float(setting["x"])}]

    experiment = made_up(measure)
    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path)
    dies[0] = False
    result = run(experiment, tmp_path)
    assert measured == [1, 2]
    assert result.judgement.words == "1.0 is less."
    assert not (tmp_path / "unfinished").exists()


def test_long_settings_start_first_and_progress_is_told(tmp_path):
    """The order is by cost, the share of the work grows to 1, and the time that is left is told."""
    order, told = [], []

    def measure(setting):
        order.append(setting["x"])
        return [{"x": setting["x"], "mechanism": "A", "error": 1.0}]

    experiment = replace(made_up(measure), cost=lambda setting: float(setting["x"]))
    run_all([experiment], tmp_path, workers=1, tell=told.append)
    assert order == [2, 1]
    assert [progress.share for progress in told] == [pytest.approx(2 / 3), 1.0]
    assert told[0].left >= 0
    assert told[-1].left == 0
    assert told[-1].result.experiment is experiment


def test_a_failure_stops_only_its_experiment(tmp_path):
    """The others are judged, and the failed one says why."""

    def fails(setting):
        raise ValueError("no such road")

    good = made_up(lambda setting: [{"x": setting["x"], "mechanism": "A", "error": 1.0}])
    bad = replace(made_up(fails), name="Figure 1")
    judged, failed = run_all([good, bad], tmp_path, workers=1)
    assert judged.judgement is not None
    assert failed.skipped == "failed with ValueError: no such road"


def test_a_folder_that_another_run_uses_is_refused(tmp_path):
    """Each would take away what the other has begun, a fresh one at once."""
    drafts, kept = tmp_path / "unfinished", []

    def measure(setting):
        kept.append(len(list(drafts.iterdir())))
        with pytest.raises(InvalidParameter, match="that no other run uses"):
            run_all([experiment], tmp_path, workers=1, fresh=True)
        return [{"x": setting["x"], "mechanism": "A", "error": 1.0}]

    experiment = made_up(measure)
    (result,) = run_all([experiment], tmp_path, workers=1)
    assert kept == [0, 1]
    assert result.judgement is not None


def test_words_become_lists():
    """Enumerations of three parts and more are lists; a head before a colon stays above them."""
    assert listed("Yes. Ratios: a 1; b 2; c 3. Both fine; really.") == [
        ("Yes. Ratios:", ["a 1", "b 2", "c 3"]),
        ("Both fine; really.", []),
    ]
    assert listed("x: 1; y: 2; z: 3.") == [("", ["x: 1", "y: 2", "z: 3"])]
    assert listed("Areas: w = 1: 2; w = 3: 4; w = 5: 6 (7; 8).") == [
        ("Areas:", ["w = 1: 2", "w = 3: 4", "w = 5: 6 (7; 8)"])
    ]


def test_tables_of_a_judgement_are_kept_and_shown(tmp_path):
    """A table survives the file and is on both pages."""
    table = Table("Errors.", ("a", "b"), (("1", "2 < 3"),))
    experiment = replace(
        made_up(lambda setting: [{"x": setting["x"], "mechanism": "A", "error": 1.0}]),
        judge=lambda frame: Judgement(Outcome.MEASURED, "1 number.", (table,)),
    )
    run(experiment, tmp_path)
    kept = read(experiment, tmp_path)
    assert kept.judgement.tables == (table,)
    assert "no paper claims" in kept.judgement.outcome
    assert "| 1 | 2 < 3 |" in report._entry(kept, "pictures")
    assert "<td>2 &lt; 3</td>" in report.rendered(report._entry(kept, "pictures"))


def test_without_any_data(tmp_path, monkeypatch):
    """In an empty folder every experiment runs on generated data alone or is skipped with the name of what is missing."""
    monkeypatch.setenv("TIDEGATE_DATA", str(tmp_path / "empty"))
    streams.load.cache_clear()
    needing = ("across-benchmark", "optstream-figure-2", "perrier-figure-12", "w-event-table-unemployment")
    for key in needing:
        experiment = experiments()[key]
        for small in (True, False):
            assert experiment.settings(small), key
        result = run(experiment, tmp_path, small=True)
        assert result.judgement is None, key
        assert "TIDEGATE_DATA" in result.skipped, key
    streams.load.cache_clear()


@pytest.fixture(scope="module")
def small_results(tmp_path_factory):
    """All experiments in small, in two processes."""
    folder = tmp_path_factory.mktemp("repro")
    return folder, run_all(list(experiments().values()), folder, small=True, workers=2)


@pytest.mark.slow
def test_all_experiments_run(small_results):
    """Every one is judged with numbers, or says which data it misses."""
    folder, results = small_results
    for result in results:
        if result.judgement is None:
            assert "TIDEGATE_DATA" in result.skipped, result.experiment.key
        else:
            assert re.search(r"\d", result.judgement.words), result.experiment.key
    assert len(markdown(folder, "pictures")) > 1000
    assert "<img" in page(folder)
