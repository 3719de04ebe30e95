"""What is to be audited, spelt in words: for the command line and for verdicts that are replayed later."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tidegate.audit.subjects import Callee, Configured, Subject
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.exact import whole
from tidegate.mechanisms import Mechanism, catalogue, find, installed
from tidegate.policy import Event, Policy, User, WEvent

KINDS: dict[str, type[Policy]] = {"event": Event, "w-event": WEvent, "user": User}
EXACT = ("epsilon", "delta", "rho", "max_change")
WHOLE = ("window", "horizon", "touches")
WORDS = ("adjacency", "mobility")


def read_policy(text: str) -> Policy:
    """A policy from words, such as "w-event epsilon=1 window=3" or "event, rho=0.5".

    Examples
    --------
    >>> read_policy("w-event epsilon=1/2 window=3").unit()
    'everything within any 3 consecutive steps: a change of at most 1 in each of them'
    """
    kind, *rest = [word for word in re.split(r"[,\s]+", text.strip()) if word] or [""]
    if kind not in KINDS:
        raise InvalidParameter("policy", kind, " or ".join(KINDS), 'write "w-event epsilon=1 window=3"')
    given: dict[str, Any] = {}
    for word in rest:
        name, equals, value = word.partition("=")
        if not equals or name not in (*EXACT, *WHOLE, *WORDS):
            allowed = ", ".join((*EXACT, *WHOLE, *WORDS))
            raise InvalidParameter("policy", word, f"one of {allowed}, with =", "write for example epsilon=1")
        given[name] = _whole(name, value) if name in WHOLE else value
    if kind == "w-event":
        if "window" not in given:
            raise InvalidParameter("window", None, "given for w-event", "write for example window=3")
    elif "window" in given:
        raise InvalidParameter("window", given["window"], f"absent for {kind}", "drop it")
    return KINDS[kind](**given)


def _whole(name: str, value: str) -> int:
    try:
        return whole(name, int(value))
    except ValueError:
        raise InvalidParameter(name, value, "a whole number", f"write for example {name}=3") from None


def read_options(words: Sequence[str]) -> dict[str, Any]:
    """Parameters of a mechanism from words such as "noise=laplace" or "groups=((0,),(1,))"."""
    read: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise InvalidParameter("set", word, "name=value", "write for example --set columns=2")
        try:
            read[name] = ast.literal_eval({"true": "True", "false": "False"}.get(value, value))
        except (ValueError, SyntaxError):
            read[name] = value
        if isinstance(read[name], float):
            read[name] = value  # exact numbers are read from their digits
    return read


def read_subject(name: str, policy: str = "", options: Sequence[str] = (), columns: int = 1) -> Subject:
    """What is to be audited.

    Parameters
    ----------
    name
        A mechanism of the catalogue or of another package, "module:Class" or "module:function"
        for a mechanism or a callable of one's own.
    policy
        In words; see `read_policy`.
    options
        In words; see `read_options`.
    columns
        Columns of the streams.
    """
    claimed = read_policy(policy or "event epsilon=1")
    found: Any = _imported(name) if ":" in name else find(name)
    if ":" in name and not (inspect.isclass(found) and issubclass(found, Mechanism)):
        if options:
            raise InvalidParameter(
                "set", options[0], "absent for a function", "bind its parameters in the module"
            )
        return Callee(found, claimed, columns, name)
    if found is None:
        kinds = [*catalogue(), *installed()]
        near = get_close_matches(name, kinds, 1)
        remedy = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(kinds)}"
        raise InvalidParameter(
            "mechanism", name, "the name of a mechanism, module:Class or module:function", remedy
        )
    kind: type[Mechanism] = found
    given = read_options(options)
    own = {field.name for field in fields(kind) if field.init} - {"policy"}
    for option in given:
        if option not in own:
            raise InvalidParameter(
                "set", option, f"a parameter of {name}", f"choose one of {', '.join(sorted(own))}"
            )
    if columns != 1:
        given["columns"] = columns
    try:
        return Configured(kind(claimed, **given))
    except TypeError:
        raise InvalidParameter(
            "mechanism", name, "one that can be made from a policy and plain values", "audit it from Python"
        ) from None


def spelt(name: str, policy: str, options: Sequence[str], columns: int) -> dict[str, Any]:
    """The same words, for a verdict."""
    return {"name": name, "policy": policy, "options": list(options), "columns": columns}


def from_verdict(words: Mapping[str, Any]) -> Subject:
    """What a saved verdict was about."""
    if "name" not in words:
        raise InvalidInput(
            "the verdict does not say how to make what it is about; name that as well, with its --policy: --replay FILE "
            "module:function."
        )
    return read_subject(
        str(words["name"]), str(words["policy"]), list(words["options"]), int(words["columns"])
    )


def _imported(name: str) -> Any:
    module, _, function = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError):
        raise InvalidParameter(
            "mechanism", name, "module:function that can be imported", "start where the module is"
        ) from None
    if not callable(found):
        raise InvalidParameter("mechanism", name, "a callable stream → stream", "name a function")
    return found
