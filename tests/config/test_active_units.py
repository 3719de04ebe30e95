"""Active units in a file: what is protected, what the account's windows are, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tidegate.cli import main
from tidegate.config import ConfigError, parse_queries
from tidegate.report.card import card_of_all
from tidegate.report.registry import _unit_details
from tidegate.report.truth import true_values
from tidegate.report.wording import Words
from tidegate.web.public_routes import window_of

TEXT = """
[source]
location = "events.csv"
time = "time"
unit = "unit"
complete = true
[steps]
start = "2026-03-02"
length = "24h"
count = 40
[[query]]
name = "daily"
aggregate = "distinct"
[[query]]
name = "weekly"
aggregate = "distinct"
over = "7 days"
[protect]
epsilon = "1"
window = "3 days"
[mechanism]
name = "Uniform"
[sink]
location = "out.csv"
[about]
unit = "customer"
"""
ALONE = TEXT.replace('[[query]]\nname = "daily"\naggregate = "distinct"\n', "").replace(
    '[[query]]\nname = "weekly"', "[query]"
)


def test_the_account_has_longer_windows_than_what_is_protected() -> None:
    """By the longest of all queries, for each of them; people read w."""
    queries = parse_queries(TEXT)
    assert [part.mechanism.policy.window for part in queries.parts] == [9, 9]
    assert queries.policy.window == 9
    for part in queries.parts:
        assert (part.window, part.trailing) == (3, 6)
        words = Words(part)
        assert words.protected == "any customer, any 3 days"
        assert dict(words.lifetimes())["one customer, a week"].total == 2  # 13 counts in windows of 9
        assert window_of(part)["window"] == 3
    assert "everything that one unit does within any 3 consecutive steps" in queries.guarantee
    assert "windows of 9 steps" in queries.guarantee
    assert card_of_all(list(queries.parts), ())["privacy"]["window_steps"] == 3
    (alone,) = parse_queries(ALONE).parts
    assert (alone.window, alone.policy.window) == (3, 9)
    assert str(alone.guarantee.unit).startswith(
        "everything that one unit does within any 3 consecutive steps"
    )
    assert "each of the 9 that count it" in str(alone.guarantee)
    assert Fraction(alone.policy.max_change) == 1


def test_nothing_changes_without_it() -> None:
    """Words and windows of other streams stay."""
    (part,) = parse_queries(ALONE.replace('over = "7 days"\n', "")).parts
    assert (part.window, part.policy.window, part.trailing) == (3, 3, 0)
    assert "everything within any 3 consecutive steps: a change of at most 1 in each of them" in str(
        part.guarantee
    )


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('over = "7 days"', 'over = "36h"', "whole number of steps"),
        ('over = "7 days"', "over = 0", "over"),
        ('aggregate = "distinct"\nover', 'aggregate = "count"\nover', 'absent for "count"'),
        ('window = "3 days"', 'window = 3\nmobility = "fixed"', "mobility"),
        ('window = "3 days"', 'window = 3\nadjacency = "replace"', "adjacency"),
        ('window = "3 days"', 'policy = "event"', "w-event"),
        ("[sink]", '[editions]\nafter = ["1h", "48h"]\n[sink]', "editions"),
    ],
)
def test_what_does_not_go_with_it_is_refused(before: str, after: str, words: str) -> None:
    """With its line."""
    assert before in ALONE
    with pytest.raises(ConfigError, match=words):
        parse_queries(ALONE.replace(before, after))


def test_a_stream_is_released_and_cannot_be_amended_to_other_windows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The truth of the report is that of the file by hand; another longest period is refused."""
    random = np.random.default_rng(1)
    days, units = random.integers(0, 40, 600), random.integers(0, 90, 600)
    pl.DataFrame(
        {"time": [f"2026-{3 + day // 31:02d}-{1 + day % 31:02d}T12:00" for day in days + 1], "unit": units}
    ).write_csv(tmp_path / "events.csv")
    file = tmp_path / "active.toml"
    file.write_text(TEXT)
    assert main(["release", str(file)]) == 0
    assert "any customer, any 3 days, with ε = 1" in capsys.readouterr().out
    weekly = parse_queries(TEXT, file).part("weekly")
    by_hand = [len(set(units[(days <= day) & (days > day - 7)].tolist())) for day in range(40)]
    assert true_values(weekly, 40)[:, 0].tolist() == by_hand
    file.write_text(TEXT.replace("7 days", "14 days"))
    assert main(["amend", str(file)]) == 2
    assert "not what is protected" in capsys.readouterr().err
    # 9 = 3 + 6: the account has the same windows, and people would be protected for longer than they were
    file.write_text(
        TEXT.replace('window = "3 days"', 'window = "9 days"').replace('over = "7 days"', "over = 1")
    )
    assert parse_queries(file.read_text(), file).policy.window == 9
    assert main(["amend", str(file)]) == 2
    assert "window cannot be amended" in capsys.readouterr().err
    receipt = next(tmp_path.glob("*.receipt")).read_text()
    assert '"window": 3' in receipt


def test_what_is_published_names_the_steps_in_which_people_are_protected() -> None:
    """And not the windows of the account."""
    queries = parse_queries(TEXT)
    card = card_of_all(list(queries.parts), ())
    assert "within any 3 consecutive steps" in card["privacy"]["guarantee"]
    for part in _unit_details(queries, Words(queries.first)):
        assert "within any 9 consecutive steps" not in part
