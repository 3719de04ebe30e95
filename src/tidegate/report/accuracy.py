"""How far released numbers are off, from what was released alone, and what would help where that is too far."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tidegate.config import Config
from tidegate.config.auto import choose, seconds_of_a_step, steps_of_a_day
from tidegate.mechanisms import Blocks, Mechanism
from tidegate.plan import Description
from tidegate.plan.remedies import Remedy, remedies
from tidegate.policy import Policy
from tidegate.sinks.chunks import Chunk

Values = npt.NDArray[np.float64]
MEAN_OF_HALF = (
    0.45  # the mean error is about this part of half an interval at 90 %: Laplace 0.434, Gauss 0.485
)


@dataclass(frozen=True)
class Accuracy:
    """How far off, and of what.

    Parameters
    ----------
    half
        Half the width of a typical interval at 90 %: "± 55". NaN where no interval is known.
    off
        The expected absolute error of a value.
    typical
        A typical value: the median, over columns, of the mean of what was released of a column.
    drowned
        The columns whose typical value is smaller than their expected error.
    narrowest, widest
        The same half of the column with the narrowest intervals, and of the one with the widest.
    known
        The part of all values that have an interval.
    """

    half: float
    off: float
    typical: float
    drowned: tuple[str, ...]
    narrowest: float
    widest: float
    known: float = 1.0

    @property
    def too_noisy(self) -> bool:
        """Whether the expected error exceeds a typical released value."""
        return self.off > self.typical

    @property
    def level(self) -> float:
        """A typical value, or the smallest one that could be distinguished from the noise where it is below that."""
        return max(self.typical, self.half / 20)


def accuracy(config: Config, newest: Chunk) -> Accuracy | None:
    """What the releases themselves say about their error; None where they do not say anything."""
    if not len(newest) or newest.radius is None:
        return None
    query = config.query
    answers = query.answers(newest.values)
    halves = half_widths(config, newest)
    labels = query.own_labels
    count = len(labels)
    answers, halves = answers[:, :count], halves[:, :count]
    known = np.isfinite(halves)
    if not known.any():
        return None
    width = [
        float(np.median(column[at])) if at.any() else np.nan
        for column, at in zip(halves.T, known.T, strict=True)
    ]
    level = [float(abs(np.nanmean(column))) if np.isfinite(column).any() else np.nan for column in answers.T]
    drowned = tuple(
        label for label, wide, value in zip(labels, width, level, strict=True) if MEAN_OF_HALF * wide > value
    )
    half = float(np.nanmedian(width))
    ends = float(np.nanmin(width)), float(np.nanmax(width))
    part = known.sum() / max(1, np.isfinite(answers).sum())
    return Accuracy(half, MEAN_OF_HALF * half, float(np.nanmedian(level)), drowned, *ends, float(part))


def half_widths(config: Config, newest: Chunk) -> Values:
    """Half the widths of the intervals around answers, before they are cut where no truth can be."""
    if config.query.aggregate in ("mean", "quantile"):
        low, high = config.query.intervals(newest.values, newest.radius)
        return (high - low) / 2
    radius = np.nan if newest.radius is None else newest.radius
    if config.query.levels is not None:
        return config.query.levels.radius(np.array(np.broadcast_to(radius, newest.values.shape)))
    return np.array(np.broadcast_to(radius, newest.values.shape))


def what_would_help(config: Config, found: Accuracy) -> list[Remedy]:
    """The present setting and better ones, as a plan predicts them; nothing where a plan knows no such stream."""
    query, policy = config.query, config.policy
    if (
        query.learn is not None
        or not (query.nonnegative or query.aggregate == "given")
        or config.mechanism.statistic != "steps"
        or query.aggregate == "quantile"
        or isinstance(config.mechanism, Blocks)
    ):
        return []
    seconds = step_seconds(config)
    described = Description(level=found.level, columns=query.width, season=steps_of_a_day(seconds))
    kind = type(config.mechanism)

    def build(policy: Policy, columns: int, length: Fraction) -> Mechanism:
        if config.mechanism_keys.name == "auto" or kind.__name__ == "Tide":
            return choose(policy, columns, Fraction(1), "refuse", length, None, nonnegative=query.nonnegative)
        return kind(policy, columns=columns)

    return remedies(policy, described, seconds, build)


def likely_level(config: Config, policy: Policy | None = None) -> tuple[float, bool]:
    """The mean of one value, and whether the configuration says it: else a hundred records, or what a hundred units add.

    Of a mean it is how many records a step has. The policy is that of the configuration, if no other is given.
    """
    said = config.parameters.get("level")
    if config.query.aggregate in ("mean", "quantile"):
        return 100.0, False
    if said is not None:
        return float(str(said)), True
    return float(100 * Fraction((policy or config.policy).max_change or 1)), False


def step_seconds(config: Config) -> Fraction:
    """The length of a step."""
    return seconds_of_a_step(config.steps)
