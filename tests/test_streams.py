from __future__ import annotations

import numpy as np

from tidegate.datasets.streams import BUILDINGS, campus
from tidegate.ingest import Contributions


def test_the_same_seed_gives_the_same_stream() -> None:
    """Sample data is repeatable, and another seed gives other data."""
    first, again, other = (campus(weeks=1, devices=200, seed=seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.times, again.times)
    np.testing.assert_array_equal(first.units, again.units)
    assert len(first) != len(other) or (first.units != other.units).any()


def test_the_stream_has_the_shape_of_days_and_weeks() -> None:
    """Lunch peaks at noon, weekends are quiet, the residence sleeps, exams fill the library."""
    events = campus(weeks=4, devices=2000)
    assert (np.diff(events.times) >= 0).all()
    assert events.times.min() >= events.start
    assert events.times.max() < events.start + events.steps * events.length
    hourly = Contributions(
        start=events.start, length=events.length, steps=events.steps, columns=len(BUILDINGS)
    )
    counts = hourly.count(events.units, events.columns, events.times).reshape(4, 7, 24, len(BUILDINGS))
    building = {name: counts[..., column] for column, name in enumerate(BUILDINGS)}
    assert building["Cafeteria"][0, :5].mean(axis=0).argmax() in (12, 13)
    assert building["Lecture halls"][:, 5:].max() < building["Lecture halls"][:3, :5].max() / 10
    assert building["Residence"][0, :5, 3].mean() > 2 * building["Residence"][0, :5, 14].mean()
    assert building["Library"][3, :5].sum() > 1.5 * building["Library"][0, :5].sum()
    assert building["Sports centre"][2, 4].max() > 3 * building["Sports centre"][0, 4].max()


def test_devices_move_between_buildings() -> None:
    """Within an hour some devices are seen in more than one building: there is something to bound."""
    events = campus(weeks=1, devices=500)
    clock = {"start": events.start, "length": events.length, "steps": events.steps, "columns": len(BUILDINGS)}
    once = Contributions(**clock).count(events.units, events.columns, events.times).sum()
    everywhere = Contributions(**clock, most=6).count(events.units, events.columns, events.times).sum()
    assert 1.02 < everywhere / once < 1.3
