"""From a configured mechanism to the same one on the new core: by name, with the same fields."""

from __future__ import annotations

import importlib
from dataclasses import fields
from typing import Any

from tidegate.core.mechanism import Mechanism
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import Mechanism as Configured

BEFORE, NOW = "tidegate.mechanisms.", "tidegate.mechanisms."


def on_core(configured: Configured) -> Mechanism:
    """The same configuration on the new core.

    Examples
    --------
    >>> import tidegate as tg
    >>> type(on_core(tg.mechanisms.Uniform(tg.WEvent(epsilon="1", w=3)))).__module__
    'tidegate.mechanisms.plain.uniform'
    """
    if hasattr(configured, "advance"):  # it is one of the core already
        already: Any = configured
        return already  # type: ignore[no-any-return]
    kind = type(configured)
    given = {each.name: getattr(configured, each.name) for each in fields(configured) if each.init}
    if not kind.__module__.startswith(BEFORE):
        raise _not_moved(kind.__name__)
    try:
        module = importlib.import_module(NOW + kind.__module__.removeprefix(BEFORE))
    except ModuleNotFoundError:
        raise _not_moved(kind.__name__) from None
    moved: Any = getattr(module, kind.__name__, None)
    if moved is None:
        raise _not_moved(kind.__name__)
    found: Mechanism = moved(**given)
    return found


def _not_moved(name: str) -> InvalidParameter:
    return InvalidParameter(
        "mechanism",
        name,
        "one that runs on the new core",
        "choose another one, or use the commands of version 0",
    )
