"""Figure 11: OptStream against PeGaSus."""

from __future__ import annotations

from typing import Any

from tidegate.mechanisms import Mechanism, PeGaSus
from tidegate.policy import WEvent
from tidegate.repro.experiment import Experiment, Row
from tidegate.repro.optstream.common import (
    ADAPTIVE,
    ADAPTIVE_PRINTED,
    ALPHAS,
    CHOSEN,
    LAPLACE,
    REGION,
    REGION_DATA,
    SOUND,
    W,
    curves,
    least_error,
    mechanisms,
    month,
)
from tidegate.repro.optstream.pictures import draw_grid

PEGASUS = "PeGaSus"
NAMES = (PEGASUS, LAPLACE, ADAPTIVE, ADAPTIVE_PRINTED, CHOSEN)


def _settings(small: bool) -> list[dict[str, Any]]:
    return [{"alpha": alpha, "runs": 3 if small else 30} for alpha in ALPHAS]


def _measure(setting: dict[str, Any]) -> list[Row]:
    alpha = setting["alpha"]
    chosen: dict[str, Mechanism] = {
        PEGASUS: PeGaSus(WEvent(epsilon="1", w=W, max_change=alpha)),
        **mechanisms("1", alpha, names=NAMES[1:]),
    }
    return curves(chosen, month(REGION, 1), setting["runs"], days=7, alpha=alpha)


EXPERIMENT = Experiment(
    paper="optstream",
    name="Figure 11",
    claim="OptStream's stream of January is more accurate than that of PeGaSus with ε/w a step, for α = 10, 50 and 100 "
    "at ε = 1.",
    data=REGION_DATA,
    settings=_settings,
    measure=_measure,
    judge=lambda frame: least_error(
        frame, ["alpha"], sound=[ADAPTIVE], printed=[ADAPTIVE_PRINTED], rivals=[PEGASUS]
    ),
    draw=lambda frame, figure: draw_grid(frame, figure, "alpha", ALPHAS, NAMES, "α"),
    notes="PeGaSus answers at once and with the printed parameters of its paper; OptStream's final values come at the "
    "end of each day. The caption of the paper names ε, its text α; α is varied here.",
    general=SOUND,
)
