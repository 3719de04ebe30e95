"""Names of categories that nobody has listed: made by public rules, from each record by itself."""

from __future__ import annotations

import polars as pl

OTHER = "other"  # what is counted in no column of its own; no category is called so
COUNTS = "count of "  # how the columns of counts beside means are called


def named(categories: pl.Series, length: int) -> pl.Series:
    r"""Names of categories by public rules: no control characters, one form of each letter, at most `length` bytes.

    What is left without a name, or with that of the rest, is null; so is what begins as the counts beside means do.

    Examples
    --------
    >>> named(pl.Series(["  Café  ", "Cafe\u0301", "other", " "]), 5).to_list()
    ['Café', 'Café', None, None]
    >>> named(pl.Series(["count of other"]), 20).to_list()
    [None]
    """
    plain = categories.str.replace_all(r"\p{C}", "").str.normalize("NFKC").str.strip_chars()
    long = plain.str.len_bytes() > length
    if long.any():
        cut = plain.filter(long).map_elements(lambda name: _cut(name, length), return_dtype=pl.String)
        plain = plain.scatter(long.arg_true(), cut)
    unnamed = plain.is_null() | (plain == "") | (plain == OTHER) | plain.str.starts_with(COUNTS)
    return plain.set(unnamed, None) if unnamed.any() else plain


def _cut(name: str, length: int) -> str:
    return name.encode()[:length].decode(errors="ignore").strip()


def each_named(categories: pl.Series, length: int) -> pl.Series:
    """The name of each record's category; empty where it has none, and null where the record has no category.

    The same as `named` for each of them, but every spelling is looked at once.

    Examples
    --------
    >>> each_named(pl.Series([" bakery", None, "other"]), 32).to_list()
    ['bakery', None, '']
    """
    given = categories.rename("spelling").to_frame()
    spellings = given.unique().drop_nulls()
    names = named(spellings["spelling"], length).fill_null("")
    if (names == spellings["spelling"]).all():
        return categories
    found = given.join(
        spellings.with_columns(names.alias("name")), on="spelling", how="left", maintain_order="left"
    )
    return found["name"]
