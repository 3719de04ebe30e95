"""The comparison of Tide with its rivals runs on a made-up stream, and its hindsight is what it says."""

import importlib.util
import sys
from itertools import islice
from pathlib import Path

import pytest

import tidegate as tg
from tidegate.mechanisms import Sample

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def accuracy():
    """The benchmark as a module."""
    if not FOLDER.is_dir():
        pytest.skip("the benchmarks are not part of this copy.")
    sys.path.insert(0, str(FOLDER))
    try:
        found = importlib.util.spec_from_file_location("tide_accuracy", FOLDER / "tide_accuracy.py")
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(FOLDER))


def test_hindsight_is_a_little_better_than_tide(accuracy):
    """Who knows hyper-parameters and schedule is better; states that all begin at the mean were 30 times worse."""
    _, stream = next(accuracy.made_up())
    policy = tg.WEvent(epsilon="0.1", window=24)
    hindsight = accuracy.Hindsight(stream)
    knowing = hindsight.error(policy)
    assert 0.3 * knowing < hindsight.error(policy, shared=True) < 1.1 * knowing
    tide = accuracy.of_tide(policy, stream, 1)
    assert 0.3 * tide["causal"] < knowing < 1.1 * tide["causal"]
    assert 0.8 < tide["covered"] <= 1


def test_a_small_run(accuracy, monkeypatch, capsys):
    """All columns and summaries are printed; rivals are few here."""

    def few(policy, columns):
        return iter([("Sample 2", Sample(policy, columns=columns, every=policy.window // 2))])

    monkeypatch.setattr(accuracy, "some", lambda window: [1, window])
    monkeypatch.setattr(accuracy, "delayed_rivals", few)
    monkeypatch.setattr(
        accuracy, "sharing_rivals", lambda *given: islice(accuracy.causal_rivals(*given, "auto"), 2)
    )
    monkeypatch.setattr(
        sys, "argv", ["tide_accuracy", "--made-up", "--epsilon", "0.1", "--window", "24", "--runs", "1"]
    )
    accuracy.main()
    shown = capsys.readouterr().out
    for words in (
        "made up",
        "median ratio at ε ≤ 0.1, causal",
        "Uniform with shared noise",
        "covered smoothed",
    ):
        assert words in shown


def test_a_small_run_with_rho(accuracy, monkeypatch, capsys):
    """Gaussian noise for everybody, and what an (ε, δ) gains; one rival of each kind."""
    monkeypatch.setattr(accuracy, "some", lambda window: [window])
    small = ["tide_accuracy", "--made-up", "--window", "24", "--runs", "1"]
    for more in (["--rho", "0.001"], ["--delta", "1e-6", "--epsilon", "0.1"]):
        monkeypatch.setattr(sys, "argv", small + more)
        accuracy.main()
    shown = capsys.readouterr().out
    for words in ("made up", "ρ = 0.001: 1 cells, Tide / best rival", "covered: ", "ε = 0.1, w = 24: median"):
        assert words in shown
