"""Forecasts from releases: an ARMA model, trained on what was published and on nothing else."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidInput, TidegateError
from tidegate.exact import one_of, whole
from tidegate.queries.kernels import arma
from tidegate.releases import Releases

Values = npt.NDArray[np.float64]
LEAST = 16  # steps of training
METHODS = ("innovations_mle", "hannan_rissanen", "statespace")


def forecast(
    released: Releases | npt.ArrayLike,
    steps: int,
    *,
    train: int | None = None,
    order: tuple[int, int] = (1, 1),
    method: str = "innovations_mle",
    nonnegative: bool = False,
) -> Values:
    """The next steps of every column, by an ARMA model of its last releases. Post-processing: it costs no budget.

    Parameters
    ----------
    released
        Releases, of which the final values count, or their values (T × d).
    steps
        How many steps to forecast, for example a day.
    train
        On how many of the last steps to train, for example four weeks; all of them by default.
    order
        The autoregressive and the moving-average terms (p, q).
    method
        "innovations_mle" (maximum likelihood), "statespace" (the same by the Kalman filter) or "hannan_rissanen"
        (least squares), of what is left of a column when its mean is taken off. ARMA(1, 1) by maximum likelihood is
        compiled here; all else is statsmodels' (`pip install 'tidegate[forecast]'`), and where an estimate of its
        fails, the next slower one is used.
    nonnegative
        Whether the stream is known not to be negative: then no forecast is.

    Examples
    --------
    >>> day = 100 + 10 * np.sin(np.arange(480) / 48 * 2 * np.pi)
    >>> forecast(day, 48).shape
    (48, 1)
    """
    values = _read(released)
    count = whole("steps", steps)
    p, q = (whole("order", term, least=0) for term in order)
    length = len(values) if train is None else whole("train", train, least=LEAST)
    one_of("method", method, METHODS)
    if len(values) < max(length, LEAST):
        raise InvalidInput(
            f"a forecast is trained on {max(length, LEAST)} steps and only {len(values)} are released; "
            "wait for more or train on fewer."
        )
    window = values[len(values) - length :]
    columns = [_column(window[:, column], count, (p, 0, q), method) for column in range(window.shape[1])]
    forecasts = np.stack(columns, axis=1)
    return np.maximum(forecasts, 0.0) if nonnegative else forecasts


def _column(values: Values, steps: int, order: tuple[int, int, int], method: str) -> Values:
    if np.ptp(values) == 0.0:  # nothing to learn: a constant continues
        return np.full(steps, values[-1])
    mean = values.mean()  # taken off first: it is not estimated along with the rest
    if order == (1, 0, 1) and method == METHODS[0]:
        phi, _, ahead = arma.fit(np.ascontiguousarray(values - mean))
        return np.asarray(mean + ahead * phi ** np.arange(steps), dtype=np.float64)
    model = _arima()(values - mean, order=order, trend="n")
    with warnings.catch_warnings():
        # starting values that are not stationary are replaced, says the library
        warnings.simplefilter("ignore")
        for attempt in dict.fromkeys((method, "innovations_mle", "statespace")):
            try:
                found = model.fit(method=attempt, return_params=True)
                ahead = model.filter(found, cov_type="none", low_memory=True).forecast(steps)
                return np.asarray(ahead + mean, dtype=np.float64)
            except (ValueError, np.linalg.LinAlgError):
                continue  # an estimate outside of the model's range: the next method searches inside it
    return np.full(steps, mean)  # a model that nothing fits tells no more than its mean


def _read(released: Releases | npt.ArrayLike) -> Values:
    given = released.final.values if isinstance(released, Releases) else released
    values = np.asarray(given, dtype=np.float64)
    values = values[:, np.newaxis] if values.ndim == 1 else values
    if values.ndim != 2 or not np.isfinite(values).all():
        raise InvalidInput("released values are finite numbers, steps × columns; forecast those.")
    return values


def _arima() -> Any:
    """The library's model, imported where it is needed."""
    try:
        from statsmodels.tsa.arima.model import ARIMA
    except ImportError:
        raise TidegateError(
            "forecasts by other models than ARMA(1, 1) need statsmodels, which is not installed; install it with "
            "`pip install 'tidegate[forecast]'`."
        ) from None
    return ARIMA
