"""The picture of GradualTree: `python docs/figures/gradual.py` writes docs/pictures/gradual_loss.png, by arithmetic."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import tidegate as tg
from tidegate.mechanisms import BinaryTree, GradualTree

PICTURES = Path(__file__).resolve().parent.parent / "pictures"
COLOURS = ("#0b6e8f", "#3f9b6c", "#8f6bb0")
TREE = "#c0504d"
HORIZON = 4094


def main() -> None:
    """The loss by distance, and the error by step."""
    plt.rcParams |= {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    figure, (losses, errors) = plt.subplots(1, 2, figsize=(9, 3.0), layout="constrained")
    policy = tg.Event(epsilon="1")
    distances = np.arange(HORIZON)
    steps = np.unique(np.geomspace(1, HORIZON, 200).astype(int)).tolist()
    for growth, colour in enumerate(COLOURS):
        gradual = GradualTree(policy, horizon=HORIZON, growth=growth)
        lost = [float(gradual.loss_within(int(distance))) for distance in distances]
        losses.step(distances + 1, lost, where="post", color=colour, label=f"growth {growth}")
        deviations = [gradual.standard_deviation(step) for step in steps]
        errors.plot(steps, deviations, color=colour, linewidth=1, label=f"growth {growth}")
    tree = BinaryTree(policy, horizon=HORIZON)
    losses.axhline(1.0, color=TREE, linewidth=1, label="BinaryTree")
    errors.plot(
        steps, [tree.standard_deviation(step) for step in steps], color=TREE, linewidth=1, label="BinaryTree"
    )
    losses.set(
        xscale="log", xlabel="steps since the event, and one", ylabel="bound on the loss", ylim=(0, 1.08)
    )
    losses.set_title("Outputs soon after an event lose less of ε = 1", loc="left", fontsize=10)
    errors.set(xscale="log", yscale="log", xlabel="step", ylabel="standard deviation of the running sum")
    errors.set_title("The price is noise", loc="left", fontsize=10)
    losses.legend(frameon=False, fontsize=8, loc=(0.02, 0.5))
    figure.savefig(PICTURES / "gradual_loss.png", dpi=90, metadata={"Software": None})


if __name__ == "__main__":
    main()
