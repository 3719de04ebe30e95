"""Which law of noise is best for so many measurements in a window, and what it costs in error.

Everything here depends on public parameters only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np

from tidegate.exact import whole
from tidegate.noise.shared.orders import widest

if TYPE_CHECKING:
    from tidegate.noise.shared.cube import Cube
    from tidegate.noise.shared.semiorder import Semiorder

LawName = Literal["laplace", "cube", "semiorder"]

LONGEST_GROUP = 64  # columns · steps of a group: up to here its radius is a sum of that many draws
MOST_GROUPS = 1 << 15
MOST_MEASUREMENTS = LONGEST_GROUP * (MOST_GROUPS - 1)
MOST_CLASSES = 16  # with more of them the cube is better

# (E K, E K(K + 1)) of `shares` for 1, 2, … columns and widths 1, 2, …: mean absolute value and variance of the
# semiorder law of scale 1. A test computes them anew.
SEMIORDER_MOMENTS: tuple[tuple[tuple[float, float], ...], ...] = (
    ((1.0, 2.0), (1.723607, 5.23607), (2.398205, 9.57488), (3.045922, 14.93119), (3.675915, 21.2538),
     (4.293108, 28.50798), (4.900524, 36.66841), (5.500174, 45.71567), (6.093477, 55.63431),
     (6.681472, 66.41168), (7.264949, 78.03718), (7.844523, 90.50177), (8.420683, 103.79763),
     (8.993825, 117.91788), (9.564275, 132.85645), (10.132304, 148.60789)),
    ((1.0, 2.0), (1.874147, 6.38752), (2.702857, 12.7487), (3.506234, 20.94334), (4.293016, 30.89372),
     (5.067917, 42.54923), (5.833802, 55.87368), (6.59256, 70.83963), (7.345507, 87.42533),
     (8.093601, 105.61301)),
    ((1.0, 2.0), (1.93011, 6.93217), (2.823371, 14.36291), (3.695178, 24.13849), (4.552708, 36.17433),
     (5.399919, 50.41545), (6.239248, 66.82257), (7.072315, 85.36584)),
    ((1.0, 2.0), (1.956452, 7.23412), (2.883597, 15.3044), (3.792748, 26.05885), (4.689643, 39.41301),
     (5.57756, 55.3117), (6.458559, 73.71541)),
    ((1.0, 2.0), (1.970719, 7.41999), (2.918007, 15.90652), (3.850104, 27.31497), (4.771594, 41.56378),
     (5.685204, 58.5993)),
    ((1.0, 2.0), (1.979213, 7.54318), (2.939472, 16.31763), (3.886784, 28.18796), (4.824835, 43.07659)),
    ((1.0, 2.0), (1.984629, 7.62943), (2.953724, 16.61234), (3.911683, 28.82287), (4.86149, 44.18777)),
    ((1.0, 2.0), (1.988268, 7.69241), (2.963641, 16.83173), (3.929355, 29.30123), (4.887839, 45.03192)),
)  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """A law of noise for k measurements in any window, in units of Δ/ε.

    Attributes
    ----------
    law
        "laplace", "cube" or "semiorder".
    share
        The budget of a window is divided by this: measurements (Laplace), groups that a window can meet (cube)
        or classes (semiorder). The scale of the law is share · Δ/ε.
    variance, expected_absolute
        Of one value, in (Δ/ε)² and Δ/ε; of a fine grid.
    lengths
        The groups of a cube, a pattern that repeats.
    width
        Of a semiorder: measurements of one class in a window.
    columns
        Columns that share one budget.
    """

    law: LawName
    share: int
    variance: float
    expected_absolute: float
    lengths: tuple[int, ...] = ()
    width: int = 0
    columns: int = 1

    def scale(self, sensitivity: Fraction, epsilon: Fraction) -> Fraction:
        """The scale of the law for a change of at most `sensitivity` (in grid units) at a step."""
        return self.share * sensitivity / epsilon

    def cube(self, sensitivity: Fraction, epsilon: Fraction, copies: int = 1) -> Cube:
        """The law to draw from, where it is a cube."""
        from tidegate.noise.shared.cube import Cube

        return Cube(self.scale(sensitivity, epsilon), self.lengths, self.columns, copies)

    def semiorder(self, sensitivity: Fraction, epsilon: Fraction, copies: int = 1) -> Semiorder:
        """The law to draw from, where it is a semiorder."""
        from tidegate.noise.shared.semiorder import Semiorder

        return Semiorder(self.scale(sensitivity, epsilon), self.width, self.columns, copies, self.share)


def group_lengths(measurements: int, groups: int) -> tuple[int, ...]:
    """Lengths such that any `measurements` consecutive measurements meet at most `groups` groups.

    To meet one more they would have to contain groups − 1 whole groups and a measurement on either side, so any
    groups − 1 consecutive ones must have at least measurements − 1. A pattern that repeats after groups − 1
    groups has that wherever one looks, as soon as it has it once.

    Examples
    --------
    >>> group_lengths(48, 7), group_lengths(4, 2), group_lengths(5, 5)
    ((8, 8, 8, 8, 8, 7), (3,), (1, 1, 1, 1))
    """
    whole("measurements", measurements)
    if measurements == 1:
        return (1,)
    whole("groups", groups, 2, measurements)
    least, longer = divmod(measurements - 1, groups - 1)
    return (least + 1,) * longer + (least,) * (groups - 1 - longer)


def laplace_choice(measurements: int, columns: int = 1) -> Choice:
    """Independent noise."""
    return Choice("laplace", measurements, 2.0 * measurements**2, float(measurements), columns=columns)


def cube_choice(lengths: tuple[int, ...], groups: int, columns: int = 1) -> Choice:
    """The cube on groups of these lengths, of which a window meets at most `groups`."""
    d = columns
    variance = absolute = 0.0
    for length, count in Counter(lengths).items():
        n = d * length
        variance += count * length * 2 * (n + 1) * (n + 2) / ((d + 1) * (d + 2))
        absolute += count * length * (n + 1) / (d + 1)
    total = sum(lengths)
    return Choice(
        "cube", groups, variance / total * groups**2, absolute / total * groups, lengths, columns=columns
    )


def semiorder_choice(measurements: int, classes: int, columns: int = 1) -> Choice:
    """Interleaved semiorders, each with its part of the budget."""
    width = -(-measurements // classes)
    absolute, variance = SEMIORDER_MOMENTS[columns - 1][width - 1]
    return Choice(
        "semiorder", classes, variance * classes**2, absolute * classes, width=width, columns=columns
    )


def best_groups(measurements: int, columns: int = 1) -> int:
    """The number of groups with which the cube has the least variance; 0 where no cube is drawn.

    Longer groups than `LONGEST_GROUP` would gain less than a hundredth, and their radii take long to draw.
    """
    d = columns
    if not 2 < measurements <= MOST_MEASUREMENTS or d > LONGEST_GROUP:
        return 0
    groups = np.arange(2, min(measurements, MOST_GROUPS))
    least, longer = np.divmod(measurements - 1, groups - 1)
    longest = least + (longer > 0)
    variance = np.zeros(groups.size)
    for length, count in ((least + 1, longer), (least, groups - 1 - longer)):
        variance += count * length * (d * length + 1.0) * (d * length + 2.0)
    variance *= np.where(d * longest <= LONGEST_GROUP, groups.astype(np.float64) ** 2, np.inf)
    best = int(np.argmin(variance))
    return int(groups[best]) if np.isfinite(variance[best]) else 0


def choices(measurements: int, columns: int = 1, sliding: bool = True) -> Iterator[Choice]:
    """The best of each kind of sound law: Laplace first, then the cube, then semiorders if `sliding`."""
    yield laplace_choice(measurements, columns)
    groups = best_groups(measurements, columns)
    if groups:
        yield cube_choice(group_lengths(measurements, groups), groups, columns)
    most = widest(columns)
    if sliding and most and 1 < measurements <= MOST_CLASSES * most:
        fewest = -(-measurements // most)
        # More classes than that leave widths in which Laplace noise is as good.
        for classes in range(fewest, min(4 * fewest + 4, measurements)):
            yield semiorder_choice(measurements, classes, columns)


def best_choice(measurements: int, columns: int = 1, *, fixed: bool = False, sliding: bool = True) -> Choice:
    """The sound law with the least variance, of those whose mean absolute value is not above Laplace's.

    Parameters
    ----------
    measurements
        How many steps of any window are measured.
    columns
        Columns of a step; a unit may be in any of them.
    fixed
        Whether a unit stays in one column: then every column has its own noise at the full budget (`copies`).
    sliding
        Whether the measurements go on for good at this rate, which the semiorder needs: it leaves no budget for
        anything else, and a change of rate needs a window of silence.

    Examples
    --------
    >>> [(k, c.law, c.share, round(c.variance, 1)) for k in (1, 4, 16, 48, 240) for c in [best_choice(k)]]
    [(1, 'laplace', 1, 2.0), (4, 'semiorder', 1, 14.9), (16, 'semiorder', 1, 148.6), (48, 'semiorder', 3, 1337.5),
     (240, 'cube', 13, 25837.9)]
    >>> best_choice(48, sliding=False).lengths
    (8, 8, 8, 8, 8, 7)
    """
    whole("measurements", measurements)
    whole("columns", columns)
    found = list(choices(measurements, 1 if fixed else columns, sliding))
    better = [choice for choice in found if choice.expected_absolute <= found[0].expected_absolute]
    return min(better, key=lambda choice: choice.variance)


def horizon_choice(steps: int, columns: int = 1) -> Choice:
    """One group for a whole run of so many steps, where a unit's data of the run are protected as a whole.

    Examples
    --------
    >>> horizon_choice(1000).expected_absolute, laplace_choice(1000).expected_absolute
    (500.5, 1000.0)
    """
    return cube_choice((whole("steps", steps),), 1, columns)
