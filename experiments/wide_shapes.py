"""Streams of the shape of the w-event paper's data, which are not public: generated, seeded, never noise.

The paper tells their sizes and a few facts. Everything else here is made up to be plausible: rankings on these
streams say something about streams of this kind, not about Rome or the World Cup.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.int64]
ROME_STEPS, ROME_COLUMNS = 1_442, 25_936
URL_STEPS_PER_DAY, URL_COLUMNS, URL_DAYS = 15, 89_997, 88


def rome(steps: int = ROME_STEPS, columns: int = ROME_COLUMNS, seed: int = 1) -> Matrix:
    """Commuters on roads, every ten minutes for ten days: two rush hours, quiet nights, slow changes.

    Root mean squares of the columns run from a few commuters to a few hundred, as in the paper's Figure 8.
    """
    random = np.random.default_rng(seed)
    level = np.exp(random.normal(2.2, 1.1, columns))
    phase = random.normal(0, 0.03, columns)
    rest = random.normal(0, 1, columns)
    day = np.arange(steps)[:, np.newaxis] / 144
    matrix = np.empty((steps, columns), dtype=np.int64)
    for step in range(steps):
        rest = 0.98 * rest + 0.2 * random.normal(0, 1, columns)
        hour = (day[step] + phase) % 1 * 24
        rush = np.exp(-(((hour - 8.3) / 1.6) ** 2)) + 0.9 * np.exp(-(((hour - 18.2) / 2.2) ** 2))
        shape = 0.35 + 0.25 * (hour > 6.5) * (hour < 22) + rush
        weekend = 0.7 if int(day[step, 0]) % 7 >= 5 else 1.0
        matrix[step] = np.maximum(level * shape * weekend * (1 + 0.08 * rest), 0)
    return matrix


def world_cup_urls(
    steps_per_day: int = URL_STEPS_PER_DAY, columns: int = URL_COLUMNS, days: int = URL_DAYS, seed: int = 2
) -> Matrix:
    """Requests of URLs: a few are very popular, most are nearly never asked for; matches make sudden peaks."""
    random = np.random.default_rng(seed)
    popularity = 1.0 / np.arange(1, columns + 1) ** 1.05
    popularity /= popularity.sum()
    steps = steps_per_day * days
    matrix = np.empty((steps, columns), dtype=np.int64)
    for step in range(steps):
        day, hour = divmod(step / steps_per_day, 1)
        growth = 0.15 + 0.85 * np.exp(-(((day - 62) / 22) ** 2))
        match = 1 + 5.0 * (day > 40) * (0.6 < hour < 0.85) * random.random()
        total = 1_352_804_107 / steps * growth * match * (0.5 + np.sin(np.pi * hour) ** 2)
        expected = total * popularity
        matrix[step] = np.maximum(expected + np.sqrt(expected) * random.normal(0, 1, columns), 0)
    return matrix
