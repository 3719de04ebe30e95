"""The papers' experiments and their outcomes: one file a figure, found by its place, run by ``python -m experiments``."""

from experiments.experiment import Experiment, Judgement, Outcome, experiments

__all__ = ["Experiment", "Judgement", "Outcome", "experiments"]
