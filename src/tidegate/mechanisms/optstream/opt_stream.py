"""OptStream: sample a period, perturb the samples, reconstruct the steps between them, and optimise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np  # noqa: F401  for the examples
import numpy.typing as npt

from tidegate.exact import ExactLike
from tidegate.ledger import Ledger
from tidegate.mechanisms.mechanism import Mechanism
from tidegate.mechanisms.optstream.choose_samples import Prediction, best_for_profile, best_for_slope
from tidegate.mechanisms.optstream.feature_trees import parts, whole_period
from tidegate.mechanisms.optstream.run import OptStreamRun
from tidegate.mechanisms.optstream.settings import OptStreamSettings
from tidegate.policy import Policy, WEvent

ODD_EVEN = (
    tuple(range(1, 13, 2)),
    tuple(range(2, 13, 2)),
)  # of a period of 12 steps: a feature across the day's parts


@dataclass(frozen=True)
class OptStream(OptStreamSettings):
    """Measure k steps of every period of w, draw curves through them, and fit measured sums.

    A slow stream needs few samples, and few samples can be measured precisely: with k instead of w of them,
    noise falls by w/k, and lines between samples are off by what the stream bends. The sums of features
    (parts of the day, the whole day) can be measured besides; the released curve is the non-negative one
    nearest to samples and sums, weighted.

    Every step is released twice: at once, from the samples so far, and when its period ends
    (`release.revised`, up to w − 1 steps later), from the whole period.

    Parameters
    ----------
    policy, columns, grid, rounding
        As for every :class:`Mechanism`; the period is the policy's w, and starts at steps 1, w + 1, 2w + 1, …
    samples
        k, by default a quarter of w; choose it with :meth:`from_profile` or :meth:`from_slope`. w samples and no
        features make the plain Laplace mechanism, or what :class:`Uniform` is with noise that steps share.
    times
        The positions (1 … w) of the samples, the last of which is w; equally spaced by default. Public.
    adaptive
        Choose the samples by the L1 score with the sparse vector, instead of `times`: a sample where the line
        from the last one strays from the stream. Needs k ≥ 2.
    threshold
        For adaptive samples: the score θ at which a sample is due, by default w/k times the noise scale of a sample.
        Public.
    features
        Partitions of the positions whose sums are measured, in any partial order; see
        `tidegate.mechanisms.optstream.feature_trees`. None by default: with sound noise they seldom pay.
    split
        How sampling, samples and features share the budget, as relative weights; parts that are off get nothing.
    reconstruction
        "line" between samples, or "curve": cubic pieces, better for smooth streams and little noise.
    weights
        "variance": every measurement weighs one over its variance. "size": 1 over the number of parts of its feature,
        as printed.
    nonnegative
        Whether the stream is known not to be negative: then no release is. A configuration file derives it from its
        query.
    causal
        What a step is worth before its period ends: "hold" the last sample, prolong the "line" through the
        last two, or move the curve of the "last period" to the last sample.
    calibration
        "sound", or "paper" for the printed scales, which are not private.
    noise
        "auto": the best law for k samples in a window, or in a period if they are adaptive (docs/noise.md). "laplace":
        noise of its own for each sample, as in the paper. "cube", "semiorder": this law, for adaptive samples the cube.

    Privacy
    -------
    Unit and neighbours: the policy's. Public times: any w consecutive steps contain each position once, so
    exactly k samples, each with discrete Laplace noise of scale kΔ/ε_P; a step changes each of the F features
    by at most Δ, and sums have noise of scale wFΔ/ε_O, so that each step loses ε_P/k if it is a sample, and
    ε_O/w. Adaptive times: the sparse vector costs ε_S in every period, and a window meets two; a window has
    at most min(2k − 2, w) samples because the first and the last step of a period are samples; so 2ε_S +
    min(2k − 2, w)/k · ε_P + ε_O = ε. What a period can cost is charged before its data are looked at, so charges
    and refusals are the same for all data, also on a shared ledger. Everything else is post-processing.

    Samples share noise where that gains. Public times: the k samples of any window lose ε_P together, as those of
    :class:`Fast` do; a sample whose group cannot be paid for yet is left out. Adaptive times: the k samples of a period
    have one radius, for which the period is charged half of what the samples of a window have. The state of a run is
    secret then, and one that another run may have is dropped: no sample is taken until no window meets its group any
    more, and with adaptive times until the next period.

    Sums begin as noise and samples are noised at once, so state and snapshots hold no raw value, but with adaptive
    times the raw steps since the last sample. A snapshot and a later release of the same sum differ by what
    arrived in between: guard snapshots like data. Proof: docs/proofs/opt_stream.md.

    Departures: the printed noise of features ignores that a period's sum changes by wΔ, and the printed
    adaptive times ignore windows that straddle two periods; ``calibration="paper"`` keeps both and chooses samples by
    Algorithm 3 as it is printed, and its guarantee states the loss.

    Error
    -----
    `predicted_error` for a public profile. With lines about 0.8·kΔ/ε from Laplace noise, 0.7 of that where 8 samples of
    a window share noise, and what lines through every (w/k)-th step miss. Time O(w) a period, O(w log w) with adaptive
    times, O(w²) a column and period with features that are not nested; memory O(w), O(w²) then.

    Examples
    --------
    >>> mechanism = OptStream(WEvent(epsilon="1", w=48), samples=12)
    >>> OptStream(WEvent(epsilon="1", w=48), samples=12, noise="laplace").sample_scale, mechanism.sharing.choice.law
    (12.0, 'semiorder')
    >>> run = mechanism.start()
    >>> releases = run.push_batch(np.full((100, 1), 5000))
    >>> releases.values.shape, releases.revised.values.shape, releases.revised[0].delay
    ((100, 1), (96, 1), 47)
    >>> run.flush().values.shape
    (4, 1)

    References
    ----------
    Fioretto, Van Hentenryck: OptStream: Releasing time series privately. JAIR 2019.
    """

    def predicted_error(self, profile: npt.ArrayLike) -> float:
        """The mean absolute error of final values to expect on streams like a public profile (T × d, whole periods)."""
        return Prediction(self).error(profile)

    @classmethod
    def from_profile(
        cls,
        policy: WEvent,
        profile: npt.ArrayLike,
        *,
        candidates: Iterable[Sequence[Sequence[Sequence[int]]]] = ((),),
        **options: Any,
    ) -> OptStream:
        """The number and the times of samples, and the features, with the least predicted error on a profile.

        The profile is public data or earlier releases (`releases.final.values`), never the protected stream.
        `candidates` are lists of features to compare, by default none; `options` are other parameters.

        Examples
        --------
        >>> day = 5000 - 2000 * np.cos(np.arange(48) / 48 * 2 * np.pi)
        >>> [OptStream.from_profile(WEvent(epsilon=e, w=48), day).samples for e in ("0.01", "0.1", "1")]
        [4, 8, 20]
        """
        return best_for_profile(cls(policy, **options), profile, candidates)

    @classmethod
    def from_slope(cls, policy: WEvent, slope: ExactLike, **options: Any) -> OptStream:
        """The number of equally spaced samples for streams that change by at most `slope` a step: a public bound.

        Examples
        --------
        >>> OptStream.from_slope(WEvent(epsilon="0.1", w=48), slope=100).samples
        16
        """
        return best_for_slope(cls(policy, **options), slope)

    def start(self, ledger: Ledger | Path | str | None = None, state: bytes | None = None) -> OptStreamRun:
        """Begin, or go on with, a run."""
        return OptStreamRun(self, ledger, state)

    @classmethod
    def candidates(cls, policy: Policy, columns: int, season: int | None) -> list[Mechanism]:
        """From a few samples a period to every second step; with days, the last period shows the shape meanwhile."""
        w = policy.steps_charged
        counts = sorted({max(1, w // parts) for parts in (2, 3, 4, 6, 8, 12, 16, 24)})
        causal = "last period" if season is not None and w % season == 0 else "hold"
        return [
            cls(policy, columns=columns, samples=count, causal=causal, nonnegative=True) for count in counts
        ]

    @classmethod
    def examples(cls) -> list[Mechanism]:
        """Small configurations on which the conformance suite runs."""
        day = (parts(12, [4, 9, 12]), whole_period(12))
        return [
            cls(WEvent(epsilon="1", w=12), samples=4, nonnegative=True),
            cls(WEvent(epsilon="1", w=12), columns=2, samples=4, features=day, causal="last period"),
            cls(
                WEvent(epsilon="2", w=7, adjacency="replace"),
                columns=2,
                times=(1, 4, 7),
                causal="line",
                grid="0.5",
            ),
            cls(WEvent(epsilon="1", w=5), samples=5, reconstruction="curve"),
            cls(WEvent(epsilon="1", w=1)),
            cls(WEvent(epsilon="50", w=12), columns=2, samples=5, adaptive=True, threshold=30, features=day),
            cls(WEvent(epsilon="50", w=9), samples=3, adaptive=True, causal="last period", noise="laplace"),
            cls(WEvent(epsilon="1", w=6), samples=2, adaptive=True),
            cls(
                WEvent(epsilon="1", w=12), columns=2, samples=3, features=(day[0], ODD_EVEN), nonnegative=True
            ),
            cls(WEvent(epsilon="1", w=12), columns=2, samples=4, features=day, noise="laplace"),
            cls(WEvent(epsilon="1", w=12), samples=8, features=day, noise="cube"),
            cls(WEvent(epsilon="4", w=12), samples=6, adaptive=True, threshold=30, features=day),
            cls(
                WEvent(epsilon="50", w=12), columns=2, samples=5, adaptive=True, threshold=30, noise="laplace"
            ),
        ]
