"""What an event may look at: every visible number of a transcript, differences, repetitions and low bits, in bins.

A transcript is a row of floats. Each feature maps it to a small whole number (a bin); the classifier of
`events` weighs the bins. Everything is fitted on training transcripts and is then a fixed public function, so
that fresh transcripts of it are independent coins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.audit import directions
from tidegate.audit.directions import Direction

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.uint8]

MOST_BINS = 64
MOST_FEATURES, FEW_FEATURES = 48, 12
FEW_VALUES = 16
COARSE = 12  # bins with which features are chosen
SEEN = 2.5  # so far apart must two samples be, in χ² by degrees of freedom, where there are enough features without
CROSSED = 16  # bins of a direction, and patterns, that are looked at together
NOT_A_NUMBER = -1.2345e300  # a bin of its own
LARGEST = 1.0e300

CANDIDATES = 600  # features that are looked at before the best are chosen
LOOKED = 6000  # transcripts with which they are chosen
TIED = 16  # pairs of numbers whose noise seems to be the same, or mirrored
PAIRED = 22  # numbers of which any two are looked at together
CONJUNCTIONS = 6  # pairs of numbers that are kept
TOGETHER = 3.0  # so many standard deviations must they tell more together than each for itself
NORMS = 4  # of noise that steps share
RESIDUES = 12  # of a number of grid units: noise that leaves residues alone shows them
GRIDS = (1.0, 2.0, 4.0, 8.0, 10.0, 16.0, 100.0)

Difference = tuple[int, int]  # (column, minus column; −1: nothing is subtracted; −2 − c: column c is added)


@dataclass(frozen=True)
class Conjunction:
    """Two numbers of a transcript, in bins of both together."""

    one: Difference
    other: Difference
    one_edges: Floats
    other_edges: Floats

    def __call__(self, clean: Floats) -> npt.NDArray[np.int64]:
        """The bin of each transcript."""
        one = np.searchsorted(self.one_edges, _difference(clean, *self.one), side="right")
        other = np.searchsorted(self.other_edges, _difference(clean, *self.other), side="right")
        return np.asarray(one * (len(self.other_edges) + 1) + other)

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        edges = {"one_edges": self.one_edges.tolist(), "other_edges": self.other_edges.tolist()}
        return {"one": list(self.one), "other": list(self.other), **edges}

    @classmethod
    def read(cls, described: dict[str, Any]) -> Conjunction:
        """What `describe` wrote."""
        one, other = ((int(described[name][0]), int(described[name][1])) for name in ("one", "other"))
        return cls(one, other, np.array(described["one_edges"]), np.array(described["other_edges"]))


@dataclass(frozen=True)
class Features:
    """Fitted features of transcripts.

    Attributes
    ----------
    differences
        For each numeric feature the column, and the column that is subtracted (−1: none; −2 − c: c is added).
    edges
        For each of them the edges of its bins.
    low_bits
        Columns of which the exponent of the lowest bit is looked at: the trace of noise in floating point.
    patterns
        Pairs of columns whose equality is looked at, all together: which releases repeat an earlier one.
    whole
        The commonest transcripts, each a bin of its own; empty where hardly any transcript occurs twice.
    common_patterns
        The commonest patterns of repetition.
    directions, direction_edges
        Numbers that look at the whole transcript, and the edges of their bins.
    crossed
        Edges of the bins of the first direction, each of which is looked at together with the pattern.
    residues
        Columns whose number of grid units is looked at modulo RESIDUES, and how many of these make 1.
    conjunctions
        Pairs of numbers that tell something only together, such as a decision and what was known before it.
    """

    differences: tuple[Difference, ...]
    edges: tuple[Floats, ...]
    low_bits: tuple[int, ...]
    patterns: tuple[Difference, ...]
    whole: Floats
    common_patterns: npt.NDArray[np.int64]
    directions: tuple[Direction, ...] = ()
    direction_edges: tuple[Floats, ...] = ()
    crossed: Floats = field(default_factory=lambda: np.zeros(0))
    residues: tuple[tuple[int, float], ...] = ()
    conjunctions: tuple[Conjunction, ...] = ()

    @property
    def count(self) -> int:
        """How many features there are."""
        return (
            len(self.directions)
            + (len(self.crossed) > 0)
            + len(self.differences)
            + len(self.low_bits)
            + len(self.residues)
            + len(self.conjunctions)
            + (len(self.common_patterns) > 0)
            + (len(self.whole) > 0)
        )

    @property
    def places_of_directions(self) -> range:
        """Which of the features are directions by themselves."""
        first = int(len(self.crossed) > 0)
        return range(first, first + len(self.directions))

    def codes(self, transcripts: Floats) -> Codes:
        """The bins of each transcript, features × transcripts."""
        clean = cleaned(transcripts)
        out = np.empty((self.count, len(clean)), dtype=np.uint8)
        for at, codes in enumerate(self._each(clean)):
            out[at] = codes
        return out

    def _each(self, clean: Floats) -> Iterator[npt.NDArray[Any]]:
        scored = [direction(clean) for direction in self.directions]
        if len(self.crossed):
            repeats = self._place_of(_pattern(clean, self.patterns))
            bins = np.searchsorted(self.crossed, scored[0], side="right")
            yield np.minimum(repeats, CROSSED - 1) * CROSSED + bins
        for score, edges in zip(scored, self.direction_edges, strict=True):
            yield np.searchsorted(edges, score, side="right")
        for (column, minus), edges in zip(self.differences, self.edges, strict=True):
            yield np.searchsorted(edges, _difference(clean, column, minus), side="right")
        for column in self.low_bits:
            yield lowest_bit(clean[:, column])
        for column, per_unit in self.residues:
            yield _residue(clean[:, column], per_unit)
        for conjunction in self.conjunctions:
            yield conjunction(clean)
        if len(self.common_patterns):
            yield self._place_of(_pattern(clean, self.patterns))
        if len(self.whole):
            keys, sought = _keys(self.whole), _keys(clean)
            order = np.argsort(keys)
            at = np.minimum(np.searchsorted(keys[order], sought), len(keys) - 1)
            yield np.where(keys[order][at] == sought, order[at] + 1, 0)

    def _place_of(self, patterns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The place of each pattern among the common ones, from 1, commonest first; 0 for all others."""
        order = np.argsort(self.common_patterns)
        ranked = self.common_patterns[order]
        at = np.minimum(np.searchsorted(ranked, patterns), len(ranked) - 1)
        return np.where(ranked[at] == patterns, order[at] + 1, 0)

    @property
    def names(self) -> list[str]:
        """What each feature looks at, in the order of its codes; numbers of a transcript are counted from 1."""
        names = ["repetitions and likelihood together"] if len(self.crossed) else []
        names += [direction.name for direction in self.directions]
        names += [_words(pair) for pair in self.differences]
        names += [f"lowest bit of number {column + 1}" for column in self.low_bits]
        names += [f"number {column + 1} modulo {RESIDUES} grid units" for column, _ in self.residues]
        names += [f"{_words(each.one)} together with {_words(each.other)}" for each in self.conjunctions]
        names += ["which numbers repeat an earlier one"] if len(self.common_patterns) else []
        return names + (["the whole transcript"] if len(self.whole) else [])

    def describe(self) -> dict[str, Any]:
        """As JSON; floats are written exactly."""
        return {
            "differences": [list(pair) for pair in self.differences],
            "edges": [edges.tolist() for edges in self.edges],
            "low_bits": list(self.low_bits),
            "patterns": [list(pair) for pair in self.patterns],
            "whole": self.whole.tolist(),
            "common_patterns": self.common_patterns.tolist(),
            "directions": [direction.describe() for direction in self.directions],
            "direction_edges": [edges.tolist() for edges in self.direction_edges],
            "crossed": self.crossed.tolist(),
            "residues": [list(each) for each in self.residues],
            "conjunctions": [each.describe() for each in self.conjunctions],
        }

    @classmethod
    def read(cls, described: dict[str, Any], width: int) -> Features:
        """What `describe` wrote."""
        return cls(
            tuple((int(a), int(b)) for a, b in described["differences"]),
            tuple(np.array(edges, dtype=np.float64) for edges in described["edges"]),
            tuple(described["low_bits"]),
            tuple((int(a), int(b)) for a, b in described["patterns"]),
            np.array(described["whole"], dtype=np.float64).reshape(-1, width),
            np.array(described["common_patterns"], dtype=np.int64),
            tuple(directions.read(each) for each in described["directions"]),
            tuple(np.array(edges, dtype=np.float64) for edges in described["direction_edges"]),
            np.array(described["crossed"], dtype=np.float64),
            tuple((int(column), float(per_unit)) for column, per_unit in described["residues"]),
            tuple(Conjunction.read(each) for each in described.get("conjunctions", ())),
        )


def fit(first: Floats, second: Floats, width: int, shown: int = 0, steps: int = 0) -> Features:
    """Choose features from training transcripts of both neighbours.

    Parameters
    ----------
    first, second
        The transcripts.
    width
        So many numbers belong to one step.
    shown
        How many of them, from the first, are values whose noise scale is the step's last number; 0: no scales.
    steps
        How many steps a transcript begins with, where other numbers follow them; 0: nothing follows.
    """
    one, other = cleaned(first), cleaned(second)
    clean = np.concatenate([one, other])
    columns = clean.shape[1]
    bins = int(np.clip(np.sqrt(len(clean)) / 6, 8, MOST_BINS))
    scores = [directions.laplace(one, other, width, shown, steps)] if shown else []
    plain: list[Difference] = [(column, -1) for column in range(columns)]
    end = steps * width or columns
    values = [column for column in range(columns) if not shown or column % width < shown or column >= end]
    few = (one[:LOOKED], other[:LOOKED])
    shared = _norms(*few, width, shown or width, end)
    found = tuple(each for each in [*scores, directions.line(one, other), *shared] if each is not None)
    scored = [direction(clean) for direction in found]
    follows = [(column, column - width) for column in values if width <= column < end]  # no marks are values
    follows += [(column, column - shown) for column in range(end + shown, columns)]
    tied = list(dict.fromkeys([*_tied(one, other, values), *_tied(one, other, list(range(columns)))]))
    more = [*plain, *tied, *follows]
    if len(values) <= 10:  # few enough to look at all of them
        more += [(a, b) for a in values for b in values if b < a]
        more += [(a, -2 - b) for a in values for b in values if b < a]
    wanted = _best(*few, list(dict.fromkeys(more))[:CANDIDATES])
    wanted += [pair for pair in _few_valued(few[0], plain) if pair not in wanted]
    edges = [_edges(_difference(clean, *pair), bins) for pair in wanted]
    kept = [at for at, edge in enumerate(edges) if len(edge)]
    fractional = [column for column in range(columns) if _has_fractions(clean[:, column])]
    patterns = tuple(follows[:60])
    common = _common(_pattern(clean, patterns)) if patterns else np.zeros(0, dtype=np.int64)
    return Features(
        tuple(wanted[at] for at in kept),
        tuple(edges[at] for at in kept),
        tuple(fractional[:16]),
        patterns,
        _common_rows(clean),
        common,
        found,
        tuple(_edges(score, max(bins, 24)) for score in scored),
        _few_edges(scored[0]) if found and len(common) else np.zeros(0),
        tuple(_residues(*few, values[:16])),
        tuple(_conjunctions(*few, [*wanted, *plain], clean)),
    )


def _norms(first: Floats, second: Floats, width: int, values: int, end: int) -> list[directions.Norm]:
    """The norms that tell both sides apart most."""
    rows = [tuple(range(start, start + values)) for start in range(0, end - width + 1, width)]
    found = directions.norms(first, second, rows) if rows and values else []
    gains = [_gain(each(first), each(second)) for each in found]
    order = sorted(range(len(found)), key=lambda at: -gains[at])
    return [found[at] for at in order[:NORMS] if gains[at] > SEEN]


def _words(pair: Difference) -> str:
    column, minus = pair
    sign = "" if minus == -1 else f" − number {minus + 1}" if minus >= 0 else f" + number {-1 - minus}"
    return f"number {column + 1}{sign}"


def _conjunctions(
    first: Floats, second: Floats, candidates: list[Difference], clean: Floats
) -> Iterator[Conjunction]:
    """Pairs of numbers whose bins tell both sides apart together, much more than each of them does for itself."""
    kept: dict[Difference, tuple[npt.NDArray[np.int64], int, float]] = {}
    for pair in candidates:
        both = np.concatenate([_difference(first, *pair), _difference(second, *pair)])
        edges = _edges(both, COARSE)
        if len(edges) and pair not in kept:
            codes = np.searchsorted(edges, both, side="right")
            kept[pair] = codes, len(edges), _apart(codes, len(first), 1)
    best = sorted(kept, key=lambda pair: -kept[pair][2] / kept[pair][1])[: PAIRED // 2]
    chosen = list(dict.fromkeys([*best, *[pair for pair in kept if pair[1] == -1]]))[:PAIRED]
    found: list[tuple[float, Difference, Difference]] = []
    for one, other in combinations(chosen, 2):
        (a, freedom_a, alone_a), (b, freedom_b, alone_b) = kept[one], kept[other]
        together = _apart(a * (freedom_b + 1) + b, len(first), 1, (freedom_a + 1) * (freedom_b + 1))
        freedom = freedom_a * freedom_b
        more = (together - alone_a - alone_b - freedom) / np.sqrt(2.0 * freedom)
        if more > TOGETHER:
            found.append((more, one, other))
    found.sort(key=lambda entry: -entry[0])
    for _, one, other in found[:CONJUNCTIONS]:
        yield _conjunction(one, other, clean)


def _conjunction(one: Difference, other: Difference, clean: Floats) -> Conjunction:
    """As many bins as transcripts fill: a number that has few values leaves more for the other."""
    most = int(np.clip(len(clean) // 20, 16, 255))
    side = int(np.sqrt(most))
    values = _difference(clean, *one), _difference(clean, *other)
    edges = [_edges(each, side)[: side - 1] for each in values]
    for at in (0, 1):
        edges[at] = _edges(values[at], most // (len(edges[1 - at]) + 1))[
            : most // (len(edges[1 - at]) + 1) - 1
        ]
    return Conjunction(one, other, edges[0], edges[1])


def _best(first: Floats, second: Floats, wanted: list[Difference]) -> list[Difference]:
    """The numbers that tell both sides apart by themselves, at most MOST_FEATURES and at least a few; in their order."""
    if len(wanted) <= FEW_FEATURES:
        return wanted
    gains = [_gain(_difference(first, *pair), _difference(second, *pair)) for pair in wanted]
    order = sorted(range(len(wanted)), key=lambda at: -gains[at])[:MOST_FEATURES]
    return [
        wanted[at]
        for at in sorted(order[:FEW_FEATURES] + [at for at in order[FEW_FEATURES:] if gains[at] > SEEN])
    ]


def _few_valued(drawn: Floats, plain: list[Difference]) -> list[Difference]:
    """Numbers with few values, such as decisions and scales: what the others mean may depend on them."""
    counts = [len(np.unique(drawn[:1000, column])) for column, _ in plain]
    varied = [at for at in range(len(plain)) if 1 < counts[at] <= FEW_VALUES]
    return [plain[at] for at in varied[:FEW_FEATURES]]


def _gain(one: Floats, other: Floats) -> float:
    """How far two samples of a number are apart: χ² of their bins by its degrees of freedom, about 1 if not at all."""
    both = np.concatenate([one, other])
    edges = _edges(both, COARSE)
    return _apart(np.searchsorted(edges, both, side="right"), len(one), len(edges))


def _apart(codes: npt.NDArray[np.int64], first: int, freedom: int, bins: int = 0) -> float:
    bins = bins or int(codes.max(initial=0)) + 1
    a, b = (np.bincount(side, minlength=bins) for side in (codes[:first], codes[first:]))
    return float(np.sum((a - b) ** 2 / np.maximum(a + b, 1))) / max(freedom, 1)


def _tied(first: Floats, second: Floats, values: list[int]) -> list[Difference]:
    """Pairs of numbers, of whatever steps and columns, whose noise moves together or against each other most."""
    if not 2 <= len(values) <= 200:
        return []
    found: dict[Difference, float] = {}
    for side in (first[:LOOKED], second[:LOOKED]):
        chosen = np.clip(side[:, values], -1e12, 1e12)
        spread = chosen.std(axis=0)
        unit = np.where(spread > 1e-9, spread, 1.0)
        tie = (chosen - chosen.mean(axis=0)).T @ (chosen - chosen.mean(axis=0)) / len(chosen)
        tie = np.triu(tie / np.outer(unit, unit), 1)
        for at in np.argsort(-np.abs(tie), axis=None)[:TIED]:
            b, a = divmod(int(at), len(values))
            strength = float(tie[b, a])
            if abs(strength) > 0.2:
                pair = (values[a], values[b] if strength > 0 else -2 - values[b])
                found[pair] = max(found.get(pair, 0.0), abs(strength))
    return sorted(found, key=lambda pair: -found[pair])[:TIED]


def _residues(first: Floats, second: Floats, columns: list[int]) -> Iterator[tuple[int, float]]:
    """Columns whose residues differ between both sides, and how many grid units make 1 in them."""
    for column in columns:
        both = np.concatenate([first[:, column], second[:, column]])
        head = both[:500][np.abs(both[:500]) < 1e12]
        whole = [each for each in GRIDS if np.array_equal(head * each, np.rint(head * each))]
        if whole and _apart(_residue(both, whole[0]), len(first), RESIDUES - 1) > 2 * SEEN:
            yield column, whole[0]


def _residue(values: Floats, per_unit: float) -> npt.NDArray[np.int64]:
    near = np.clip(values, -1e12, 1e12) * per_unit
    return np.rint(near).astype(np.int64) % RESIDUES


def cleaned(transcripts: Floats) -> Floats:
    """Transcripts without NaN and infinities, which become numbers that no release has."""
    array = np.asarray(transcripts, dtype=np.float64)
    if np.isfinite(array).all():
        return array
    return np.nan_to_num(array, nan=NOT_A_NUMBER, posinf=LARGEST, neginf=-LARGEST)


def lowest_bit(values: Floats) -> npt.NDArray[np.int64]:
    """The exponent of a number's lowest bit, between −64 and 10, as a bin; 0 for zero."""
    mantissa, exponent = np.frexp(values)
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    trailing = whole & -whole
    bit = np.frexp(trailing.astype(np.float64))[1] - 1 + exponent - 53
    return np.where(whole == 0, 0, np.clip(bit, -64, 10) + 65)


def _difference(clean: Floats, column: int, minus: int) -> Floats:
    if minus < -1:
        return np.asarray(clean[:, column] + clean[:, -2 - minus])
    return clean[:, column] if minus < 0 else clean[:, column] - clean[:, minus]


def _edges(values: Floats, bins: int) -> Floats:
    """Edges at quantiles; a value that fills a bin by itself gets both of its edges, so that it is an atom."""
    distinct = np.unique(values[:4096])
    if len(distinct) > bins:
        marks = np.quantile(values, np.arange(1, bins) / bins, method="nearest")
        found, times = np.unique(marks, return_counts=True)
        atoms = found[times > 1]
        edges = np.unique(np.concatenate([found, np.nextafter(atoms, np.inf)]))
    else:
        edges = distinct[1:]
    return edges[:254]


def _few_edges(values: Floats) -> Floats:
    """Fewer than CROSSED edges, closer together in the tails, where chances differ most."""
    marks = np.array([0.01, 0.03, 0.06, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.94, 0.97, 0.99])
    return np.unique(np.quantile(values, marks, method="nearest"))


def _has_fractions(values: Floats) -> bool:
    head = values[:2000]
    return bool(np.any(head != np.rint(head)) and np.mean(head * 1024 != np.rint(head * 1024)) > 0.05)


def _pattern(clean: Floats, pairs: tuple[Difference, ...]) -> npt.NDArray[np.int64]:
    found = np.zeros(len(clean), dtype=np.int64)
    for at, (column, before) in enumerate(pairs):
        found |= (clean[:, column] == clean[:, before]).astype(np.int64) << at
    return found


def _common(patterns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    values, counts = np.unique(patterns, return_counts=True)
    chosen = values[np.argsort(counts)[::-1][:200]]
    return chosen if len(values) > 1 else np.zeros(0, dtype=np.int64)


def _keys(rows: Floats) -> npt.NDArray[np.uint64]:
    """A hash of each row; two transcripts that share it are one event, which is fine for an event."""
    key = np.full(len(rows), 0x9E3779B97F4A7C15, dtype=np.uint64)
    for column in (rows + 0.0).T:  # + 0.0 makes minus zero plus zero
        key ^= np.ascontiguousarray(column).view(np.uint64)
        key *= np.uint64(0xBF58476D1CE4E5B9)
        key ^= key >> np.uint64(31)
    return key


def _common_rows(clean: Floats) -> Floats:
    """The commonest transcripts, where common ones make up most of all."""
    keys = _keys(clean)
    values, first, counts = np.unique(keys, return_index=True, return_counts=True)
    top = np.argsort(counts)[::-1][:250]
    if counts[top].sum() < len(clean) // 3 or len(values) < 2:
        return np.zeros((0, clean.shape[1]))
    return clean[first[top]]
