"""Table I: optimised parameters, train trips."""

from __future__ import annotations

from tidegate.repro.experiment import Experiment
from tidegate.repro.perrier.common import MADE_UP, beside
from tidegate.repro.perrier.tables import NOTES, draw, judge, measure, settings

GENERATED = "train trips"
PRINTED = {40_000: 1.0, 50_000: 2.32, 60_000: 2.8, 100_000: 3.69, 300_000: 4.34}

EXPERIMENT = Experiment(
    paper="perrier",
    name="Table I",
    claim="On train trips the error's bound is that of the tree at m = 40,000, and 2.3 to 4.3 times smaller from "
    "50,000 to 300,000.",
    data=MADE_UP + beside("flights"),
    settings=lambda small: settings(small, GENERATED, "flights", PRINTED),
    measure=measure,
    cost=lambda setting: 3.0,
    judge=lambda frame: judge(frame, GENERATED, PRINTED),
    draw=lambda frame, figure: draw(frame, figure, PRINTED),
    notes=NOTES,
)
