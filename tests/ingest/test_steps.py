from __future__ import annotations

import datetime
import time
import zoneinfo

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import InvalidParameter
from tidegate.ingest import PublicClock, Steps
from tidegate.ingest.errors import BadTimes, NotNumeric
from tidegate.ingest.times import TimeReader
from tidegate.policy import Clock

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


def micro(text: str) -> int:
    """Microseconds since 1970 of an ISO time with an offset."""
    return int(datetime.datetime.fromisoformat(text).timestamp()) * 10**6


def number(steps: Steps, text: str) -> int:
    """The step of one moment."""
    return int(steps.numbers(np.array([micro(text)]))[0])


def test_steps_are_counted_from_one_and_half_open() -> None:
    """A boundary belongs to the step that begins there; outside of the clock is step 0."""
    steps = Steps(start="2026-03-02T00:00Z", length="1h", count=2)
    moments = ["2026-03-01T23:59:59Z", "2026-03-02T00:00:00Z", "2026-03-02T01:00:00Z", "2026-03-02T02:00:00Z"]
    assert [number(steps, moment) for moment in moments] == [0, 1, 2, 0]


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-07-01", 24)])
def test_summer_time_changes_no_hour(day: str, hours: int) -> None:
    """Hourly steps have 3600 seconds on every day; a local day has 23, 24 or 25 of them."""
    steps = Steps(start=day, length="1h", zone="Europe/Berlin")
    end = datetime.datetime.combine(
        datetime.date.fromisoformat(day) + datetime.timedelta(days=1), datetime.time(), BERLIN
    )
    assert number(steps, end.isoformat()) == hours + 1
    lengths = {steps.boundary(t + 1) - steps.boundary(t) for t in range(1, 30)}
    assert lengths == {3600 * 10**6}


@pytest.mark.parametrize(("start", "hours"), [("2026-03-28", [24, 23, 24]), ("2026-10-24", [24, 25, 24])])
def test_calendar_days_follow_the_time_zone(start: str, hours: list[int]) -> None:
    """A calendar day runs from midnight to midnight."""
    steps = Steps(start=start, length="calendar day", zone="Europe/Berlin", count=3)
    assert [(steps.boundary(t + 1) - steps.boundary(t)) / 3.6e9 for t in (1, 2, 3)] == hours
    for t in (1, 2, 3):
        edges = np.array([steps.boundary(t), steps.boundary(t + 1) - 1])
        assert steps.numbers(edges).tolist() == [t, t]
    assert steps.numbers(np.array([steps.boundary(1) - 1, steps.boundary(4)])).tolist() == [0, 0]
    assert steps.closed_by(steps.boundary(3) / 1e6) == 2


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 10**6), st.none() | st.integers(1, 10**6))
def test_no_time_wraps_around(moment: int, length: int, count: int | None) -> None:
    """Steps agree with exact integers at the ends of 64 bits."""
    steps = Steps(start="2026-01-01", length=length, count=count)
    exactly = (moment - steps.origin) // (length * 10**6) + 1
    inside = moment >= steps.origin and moment < 2**62 and (count is None or exactly <= count)
    assert steps.numbers(np.array([moment])).tolist() == [exactly if inside else 0]


def test_a_step_closes_after_its_lateness_and_never_before() -> None:
    """The public clock alone closes steps."""
    steps = Steps(start="1970-01-01", length=10, lateness=3, count=4)
    assert [steps.closed_by(now) for now in (0, 12.9, 13, 22.9, 23, 1000)] == [0, 0, 1, 1, 2, 4]


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"zone": "Mars/Olympus"}, "zone"),
        ({"start": "yesterday"}, "start"),
        ({"length": "1d", "zone": "Europe/Berlin"}, "length"),
        ({"length": "1 fortnight"}, "length"),
        ({"length": 0}, "length"),
        ({"count": 0}, "count"),
        ({"count": 2**62}, "count"),
        ({"start": "2026-03-29T02:30", "zone": "Europe/Berlin"}, "start"),
        ({"start": "2026-03-29T05:00", "length": "calendar day"}, "start"),
        ({"length": "calendar day", "count": 2_000_000}, "count"),
    ],
)
def test_wrong_clocks_are_refused(wrong: dict[str, object], name: str) -> None:
    """The constructor validates and names the parameter."""
    with pytest.raises(InvalidParameter, match=name):
        Steps(**{"start": "2026-03-29", "length": "1h", **wrong})  # type: ignore[arg-type]


def test_the_public_clock_does_not_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    """Setting the system's time has no effect on a running clock."""
    clock = PublicClock()
    before = clock()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0 <= clock() - before < 5


def read(values: object, format: str = "auto", zone: str = "UTC", dtype: object = None) -> list[int]:
    """Times in seconds."""
    series = pl.Series(values, dtype=dtype)  # type: ignore[arg-type]
    return [value // 10**6 for value in TimeReader(format, zone).read(series)]


def test_times_of_every_kind_agree() -> None:
    """Numbers, text, dates and timestamps of one moment are one moment."""
    moment = datetime.datetime(2026, 3, 2, 12, 30, tzinfo=datetime.UTC)
    seconds = int(moment.timestamp())
    naive = moment.replace(tzinfo=None)
    assert read([seconds]) == [seconds]
    assert read([float(seconds)]) == [seconds]
    assert read([seconds * 1000], "milliseconds") == [seconds]
    assert read([seconds * 10**9], "nanoseconds") == [seconds]
    assert read([str(seconds)], "seconds") == [seconds]
    assert read([moment]) == read([naive]) == [seconds]
    assert read([moment.astimezone(BERLIN)]) == [seconds]
    for text in ("2026-03-02T12:30:00Z", "2026-03-02 13:30+01:00", "2026-03-02T05:30:00.000-0700"):
        assert read([text]) == [seconds]
    assert read(["02.03.2026 12:30"], "%d.%m.%Y %H:%M") == [seconds]
    assert read(["2026-03-02T13:30", "2026-03-02 13:30:00"], zone="Europe/Berlin") == [seconds, seconds]
    assert read([datetime.date(2026, 3, 2)]) == [seconds - 45000]


def test_local_times_at_the_ends_of_summer_time() -> None:
    """A repeated hour means the earlier one; a skipped hour is read as if the clocks had not changed."""
    utc = datetime.UTC
    repeated = datetime.datetime(2026, 10, 25, 0, 30, tzinfo=utc).timestamp()
    skipped = datetime.datetime(2026, 3, 29, 1, 30, tzinfo=utc).timestamp()
    assert read(["2026-10-25T02:30"], zone="Europe/Berlin") == [repeated]
    assert read(["2026-03-29T02:30", "2026-03-29T01:30"], zone="Europe/Berlin") == [skipped, skipped - 3600]


def test_a_time_with_an_offset_is_exact_and_others_are_in_the_zone() -> None:
    """Each is read for itself, in one column and in several."""
    assert len(set(read(["2026-03-02T12:00+01:00", "2026-03-02T11:00Z", "2026-03-02T05:00-0600"]))) == 1
    mixed = ["2026-03-02T12:00+01:00", "2026-03-02T12:00", "2026-03-02T11:00:00z", "1772449200"]
    assert len(set(read(mixed, zone="Europe/Berlin"))) == 1
    reader = TimeReader(zone="Europe/Berlin")
    naive, aware = datetime.datetime(2026, 1, 1, 1), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    assert reader.read(pl.Series([naive])).to_list() == reader.read(pl.Series([aware])).to_list()


@pytest.mark.parametrize(
    ("values", "format", "error"),
    [
        (["secret-marker"], "auto", BadTimes),
        (["secret-marker"], "seconds", NotNumeric),
        (["2026-13-41T00:00"], "iso", BadTimes),
        ([True], "auto", BadTimes),
        ([5], "iso", NotNumeric),
    ],
)
def test_unreadable_times_are_refused_without_them(
    values: list[object], format: str, error: type[Exception]
) -> None:
    """The message says what to declare and quotes nothing."""
    with pytest.raises(error) as caught:
        read(values, format)
    assert "secret-marker" not in str(caught.value)
    assert caught.value.__context__ is None


def test_missing_times_stay_missing() -> None:
    """Null is not an error here; the record is left out later."""
    assert TimeReader().read(pl.Series([None, "2026-01-01T00:00"])).null_count() == 1
    assert TimeReader().read(pl.Series([None, None])).null_count() == 2
    with pytest.raises(InvalidParameter, match="time_format"):
        TimeReader("sometimes")


@pytest.mark.parametrize(
    ("length", "start", "begins"),
    [
        ("calendar week", "2026-03-23", ["2026-03-23", "2026-03-30", "2026-04-06"]),
        (
            "calendar month",
            "2025-12-01",
            ["2025-12-01", "2026-01-01", "2026-02-01", "2026-03-01", "2026-04-01"],
        ),
    ],
)
def test_calendar_weeks_and_months(length, start, begins):
    """They begin at local midnight, over the change to summer time too, and cover every moment once."""
    zone = zoneinfo.ZoneInfo("Europe/Berlin")
    steps = Steps(start=start, length=length, zone="Europe/Berlin", count=len(begins))
    found = [steps.begin(number).astimezone(zone) for number in range(1, len(begins) + 1)]
    assert [moment.strftime("%Y-%m-%d %H:%M") for moment in found] == [f"{day} 00:00" for day in begins]
    for number in range(1, len(begins) + 1):
        first, last = steps.boundary(number), steps.boundary(number + 1) - 1
        assert steps.numbers(np.array([first, last])).tolist() == [number, number]
    assert steps.numbers(np.array([steps.boundary(1) - 1, steps.boundary(len(begins) + 1)])).tolist() == [
        0,
        0,
    ]
    assert steps.closed_by(steps.boundary(3) / 1e6) == 2


def test_months_begin_on_their_first_day():
    """Another day is refused with the one to write."""
    with pytest.raises(InvalidParameter, match='write start = "2026-03-01"'):
        Steps(start="2026-03-15", length="calendar month", count=3)


@pytest.mark.parametrize("word", ["1d", "2 weeks", "week", "weekly", "3 months", "monthly"])
def test_words_of_calendars_are_answered_with_the_calendar(word):
    """Whoever writes a week finds out how to write it."""
    with pytest.raises(InvalidParameter, match="calendar week"):
        Steps(start="2026-03-01", length=word, count=3, zone="Europe/Berlin")


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_a_day_is_24_hours_where_clocks_are_never_changed(zone):
    """Both public clocks read the same durations."""
    assert Steps(start="2026-03-01", length="1 day", zone=zone).length == 86_400
    assert Clock("2026-03-01T00:00", "1d", zone).length == 86_400
    with pytest.raises(InvalidParameter, match="days of Europe/Berlin differ in length"):
        Clock("2026-03-01T00:00", "1d", "Europe/Berlin")


@pytest.mark.parametrize(
    ("length", "zone", "window", "steps"),
    [
        ("1h", "UTC", "1 day", 24),
        ("15min", "Europe/Berlin", "24h", 96),
        ("calendar day", "Europe/Berlin", "1 week", 7),
        ("calendar week", "Europe/Berlin", "2 weeks", 2),
        ("calendar month", "UTC", 12, 12),
    ],
)
def test_a_window_may_be_a_duration(length, zone, window, steps):
    """It is as many steps as it takes, whole ones."""
    assert Steps(start="2026-03-01", length=length, zone=zone).window("window", window) == steps


@pytest.mark.parametrize(
    ("length", "window", "words"),
    [
        ("1h", "1 day", "25h"),
        ("1h", "90 min", "write window = 2"),
        ("calendar week", "3 days", "write window = 1"),
        ("calendar month", "1 week", "months differ"),
    ],
)
def test_a_window_that_steps_do_not_divide_is_refused(length, window, words):
    """The sentence says what to write."""
    with pytest.raises(InvalidParameter, match=words):
        Steps(start="2026-03-01", length=length, zone="Europe/Berlin").window("window", window)
