"""A filter at work: states, classes of columns, the history that hyper-parameters are estimated from, rings to smooth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tidegate.structures.kernels import state_space as k
from tidegate.structures.kernels import tracking as t
from tidegate.structures.kernels.replaying import replay
from tidegate.structures.kernels.searching import SEARCHED
from tidegate.structures.kernels.smoothing import Rings
from tidegate.structures.state_space_model import (
    DIFFUSE,
    EVIDENT,
    HIDDEN,
    Floats,
    Integers,
    Prior,
    Size,
    Structure,
    estimate,
    parameters_of,
    size_of,
)

State = dict[str, Any]
LINE = 8  # numbers in a cache line
SINGLE = 16  # up to so many columns each has hyper-parameters of its own
CLASSES = 8  # beyond, columns of similar size share them
HISTORY = 384  # measurements that estimates look back on, at most; two of the longest period
LONGEST_HISTORY = 768  # if they are more, up to this
HISTORY_CELLS = 1 << 20
ALL_COLUMNS = 1 << 14  # up to so many columns the history has all of them
SAMPLED = 256  # beyond, so many
UNLIKE = 0.3  # the variance of levels in a class, in squared means, where little is known of it
LEAST_SPREAD = 0.02  # and at least
FITTED = 8  # columns of a class that the likelihood looks at
RATIO = 4.0  # sizes of a class differ by no more
DISTINCT = 6.0  # noise deviations that a column's mean must have to stand out: Laplace tails are long
DOUBTED = 2.0  # standard errors of the spread of levels in a class that are not believed
# the next estimate has half as many measurements again, and from PLENTY on so many times as many, by whether the history
# has KNOWN of the longest period
PLENTY, RARER, KNOWN = 32, (2, 3), 0.5
ROUNDS = 1  # of each search
FORGOTTEN = np.array([0.5, 0.5, 0.25, 0.5, 1.0, 1.0])  # what an estimate leaves of the sums of `excess`
RARELY = 1 << 16  # measurements between two estimates, at most


def at_a_line(*shape: int) -> Floats:
    """Zeros that begin at a cache line: vectors that span two lines cost a sixth of the speed."""
    size = math.prod(shape)
    room = np.zeros(size + LINE)
    first = -room.ctypes.data // room.itemsize % LINE
    return room[first : first + size].reshape(shape)


class Tracker:
    """Follow the values behind noisy measurements. Everything it does is a function of those.

    Parameters
    ----------
    structure
        Public periods and harmonics.
    columns
        The number of columns.
    keep
        How many steps are kept for smoothing.
    laplace
        Whether the noise is Laplace, which tells more than Gaussian noise of the same variance.
    shares
        Whether many columns have something in common, which is followed as one more column, and a class by itself.
    """

    def __init__(
        self, structure: Structure, columns: int, keep: int = 0, laplace: bool = True, shares: bool = False
    ) -> None:
        self.structure, self.columns, self.keep = structure, columns, keep
        self.shares = shares and SINGLE < columns <= ALL_COLUMNS
        self.laplace = laplace and columns <= ALL_COLUMNS  # beyond, speed matters more
        self.classes = classes_of(columns, self.shares)
        self.followed = followed = columns + self.shares  # columns, and what they have in common
        states, classes, harmonics = structure.states, self.classes, len(structure.frequency)
        wide = columns > ALL_COLUMNS
        sampled = SAMPLED if wide else columns
        wanted = min(max(HISTORY, round(2 * max(structure.periods, default=0))), LONGEST_HISTORY)
        rows = min(wanted, max(64, HISTORY_CELLS // sampled))
        self.memory: State = {
            "state": at_a_line(followed, states),
            "covariance": at_a_line(classes, states, states),
            "parameters": np.zeros((classes, k.PARAMETERS)),
            "kind": np.arange(columns) if columns <= SINGLE else np.zeros(followed, dtype=np.int64),
            "phase": at_a_line(2 * harmonics),
            "clock": np.zeros(t.CLOCK, dtype=np.int64),
            "health": np.ones(t.HEALTH),
            "history_steps": np.zeros(rows, dtype=np.int64),
            "history_values": np.zeros((rows, sampled)),
            "history_noise": np.zeros(rows),
            "sampled": np.linspace(0, columns - 1, sampled).astype(np.int64),
            "kept_spread": np.zeros((keep, classes, states)),
            "kept_variance": np.zeros((keep, classes)),
            "kept_total": np.zeros((keep, classes)),
            "kept_innovation": np.zeros((keep, followed)),
            "kept_value": np.zeros((keep, followed)),
            "settled": np.zeros((keep // 2, classes)),
            "searched": np.zeros((classes, SEARCHED)),
            "excess": np.zeros((classes, t.EXCESS)),
            "load": np.ones(columns if self.shares else 0),
        }
        if self.shares:
            self.memory["kind"][columns] = classes - 1
            self.memory["health"][[t.USUAL, t.LOADS]] = 0.0, columns
        self.memory["clock"][t.NEXT_FIT] = 1
        self.memory["clock"][t.LAPLACE] = self.laplace
        # before anything is known the first measurement is taken as it is
        self.memory["parameters"][:] = parameters_of(np.zeros(SEARCHED), Prior(0.0, 1e30))
        for c in range(classes):
            k.begin(self.memory["parameters"][c], structure.weight, self.memory["covariance"][c])
        # of the values, as far as measurements showed at the last estimate
        self.size = Size(0.0, visible=False)
        self.room = t.Room(
            work=at_a_line(states),
            spread=at_a_line(classes, states),
            variance=np.zeros(classes),
            total=np.zeros(classes),
            made=at_a_line(classes, states),
            values=np.zeros(followed),
            before=np.zeros(followed),
            claimed=np.zeros(classes),
        )
        self.season = t.Season(structure.once, structure.weight)
        self.work_on(self.memory)

    def work_on(self, memory: State) -> None:
        """Change these arrays from now on; they are never replaced."""
        self.memory = memory
        self.book = t.Book(*[memory[name] for name in t.Book._fields])

    @property
    def rings(self) -> Rings:
        """What is kept of the last steps."""
        return Rings._make([self.memory[f"kept_{name}"] for name in Rings._fields])

    def restore(self, state: State) -> None:
        """Go on from a copy of `memory`."""
        for name, kept in self.memory.items():
            # earlier versions have fewer numbers of health, and know nothing of the excess
            kept[: len(state.get(name, ()))] = state.get(name, kept[:0])

    @property
    def count(self) -> int:
        """How many steps were measured."""
        return int(self.memory["clock"][t.COUNT])

    def refit(self) -> None:
        """Estimate hyper-parameters again, filter what the history has under them, and say when to do it again."""
        memory, clock = self.memory, self.memory["clock"]
        rows, count = int(clock[t.ROWS]), int(clock[t.COUNT])
        steps, noise = memory["history_steps"][:rows], memory["history_noise"][:rows]
        values, sampled = memory["history_values"][:rows], memory["sampled"]
        if count == 1 and self.columns > ALL_COLUMNS:
            self._choose_columns()
        known = int(steps[-1] - steps[0] >= KNOWN * max(self.structure.periods, default=0.0))
        single = self.columns <= SINGLE
        known_as, noise = noise, np.abs(noise)
        raw = values
        if self.shares:
            values = values - self._refit_common(steps, values, noise)
        sizes = [self._size(values, known_as, [c]) for c in range(self.columns)] if single else []
        priors = _priors(values, noise, sizes) if single else self._classify(values, noise)
        hidden = memory["parameters"][:, k.UNSEEN] > 0
        kind_of = memory["kind"][sampled]
        fitted = np.zeros(self.classes, dtype=np.bool_)
        fitted[self.classes - 1] = self.shares
        for c in range(self.classes - self.shares):
            members = np.flatnonzero(kind_of == c)
            if len(members):
                some = members[:: -(-len(members) // FITTED)]
                # what was believed while nothing was visible is no estimate
                begun = count > 1 and not hidden[c] and memory["searched"][c].any()
                start = memory["searched"][c] if begun else None
                own = np.ascontiguousarray(values[:, some])
                size = sizes[c] if single else self._size(raw, known_as, members)
                memory["searched"][c] = estimate(
                    self.structure, steps, own, known_as, self.laplace, priors[c], size, start, ROUNDS
                )
                fitted[c] = True
            memory["parameters"][c] = parameters_of(memory["searched"][c], priors[c])
            if self.shares and len(members):
                memory["parameters"][c, k.SQUARED_LOAD] = np.mean(memory["load"][members] ** 2)
        # a class without columns is like any other, and is not used
        for c in np.flatnonzero(~fitted).tolist():
            memory["parameters"][c] = memory["parameters"][np.flatnonzero(fitted)[0]]
        if (hidden > (memory["parameters"][:, k.UNSEEN] > 0)).any():
            memory["health"][t.MISFIT] = 1.0  # what did not fit was that nothing was expected
        if not clock[t.DROPPED]:
            self._replay(steps, raw, known_as)
        memory["settled"][:] = 0.0
        memory["excess"] *= FORGOTTEN  # it was that of other hyper-parameters
        self.size = sizes[0] if self.columns == 1 else size_of(raw, known_as, self.laplace)
        seen = count - int(clock[t.BLIND])  # measurements that could tell anything
        step = max(1, seen // 2) if seen < PLENTY else min((RARER[known] - 1) * seen, RARELY)
        if not self.size.visible:  # then there is nothing to search for, and news matters
            step = max(1, count // 16)
            clock[t.BLIND] = count if self.shares else 0
        clock[t.NEXT_FIT], clock[t.FITTED] = count + step, count
        levels, sure = memory["state"][:, 0], memory["covariance"][memory["kind"], 0, 0]
        squares = levels * levels + sure
        memory["health"][t.SIZE_FITTED] = float(np.mean(squares[: self.columns]))
        memory["health"][t.FITTED_TO] = squares[-1]

    def _refit_common(self, steps: Integers, values: Floats, noise: Floats) -> Floats:
        """What columns have in common: loads, hyper-parameters, and its part of each measurement."""
        memory, one = self.memory, self.classes - 1
        load, health, parameters = memory["load"], memory["health"], memory["parameters"][one]
        begins = not memory["clock"][t.DROPPED]  # else states cannot be filtered again with other loads
        if begins:
            load[:] = _loads(values, noise)
            health[t.LOADS] = load @ load
        sums, known_as = (
            np.ascontiguousarray((values @ load)[:, np.newaxis]) / health[t.LOADS],
            noise / health[t.LOADS],
        )
        size = size_of(sums, known_as, False)
        prior = _priors(sums, known_as, [size])[0]
        known = len(steps) > 1 and not parameters[k.UNSEEN] > 0 and memory["searched"][one].any()
        start = memory["searched"][one] if known else None
        if not known:  # what did not fit was that nothing was expected
            health[t.SURPRISED] = 1.0
        memory["searched"][one] = estimate(
            self.structure, steps, sums, known_as, False, prior, size, start, ROUNDS
        )
        parameters[:] = parameters_of(memory["searched"][one], prior)
        alone = Tracker(self.structure, 1)
        believed = np.empty_like(sums)
        replay(
            (steps, sums, known_as, False), parameters[np.newaxis], alone.memory["kind"], self.season[:], True,
            alone.memory["covariance"], alone.memory["state"], alone.rings[:],
            alone.memory["load"], health, believed,
        )  # fmt: skip
        if begins:
            health[t.USUAL] = np.average(believed[:, 0], weights=1.0 / noise)
        beyond: Floats = (believed - health[t.USUAL]) * load
        return beyond

    def _size(self, values: Floats, noise: Floats, members: Any) -> Size:
        return size_of(values[:, members], noise, self.laplace)

    def _replay(self, steps: Integers, values: Floats, noise: Floats) -> None:
        memory = self.memory
        if self.shares:
            sums = values @ memory["load"] / memory["health"][t.LOADS]
            values = np.concatenate([values, sums[:, np.newaxis]], axis=1)
        replay(
            (steps, values, noise, self.laplace),
            memory["parameters"],
            memory["kind"],
            self.season[:],
            len(memory["sampled"]) == self.columns,
            memory["covariance"],
            memory["state"],
            self.rings[:],
            memory["load"],
            memory["health"],
            np.empty((0, self.followed)),
        )

    def _choose_columns(self) -> None:
        """Let the history have large columns and small ones, by the first measurement."""
        memory = self.memory
        order = np.argsort(-np.abs(memory["state"][:, 0]), kind="stable")
        ranks = np.unique(np.geomspace(1, self.columns, 4 * SAMPLED).astype(np.int64))[:SAMPLED]
        rest = np.linspace(0, self.columns - 1, SAMPLED).astype(np.int64)
        chosen = np.unique(np.concatenate([ranks - 1, rest]))
        memory["sampled"][:] = np.sort(
            order[chosen[np.linspace(0, len(chosen) - 1, SAMPLED).astype(np.int64)]]
        )
        memory["history_values"][0] = memory["state"][:, 0][memory["sampled"]]

    def _classify(self, values: Floats, noise: Floats) -> list[Prior]:
        """Put columns of similar released size into classes, and say what is known of the level of each class."""
        memory, columns = self.memory, self.columns
        if len(memory["sampled"]) == columns:
            weights = 1.0 / noise
            levels = weights @ values / weights.sum()
            sure = 1.0 / float(weights.sum())
        else:
            levels = memory["state"][:, 0]
            sure = float(memory["covariance"][0, 0, 0])
        least = DISTINCT * np.sqrt(max(sure, 1e-300))
        over = np.log(np.maximum(np.abs(levels), 1e-300) / least) / np.log(RATIO)
        kind = np.clip(np.floor(over) + 1, 0, CLASSES - 1).astype(np.int64)
        memory["kind"][:columns] = kind
        priors = []
        for c in range(CLASSES):
            own = levels[kind == c]
            if len(own) < FITTED:
                priors.append(_wide_prior(float(own.mean()) if len(own) else 0.0, noise))
                continue
            mean = float(own.mean())
            if mean * mean < EVIDENT**2 * sure / len(own):
                mean = 0.0
            # squares of Laplace noise have the variance 5·sure²: what they may explain is not a difference of levels
            spread, unsure = float(own.var()) - sure, sure * float(np.sqrt(5.0 / len(own)))
            believed = max(spread - DOUBTED * unsure, 1e-3 * mean * mean, HIDDEN * sure / len(own))
            if mean:
                # columns that can be seen together are hardly alike: what is not known of their spread is that of others
                usual, chance = UNLIKE * mean * mean, 2 * float(own.var()) ** 2 / len(own) + unsure**2
                weight = usual**2 / (usual**2 + chance)
                believed = max(believed, weight * spread + (1 - weight) * usual, LEAST_SPREAD * mean * mean)
            priors.append(Prior(mean, believed, max(0.0, spread + unsure - believed)))
        return priors


def classes_of(columns: int, shares: bool) -> int:
    """How many classes columns have, and what they have in common is one more."""
    return columns if columns <= SINGLE else CLASSES + shares


def _loads(values: Floats, noise: Floats) -> Floats:
    """How much of what is common each column has: as its level, as far as that is known; 1 in the mean."""
    weights = 1.0 / noise
    levels, sure = weights @ values / weights.sum(), 1.0 / float(weights.sum())
    mean = float(levels.mean())
    if mean <= EVIDENT * math.sqrt(sure / len(levels)):
        return np.ones(len(levels))
    spread = max(0.0, float(levels.var()) - sure)
    load = np.maximum(0.0, 1.0 + spread / (spread + sure) * (levels / mean - 1.0))
    return np.asarray(load / load.mean())


def _priors(values: Floats, noise: Floats, sizes: list[Size]) -> list[Prior]:
    """What is known of the level of each column, where each is a class of its own."""
    weights = 1.0 / noise
    means = weights @ values / weights.sum()
    return [
        _wide_prior(float(mean), noise) if size.visible else Prior(0.0, size.square, size.unseen)
        for mean, size in zip(means, sizes, strict=True)
    ]


def _wide_prior(mean: float, noise: Floats) -> Prior:
    return Prior(mean, DIFFUSE * (mean * mean + float(noise.max())))
