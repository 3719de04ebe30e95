"""Swellfish specifications: secrets, calendars, documents, dominance, sensitivity and composition."""

import datetime
import json
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from experiments.composition_of_secrets import after_releases, after_split
from tidegate.datasets import households
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.policy import Clock, Intervals, Recurring, Secret, Specification, read_policy
from tidegate.policy.promises import Promises
from tidegate.policy.swellfish import policy_from

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
OVEN = Secret(3, 2, [(1, 4)], 1, "oven")
HOME = Secret("1/2", 1, "always", 1, "home")


def test_figure_1_two_events_relevant_at_once():
    """Where hiding intervals overlap the heights add up, elsewhere each counts alone."""
    washing = Secret(1, 3, [(3, 8)], "1/2", "washing")
    policy = tg.Swellfish(specifications=[Specification((OVEN, washing), "house")])
    assert policy.temporal_sensitivity(1, 9)[0] == [3, 3, 4, 4, 1, 1, 1, 1, 0]
    assert [s.label for s in policy.specifications[0].relevant(3)] == ["oven", "washing"]
    assert policy.max_change == 4


def test_figure_2_neighbouring_prefixes():
    """Individual 1 runs the oven in steps 2 and 3; tenths of kW, as in the figure."""
    oven = Secret(30, 2, [(1, 4)], 1, "oven")
    policy = tg.Swellfish(specifications=[Specification((oven,), "house")])
    one = np.array([[2, 4], [3, 4], [2, 3], [31, 32]])
    other = np.array([[2, 4], [33, 4], [32, 3], [31, 32]])
    assert policy.distance(one.sum(axis=1), other.sum(axis=1)) == 1
    longer = other.copy()
    longer[3, 0] += 30
    with pytest.raises(InvalidInput, match="more than one event"):
        policy.distance(one.sum(axis=1), longer.sum(axis=1))


def test_neighbours_that_people_build_are_checked():
    """A change inside one placement is accepted, one outside of every hiding interval is not."""
    policy = tg.Swellfish(specifications=[Specification((OVEN,), "house")])
    stream = np.full((9, 1), 5)
    assert policy.neighbour(stream, 1, np.array([[3], [3]])).sum() == 51
    with pytest.raises(InvalidInput, match="more than one event"):
        policy.neighbour(stream, 5, np.array([[1]]))


def test_theorem_7_takes_the_worst_of_everything():
    """The longest event, the smallest ε and the largest temporal sensitivity, not the largest height."""
    washing = Secret(1, 3, [(3, 8)], "1/2", "washing")
    policy = tg.Swellfish(specifications=[Specification((OVEN, washing), "house")], delta="1e-9")
    assert policy.as_w_event() == tg.WEvent(epsilon="1/2", delta="1e-9", window=3, max_change=4)


def test_on_an_endless_stream_recurring_secrets_count_as_always_relevant():
    """Without a horizon nobody can sweep all steps, so the bound is the safe one."""
    clock = Clock("2026-01-05T00:00", "1 h")
    day = Secret(2, 1, [], 1, "day", recurring="every day 08:00-20:00")
    night = Secret(3, 1, [], 1, "night", recurring="every day 20:00-08:00")
    house = Specification((HOME, day, night), "house")
    assert tg.Swellfish(specifications=[house], clock=clock).max_change == Fraction(11, 2)
    assert tg.Swellfish(specifications=[house], clock=clock, horizon=100).max_change == Fraction(7, 2)


@given(
    st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", "UTC"]),
    st.lists(st.tuples(st.integers(0, 1439), st.integers(60, 1440)), min_size=1, max_size=2, unique=True),
    st.sampled_from(["15 min", "1 h", "50 min"]),
)
def test_the_bound_of_endless_streams_is_never_below_the_sweep(zone, hours, step):
    """Theorem 7 needs the largest sensitivity of any step, also where occurrences meet when the clock changes."""
    clock = Clock("2026-03-20T00:20", step, zone)
    rules = {Recurring(tuple(range(7)), begin, (begin + length) % 1440) for begin, length in hours}
    house = Specification((HOME, Secret(2, 1, [(50, 60)], 1, "x", recurring=tuple(rules))), "h")
    endless = tg.Swellfish(specifications=[house], clock=clock)
    swept = tg.Swellfish(specifications=[house], clock=clock, horizon=30_000)
    assert endless.as_w_event().max_change >= swept.as_w_event().max_change


def test_dominance():
    """Higher, longer and stricter dominates; a trade-off does not; specifications compare at a step."""
    holiday = Secret(4, 96, [(1, 200)], "0.1", "holiday")
    assert holiday.dominates(OVEN)
    assert not OVEN.dominates(holiday)
    assert not Secret(9, 1, "always", 1).dominates(OVEN)
    one, two = Specification((HOME, holiday), "one"), Specification((HOME, OVEN), "two")
    assert one.dominates(two, 3)
    assert not two.dominates(one, 3)
    assert one.dominates(two, 500)
    assert two.dominates(one, 500)


def test_a_description_is_complete():
    """What a ledger stores gives the same policy back."""
    for name in ("household.toml", "two_households.json"):
        policy = read_policy(EXAMPLES / name)
        assert policy_from(json.loads(json.dumps(policy.describe()))) == policy
    ended = tg.Swellfish(
        specifications=[Specification((HOME,), "h", begins=4, ends=9)], horizon=50, promise="joint"
    )
    assert policy_from(json.loads(json.dumps(ended.describe()))) == ended


@given(
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "UTC"]),
    st.integers(0, 1439),
    st.integers(1, 1440),
    st.integers(0, 800),
    st.sampled_from(["15 min", "1 h", "7 min"]),
)
def test_recurring_hours_hide_every_instant_that_the_clock_shows(zone, begin, minutes, day, step):
    """Every minute whose local time lies in the hours is inside an occurrence, in any zone, on any day."""
    clock = Clock("2025-01-06T00:00", step, zone)
    rule = Recurring(tuple(range(7)), begin, (begin + minutes) % 1440)
    there = ZoneInfo(zone)
    midnight = datetime.datetime(2025, 1, 6, tzinfo=there) + datetime.timedelta(days=day)
    first = clock.step_at(midnight.replace(tzinfo=None).isoformat())
    rows = rule.between(clock, first - 400, first + 800)
    start = datetime.datetime.fromtimestamp(clock.origin, datetime.UTC)
    for minute in range(0, 26 * 60, 13):
        instant = midnight.astimezone(datetime.UTC) + datetime.timedelta(minutes=minute)
        local = instant.astimezone(there)
        into = (local.hour * 60 + local.minute - begin) % 1440
        if into < rule.minutes:
            at = int((instant - start).total_seconds()) // clock.length + 1
            assert ((rows[:, 0] <= at) & (rows[:, 1] >= at)).any()


def test_occurrences_do_not_depend_on_how_much_is_expanded():
    """Lazy expansion: the occurrences that meet a short stretch are those of a long one that meet it."""
    clock = Clock("2026-03-20T00:00", "15 min", "Europe/Berlin")
    secret = Secret(1, 5, [(50, 60)], 1, "x", recurring=("every weekday 18:00-02:00", "sunday 1:30-4:30"))
    house = Specification((secret,), "h")
    rows, _ = house.occurrences(clock, 1, 4100)
    for first in range(1, 4000, 173):
        short = {tuple(row) for row in house.occurrences(clock, first, first + 50)[0].tolist()}
        assert short == {(a, b) for a, b in rows.tolist() if b >= first and a <= first + 50}
        assert all(b - a + 1 >= 5 for a, b in short)


def test_every_day_around_the_clock_covers_everything():
    """Also through both clock changes: a baseline for the joint promise."""
    clock = Clock("2026-01-05T00:00", "15 min", "Europe/Berlin")
    daily = Secret(1, 4, [], 1, "home", recurring="every day 00:00-24:00")
    rows, _ = Specification((daily,), "h").occurrences(clock, 1, 40000)
    assert (rows[1:, 0] == rows[:-1, 1] + 1).all()
    assert sorted(set((rows[:, 1] - rows[:, 0] + 1).tolist())) == [92, 96, 100]
    assert Specification((daily,), "h").uncovered(clock, None) is None


HEAD = 'start = "2026-01-05T00:00"\nzone = "Europe/Berlin"\n[[specification]]\nlabel = "h"\n'
BASE = '[[specification.secret]]\nlabel = "home"\nheight = 1\nduration = 1\nepsilon = 1\nhidden = "always"\n'


def secret(**fields):
    """One more secret as TOML; it begins in line 11, its height stands in line 13."""
    values = {
        "label": '"x"',
        "height": "1",
        "duration": "4",
        "epsilon": "1",
        "hidden": '"every day 18:00-23:00"',
    }
    lines = "".join(f"{name} = {value}\n" for name, value in {**values, **fields}.items())
    return HEAD + BASE + "[[specification.secret]]\n" + lines


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (secret(height="0"), 13, "greater than 0"),
        (secret(epsilon="-0.5"), 15, "greater than 0"),
        (secret(epsilon="0"), 15, "greater than 0"),
        (secret(hidden='"every day 18:00-18:30"'), 16, "widen the hours"),
        (secret(hidden="[1, 3]"), 16, "widen the hiding interval"),
        (secret(hidden="[[1, 9], [5, 12]]"), 16, "merge the two"),
        (secret(hidden='["every day 1:00-3:00", "every day 01:00-03:00"]'), 16, "without duplicates"),
        (secret(hidden='"every blueday 1:00-3:00"'), 16, "every weekday 18:00-23:00"),
        (secret(hidden='"25:00-27:00"'), 16, "between 00:00 and 24:00"),
        (secret(hidden="3"), 16, "hidden must be"),
        (secret(hidden="[3, 9]"), 16, "in the past of the stream"),
        (secret(duration='"soon"'), 14, "a number of seconds, minutes or hours"),
        (secret(colour='"red"'), 17, "colour is not known here"),
        (secret(label='"home"', duration="1", hidden='"always"'), 11, "drop the duplicate"),
        (secret().replace("Europe/Berlin", "Europe/Atlantis"), 2, "an IANA time zone"),
        (secret().replace("2026-01-05T00:00", "monday"), 1, "a local time"),
        (secret().replace('hidden = "always"', "hidden = [50, 60]"), 3, "published without noise"),
        (secret().replace('start = "2026-01-05T00:00"\n', ""), 1, "zone needs start"),
        (secret().replace("epsilon = 1\n", "", 1), 5, "has no epsilon"),
        ('promise = "both"\n' + secret(), 1, "'windowed' or 'joint'"),
        ("horizon = 9\n", 1, "there is no"),
        ("= 3\n", None, "cannot be read"),
    ],
)
def test_mistakes_are_told_with_their_line(text, line, words):
    """One sentence: the line, the constraint, the remedy."""
    with pytest.raises(InvalidInput, match=words) as caught:
        read_policy(text, released=10)
    assert line is None or f"line {line}:" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_json_mistakes_have_lines_too(tmp_path):
    """A file is named, and the line is that of the value."""
    text = (EXAMPLES / "two_households.json").read_text().replace('"height": 3', '"height": -3')
    path = tmp_path / "mine.json"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=r"mine\.json, line 17: height") as caught:
        read_policy(path)
    assert "Traceback" not in str(caught.value)
    with pytest.raises(InvalidInput, match="cannot be read; give the path"):
        read_policy(tmp_path / "absent.toml")


def test_the_example_reads_as_meant():
    """Hours, stretches of time and decimals."""
    policy = read_policy(EXAMPLES / "household.toml")
    home, late, _, holiday = policy.specifications[0].secrets
    assert (home.height, home.duration) == (Fraction(1, 2), 4)
    assert [str(rule) for rule in late.recurring] == [
        "every weekday 21:00-24:00",
        "every weekend 22:00-02:00",
    ]
    assert list(holiday.intervals) == [(40 * 96 + 1, 48 * 96)]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Secret(1, 2, [], 1), "at least one hiding interval"),
        (lambda: Secret(1, 2, "sometimes", 1), "always"),
        (lambda: Secret(1, 2, [(0, 4)], 1), "begin the hiding interval with the stream"),
        (lambda: Secret(1, 2, ["now"], 1), "pairs"),
        (lambda: Intervals([(1, 2**70)]), "pairs"),
        (lambda: Recurring((), 0, 60), "at least one day"),
        (lambda: Specification((HOME, HOME), "h"), "drop the duplicate"),
        (lambda: Specification((HOME,), "h", begins=9, ends=3), "at least 9"),
        (lambda: tg.Swellfish(specifications=[Specification((HOME,))], promise="all"), "windowed"),
        (lambda: tg.Swellfish(specifications=[Specification((HOME,))], rho=1), "absent for Swellfish"),
        (lambda: tg.Swellfish(specifications=[Specification((HOME,))], allowance=-1), "not negative"),
        (lambda: Clock("2026-01-05T00:00", "1 fortnight"), "a number of seconds, minutes or hours"),
        (lambda: Clock("2026-01-05T00:00+01:00"), "without an offset"),
        (lambda: tg.Swellfish(specifications=[Specification((Secret(Fraction(1, 2**40), 1, "always", 1),))]).resolution,
         "fewer digits"),
    ],
)  # fmt: skip
def test_bad_python_values(make, words):
    """Refused in one sentence."""
    with pytest.raises(InvalidParameter, match=words) as caught:
        make()
    assert len(str(caught.value).splitlines()) == 1


ZONES = [
    ("Pacific/Apia", "2011-12-27T00:00"),  # 30 December was left out
    ("Pacific/Fakaofo", "2011-12-27T00:00"),
    ("Pacific/Kwajalein", "1993-08-18T00:00"),
    ("Pacific/Kiritimati", "1994-12-28T00:00"),
    ("Australia/Lord_Howe", "2026-04-02T00:00"),
    ("Europe/Berlin", "2026-03-26T00:00"),
    ("Europe/Berlin", "2026-10-22T00:00"),
]
RULES = [
    "every day 00:00-24:00",
    "every day 18:00-23:00",
    "every day 20:00-19:00",
    "every weekday 22:00-06:00",
]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("zone", "start"), ZONES, ids=lambda value: value)
def test_a_w_event_policy_covers_every_step_of_a_zone(zone, start, rule):
    """Clock changes, and days that a zone skipped, never raise a step above what `as_w_event` promises."""
    clock = Clock(start, "30 min", zone)
    secret = Secret(2, 3, [], "1/4", "evening", recurring=rule)
    policy = tg.Swellfish(specifications=[Specification((HOME, secret), "h")], clock=clock)
    highest = max(policy.temporal_sensitivity(1, 48 * 8)[0])
    assert highest <= policy.as_w_event().max_change
    assert highest <= policy.max_change


def test_a_skipped_day_is_where_two_evenings_meet():
    """The step that a bound of one evening a day would miss: Apia on 31 December 2011; years later all is as before."""
    evening = Secret(2, 3, [], "1/4", "evening", recurring="every day 18:00-23:00")
    house = Specification((HOME, evening), "h")
    clock = Clock("2011-12-27T00:00", "30 min", "Pacific/Apia")
    policy = tg.Swellfish(specifications=[house], clock=clock)
    assert max(policy.temporal_sensitivity(1, 48 * 8)[0]) == HOME.height + 2 * evening.height
    later = tg.Swellfish(specifications=[house], clock=Clock("2026-01-05T00:00", "30 min", "Pacific/Apia"))
    assert later.as_w_event().max_change == HOME.height + evening.height


def test_composition_per_secret():
    """Theorem 5 multiplies every ε; Theorem 6 doubles only what reaches across the split."""
    clock = Clock("2026-01-05T00:00", "1 h")
    evening = Secret(2, 2, [], "1/4", "evening", recurring="every day 18:00-23:00")
    policy = tg.Swellfish(
        specifications=[Specification((HOME, OVEN, evening), "h")], clock=clock, delta="1e-6"
    )
    twice = after_releases(policy, 2)
    assert [Fraction(s.epsilon) for s in twice.secrets] == [2, 2, Fraction(1, 2)]
    assert twice.delta == Fraction(2, 10**6)
    assert [level.secret for level in after_split(policy, 10)] == ["home"]
    assert {level.delta for level in after_split(policy, 20)} == {Fraction(2, 10**6)}
    assert str(after_split(policy, 10)[0]).endswith("at ε = 2, δ = 2e-06")
    assert [(level.secret, level.interval) for level in after_split(policy, 20)][1:] == [
        ("evening", (19, 23))
    ]
    with pytest.raises(InvalidParameter):
        after_releases(policy, 10**6)


@pytest.mark.slow
def test_a_million_secrets_with_recurring_rules_and_clock_changes():
    """250 households, 157,680 steps: swept in one go, in bounded memory, equal to the definition where sampled."""
    houses, clock = households.declared(250, seed=3)
    houses = [
        Specification(
            (*h.secrets, Secret("0.7", 2, [], "0.6", "lunch", recurring="every day 11:30-13:30")), h.label
        )
        for h in houses
    ]
    policy = tg.Swellfish(specifications=houses, clock=clock, horizon=157_680)
    promises = Promises(policy, policy.window << 20)
    units = promises.windowed(1, 157_680)
    stretch = promises.around(1, 157_680)
    assert len(stretch) >= 1_000_000
    arrays = (stretch.firsts, stretch.lasts, stretch.heights, stretch.durations, stretch.limits, stretch.caps)
    assert sum(array.nbytes for array in arrays) < 200_000_000
    change = [clock.step_at(f"2027-03-28T{hour:02d}:30") for hour in (1, 3)]
    for step in [*change, 157_680]:
        sums = policy.temporal_sensitivity(step, step)
        exact = min(
            promises.limit(each) // each.duration // int(total[0] * promises.resolution)
            for house, total in zip(policy.specifications, sums, strict=True)
            for each in house.relevant(step, clock)
        )
        assert units[step - 1] == exact


@settings(max_examples=30)
@given(st.integers(1, 400), st.integers(0, 60), st.integers(1, 12))
def test_generated_households_are_valid(seed, count, days):
    """Every use is hidden for five durations, and there is always a baseline."""
    for house in households.recorded(households=1 + count % 3, days=days, seed=seed):
        assert house.uncovered(None, days * 96) is None
        for each in house.secrets[1:]:
            rows = each.intervals.rows
            assert (rows[:, 1] - rows[:, 0] + 1 >= each.duration).all()
            assert rows.max() <= days * 96
