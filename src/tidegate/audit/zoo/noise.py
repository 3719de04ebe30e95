"""Mutants of the noise itself: too little, too regular, one-sided, in floating point, or left out."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property

import numpy as np

from tidegate.audit.subjects import Callee
from tidegate.audit.zoo.animal import REPLAY, Animal, Floats, Stream, noise
from tidegate.composition import largest_step
from tidegate.exact import float_up
from tidegate.mechanisms.sample import Sample
from tidegate.mechanisms.uniform import Uniform
from tidegate.noise import current, gaussian
from tidegate.policy import Event, Policy, WEvent


class _Thin(Uniform):
    """Uniform whose noise is too small by a factor."""

    factor = 1.0

    @cached_property
    def scale(self) -> float:
        """Too small."""
        return float(super().scale) * self.factor


class Halved(_Thin):
    """Half of the noise."""

    factor = 0.5


class TenPercentLow(_Thin):
    """A near miss: 1.1 ε."""

    factor = 1 / 1.1


class FivePercentLow(_Thin):
    """A nearer miss: 1.05 ε."""

    factor = 1 / 1.05


class WindowForgotten(Uniform):
    """Every step has the whole budget, although w of them share it."""

    @cached_property
    def scale(self) -> float:
        """Of one step alone."""
        return float_up(self.sensitivity / Fraction(self.policy.epsilon or 1))


class SampledHalved(Sample):
    """Half of the noise at measured steps."""

    @cached_property
    def scale(self) -> float:
        """Too small."""
        return float(super().scale) / 2


class HalfOfTheSteps(Uniform):
    """The share of a step is composed over half of the window only."""

    @cached_property
    def scale(self) -> float:
        """Too small."""
        epsilon, delta = Fraction(self.policy.epsilon or 1), Fraction(self.policy.delta)
        return float_up(self.sensitivity / largest_step(self.units // 2, epsilon, delta))


def _callee(call: object, policy: Policy, columns: int = 1) -> Callee:
    return Callee(call, policy, columns, getattr(call, "__name__", "callable").strip("_"), many=True)  # type: ignore[arg-type]


def replacement_forgotten(stream: Stream, count: int) -> Floats:
    """ε = 1 for one row added or removed, where rows are replaced."""
    return stream.reshape(1, -1) + noise(1.0, (count, stream.size)).astype(float)


def clipping_forgotten(stream: Stream, count: int) -> Floats:
    """Noise for contributions clipped to 1, which nobody clipped."""
    return stream.reshape(1, -1) + noise(1.0, (count, stream.size)).astype(float)


def float_noise(stream: Stream, count: int) -> Floats:
    """Laplace noise by the inverse distribution function in floating point (Mironov 2012)."""
    words = current().words("zoo", 0, 1, range(count * stream.size), 0, 1).reshape(count, -1)
    uniform = ((words >> np.uint64(11)).astype(float) + 0.5) * 2.0**-53
    centred = uniform - 0.5
    return stream.reshape(1, -1) - np.sign(centred) * np.log1p(-2 * np.abs(centred))


def half_even(stream: Stream, count: int) -> Floats:
    """Real values in halves, rounded half to even after they were summed: 0.5 and 1.5 become 0 and 2."""
    return np.rint(stream.reshape(1, -1) / 2) + noise(1.0, (count, stream.size))


def one_sided(stream: Stream, count: int) -> Floats:
    """Noise that is never negative."""
    return stream.reshape(1, -1) + np.abs(noise(1.0, (count, stream.size))).astype(float)


def truncated(stream: Stream, count: int) -> Floats:
    """Noise that is cut off at four times its scale."""
    return stream.reshape(1, -1) + np.clip(noise(1.0, (count, stream.size)), -4, 4).astype(float)


def same_in_all_columns(stream: Stream, count: int) -> Floats:
    """One draw for all columns of a step."""
    drawn = np.repeat(noise(1.0, (count, len(stream))), stream.shape[1], axis=1)
    return stream.reshape(1, -1) + drawn.astype(float)


def drawn_once(stream: Stream, count: int) -> Floats:
    """One draw for the whole stream."""
    return stream.reshape(1, -1) + noise(1.0, (count, 1)).astype(float)


def kept_for_two_steps(stream: Stream, count: int) -> Floats:
    """Noise that is drawn at every other step."""
    drawn = np.repeat(noise(1.0, (count, (len(stream) + 1) // 2)), 2, axis=1)[:, : len(stream)]
    return stream.reshape(1, -1) + drawn.astype(float)


def redrawn_until_positive(stream: Stream, count: int) -> Floats:
    """Negative results are drawn again, which changes the distribution of all others."""
    released = stream.reshape(1, -1) + noise(1.0, (count, stream.size))
    for _ in range(60):
        bad = np.flatnonzero(released.reshape(-1) < 0)
        if not len(bad):
            break
        flat = released.reshape(-1)
        flat[bad] = stream.reshape(-1)[bad % stream.size] + noise(1.0, (len(bad), 1))[:, 0]
    return released.astype(float)


def zeros_without_noise(stream: Stream, count: int) -> Floats:
    """Empty cells are released as they are."""
    released = stream.reshape(1, -1) + noise(1.0, (count, stream.size)).astype(float)
    return np.where(stream.reshape(1, -1) == 0, 0.0, released)


def wrong_rate(stream: Stream, count: int) -> Floats:
    """Two-sided geometric noise of rate 1 − ε in place of e^−ε, at ε = ½."""
    return stream.reshape(1, -1) + noise(-1 / math.log(0.5), (count, stream.size)).astype(float)


def scale_rounded_down(stream: Stream, count: int) -> Floats:
    """A scale of 2.5 that is kept as a whole number."""
    return stream.reshape(1, -1) + noise(2.0, (count, stream.size)).astype(float)


def gaussian_for_pure(stream: Stream, count: int) -> Floats:
    """Gaussian noise of the Laplace scale, claimed to be ε-private without any δ."""
    drawn = gaussian(current(), "zoo", 0, 1.0, (count, stream.size))
    return stream.reshape(1, -1) + drawn.astype(float)


def scale_from_the_data(stream: Stream, count: int) -> Floats:
    """Noise in proportion to the count, so that large counts look as good as small ones."""
    flat = stream.reshape(-1)
    drawn = [noise(1.0 + abs(int(value)) / 4, (count, 1)) for value in flat]
    return flat[np.newaxis] + np.concatenate(drawn, axis=1).astype(float)


def first_column_only(stream: Stream, count: int) -> Floats:
    """Noise on the first column, the others as they are."""
    drawn = noise(1.0, (count, stream.size)).reshape(count, *stream.shape).astype(float)
    drawn[:, :, 1:] = 0
    return (stream[np.newaxis] + drawn).reshape(count, -1)


def unchanged_is_not_released(stream: Stream, count: int) -> Floats:
    """A step that equals the one before is not released: silence tells that nothing changed."""
    released = stream.reshape(1, -1) + noise(1.0, (count, stream.size)).astype(float)
    released[:, 1:][:, np.diff(stream.reshape(-1)) == 0] = np.nan
    return released


def argmax_sampled(stream: Stream, count: int) -> Floats:
    """Only the largest step is measured, chosen by looking at the counts."""
    largest = int(np.argmax(stream.reshape(-1)))
    released = np.zeros((count, stream.size))
    released[:, largest] = stream.reshape(-1)[largest] + noise(1.0, (count, 1))[:, 0]
    return released


class ThinGaussian(Uniform):
    """σ too small by a fifth: 1.6 ρ."""

    @cached_property
    def scale(self) -> float:
        """Too small."""
        return float(super().scale) / math.sqrt(1.6)


class HalfGaussian(Uniform):
    """Half of the variance: 2 ρ."""

    @cached_property
    def scale(self) -> float:
        """Too small."""
        return float(super().scale) / math.sqrt(2)


def animals() -> list[Animal]:
    """All of them."""
    one = Event(epsilon="1")
    return [
        Animal("noise halved", "half of the noise", lambda: Halved(one), 2.0, steps=2),
        Animal("noise 10 % low", "near miss", lambda: TenPercentLow(one), 1.1, steps=1),
        Animal("noise 5 % low", "nearer miss", lambda: FivePercentLow(one), 1.05, steps=1),
        Animal("noise 10 % low, w = 2", "near miss over two steps",
               lambda: TenPercentLow(WEvent(epsilon="2", w=2)), 1.1, steps=3),
        Animal("scales that do not add up", "the account of a thin mechanism",
               lambda: Halved(WEvent(epsilon="1", w=5)), 2.0, REPLAY),
        Animal("window forgotten", "each step spends all of ε",
               lambda: WindowForgotten(WEvent(epsilon="1", w=3)), 3.0, steps=4),
        Animal("sample halved", "half of the noise at measured steps",
               lambda: SampledHalved(WEvent(epsilon="1", w=3)), 2.0),
        Animal("composed over half of the window", "(ε, δ) share of a step too large",
               lambda: HalfOfTheSteps(WEvent(epsilon="1", delta="1e-3", w=4)), 2.0, steps=4),
        Animal("replacement forgotten", "a row changes column: Δ = 2, not 1",
               lambda: _callee(replacement_forgotten, Event(epsilon="1", adjacency="replace"), 2), 2.0, steps=1),
        Animal("clipping forgotten", "values up to 3, noise for 1",
               lambda: _callee(clipping_forgotten, Event(epsilon="1", max_change=3)), 3.0, steps=2),
        Animal("noise in floating point", "outputs that only one neighbour can produce",
               lambda: _callee(float_noise, one), math.inf, steps=1),
        Animal("rounded half to even", "0.5 and 1.5 become 0 and 2",
               lambda: _callee(half_even, Event(epsilon="1", max_change=2)), 2.0, steps=1),
        Animal("noise never negative", "a release below the count is impossible",
               lambda: _callee(one_sided, one), math.inf, steps=2),
        Animal("noise cut off", "no release is further away than four scales",
               lambda: _callee(truncated, one), math.inf, steps=2),
        Animal("one draw for all columns", "differences of columns are exact",
               lambda: _callee(same_in_all_columns, one, 2), math.inf, steps=2),
        Animal("one draw for ever", "differences of steps are exact", lambda: _callee(drawn_once, one), math.inf),
        Animal("one draw for two steps", "some differences are exact",
               lambda: _callee(kept_for_two_steps, one), math.inf),
        Animal("drawn again until not negative", "the normalisation depends on the count",
               lambda: _callee(redrawn_until_positive, one), 1.2, steps=1),
        Animal("zeros without noise", "empty cells as they are",
               lambda: _callee(zeros_without_noise, one), math.inf, steps=2),
        Animal("rate 1 − ε", "the wrong geometric distribution",
               lambda: _callee(wrong_rate, Event(epsilon="1/2")), 1.38, steps=1),
        Animal("scale rounded down", "2.5 becomes 2",
               lambda: _callee(scale_rounded_down, Event(epsilon="2/5")), 1.25, steps=1),
        Animal("Gaussian noise, no δ", "its tails are too thin",
               lambda: _callee(gaussian_for_pure, one), math.inf, steps=1),
        Animal("scale from the data", "the spread tells the count",
               lambda: _callee(scale_from_the_data, one), math.inf, steps=2),
        Animal("noise on the first column only", "the others are exact",
               lambda: _callee(first_column_only, one, 2), math.inf, steps=2),
        Animal("unchanged steps are skipped", "silence is exact",
               lambda: _callee(unchanged_is_not_released, one), math.inf),
        Animal("largest step measured", "where, is exact", lambda: _callee(argmax_sampled, one), math.inf),
        Animal("σ a fifth too small", "zCDP, as near as one event can show",
               lambda: ThinGaussian(Event(rho="1/2")), 1.6, steps=1),
        Animal("half of the variance", "zCDP with half of the noise",
               lambda: HalfGaussian(Event(rho="1/2")), 2.0, steps=2),
    ]  # fmt: skip
