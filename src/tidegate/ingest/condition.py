"""Conditions: which records count, said in a small language of public comparisons. Nothing of it is ever executed.

::

    condition  = part { "or" part }          part   = term { "and" term }
    term       = "not" term | "(" condition ")" | comparison
    comparison = field ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) value
               | field [ "not" ] "in" "[" value { "," value } "]"
    field      = a word, or any name in `backquotes`
    value      = "text" or 'text', a number, true or false
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tidegate.errors import InvalidParameter
from tidegate.exact import show
from tidegate.ingest.columns import numbers, texts

LONGEST = 10_000  # characters
DEEPEST = 50  # of parentheses and nots inside of each other
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>"(?:[^"\\]|\\.)*"|'[^']*')
    | (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?![\w.]))
    | `(?P<quoted>[^`]+)`
    | (?P<word>[^\W\d]\w*)
    | (?P<sign>==|!=|<=|>=|<|>|\(|\)|\[|\]|,)
    )""",
    re.VERBOSE,
)
_SIGNS: dict[str, Callable[[Any, Any], pl.Expr]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ORDERED = ("<", "<=", ">", ">=")
_WORDS = ("and", "or", "not", "in", "true", "false")
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Token:
    """A word or a sign, and where it stands: characters count from 1."""

    kind: str
    content: str
    position: int


@dataclass(frozen=True)
class Comparison:
    """A field and the values it is compared with."""

    field: str
    sign: str
    values: tuple[str | Fraction, ...]

    @property
    def numeric(self) -> bool:
        """Whether the field is read as a number."""
        return isinstance(self.values[0], Fraction)

    def __str__(self) -> str:
        shown = [
            show(value) if isinstance(value, Fraction) else json.dumps(value, ensure_ascii=False)
            for value in self.values
        ]
        right = f"[{', '.join(shown)}]" if self.sign == "in" else shown[0]
        return f"`{self.field}` {self.sign} {right}"

    def expression(self, column: pl.Expr) -> pl.Expr:
        """The comparison of a column that was read as number or text; missing where the field is."""
        given = [_number(value) if isinstance(value, Fraction) else value for value in self.values]
        if self.sign == "in":
            return pl.any_horizontal([column == value for value in given])
        return _SIGNS[self.sign](column, given[0])


@dataclass(frozen=True)
class Combination:
    """Conditions joined by "and" or "or", or one that must not hold ("not")."""

    word: str
    parts: tuple[Comparison | Combination, ...]

    def __str__(self) -> str:
        if self.word == "not":
            return f"not ({self.parts[0]})"
        return f" {self.word} ".join(f"({part})" for part in self.parts)


@dataclass(frozen=True)
class Condition:
    """A public condition on the fields of a record.

    Parameters
    ----------
    text
        As in the file: ``status == "paid" and amount >= 5``. A field that is compared with a text is read as text, one
        that is compared with a number as a number. A record of which a field is missing counts only where the
        condition holds whatever the field might have been.

    Privacy
    -------
    Whether a record counts depends on that record and on public constants. So it is the same as if the others had
    never been recorded, and what one unit can change grows by nothing.

    Examples
    --------
    >>> condition = Condition("status in ['paid', 'sent'] and not amount < 5")
    >>> condition.fields
    ('status', 'amount')
    >>> frame = pl.DataFrame({"status": ["paid", "paid", "open", None], "amount": ["7", "3", "9", "9"]})
    >>> condition.holds(frame).tolist()
    [True, False, False, False]
    """

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or len(self.text) > LONGEST:
            raise InvalidParameter(
                "where", "…", f"text of at most {LONGEST} characters", "shorten it, or use a lookup"
            )
        self.tree  # noqa: B018  refuses what cannot be read
        kinds: dict[str, bool] = {}
        for part in self.comparisons:
            if kinds.setdefault(part.field, part.numeric) != part.numeric:
                raise InvalidParameter(
                    "where",
                    self.text,
                    f"such that the field {part.field!r} is compared with texts only or with numbers only",
                    "put its numbers in quotes, or drop the quotes",
                )

    @cached_property
    def tree(self) -> Comparison | Combination:
        """What was read."""
        return _Reader(self.text).read()

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """All comparisons, from left to right."""
        return tuple(_leaves(self.tree))

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The fields of a record that are looked at."""
        return tuple(dict.fromkeys(part.field for part in self.comparisons))

    @cached_property
    def numeric(self) -> tuple[str, ...]:
        """Those of them that are read as numbers."""
        return tuple(dict.fromkeys(part.field for part in self.comparisons if part.numeric))

    def __str__(self) -> str:
        return str(self.tree)

    def holds(self, frame: pl.DataFrame, *, lenient: bool = False) -> Mask:
        """Which records count.

        Parameters
        ----------
        frame
            Records with at least :attr:`fields`.
        lenient
            Whether a field that should be a number and is none counts as missing, or refuses them all.
        """
        # columns by their place: polars would read some names as patterns
        read = pl.DataFrame(
            {
                str(place): numbers(frame[name], name, lenient=lenient)
                if name in self.numeric
                else texts(frame[name])
                for place, name in enumerate(self.fields)
            }
        )
        found = read.select(self._expression(self.tree).fill_null(value=False)).to_series()
        return found.to_numpy()

    def _expression(self, tree: Comparison | Combination) -> pl.Expr:
        if isinstance(tree, Comparison):
            return tree.expression(pl.col(str(self.fields.index(tree.field))))
        parts = [self._expression(part) for part in tree.parts]
        if tree.word == "not":
            return ~parts[0]
        join = pl.all_horizontal if tree.word == "and" else pl.any_horizontal
        return join(parts)


def _leaves(tree: Comparison | Combination) -> Iterator[Comparison]:
    if isinstance(tree, Comparison):
        yield tree
    else:
        for part in tree.parts:
            yield from _leaves(part)


def _number(value: Fraction) -> int | float:
    whole = value.denominator == 1 and abs(value) < 2**63
    return int(value) if whole else float(value)


class _Reader:
    """Reads a condition from left to right; each method takes one rule of the grammar."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self._split())
        self.at = 0
        self.depth = 0

    def read(self) -> Comparison | Combination:
        found = self.condition()
        if self.now.kind != "end":
            raise self.fail('"and", "or" or the end')
        return found

    @property
    def now(self) -> Token:
        return self.tokens[self.at]

    def take(self, *contents: str) -> bool:
        """Read on if the present token is one of these words or signs."""
        fits = self.now.kind in ("word", "sign") and self.now.content in contents
        self.at += fits
        return fits

    def condition(self) -> Comparison | Combination:
        return self.joined("or", self.part)

    def part(self) -> Comparison | Combination:
        return self.joined("and", self.term)

    def joined(self, word: str, rule: Any) -> Comparison | Combination:
        parts = [rule()]
        while self.take(word):
            parts.append(rule())
        return parts[0] if len(parts) == 1 else Combination(word, tuple(parts))

    def term(self) -> Comparison | Combination:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.fail(f"fewer conditions inside of each other, at most {DEEPEST}")
        try:
            if self.take("not"):
                return Combination("not", (self.term(),))
            if self.take("("):
                inner = self.condition()
                if not self.take(")"):
                    raise self.fail('")"')
                return inner
            return self.comparison()
        finally:
            self.depth -= 1

    def comparison(self) -> Comparison | Combination:
        field = self.now
        if field.kind not in ("word", "quoted") or (field.kind == "word" and field.content in _WORDS):
            raise self.fail("the name of a field, which comes before the value")
        self.at += 1
        negated = self.take("not")
        if self.take("in"):
            found = Comparison(field.content, "in", self.values())
            return Combination("not", (found,)) if negated else found
        sign = self.now
        if negated or not self.take(*_SIGNS):
            raise self.fail('"in"' if negated else "one of == != < <= > >= in")
        value = self.value()
        if sign.content in _ORDERED and not isinstance(value, Fraction):
            self.at -= 1
            raise self.fail(f"a number, because texts have no order that {sign.content} could use")
        return Comparison(field.content, sign.content, (value,))

    def values(self) -> tuple[str | Fraction, ...]:
        if not self.take("["):
            raise self.fail('"["')
        found = [self.value()]
        while self.take(","):
            found.append(self.value())
            if isinstance(found[-1], Fraction) != isinstance(found[0], Fraction):
                self.at -= 1
                raise self.fail("a list of texts only or of numbers only")
        if not self.take("]"):
            raise self.fail('"," or "]"')
        return tuple(found)

    def value(self) -> str | Fraction:
        token = self.now
        self.at += 1
        if token.kind == "number":
            return Fraction(token.content)
        if token.kind == "text":
            return token.content
        if token.kind == "word" and token.content in ("true", "false"):
            return token.content
        self.at -= 1
        raise self.fail("a text in quotes or a number")

    def _split(self) -> Iterator[Token]:
        at, end = 0, len(self.text.rstrip())
        while at < end:
            found = _TOKEN.match(self.text, at)
            if found is None or found.lastgroup is None:
                begin = at + len(self.text[at:]) - len(self.text[at:].lstrip())
                hint = '; equality is written "=="' if self.text[begin] == "=" else ""
                raise self.refusal(begin + 1, f"a field, a comparison or a value{hint}")
            kind = found.lastgroup
            content = found[kind]
            if kind == "text":
                content = self._text(content, found.start(kind) + 1)
            yield Token(kind, content, found.start(kind) + 1)
            at = found.end()
        yield Token("end", "", end + 1)

    def _text(self, quoted: str, position: int) -> str:
        if quoted.startswith("'"):
            return quoted[1:-1]
        try:
            return str(json.loads(quoted))
        except ValueError:
            raise self.refusal(position, "text that JSON could read, between quotes") from None

    def fail(self, wanted: str) -> InvalidParameter:
        return self.refusal(self.now.position, wanted)

    def refusal(self, position: int, wanted: str) -> InvalidParameter:
        return InvalidParameter(
            "where",
            self.text,
            f"a condition, and at character {position} it needs {wanted}",
            'write for example status == "paid" and amount >= 5',
        )
