"""The pictures of docs/experiments/optstream.md: a week of load, and the error by the number of samples."""

from __future__ import annotations

import numpy as np
from optstream_data import ROOT, W, errors, policy, regions_2016

from tidegate.core.session import Session
from tidegate.mechanisms import Fourier, Mechanism, OptStream, Uniform


def pictures() -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    data = [each for each in regions_2016() if each[0] == "ile_de_france" and each[1] == "February"]
    _, _, public, month = data[0]
    week = slice(0, 7 * W)
    figure, axes = plt.subplots(3, 3, figsize=(12, 7), sharex=True, sharey="row")
    for line, epsilon in zip(axes, ("1", "0.1", "0.01"), strict=True):
        p = policy(epsilon)
        chosen = OptStream.from_profile(p, public)
        lowest = Fourier.from_profile(p, public)
        shown: dict[str, Mechanism] = {
            "Laplace": Uniform(p, noise="laplace"),
            f"Fourier, K = {lowest.coefficients}": lowest,
            f"OptStream, k = {chosen.samples}": chosen,
        }
        for axis, (name, mechanism) in zip(line, shown.items(), strict=True):
            values = np.maximum(Session(mechanism).push_batch(month).final.values, 0)
            axis.plot(np.arange(7 * W) / W, month[week, 0] / 1000, color="0.6", lw=1)
            axis.plot(np.arange(7 * W) / W, values[week, 0] / 1000, color="tab:red", lw=0.9)
            mean = np.abs(values - month).mean()
            axis.set_title(f"{name}: {mean:,.0f} MW", fontsize=9)
            axis.set_ylim(0, 15)
        line[0].set_ylabel(f"ε = {epsilon}\nGW")
    for axis in axes[-1]:
        axis.set_xlabel("day of February 2016")
    figure.suptitle(
        "Load of Île-de-France (grey) and what is released (red); mean absolute error", fontsize=10
    )
    figure.tight_layout()
    folder = ROOT / "docs" / "pictures"
    figure.savefig(folder / "optstream_week.png", dpi=90)
    plt.close(figure)

    figure, axis = plt.subplots(figsize=(7, 4))
    numbers = [1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48]
    for epsilon, color in (("1", "tab:green"), ("0.1", "tab:blue"), ("0.01", "tab:orange")):
        mechanisms = [OptStream(policy(epsilon), samples=k) for k in numbers]
        axis.plot(numbers, [errors(m, month, 30).mean() for m in mechanisms], "o", color=color, ms=4)
        axis.plot(
            numbers, [m.predicted_error(public) for m in mechanisms], color=color, label=f"ε = {epsilon}"
        )
        best_k = OptStream.from_profile(policy(epsilon), public)
        axis.plot(best_k.sample_count, errors(best_k, month, 30).mean(), "*", color=color, ms=13, mec="black")
    axis.set(
        xscale="log", yscale="log", xlabel="samples k of a day (w = 48)", ylabel="mean absolute error, MW"
    )
    axis.set_xticks([1, 2, 4, 8, 16, 48], ["1", "2", "4", "8", "16", "48"])
    axis.set_title(
        "Predicted on January (lines), measured in February (dots), chosen times (stars)", fontsize=9
    )
    axis.legend()
    figure.tight_layout()
    figure.savefig(folder / "optstream_samples.png", dpi=90)
    plt.close(figure)
