"""What Uniform, Sample and FAST have in common: all of the budget goes to measurements, with noise of one scale."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from tidegate.mechanisms.losses import Floats, noise_losses
from tidegate.mechanisms.sharing import SharingMechanism
from tidegate.releases import Releases


@dataclass(frozen=True)
class Measuring(SharingMechanism):
    """A mechanism whose measurements have equal parts of the budget, each for itself or in groups that share noise."""

    @property
    @abstractmethod
    def measurements(self) -> int:
        """The most measurements that a window can contain."""

    @property
    def units(self) -> int:
        """One unit for each measurement that a window can contain; with shared noise for each group of them."""
        return self.measurements if self.sharing is None else self.sharing.units

    @cached_property
    def scale(self) -> float:
        """The noise scale in grid units: b of the Laplace, σ of the Gaussian, s of shared noise; rounded up."""
        return self.noise_scale(self.units) if self.sharing is None else self.sharing.scale

    @property
    def shown_scale(self) -> float:
        """What releases say of the noise: the scale, or that of Laplace noise with its variance, in the values' unit."""
        scale = self.scale if self.sharing is None else self.sharing.laplace_scale
        return scale * float(Fraction(self.grid))

    @property
    def noise_error(self) -> float:
        """The mean absolute error of a measurement."""
        law = None if self.sharing is None else self.sharing.law
        expected = self.own_noise.expected_absolute(self.scale) if law is None else law.expected_absolute()
        return expected * float(Fraction(self.grid))

    def step_losses(self, releases: Releases) -> Floats | None:
        """What each step lost, from its scale; groups of steps that share noise lose together."""
        return None if self.shares_noise else noise_losses(self, releases)
