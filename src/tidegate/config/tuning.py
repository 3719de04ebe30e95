"""Choosing most, clip, edges and level from data for a stated ε: a noisy histogram of units, and what follows."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.config.config import Config
from tidegate.config.queries import Queries
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.exact import ExactLike, show
from tidegate.ingest.columns import OTHER, Intervals
from tidegate.ingest.tuning import Trait, cells, traits
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.policy import User

FEWEST = 20  # units, in multiples of the noise: with fewer the histogram says nothing
SURE = 6  # from so many times the noise on, a cell is not empty


class Shape(NamedTuple):
    """What is looked at for one query.

    Attributes
    ----------
    config
        The query.
    section
        Where its keys are: ``query``, or ``[query] 2`` for the third ``[[query]]``.
    histograms
        The public ends of the cells of each of its histograms.
    clipped_by
        The query whose clip are its edges; None of any other.
    """

    config: Config
    section: str
    histograms: dict[str, tuple[float, ...]]
    clipped_by: str | None


@dataclass(frozen=True)
class Tuned:
    """What was chosen.

    Attributes
    ----------
    lines
        The keys of the configuration by section, as they are written; the section of the third ``[[query]]`` is
        ``[query] 2``.
    units
        About how many units there are, from the same noisy histogram.
    epsilon
        What it cost.
    """

    lines: dict[str, dict[str, str]]
    units: float
    epsilon: Fraction

    def text(self) -> str:
        """The lines as they are in a file."""
        sections = [
            "\n".join(
                [f"[{section.partition(' ')[0]}]", *(f"{name} = {value}" for name, value in keys.items())]
            )
            for section, keys in self.lines.items()
        ]
        return "\n\n".join(sections)

    def brief(self) -> str:
        """A line for each section."""
        found = []
        for section, keys in self.lines.items():
            own = dict(keys)
            title = own.pop("name", f"[{section}]").strip('"')
            found.append(f"{title}: " + ", ".join(f"{name} = {value}" for name, value in own.items()))
        return "\n".join(found)

    def written_into(self, text: str) -> str:
        """A configuration with these lines."""
        for section, keys in self.lines.items():
            for name, value in keys.items():
                text = set_key(text, section, name, value)
        return text


def tuning(columns: int, epsilon: ExactLike, parts: int, adjacency: str = "add-remove") -> Uniform:
    """The mechanism that measures the histogram: once, and a unit changes one cell of each part.

    Privacy
    -------
    Each unit, with ALL its records in the whole input, adds 1 to one cell of each of the `parts` histograms, so it
    changes the row by at most `parts` in sum; one step of Uniform at user level with a horizon of 1 loses ε by adding it
    or removing it; under "replace", as the stream's own policy may say, the noise is twice as large. The cells' ends
    are public. Everything that is chosen is computed from the released row.
    """
    policy = User(epsilon=epsilon, horizon=1, max_change=parts, touches=parts, adjacency=adjacency)
    return Uniform(policy, columns=columns, noise="laplace")


def shapes(queries: Queries, largest: float) -> list[Shape]:
    """The queries that can be tuned, and the histograms of each; one of which nothing can be tuned is refused.

    One that counts the values outside of another's clip has its edges from there, and is not looked at.
    """
    if any(part.edition for part in queries.parts):
        raise InvalidInput(
            "a step is released several times, in [editions]; drop that section, tune, and put it back."
        )
    location = queries.first.source.location
    if len(queries.parts) > 1 and (location == "-" or "://" in location):
        raise InvalidInput("each of several queries looks at the whole input; put it into a file.")
    found = []
    for place, part in enumerate(queries.parts):
        of = _clipped_by(part, queries.parts)
        section = f"[query] {place}" if queries.listed else "query"
        found.append(Shape(part, section, shape(part, largest) if of is None else {}, of))
    return found


def _clipped_by(config: Config, parts: Sequence[Config]) -> str | None:
    """The query whose clip are the edges of this one, which counts what is outside; None of any other."""
    columns = config.query.columns
    if not isinstance(columns, Intervals) or columns.outside != OTHER:
        return None
    edges = [Fraction(str(edge)) for edge in columns.edges]
    for part in parts:
        clip = part.query_keys.clip or ()
        if part.schema.value == config.schema.value and [Fraction(str(end)) for end in clip] == edges:
            return part.name
    return None


def shape(config: Config, largest: float) -> dict[str, tuple[float, ...]]:
    """The histograms of a query and the ends of their cells; one of which nothing can be tuned is refused."""
    if config.query.aggregate == "given":
        raise InvalidInput(
            "the input is already aggregated, so that no unit can be seen; there is nothing to tune."
        )
    if config.query.requirements is not None:
        raise InvalidInput(
            "units have requirements of their own, and tuning would cost each of them the same; choose the parameters "
            "from what is publicly known."
        )
    if config.query.over > 1:
        raise InvalidInput("units count over several steps, of which tune looks at one; write most yourself.")
    if config.query.learn is not None:
        raise InvalidParameter(
            "clip",
            "learn",
            "two bounds to be tuned: one that is learnt is paid for by the stream itself",
            'write clip = ["0", "100"], which tune replaces, or leave it as it is and do not tune',
        )
    return cells(config.schema, config.query, largest)


def cell_names(shapes: Sequence[Shape]) -> list[str]:
    """What the log of a tuning calls its cells, so that it answers for these statistics and no others."""
    return [name for each in shapes for name in _cell_names(each)]


def _cell_names(part: Shape) -> list[str]:
    config = part.config
    place = hashlib.sha256(config.source.location.encode()).hexdigest()[:8]  # an address may have a password
    of = f"{config.name}: " if part.section != "query" else ""
    counted = f"{of}{config.query.aggregate} by {config.schema.unit or 'record'} of {place}"
    return [f"{counted}: {name} to {end:.10g}" for name, ends in part.histograms.items() for end in ends]


def read_traits(config: Config, largest: float) -> list[Trait]:
    """What is looked at of each unit of a configuration's input."""
    with config.open(follow=False).source as source:
        return traits(source, config.schema, config.steps, config.query, largest)


def choose_all(
    shapes: Sequence[Shape], released: npt.NDArray[np.float64], noise: Uniform, keep: float
) -> Tuned:
    """Parameters of all queries from the released histograms alone, which stand one after the other."""
    lines: dict[str, dict[str, str]] = {}
    clips: dict[str, dict[str, str]] = {}
    error = float(noise.noise_error or 0.0)
    units, start = 0.0, 0
    for each in shapes:
        if each.clipped_by is None:
            count = sum(map(len, each.histograms.values()))
            row = released[start : start + count]
            found = choose(each.config, each.histograms, row, noise, keep)
            start, units = start + count, max(units, found.units)
            query = dict(found.lines["query"])
            if each.section == "query":
                lines |= {name: keys for name, keys in found.lines.items() if name != "about"}
            else:  # each query has a level of its own
                named = {"name": json.dumps(each.config.name)}
                lines[each.section] = {**named, **query, **found.lines.get("mechanism", {})}
            if "clip" in query:
                clips[each.config.name] = {"edges": query["clip"]}
                if "level" in lines[each.section]:
                    first = len(each.histograms["most"])  # the histogram before that of totals
                    totals = np.array(each.histograms["total"])
                    many = records(each.config, totals, row[first : first + len(totals)], error)
                    clips[each.config.name]["level"] = str(rough(many / 2))  # two columns
    for each in shapes:
        if each.clipped_by is not None:
            lines[each.section] = {"name": json.dumps(each.config.name), **clips[each.clipped_by]}
    levels = [keys for section, keys in lines.items() if section.startswith("[")]
    if not all("level" in keys for keys in levels):  # shares follow from levels of all queries, or of none
        for keys in levels:
            keys.pop("level", None)
    cost = Fraction(noise.policy.epsilon or 0)
    lines["about"] = {"chosen": f'"tuned with ε = {show(cost)}"'}
    return Tuned(lines, units, cost)


def choose(
    config: Config,
    histograms: Mapping[str, tuple[float, ...]],
    released: npt.NDArray[np.float64],
    noise: Uniform,
    keep: float,
) -> Tuned:
    """Parameters from the released histogram alone.

    Parameters
    ----------
    config
        The configuration, of which everything is public.
    histograms
        Their names, and the public ends of their cells.
    released
        The noisy cells of all histograms, one after the other.
    noise
        What they were released with.
    keep
        The part of units that no bound should cut.
    """
    noisy, start = {}, 0
    for name, ends in histograms.items():
        noisy[name] = np.array(ends), released[start : start + len(ends)]
        start += len(ends)
    units = float(np.mean([counts.sum() for _, counts in noisy.values()]))
    error = float(noise.noise_error or 0.0)
    if units < FEWEST * error:
        raise InvalidInput(
            f"there are too few units for ε = {show(Fraction(noise.policy.epsilon or 0))}: about {max(units, 0):.0f}, "
            f"and the noise is {error:.0f} a cell; nothing was written, and the budget of the tuning is spent: choose "
            "the bounds from what is publicly known."
        )
    query: dict[str, str] = {}
    lines: dict[str, dict[str, str]] = {"query": query}
    if config.schema.unit is not None:
        query["most"] = str(round(quantile(*noisy["most"], keep, error)))
    if "high" in noisy:
        low, high = (quantile(*noisy[name], keep, error) for name in ("low", "high"))
        query["clip"] = f'["{_exact(-low)}", "{_exact(high if high > -low else 1.0)}"]'
    if "edges" in noisy and isinstance(config.query.columns, Intervals):
        wanted = len(config.query.columns.edges) - 1
        query["edges"] = (
            "[" + ", ".join(f'"{_exact(edge)}"' for edge in _edges(*noisy["edges"], wanted)) + "]"
        )
    if (
        config.mechanism_keys.name == "auto"
        and config.steps.count is not None
        and config.query.aggregate != "mean"
    ):
        mean = records(config, *noisy["total"], error)
        if "high" in noisy:
            mean *= quantile(*noisy["high"], 0.5, error)
        lines["mechanism"] = {"level": str(rough(mean))}
    cost = Fraction(noise.policy.epsilon or 0)
    lines["about"] = {"chosen": f'"tuned with ε = {show(cost)}"'}
    return Tuned(lines, units, cost)


def records(
    config: Config, totals: npt.NDArray[np.float64], counts: npt.NDArray[np.float64], error: float
) -> float:
    """About how many records a column has in a step, from the histogram of how many a unit has in all."""
    sure = counts > SURE * error
    assert config.steps.count is not None
    return float(np.sum(0.75 * totals[sure] * counts[sure])) / (config.steps.count * config.query.width)


def quantile(
    ends: npt.NDArray[np.float64], counts: npt.NDArray[np.float64], keep: float, error: float = 0.0
) -> float:
    """The first end below which lies a part of the units; cells that noise alone could fill count nothing.

    Examples
    --------
    >>> quantile(np.array([1.0, 2.0, 5.0]), np.array([70.0, 27.0, 3.0]), 0.95)
    2.0
    """
    counted = np.where(counts > SURE * error, counts, 0.0)
    reached = np.cumsum(counted) >= keep * counted.sum()
    return float(ends[int(np.argmax(reached))])


def _edges(ends: npt.NDArray[np.float64], counts: npt.NDArray[np.float64], wanted: int) -> list[float]:
    """Edges between which lie about equally many units."""
    below = np.cumsum(np.maximum(counts, 0.0))
    places = np.searchsorted(below, np.linspace(0.02, 0.98, wanted + 1) * below[-1])
    found = sorted({float(ends[min(int(place), len(ends) - 1)]) for place in places})
    return found if len(found) > 1 else [found[0], float(ends[-1])]


def rough(level: float) -> int:
    """An order of magnitude, which is all that a plan needs: 1, 3, 10, 30 and so on.

    Examples
    --------
    >>> [rough(level) for level in (0.0, 1.2, 47.0, 870.0)]
    [1, 1, 30, 1000]
    """
    if level <= 1:
        return 1
    half = round(2 * float(np.log10(level)))
    return int(10 ** (half // 2) * (3 if half % 2 else 1))


def _exact(value: float) -> str:
    return f"{value + 0.0:.10g}"  # and no minus before a 0


def set_key(text: str, section: str, name: str, value: str) -> str:
    r"""A configuration in which one key has another value, or is there for the first time; all else stays as it was.

    Examples
    --------
    >>> print(set_key('[query]\nmost = 1  # first\n[sink]', "query", "most", "3"))
    [query]
    most = 3  # first
    [sink]
    """
    title, _, place = section.partition(" ")
    headers = list(re.finditer(rf"^{re.escape(f'[{title}]')}[^\n]*$", text, re.MULTILINE))
    header = headers[int(place or 0)] if len(headers) > int(place or 0) else None
    if header is None:
        return f"{text.rstrip()}\n\n[{section}]\n{name} = {value}\n"
    end = re.compile(r"^\[", re.MULTILINE).search(text, header.end())
    body = text[header.end() : end.start() if end else len(text)]
    line = re.compile(
        rf"^(\s*{name}\s*=\s*)(\[[^\]]*\]|\"[^\"\n]*\"|[^#\n]*?)(\s*(?:#[^\n]*)?)$", re.MULTILINE
    )
    if line.search(body):
        body = line.sub(lambda match: match[1] + value + match[3], body, count=1)
    else:
        body = f"\n{name} = {value}{body}"
    return text[: header.end()] + body + (text[end.start() :] if end else "")


def check_writable(shapes: Sequence[Shape]) -> None:
    """Refuse a configuration into which what may be chosen cannot be written, because a section is written otherwise."""
    config = shapes[0].config
    text = config.path.read_text(encoding="utf-8")
    wanted = [("about", "chosen")]
    for each in shapes:
        part, listed = each.config, each.section != "query"
        names = ["most"] if part.schema.unit is not None and each.histograms else []
        names += ["clip"] if "high" in each.histograms else []
        names += ["edges"] if "edges" in each.histograms or each.clipped_by is not None else []
        wanted += [(each.section, name) for name in names]
        if part.mechanism_keys.name == "auto":
            wanted.append((each.section if listed else "mechanism", "level"))
    for section, name in wanted:
        if not _settable(text, section, name):
            title = section.partition(" ")[0]
            raise InvalidParameter(
                "write",
                f"[{title}] {name}",
                f"a key of a section [{title}] in {config.path.name} with a line for each key",
                "write that section so, or leave --write out and put the lines there yourself",
            )
    if not os.access(config.path, os.W_OK):
        raise InvalidParameter(
            "write", str(config.path), "a file that may be written", "change its rights, or leave --write out"
        )


def _settable(text: str, section: str, name: str) -> bool:
    """Whether `set_key` changes this key and nothing else."""
    expected = tomllib.loads(text)
    if section.startswith("["):
        table = expected["query"][int(section.partition(" ")[2])]
    else:
        table = expected.setdefault(section, {})
    if not isinstance(table, dict):
        return False
    table[name] = "probe"
    try:
        return tomllib.loads(set_key(text, section, name, '"probe"')) == expected
    except tomllib.TOMLDecodeError:
        return False


def log_of(config: Config) -> Path:
    """Where the log of the tuning is kept, beside the configuration."""
    return config.path.with_suffix(".tuned.ledger")


def facts(tuned: Tuned) -> dict[str, Any]:
    """The choice as JSON."""
    return {"chosen": tuned.lines, "units": round(tuned.units), "epsilon": show(tuned.epsilon)}
