"""Which orders, sums and signs a configuration implies between the bounded values of a step.

Only what bounding cannot break is implied. With `most` contributions per unit a count keeps at least one record of
everybody who is there, so that it is never below the number of units; but of a count by category it may keep records of
another category than `distinct` does, and nothing follows for one column.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from tidegate.config.config import Config
from tidegate.queries.relations import Relation

COUNTED = ("count", "distinct", "histogram")
SIGNED = (*COUNTED, "sum", "given")
MOST_COLUMNS = 200  # of which each is compared with a total by itself


def signs(config: Config) -> list[bool]:
    """Which answers cannot be negative, whatever the data."""
    query = config.query
    return [query.aggregate in SIGNED and query.nonnegative] * len(query.answer_labels)


def relations(parts: Sequence[Config]) -> list[Relation]:
    """The orders and sums between the answers of several queries, by their positions in one row of all of them.

    Examples
    --------
    >>> from tidegate.config.document import SEVERAL
    >>> from tidegate.config.queries import parse_queries
    >>> [relation.words for relation in relations(parse_queries(SEVERAL).parts)]
    ['customers is at most orders']
    """
    begins, at = {}, 0
    for part in parts:
        begins[part.name] = at
        at += len(part.query.answer_labels)
    found = []
    for lower, upper in permutations(parts, 2):
        if not _comparable(lower, upper):
            continue
        begin, width, top = begins[lower.name], len(lower.query.answer_labels), begins[upper.name]
        if _adds_up(lower, upper):
            what = "is" if width == 1 else "in all columns together is"
            words = f"{lower.name} {what} at most {upper.name}"
            found.append(Relation(tuple(range(begin, begin + width)), top, words))
        elif lower.query.aggregate == "distinct" and width <= MOST_COLUMNS:  # a unit is in a column once
            words = f"each column of {lower.name} is at most {upper.name}"
            found += [Relation((begin + column,), top, words) for column in range(width)]
    return found


def _comparable(lower: Config, upper: Config) -> bool:
    """Whether every unit in a column of the one has at least as much in the one column of the other."""
    one, other = lower.query, upper.query
    if one.aggregate not in COUNTED or other.aggregate not in ("count", "distinct"):
        return False
    if one.over > 1 and not (other.aggregate == "distinct" and other.over >= one.over):
        return False  # whoever was seen before this step is in no count of it
    if other.over > 1 and one.aggregate != "distinct":
        return False
    if other.aggregate == "distinct" and one.aggregate != "distinct":
        return False
    if upper.schema.unit is None and other.aggregate == "distinct":
        return False
    everything = upper.schema.column is None and other.lookup is None and len(other.answer_labels) == 1
    same = len(one.answer_labels) == 1 and (one.columns, one.lookup, lower.schema.column) == (
        other.columns, other.lookup, upper.schema.column,
    )  # fmt: skip
    if one.aggregate == other.aggregate and same and one.where == other.where and one.over == other.over:
        return False  # the same statistic twice
    return (
        (everything or same)
        and (other.where is None or other.where == one.where)
        and one.levels is None
        and other.levels is None
        and all(query.weighting == "keep" or query.most == 1 for query in (one, other))
        and lower.mechanism.statistic == upper.mechanism.statistic == "steps"
        and (lower.later, lower.steps) == (upper.later, upper.steps)
    )


def _adds_up(lower: Config, upper: Config) -> bool:
    """Whether all columns together stay below: no unit may have more in them than it has in the total."""
    one, other = lower.query, upper.query
    if upper.schema.unit is None:  # every record is a unit, and in one column
        return True
    if len(one.answer_labels) == 1 and one.aggregate == "distinct":
        return True
    return one.most <= (1 if other.aggregate == "distinct" else other.most)
