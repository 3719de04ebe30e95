"""Several queries in one file: shares, sinks, mechanisms, and refusals with the right line."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from tidegate.composition.optimal import largest_step
from tidegate.config import ConfigError, parse_config, parse_queries
from tidegate.config.document import EXAMPLE, SEVERAL


def edited(before: str, after: str) -> str:
    """The example with another text in one place."""
    assert SEVERAL.count(before) == 1, before
    return SEVERAL.replace(before, after)


def line_of(text: str, part: str, which: int = 0) -> int:
    """The line in which something stands for the nth time."""
    return [number for number, line in enumerate(text.splitlines(), 1) if part in line][which]


def test_each_query_has_its_share_and_its_own_sensitivity() -> None:
    """Parts are configurations of their own, with part of ε and their own Δ; the whole has all of it."""
    queries = parse_queries(SEVERAL)
    assert queries.shares == {
        "orders": Fraction(1, 4),
        "customers": Fraction(1, 4),
        "revenue": Fraction(1, 2),
    }
    assert [part.policy.epsilon for part in queries.parts] == [Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)]
    assert [part.policy.max_change for part in queries.parts] == [2, 1, 200]
    assert queries.policy.epsilon == 1
    assert "All queries together are 1-differentially private" in queries.guarantee


def test_one_query_is_as_before() -> None:
    """A file with [query] has the fingerprint that it always had."""
    queries = parse_queries(EXAMPLE)
    assert queries.fingerprint == parse_config(EXAMPLE).fingerprint
    assert not queries.listed
    assert queries.policy == parse_config(EXAMPLE).policy


def test_several_queries_are_refused_where_one_is_wanted() -> None:
    """A program that knows one query does not take the first of several."""
    with pytest.raises(ConfigError, match="several queries"):
        parse_config(SEVERAL)


@pytest.mark.parametrize(
    ("location", "found"),
    [
        ("released.csv", "released-orders.csv"),
        ("out/", "out/orders/"),
        ("{query}/all.csv", "orders/all.csv"),
        ("mqtt://broker/releases", "mqtt://broker/releases/orders"),
    ],
)
def test_each_query_has_a_place_of_its_own(location: str, found: str) -> None:
    """A file, a folder or a topic for each."""
    queries = parse_queries(edited('"released.csv"', f'"{location}"'))
    assert queries.part("orders").sink.location == found


def test_standard_output_is_not_shared() -> None:
    """Rows of different columns would be mixed."""
    text = edited('"released.csv"', '"-"')
    with pytest.raises(ConfigError, match="standard output") as refusal:
        parse_queries(text)
    assert refusal.value.line == line_of(text, 'location = "-"')


def test_a_query_may_have_a_mechanism_of_its_own() -> None:
    """By its name, or as a table with parameters; the others have that of the file."""
    text = edited('share = "1/2"\n', 'share = "1/2"\n\n[query.mechanism]\nname = "Sample"\nevery = 4\n')
    text = text.replace('name = "customers"\n', 'name = "customers"\nmechanism = "PeGaSus"\n')
    found = [type(part.mechanism).__name__ for part in parse_queries(text).parts]
    assert found == ["Uniform", "PeGaSus", "Sample"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (edited('share = "1/2"', 'share = "3/4"'), ("share", 2), "add up to"),
        (edited('name = "revenue"', 'name = "orders"'), ('name = "orders"', 1), "two queries"),
        (edited('name = "revenue"', 'name = "a b"'), ('name = "a b"', 0), "letters"),
        (edited('clip = ["0", "200"]', 'clip = ["0"]'), ("clip", 0), "two numbers"),
        (edited('aggregate = "sum"', 'aggregat = "sum"'), ("aggregat ", 0), "did you mean"),
        (
            edited('aggregate = "sum"', 'aggregate = "sum"\nmax_change = "7"'),
            ("max_change", 0),
            "at least 200",
        ),
        (edited('aggregate = "sum"', 'aggregate = "sum"\nmechanism = "Tied"'), ("mechanism =", 0), "'Tide'"),
        (edited("window = 24", 'window = 24\nmax_change = "1"'), ("max_change", 0), "move it there"),
        (edited('epsilon = "1"', 'epsilon = "1"\ndelta = "1/1000"'), ("delta", 0), "not divided"),
        (edited('aggregate = "sum"', 'aggregate = "given"'), ("[[query]]", 2), "max_change"),
        (
            edited('aggregate = "sum"', 'aggregate = "given"\nmax_change = "1"\ncolumns = ["a"]'),
            ("given", 0),
            "reading or an event",
        ),
    ],
)
def test_refusals_name_the_line_of_the_query(text: str, line: tuple[str, int], words: str) -> None:
    """The line of this query's key, not of another's."""
    with pytest.raises(ConfigError, match=words) as refusal:
        parse_queries(text)
    assert refusal.value.line == line_of(text, *line)


def test_auto_shares_make_errors_proportional_to_what_is_tolerable() -> None:
    """Noise by target is the same for all, up to rounding; what was said exactly stays."""
    text = SEVERAL.replace('share = "1/2"', 'share = "auto"\ntarget = "1000"')
    text = text.replace('aggregate = "distinct"\nshare = "1/4"', 'aggregate = "distinct"\ntarget = "10"')
    shares = parse_queries(text).shares
    assert shares["orders"] == Fraction(1, 4)
    assert sum(shares.values()) <= 1
    relative = [1 / (10 * shares["customers"]), 200 / (1000 * shares["revenue"])]
    assert abs(relative[0] / relative[1] - 1) < Fraction(1, 50)


def test_auto_shares_are_equal_where_nothing_is_known(tmp_path: Path) -> None:
    """Equal parts of what is left."""
    text = SEVERAL.replace('share = "1/4"\n', "").replace('share = "1/2"\n', "")
    shares = parse_queries(text, tmp_path / "tidegate.toml").shares
    assert len(set(shares.values())) == 1
    assert Fraction(99, 100) < sum(shares.values()) <= 1


def test_levels_are_said_of_all_or_of_none() -> None:
    """Half of the knowledge divides nothing."""
    text = SEVERAL.replace('share = "1/4"\n', "").replace('share = "1/2"\n', "level = 300.5\n")
    with pytest.raises(ConfigError, match="say its level"):
        parse_queries(text)


def test_delta_is_refused_with_the_reason_and_rho_is_divided() -> None:
    """A part of a window costs no part of ε under (ε, δ); ρ adds up exactly."""
    with pytest.raises(
        ConfigError, match="a part of a window costs is no part of ε; drop delta, or write rho"
    ) as refused:
        parse_queries(SEVERAL.replace('epsilon = "1"', 'epsilon = "1"\ndelta = "1e-6"'))
    assert refused.value.line is not None
    found = parse_queries(SEVERAL.replace('epsilon = "1"', 'rho = "1/2"'))
    assert [part.policy.rho for part in found.parts] == [Fraction(1, 8), Fraction(1, 8), Fraction(1, 4)]
    assert sum(part.policy.budget.total for part in found.parts) == found.budget


def test_a_few_steps_of_a_window_cost_more_than_their_part_of_an_epsilon_with_delta() -> None:
    """What the refusal says: at (1, 10⁻⁶) ten of a hundred steps lose more than a tenth of ε by their own bound."""
    step = largest_step(100, Fraction(1), Fraction(1, 10**6))
    assert step > Fraction(1, 100)
    assert 10 * step > Fraction(1, 10)
    # with a tenth of δ as well: the largest step of ten that stay within a tenth of both is smaller than the one used
    assert largest_step(10, Fraction(1, 10), Fraction(1, 10**7)) < step
