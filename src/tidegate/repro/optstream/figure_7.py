"""Figure 7: the released load of January with some parts of OptStream switched off."""

from __future__ import annotations

from typing import Any

from tidegate.repro.experiment import Experiment, Row
from tidegate.repro.optstream.common import REGION, REGION_DATA, SOUND, curves, month
from tidegate.repro.optstream.components import (
    ALL,
    EQUAL_SAMPLE,
    OPTIMISE,
    PERTURB,
    SAMPLE,
    gradual,
    variants,
)
from tidegate.repro.optstream.pictures import draw_grid

SHOWN = (PERTURB, OPTIMISE, SAMPLE, ALL, EQUAL_SAMPLE)
EPSILON = "0.1"


def _settings(small: bool) -> list[dict[str, Any]]:
    return [{"epsilon": EPSILON, "runs": 4 if small else 30}]


def _measure(setting: dict[str, Any]) -> list[Row]:
    chosen = variants(setting["epsilon"])
    return curves(chosen, month(REGION, 1), setting["runs"], days=7, epsilon=setting["epsilon"])


EXPERIMENT = Experiment(
    paper="optstream",
    name="Figure 7",
    claim="The released stream comes nearer to the real one with each part that is added to the perturbation: the "
    "optimisation, the sampling, and both.",
    data=REGION_DATA,
    settings=_settings,
    measure=_measure,
    judge=lambda frame: gradual(frame, ["epsilon"]),
    draw=lambda frame, figure: draw_grid(frame, figure, "epsilon", [EPSILON], SHOWN, "ε"),
    notes="P: perturbation, S: sampling (L1, or equally spaced where it says so), O: sums of features and optimisation; "
    "parts that are on share ε = 0.1 equally. The paper judges by eye; here by the mean absolute error.",
    general=SOUND,
)
