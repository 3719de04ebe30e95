"""Variants of the sparse vector technique that are known to be broken (Lyu, Su and Li 2017)."""

from __future__ import annotations

import math

import numpy as np
from tests.audit import models
from tests.audit.zoo.animal import EXACT, MODEL, Animal, Floats, noise

from tidegate.audit.neighbours import Counts
from tidegate.audit.subjects import Callee
from tidegate.policy import Policy, WEvent

EPSILON = 2  # of all animals here; one unit changes every question by at most 1


class Variant(Callee):
    """Tests ``count + ν ≥ ρ`` at every step of a stream that one unit may change everywhere.

    Parameters
    ----------
    name
        For the verdict.
    threshold_scale, question_scale
        Of ρ and ν; 0 means none.
    hits
        After how many hits it falls silent; 0: never.
    shows
        Whether a hit shows the noisy answer that was tested.
    redraws
        Whether ρ is drawn anew after each hit, at no further budget.
    """

    def __init__(
        self,
        name: str,
        threshold_scale: float,
        question_scale: float,
        hits: int,
        *,
        shows: bool = False,
        redraws: bool = False,
        policy: Policy | None = None,
    ) -> None:
        super().__init__(self.tests, policy or WEvent(epsilon=EPSILON, window=8), 1, name, many=True)
        self.threshold_scale, self.question_scale, self.hits = threshold_scale, question_scale, hits
        self.shows, self.redraws = shows, redraws
        self.program = models.sparse_vector(
            threshold_scale or 1e-3, question_scale, hits, shows=shows, redraws=redraws, endless=hits == 0
        )

    def tests(self, stream: Counts, count: int) -> Floats:
        """The outcomes of all tests, for many runs at once."""
        steps = len(stream)
        released = np.zeros((count, steps))
        found = np.zeros(count, dtype=np.int64)
        threshold = self._noise(self.threshold_scale, count)
        for step in range(steps):
            answer = int(stream[step, 0]) + self._noise(self.question_scale, count)
            alive = (found < self.hits) | (self.hits == 0)
            hit = alive & (answer >= threshold)
            released[:, step] = np.where(hit, (answer + 1000) if self.shows else 1, np.where(alive, 0, -1))
            found += hit
            if self.redraws:
                threshold = np.where(hit, self._noise(self.threshold_scale, count), threshold)
        return released

    @staticmethod
    def _noise(scale: float, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return noise(scale, (count, 1))[:, 0] if scale else np.zeros(count, dtype=np.int64)


def animals() -> list[Animal]:
    """All of them; the sound calibration of c hits is ρ ~ Lap(2/ε), ν ~ Lap(4c/ε)."""
    rho, c = 2 / EPSILON, 3
    nu = 4 / EPSILON
    return [
        Animal("sparse vector, noise not times c", "Lee and Clifton 2014",
               lambda: Variant("Lee and Clifton", 2 * rho, nu * 2 / 3, c), 2.5, steps=8, kind=MODEL),
        Animal("sparse vector, no noise on questions", "Stoddard et al. 2014",
               lambda: Variant("Stoddard", rho, 0, 0), math.inf, steps=6, kind=MODEL),
        Animal("sparse vector without a last hit", "Chen et al. 2015",
               lambda: Variant("Chen", rho, nu / 2, 0), 2.7, steps=8, kind=MODEL),
        Animal("sparse vector that shows answers", "Roth's notes: the noisy answer that was tested",
               lambda: Variant("Roth", rho, nu / 2, 1, shows=True, policy=WEvent(epsilon=EPSILON, window=6)),
               math.inf, EXACT, steps=5, kind=MODEL),
        Animal("sparse vector, fixed threshold", "no noise on the threshold, noise of one question for all",
               lambda: Variant("fixed threshold", 0, nu, 0), math.inf, steps=8, kind=MODEL),
        Animal("sparse vector, threshold redrawn for free", "each run of it would need a budget",
               lambda: Variant("redrawn", rho, nu, 0, redraws=True), 2.0, steps=8, kind=MODEL),
        Animal("sparse vector, hits counted one too many", "noise for one hit, two are shown",
               lambda: Variant("one more", rho / 2, nu / 2, 2, policy=WEvent(epsilon=EPSILON, window=6)), 3.0, steps=6,
               kind=MODEL),
    ]  # fmt: skip
