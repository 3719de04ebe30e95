"""The experiments: every file is found and complete, the runner keeps what it must, small runs of all of them."""

import json
import os
import re

import polars as pl
import pytest

from tidegate.cli import main
from tidegate.repro import Experiment, Judgement, Outcome, experiments
from tidegate.repro.experiment import MissingData
from tidegate.repro.report import markdown, page
from tidegate.repro.runner import again, read, run


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
        assert re.search(r"figure|table|experiment|benchmark|example", key), key
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


def test_missing_data_are_a_reason_to_skip(tmp_path):
    """An experiment whose data are not here says which and is not judged."""

    def measure(setting):
        raise MissingData("rome.parquet is not in data; set TIDEGATE_DATA to the folder that has it.")

    result = run(made_up(measure), tmp_path, workers=1)
    assert result.judgement is None
    assert "TIDEGATE_DATA" in result.skipped


def test_commands(tmp_path, capsys):
    """List, run one in small, report in Markdown and HTML; unknown names are one sentence."""
    assert main(["repro", "list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(experiments())
    assert main(["repro", "report", "--results", str(tmp_path / "none")]) == 2
    assert main(["repro", "run", "figure-99"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 2
    folder = str(tmp_path / "results")
    assert main(["repro", "run", "w-event-figure-10", "--small", "--workers", "1", "--results", folder]) == 0
    for name in ("repro.md", "repro.html"):
        assert main(["repro", "report", "--results", folder, "--page", str(tmp_path / name)]) == 0
        assert "Figure 10" in (tmp_path / name).read_text()


@pytest.fixture(scope="module")
def small_results(tmp_path_factory, shared_folder):
    """All experiments in small, in two processes."""
    os.environ.setdefault("TIDEGATE_DATA", str(shared_folder))
    folder = tmp_path_factory.mktemp("repro")
    return folder, [run(experiment, folder, small=True, workers=1) for experiment in experiments().values()]


@pytest.fixture(scope="module")
def shared_folder(request):
    """The folder of public data, whether it is there or not."""
    return request.config.rootpath.parent / "shared" / "data"


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
