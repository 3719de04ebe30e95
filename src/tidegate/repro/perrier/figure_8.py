"""Figure 8: the density of the error of the last sum, train trips."""

from __future__ import annotations

from tidegate.repro.experiment import Experiment
from tidegate.repro.perrier.common import MADE_UP, beside
from tidegate.repro.perrier.densities import NOTES, draw, judge, measure, settings

GENERATED = "train trips"

EXPERIMENT = Experiment(
    paper="perrier",
    name="Figure 8",
    claim="The error of the last sum is more tightly concentrated around 0 than that of a tree with noise scaled to "
    "the bound, 3.5 times smaller on average (train trips).",
    data=MADE_UP + beside("flights", "bike trips"),
    settings=lambda small: settings(small, GENERATED, "flights", "bike trips"),
    measure=measure,
    cost=lambda setting: 17.0,
    judge=lambda frame: judge(frame, GENERATED, 3.5),
    draw=draw,
    notes=NOTES,
)
