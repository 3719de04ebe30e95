"""The zoo: mechanisms that are known to be broken, on which the power of the auditor is measured.

An animal is one declaration (`Animal`) in one of the modules here; `zoo()` finds all of them.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from tidegate.errors import InvalidParameter

if TYPE_CHECKING:
    from tests.audit.zoo.animal import Animal

CAGES = (
    "noise",
    "shared_noise",
    "publishing",
    "sparse_vector",
    "pegasus",
    "sampled",
    "clipping",
    "counters",
    "swellfish",
    "operations",
)


def zoo() -> list[Animal]:
    """All animals."""
    cages = (import_module(f"{__name__}.{cage}") for cage in CAGES)
    return [animal for cage in cages for animal in cage.animals()]


def find(name: str) -> Animal:
    """An animal by its name."""
    for animal in zoo():
        if animal.name == name:
            return animal
    near = get_close_matches(name, [animal.name for animal in zoo()], n=1)
    remedy = (
        f"did you mean {near[0]!r}?"
        if near
        else "write for example 'noise halved'; tests/audit/zoo has all of them"
    )
    raise InvalidParameter("zoo", name, "the name of an animal", remedy)
