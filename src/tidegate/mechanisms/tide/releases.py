"""What Tide releases: values with the standard deviations of their errors, and intervals from them."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.releases import PeriodicRelease, PeriodicReleases, Releases, RevisedReleases

Floats = npt.NDArray[np.float64]
Kinds = list[tuple[int, npt.NDArray[np.int64]]]  # from which row on columns belong to which classes


class TideRelease(PeriodicRelease):
    """A release with the standard deviation of the error of each value.

    Attributes
    ----------
    deviation
        One for each column, estimated from releases; infinite before anything was measured.
    """

    __slots__ = ("deviation",)

    def __init__(self, *release: Any, revised: Releases | None, deviation: Floats) -> None:
        super().__init__(*release, revised=revised)
        self.deviation = deviation

    def radius(self, confidence: float = 0.9) -> Floats:
        """Half the widths of `interval`, from the deviations."""
        return widths(self.deviation, confidence)


class _Deviations:
    """What batches with deviations share: they are kept by class of columns, and looked up when asked for."""

    values: Floats

    def __init__(self, *releases: Any, by_class: Floats, kinds: Kinds, **more: Any) -> None:
        super().__init__(*releases, **more)
        self._by_class = by_class
        self._kinds = kinds

    @property
    def deviation(self) -> Floats:
        """The standard deviation of the error of each value, T × d."""
        result = np.empty(self.values.shape)
        ends = [begin for begin, _ in self._kinds[1:]] + [len(result)]
        for (begin, kind), end in zip(self._kinds, ends, strict=True):
            result[begin:end] = self._by_class[begin:end][:, kind]
        return result

    def radius(self, confidence: float = 0.9) -> Floats:
        """Half the widths of `interval`, from the deviations."""
        return widths(self.deviation, confidence)


class TideReleases(_Deviations, PeriodicReleases):
    """Releases with the standard deviations of their errors; `revised` has smoothed values of earlier steps."""

    def __getitem__(self, index: int) -> TideRelease:
        plain, at = super().__getitem__(index), range(len(self.values))[index]
        fields = (plain.step, plain.values, plain.status, plain.source, plain.scale, plain.units, plain.unit)
        kind = [kind for begin, kind in self._kinds if begin <= at][-1]
        deviation = self._by_class[at][kind]
        return TideRelease(*fields, plain.delay, revised=plain.revised, deviation=deviation)


class SmoothedReleases(_Deviations, RevisedReleases):
    """Smoothed values of earlier steps, with the standard deviations of their errors."""

    def ending_at(self, step: int) -> SmoothedReleases | None:
        """The part that became known at a step."""
        plain = super().ending_at(step)
        if plain is None:
            return None
        begin = plain.first_step - self.first_step
        part = slice(begin, begin + len(plain))
        kind = [kind for first, kind in self._kinds if first <= begin][-1]
        return SmoothedReleases(
            plain.first_step,
            plain.values,
            plain.status,
            plain.source,
            plain.scale,
            plain.units,
            plain.unit,
            plain.delay,
            ends=plain.ends,
            by_class=self._by_class[part],
            kinds=[(0, kind)],
        )


def widths(deviation: Floats, confidence: float) -> Floats:
    """Half the widths of Gaussian intervals; around Laplace noise they cover nearly the same at 90 %."""
    found: Floats = NormalDist().inv_cdf(0.5 + confidence / 2) * deviation
    return found
