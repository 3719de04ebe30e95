"""The picture of docs/mechanisms/noise.md: two steps under three laws, and the mean error by measurements in a window.

python docs/figures/noise.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Polygon
from scipy.ndimage import gaussian_filter
from scipy.special import gammaincinv

from tidegate.noise import laplace
from tidegate.noise.shared.choice import best_choice, laplace_choice
from tidegate.noise.shared.cube import Cube
from tidegate.noise.shared.semiorder import Semiorder
from tidegate.testing import fixed_entropy

PICTURES = Path(__file__).parents[1] / "pictures"
UNIT = 1000  # grid units of Δ/ε
DRAWS = 1 << 21
SHOWN = 2500
REACH = 7.0
DIAMOND = np.array([(1, 0), (0, 1), (-1, 0), (0, -1)], dtype=float)
SQUARE = np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)], dtype=float)


def pairs() -> dict[str, np.ndarray]:
    """Draws of two consecutive steps, in Δ/ε."""
    with fixed_entropy("picture") as source:
        independent = laplace(source, "laplace", 0, 2.0 * UNIT, (DRAWS // 8, 2))
        group = Cube(float(UNIT), (2,))
        squares = group.draw(source, "cube", 0, group.start(), DRAWS // 4)[0].reshape(-1, 2)
        sliding = Semiorder(float(UNIT), 2)
        stream = sliding.draw(source, "semiorder", 0, sliding.start(), DRAWS)[0][100:, 0]
    return {
        "Laplace": independent / UNIT,
        "cube": squares / UNIT,
        "semiorder": np.stack([stream[:-1], stream[1:]], axis=1) / UNIT,
    }


def half_inside(axis: Axes, points: np.ndarray, color: str) -> None:
    """The level curve of the density of two steps that has half of the draws inside."""
    edges = np.linspace(0, REACH, 141)
    folded = np.abs(np.concatenate([points, points[:, ::-1]]))  # the law has these symmetries
    counts, _, _ = np.histogram2d(folded[:, 0], folded[:, 1], bins=(edges, edges))
    whole = np.block([[counts[::-1, ::-1], counts[::-1]], [counts[:, ::-1], counts]])
    smooth = gaussian_filter(whole, 3)
    falling = np.sort(smooth.ravel())[::-1]
    level = falling[np.searchsorted(np.cumsum(falling), 0.5 * falling.sum())]
    centres = (edges[1:] + edges[:-1]) / 2
    both = np.concatenate([-centres[::-1], centres])
    axis.contour(both, both, smooth.T, levels=[level], colors=color, linewidths=2.5)


def two_steps(axes: np.ndarray) -> None:
    """Clouds of draws, the change that a unit can make, and the curve with half of the draws inside."""
    texts = {
        "Laplace": ("independent Laplace:\nvariance 8", "0.35", DIAMOND * 2 * gammaincinv(2, 0.5)),
        "cube": ("one group of two: variance 4,\nbut windows slide", "C0", SQUARE * gammaincinv(2, 0.5)),
        "semiorder": ("semiorder, slides too:\nvariance 5.24", "C3", None),
    }
    for axis, (name, points) in zip(axes, pairs().items(), strict=True):
        title, color, curve = texts[name]
        axis.plot(*points[: 4 * SHOWN : 4].T, ".", color=color, alpha=0.4, markersize=3, markeredgewidth=0)
        axis.add_patch(Polygon(SQUARE, facecolor="gold", edgecolor="darkgoldenrod", zorder=3))
        if curve is None:
            half_inside(axis, points, color)
        else:
            axis.add_patch(Polygon(curve, fill=False, edgecolor=color, linewidth=2.5, zorder=4))
        axis.set(
            xlim=(-REACH, REACH), ylim=(-REACH, REACH), aspect="equal", title=title, xlabel="noise of a step"
        )
    axes[0].set_ylabel("noise of the next step, in Δ/ε")
    axes[0].text(0, 0, "what a\nunit can\nchange", ha="center", va="center", fontsize=7, zorder=5)


def errors(axis: Axes) -> None:
    """Mean absolute noise of the best law, over that of Laplace noise."""
    measurements = np.unique(np.round(np.geomspace(1, 300, 60)).astype(int)).tolist()

    def ratios(columns: int, sliding: bool = True) -> list[float]:
        return [
            best_choice(k, columns, sliding=sliding).expected_absolute / laplace_choice(k).expected_absolute
            for k in measurements
        ]

    axis.axhline(1, color="0.35", label="Laplace")
    axis.plot(measurements, ratios(1, sliding=False), color="C0", label="one column, cube on groups")
    axis.plot(measurements, ratios(1), color="C3", linewidth=2.5, label="one column, best law")
    axis.plot(measurements, ratios(2), color="C3", linestyle="--", label="two columns, a unit in one of them")
    axis.plot(measurements, ratios(5), color="C3", linestyle=":", label="five columns, a unit in one of them")
    axis.axhline(
        0.5, color="C0", linewidth=0.8, linestyle=(0, (6, 4)), label="one group for a whole run (user level)"
    )
    axis.set(
        xscale="log", ylim=(0.36, 1.04), xlabel="measurements in a window", ylabel="mean absolute noise / Laplace's",
        xlim=(1, 300),
    )  # fmt: skip
    axis.set_xticks([1, 2, 4, 8, 16, 48, 120, 240], ["1", "2", "4", "8", "16", "48", "120", "240"])
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8, loc="lower left", ncols=2)


def main() -> None:
    """Draw both rows."""
    figure = plt.figure(figsize=(10, 7.6), constrained_layout=True)
    top, bottom = figure.subfigures(2, 1, height_ratios=(1.15, 1))
    two_steps(top.subplots(1, 3, sharey=True))
    errors(bottom.subplots())
    figure.savefig(PICTURES / "noise.png", dpi=100)


if __name__ == "__main__":
    main()
