"""Public sample times: the positions of a period at which a stream is measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from tidegate.compiled import kernel
from tidegate.core.arrays import Array
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.exact import whole
from tidegate.mechanisms.optstream.l1_sampling import NODE, insert, score

Integers = npt.NDArray[np.int64]
LARGEST = 2**38  # of a profile's values: scores of periods up to 2^11 steps stay within 64 bits


class SampleTimes(Protocol):
    """A sampler of one's own, for ``OptStream(adaptive=…)``: it chooses the samples of each period before it begins.

    It may use public data and what it is given: earlier releases. It must never see the stream, for what it chooses is
    public, and its choice is not charged. It must be deterministic and keep nothing from one call for the next, since
    calls may be repeated: the one for the first period is made when the mechanism is, too. Windows that straddle two
    periods are paid for.
    """

    def times(self, period: int, before: npt.NDArray[np.float64] | None) -> Sequence[int]:
        """The k positions, 1 and w among them, of the samples of a period (0, 1, …), in ascending order.

        `before` are the final values of the last period that has some (steps × columns), or None.
        """
        ...

    def describe(self) -> Any:
        """What identifies the sampler in the configuration of a log, as JSON."""
        ...


class PlannedTimes:
    """The samples of the open period, as a sampler of one's own has chosen them.

    Parameters
    ----------
    sampler
        The sampler.
    window, samples
        w and k.
    """

    def __init__(self, sampler: SampleTimes, window: int, samples: int) -> None:
        self.sampler, self.window, self.samples = sampler, window, samples
        self.chosen = np.zeros(window, dtype=np.bool_)

    def stored(self) -> tuple[Array, ...]:
        """Which steps are samples."""
        return (self.chosen,)

    def loaded(self, stored: Iterator[Array]) -> Self:
        """The same from what was stored."""
        found = type(self)(self.sampler, self.window, self.samples)
        found.chosen[:] = next(stored)
        return found

    def plan(self, period: int, before: npt.NDArray[np.float64] | None) -> None:
        """Ask the sampler. A wrong answer is an error, which halts the stream: no budget was made for it."""
        answer = self.sampler.times(period, before)
        try:
            times = read_times(answer, self.window)
        except (InvalidParameter, TypeError):
            times = ()
        self.chosen[:] = False
        self.chosen[np.array(times, dtype=np.int64) - 1] = True
        if self.chosen.sum() != self.samples or not self.chosen[[0, -1]].all():
            raise InvalidParameter(
                "times",
                answer,
                f"{self.samples} whole numbers from 1 to {self.window}, both among them, in ascending order",
                "correct the sampler, or samples",
            )

    def forget(self) -> None:
        """Nothing is chosen until the next period."""
        self.chosen[:] = False


def equally_spaced(window: int, samples: int) -> tuple[int, ...]:
    """k positions of a period of so many steps, as far apart as possible; the last step is one of them.

    Examples
    --------
    >>> equally_spaced(48, 4), equally_spaced(5, 3)
    ((12, 24, 36, 48), (2, 4, 5))
    """
    k = whole("samples", samples, most=window)
    return tuple(-(-window * number // k) for number in range(1, k + 1))


def read_times(times: Sequence[int], w: int) -> tuple[int, ...]:
    """Check positions: ascending, between 1 and w, the last one w."""
    read = tuple(whole("times", time, most=w) for time in times)
    if not read or read[-1] != w or any(a >= b for a, b in pairwise(read)):
        raise InvalidParameter(
            "times",
            list(read),
            f"ascending positions that end with {w}",
            f"sample the last step, {w}, as well",
        )
    return read


@kernel
def segment_costs(profile: Any, costs: Any) -> None:
    """costs[a, b] = Σ|line − x| between the positions a and b of a profile (positions × columns), added up."""
    positions, columns = profile.shape
    nodes = np.empty((positions, NODE), dtype=np.int64)
    path = np.empty(positions, dtype=np.int64)
    for column in range(columns):
        for a in range(positions - 1):
            root = -1
            for b in range(a + 1, positions):
                run, rise = b - a, profile[b, column] - profile[a, column]
                costs[a, b] += score(nodes, root, rise, run) / run
                root = insert(nodes, path, root, run - 1, rise, run)


@kernel
def cheapest_paths(costs: Any, most: int, best: Any, came: Any) -> None:
    """best[k, b]: the least cost of k segments from position 0 to b, and the position that the last one came from."""
    positions = costs.shape[0]
    best[:] = np.inf
    best[0, 0] = 0.0
    for k in range(1, most + 1):
        for b in range(k, positions):
            for a in range(k - 1, b):
                cost = best[k - 1, a] + costs[a, b]
                if cost < best[k, b]:
                    best[k, b] = cost
                    came[k, b] = a


class BestTimes:
    """For each number of samples the positions with the least interpolation error on a public profile.

    Minimises equation 4 of the OptStream paper, the sum of the distances from the straight lines between samples,
    over all periods and columns of the profile, by dynamic programming in O(w² log w + k·w²). The line to a period's
    first sample begins at the last step of the period before.

    Parameters
    ----------
    profile
        Public or earlier released values, T × d with T a multiple of w.
    w
        Steps of a period.
    most
        The largest number of samples that will be asked for; w by default.

    Examples
    --------
    >>> curve = [0, 0, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9]
    >>> BestTimes(np.array(curve), 12).of(4)
    (1, 6, 7, 12)
    """

    def __init__(self, profile: npt.ArrayLike, w: int, most: int | None = None) -> None:
        self.w = w
        self.most = w if most is None else whole("most", most, most=w)
        self.profile = read_profile(profile, w)

    @cached_property
    def _paths(self) -> tuple[npt.NDArray[np.float64], Integers]:
        flat = self.profile
        largest = float(np.abs(flat).max(initial=0.0)) or 1.0
        scaled = np.rint(flat * (LARGEST / self.w / largest)).astype(np.int64)
        costs = np.zeros((self.w + 1, self.w + 1))
        for period in range(len(flat) // self.w):
            begin = period * self.w
            # before the first period of the profile its own last step stands in
            before = scaled[begin - 1] if period else scaled[self.w - 1]
            segment_costs(np.vstack([before[None], scaled[begin : begin + self.w]]), costs)
        best = np.empty((self.most + 1, self.w + 1))
        came = np.zeros(best.shape, dtype=np.int64)
        cheapest_paths(costs, self.most, best, came)
        return best, came

    def of(self, samples: int) -> tuple[int, ...]:
        """The best positions for so many samples."""
        k = whole("samples", samples, most=self.most)
        _, came = self._paths
        times, at = [self.w], self.w
        for number in range(k, 1, -1):
            at = int(came[number, at])
            times.append(at)
        return tuple(reversed(times))


def read_profile(profile: npt.ArrayLike, w: int) -> npt.NDArray[np.float64]:
    """A profile as T × d floats; T must be a multiple of w, and every value finite."""
    values = np.asarray(profile, dtype=np.float64)
    values = values[:, np.newaxis] if values.ndim == 1 else values
    if values.ndim != 2 or not len(values) or len(values) % w or not np.isfinite(values).all():
        raise InvalidInput(
            f"a profile has the values of whole periods of {w} steps, without gaps; this one has the shape "
            f"{values.shape}: cut it to whole periods and fill its gaps."
        )
    return values
