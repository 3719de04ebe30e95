"""The Kalman filter that FAST and RescueDP share: post-processing of noisy measurements, free of charge."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from tidegate.errors import InvalidParameter
from tidegate.mechanisms.sampled.kernels import kalman as k


def finite(name: str, value: float, least: float, most: float = math.inf) -> float:
    """Read a tuning constant, which no guarantee depends on: a finite number in [least, most]."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and least <= number <= most):
        bounds = f"a finite number of at least {least:g}" + (
            "" if math.isinf(most) else f" and at most {most:g}"
        )
        raise InvalidParameter(name, value, bounds, "leave it out for the default")
    return number


@dataclass(frozen=True)
class Kalman:
    """A scalar filter for each column: a random walk that is measured with noise.

    Between measurements the estimate stands still and its variance grows by the process noise Q a step; a
    measurement with noise variance R moves it by the gain P/(P + R). The first measurement is taken as it is.

    Parameters
    ----------
    process_noise
        Q: how much the stream moves in one step, as a variance in the values' unit squared: a public
        constant. None estimates it for each column from the noisy measurements, by the excess of their
        squared differences over what the noise explains, each worth one over the squared variance of its
        noise; never from the data.
    measurement_noise
        R, as a variance. None is the variance of the noise that is really added, which is public.
    fading
        For the estimate of Q: what a difference of two measurements is worth when the next one comes.

    Examples
    --------
    >>> Kalman(process_noise=25.0).describe()
    {'process_noise': 25.0, 'measurement_noise': None, 'fading': 0.95}
    """

    process_noise: float | None = None
    measurement_noise: float | None = None
    fading: float = 0.95

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name, least in (("process_noise", 0.0), ("measurement_noise", 1e-12)):
            value = getattr(self, name)
            if value is not None:
                put(self, name, finite(name, value, least))
        put(self, "fading", finite("fading", self.fading, 0.0, 1.0))

    def describe(self) -> dict[str, Any]:
        """The settings, ready for JSON."""
        return asdict(self)


def model(settings: Kalman | None, grid: Fraction) -> k.Model:
    """The settings for the compiled loops, in grid units; without settings nothing is filtered."""
    if settings is None:
        return k.Model(filters=False, process=0.0, fades=0.0)
    walk = settings.process_noise
    return k.Model(
        filters=True, process=-1.0 if walk is None else walk / float(grid) ** 2, fades=settings.fading
    )


def switched(name: str, value: Any, default: Any) -> Any:
    """Read a switch: True is the default of a feature, another object of its class says how, and False is without it."""
    if value is True:
        return default
    if value is not False and not isinstance(value, type(default)):
        kind = type(default).__name__
        raise InvalidParameter(name, value, f"True, False or a {kind}", f"write {name}=True")
    return value
