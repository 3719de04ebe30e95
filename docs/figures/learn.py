"""The picture of docs/concepts/privacy.md: what is published in two worlds that differ in one person.

`python docs/figures/learn.py` writes docs/pictures/learn.png.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

TARGET = Path(__file__).resolve().parent.parent / "pictures" / "learn.png"


def chances(centre: int, published: np.ndarray, epsilon: float) -> np.ndarray:
    """The chance of each published number when `centre` people are there: discrete Laplace noise, Δ = 1."""
    base = np.exp(-epsilon)
    return (1 - base) / (1 + base) * base ** np.abs(published - centre)


def main() -> None:
    """Two panels: a strong promise and a common one."""
    published = np.arange(25, 57)
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.1), layout="constrained")
    for panel, epsilon in zip(panels, (1.0, 0.1), strict=True):
        without, with_ann = (chances(count, published, epsilon) for count in (40, 41))
        panel.bar(published - 0.2, without, 0.4, label="40 people, without Ann", color="#4c78a8")
        panel.bar(published + 0.2, with_ann, 0.4, label="41 people, with Ann", color="#f58518")
        panel.set(title=f"ε = {epsilon:g}: bars differ by a factor of at most {np.exp(epsilon):.2f}")
        panel.set(xlabel="published number", ylabel="chance", ylim=(0, None))
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False, fontsize=8)
    figure.savefig(TARGET, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
