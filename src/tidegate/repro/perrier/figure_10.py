"""Figure 10: the density of the error of the last sum, supermarket."""

from __future__ import annotations

from tidegate.repro.experiment import Experiment
from tidegate.repro.perrier.common import MADE_UP, beside
from tidegate.repro.perrier.densities import NOTES, draw, judge, measure, settings

GENERATED = "supermarket"

EXPERIMENT = Experiment(
    paper="perrier",
    name="Figure 10",
    claim="The error of the last sum is more tightly concentrated around 0 than that of a tree with noise scaled to "
    "the bound, 9 times smaller on average (supermarket).",
    data=MADE_UP + beside("baskets"),
    settings=lambda small: settings(small, GENERATED, "baskets"),
    measure=measure,
    cost=lambda setting: 9.0,
    judge=lambda frame: judge(frame, GENERATED, 9),
    draw=draw,
    notes=NOTES,
)
