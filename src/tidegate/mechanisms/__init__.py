"""The catalogue of mechanisms: a family a folder, one algorithm a file, found by its name.

``tidegate.mechanisms.BudgetAbsorption`` stands in ``w_event/budget_absorption.py``: a new mechanism is a new file in a
family's folder; type checkers and ``import *`` see it when it is named below as well, which a test asks for.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate import naming
from tidegate.errors import InvalidParameter
from tidegate.mechanisms.mechanism import Mechanism

__all__ = [
    "DSAT",
    "AdaPub",
    "BackwardSmoothing",
    "BinaryTree",
    "Blocks",
    "BudgetAbsorption",
    "BudgetDistribution",
    "ClippedAverage",
    "ClippedDecay",
    "ClippedHistogram",
    "ClippedSum",
    "Discover",
    "EndlessSum",
    "Factorization",
    "Fast",
    "Fourier",
    "GradualTree",
    "HierarchicalOptStream",
    "HierarchicalPeGaSus",
    "HybridTree",
    "Mechanism",
    "OptStream",
    "PeGaSus",
    "PerLeafOptStream",
    "PersonalAbsorption",
    "PersonalDistribution",
    "RescueDP",
    "Sample",
    "SlidingWindowTree",
    "Swellfish",
    "Tide",
    "ToPS",
    "Uniform",
    "catalogue",
]

GROUP = "tidegate.mechanisms"  # the entry points of other packages

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from tidegate.mechanisms.clipping.clipped_average import ClippedAverage as ClippedAverage
    from tidegate.mechanisms.clipping.clipped_decay import ClippedDecay as ClippedDecay
    from tidegate.mechanisms.clipping.clipped_histogram import ClippedHistogram as ClippedHistogram
    from tidegate.mechanisms.clipping.clipped_sum import ClippedSum as ClippedSum
    from tidegate.mechanisms.clipping.tops import ToPS as ToPS
    from tidegate.mechanisms.counters.binary_tree import BinaryTree as BinaryTree
    from tidegate.mechanisms.counters.endless_sum import EndlessSum as EndlessSum
    from tidegate.mechanisms.counters.factorization import Factorization as Factorization
    from tidegate.mechanisms.counters.gradual_tree import GradualTree as GradualTree
    from tidegate.mechanisms.counters.hybrid_tree import HybridTree as HybridTree
    from tidegate.mechanisms.counters.sliding_window_tree import SlidingWindowTree as SlidingWindowTree
    from tidegate.mechanisms.discovery.discover import Discover as Discover
    from tidegate.mechanisms.optstream.fourier import Fourier as Fourier
    from tidegate.mechanisms.optstream.hierarchical_opt_stream import (
        HierarchicalOptStream as HierarchicalOptStream,
    )
    from tidegate.mechanisms.optstream.opt_stream import OptStream as OptStream
    from tidegate.mechanisms.optstream.per_leaf_opt_stream import PerLeafOptStream as PerLeafOptStream
    from tidegate.mechanisms.pegasus.ada_pub import AdaPub as AdaPub
    from tidegate.mechanisms.pegasus.backward_smoothing import BackwardSmoothing as BackwardSmoothing
    from tidegate.mechanisms.pegasus.hierarchical_pegasus import HierarchicalPeGaSus as HierarchicalPeGaSus
    from tidegate.mechanisms.pegasus.pegasus import PeGaSus as PeGaSus
    from tidegate.mechanisms.plain.blocks import Blocks as Blocks
    from tidegate.mechanisms.plain.sample import Sample as Sample
    from tidegate.mechanisms.plain.uniform import Uniform as Uniform
    from tidegate.mechanisms.sampled.dsat import DSAT as DSAT
    from tidegate.mechanisms.sampled.fast import Fast as Fast
    from tidegate.mechanisms.sampled.rescue_dp import RescueDP as RescueDP
    from tidegate.mechanisms.swellfish.swellfish import Swellfish as Swellfish
    from tidegate.mechanisms.tide.tide import Tide as Tide
    from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption as BudgetAbsorption
    from tidegate.mechanisms.w_event.budget_distribution import BudgetDistribution as BudgetDistribution
    from tidegate.mechanisms.w_event.personal_absorption import PersonalAbsorption as PersonalAbsorption
    from tidegate.mechanisms.w_event.personal_distribution import PersonalDistribution as PersonalDistribution


@cache
def _files() -> dict[str, str]:
    """Where each file stands, by its name without underscores: "fast" is at "sampled.fast"."""
    found = Path(__file__).parent.glob("*/*.py")
    homes = (path for path in found if not path.stem.startswith("_") and "kernels" not in path.parts[-2:])
    return {
        path.stem.replace("_", ""): f"{path.parent.name}.{path.stem}"
        for path in homes
        if path.stem != "kernels"
    }


if not TYPE_CHECKING:  # or any name would pass for a mechanism

    def __getattr__(name: str) -> Any:
        module = _files().get(name.lower())
        if module is not None:
            found = getattr(importlib.import_module(f"{__name__}.{module}"), name, None)
            if found is not None:
                return _helpful(found)
        meant = None if name.startswith("_") else naming.nearest(name, __all__, naming.CLASSES.get(name))
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}" + (f"; did you mean {meant!r}?" if meant else "")
        )


def _helpful(found: Any) -> Any:
    return naming.helpful(found) if inspect.isclass(found) and issubclass(found, Mechanism) else found


def catalogue() -> dict[str, type[Mechanism]]:
    """Every mechanism by its class name.

    Examples
    --------
    >>> "BudgetAbsorption" in catalogue(), len(catalogue()) >= 20
    (True, True)
    """
    found: dict[str, type[Mechanism]] = {}
    for module in sorted(_files().values()):
        for name, member in inspect.getmembers(
            importlib.import_module(f"{__name__}.{module}"), inspect.isclass
        ):
            here = member.__module__ == f"{__name__}.{module}"
            if here and issubclass(member, Mechanism) and not inspect.isabstract(member):
                found[name] = _helpful(member)
    return found


def installed() -> dict[str, EntryPoint]:
    """Mechanisms of other packages by name: what they enter under "tidegate.mechanisms"; nothing is imported yet."""
    from importlib.metadata import entry_points  # slow, and seldom needed

    return {entry.name: entry for entry in entry_points(group=GROUP)}


def find(name: str) -> type[Mechanism] | None:
    """A mechanism by its name in the catalogue, by that of another package, or as "module:Class"; None if unknown.

    Examples
    --------
    >>> find("Uniform").__name__, find("tidegate.mechanisms.plain.sample:Sample").__name__, find("Nothing")
    ('Uniform', 'Sample', None)
    """
    own = catalogue()
    if name in own:
        return own[name]
    module, colon, member = name.partition(":")
    entry = installed().get(name)
    if entry is None and not (colon and module and member):
        return None
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as for a script that stands there
    try:
        found = getattr(importlib.import_module(module), member) if entry is None else entry.load()
    except Exception as error:
        raise InvalidParameter(
            "mechanism",
            name,
            f"a class that can be imported, which ended in {type(error).__name__}",
            "check its spelling, and import it from Python to see why",
        ) from None
    if not inspect.isclass(found) or not issubclass(found, Mechanism):
        raise InvalidParameter(
            "mechanism", name, "a subclass of tidegate.mechanisms.Mechanism", "name the class"
        )
    kind: type[Mechanism] = _helpful(found) if is_dataclass(found) else found
    return kind


def chosen(names: str = "") -> dict[str, type[Mechanism]]:
    """Mechanisms whose names stand in a list with commas; by default all of the catalogue and of other packages."""
    wanted = [word.strip() for word in names.split(",") if word.strip()]
    if not wanted:
        return catalogue() | {name: kind for name in installed() if (kind := find(name)) is not None}
    found: dict[str, type[Mechanism]] = {}
    for name in wanted:
        kind = find(name)
        if kind is None:
            near = naming.nearest(name, [*__all__, *installed()], naming.CLASSES.get(name))
            remedy = f"did you mean {near!r}?" if near else f"choose from {', '.join(catalogue())}"
            raise InvalidParameter("mechanism", name, "the name of a mechanism, or module:Class", remedy)
        found[kind.__name__] = kind
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *catalogue()})
