"""``name = "auto"``: what is chosen, that it is chosen again, and what it may not look at."""

import pytest

from tidegate.config import ConfigError, parse_config

TEXT = """
[source]
location = "sightings.csv"
time = "time"
column = "place"
unit = "who"
[steps]
start = "2026-03-02T00:00"
length = "{length}"
count = 168
[query]
aggregate = "count"
columns = ["a", "b"]
[protect]
policy = "w-event"
epsilon = "{epsilon}"
window = 24
{more}
[mechanism]
name = "auto"
{keys}
"""


def chosen(length="1h", epsilon="1", more="", keys=""):
    """The mechanism of a configuration."""
    return parse_config(TEXT.format(length=length, epsilon=epsilon, more=more, keys=keys)).mechanism


def test_tide_on_the_days_of_the_clock():
    """Hours make days of 24 and weeks of 168 steps, minutes days of 1,440; an odd length makes none."""
    assert type(chosen()).__name__ == "Tide"
    assert tuple(chosen().periods) == (24, 168)
    assert tuple(chosen(length="1min").periods) == (1440, 10080)
    assert tuple(chosen(length="7min").periods) == ()


def test_a_budget_without_a_proof_gets_uniform():
    """Tide has no proof with δ."""
    assert type(chosen(more='delta = "1e-6"')).__name__ == "Uniform"


def test_a_plan_may_choose_another_and_always_the_same():
    """With a level, a plan decides; asking again gives the same mechanism, so a restart goes on."""
    one, two = chosen(keys="level = 20000", epsilon="50"), chosen(keys="level = 20000", epsilon="50")
    assert one == two
    assert one.columns == 2


@pytest.mark.parametrize(("keys", "words"), [("every = 3", "level"), ('level = "many"', "must be a number")])
def test_other_keys_are_refused(keys, words):
    """auto has one key of its own."""
    with pytest.raises(ConfigError, match=words):
        chosen(keys=keys)
