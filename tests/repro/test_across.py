"""The benchmark across papers: whatever is in the catalogue is in it, on every stream, with plan, oracle and regret."""

from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest

import tidegate.mechanisms as mechanisms
from experiments import across
from experiments.metrics import mean_absolute_error
from experiments.streams import STREAMS, load
from tidegate.bench import measure
from tidegate.bench.measure import configured
from tidegate.bench.metrics import cut_errors
from tidegate.mechanisms import Sample, Uniform, catalogue
from tidegate.policy import WEvent
from tidegate.testing import zero_noise


@dataclass(frozen=True)
class Dummy(Uniform):
    """A mechanism that somebody has added."""


def setting(stream="unemployment", **changes):
    """One small setting."""
    return {"stream": stream, "w": 24, "epsilons": ["1"], "runs": 2, "steps": 200, **changes}


@pytest.fixture
def kept_at(shared_data, monkeypatch):
    """``kept_at(name)``: let the experiments find a file, real or made up, where they look for it."""

    def put(name):
        monkeypatch.setenv("TIDEGATE_DATA", str(shared_data(name).parent))
        load.cache_clear()

    yield put
    load.cache_clear()


def test_registering_a_mechanism_adds_it(monkeypatch, kept_at):
    """A class in the catalogue has rows without any list being edited."""
    kept_at("unemployment_478_months.csv")
    known = {"Dummy": Dummy, "Uniform": Uniform, "Sample": Sample}
    monkeypatch.setattr(mechanisms, "catalogue", lambda: known)
    monkeypatch.setattr(across, "catalogue", lambda: known)
    frame = pl.DataFrame(across._measure_benchmark(setting()))
    assert set(frame["mechanism"]) == set(known)
    judgement = across.judge(frame)
    assert "Dummy" in str(judgement.tables)


def test_every_mechanism_is_there():
    """All of the catalogue that has a proof for w-event privacy can be configured, on one column or on several."""
    policy = WEvent(epsilon="1", window=24)
    absent = {
        name
        for name, kind in catalogue().items()
        if not any(configured(kind, policy, d, 24, 500) for d in (1, 8))
    }
    clipped = {"ClippedAverage", "ClippedDecay", "ClippedHistogram", "ClippedSum", "ToPS"}
    fixed = "PerLeafOptStream"  # for units that stay in their leaf
    assert absent == {
        "Blocks",
        "Discover",
        "EndlessSum",
        "Factorization",
        "GradualTree",
        "PersonalAbsorption",
        "PersonalDistribution",
        "Swellfish",
        fixed,
        *clipped,
    }


def test_every_setting_and_stream_is_there(monkeypatch):
    """All streams × ε × w in full; only those at hand are asked for."""
    monkeypatch.setattr(across, "here", lambda: list(STREAMS))
    full = across._settings_benchmark(False)
    assert len(full) == len(STREAMS) * len(across.WINDOWS)
    assert all(each["epsilons"] == ["0.01", "0.1", "1"] for each in full)
    monkeypatch.setattr(across, "here", lambda: ["unemployment"])
    assert {each["stream"] for each in across._settings_benchmark(False)} == {"unemployment"}


def test_planned_and_best_choices():
    """Without noise, on a line of slope 1: sampling more often is better; the plan takes what it predicts as best."""
    policy = WEvent(epsilon="1", window=8)
    often, seldom = Sample(policy, every=2), Sample(policy, every=8)
    line, still = np.arange(40)[:, None], np.full((40, 1), 7)
    with zero_noise():
        row = measure.compared([seldom, often], line, line, 2, 3)[0]
        assert (row["error"], row["oracle"], row["regret"]) == (0.5, 0.5, 1.0)
        assert row["runs"] == 3
        assert row["choices"] == 2
        # on a made-up stream that stands still all choices look alike, and the first is taken
        row = measure.compared([seldom, often], line, still, 2, 3)[0]
        assert (row["error"], row["oracle"], row["regret"]) == (3.5, 0.5, 7.0)


def test_statistics_without_noise():
    """Without noise Uniform is exact in values and sums; Sample is off by amounts computed by hand."""
    policy, line = WEvent(epsilon="1", window=2), np.array([[1], [2], [3], [4]])
    with zero_noise():
        assert measure.errors(Uniform(policy), line) == {
            measure.AT_ONCE: (0, 0),
            measure.WINDOW_SUMS: (0, 0),
            measure.SUMS: (0, 0),
        }
        found = measure.errors(Sample(policy), line)
    # released 1, 1, 3, 3: wrong by 0, 1, 0, 1; sums 1, 2, 5, 8 of 1, 3, 6, 10
    assert found[measure.AT_ONCE] == (0.5, (1 / 2 + 1 / 4) / 4)
    assert found[measure.SUMS][0] == (0 + 1 + 1 + 2) / 4


def test_errors_in_blocks_are_the_plain_ones():
    """One pass over blocks gives the metrics of values cut at 0."""
    generator = np.random.default_rng(5)
    truth = generator.integers(0, 50, (700, 90))
    values = truth + generator.normal(0, 20, truth.shape)
    cut = np.maximum(values, 0)
    floor = 0.001 * truth.sum() / 700
    expected = mean_absolute_error(cut, truth), (np.abs(cut - truth) / np.maximum(truth, floor)).mean()
    assert cut_errors(values, truth) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", list(STREAMS))
def test_streams(name, kept_at):
    """Every stream is read as whole numbers that are not negative, with the number of columns that its name says."""
    kept_at(STREAMS[name].file)
    matrix = load(name)
    columns = next((int(word) for word in name.split() if word.isdigit() and "house" not in name), 1)
    assert matrix.shape[1] == columns
    assert len(matrix) >= 100
    assert matrix.min() >= 0
    # the public guess is an order of magnitude, not the mean
    assert 0.05 < matrix.mean() / STREAMS[name].level < 20
