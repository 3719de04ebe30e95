"""Batches that are refused: the right line, for no more work than a batch that is taken."""

from __future__ import annotations

import gzip
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.web.test_producer_routes import NDJSON, posted_text

from tidegate.config import parse_queries
from tidegate.exact import show
from tidegate.ingest.sources.text import CsvDialect, JsonDialect
from tidegate.ingest.times import TimeReader
from tidegate.policy.budget import Approximate, Pure
from tidegate.web import explanations
from tidegate.web.event_parsing import MOST_MEMBERS, BadBatch, Parser, TooLarge, unpack
from tiers import combined

GOOD = {
    NDJSON: b'{"time": "2026-03-02", "unit": "a", "place": "north"}\n',
    "text/csv": b"2026-03-02,a,north\n",
}
BAD = {
    NDJSON: (
        b'{"time": "walrus", "unit": "a", "place": "north"}\n',
        b'{"time": "2026-03-02"}\n',
        b"{\n",
        b"walrus\n",
    ),
    "text/csv": (b"walrus,a,north\n", b"2026-03-02,,north\n", b"1,2,3,4\n", b"2026-03-02T25:00Z,a,north\n"),
}
KINDS = tuple(GOOD)


@pytest.fixture
def parser(tmp_path: Path) -> Parser:
    """The parser of a stream with three columns."""
    return Parser(parse_queries(posted_text(tmp_path), tmp_path / "hall.toml"))


def body(kind: str, lines: list[bytes]) -> bytes:
    """Lines as a batch."""
    return (b"time,unit,place\n" if kind == "text/csv" else b"") + b"".join(lines)


@pytest.mark.parametrize(("blank", "which", "kind"), combined(3, [False, True], range(4), KINDS))
def test_the_first_bad_line_is_named(parser: Parser, kind: str, which: int, blank: bool) -> None:
    """Wherever it is, with and without empty lines before it, also where the last line is wrong and does not end."""
    count, head = 13, int(kind == "text/csv")
    blank = blank and kind == NDJSON  # an empty line of CSV is a record that has nothing
    for at in range(1, count):
        lines = [b"\n" * (blank and number % 3 == 1) + GOOD[kind] for number in range(count)]
        lines[at] = lines[at].replace(GOOD[kind], BAD[kind][which])
        lines[-1] = BAD[kind][which].rstrip()
        line = b"".join(lines[: at + 1]).rstrip().count(b"\n") + 1 + head
        with pytest.raises(BadBatch) as caught:
            parser.parse(kind, body(kind, lines))
        assert caught.value.line == line
        assert "walrus" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("place", [1, 1500, 3000])
def test_a_refusal_costs_about_as_much_as_a_batch_that_is_taken(
    parser: Parser, kind: str, which: int, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All records are looked at two and a half times at most, wherever the bad one is; halving prefixes takes 13."""
    seen = {"bytes": 0, "records": 0}
    for dialect in (CsvDialect, JsonDialect):

        def parse(self: Any, piece: bytes, columns: Any, real: Any = dialect.parse) -> pl.DataFrame:
            seen["bytes"] += len(piece)
            found: pl.DataFrame = real(self, piece, columns)
            return found

        monkeypatch.setattr(dialect, "parse", parse)
    read = TimeReader.read

    def times(self: TimeReader, series: pl.Series) -> pl.Series:
        seen["records"] += len(series)
        return read(self, series)

    monkeypatch.setattr(TimeReader, "read", times)
    lines = [GOOD[kind]] * 3001
    parser.parse(kind, body(kind, lines))
    taken = dict(seen)
    lines[place] = BAD[kind][which]
    with pytest.raises(BadBatch):
        parser.parse(kind, body(kind, lines))
    for name, amount in taken.items():
        assert seen[name] - amount <= 2.5 * amount


@pytest.mark.parametrize("kind", KINDS)
def test_more_lines_than_can_be_held_are_refused_at_once(
    parser: Parser, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short lines take as much room as long ones when they are records, so that their number is limited as well."""
    parser.most_rows = 100
    parser.parse(kind, body(kind, [GOOD[kind]] * 99))
    monkeypatch.setattr(Parser, "_check", None)
    with pytest.raises(TooLarge, match="more than 100 lines"):
        parser.parse(kind, body(kind, [b"\n"] * 200))


def test_a_byte_order_mark_is_no_part_of_a_name(parser: Parser) -> None:
    """Spreadsheets write one before the header."""
    assert len(parser.parse("text/csv", b"\xef\xbb\xbf" + body("text/csv", [GOOD["text/csv"]]))) == 1


def test_quotes_are_closed_in_their_line(parser: Parser) -> None:
    """In every piece of a large batch, and in a last line without an end."""
    good = b'2026-03-02,"a, and b",north\n'
    large = [good] * (2 * 2**20 // len(good))
    assert len(parser.parse("text/csv", body("text/csv", large))) == len(large)
    for at in (0, len(large) // 2, len(large) - 1):
        lines = list(large)
        lines[at] = b'2026-03-02,"a\nb",north' + (b"\n" if at < len(large) - 1 else b"")
        with pytest.raises(BadBatch, match="line break"):
            parser.parse("text/csv", body("text/csv", lines))


def test_gzip_may_have_several_members() -> None:
    """As a file has that was appended to; each must be whole, and they are not without end."""
    one, two = gzip.compress(b"one\n"), gzip.compress(b"two\n" * 2**20)
    assert unpack(one + two + one, "gzip") == b"one\n" + b"two\n" * 2**20 + b"one\n"
    for damaged in (b"", one[:-1], one + two[:-1], one + b"rest", one * (MOST_MEMBERS + 1)):
        with pytest.raises(BadBatch, match="gzip"):
            unpack(damaged, "gzip")


@pytest.mark.parametrize("epsilon", ["1/1000", "1", "710", "100000"])
def test_every_budget_has_words(epsilon: str) -> None:
    """Also one that protects nobody, as tests without noise have."""
    for budget in (Pure(Fraction(epsilon)), Approximate(Fraction(epsilon), Fraction(1, 10**6))):
        assert f"ε = {show(Fraction(epsilon))}" in explanations._budget(budget)
