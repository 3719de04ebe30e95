"""Figure 2: the load of January, and what is released of it."""

from __future__ import annotations

from typing import Any

from tidegate.repro.experiment import Experiment, Row
from tidegate.repro.optstream.common import (
    ADAPTIVE,
    ADAPTIVE_PRINTED,
    CHOSEN,
    DFT,
    EPSILONS,
    LAPLACE,
    REGION,
    REGION_DATA,
    SOUND,
    curves,
    least_error,
    mechanisms,
    month,
)
from tidegate.repro.optstream.pictures import draw_grid

NAMES = (LAPLACE, DFT, ADAPTIVE, ADAPTIVE_PRINTED, CHOSEN)


def _settings(small: bool) -> list[dict[str, Any]]:
    return [{"epsilon": epsilon, "runs": 3 if small else 30} for epsilon in EPSILONS]


def _measure(setting: dict[str, Any]) -> list[Row]:
    epsilon = setting["epsilon"]
    return curves(
        mechanisms(epsilon, names=NAMES), month(REGION, 1), setting["runs"], days=7, epsilon=epsilon
    )


EXPERIMENT = Experiment(
    paper="optstream",
    name="Figure 2",
    claim="For the same ε, OptStream's private stream of January is more accurate than those of Laplace and DFT, at "
    "ε = 1, 0.1 and 0.01.",
    data=REGION_DATA,
    settings=_settings,
    measure=_measure,
    judge=lambda frame: least_error(frame, ["epsilon"], sound=[ADAPTIVE], printed=[ADAPTIVE_PRINTED]),
    draw=lambda frame, figure: draw_grid(frame, figure, "epsilon", EPSILONS, NAMES, "ε"),
    general=SOUND,
    notes="The paper judges by eye; here by the mean absolute error over 30 runs. Pictures show a week.",
)
