"""StateSpace: filter the releases of any mechanism by a structural model of the stream. Free: post-processing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.exact import whole
from tidegate.releases import Release, Releases, Status
from tidegate.structures.kernels import tracking as t
from tidegate.structures.kernels.smoothing import WIDER, smooth
from tidegate.structures.kernels.state_space import UNSEEN
from tidegate.structures.state_space_model import Floats, Structure
from tidegate.structures.state_space_tracker import Tracker

NOISES = ("laplace", "gaussian")


@dataclass(frozen=True)
class Estimates:
    """Estimates of consecutive steps.

    Attributes
    ----------
    first_step
        The number of the first step.
    values, deviation
        T × d estimates and the standard deviations of their errors; infinite before anything was measured.
    """

    first_step: int
    values: Floats
    deviation: Floats

    def __len__(self) -> int:
        return len(self.values)

    def interval(self, confidence: float = 0.9) -> tuple[Floats, Floats]:
        """Bounds between which the true values lie with about this probability."""
        width = NormalDist().inv_cdf(0.5 + confidence / 2) * self.deviation
        return self.values - width, self.values + width


class StateSpace:
    """Follow the stream behind the releases of any mechanism.

    A level that wanders, a rough and a smooth residual and harmonics of public periods (Harvey 1989), with
    hyper-parameters that are estimated from the releases now and then. Only fresh releases are measurements: their noise
    is independent, and its scale is known; what a mechanism repeats or predicts in between is replaced by the model's
    own prediction.

    Parameters
    ----------
    columns
        The number of columns of the releases.
    periods, harmonics
        Public periods in steps, and how many harmonics each has; see `Structure`.
    delay
        After how many steps, at most, smoothed values of a step are known (`smoothed`); 0 for never.
    noise
        "laplace" or "gaussian": what `release.scale` is the scale of (b or σ).

    Error
    -----
    Every estimate says its own. Time O(n²) for n states and O(n·d) for d columns a step; memory does not grow.

    Examples
    --------
    >>> from tidegate.releases import Releases
    >>> noisy = 100 + np.random.default_rng(1).laplace(0, 20, (300, 1))
    >>> steps, ones = len(noisy), np.ones(len(noisy))
    >>> fields = (ones.astype(np.int8), None, 20 * ones, ones.astype(np.int64), 1)
    >>> model = StateSpace(columns=1)
    >>> found = model.push_batch(Releases(1, noisy, *fields))
    >>> bool(np.abs(found.values[100:] - 100).mean() < 10)
    True

    References
    ----------
    Harvey: Forecasting, structural time series models and the Kalman filter. Cambridge University Press 1989.
    Durbin, Koopman: Time series analysis by state space methods. Oxford University Press 2012.
    """

    def __init__(
        self,
        columns: int = 1,
        periods: Sequence[float] = (),
        harmonics: int | Sequence[int] | None = None,
        delay: int = 0,
        noise: str = "laplace",
    ) -> None:
        self.columns = whole("columns", columns)
        counts = tuple(harmonics) if isinstance(harmonics, Sequence) else harmonics
        self.structure = Structure(tuple(periods), counts)
        if noise not in NOISES:
            raise InvalidParameter(
                "noise", noise, "'laplace' or 'gaussian'", "say which noise the releases have"
            )
        self.noise = noise
        self._block = (whole("delay", delay, least=0, most=2**20) + 1) // 2
        self._tracker = Tracker(self.structure, self.columns, 2 * self._block, laplace=noise == "laplace")
        self.step = 0
        self.smoothed: Estimates | None = None

    def push(self, release: Release) -> Estimates:
        """The estimates of the next step; `smoothed` has those of earlier steps that became known."""
        status = np.array([int(release.status)], dtype=np.int8)
        source = np.array([release.source])
        units = np.array([release.units])
        batch = Releases(
            release.step,
            release.values[np.newaxis],
            status,
            source,
            np.array([release.scale]),
            units,
            release.unit,
        )
        return self.push_batch(batch)

    def push_batch(self, releases: Releases) -> Estimates:
        """The estimates of the next steps, each from releases up to its own step."""
        given = np.ascontiguousarray(releases.values, dtype=np.float64)
        if given.ndim != 2 or given.shape[1] != self.columns:
            raise InvalidInput(
                f"these releases have the shape {given.shape} and {self.columns} columns are expected; "
                "make a StateSpace with their columns."
            )
        if len(given) and releases.first_step != self.step + 1 and self.step:
            raise InvalidInput(
                f"step {releases.first_step} is out of order: the next step is {self.step + 1}; push steps in order."
            )
        factor = 2.0 if self.noise == "laplace" else 1.0
        known = np.asarray(releases.fresh) & (np.asarray(releases.scale) > 0)
        noise = np.where(known, factor * np.square(releases.scale), -1.0)
        self.step = releases.first_step - 1
        values, deviation = np.empty(given.shape), np.empty(given.shape)
        pieces: list[Floats] = []
        start = 0
        while start < len(given):
            stop = len(given)
            if self._block:  # pause where a block ends, to smooth the one before it
                stop = min(stop, start + self._block - self.step % self._block)
            part = slice(start, stop)
            self._filter(given[part], noise[part], values[part], deviation[part])
            self.step += stop - start
            start = stop
            if self._block and self.step % self._block == 0 and self.step >= 2 * self._block:
                pieces.append(self._smooth())
        self.smoothed = None
        if pieces:
            both = np.concatenate(pieces, axis=1)
            first = (self.step // self._block - 1) * self._block - both.shape[1] + 1
            self.smoothed = Estimates(first, both[0], both[1])
        return Estimates(releases.first_step, values, deviation)

    def forecast(self, steps: int) -> Estimates:
        """The coming steps as the model expects them, with the deviations of their errors; nothing is learnt from them.

        Parameters
        ----------
        steps
            How many, for example those of a day.

        Examples
        --------
        >>> import tidegate as tg
        >>> releases = tg.open(tg.mechanisms.Uniform(tg.WEvent(epsilon="1", window=3))).push_batch([[50]] * 40)
        >>> model = StateSpace()
        >>> known = model.push_batch(releases)
        >>> ahead = model.forecast(12)
        >>> ahead.first_step, ahead.values.shape, bool(ahead.deviation[-1, 0] >= known.deviation[-1, 0])
        (41, (12, 1), True)
        """
        count = whole("steps", steps)
        kept, smoothed = self.state(), self.smoothed
        status = np.full(count, np.int8(Status.APPROXIMATED))
        nothing = np.zeros((count, self.columns))
        spent = np.zeros(count, dtype=np.int64)
        ahead = self.push_batch(
            Releases(self.step + 1, nothing, status, None, np.zeros(count), spent, Fraction(1))
        )
        self.restore(kept)
        self.smoothed = smoothed
        return ahead

    def _filter(self, given: Floats, noise: Floats, values: Floats, deviation: Floats) -> None:
        tracker, at = self._tracker, 0
        while at < len(given):
            book, season, room = tracker.book[:], tracker.season[:], tracker.room[:]
            at = t.track(self.step + 1, given, noise, at, book, season, room, values, deviation)
            if at < len(given):
                tracker.refit()
                t.refreshed(tracker.book[:], season, room)
                t.write(tracker.book[:], room, values[at], deviation[at])
                at += 1

    def _smooth(self) -> npt.NDArray[np.float64]:
        """Values and deviations of the block before the last one, from all steps so far."""
        memory, block = self._tracker.memory, self._block
        values, variances = np.empty((block, self.columns)), np.empty((block, self._tracker.classes))
        parameters, kind, rings = memory["parameters"], memory["kind"], self._tracker.rings[:]
        once, settled = self.structure.once, memory["settled"]
        smooth(self.step, block, parameters, kind, once, rings, settled, values, variances)
        deviation = WIDER * np.sqrt(self._claimed(variances))[:, memory["kind"]]
        return np.stack([values, deviation])

    def _claimed(self, variances: Floats) -> Floats:
        """What intervals claim of smoothed values: what is left of a prediction's error, and a part of the noise."""
        memory, unseen = self._tracker.memory, self._tracker.memory["parameters"][:, UNSEEN]
        places = np.arange(self.step - 2 * self._block + 1, self.step - self._block + 1) % (2 * self._block)
        predicted, known = memory["kept_variance"][places], variances - unseen
        rest = np.minimum(1.0, known / np.maximum(predicted, 1e-300))
        beside = np.maximum([t.possible(excess) for excess in memory["excess"]], unseen)
        doubt = 1.0 + t.DOUBT / memory["health"][t.LEARNT]
        claimed = (doubt * predicted + beside) * memory["health"][t.FACTOR] ** 2
        return np.asarray(rest**2 * claimed + (1.0 - rest) * known)

    def state(self) -> dict[str, Any]:
        """All that is kept, as numbers and arrays: released data only."""
        kept = {name: value.copy() for name, value in self._tracker.memory.items()}
        return {**kept, "step": self.step}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from what `state` returned."""
        self.step = int(state["step"])
        self._tracker.restore(state)
