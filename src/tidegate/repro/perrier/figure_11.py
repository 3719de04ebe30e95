"""Figure 11: what clipping loses against what was foreseen, supermarket."""

from __future__ import annotations

from tidegate.repro.experiment import Experiment
from tidegate.repro.perrier.common import MADE_UP, beside
from tidegate.repro.perrier.outliers import NOTES, draw, judge, measure, settings

GENERATED = "supermarket"

EXPERIMENT = Experiment(
    paper="perrier",
    name="Figure 11",
    claim="The real error due to outliers is almost always below the estimated one (supermarket).",
    data=MADE_UP + beside("baskets"),
    settings=lambda small: settings(small, GENERATED, "baskets"),
    measure=measure,
    cost=lambda setting: 5.0,
    judge=lambda frame: judge(frame, GENERATED),
    draw=draw,
    notes=NOTES,
)
