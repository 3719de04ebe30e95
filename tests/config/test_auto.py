"""``name = "auto"``: what is chosen, that it is chosen again, and what it may not look at."""

import pytest

from tidegate.config import ConfigError, parse_config

TEXT = """
[source]
location = "sightings.csv"
time = "time"
column = "place"
unit = "who"
value = "amount"
[steps]
start = "2026-03-02T00:00"
length = "{length}"
count = 168
[query]
aggregate = "{aggregate}"
{query}
columns = ["a", "b"]
[protect]
policy = "w-event"
epsilon = "{epsilon}"
window = 24
{more}
[mechanism]
name = "{name}"
{keys}
"""


def chosen(length="1h", epsilon="1", more="", keys="", aggregate="count", query="", name="auto"):
    """The mechanism of a configuration."""
    words = {"aggregate": aggregate, "query": query, "name": name}
    return parse_config(TEXT.format(length=length, epsilon=epsilon, more=more, keys=keys, **words)).mechanism


def test_tide_on_the_days_of_the_clock():
    """Hours make days of 24 and weeks of 168 steps, minutes days of 1,440; an odd length makes none."""
    assert type(chosen()).__name__ == "Tide"
    assert tuple(chosen().periods) == (24, 168)
    assert tuple(chosen(length="1min").periods) == (1440, 10080)
    assert tuple(chosen(length="7min").periods) == ()
    assert tuple(chosen(length="24h").periods) == tuple(chosen(length="calendar day").periods) == (7,)
    assert tuple(chosen(length="calendar week").periods) == ()


def test_a_budget_without_a_proof_gets_uniform():
    """Tide has no proof with δ."""
    assert type(chosen(more='delta = "1e-6"')).__name__ == "Uniform"


def test_a_plan_may_choose_another_and_always_the_same():
    """With a level, a plan decides; asking again gives the same mechanism, so a restart continues."""
    one, two = chosen(keys="level = 20000", epsilon="50"), chosen(keys="level = 20000", epsilon="50")
    assert one == two
    assert one.columns == 2


@pytest.mark.parametrize(("keys", "words"), [("every = 3", "level"), ('level = "many"', "must be a number")])
def test_other_keys_are_refused(keys, words):
    """auto has two keys of its own."""
    with pytest.raises(ConfigError, match=words):
        chosen(keys=keys)


@pytest.mark.parametrize("name", ["auto", "Tide", "OptStream", "Fourier"])
@pytest.mark.parametrize(
    ("aggregate", "query", "expected"),
    [
        ("count", "", True),
        ("distinct", "", True),
        ("sum", 'clip = ["0", "5"]', True),
        ("sum", 'clip = ["-5", "5"]', False),
        ("sum", 'clip = ["-1000", "0"]', False),
        ("mean", 'clip = ["0", "5"]', False),
        ("given", "", False),
        ("given", 'clip = ["0", "5"]', True),
        ("given", 'clip = ["0", "5"]\nfill = "-1"', False),
    ],
)
def test_nonnegativity_follows_from_the_query(name, aggregate, query, expected):
    """Only where no cell of a step can be negative is a release cut at 0."""
    more = 'max_change = "1"' if aggregate == "given" else ""
    found = chosen(aggregate=aggregate, query=query, name=name, more=more)
    assert found.nonnegative is expected


@pytest.mark.parametrize("name", ["auto", "Tide"])
def test_what_the_curator_knows_may_be_said(name):
    """Given loads are not negative, says who knows; of a mean's deviations nobody can say it."""
    keys = "nonnegative = true"
    assert chosen(aggregate="given", name=name, keys=keys, more='max_change = "1"').nonnegative
    with pytest.raises(ConfigError, match="nonnegative = true is refused for a mean"):
        chosen(aggregate="mean", query='clip = ["0", "5"]', name=name, keys=keys)
