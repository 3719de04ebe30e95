"""Forecasts from releases."""

import builtins

import numpy as np
import pytest

import tidegate as tg
from tidegate.errors import InvalidInput, InvalidParameter, TidegateError
from tidegate.queries.forecast import forecast

RNG_FREE_NOISE = np.sin(np.arange(400) ** 2 * 0.7)  # irregular, but the same on every machine


def arma(steps: int) -> np.ndarray:
    """A stream that follows x ← 50 + 0.9·(x − 50) + noise."""
    values = [80.0]
    for shock in RNG_FREE_NOISE[:steps]:
        values.append(50 + 0.9 * (values[-1] - 50) + shock)
    return np.array(values[1:])


def test_a_forecast_returns_to_the_mean_at_the_rate_of_the_stream():
    """The model finds the mean and the rate of an autoregressive stream."""
    pytest.importorskip("statsmodels")
    values = arma(400)
    found = forecast(values, 60, train=300)[:, 0]
    assert found.shape == (60,)
    assert abs(found[-1] - values[100:].mean()) < 2
    assert abs(found[0] - (50 + 0.9 * (values[-1] - 50))) < 1.5


def test_forecasts_of_releases_use_their_final_values():
    """Of a mechanism that works in periods, the revised values are the training data."""
    pytest.importorskip("statsmodels")
    mechanism = tg.mechanisms.OptStream(tg.WEvent(epsilon="10", w=12), columns=2, samples=6)
    stream = np.rint(100 + 40 * np.sin(np.arange(240) / 12 * 2 * np.pi))[:, None].repeat(2, axis=1)
    releases = mechanism.start().push_batch(stream)
    assert np.array_equal(forecast(releases, 12), forecast(releases.revised.values, 12))


def test_constant_columns_go_on_and_nothing_is_negative():
    """A constant needs no model; a forecast below zero is zero where values are known not to be negative."""
    pytest.importorskip("statsmodels")
    assert np.array_equal(forecast(np.full(40, 7.0), 3)[:, 0], [7, 7, 7])
    falling = arma(200) - 80
    assert forecast(falling, 5).min() < 0
    assert forecast(falling, 5, nonnegative=True).min() == 0.0


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: forecast(np.zeros(10), 3), InvalidInput),
        (lambda: forecast(np.zeros(100), 3, train=200), InvalidInput),
        (lambda: forecast(np.full(100, np.nan), 3), InvalidInput),
        (lambda: forecast(np.zeros(100), 0), InvalidParameter),
        (lambda: forecast(np.zeros(100), 3, method="magic"), InvalidParameter),
        (lambda: forecast(np.zeros(100), 3, order=(-1, 1)), InvalidParameter),
    ],
)
def test_bad_input_is_one_sentence(call, error):
    """Too little data, gaps and unknown methods are refused."""
    with pytest.raises(error) as refused:
        call()
    assert len(str(refused.value).splitlines()) == 1


def test_a_missing_library_is_named(monkeypatch):
    """Without statsmodels a forecast says what to install."""
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("statsmodels"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(TidegateError, match=r"tidegate\[forecast\]"):
        forecast(arma(100), 3)
