"""OptStream with some of its parts switched off: what Figures 7 and 8 compare."""

from __future__ import annotations

from typing import Any

import polars as pl

from tidegate.mechanisms import Mechanism, OptStream
from tidegate.policy import WEvent
from tidegate.repro.experiment import Judgement, Outcome
from tidegate.repro.optstream.common import FEATURES, THRESHOLD, W, duels, in_part, means, told

PERTURB, OPTIMISE, SAMPLE, ALL = "⟨P,∘,∘⟩", "⟨P,∘,O⟩", "⟨P,S,∘⟩", "⟨P,S,O⟩"
PARTS = (PERTURB, OPTIMISE, SAMPLE, ALL)
PRINTED = tuple(f"{part} printed" for part in PARTS)
EQUAL_SAMPLE = "⟨P,S,∘⟩ equally spaced"
NAMES = (*PARTS, *PRINTED[1:], EQUAL_SAMPLE)  # the first part alone is the same in both calibrations


def variants(epsilon: str) -> dict[str, Mechanism]:
    """The four versions in both calibrations, and sampling at public times."""
    policy = WEvent(epsilon=epsilon, w=W)
    adaptive: dict[str, Any] = {"samples": 10, "adaptive": True, "threshold": THRESHOLD}
    options: dict[str, dict[str, Any]] = {
        PERTURB: {"samples": W},
        OPTIMISE: {"samples": W, "features": FEATURES},
        SAMPLE: adaptive,
        ALL: {**adaptive, "features": FEATURES},
    }
    chosen: dict[str, Mechanism] = {
        name: OptStream(policy, **given, nonnegative=True) for name, given in options.items()
    }
    for name, printed in zip(PARTS[1:], PRINTED[1:], strict=True):
        chosen[printed] = OptStream(
            policy, **options[name], weights="size", calibration="paper", nonnegative=True
        )
    chosen[EQUAL_SAMPLE] = OptStream(policy, samples=10, nonnegative=True)
    return chosen


def gradual(frame: pl.DataFrame, by: list[str]) -> Judgement:
    """Whether each version has less error than the one before it, in every setting."""
    steps = {}
    for title, names in (("sound", PARTS), ("printed", (PERTURB, *PRINTED[1:]))):
        pairs = list(zip(names[1:], names[:-1], strict=True))
        steps[title] = pl.concat([duels(frame, [one], [other], by) for one, other in pairs])
    if steps["sound"]["wins"].all():
        outcome = Outcome.HOLDS
    elif steps["printed"]["wins"].all():
        outcome = Outcome.PRINTED_ONLY
    else:
        outcome = in_part(steps["sound"])
    public = told(duels(frame, [EQUAL_SAMPLE], [ALL, PERTURB], by))
    words = (
        f"Ratios of mean errors: {told(steps['sound'])}. Printed calibration: {told(steps['printed'])}. "
        f"Sampling at public times: {public}. {means(frame, by)}"
    )
    return Judgement(outcome, words)
