"""Choosing most, clip, edges and level from data for a stated ε: a noisy histogram of units, and what follows."""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.config.config import Config
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.exact import ExactLike, show
from tidegate.ingest.columns import Intervals
from tidegate.ingest.tuning import Trait, cells, traits
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.policy import User

FEWEST = 20  # units, in multiples of the noise: with fewer the histogram says nothing
SURE = 6  # from so many times the noise on, a cell is not empty


@dataclass(frozen=True)
class Tuned:
    """What was chosen.

    Attributes
    ----------
    lines
        The keys of the configuration by section, as they are written.
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
            "\n".join([f"[{section}]", *(f"{name} = {value}" for name, value in keys.items())])
            for section, keys in self.lines.items()
        ]
        return "\n\n".join(sections)

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


def shape(config: Config, largest: float) -> dict[str, tuple[float, ...]]:
    """The histograms of a tuning and the ends of their cells; a query of which nothing can be tuned is refused."""
    if config.query.aggregate == "given":
        raise InvalidInput(
            "the input is already aggregated, so that no unit can be seen; there is nothing to tune."
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


def cell_names(config: Config, histograms: Mapping[str, tuple[float, ...]]) -> list[str]:
    """What the log of a tuning calls its cells, so that it answers for this statistic and no other."""
    place = hashlib.sha256(config.source.location.encode()).hexdigest()[:8]  # an address may have a password
    counted = f"{config.query.aggregate} by {config.schema.unit or 'record'} of {place}"
    return [f"{counted}: {name} to {end:.10g}" for name, ends in histograms.items() for end in ends]


def read_traits(config: Config, largest: float) -> list[Trait]:
    """What is looked at of each unit of a configuration's input."""
    with config.open(follow=False).source as source:
        return traits(source, config.schema, config.steps, config.query, largest)


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
        totals, counts = noisy["total"]
        sure = counts > SURE * error
        mean = float(np.sum(0.75 * totals[sure] * counts[sure])) / (config.steps.count * config.query.width)
        if "high" in noisy:
            mean *= quantile(*noisy["high"], 0.5, error)
        lines["mechanism"] = {"level": str(rough(mean))}
    cost = Fraction(noise.policy.epsilon or 0)
    lines["about"] = {"chosen": f'"tuned with ε = {show(cost)}"'}
    return Tuned(lines, units, cost)


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
    header = re.search(rf"^\[{section}\][^\n]*$", text, re.MULTILINE)
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


def check_writable(config: Config, histograms: Mapping[str, tuple[float, ...]]) -> None:
    """Refuse a configuration into which what may be chosen cannot be written, because a section is written otherwise."""
    text = config.path.read_text(encoding="utf-8")
    wanted = [("query", "most")] if config.schema.unit is not None else []
    wanted += [("query", "clip")] if "high" in histograms else []
    wanted += [("query", "edges")] if "edges" in histograms else []
    wanted += [("mechanism", "level")] if config.mechanism_keys.name == "auto" else []
    for section, name in (*wanted, ("about", "chosen")):
        if not _settable(text, section, name):
            raise InvalidParameter(
                "write",
                f"[{section}] {name}",
                f"a key of a section [{section}] in {config.path.name} with a line for each key",
                "write that section so, or leave --write out and put the lines there yourself",
            )
    if not os.access(config.path, os.W_OK):
        raise InvalidParameter(
            "write", str(config.path), "a file that may be written", "change its rights, or leave --write out"
        )


def _settable(text: str, section: str, name: str) -> bool:
    """Whether `set_key` changes this key and nothing else."""
    expected = tomllib.loads(text)
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
