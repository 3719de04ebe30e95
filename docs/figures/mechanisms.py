"""Pictures of docs/mechanisms: what a mechanism releases of a made-up stream, where no comparison is drawn already.

`python docs/figures/mechanisms.py` writes docs/pictures/mechanism_….png, with entropy of tests.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

import tidegate as tg
from tidegate.datasets.households import load
from tidegate.datasets.shapes import trip_minutes
from tidegate.mechanisms import (
    DSAT,
    AdaPub,
    BackwardSmoothing,
    BinaryTree,
    Blocks,
    BudgetAbsorption,
    BudgetDistribution,
    ClippedAverage,
    ClippedDecay,
    ClippedHistogram,
    Discover,
    Fourier,
    PersonalDistribution,
    SlidingWindowTree,
    ToPS,
    Uniform,
)
from tidegate.mechanisms.w_event.personal import Requirement
from tidegate.testing.entropy import fixed_entropy

PICTURES = Path(__file__).resolve().parent.parent / "pictures"
TRUE, OURS, OTHER = "#1d2733", "#0b6e8f", "#d9b38c"
LAG = 2_000
TRIPS = trip_minutes(20_000)
TRIP = tg.Event(epsilon="1", max_change=1440)


def _lines(
    panel: Axes, true: np.ndarray, ours: np.ndarray, other: np.ndarray | None, names: tuple[str, str]
) -> None:
    if other is not None:
        panel.plot(other, color=OTHER, linewidth=0.7, label=names[1])
    panel.plot(ours, color=OURS, linewidth=1.3, label=names[0])
    panel.plot(true, color=TRUE, linewidth=0.9, linestyle="--", label="true")
    panel.legend(frameon=False, fontsize=8, ncols=3, loc="upper left")


def backward_smoothing(panel: Axes) -> None:
    """A mean of the last measurements is smooth, and late where the stream jumps."""
    true = np.repeat([20, 20, 60, 60, 35, 35], 30)
    policy = tg.Event(epsilon="0.2")
    ours = tg.open(BackwardSmoothing(policy, back=10)).push_batch(true).values
    _lines(
        panel,
        true,
        ours,
        tg.open(Uniform(policy)).push_batch(true).values,
        ("the mean of the last 10", "each alone"),
    )
    panel.set(
        xlabel="step",
        title="Noise shrinks where nothing changes; a jump is smeared over the steps after it",
        ylim=(-10, 90),
    )


def blocks(panel: Axes) -> None:
    """Each block is a run of its own, and a window meets at most two of them."""
    true = (40 + 25 * np.sin(np.arange(96) / 24 * 2 * np.pi)).round().astype(int)
    inner = Uniform(tg.User(epsilon="4", horizon=24))
    _lines(panel, true, tg.open(Blocks(inner)).push_batch(true).values, None, ("released", ""))
    for edge in range(0, 97, 24):
        panel.axvline(edge - 0.5, color=OTHER, linewidth=1)
    panel.axvspan(15.5, 39.5, color=OURS, alpha=0.1)
    panel.set(
        xlabel="step",
        title="Blocks of 24 steps; any window of 24 (shaded) meets two, so each has half of ε",
        ylim=(0, 100),
    )


def dsat(panel: Axes) -> None:
    """Few publications, where the stream has moved."""
    true = np.repeat([300, 300, 420, 420, 420, 250, 250, 330], 30)
    policy = tg.WEvent(epsilon="1", window=24)
    releases = tg.open(DSAT(policy, publications=3)).push_batch(true)
    budgets = tg.open(BudgetAbsorption(policy, noise="laplace")).push_batch(true).values
    _lines(panel, true, releases.values, budgets, ("DSAT", "BudgetAbsorption"))
    panel.plot(np.flatnonzero(releases.fresh), releases.values[releases.fresh], "o", color=OURS, markersize=4)
    panel.set(xlabel="step", title="Steps below the threshold are free; dots: publications", ylim=(150, 560))


def personal_distribution(panel: Axes) -> None:
    """One unit in four asks for a fifth of ε, one in four for three windows."""
    true = np.repeat([300, 300, 420, 420, 420, 250, 250, 330], 30)
    table = (Requirement("1/4", epsilon="1/5"), Requirement("1/4", window=72))
    personal = PersonalDistribution(tg.WEvent(epsilon="1", window=24), columns=3, requirements=table)
    choose = np.random.default_rng(1)
    pushed = np.array([choose.multinomial(count, [0.5, 0.25, 0.25]) for count in true])
    strict = BudgetDistribution(tg.WEvent(epsilon="1/5", window=72), noise="laplace")
    strictest = tg.open(strict).push_batch(true).values
    _lines(
        panel, true, tg.open(personal).push_batch(pushed).values, strictest, ("personal", "strictest for all")
    )
    panel.set(
        xlabel="step",
        title="A quarter of the units with ε/5, a quarter with 3w",
        ylim=(-300, 1100),
    )


def ada_pub(panel: Axes) -> None:
    """Columns alike lend each other their measurements."""
    true = np.repeat([[20] * 30, [20] * 15 + [90] * 15], 90, axis=0)
    policy = tg.WEvent(epsilon="4", window=24)
    ours = tg.open(AdaPub(policy, columns=30)).push_batch(true).values
    plain = tg.open(Uniform(policy, columns=30, noise="laplace")).push_batch(true).values
    _lines(panel, true[:, -1], ours[:, -1], plain[:, -1], ("AdaPub, one of 30 columns", "Uniform"))
    panel.set(
        xlabel="step",
        title="Fifteen of thirty columns rise, and are measured together again",
        ylim=(-10, 130),
    )


def fourier(panel: Axes) -> None:
    """A few coefficients hold a smooth day."""
    true = load(households=5_000, days=3)
    policy = tg.WEvent(epsilon="1", window=96, max_change=5)
    ours = tg.open(Fourier(policy, grid="0.1", coefficients=9)).push_batch(true).revised
    plain = tg.open(Uniform(policy, grid="0.1", noise="laplace")).push_batch(true)
    _lines(panel, true, ours.values, plain.values, ("9 coefficients of each day", "Uniform"))
    panel.set(
        xlabel="quarters of an hour", ylabel="kW", title="A day as the sum of a few waves, known when it ends"
    )


def sliding_window_tree(panel: Axes) -> None:
    """Sums of a window from noisy parts of it."""
    steps = (40 + 25 * np.sin(np.arange(12_000) / 4_000 * 2 * np.pi)).round().astype(int)
    policy = tg.Event(epsilon="0.1")
    mechanism = SlidingWindowTree(policy, window=4_096)
    ours = tg.open(mechanism).push_batch(steps).values[4_096:]
    single = mechanism.ideal(tg.open(Uniform(policy)).push_batch(steps).values)[4_096:]
    true = mechanism.ideal(steps[:, np.newaxis].astype(float))[4_096:]
    _lines(panel, true, ours, single, ("from parts of the window", "4,096 noisy steps added up"))
    panel.set(
        xlabel="step",
        ylabel="sum of the last 4,096",
        title="A window is covered by few parts, each measured once",
    )


def clipped_average(panel: Axes) -> None:
    """Noise for a threshold of some hundred minutes in place of a day."""
    policy, window = TRIP, 2_000
    releases = tg.open(ClippedAverage(policy, lag=LAG, window=window)).push_batch(TRIPS)
    ours = releases.values[2 * window :: 40, 0]
    true = np.convolve(TRIPS, np.full(window, 1 / window), "valid")[window + 1 :: 40]
    tree = (
        tg.open(SlidingWindowTree(policy, window=window)).push_batch(TRIPS).values[2 * window :: 40, 0]
        / window
    )
    _lines(
        panel,
        true[: len(ours)],
        ours,
        tree,
        (f"clipped at {releases.clip[-1]:.0f} minutes", "noise for 1,440 minutes"),
    )
    panel.set(xlabel="trips (every 40th)", ylabel="minutes", title="Average of the last 2,000 trips, ε = 1")


def tops(panel: Axes) -> None:
    """How far running sums are off, with the same clip."""
    mechanism = ToPS(TRIP, horizon=len(TRIPS), lag=LAG)
    releases = tg.open(mechanism).push_batch(TRIPS)
    clip = int(releases.clip[-1])
    clipped = np.minimum(TRIPS[LAG:], clip)
    true = np.cumsum(clipped)
    tree = tg.open(BinaryTree(tg.Event(epsilon="1", max_change=clip), horizon=len(clipped)))
    others = (tree.push_batch(clipped).values[:, 0] - true) / 1000
    _lines(
        panel,
        np.zeros(len(true)),
        (releases.values[LAG:, 0] - true) / 1000,
        others,
        (f"ToPS, groups of {mechanism.group} trips", "a binary tree"),
    )
    panel.set(
        xlabel="trips", ylabel="thousand minutes", title=f"Error of running sums with the clip {clip}, ε = 1"
    )


def clipped_decay(panel: Axes) -> None:
    """A sum in which old values fade."""
    session = tg.open(ClippedDecay(TRIP, lag=LAG, factor="0.999"))
    ours = session.push_batch(TRIPS).values[2 * LAG :: 40, 0] / 1000
    weights = np.power(0.999, np.arange(8_000))
    true = np.convolve(TRIPS, weights)[: len(TRIPS)][2 * LAG :: 40] / 1000
    _lines(panel, true, ours, None, ("released", ""))
    panel.set(
        xlabel="trips (every 40th)",
        ylabel="thousand minutes",
        title="Sum of minutes in which a trip counts half after 693 others",
    )


def clipped_histogram(panel: Axes) -> None:
    """Bins end where nearly all values do."""
    mechanism = ClippedHistogram(TRIP, lag=LAG, bins=16)
    releases = tg.open(mechanism).push_batch(TRIPS)
    ours = releases.values[-1]
    edges = mechanism.edges(int(releases.clip[-1]))
    true = np.histogram(np.minimum(TRIPS[LAG:], edges[-1] - 1e-9), edges)[0]
    width = np.diff(edges)
    panel.bar(edges[:-1], ours[: len(width)], 0.45 * width, align="edge", color=OURS, label="released")
    panel.bar(edges[:-1] + 0.45 * width, true, 0.45 * width, align="edge", color=OTHER, label="true")
    panel.legend(frameon=False, fontsize=8)
    panel.set(
        xlabel="minutes",
        ylabel="trips",
        title=f"Bins end at {edges[-1]:.0f} minutes, which was learnt; the bound is 1,440",
    )


DAYS, FESTIVAL = 84, range(28, 56)
STATIONS = {"Central": 400, "Harbour": 250, "Meadow": 320, "Main stage": 220, "Side street": 2}
GUESTS = ("Meadow", "Main stage")  # stations that nobody uses before the festival


def discover(panel: Axes) -> None:
    """Stations of a festival open and close; a street with few riders never appears."""
    choose = np.random.default_rng(4)
    true = {
        name: [
            int(choose.poisson(size)) if name not in GUESTS or day in FESTIVAL else 0 for day in range(DAYS)
        ]
        for name, size in STATIONS.items()
    }
    mechanism = Discover(tg.WEvent(epsilon="2", delta="1e-6", window=7), columns=8)
    collector = mechanism.collector()
    days = [
        [(f"{name} {day} {rider}", name) for name, counts in true.items() for rider in range(counts[day])]
        for day in range(DAYS)
    ]
    releases = tg.open(mechanism).push_batch([collector.step(pairs) for pairs in days])
    for color, (name, counts) in zip(
        ("#0b6e8f", "#5a8f3c", "#c2410c", "#8a4fa3", "#1d2733"), true.items(), strict=True
    ):
        shown = [releases[day].counts.get(name, np.nan) for day in range(DAYS)]
        panel.plot(counts, color=color, linewidth=0.8, linestyle="--")
        panel.plot(shown, color=color, linewidth=1.6, label=name)
    panel.axvspan(FESTIVAL[0], FESTIVAL[-1], color=OTHER, alpha=0.25, linewidth=0)
    panel.legend(frameon=False, fontsize=8, ncols=5, loc="upper left")
    panel.set(
        xlabel="day",
        ylabel="riders",
        ylim=(0, 620),
        title="Lines begin where a station opens; dashed: true counts",
    )


def discover_early(panel: Axes) -> None:
    """With early tests a station opens within an epoch, and not at its end."""
    choose, days, opening = np.random.default_rng(6), 84, 33
    true = [int(choose.poisson(90)) if day >= opening else 0 for day in range(days)]
    pairs = [[(f"{day} {rider}", "Main stage") for rider in range(count)] for day, count in enumerate(true)]
    for early, color, label in ((True, OURS, "early tests"), (False, "#c2410c", "tests at ends of epochs")):
        policy = tg.WEvent(epsilon="4", delta="1e-6", window=28)
        mechanism = Discover(policy, columns=4, early=early)
        collector = mechanism.collector()
        with fixed_entropy(2 if early else 3):
            releases = tg.open(mechanism).push_batch([collector.step(each) for each in pairs])
        shown = [releases[day].counts.get("Main stage", np.nan) for day in range(days)]
        panel.plot(shown, color=color, linewidth=1.6 if early else 1.0, label=label)
    panel.plot(true, color=OTHER, linewidth=0.9, linestyle="--", label="true riders")
    for edge in range(28, days, 28):
        panel.axvline(edge - 0.5, color=OTHER, alpha=0.5, linewidth=0.8)
    panel.legend(frameon=False, fontsize=8, ncols=3, loc="upper left")
    panel.set(
        xlabel="day (epochs of 28 days)",
        ylabel="riders",
        ylim=(-20, 180),
        title="A station that is new on day 33 opens as soon as enough riders had it",
    )


DRAWN: tuple[Callable[[Axes], None], ...] = (
    backward_smoothing,
    blocks,
    dsat,
    personal_distribution,
    ada_pub,
    fourier,
    sliding_window_tree,
    clipped_average,
    clipped_decay,
    clipped_histogram,
    discover,
    discover_early,
    tops,
)


def main() -> None:
    """One picture a mechanism, named like its page."""
    for draw in DRAWN:
        figure, panel = plt.subplots(figsize=(9, 2.9), layout="constrained")
        with fixed_entropy(1):
            draw(panel)
        panel.spines[["top", "right"]].set_visible(False)
        panel.title.set_fontsize(10)
        figure.savefig(PICTURES / f"mechanism_{draw.__name__}.png", dpi=90, metadata={"Software": None})
        plt.close(figure)
        print(draw.__name__)


if __name__ == "__main__":
    main()
