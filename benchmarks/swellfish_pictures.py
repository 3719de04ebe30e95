"""Pictures of the Swellfish experiments and of a specification, for docs/experiments/swellfish.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import tidegate as tg
from tidegate.mechanisms.swellfish.picture import FAINT, INK, NOISE, QUIET, SECRET, draw
from tidegate.policy import Secret, Specification, read_policy

EXAMPLES = Path(__file__).resolve().parents[1] / "docs" / "examples"
COLOURS = {
    "Swellfish printed": ("#7fb7c9", "v"),
    "Swellfish windowed": (SECRET, "o"),
    "Swellfish optimal": ("#05374a", "^"),
    "Swellfish approximate": ("#3f9a6b", "s"),
    "Uniform w-event": (NOISE, "o"),
    "Uniform w-event approximate": ("#e0a58a", "s"),
    "Uniform user-level": ("#5b5f66", "o"),
    "Uniform user-level approximate": ("#a9adb4", "s"),
    "RescueDP": ("#8a5fa8", "D"),
}


def canvas(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=90, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def quiet(axes: Any) -> None:
    axes.tick_params(labelsize=8, colors=QUIET, length=2)
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)


def neighbours(file: Path) -> None:
    """Figures 1 and 2: two secrets relevant at once, and two neighbouring streams."""
    figure = canvas(10, 3.2)
    left, right = figure.subplots(1, 2, gridspec_kw={"wspace": 0.24})
    figure.subplots_adjust(left=0.09, right=0.98, top=0.83, bottom=0.15)
    for line, (name, first, last, event) in enumerate((("oven", 1, 9, (3, 5)), ("washing", 5, 16, (8, 13)))):
        left.barh(line, last - first, left=first, height=0.5, color=SECRET, alpha=0.25, linewidth=0)
        left.barh(line, event[1] - event[0], left=event[0], height=0.5, color=SECRET, linewidth=0)
        left.text(event[0] + 0.2, line, "event", va="center", color="white", fontsize=8)
        left.text(first + 0.1, line - 0.36, f"hiding interval of {name}", va="center", fontsize=8, color=INK)
    left.axvline(7, color=NOISE, linewidth=1.2)
    left.text(7.1, 1.55, "t: both relevant, Δ = p₁ + p₂", color=NOISE, fontsize=8)
    left.set_yticks([0, 1], ["oven", "washing"])
    left.set_ylim(1.8, -0.6)
    left.set_title("two secrets, both relevant at t (Figure 1)", loc="left", fontsize=9, color=INK)
    steps = np.arange(1, 6)
    one, other = np.array([0.2, 0.3, 0.2, 3.1]), np.array([0.2, 3.3, 3.2, 3.1])
    right.axvspan(1, 5, color=SECRET, alpha=0.1, linewidth=0)
    right.step(
        steps, np.append(other, other[-1]), where="post", color=NOISE, linewidth=2.2, label="with the event"
    )
    right.step(steps, np.append(one, one[-1]), where="post", color=INK, linewidth=1.4, label="without")
    right.set_xticks([1.5, 2.5, 3.5, 4.5], ["t = 1", "2", "3", "4"])
    right.set_ylabel("kW", fontsize=8, color=QUIET)
    right.legend(frameon=False, fontsize=8, loc="upper left")
    right.set_title("neighbouring streams of individual 1 (Figure 2)", loc="left", fontsize=9, color=INK)
    right.set_ylim(0, 4.6)
    for axes in (left, right):
        quiet(axes)
    figure.savefig(file)


def experiment_1(file: Path, found: dict[str, Any]) -> None:
    """Figure 3: mean relative error of every zone."""
    figure = canvas(10, 4.8)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.08, right=0.72, top=0.92, bottom=0.11)
    for at, (name, result) in enumerate(found.items()):
        colour, mark = COLOURS[name]
        zones, means = zip(*result["means"].items(), strict=True)
        beside = np.array(zones) + 0.08 * (at - len(found) / 2)  # so that no mark hides another
        axes.plot(beside, 100 * np.array(means), mark, color=colour, markersize=4.5, label=name)
    axes.axhline(100, color=QUIET, linewidth=0.8, linestyle=":")
    axes.set_yscale("log")
    axes.set_ylim(top=1500)
    axes.set_xticks(range(1, 21))
    axes.set_xlabel("zone", fontsize=9, color=QUIET)
    axes.set_ylabel("mean relative error, %", fontsize=9, color=QUIET)
    axes.set_title(
        "Experiment 1: 250 households, 4.5 years of quarter hours", loc="left", fontsize=10, color=INK
    )
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
    quiet(axes)
    figure.savefig(file)


def experiment_2(file: Path, found: dict[str, Any]) -> None:
    """Figure 4: relative error over 12 weeks, one line a zone, averaged over days."""
    names = (
        ("Swellfish windowed", "Swellfish approximate"),
        ("Uniform w-event", "Uniform w-event approximate"),
        ("Uniform user-level", "Uniform user-level approximate"),
        ("RescueDP", None),
    )
    figure = canvas(9, 8)
    grid = figure.subplots(4, 2, sharex=True, sharey="row", gridspec_kw={"hspace": 0.32, "wspace": 0.06})
    figure.subplots_adjust(left=0.08, right=0.98, top=0.925, bottom=0.06)
    for row, pair in zip(grid, names, strict=True):
        for axes, name in zip(row, pair, strict=True):
            if name is None:
                axes.axis("off")
                continue
            for zone, curve in found[name]["weeks"].items():
                if zone != 4:  # as in the paper: its load is a hundredth of the others'
                    days = curve.reshape(-1, 96).mean(axis=1)
                    weeks = (np.arange(len(days)) + 0.5) / 7
                    axes.plot(weeks, 100 * days, color=COLOURS[name][0], linewidth=0.7, alpha=0.75)
            axes.axvspan(0, 1, color=FAINT, alpha=0.6, linewidth=0)
            axes.set_yscale("log")
            axes.set_title(name, loc="left", fontsize=9, color=INK)
            quiet(axes)
        row[0].set_ylabel("relative error, %", fontsize=8, color=QUIET)
    for axes in (grid[-1][0], grid[2][1]):
        axes.set_xlabel("week (the holiday is hidden in the first)", fontsize=8, color=QUIET)
        axes.tick_params(labelbottom=True)
    figure.suptitle(
        "Experiment 2: one household hides a holiday in the first week",
        x=0.08,
        ha="left",
        fontsize=11,
        color=INK,
    )
    figure.savefig(file)


def specification(file: Path) -> None:
    """The household of docs/examples over two weeks, around its holiday."""
    policy = read_policy(EXAMPLES / "household.toml")
    mechanism = tg.mechanisms.Swellfish(policy, grid="0.1")
    first = 40 * 96 + 1 - 3 * 96
    draw(mechanism, file, first, first + 14 * 96 - 1)


def schedules(file: Path) -> None:
    """Windowed against optimal on a small example: the solver gives to the edges what the middle cannot use."""
    house = Specification(
        (
            Secret(1, 3, "always", 1, "home"),
            Secret(4, 6, [(9, 22)], "1/2", "washing"),
            Secret(2, 2, [(18, 34)], "1/4", "oven"),
        ),
        "house",
    )
    policy = tg.Swellfish(specifications=[house], horizon=40)
    figure = canvas(10, 3)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.08, right=0.98, top=0.88, bottom=0.16)
    for form, colour in (("printed", "#9aa3ad"), ("windowed", SECRET), ("optimal", NOISE)):
        scales = tg.mechanisms.Swellfish(policy, schedule=form).scales(1, 40)
        error = np.sqrt(np.mean(scales**2))
        label = f"{form} (root mean square {error:.1f})"
        axes.step(np.arange(1, 42), np.append(scales, scales[-1]), where="post", color=colour, label=label)
    axes.set_yscale("log")
    axes.set_xlabel("step", fontsize=9, color=QUIET)
    axes.set_title(
        "noise scales of three schedules for one specification", loc="left", fontsize=10, color=INK
    )
    axes.legend(frameon=False, fontsize=8)
    quiet(axes)
    figure.savefig(file)


def draw_all(folder: Path, one: dict[str, Any], two: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    draw_plain(folder)
    experiment_1(folder / "swellfish_experiment_1.png", one)
    experiment_2(folder / "swellfish_experiment_2.png", two)


def draw_plain(folder: Path) -> None:
    neighbours(folder / "swellfish_neighbours.png")
    specification(folder / "swellfish_specification.png")
    schedules(folder / "swellfish_schedules.png")


if __name__ == "__main__":
    draw_plain(Path(__file__).resolve().parents[1] / "docs" / "pictures")
