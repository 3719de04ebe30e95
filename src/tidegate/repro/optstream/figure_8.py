"""Figure 8: error of OptStream with some of its parts switched off."""

from __future__ import annotations

from typing import Any

from tidegate.repro.experiment import Experiment, Row
from tidegate.repro.optstream.common import EPSILONS, MONTHS, REGION, REGION_DATA, SOUND, errors, month
from tidegate.repro.optstream.components import NAMES, gradual, variants
from tidegate.repro.optstream.pictures import draw_bars


def _settings(small: bool) -> list[dict[str, Any]]:
    months, runs = (["February"], 4) if small else (list(MONTHS), 30)
    return [{"month": name, "epsilon": epsilon, "runs": runs} for name in months for epsilon in EPSILONS]


def _measure(setting: dict[str, Any]) -> list[Row]:
    labels = {"month": setting["month"], "epsilon": setting["epsilon"]}
    return errors(
        variants(setting["epsilon"]), month(REGION, MONTHS[setting["month"]]), setting["runs"], **labels
    )


EXPERIMENT = Experiment(
    paper="optstream",
    name="Figure 8",
    claim="The error falls from perturbation alone to perturbation with optimisation, on to perturbation with sampling, "
    "and on to all parts, in February, June and October.",
    data=REGION_DATA,
    settings=_settings,
    measure=_measure,
    judge=lambda frame: gradual(frame, ["month", "epsilon"]),
    draw=lambda frame, figure: draw_bars(
        frame, figure, "epsilon", EPSILONS, ("month", list(MONTHS)), "ε", NAMES
    ),
    notes="P: perturbation, S: sampling (L1, or equally spaced where it says so), O: sums of features and optimisation; "
    "parts that are on share ε equally. The paper does not say its ε.",
    general=SOUND,
)
