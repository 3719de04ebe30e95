"""PeGaSus: how fast it is, and with `figures` how accurate, on made-up streams of the shape of the paper's Table 1.

python benchmarks/pegasus.py [--full]    steps a second, growth; the best of 3 or 7
python benchmarks/pegasus.py figures     the comparisons of Figures 3 to 8, 20 runs each, with pictures
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sizes import SMALL, scaled
from timing import data_file

from experiments.printed.publishing import PrintedPruning
from tidegate.audit import direct
from tidegate.core.session import Session
from tidegate.datasets import shapes
from tidegate.mechanisms import BackwardSmoothing, HierarchicalPeGaSus, PeGaSus, SlidingWindowTree, Uniform
from tidegate.policy import Event
from tidegate.queries import Consistent, Hierarchy, History, WindowSum

RUNS = scaled(20, 1)
SINGLE = ("Low_5", "Med_5", "High_5")
EPSILONS = ("0.1", "0.01")
PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
PATIENT = 30  # the other threshold factor that is shown


def shape(name: str) -> np.ndarray:
    """A stream of the shape of one of the paper's; its beginning in a small run."""
    return shapes.shape(name)[: scaled(10**9, 600)]


def best(function: Callable[[], object], times: int = scaled(7, 1, 3)) -> float:
    """The least processor time of several calls, after a warm one: other programs do not count."""
    function()
    found = float("inf")
    for _ in range(times):
        before = time.thread_time()
        function()
        found = min(found, time.thread_time() - before)
    return found


def tiled(name: str, steps: int) -> np.ndarray:
    counts = shape(name) if name in SINGLE else np.full((1, 1), 7)
    return np.resize(counts, (steps, 1)).astype(np.int64)


def speed() -> None:
    print(
        f"{'stream':>10} {'ε':>5} {'groups':>14} {'10^4: ns':>9} {'10^6: ns':>9} {'ratio':>6} {'million steps/s':>16}"
    )
    for name in (*SINGLE, "constant"):
        for epsilon in EPSILONS:
            for label, options in (
                ("default", {}),
                ("one huge", {"threshold": 10**8, "longest_group": 2**20}),
            ):
                if label != "default" and name != "constant":
                    continue
                mechanism = PeGaSus(Event(epsilon=epsilon), **options)
                each = []
                for steps in (scaled(10**4, 10**3), scaled(10**6, 10**4)):
                    stream = tiled(name, steps)
                    each.append(best(lambda s=stream, m=mechanism: Session(m).push_batch(s)) / steps * 1e9)
                ratio = each[1] / each[0]
                row = f"{each[0]:9.0f} {each[1]:9.0f} {ratio:6.2f} {1e3 / each[1]:16.1f}"
                print(f"{name:>10} {epsilon:>5} {label:>14} {row}", flush=True)
    run = Session(PeGaSus(Event(epsilon="0.1")))
    alone = best(lambda: [run.push(7) for _ in range(scaled(1000, 20))]) / scaled(1000, 20)
    print(f"one push: {alone * 1e6:.1f} µs")
    releases = Session(PeGaSus(Event(epsilon="0.1"))).push_batch(tiled("Med_5", scaled(10**6, 10**4)))
    for window in (4, 256, 4096):
        each = best(lambda w=window: WindowSum(1, w).push_batch(releases))
        print(f"window sum over {window} steps: {1e3 * each:.0f} ns a step")
    tree, counts = Hierarchy.balanced(128), shape("Multi_5")
    for pruning in ("none", "counts", "privtree"):
        mechanism = HierarchicalPeGaSus(Event(epsilon="0.1"), hierarchy=tree, pruning=pruning)
        once = best(lambda m=mechanism: Session(m).push_batch(counts))
        print(f"128 leaves, 8 levels, 20,000 steps, pruning={pruning}: {once:.2f} s")


def error(run: Callable[[], np.ndarray], truth: np.ndarray, runs: int = RUNS) -> float:
    return float(np.mean([np.abs(run() - truth).mean() for _ in range(runs)]))


def table(title: str, columns: list[str], rows: list[tuple[str, list[float]]]) -> None:
    print(f"\n{title}\n\n| | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for label, numbers in rows:
        print(f"| {label} | {' | '.join(f'{number:.3g}' for number in numbers)} |", flush=True)


def unit_counts() -> None:
    """Figures 3 and 4."""
    rows: dict[str, list[float]] = {}
    for name in SINGLE:
        counts = shape(name)
        for epsilon in EPSILONS:
            policy = Event(epsilon=epsilon)
            mechanisms = {
                "Laplace": Uniform(policy, noise="laplace"),
                **{f"BS_{k}": BackwardSmoothing(policy, back=k) for k in (1, 5, 10, 20)},
                **{
                    f"PeGaSus, {s}": PeGaSus(policy, smoother=s) for s in ("median", "average", "james-stein")
                },
                f"PeGaSus, factor {PATIENT}": PeGaSus(policy, threshold_factor=PATIENT),
            }
            for label, mechanism in mechanisms.items():
                found = error(lambda m=mechanism, c=counts: Session(m).push_batch(c).values, counts)
                rows.setdefault(label, []).append(found)
    columns = [f"{name} ε={epsilon}" for name in SINGLE for epsilon in EPSILONS]
    table("Unit counts: mean absolute error", columns, list(rows.items()))
    bars("pegasus_unit_counts.png", "Unit counts (Figures 3 and 4)", columns, rows)


def windows() -> None:
    """Figure 5."""
    import matplotlib.pyplot as plt

    sizes = [2**power for power in range(1, scaled(13, 3))]
    figure, axes = plt.subplots(2, 3, figsize=(12, 6.5), sharex=True)
    for column, name in enumerate(SINGLE):
        counts = shape(name)
        sums = np.concatenate([[[0]], np.cumsum(counts, axis=0)])
        for line, epsilon in enumerate(EPSILONS):
            policy = Event(epsilon=epsilon)
            released = {
                "LM": [Session(Uniform(policy, noise="laplace")).push_batch(counts) for _ in range(RUNS)],
                "PGS_MS": [Session(PeGaSus(policy)).push_batch(counts) for _ in range(RUNS)],
            }
            released["PGS_WSS"] = released["PGS_MS"]
            patient = PeGaSus(policy, threshold_factor=PATIENT)
            released[f"PGS_WSS, factor {PATIENT}"] = [
                Session(patient).push_batch(counts) for _ in range(RUNS)
            ]
            rows: dict[str, list[float]] = {label: [] for label in (*released, "SW_w", "SW_w, averaged")}
            for size in sizes:
                ends = np.arange(1, len(counts) + 1)
                truth = sums[ends] - sums[np.maximum(ends - size, 0)]
                for label, several in released.items():
                    how = "median" if "WSS" in label else "released"
                    answers = [WindowSum(1, size, how).push_batch(one) for one in several]
                    rows[label].append(float(np.mean([np.abs(one - truth).mean() for one in answers])))
                for label, estimator in (("SW_w", "plain"), ("SW_w, averaged", "honaker")):
                    tree = SlidingWindowTree(policy, window=size, estimator=estimator)
                    rows[label].append(error(lambda t=tree, c=counts: Session(t).push_batch(c).values, truth))
            title = f"{name}, ε = {epsilon}"
            table(
                f"Window sums, {title}: mean absolute error",
                [f"w={size}" for size in sizes],
                list(rows.items()),
            )
            for label, numbers in rows.items():
                axes[line, column].loglog(sizes, numbers, marker=".", label=label, base=2)
            axes[line, column].set_yscale("log")
            axes[line, column].set_title(title, fontsize=10)
            axes[line, column].grid(alpha=0.3)
    for ax in axes[1]:
        ax.set_xlabel("window (steps)")
    for ax in axes[:, 0]:
        ax.set_ylabel("mean absolute error")
    axes[0, 0].legend(fontsize=7)
    save(figure, "pegasus_windows.png")


def auc(scores: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """The ROC curve of alarms that are raised where a score is high, and the area under it."""
    order = np.argsort(-scores, kind="stable")
    hits, misses = np.cumsum(truth[order]), np.cumsum(~truth[order])
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)  # equal scores go together
    true_rate = np.concatenate([[0.0], hits[last] / max(hits[-1], 1)])
    false_rate = np.concatenate([[0.0], misses[last] / max(misses[-1], 1)])
    return false_rate, true_rate, float(np.trapezoid(true_rate, false_rate))


def monitors() -> None:
    """Figures 6 and 7, on High_5."""
    import matplotlib.pyplot as plt

    counts = shape("High_5")
    sums = np.concatenate([[[0]], np.cumsum(counts, axis=0)])
    figure, axes = plt.subplots(2, 4, figsize=(14, 7), sharex=True, sharey=True)
    rows: dict[str, list[float]] = {}
    columns: list[str] = []
    place = 0
    for epsilon in EPSILONS:
        policy = Event(epsilon=epsilon)
        for window, threshold in ((16, 50), (64, 100)):
            label = f"jump w={window} δ={threshold} ε={epsilon}"
            truth = np.abs(counts[window - 1 :, 0] - counts[: len(counts) - window + 1, 0]) >= threshold
            curves = {}
            for name, mechanism in methods(policy).items():
                followed = History(1, window).push_batch(Session(mechanism).push_batch(counts))
                curves[name] = np.abs(followed.latest - followed.oldest)[window - 1 :, 0]
            draw(axes[0, place], label, curves, truth, rows)
            columns.append(label)
            place += 1
    place = 0
    for epsilon in EPSILONS:
        policy = Event(epsilon=epsilon)
        for window, threshold in ((16, 100), (64, 500)):
            label = f"low w={window} δ={threshold} ε={epsilon}"
            truth = (sums[window:] - sums[:-window])[:, 0] < threshold
            curves = {}
            for name, mechanism in methods(policy).items():
                answers = WindowSum(1, window).push_batch(Session(mechanism).push_batch(counts))
                curves[name] = -answers[window - 1 :, 0]
            tree = Session(SlidingWindowTree(policy, window=window, estimator="plain")).push_batch(counts)
            curves["SW_w"] = -tree.values[window - 1 :, 0]
            draw(axes[1, place], label, curves, truth, rows)
            columns.append(label)
            place += 1
    for ax in axes[1]:
        ax.set_xlabel("false positive rate")
    for ax in axes[:, 0]:
        ax.set_ylabel("true positive rate")
    save(figure, "pegasus_monitors.png")
    for kind in ("jump", "low"):
        chosen = [number for number, label in enumerate(columns) if label.startswith(kind)]
        shown = [
            (name, [found[columns[number]] for number in chosen])
            for name, found in rows.items()
            if columns[chosen[0]] in found
        ]
        table(f"Monitors on High_5, {kind}: area under the ROC curve", [columns[n] for n in chosen], shown)


def methods(policy: Event) -> dict[str, object]:
    return {
        "LM": Uniform(policy, noise="laplace"),
        "PGS": PeGaSus(policy),
        f"PGS, factor {PATIENT}": PeGaSus(policy, threshold_factor=PATIENT),
    }


def draw(ax: object, label: str, curves: dict[str, np.ndarray], truth: np.ndarray, rows: dict) -> None:
    for name, scores in curves.items():
        false_rate, true_rate, area = auc(scores, truth)
        ax.plot(false_rate, true_rate, label=f"{name} ({area:.3f})")
        rows.setdefault(name, {})[label] = area
    ax.set_title(label, fontsize=9)
    ax.legend(fontsize=7, loc="lower right")
    ax.grid(alpha=0.3)


def hierarchies() -> None:
    """Figure 8."""
    counts, tree = shape("Multi_5"), Hierarchy.balanced(128)
    truth = tree.sum(counts)
    rows: dict[str, list[float]] = {}
    for epsilon in EPSILONS:
        policy = Event(epsilon=epsilon)
        divided = Uniform(Event(epsilon=policy.epsilon / tree.height), columns=len(tree.names))
        methods_here = {
            "HS-LM": divided,
            "HS-PGS": HierarchicalPeGaSus(policy, hierarchy=tree, pruning="none"),
            "PHS-PGS, counts": HierarchicalPeGaSus(policy, hierarchy=tree),
            "PHS-PGS, privtree": HierarchicalPeGaSus(policy, hierarchy=tree, pruning="privtree"),
            "PHS-PGS, as printed (unsound)": PrintedPruning(policy, hierarchy=tree),
        }
        for label, mechanism in methods_here.items():
            given = truth if mechanism is divided else counts
            released = [direct.released(mechanism, given) for _ in range(RUNS)]
            found = float(np.mean([np.abs(one.values - truth).mean() for one in released]))
            rows.setdefault(label, []).append(found)
            if label == "PHS-PGS, counts" or label == "HS-PGS":
                made = [Consistent(tree).push_batch(one) for one in released[:5]]
                found = float(np.mean([np.abs(one - truth).mean() for one in made]))
                rows.setdefault(f"{label}, consistent", []).append(found)
    columns = [f"Multi_5 ε={epsilon}" for epsilon in EPSILONS]
    rows["all zero, for comparison"] = [float(np.abs(truth).mean())] * 2
    table("Hierarchy of 255 nodes: mean absolute error", columns, list(rows.items()))
    bars("pegasus_hierarchies.png", "Hierarchy (Figure 8)", columns, rows)


def real_streams() -> None:
    """Unit counts of streams on which nothing was tuned."""
    import polars as pl

    names = ("calit2_people_30min.csv.gz", "wifi_rooms_5min.csv.gz", "worldcup98_requests_per_minute.parquet")
    people_file, rooms_file, web_file = map(data_file, names)
    if people_file is None or rooms_file is None or web_file is None:
        return
    people = pl.read_csv(people_file).filter(pl.col("flow") == "in")
    rooms = pl.read_csv(rooms_file).sort("ts_utc")
    web = pl.read_parquet(web_file)
    streams = {"people in": people["count"]}
    for room in rooms["room"].unique().sort():
        streams[f"room {room}"] = rooms.filter(pl.col("room") == room)["associated"]
    streams["web requests"] = web[[name for name, kind in web.schema.items() if kind.is_numeric()][-1]]
    rows = []
    for name, series in streams.items():
        counts = np.rint(series.drop_nulls().to_numpy()).astype(np.int64)[: scaled(10**9, 300), np.newaxis]
        for epsilon in EPSILONS:
            policy = Event(epsilon=epsilon)
            several = [
                Uniform(policy, noise="laplace"),
                *(BackwardSmoothing(policy, back=k) for k in (5, 20)),
            ]
            several += [PeGaSus(policy, threshold_factor=factor) for factor in (5, 10, 20, 30)]
            runs = RUNS if len(counts) < 30_000 else scaled(5, 1)
            found = [
                error(lambda m=m, c=counts: Session(m).push_batch(c).values, counts, runs) for m in several
            ]
            rows.append((f"{name}, {len(counts)} steps, mean {counts.mean():.3g}, ε={epsilon}", found))
    columns = ["Laplace", "BS_5", "BS_20", *(f"PeGaSus, factor {factor}" for factor in (5, 10, 20, 30))]
    table("Real streams: mean absolute error", columns, rows)


def bars(name: str, title: str, columns: list[str], rows: dict[str, list[float]]) -> None:
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(11, 4.5))
    width = 0.85 / len(rows)
    for number, (label, numbers) in enumerate(rows.items()):
        ax.bar(np.arange(len(columns)) + number * width, numbers, width, label=label)
    ax.set_yscale("log")
    ax.set_xticks(np.arange(len(columns)) + 0.4, columns, fontsize=8)
    ax.set_ylabel("mean absolute error")
    ax.set_title(title)
    ax.legend(fontsize=8, ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.08))
    ax.grid(axis="y", alpha=0.3)
    save(figure, name)


def save(figure: object, name: str) -> None:
    if SMALL:  # docs show full runs
        return
    figure.tight_layout()
    figure.savefig(PICTURES / name, dpi=80)


if __name__ == "__main__":
    if "figures" in sys.argv:
        unit_counts()
        windows()
        monitors()
        hierarchies()
    elif "real" in sys.argv:
        real_streams()
    else:
        speed()
