"""Steps of whose phase no measurement says anything have no interval."""

from __future__ import annotations

import numpy as np
import pytest

import tidegate as tg
from tidegate.intervals import Phases


def half_widths(every: int, seasons: tuple[int, ...], cuts: tuple[int, ...] = ()) -> np.ndarray:
    """Of a stream of 96 steps that is measured now and then, in batches."""
    sample = tg.mechanisms.Sample(tg.WEvent(epsilon="1", window=24), every=every)
    session, found = tg.open(sample), []
    fold = Phases(sample.intervals(), seasons)
    state = fold.begin()
    for part in np.split(np.full((96, 1), 50), cuts):
        releases = session.push_batch(part)
        state = fold.attach(state, releases)
        found.append(releases.radii(0.9)[:, 0])
    return np.concatenate(found)


def test_hours_of_a_day_that_is_measured_once_have_no_interval() -> None:
    """The first day has not shown yet that it is; six hours are a quarter of it."""
    known = np.flatnonzero(np.isfinite(half_widths(24, (24,))))
    assert known.tolist() == [*range(7), 24, 48, 72]


def test_measured_in_each_quarter_all_steps_have_one() -> None:
    """Also on the first day of the first week, and where nobody knows of seasons."""
    assert np.isfinite(half_widths(6, (24, 168))).all()
    assert np.isfinite(half_widths(24, ())).all()


def test_days_that_are_always_the_same_weekday_have_none() -> None:
    """All but the measured ones; the day after the first is still part of a quarter."""
    known = np.flatnonzero(np.isfinite(half_widths(7, (7,))))
    assert known.tolist() == [0, 1, *range(7, 96, 7)]


def test_weekdays_that_take_turns_are_all_seen_in_the_end() -> None:
    """Every fifth day: the seventh measurement is the last weekday that was missing."""
    known = np.isfinite(half_widths(5, (7,)))
    assert np.flatnonzero(known[:31]).tolist() == [0, 1, 5, 10, 15, 20, 25, 30]
    assert known[30:].all()


@pytest.mark.parametrize("cuts", [(1,), (7, 8, 50), tuple(range(1, 96))])
def test_batches_do_not_matter(cuts: tuple[int, ...]) -> None:
    """What is known of a step depends on releases before it alone."""
    assert np.isfinite(half_widths(5, (7,), cuts)).tolist() == np.isfinite(half_widths(5, (7,))).tolist()
