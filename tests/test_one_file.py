"""Everything from one file, on trips and hardly any noise: every number is computed again from the input."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from tests.test_walk import Find

from tidegate.cli import main

Values = npt.NDArray[np.float64]
FILE, ZONE = "citibike_trips.parquet", "America/New_York"
STEPS = 1200  # hours, over the end of summer time
DISTRICTS = ("west", "middle", "east")
HEAD = """[source]
location = "{trips}"
time = "start_ts"
unit = "bike_id"
column = "start_station_id"
value = "tripduration_s"
[steps]
start = "2015-09-21T00:00"
length = "1h"
zone = "America/New_York"
count = {count}
[protect]
epsilon = "10000000"
window = "25h"
[sink]
location = "released.csv"
"""
UNIFORM = '[mechanism]\nname = "Uniform"\n'
TRIPS = """[[query]]
name = "trips"
aggregate = "count"
most = 3
lookup = "districts.csv"
hierarchy = "areas.csv"
where = 'user_type == "Subscriber" and tripduration_s < 3600'
level = 30
"""
BIKES = '[[query]]\nname = "bikes"\naggregate = "distinct"\nlevel = 100\n'
TIME = '[[query]]\nname = "time"\naggregate = "sum"\nclip = ["60", "1800"]\nmost = 2\nlevel = 50000\n'
TYPICAL = """[[query]]
name = "typical"
aggregate = "quantile"
clip = ["0", "3600"]
bins = 72
quantiles = ["1/4", "1/2", "9/10"]
where = 'not (user_type in ["Customer"]) or tripduration_s >= 1000'
share = "1/10"
"""
ANSWERS = {
    "day": 'query = "trips"\nkind = "window"\nwindow = "calendar day"',
    "week": 'query = "bikes"\nkind = "window"\nwindow = "calendar week"\nstatistic = "mean"',
    "six": 'query = "trips"\nkind = "window"\nwindow = "6h"\nstatistic = "mean"',
    "jump": 'query = "bikes"\nkind = "jump"\nthreshold = "39.5"\nwindow = 24',
    "low": 'query = "bikes"\nkind = "low"\nwindow = 3\nthreshold = 50',
    "alarm": 'query = "trips"\nkind = "alarm"\nthreshold = 20\ncolumns = ["west", "city"]',
    "calm": 'query = "time"\nkind = "alarm"\nthreshold = 1000\ndirection = "below"',
    "average": 'query = "bikes"\nkind = "average"',
    "decayed": 'query = "time"\nkind = "decayed"\nhalf_life = "24h"',
    "ratio": 'query = "time"\nkind = "ratio"\nby_query = "bikes"\nwindow = 24',
    "top": 'query = "trips"\nkind = "top"\ncount = 2\ncolumns = ["west", "middle", "east"]',
    "tomorrow": 'query = "bikes"\nkind = "forecast"\nahead = 24',
}


class City:
    """The trips, and what is true about them.

    Parameters
    ----------
    trips
        The file.
    folder
        Where the public tables are written.
    """

    def __init__(self, trips: Path, folder: Path) -> None:
        self.path = trips
        rows = pl.read_parquet(self.path)
        begin = datetime(2015, 9, 21, tzinfo=ZoneInfo(ZONE))
        at = pl.col("start_ts").dt.replace_time_zone(ZONE, ambiguous="earliest", non_existent="null")
        rows = rows.with_columns(at=at).with_columns(
            step=(pl.col("at") - pl.lit(begin)).dt.total_seconds().floordiv(3600) + 1
        )
        stations = sorted(rows["start_station_id"].unique().to_list())
        self.rows = rows.filter(pl.col("step").is_between(1, STEPS)).sort("at", "tripduration_s")
        hours = pl.lit(begin) + pl.duration(hours=pl.int_range(STEPS))
        self.hours = pl.select(hours.dt.convert_time_zone(ZONE)).to_series()
        self.districts = {each: DISTRICTS[at % 3] for at, each in enumerate(stations) if at % 7}
        lines = [f"{station},{district}\n" for station, district in self.districts.items()]
        (folder / "districts.csv").write_text("station,district\n" + "".join(lines))
        above = "west,shore\nmiddle,shore\neast,inland\nshore,city\ninland,city\n"
        (folder / "areas.csv").write_text("node,parent\n" + above)

    def kept(self, rows: pl.DataFrame, most: int) -> pl.DataFrame:
        """The first records of each bike in a step."""
        return rows.group_by("step", "bike_id", maintain_order=True).head(most)

    def by_step(self, rows: pl.DataFrame, value: pl.Expr) -> Values:
        """A number for every step, 0 where there are no records."""
        found, each = np.zeros(STEPS), rows.group_by("step").agg(value.alias("found"))
        found[each["step"].to_numpy() - 1] = each["found"].to_numpy()
        return found

    def bikes(self) -> Values:
        """How many different ones are used."""
        return self.by_step(self.rows, pl.col("bike_id").n_unique())

    def time(self, low: int = 60, high: int = 1800) -> Values:
        """How long the first two trips of each bike last together."""
        return self.by_step(self.kept(self.rows, 2), pl.col("tripduration_s").clip(low, high).sum())

    def trips(self) -> dict[str, Values]:
        """Of subscribers, by district and area."""
        rows = self.rows.filter((pl.col("user_type") == "Subscriber") & (pl.col("tripduration_s") < 3600))
        places = pl.col("start_station_id").replace_strict(self.districts, default=None)
        rows = self.kept(rows.with_columns(place=places).drop_nulls("place"), 3)
        found = {each: self.by_step(rows.filter(pl.col("place") == each), pl.len()) for each in DISTRICTS}
        found["shore"], found["inland"] = found["west"] + found["middle"], found["east"]
        return found | {"city": found["shore"] + found["inland"]}


def column(path: Path, name: str) -> Values:
    """A column of an output, NaN where it says nothing."""
    values = pl.read_csv(path, infer_schema_length=None)[name].cast(pl.Float64, strict=False)
    return np.array(values.fill_null(np.nan))


def rolling(values: Values, window: int) -> Values:
    """Sums of the last steps, of fewer at the beginning."""
    return np.array(pl.Series(values).rolling_sum(window, min_samples=1))


@pytest.fixture(scope="module")
def released(shared_data: Find, tmp_path_factory: pytest.TempPathFactory) -> tuple[City, Path]:
    """Four statistics and all kinds of answers."""
    folder = tmp_path_factory.mktemp("city")
    city = City(shared_data(FILE), folder)
    answers = "".join(f'[[answer]]\nname = "{name}"\n{keys}\n' for name, keys in ANSWERS.items())
    text = HEAD.format(trips=city.path, count=STEPS) + UNIFORM + TRIPS + BIKES + TIME + TYPICAL + answers
    (folder / "tidegate.toml").write_text(text)
    stream = str(folder / "tidegate.toml")
    for command in ("check", "explain", "release"):
        assert main([command, stream]) == 0
    assert main(["ledger", "verify", str(folder / "tidegate.ledger")]) == 0
    return city, folder


def test_statistics_are_those_of_the_file(released: tuple[City, Path]) -> None:
    """With a condition, a table of districts, a hierarchy, bounds and clips; shares follow from levels."""
    city, folder = released
    assert (column(folder / "released-bikes.csv", "all") == city.bikes()).all()
    assert (column(folder / "released-time.csv", "all") == city.time()).all()
    for name, true in city.trips().items():
        assert (column(folder / "released-trips.csv", name) == true).all(), name


def test_quantiles_are_in_the_bins_of_those_of_the_file(released: tuple[City, Path]) -> None:
    """And within their intervals; those of hours without a trip are the whole range."""
    city, folder = released
    wanted = (pl.col("user_type") != "Customer") | (pl.col("tripduration_s") >= 1000)
    rows = city.kept(city.rows.filter(wanted), 1).with_columns(pl.col("tripduration_s").clip(0, 3600))
    by_step = {step: np.array(values) for step, values in rows.group_by("step").agg("tripduration_s").rows()}
    for name, part in (("quantile 0.25", 0.25), ("median", 0.5), ("quantile 0.9", 0.9)):
        read, low, high = (
            column(folder / "released-typical.csv", name + end) for end in ("", " low", " high")
        )
        assert ((low <= read) & (read <= high)).all()
        for step in range(1, STEPS + 1):
            if step not in by_step:
                assert (low[step - 1], high[step - 1]) == (0, 3600)
                continue
            below, above = (
                np.quantile(by_step[step], part, method=how) for how in ("inverted_cdf", "higher")
            )
            assert min(below, 3599) // 50 * 50 <= read[step - 1] <= min(above, 3599) // 50 * 50 + 50
            assert low[step - 1] <= below <= high[step - 1]


def test_answers_are_those_of_the_file(released: tuple[City, Path]) -> None:
    """Of calendar days and weeks, of which one has an hour more, of windows, and whatever else can be asked."""
    city, folder = released
    bikes, time, trips = city.bikes(), city.time(), city.trips()

    def answer(name: str, of: str = "", what: str = "value") -> Values:
        found = pl.read_csv(folder / f"{name}.csv", infer_schema_length=None)
        found = found.filter(pl.col("column") == of) if of else found
        values = found[what].cast(pl.Float64, strict=False)
        return np.array(values.fill_null(np.nan))

    def within(period: pl.Series, values: Values) -> tuple[Values, Values, Values]:
        frame = pl.DataFrame({"period": period, "value": values})
        each = frame.select(
            pl.col("value").cum_sum().over("period"),
            number=pl.int_range(1, pl.len() + 1).over("period"),
            length=pl.len().over("period"),
        )
        return tuple(np.array(each[name]) for name in ("value", "number", "length"))  # type: ignore[return-value]

    for name, true in trips.items():
        summed, number, length = within(city.hours.dt.date(), true)
        assert set(length) >= {24, 25}
        assert (answer("day", name) == summed).all()
        whole = length >= 24  # the last day is not over
        assert answer("day", name, "part")[whole] == pytest.approx((number / length)[whole], abs=1e-5)
        mean = np.array(pl.Series(true).rolling_mean(6, min_samples=1))
        # parents are the sums of rounded children, of which there are three
        assert answer("six", name) == pytest.approx(mean, abs=0.0151)
    summed, number, _ = within(city.hours.dt.truncate("1w"), bikes)
    assert answer("week") == pytest.approx(summed / number)
    assert (answer("jump") == bikes[24:] - bikes[:-24]).all()
    assert (answer("low") == rolling(bikes, 3)).all()
    assert answer("average") == pytest.approx(np.cumsum(bikes) / np.arange(1, STEPS + 1))
    fading = 0.5 ** (np.arange(STEPS) / 24)
    decayed = np.convolve(time, fading)[:STEPS] / np.cumsum(fading)
    assert answer("decayed") == pytest.approx(decayed)
    with np.errstate(invalid="ignore"):
        ratio = rolling(time, 24) / rolling(bikes, 24)
    assert (np.isnan(answer("ratio")) == np.isnan(ratio)).all()
    assert answer("ratio") == pytest.approx(ratio, rel=0.01, nan_ok=True)


def test_alarms_ranks_and_forecasts_are_those_of_the_file(released: tuple[City, Path]) -> None:
    """Alarms at the steps of the truth, all of them certain; ranks that hold; forecasts that hold nine times of ten."""
    city, folder = released
    bikes, time, trips = city.bikes(), city.time(), city.trips()

    def rows(name: str, of: str = "all") -> pl.DataFrame:
        found = pl.read_csv(folder / f"{name}.csv", infer_schema_length=None)
        return found.filter(pl.col("column") == of) if "rank" not in found.columns else found

    raised = {
        ("jump", "all"): np.abs(bikes[24:] - bikes[:-24]) > 39.5,  # at the border itself nothing is certain
        ("low", "all"): (rolling(bikes, 3) < 50) & (np.arange(STEPS) >= 2),
        ("alarm", "west"): trips["west"] > 20,
        ("alarm", "city"): trips["city"] > 20,
        ("calm", "all"): time < 1000,
    }
    for (name, of), true in raised.items():
        found = rows(name, of)
        assert true.any(), name
        assert (np.array(found["alarm"]) == true).all(), name
        assert (found["alarm"] == found["certain"]).all(), name
    for row in rows("top").iter_rows(named=True):
        true_values = [trips[each][row["step"] - 1] for each in DISTRICTS]
        assert row["value"] == trips[row["column"]][row["step"] - 1] == sorted(true_values)[-row["rank"]]
        assert row["best"] <= 1 + sum(value > row["value"] for value in true_values) <= row["worst"]
    forecast = rows("tomorrow").filter(pl.col("step") + pl.col("ahead") <= STEPS)
    true = bikes[np.array(forecast["step"] + forecast["ahead"]) - 1]
    held = (np.array(forecast["low"]) <= true) & (true <= np.array(forecast["high"]))
    assert 0.85 <= held.mean() <= 0.97
    assert np.abs(np.array(forecast["value"]) - true).mean() < np.abs(bikes - bikes.mean()).mean() / 1.5


def test_an_amended_stream_goes_on_with_the_numbers_of_the_file(shared_data: Find, tmp_path: Path) -> None:
    """What stays continues; what changes starts again with its own bounds; a new query is there."""
    city = City(shared_data(FILE), tmp_path)
    stream, half = tmp_path / "tidegate.toml", STEPS // 2
    shared = BIKES + 'share = "1/2"\n', TIME + 'share = "1/4"\n'
    stream.write_text(HEAD.format(trips=city.path, count=half) + UNIFORM + "".join(shared))
    assert main(["release", str(stream)]) == 0
    long = '[[query]]\nname = "long"\nwhere = "tripduration_s >= 1800"\nmost = 5\nshare = "1/4"\n'
    later = [shared[0], shared[1].replace('"60", "1800"', '"0", "600"'), long]
    stream.write_text(HEAD.format(trips=city.path, count=STEPS) + UNIFORM + "".join(later))
    assert main(["release", str(stream)]) == 2
    assert main(["amend", str(stream)]) == 0
    assert main(["release", str(stream)]) == 0
    assert main(["ledger", "verify", str(tmp_path / "tidegate.ledger")]) == 0
    assert (column(tmp_path / "released-bikes.csv", "all") == city.bikes()).all()
    assert (column(tmp_path / "released-time.csv", "all") == city.time()[:half]).all()
    rows = city.kept(city.rows.filter(pl.col("tripduration_s") >= 1800), 5)
    begun = {"time": city.time(0, 600), "long": city.by_step(rows, pl.len())}
    for name, true in begun.items():
        (path,) = tmp_path.glob(f"released-{name}.from-*.csv")
        first = int(path.stem.rpartition("-")[2])
        assert half < first <= half + 25  # silent for at most w − 1 steps
        assert (column(path, "all") == true[first - 1 :]).all(), name


def test_a_pan_private_mechanism_is_refused_and_leaves_nothing_behind(
    shared_data: Find, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Events would be added up outside of it; with the line of the key, and without a ledger or an output."""
    city = City(shared_data(FILE), tmp_path)
    stream = tmp_path / "tidegate.toml"
    query = '[query]\naggregate = "distinct"\ncolumns = ["519"]\n'
    query += '[mechanism]\nname = "BudgetAbsorption"\npan_private = true\n'
    stream.write_text(HEAD.format(trips=city.path, count=STEPS) + query)
    before = sorted(tmp_path.iterdir())
    assert main(["release", str(stream)]) == 2
    assert f"line {len(stream.read_text().splitlines())}: pan_private is refused" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before
