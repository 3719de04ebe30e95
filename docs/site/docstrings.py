"""Docstrings as Markdown: roles become code, and tables of equals signs keep their columns."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|meth|attr|func|mod):(`[^`]+`)")
TABLE = re.compile(r"^=+ =[= ]*\n.*^=+ =[= ]*$", re.MULTILINE | re.DOTALL)


def markdown(text: str) -> str:
    """A docstring whose roles and tables Markdown understands.

    Examples
    --------
    >>> markdown("As for every :class:`Mechanism`.")
    'As for every `Mechanism`.'
    """
    text = ROLE.sub(r"\1", text)
    return TABLE.sub(lambda found: f"```text\n{found[0]}\n```", text)


class Docstrings(griffe.Extension):
    """Rewrites each docstring once, before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """One module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value)
