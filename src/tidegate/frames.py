"""Tables in and out: releases as columns for DataFrames, and the names of a DataFrame's columns."""

from __future__ import annotations

import datetime
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tidegate.errors import InvalidInput, InvalidParameter, MissingPart

if TYPE_CHECKING:
    from tidegate.releases import Releases

Layout = Literal["long", "wide"]
TIME = "time"  # the column of a table that says when its steps began
_OWN = ("step", "time", "column", "value", "low", "high", "status")


def columns_of(
    releases: Releases,
    times: Sequence[Any] | None,
    names: Sequence[str] | None,
    confidence: float,
    layout: str,
) -> dict[str, Any]:
    """Releases as named columns; "long" has a row for each step and column, "wide" one for each step.

    Examples
    --------
    >>> import tidegate as tg
    >>> from tidegate.mechanisms import Uniform
    >>> releases = tg.open(Uniform(tg.WEvent(epsilon="1", window=3), columns=2)).push_batch([[1, 2], [3, 4]])
    >>> list(columns_of(releases, None, ["north", "south"], 0.9, "wide"))
    ['step', 'north', 'north low', 'north high', 'south', 'south low', 'south high', 'status']
    """
    from tidegate.releases import Status

    steps, width = releases.values.shape
    times = releases.times if times is None else times
    names = _checked_names(releases.names if names is None else names, width, layout)
    if times is not None and len(times) != steps:
        raise InvalidParameter("times", f"{len(times)} of them", f"{steps}, one a step", "give as many")
    low, high = releases.interval(confidence)
    labels = {int(status): status.label for status in Status}
    status = [labels[int(each)] for each in releases.status]
    if layout == "wide":
        table: dict[str, Any] = {"step": releases.steps, **({} if times is None else {"time": times})}
        for at, name in enumerate(names):
            table |= {name: releases.values[:, at], f"{name} low": low[:, at], f"{name} high": high[:, at]}
        return {**table, "status": status}
    if layout != "long":
        raise InvalidParameter("layout", layout, "'long' or 'wide'", "write one of them")
    long: dict[str, Any] = {"step": np.repeat(releases.steps, width)}
    if times is not None:
        long["time"] = [time for time in times for _ in range(width)]
    return {
        **long,
        "column": list(names) * steps,
        "value": releases.values.ravel(),
        "low": low.ravel(),
        "high": high.ravel(),
        "status": [each for each in status for _ in range(width)],
    }


def _checked_names(names: Sequence[str] | None, width: int, layout: str) -> list[str]:
    found = [str(number) for number in range(1, width + 1)] if names is None else list(names)
    if len(found) != width or len(set(found)) != width:
        raise InvalidParameter("names", found, f"{width} different names, one a column", "give as many")
    taken = next((name for name in found if layout == "wide" and name in _OWN), None)
    if taken is not None:
        raise InvalidParameter(
            "names", taken, "different from the columns that say when and how", 'write layout="long"'
        )
    return found


def library(name: str) -> Any:
    """An optional library, or a sentence that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingPart(
            f"this needs {name}, which is not installed; install it, or tidegate[frames]."
        ) from None


def names_of(values: Any, one: bool = False) -> tuple[Any, ...] | None:
    """The names of the columns of a table, or of the entries of a mapping; None where columns are counted.

    Parameters
    ----------
    values
        What was pushed.
    one
        Whether it is one step: then the labels of a pandas Series are names of columns.

    Examples
    --------
    >>> names_of({"north": 1, "south": 2}), names_of([1, 2])
    (('north', 'south'), None)
    """
    if isinstance(values, Mapping):
        return tuple(values)
    kind = type(values)  # of the class: a pandas DataFrame has its columns as attributes
    if hasattr(kind, "column_names"):
        return tuple(values.column_names)  # pyarrow
    if hasattr(kind, "columns") and not callable(columns := values.columns):
        found = tuple(columns)
        return (
            None if found == tuple(range(len(found))) else found
        )  # pandas counts columns that have no names
    if one and hasattr(kind, "index") and not callable(labels := values.index):
        found = tuple(labels)
        return found if any(isinstance(label, str) for label in found) else None
    return None


def in_order(values: Any, given: tuple[Any, ...], wanted: tuple[str, ...]) -> Any:
    """Named values in the order of a session's names; other names, which may be data, are refused unsaid."""
    if TIME in given and TIME not in wanted and not isinstance(values, Mapping):
        given = tuple(name for name in given if name != TIME)
        values = values.drop_columns([TIME]) if hasattr(values, "drop_columns") else values[list(given)]
    if len(given) != len(wanted) or set(given) != set(wanted):
        raise InvalidInput(
            f"this session has the columns {_listed(wanted)} and was given others; select and rename them."
        )
    if isinstance(values, Mapping):
        return [values[name] for name in wanted]
    if given == wanted:
        return values
    return values.select(list(wanted)) if hasattr(type(values), "select") else values[list(wanted)]


def times_of(values: Any, names: Sequence[str] | None = None) -> Any:
    """When the steps of a table began, by its column "time" or the index of a pandas DataFrame; None where none says so.

    Parameters
    ----------
    values
        What was pushed.
    names
        The columns that are read; where "time" is one of them, it holds values.

    Examples
    --------
    >>> times_of([[1, 2]]) is None
    True
    """
    kind = type(values)
    if isinstance(values, Mapping) or kind in (list, np.ndarray):
        return None
    if names is not None and TIME not in names and TIME in (names_of(values) or ()):
        found = values[TIME]
        return found.to_pylist() if hasattr(found, "to_pylist") else list(found)
    if hasattr(kind, "index") and not callable(found := values.index):
        return found if getattr(getattr(found, "dtype", None), "kind", "") == "M" else None
    return None


def time_of(values: Any) -> Any:
    """When a step began: the name of a pandas Series, where that is a time; None otherwise."""
    kind = type(values)
    if hasattr(kind, "index") and not callable(values.index):
        found = getattr(values, "name", None)
        return found if isinstance(found, datetime.datetime) else None
    return None


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:6]))
    return shown if len(names) <= 6 else f"{shown} and {len(names) - 6} more"
