"""How far released values may be off where their noise alone does not say it: learnt from earlier releases.

A value that was measured some steps ago is off by its noise and by what the stream has moved since; a smoothed value by
less noise and by what smoothing flattened. Both movements are estimated here from releases and public scales, never from
data, so intervals are post-processing and cost nothing. An estimate begins cautiously, with a movement as large as noise
would hide, and this caution fades as releases come.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from statistics import NormalDist
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.kernels.walks import COUNT, GAPS, SQUARES, STEP, VALUE, VARIANCE, follow_walk
from tidegate.noise.law import AnyLaw, SharedLaw, spread_radius
from tidegate.releases import Measured, Radii, Release, Releases, SharedRadii, Status, Values

Mask = npt.NDArray[np.bool_]

UNSEEN = 0.6  # of the variance of noise: one standard error of what 40 faded differences say of a walk


Single = tuple[int, Values, Status, int, float, Measured | None]
MOST_WAITING = 256  # steps that are kept until they are looked at
MOST_CELLS = 2048  # and values of a batch that is kept with them
AT_ONCE = 1 << 14  # values of a large batch that are looked at together: all about them stays in the cache
# as arrays of statuses have them: compared without a conversion
FRESH, PARTIAL, APPROXIMATED = map(np.int8, (Status.FRESH, Status.PARTIAL, Status.APPROXIMATED))
TELLING = (Status.FRESH, Status.PARTIAL)  # of steps at which something was measured


class Shown(NamedTuple):
    """Releases as arrays: all that intervals are made from. Their steps are consecutive, unless they have numbers."""

    first_step: int
    values: Values
    status: npt.NDArray[np.int8]
    source: npt.NDArray[np.int64]
    scale: Values
    measured: Measured | None
    revised: Releases | None
    numbers: npt.NDArray[np.int64] | None = None

    @classmethod
    def of(cls, releases: Release | Releases) -> Shown:
        """One release, or many."""
        if isinstance(releases, Releases):
            fields = (releases.values, releases.status, releases.source, releases.scale)
            return cls(releases.first_step, *fields, releases.measured, releases.revised)
        measured = releases.measured
        return cls(
            releases.step,
            releases.values[np.newaxis],
            np.array([releases.status], dtype=np.int8),
            np.array([releases.source], dtype=np.int64),
            np.array([releases.scale]),
            None if measured is None else measured.rows(np.newaxis),
            releases.revised,
        )

    @classmethod
    def stacked(cls, waiting: Sequence[Single | Shown]) -> Shown:
        """Consecutive releases, single ones and batches, as one."""
        parts: list[Shown] = []
        singles: list[Single] = []
        for each in waiting:
            if not isinstance(each, Shown):
                singles.append(each)
                continue
            parts += [cls._of_singles(singles), each] if singles else [each]
            singles = []
        if singles:
            parts.append(cls._of_singles(singles))
        if len(parts) == 1:
            return parts[0]
        _, values, status, source, scale, measured, _, _ = zip(*parts, strict=True)
        return cls(
            parts[0].first_step,
            np.concatenate(values),
            np.concatenate(status),
            np.concatenate(source),
            np.concatenate(scale),
            None if measured[0] is None else Measured(*map(np.concatenate, zip(*measured, strict=True))),
            None,
            np.concatenate([part.steps[:, 0] for part in parts]),
        )

    @classmethod
    def _of_singles(cls, singles: Sequence[Single]) -> Shown:
        steps, values, status, source, scale, measured = zip(*singles, strict=True)
        return cls(
            steps[0],
            np.array(values),
            np.array(status, dtype=np.int8),
            np.array(source, dtype=np.int64),
            np.array(scale),
            None if measured[0] is None else Measured(*map(np.array, zip(*measured, strict=True))),
            None,
            np.array(steps, dtype=np.int64),
        )

    def part(self, begin: int, end: int) -> Shown:
        """Some of the steps, without what they revise."""
        some = slice(begin, end)
        fields = (self.values[some], self.status[some], self.source[some], self.scale[some])
        return Shown(
            self.first_step + begin,
            *fields,
            None if self.measured is None else self.measured.rows(some),
            None,
            None if self.numbers is None else self.numbers[some],
        )

    @property
    def steps(self) -> npt.NDArray[np.int64]:
        """The numbers of the steps, T × 1."""
        if self.numbers is not None:
            return self.numbers[:, np.newaxis]
        return (self.first_step + np.arange(len(self.values), dtype=np.int64))[:, np.newaxis]


class Singles(SharedRadii):
    """The radii of single releases, each from the state before all that wait and from those of them up to its own."""

    __slots__ = ("_before", "_radius", "_waiting")

    def __init__(
        self,
        radius: Callable[[Values, Shown, float], Values],
        before: Values,
        waiting: list[Single | Shown],
    ) -> None:
        self._radius, self._before, self._waiting = radius, before, waiting

    def of_one(self, release: Release, place: int) -> Radii:
        """Those of the release after which so many waited; fewer than none where it waits not itself."""
        waiting = self._waiting[: abs(place)]
        if place <= 0:
            waiting.append(_single(release))
        return Radii(partial(self._of_last, waiting))

    def _of_last(self, waiting: Sequence[Single | Shown], confidence: float) -> Values:
        return np.asarray(self._radius(self._before, Shown.stacked(waiting), confidence)[-1])


def _single(release: Release) -> Single:
    """What intervals are made from."""
    return release.step, release.values, release.status, release.source, release.scale, release.measured


class Uncertainty(ABC):
    """What the releases of a run so far say about the errors of the next ones.

    Parameters
    ----------
    columns
        The columns of a release.
    law
        The noise of a measurement.
    """

    rows: ClassVar[int]  # of the state
    waits: ClassVar[bool] = True  # whether few releases are looked at together with others
    skips: ClassVar[bool] = False  # whether releases of which nothing was measured tell nothing

    def __init__(self, columns: int, law: AnyLaw) -> None:
        self.law = law
        self.state = np.zeros((self.rows, columns))

    @property
    def state(self) -> Values:
        """All that can be learnt from the releases so far."""
        return self._learnt(self._state, Shown.stacked(self._waiting)) if self._waiting else self._state

    @state.setter
    def state(self, state: Values) -> None:
        # another list: radii still hold the old one
        self._state, self._steps_waiting = state, 0
        self._waiting: list[Single | Shown] = []
        self._singles = Singles(self._radius, state, self._waiting)

    def learn(self) -> Values:
        """The state, from which everything goes on: single releases that have waited are looked at once."""
        self.state = self.state
        return self._state

    def follow(self, releases: Release | Releases) -> None:
        """Learn from releases, and give them half the widths of their intervals, which are worked out when asked for.

        Few releases wait until it matters what they tell, since to look at them takes as long as a push; those that
        revise earlier steps do not.
        """
        if self.waits and releases.revised is None:
            if isinstance(releases, Release):
                self._follow_one(releases)
                return
            if 0 < releases.values.size <= MOST_CELLS and len(releases) <= MOST_WAITING:
                releases.radii = self._follow_few(releases)
                return
        shown, before = Shown.of(releases), self.state
        self.state = self._learnt(before, shown)
        radii = Radii(partial(self._radius, before, shown))
        releases.radii = radii.rows(0) if isinstance(releases, Release) else radii

    def _follow_one(self, release: Release) -> None:
        if self.skips and release.status not in TELLING:
            release._radii, release._place = self._singles, -len(self._waiting)
            return
        if self._steps_waiting >= MOST_WAITING:
            self.learn()
        self._steps_waiting += 1
        self._waiting.append(_single(release))
        release._radii, release._place = self._singles, len(self._waiting)

    def _follow_few(self, releases: Releases) -> Radii:
        steps = len(releases)
        if self._steps_waiting + steps > MOST_WAITING:
            self.learn()
        shown = Shown.of(releases)
        self._waiting.append(shown._replace(values=shown.values.copy()))  # whoever has them may change them
        self._steps_waiting += steps
        return Radii(partial(self._radius_of_few, self._state, self._waiting, len(self._waiting), steps))

    def _radius_of_few(
        self, before: Values, waiting: list[Single | Shown], count: int, steps: int, confidence: float
    ) -> Values:
        return self._radius(before, Shown.stacked(waiting[:count]), confidence)[-steps:]

    @abstractmethod
    def _learnt(self, before: Values, shown: Shown) -> Values:
        """The state after these releases, as a new array."""

    @abstractmethod
    def _radius(self, before: Values, shown: Shown, confidence: float) -> Values:
        """Half the widths, T × d: each from the state before and the releases up to its own step."""

    def revised(self, releases: Releases) -> Radii | None:
        """Half the widths for better values of earlier steps, from what is known by now; None where there are none."""
        return None


class Walk(Uncertainty):
    """For values that stay until the next measurement: its noise, and a movement that is learnt.

    Two measurements differ by their noise and by what the stream moved: E(z′ − z)² = D + both noise variances. So D is
    the mean of what noise does not explain of squared differences; of noise that steps share nothing is subtracted. All
    of D counts from the first step after a measurement: counts that scatter around a level have moved by it at once, a
    stream that walks by less. After more steps than measurements are apart on average D grows like the variance of a
    walk. To it comes what both noises would hide, half a standard error, and Student's quantiles where differences are
    few. Before there is any, the stream is taken to scatter as a count of so many grid units does by chance. At the step
    of a measurement only noise counts, and its law is exact.
    """

    rows = 6
    skips = True

    def _learnt(self, before: Values, shown: Shown) -> Values:
        fresh = np.equal(shown.status, FRESH)
        if np.equal(shown.status, PARTIAL).any():
            _, last = self._trace(before, shown, self._published(before, shown))
            return last
        at = np.flatnonzero(fresh)
        if not len(at):
            return before
        state = before.copy()
        steps = shown.first_step + at if shown.numbers is None else shown.numbers[at]
        variances = self.law.variance(shown.scale[at])
        follow_walk(state, shown.values, at, steps, variances, self._subtracts)
        return state

    @property
    def _subtracts(self) -> bool:
        """Whether noises of two measurements are independent, so that their variances add up."""
        return not isinstance(self.law, SharedLaw)

    def _published(self, before: Values, shown: Shown) -> Mask:
        """Which values were measured at their step, T × d: of a step that measured some columns those that changed."""
        fresh = np.equal(shown.status, FRESH)[:, np.newaxis]
        some = np.equal(shown.status, PARTIAL)[:, np.newaxis]
        if not some.any():
            return np.broadcast_to(fresh, shown.values.shape)
        earlier = np.concatenate([before[VALUE][np.newaxis], shown.values[:-1]])
        return np.asarray(fresh | (some & (shown.values != earlier)))

    def _trace(self, before: Values, shown: Shown, published: Mask) -> tuple[Values, Values]:
        """The state after each step (rows × T × d), and the last one."""
        rows = np.arange(len(published))[:, np.newaxis]
        latest = np.maximum.accumulate(np.where(published, rows, -1), axis=0)
        previous = np.concatenate([np.full((1, published.shape[1]), -1), latest[:-1]])

        def at(index: npt.NDArray[np.int64], now: Values, earlier: Values) -> Values:
            found = np.take_along_axis(np.broadcast_to(now, published.shape), np.maximum(index, 0), axis=0)
            return np.where(index >= 0, found, earlier)

        steps, variances = shown.steps.astype(np.float64), self.law.variance(shown.scale)[:, np.newaxis]
        whole = np.equal(shown.status, FRESH)[:, np.newaxis]
        since = at(previous, steps, before[STEP])
        counted = published & (since > 0)
        moved = (shown.values - at(previous, shown.values, before[VALUE])) ** 2
        if self._subtracts:  # where only some columns were measured the scale is the largest of several
            moved = moved - np.where(whole, variances + at(previous, variances, before[VARIANCE]), 0.0)
        trace = np.stack(
            [
                before[SQUARES] + np.cumsum(np.where(counted, moved, 0.0), axis=0),
                before[GAPS] + np.cumsum(np.where(counted, steps - since, 0.0), axis=0),
                before[COUNT] + np.cumsum(counted, axis=0),
                at(latest, shown.values, before[VALUE]),
                at(latest, steps, before[STEP]),
                at(latest, variances, before[VARIANCE]),
            ]
        )
        return trace, trace[:, -1]

    def _radius(self, before: Values, shown: Shown, confidence: float) -> Values:
        if not len(shown.values):
            return np.zeros(shown.values.shape)
        published = self._published(before, shown)
        trace, _ = self._trace(before, shown, published)
        noise = self._noise(shown.scale, confidence)[:, np.newaxis] * self._share(trace)
        variance = self.law.variance(shown.scale)[:, np.newaxis]
        found = np.hypot(noise, self._moved(trace, shown.steps - trace[STEP], variance, confidence))
        found = np.where(trace[STEP] > 0, found, np.inf)
        return np.where(np.isnan(shown.values), np.nan, found)

    def _moved(self, trace: Values, gap: Values, variance: Values, confidence: float) -> Values:
        """Half the width for what the stream has moved in a gap since it was measured."""
        count = trace[COUNT]
        chance = np.where(count > 0, 0.0, 2 * self.law.grid * np.abs(trace[VALUE]))
        longer = np.maximum(gap * count / np.maximum(trace[GAPS], 1.0), 1.0)
        moved = (self._between(trace, variance) + chance) * longer
        return np.where(gap > 0, np.sqrt(moved) * student(confidence, count), 0.0)

    def _between(self, trace: Values, variance: Values) -> Values:
        """The variance of what the stream moves between two measurements."""
        count = trace[COUNT]
        return np.asarray(
            np.maximum(trace[SQUARES], 0.0) / np.maximum(count, 1.0) + 2 * variance / np.sqrt(count + 1.0)
        )

    def _noise(self, scale: Values, confidence: float) -> Values:
        """Half the width for the noise of a measurement."""
        return self.law.radius(scale, confidence)

    def _share(self, trace: Values) -> Values | float:
        """Which part of a measurement's noise is left in what is released."""
        return 1.0

    def revised(self, releases: Releases) -> Radii:
        """Half the widths for better values of earlier steps, which lie between measurements on both sides."""
        return Radii(partial(self._radius_between, self.state.copy(), releases))

    def _gaps(self, state: Values, releases: Releases) -> Values:
        """How many steps better values are away from a measurement."""
        return np.asarray(np.abs(releases.steps - releases.source)[:, np.newaxis], dtype=np.float64)

    def _radius_between(self, state: Values, shown: Releases, confidence: float) -> Values:
        trace, gap = state[:, np.newaxis, :], self._gaps(state, shown)
        noise = self.law.radius(shown.scale, confidence)[:, np.newaxis]
        variance = self.law.variance(shown.scale)[:, np.newaxis]
        found = np.hypot(noise, self._moved(trace, gap, variance, confidence))
        return np.where(state[STEP] > 0, found, np.inf)


class Filtered(Walk):
    """For a Kalman filter on a walk: the noise that the filter leaves, and the walk since the last measurement.

    In the long run the corrections of such a filter have the variance Q = q·gap of the walk itself, so the pace is the
    mean of squared changes of released values. The gain K that belongs to it solves K²·R + K·Q = Q for noise of variance
    R, and what is left of the noise is K·R. A filter that learns its pace from noisy differences cannot see a walk of
    less than a part of R between measurements, and stands still meanwhile; that much is added to Q. Columns that were
    measured together are taken to be alike: what they differ by is in no interval.
    """

    skips = False  # steps that are not measured may be released with other values
    _subtracts = False

    def _between(self, trace: Values, variance: Values) -> Values:
        count = trace[COUNT]
        return np.asarray(
            trace[SQUARES] / np.maximum(count, 1.0) + variance / (count + 1.0) + UNSEEN * variance
        )

    def _noise(self, scale: Values, confidence: float) -> Values:
        # filtered values lie between grid points, so that noise which is mostly 0 does not say that they are right
        return np.maximum(
            self.law.radius(scale, confidence), spread_radius(np.sqrt(self.law.variance(scale)), confidence)
        )

    def _share(self, trace: Values) -> Values:
        noise = trace[VARIANCE]
        ratio = self._between(trace, noise) / np.where(noise > 0, noise, 1.0)
        gain = (np.sqrt(ratio * ratio + 4 * ratio) - ratio) / 2
        gain = np.where(trace[COUNT] > 0, gain, 1.0)  # the first measurement is taken as it is
        return np.asarray(np.sqrt(gain))


class Smoothed(Uncertainty):
    """For values that are smoothed from measurements of every step: less noise, and what smoothing flattens.

    A measurement differs from the smoothed value of its step by the noise that smoothing took away, of variance
    R·(1 − 1/n) for a mean of n, and by what it flattened; the mean square of the rest is what was flattened so far.
    Values that are measurements have the exact law of their noise.

    Parameters
    ----------
    columns, law
        As for every :class:`Uncertainty`.
    sizes
        Of how many measurements each value was made, T × d, from releases and the number of steps before them; 0 where
        nothing was measured.
    left
        What the smoother leaves of the variance of a mean of equal values: 1 for a mean.
    scales
        The noise scale of each value in its own unit; by default that of the release.
    absent
        Half the width, by confidence, where nothing was measured.
    """

    rows = 3

    def __init__(
        self,
        columns: int,
        law: AnyLaw,
        sizes: Callable[[Shown, int], Values],
        left: float = 1.0,
        scales: Callable[[Shown], Values] | None = None,
        absent: Callable[[float], Values | float] = lambda confidence: np.inf,
    ) -> None:
        super().__init__(columns, law)
        self._sizes, self._left, self._absent = sizes, left, absent
        self._scales = scales or (lambda shown: shown.scale[:, np.newaxis])

    def _residuals(self, before: Values, shown: Shown) -> tuple[Values, Values, Values]:
        """What is left of squared residuals, which of them count, and the sizes."""
        assert shown.measured is not None
        sizes = self._sizes(shown, int(before[2, 0]))
        counted = (sizes > 1) & np.equal(shown.status, FRESH)[:, np.newaxis]
        variance = self.law.variance(self._scales(shown))
        rest = (shown.measured.noisy - shown.values) ** 2 - variance * (1 - 1 / np.maximum(sizes, 1))
        return np.where(counted, rest, 0.0), counted.astype(np.float64), sizes

    def _learnt(self, before: Values, shown: Shown) -> Values:
        length = max(1, AT_ONCE // before.shape[1])
        for begin in range(0, len(shown.values), length):
            rest, counted, _ = self._residuals(before, shown.part(begin, begin + length))
            seen = np.full(before.shape[1], float(len(rest)))
            before = before + np.stack([rest.sum(axis=0), counted.sum(axis=0), seen])
        return before

    def _radius(self, before: Values, shown: Shown, confidence: float) -> Values:
        rest, counted, sizes = self._residuals(before, shown)
        squares = before[0] + np.cumsum(rest, axis=0)
        counts = before[1] + np.cumsum(counted, axis=0)
        scales = self._scales(shown)
        variance = self.law.variance(scales)
        flattened = (np.maximum(squares, 0.0) + variance) / (counts + 1)
        smooth = spread_radius(
            np.sqrt(variance * np.minimum(self._left / np.maximum(sizes, 1), 1) + flattened), confidence
        )
        alone = self.law.radius(np.broadcast_to(scales, shown.values.shape), confidence)
        found = np.where(sizes > 1, smooth, np.where(sizes == 1, alone, self._absent(confidence)))
        kept = np.equal(shown.status, APPROXIMATED)[:, np.newaxis]
        return np.where(np.isnan(shown.values), np.nan, np.where(kept, np.inf, found))


def grouped(shown: Shown, before: int) -> Values:
    """The sizes of values that are smoothed from their group so far."""
    assert shown.measured is not None
    groups = shown.measured.groups
    return np.where(groups > 0, shown.steps - groups + 1, 0).astype(np.float64)


def student(confidence: float, count: Values) -> Values:
    """Student's quantile for a variance that was learnt from so many numbers, after Wallace; too large for one or two."""
    number = np.maximum(count, 1.0)
    root = NormalDist().inv_cdf(0.5 + confidence / 2) * (8 * number + 3) / (8 * number + 1)
    return np.asarray(np.sqrt(number * np.expm1(root * root / number)))
