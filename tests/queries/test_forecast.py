"""Forecasts from releases."""

import builtins

import numpy as np
import pytest

import tidegate as tg
from tidegate.errors import InvalidInput, InvalidParameter, TidegateError
from tidegate.queries.forecast import forecast
from tidegate.queries.kernels import arma as arma_kernel

RNG_FREE_NOISE = np.sin(np.arange(400) ** 2 * 0.7)  # irregular, but the same on every machine


def arma(steps: int) -> np.ndarray:
    """A stream that follows x ← 50 + 0.9·(x − 50) + noise."""
    values = [80.0]
    for shock in RNG_FREE_NOISE[:steps]:
        values.append(50 + 0.9 * (values[-1] - 50) + shock)
    return np.array(values[1:])


@pytest.mark.slow
def test_a_forecast_returns_to_the_mean_at_the_rate_of_the_stream():
    """The model finds the mean and the rate of an autoregressive stream."""
    values = arma(400)
    found = forecast(values, 60, train=300)[:, 0]
    assert found.shape == (60,)
    assert abs(found[-1] - values[100:].mean()) < 2
    assert abs(found[0] - (50 + 0.9 * (values[-1] - 50))) < 1.5


def test_forecasts_of_releases_use_their_final_values():
    """Of a mechanism that works in periods, the revised values are the training data."""
    mechanism = tg.mechanisms.OptStream(tg.WEvent(epsilon="10", window=12), columns=2, samples=6)
    stream = np.rint(100 + 40 * np.sin(np.arange(240) / 12 * 2 * np.pi))[:, None].repeat(2, axis=1)
    releases = tg.open(mechanism).push_batch(stream)
    assert np.array_equal(forecast(releases, 12), forecast(releases.revised.values, 12))


def test_constant_columns_go_on_and_nothing_is_negative():
    """A constant needs no model; a forecast below zero is zero where values are known not to be negative."""
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


def simulated(phi: float, theta: float, steps: int = 600) -> np.ndarray:
    """ARMA(1, 1) with shocks that are the same on every machine."""
    shocks = np.sin(np.arange(steps + 1) ** 2 * 0.7)
    values = np.zeros(steps + 1)
    for step in range(1, steps + 1):
        values[step] = phi * values[step - 1] + shocks[step] + theta * shocks[step - 1]
    return values[1:] - values[1:].mean()


def likelihood(values: np.ndarray, phi: float, theta: float) -> float:
    """−2·log likelihood without its constant, from the covariance matrix of all values."""
    lags = np.arange(len(values))
    first = (1 + 2 * phi * theta + theta**2) / (1 - phi**2)
    rest = (1 + phi * theta) * (phi + theta) / (1 - phi**2) * phi ** np.maximum(lags - 1.0, 0.0)
    covariance = np.where(lags == 0, first, rest)[np.abs(np.subtract.outer(lags, lags))]
    squares = values @ np.linalg.solve(covariance, values)
    return len(values) * np.log(squares) + np.linalg.slogdet(covariance)[1]


@pytest.mark.parametrize(("phi", "theta"), [(0.9, 0.3), (0.5, -0.4), (-0.7, 0.2), (0.98, -0.6), (0.0, 0.9)])
def test_the_compiled_likelihood_is_the_one_of_the_covariance_matrix(phi, theta):
    """The innovations give what the whole matrix gives; a model with the sign of θ turned does not."""
    values = simulated(0.8, 0.3, 60)
    assert arma_kernel.deviance(values, phi, theta)[0] == pytest.approx(
        likelihood(values, phi, theta), abs=1e-8
    )
    assert abs(arma_kernel.deviance(values, phi, -theta)[0] - likelihood(values, phi, theta)) > 1


@pytest.mark.parametrize(("phi", "theta"), [(0.9, 0.3), (0.5, -0.4), (-0.7, 0.2), (0.98, -0.6), (0.0, 0.9)])
def test_the_compiled_fit_is_the_library_s(phi, theta):
    """Estimates and forecasts of ARMA(1, 1) equal statsmodels' maximum likelihood."""
    models = pytest.importorskip("statsmodels.tsa.arima.model")
    values = simulated(phi, theta)
    model = models.ARIMA(values, order=(1, 0, 1), trend="n")
    theirs = model.fit(method="innovations_mle", return_params=True)
    ours = arma_kernel.fit(values)
    assert ours[:2] == pytest.approx(theirs[:2], abs=1e-4)
    assert forecast(values, 5)[:, 0] == pytest.approx(model.filter(theirs).forecast(5), abs=1e-3)


@pytest.mark.parametrize(
    "values",
    [np.arange(50.0), np.arange(50) % 2.0, np.eye(50)[20], 1e12 * np.arange(50.0) ** 2, np.arange(50) * 1e-9],
)
def test_streams_that_no_such_model_made_have_finite_forecasts(values):
    """A line, a comb, a spike, a parabola: φ stays below 1, so what comes is finite and within reach."""
    found = forecast(values, 20)
    assert np.isfinite(found).all()
    assert np.abs(found - values.mean()).max() <= 3 * np.abs(values - values.mean()).max()


def test_a_missing_library_is_named(monkeypatch):
    """Without statsmodels a forecast by another model says what to install."""
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("statsmodels"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(TidegateError, match=r"tidegate\[forecast\]"):
        forecast(arma(100), 3, order=(2, 1))
