"""Copies of a stream that are as many independent runs: beside each other in columns, or one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.mechanisms.plain.blocks import Blocks
from tidegate.mechanisms.sharing import SharingMechanism
from tidegate.structures.hierarchy import Hierarchy

SCALES = ("scale", "sigma", "scales", "sample_scales", "feature_scale", "feature_scales", "coefficient_scale")


def widened(mechanism: Any, copies: int) -> Any:
    """The same mechanism for so many copies of its columns, if copies are independent runs; otherwise None."""
    if isinstance(mechanism, Blocks):
        inner = widened(mechanism.mechanism, copies)
        return None if inner is None else replace(mechanism, mechanism=inner)
    if isinstance(mechanism, SharingMechanism) and mechanism.shares_noise:
        return _apart(mechanism, copies) if mechanism.columns_apart else None
    if not getattr(mechanism, "columns_independent", False):  # not every mechanism is of the catalogue
        return None
    if mechanism.forest is None:
        wide: Any = replace(mechanism, columns=mechanism.columns * copies)
    else:
        changed: dict[str, Any] = {"hierarchy": _copied(mechanism.forest, copies)}
        wide = replace(mechanism, columns=mechanism.columns * copies, **changed)
        return wide if wide.outputs == copies * mechanism.outputs else None
    same = all(
        _same(getattr(wide, name, None), getattr(mechanism, name, None)) for name in ("sensitivity", *SCALES)
    )
    return wide if same else None


def _apart(mechanism: SharingMechanism, copies: int) -> Any:
    """So many copies of one column whose units stay where they are: each has noise of the law of one column."""
    policy = mechanism.policy
    if mechanism.sharing is None:
        return None  # there are several laws, and columns follow one schedule
    if mechanism.columns > 1 or policy.adjacency != "add-remove":
        return None
    wide = replace(mechanism, columns=copies, policy=replace(policy, mobility="fixed"))
    one, other = wide.sharing, mechanism.sharing
    same = one is not None and (one.choice, one.scale, one.copies) == (other.choice, other.scale, copies)
    return wide if same else None


def _copied(forest: Hierarchy, copies: int) -> Hierarchy:
    """So many copies of a hierarchy, side by side: paths are as long as before, and have nothing in common."""
    links: list[tuple[str, str | None]] = []
    for copy in range(copies):
        for name, parent in zip(forest.names, forest.parents, strict=True):
            links.append((f"{copy} {name}", f"{copy} {forest.names[parent]}" if parent >= 0 else None))
    return Hierarchy.from_parents(links)


def places(forest: Hierarchy, copied: Hierarchy, copies: int) -> npt.NDArray[np.int64]:
    """Where the nodes of the first copy stand, then those of the second, and so on."""
    place = {name: at for at, name in enumerate(copied.names)}
    return np.array([place[f"{copy} {name}"] for copy in range(copies) for name in forest.names])


def _same(one: Any, other: Any) -> bool:
    """Whether two scales are the same, or are not numbers at all."""
    if one is None or other is None:
        return one is other
    try:
        return bool(np.array_equal(np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)))
    except (TypeError, ValueError):
        return True
