"""Sample streams: public, made up, repeatable.

This file draws from numpy's seeded generators because what it makes is public sample data about people who
do not exist. It is the only file outside ``noise/entropy.py`` that touches randomness, and nothing in it may
ever be used for noise: a seeded generator protects nobody.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.exact import whole

HOUR = 3600
DAY = 24 * HOUR
WEEK = 7 * DAY

BUILDINGS = ("Lecture halls", "Library", "Cafeteria", "Laboratories", "Sports centre", "Residence")
_LECTURES, _LIBRARY, _CAFETERIA, _LABORATORIES, _SPORTS, _RESIDENCE = range(len(BUILDINGS))

# A Monday at midnight, UTC.
CAMPUS_START = int(datetime.datetime(2026, 3, 2, tzinfo=datetime.UTC).timestamp())

# For each building the share of a group that is in it, at each of 24 hours.
_Day = dict[int, npt.NDArray[np.float64]]


def _shape(points: str) -> npt.NDArray[np.float64]:
    """A daily shape through points "hour:share", straight lines in between, one value an hour."""
    hours, shares = zip(*(map(float, point.split(":")) for point in points.split()), strict=True)
    values: npt.NDArray[np.float64] = np.interp(np.arange(24), hours, shares, period=24)
    return values


_STUDENT_DAY: _Day = {
    _LECTURES: _shape("7:0 8:0.16 9:0.34 11:0.36 12:0.12 13:0.17 14:0.31 16:0.26 18:0.05 20:0"),
    _LIBRARY: _shape("7:0 9:0.05 11:0.09 13:0.10 15:0.14 17:0.15 20:0.11 22:0.05 24:0.005"),
    _CAFETERIA: _shape("7:0 8:0.04 10:0.03 11:0.06 12:0.30 13:0.22 14:0.05 16:0.04 18:0.09 20:0"),
    _LABORATORIES: _shape("8:0 9:0.05 11:0.06 12:0.02 14:0.10 16:0.10 18:0.03 20:0"),
    _SPORTS: _shape("7:0 8:0.01 12:0.015 16:0.02 18:0.06 20:0.05 22:0"),
}
_STUDENT_WEEKEND: _Day = {
    _LIBRARY: _shape("9:0 11:0.05 15:0.08 18:0.05 21:0"),
    _CAFETERIA: _shape("9:0 12:0.05 13:0.05 15:0.015 18:0.03 20:0"),
    _SPORTS: _shape("8:0 10:0.04 14:0.05 17:0.03 20:0"),
}
_STAFF_DAY: _Day = {
    _LECTURES: _shape("7:0 8:0.15 10:0.24 12:0.10 14:0.22 17:0.08 19:0"),
    _LIBRARY: _shape("7:0 8:0.06 16:0.07 18:0.04 21:0.02 22:0"),
    _CAFETERIA: _shape("6:0 7:0.05 10:0.05 12:0.34 13:0.20 14:0.05 18:0"),
    _LABORATORIES: _shape("6:0.01 8:0.28 10:0.40 12:0.22 14:0.42 16:0.36 18:0.12 21:0.03 23:0.01"),
    _SPORTS: _shape("16:0 18:0.03 20:0"),
}
_STAFF_WEEKEND: _Day = {
    _LABORATORIES: _shape("8:0.01 11:0.05 16:0.05 20:0.01"),
    _LIBRARY: _shape("9:0 11:0.02 17:0.02 19:0"),
}
_VISITOR_DAY: _Day = {
    _LECTURES: _shape("8:0 10:0.30 12:0.10 14:0.30 17:0"),
    _LIBRARY: _shape("9:0 11:0.20 15:0.20 18:0"),
    _CAFETERIA: _shape("9:0 10:0.10 12:0.40 13:0.30 15:0.10 17:0"),
    _SPORTS: _shape("14:0 18:0.10 21:0"),
}


def _with_residence(day: _Day, asleep: float) -> _Day:
    """The day of somebody who lives on campus: at home whenever nowhere else, mostly so at night."""
    home = _shape(f"0:{asleep} 6:{asleep} 8:0.62 10:0.34 12:0.26 15:0.26 18:0.42 22:0.72")
    return {**day, _RESIDENCE: home}


@dataclass(frozen=True)
class _Group:
    """People who live alike: their share of all devices and the shapes of their days."""

    share: float
    weekday: _Day
    saturday: _Day
    sunday: _Day
    days_present: float = 1.0


_GROUPS = (
    _Group(
        0.24,
        _with_residence(_STUDENT_DAY, 0.90),
        _with_residence(_STUDENT_WEEKEND, 0.66),
        _with_residence(_STUDENT_WEEKEND, 0.74),
    ),
    _Group(0.46, _STUDENT_DAY, _STUDENT_WEEKEND, _STUDENT_WEEKEND),
    _Group(0.14, _STAFF_DAY, _STAFF_WEEKEND, _STAFF_WEEKEND),
    _Group(0.16, _VISITOR_DAY, _VISITOR_DAY, {}, days_present=0.12),
)


@dataclass(frozen=True)
class Events:
    """Sightings of devices, in the order of time: who, where, when.

    Attributes
    ----------
    units : ndarray of int64
        The device.
    columns : ndarray of int64
        The building, as a position in ``names``.
    times : ndarray of int64
        Seconds since 1970, UTC.
    names : tuple of str
        Names of the columns.
    start, length, steps : int
        The public clock that the stream was made for: its start, one hour, and the number of hours.
    """

    units: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]
    names: tuple[str, ...]
    start: int
    length: int
    steps: int

    def __len__(self) -> int:
        return len(self.units)


def campus(weeks: int = 4, devices: int = 6000, seed: int = 1) -> Events:
    """Devices seen by the WiFi of a made-up campus: days, weeks, lunch, a concert and an exam week.

    Every device belongs to a group (residents, commuters, staff, visitors) and has a timetable of its own
    that comes back every week, from which it strays from day to day. From one hour to the next it mostly
    stays, sometimes moves, and while it moves it is seen in both buildings. In the third week there is a
    concert in the sports centre on Friday evening; the fourth is an exam week: few lectures, a full library.

    Parameters
    ----------
    weeks : int
        Number of weeks, from a Monday.
    devices : int
        Number of devices.
    seed : int
        The same seed gives the same stream.

    Returns
    -------
    Events

    Examples
    --------
    >>> events = campus(weeks=1, devices=100)
    >>> events.names[0], events.steps, len(events) > 1000
    ('Lecture halls', 168, True)
    """
    weeks = whole("weeks", weeks, most=520)
    devices = whole("devices", devices, most=10_000_000)
    random = np.random.default_rng(whole("seed", seed, least=0))
    sizes = np.diff(np.round(np.cumsum([0.0, *(group.share for group in _GROUPS)]) * devices).astype(int))
    whereabouts = np.concatenate(
        [_live(group, int(size), weeks, random) for group, size in zip(_GROUPS, sizes, strict=True)], axis=1
    )
    return _sightings(whereabouts, random)


def _live(group: _Group, size: int, weeks: int, random: np.random.Generator) -> npt.NDArray[np.int8]:
    """Where each device of a group is at each hour: hours × devices, −1 is off campus."""
    hours = weeks * 168
    # Each device has a slowly varying mood per hour; the shares of the buildings cut it into places.
    # Half of it returns every week (the timetable), half is fresh, so weeks are alike but not equal.
    timetable = _drift(168, size, random)
    fresh = _drift(hours, size, random)
    mood = np.tile(timetable, (weeks, 1)) * np.float32(0.75) + fresh * np.float32(0.66)
    spread = _normal_to_uniform(mood)
    edges = _edges(group, weeks, random)
    places = np.full((hours, size), -1, dtype=np.int8)
    for hour in range(hours):
        found = np.searchsorted(edges[hour], spread[hour], side="right")
        places[hour] = np.where(found < len(BUILDINGS), found, -1)
    # Some days a device does not come at all; most visitors come on few days.
    usual = min(group.days_present, 0.95)
    present = random.random((weeks * 7, size), dtype=np.float32) < usual
    places[~np.repeat(present, 24, axis=0)] = -1
    return places


def _drift(hours: int, size: int, random: np.random.Generator) -> npt.NDArray[np.float32]:
    """Standard normal series, one a device, that remember three quarters of the hour before."""
    series = random.standard_normal((hours, size), dtype=np.float32)
    memory = np.float32(0.75)
    news = np.float32(np.sqrt(1 - 0.75**2))
    for hour in range(1, hours):
        series[hour] = memory * series[hour - 1] + news * series[hour]
    return series


def _normal_to_uniform(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The normal distribution function, to three digits, which is plenty for made-up people."""
    uniform: npt.NDArray[np.float32] = 1 / (1 + np.exp(-1.702 * values))
    return uniform


def _edges(group: _Group, weeks: int, random: np.random.Generator) -> npt.NDArray[np.float64]:
    """Cumulative shares of the buildings for each hour: hours × buildings."""
    days = weeks * 7
    shares = np.zeros((days, 24, len(BUILDINGS)))
    for day in range(days):
        shapes = (group.saturday, group.sunday)[day % 7 - 5] if day % 7 >= 5 else group.weekday
        for building, shape in shapes.items():
            shares[day, :, building] = shape
    # Friday afternoons are quieter, and no two days are quite alike.
    shares[4::7, 14:, :_SPORTS] *= 0.65
    shares[:, :, :_RESIDENCE] *= random.lognormal(0, 0.06, size=(days, 1, _RESIDENCE))
    if weeks >= 3:
        _concert(shares[18])
    if weeks >= 4:
        _exams(shares[21:26])
    # Nobody is in two places: where the shares exceed one, the residence gives way, then all others.
    others = shares[..., :_RESIDENCE].sum(axis=-1, keepdims=True)
    shares[..., :_RESIDENCE] /= np.maximum(others, 1)
    shares[..., _RESIDENCE] = np.minimum(shares[..., _RESIDENCE], 1 - shares[..., :_RESIDENCE].sum(axis=-1))
    return np.cumsum(shares.reshape(days * 24, -1), axis=-1)


def _concert(day: npt.NDArray[np.float64]) -> None:
    """A concert in the sports centre in the evening: doors at 18, over by 23."""
    if day.any():
        day[18:23, _SPORTS] += [0.10, 0.26, 0.30, 0.28, 0.10]


def _exams(days: npt.NDArray[np.float64]) -> None:
    """An exam week: a third of the lectures, no practicals, a library that is full into the night."""
    days[..., _LECTURES] *= 0.35
    days[..., _LABORATORIES] *= 0.6
    days[:, 8:, _LIBRARY] *= np.linspace(2.0, 2.6, 16)


def _sightings(whereabouts: npt.NDArray[np.int8], random: np.random.Generator) -> Events:
    """Turn whereabouts into sightings: about one an hour, and one more where a device came from."""
    hours, devices = whereabouts.shape
    hour, unit = np.nonzero(whereabouts >= 0)
    column = whereabouts[hour, unit]
    second = random.integers(0, HOUR, size=len(hour), dtype=np.int64)
    # A device that has just moved is seen where it was, too, in the first minutes, two times out of five.
    before = whereabouts[np.maximum(hour - 1, 0), unit]
    moved = (hour > 0) & (before >= 0) & (before != column) & (random.random(len(hour)) < 0.4)
    again = random.random(len(hour)) < 0.15
    hours_seen = np.concatenate([hour, hour[moved], hour[again]])
    seconds = np.concatenate(
        [
            second,
            random.integers(0, HOUR // 6, size=int(moved.sum())),
            random.integers(0, HOUR, size=int(again.sum())),
        ]
    )
    units = np.concatenate([unit, unit[moved], unit[again]])
    columns = np.concatenate([column, before[moved], column[again]]).astype(np.int64)
    times = CAMPUS_START + hours_seen * HOUR + seconds
    order = np.argsort(times, kind="stable")
    # Devices get numbers without an order, so that a number does not tell the group.
    numbers = random.permutation(devices) + 1
    return Events(
        units=numbers[units[order]],
        columns=columns[order],
        times=times[order],
        names=BUILDINGS,
        start=CAMPUS_START,
        length=HOUR,
        steps=hours,
    )
