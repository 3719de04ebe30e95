"""As much of YAML as a record of a registry needs: mappings, lists, numbers and texts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SHORT = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}


def to_yaml(record: Mapping[str, Any]) -> str:
    r"""A mapping as YAML: every text is quoted, or a block of lines where it has several.

    Parameters
    ----------
    record
        Mappings, lists, texts, whole numbers and finite floats; keys are plain words.

    Examples
    --------
    >>> print(to_yaml({"tier": 3, "names": ["no", "a: b"], "loss": {"delta": 1e-05}}), end="")
    tier: 3
    names:
      - "no"
      - "a: b"
    loss:
      delta: 1.0e-05
    """
    return "".join(f"{line}\n" for line in _mapping(record))


def _mapping(record: Mapping[str, Any]) -> Iterator[str]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield f"{name}:"
            yield from _indented(_mapping(value))
        elif isinstance(value, str) and _is_block(value):
            yield f"{name}: |-"
            yield from _indented(value.split("\n"))
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield f"{name}:"
            for item in value:
                lines = list(_mapping(item)) if isinstance(item, Mapping) else [_scalar(item)]
                yield f"  - {lines[0]}"
                yield from _indented(_indented(lines[1:]))
        else:
            yield f"{name}: {_scalar(value)}"


def _indented(lines: Sequence[str] | Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _is_block(text: str) -> bool:
    """Whether the lines of a text may stand as they are: all printable, none empty, no blank at an end."""
    lines = text.split("\n")
    return len(lines) > 1 and all(line.isprintable() and line == line.strip() != "" for line in lines)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return '"' + "".join(map(_character, value)) + '"'
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(value)
        whole, mark, exponent = repr(value).partition("e")  # a reader of YAML 1.1 takes 1e-05 for a text
        return f"{whole}{'' if '.' in whole else '.0'}{mark}{exponent}"
    return str(int(value))


def _character(one: str) -> str:
    if one in SHORT or one.isprintable():
        return SHORT.get(one, one)
    code = ord(one)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
