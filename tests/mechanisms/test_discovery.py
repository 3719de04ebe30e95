"""Discovery: what opens and closes, what is counted, what is read, and what a log holds of it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from tests.mechanisms.discovery_enumeration import Side

import tidegate as tg
from tidegate.composition.gaussian import gaussian_delta, tail
from tidegate.core.log import MemoryLog
from tidegate.core.sqlite_log import SQLiteLog
from tidegate.core.verify import verify
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.mechanisms.discovery import discover
from tidegate.mechanisms.discovery.calibration import Selection, calibrate, loss
from tidegate.mechanisms.discovery.discover import Discover
from tidegate.mechanisms.discovery.occurrences import Collector, Step, records
from tidegate.structures.category_names import named
from tidegate.testing.entropy import fixed_entropy

POLICY = tg.WEvent(epsilon="8", delta="1e-4", window=4)
SMALL = Discover(POLICY, columns=3)


def people(count, *categories, name="p"):
    """So many units in each category."""
    return [(f"{name} {category} {number}", category) for category in categories for number in range(count)]


def pushed(mechanism, stream, log=None):
    """Releases of a stream of pairs."""
    collector = mechanism.collector()
    return tg.open(mechanism, log).push_batch([collector.step(pairs) for pairs in stream])


# what opens and closes -----------------------------------------------------------------------------------------------


def test_a_category_opens_at_the_end_of_an_epoch_and_closes_at_the_end_of_another():
    """At the very step that ends the epoch; what is not open is counted in other."""
    stream = [people(80, "park")] * 8 + [people(3, "pond")] * 4 + [people(80, "park")] * 4
    releases = pushed(SMALL, stream)
    names = [set(releases.categories(at)) - {""} for at in range(16)]
    assert names == [set()] * 3 + [{"park"}] * 8 + [set()] * 4 + [{"park"}]
    assert releases.opened[10].max() == 4
    assert releases.opened[15].max() == 16
    assert 40 < releases[5].counts["park"] < 120
    assert releases[1].counts == {"other": releases.values[1, -1]}
    assert np.isnan(releases.values[1, :-1]).all()


def test_nobody_and_few_never_appear():
    """A category that one unit has stays in other, and names that nobody has are nowhere."""
    releases = pushed(SMALL, [[*people(80, "park"), ("spy", "a secret")]] * 40)
    shown = {name for at in range(40) for name in releases.categories(at)}
    assert shown == {"", "park"}


def test_the_largest_are_open_where_more_pass():
    """By released numbers; a free column goes to the next one."""
    mechanism = Discover(POLICY, columns=2, categories=3)
    sizes = {"a": 60, "b": 200, "c": 350}
    stream = [[(f"{name}{unit}", name) for name, many in sizes.items() for unit in range(many)]] * 4
    assert set(pushed(mechanism, stream).categories(3)) == {"b", "c"}


def test_open_categories_stay_below_the_threshold(monkeypatch):
    """They close below a part of it alone."""
    monkeypatch.setattr(
        discover, "gaussian", lambda source, stream, step, sigma, shape: np.zeros(shape, np.int64)
    )
    limit = SMALL.selection.threshold
    assert SMALL.staying == -(-limit // 2)
    sizes = [limit - 1, limit, SMALL.staying, SMALL.staying - 1, limit - 1]
    releases = pushed(SMALL, [people(size, "park") for size in sizes for _ in range(4)])
    assert ["park" in releases.categories(4 * epoch + 3) for epoch in range(5)] == [
        False,
        True,
        True,
        False,
        False,
    ]


def test_a_category_keeps_its_column():
    """Others that open and close do not move it."""
    mechanism = Discover(POLICY, columns=3)
    days = [("a", "b"), ("b",), ("b", "c"), ("c", "b", "d")]
    releases = pushed(mechanism, [people(90, *day) for day in days for _ in range(4)])
    places = [releases.categories(at).index("b") for at in (3, 7, 11, 15)]
    assert len(set(places)) == 1


def test_an_epoch_whose_end_is_passed_over_tests_nothing():
    """What is open stays, and nothing opens."""
    collector, session = SMALL.collector(), tg.open(SMALL)
    for step in (1, 2, 3, 4, 5, 6, 7, 9, 10, 11):
        name = "park" if step < 5 else "pond"
        release = session.push(collector.step(people(90, name), step), step=step)
    assert set(release.categories) == {"park", ""}
    release = session.push(collector.step([], 12), step=12)
    assert set(release.categories) == {"pond", ""}


def test_records_of_steps_that_the_session_has_not_begun_with_are_not_read():
    """A session that begins within an epoch tests the steps from there on."""
    collector, session = SMALL.collector(), tg.open(SMALL)
    for step in (1, 2, 3):
        collector.step(people(90, "early"), step)
    session.push(collector.step(people(90, "late"), 4), step=4)
    assert Side(SMALL, [people(90, "early")] * 3 + [[]]).tested(4, ()).keys() == {"early"}
    state = SMALL.begin(4)
    SMALL._enter(state, 4)
    found = SMALL.pairs(collector.step(people(9, "late"), 8), int(state.numbers[1]), 8)
    assert set(found["category"]) == {"late"}


# what is counted -----------------------------------------------------------------------------------------------------


def test_counts_are_of_the_first_records_of_each_unit():
    """As many as max_change says, whatever there are; the rest is nowhere."""
    mechanism = Discover(tg.WEvent(epsilon="8", delta="1e-4", window=4, max_change=2), columns=2)
    rows = [("ann", "a"), ("ann", "a"), ("ann", "b"), ("bob", "b"), ("bob", "z")]
    side = Side(mechanism, [rows])
    assert side.counts(1, ("a", "b")) == (2, 1, 1)
    assert side.counts(1, ()) == (4,)
    assert Side(Discover(POLICY), [rows]).counts(1, ("a", "b")) == (1, 1, 0)


def test_units_count_once_in_a_column():
    """With `distinct`: also in the rest, whatever its categories are, and in as many columns as a unit may change."""
    policy = tg.WEvent(epsilon="1000000", delta="1/10", window=2, max_change=2)
    mechanism = Discover(policy, columns=1, epoch=1, aggregate="distinct")
    here = [(f"p{number}", "bakery") for number in range(50)]
    often = [("ann", name) for name in ("x", "bakery", "y", "bakery", "x")] + [("bob", "x"), ("bob", "y")]
    session = tg.open(mechanism)
    collector = mechanism.collector()
    session.push(collector.step(here))
    release = session.push(collector.step([*here, *often, ("eve", " bakery "), ("eve", "bakery")]))
    assert {name: round(value) for name, value in release.counts.items()} == {"bakery": 52, "other": 2}


def test_units_count_once_a_category_and_in_the_first_categories():
    """By time, also where records come twice."""
    stream = [[("ann", "b")], [("ann", "b"), ("ann", "a"), ("bob", "a")], [("ann", "c")], [("bob", "a")]]
    one, two = (Discover(POLICY, categories=most) for most in (1, 2))
    units = [
        {name: units for name, (units, _) in Side(each, stream).tested(4, ()).items()} for each in (one, two)
    ]
    assert units == [{"a": 1, "b": 1}, {"a": 2, "b": 1}]


def test_names_are_made_by_public_rules():
    """One form of each letter, no control characters, a public length; spellings of one name are one category."""
    given = ["Cafe\u0301", " Café ", "ａ\u0000b", "x" * 40, "ééé", "other", "", "\u200b", "über"]
    cut = named(pl.Series(given), 5).to_list()
    assert cut == ["Café", "Café", "ab", "xxxxx", "éé", None, None, None, "über"]
    assert named(pl.Series(cut), 5).to_list() == cut
    mechanism = Discover(POLICY, length=5)
    spelled = [("ann", "Cafe\u0301"), ("bob", " Café "), ("eve", "other"), ("joe", "caféteria")]
    side = Side(mechanism, [[], [], [], spelled])
    assert side.tested(4, ()).keys() == {"Café", "café"}
    assert side.tested(4, ())["Café"][0] == 2
    assert side.counts(4, ("Café",)) == (2, 2)


# what is read --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pairs",
    [
        [("1", "a"), ("2", "b")],
        [[1, "a"], [2, "b"]],
        pl.DataFrame({"category": ["a", "b"], "unit": ["1", "2"], "more": [0, 0]}),
        [("1", "a"), (None, "a"), ("2", None), ("2", "b")],
    ],
)
def test_pairs_and_frames_are_read_alike(pairs):
    """Incomplete records are left out, and each is read by itself."""
    assert records(pairs).rows() == [("1", "a"), ("2", "b")]


def test_fields_of_any_form_are_text():
    """Halves of characters and numbers beyond 64 bits included; nobody's field is repeated in an error."""
    assert records([("ann", "\ud800"), (2**70, 1.5)]).rows() == [("ann", "?"), (str(2**70), "1.5")]
    # units that could be taken for others name nobody
    nobody = ["\ud800", "\ud801", 7.0, float("nan"), True, 10**5000]
    assert records([(unit, "a") for unit in nobody]).rows() == []
    assert records([(7, "a"), ("7", "b")]).rows() == [("7", "a"), ("7", "b")]
    with pytest.raises(InvalidInput, match="whole numbers or text"):
        records(pl.DataFrame({"unit": [7.0, None], "category": ["a", "b"]}))
    frame = pl.DataFrame(
        {"unit": pl.Series([2**64 - 1], dtype=pl.UInt64), "category": pl.Series(["a"], dtype=pl.Categorical)}
    )
    assert records(frame).rows() == [(str(2**64 - 1), "a")]
    with pytest.raises(InvalidInput, match="pairs"):
        records(pl.DataFrame({"unit": [1], "category": [object()]}))


def test_a_frame_of_objects_is_read_record_by_record():
    """One value that is no number would give the whole column another type: no record decides about the others."""
    pandas = pytest.importorskip("pandas")
    mechanism = Discover(
        tg.WEvent(epsilon="8", delta="1/100", window=4, max_change=9), columns=2, aggregate="sum", clip=(0, 9)
    )
    rows = [("a", "park", 4), ("b", "park", "many"), (7, "pond", 2.0), (None, "pond", 1)]
    frame = pandas.DataFrame(rows, columns=["unit", "category", "value"])
    found = records(frame, mechanism.values)
    assert found.rows() == records(rows, mechanism.values).rows()
    assert found.rows() == [("a", "park", 4), ("7", "pond", 2)]


@pytest.mark.parametrize("pairs", ["text", 5, [("a",)], [1, 2], {"unit": [1]}, pl.DataFrame({"unit": [1]})])
def test_other_forms_are_refused(pairs):
    """With one sentence, and without a record."""
    with pytest.raises(InvalidInput, match="pairs"):
        Collector(3).step(pairs)


def test_only_what_a_collector_makes_is_pushed():
    """Plain pairs would leave an epoch without its earlier steps."""
    session = tg.open(SMALL)
    bad = pl.DataFrame({"unit": [1.5], "category": ["a"]})
    for values in ([("ann", "a")], np.zeros(3), Step(bad, bad, 1, 1), bad):
        with pytest.raises(InvalidInput):
            session.push(values)
        with pytest.raises(InvalidInput):
            session.push_batch([values])
    assert session.step == 0


def test_units_are_numbers_or_text():
    """Where an epoch has both, they are compared as text."""
    collector = Collector(2)
    collector.step(pl.DataFrame({"unit": [1, 2], "category": ["a", "a"]}))
    step = collector.step([("1", "b")])
    found = Discover(POLICY, epoch=2).pairs(step, 1, 2)
    assert sorted(found.rows()) == [("1", "a"), ("2", "a")]


def test_a_restart_reads_the_open_epoch_again(tmp_path):
    """With the same releases as without it; the log holds nothing of the epoch."""
    stream = [people(70, "park" if at % 2 else "pond", name=str(at)) for at in range(12)]
    with fixed_entropy("restart"):
        whole = pushed(SMALL, stream)
        parts = []
        for pairs in stream:
            with tg.open(SMALL, tmp_path / "log") as session:
                collector = SMALL.collector(after=session.step)
                for again in range(collector.needed_from, session.step + 1):
                    collector.add(again, stream[again - 1])
                parts.append(session.push(collector.step(pairs)))
            assert b"park 1" not in (tmp_path / "log").read_bytes()
    assert [part.categories for part in parts] == [whole.categories(at) for at in range(12)]
    np.testing.assert_array_equal(np.array([part.values for part in parts]), whole.values)


def test_a_collector_refuses_steps_of_other_epochs():
    """What is given again are steps of the open epoch."""
    collector = Collector(4, after=6)
    assert collector.needed_from == 5
    for step in (4, 7):
        with pytest.raises(InvalidParameter, match="step"):
            collector.add(step, [])
    with pytest.raises(InvalidParameter):
        collector.step([], 6)


# what is public ------------------------------------------------------------------------------------------------------


def test_sizes_do_not_depend_on_data():
    """Of every byte of the log, for an empty stream and for one with thousands of categories."""
    sizes = []
    for stream in ([[]] * 9, [[(unit, f"{unit % 977} {at}") for unit in range(3000)] for at in range(9)]):
        log = MemoryLog()
        pushed(SMALL, stream, log)
        loaded = log.load()
        rows = [(len(row.charges), len(row.releases or b"")) for row in log.rows()]
        sizes.append((len(loaded.secret), rows))
    assert sizes[0] == sizes[1]


def test_single_pushes_say_their_categories():
    """As batches do; and as a table with a row for each open category."""
    collector, session = SMALL.collector(), tg.open(SMALL)
    for _ in range(4):
        release = session.push(collector.step(people(80, "park", "pond")))
    assert set(release.counts) == {"park", "pond", "other"}
    assert sorted(release.opened.tolist()) == [0, 4, 4]
    assert np.isnan(release.units_counted).sum() == 1
    again = list(session.releases())[-1]
    frame = again.to_polars(times=["now"])
    assert frame.columns == ["step", "time", "column", "value", "low", "high", "status"]
    assert (
        again.to_pandas()["value"].tolist()
        == again.to_arrow()["value"].to_pylist()
        == frame["value"].to_list()
    )
    assert "<svg" in again._repr_html_()
    assert set(frame["column"]) == {"park", "pond", "other"}
    assert (frame["low"] < frame["value"]).all()


def test_beside_another_query():
    """With a share of the budget of a log."""
    uniform = tg.mechanisms.Uniform(POLICY)
    collector = SMALL.collector()
    with tg.open({"visits": uniform, "places": SMALL}, shares={"visits": "1/4", "places": "3/4"}) as session:
        for _ in range(8):
            found = session.push({"visits": [80], "places": collector.step(people(90, "park"))})
    assert "park" in found["places"].counts


def test_the_guarantee_names_one_unit_and_delta():
    """As a sentence."""
    said = str(SMALL.guarantee)
    assert "(8, 0.0001)-differentially private" in said
    assert "of one unit" in said


def test_tide_releases_what_is_open():
    """With intervals, an account that no window leaves, and smaller errors than those of Uniform."""
    wide = tg.WEvent(epsilon="4", delta="1e-4", window=24)
    errors = {}
    for name in ("Uniform", "Tide"):
        mechanism = Discover(wide, columns=3, released_by=name)
        stream = [people(20, "park", name=str(at % 24)) for at in range(96)]
        with fixed_entropy(2):
            releases = pushed(mechanism, stream)
        column = releases.categories(95).index("park")
        errors[name] = np.abs(releases.values[30:, column] - 20).mean()
        low, high = releases[95].interval(0.9)
        assert low[column] < high[column]
        assert releases[95].counts.keys() == {"park", "other"}
        assert mechanism.units % mechanism.counts.units == 0
    assert errors["Tide"] < errors["Uniform"]
    assert Discover(wide, released_by="Tide").expected_error() is None
    with pytest.raises(InvalidParameter, match="released_by"):
        Discover(wide, released_by="PeGaSus")


def test_nothing_is_said_of_a_category_before_it_was_measured_as_one():
    """A model in between knows the column of before: neither the category nor the rest has a number or a range."""
    mechanism = Discover(tg.WEvent(epsilon="2", delta="1e-4", window=24), columns=2, released_by="Tide")
    stream = [people(100, "park", name=str(at)) for at in range(48)]
    with fixed_entropy(3):
        releases = pushed(mechanism, stream)
    column = releases.categories(47).index("park")
    open_now = releases.opened[:, column] > 0
    known = open_now & (releases.source >= releases.opened[:, column])
    assert open_now.sum() > known.sum() > 0
    for values in (releases.values, *releases.interval(0.9)):
        assert (np.isfinite(values[:, column]) == known).all()
        assert np.isnan(values[open_now & ~known, -1]).all()
        second = known & (releases.source >= 24)
        assert np.isfinite(values[second][:-1, -1]).all()  # the last step ends the next epoch


@pytest.mark.parametrize(
    "options",
    [
        {"aggregate": "sum", "clip": (-3, 9), "grid": "1/2", "released_by": "Tide"},
        {"aggregate": "mean", "clip": (0, 12), "categories": 2, "weighted": True},
    ],
)
def test_pieces_and_restarts_release_the_same(options, tmp_path):
    """Of sums with Tide and of weighted means; a log has what it needs, and its charges are verified."""
    policy = tg.WEvent(epsilon="8", delta="1/100", window=4, max_change=18 if "grid" in options else 12)
    mechanism = Discover(policy, columns=2, **options)
    days = [[(*pair, at % 13) for at, pair in enumerate(people(70, "park", "pond"))] for _ in range(10)]
    with fixed_entropy("pieces"):
        whole, parts = pushed(mechanism, days), []
        for begin in (0, 3, 8):
            with tg.open(mechanism, tmp_path / "log") as session:
                collector = mechanism.collector(after=session.step)
                for again in range(collector.needed_from, session.step + 1):
                    collector.add(again, days[again - 1])
                steps = [collector.step(pairs) for pairs in days[begin : {0: 3, 3: 8, 8: 10}[begin]]]
                parts.append(session.push_batch(steps).values)
    np.testing.assert_array_equal(np.concatenate(parts), whole.values)
    assert set(whole.categories(9)) == {"park", "pond"}
    log = SQLiteLog(tmp_path / "log")
    assert verify(log.rows()).ok
    log.close()


def test_sums_and_means_by_category():
    """Of values that are clipped and rounded to the grid, each record by itself."""
    policy = tg.WEvent(epsilon="100000", delta="1/10", window=2, max_change="10")
    for aggregate in ("sum", "mean"):
        mechanism = Discover(policy, columns=2, aggregate=aggregate, clip=("0", "10"), grid="1/4")
        values = {"a": 2.6, "b": 99, "c": -1, "d": float("inf"), "e": 10**400, "f": Fraction(1, 3)}
        nobody = {"g": float("nan"), "h": "1", "i": None, "j": True}
        rows = [(unit, "park", value) for unit, value in (values | nobody).items()]
        rows = [*rows, *((f"p{number}", "park", 5) for number in range(60)), ("a", "park", 7)]
        collector, session = mechanism.collector(), tg.open(mechanism)
        session.push(collector.step(rows))
        release = session.push(collector.step(rows))
        total = 2.5 + 10 + 0 + 10 + 10 + 0.25 + 300
        if aggregate == "sum":
            assert release.sums == pytest.approx({"park": total, "other": 0}, abs=0.3)
            with pytest.raises(AttributeError, match="sums"):
                print(release.counts)
        else:
            assert release.means["park"] == pytest.approx(total / 66, abs=0.01)
            assert release.counts == pytest.approx({"park": 66, "other": 0}, abs=0.1)
    frame = pl.DataFrame({"unit": [1, 2], "category": ["a", "b"], "value": [1, None]})
    assert records(frame, mechanism.values).rows() == [(1, "a", -16)]
    for wrong in (frame.drop("value"), [("ann", "a")]):
        with pytest.raises(InvalidInput, match="triples"):
            collector.step(wrong)
    with pytest.raises(InvalidInput, match="numbers"):
        collector.step(frame.cast({"value": pl.String}))
    with pytest.raises(InvalidInput, match="triples"):
        session.push(SMALL.collector().step([("ann", "a")]))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"aggregate": "sum"}, "clip"),
        ({"aggregate": "sum", "clip": (0, 3)}, "whole multiple of 3"),
        ({"aggregate": "mean", "clip": (0, "1.5")}, "on the grid"),
        ({"aggregate": "sum", "clip": (5, 1)}, "increasing"),
        ({"aggregate": "sum", "clip": (0, 2**40)}, "coarser grid"),
        ({"clip": (0, 3)}, "absent"),
        ({"grid": "1/2"}, "absent"),
        ({"aggregate": "median"}, "aggregate"),
        ({"aggregate": "mean", "clip": (0, 2), "sum_share": 1}, "sum_share"),
    ],
)
def test_what_cannot_be_added_up_is_refused(options, words):
    """By public options alone."""
    with pytest.raises(InvalidParameter, match=words):
        Discover(POLICY, **options)


# noise and thresholds ------------------------------------------------------------------------------------------------


def test_what_is_released_is_what_is_enumerated(monkeypatch):
    """The audit computes tests and counts by the same methods: with known noise, a run releases what they say."""
    drawn = []

    def known(source, stream, step, sigma, shape):
        drawn.append((step, shape[0], sigma))
        return np.arange(shape[0], dtype=np.int64) * 7 % 5 - 2

    monkeypatch.setattr(discover, "gaussian", known)
    choose = np.random.default_rng(5)
    mechanism = Discover(tg.WEvent(epsilon="9", delta="1/10", window=2), columns=9, categories=2)
    stream = [
        [(int(unit), f"c{int(unit) % int(choose.integers(1, 9))}") for unit in choose.integers(0, 40, 60)]
        for _ in range(40)
    ]
    side, releases, open_ = Side(mechanism, stream), pushed(mechanism, stream), ()
    for number in range(1, 41):
        if number % 2 == 0:
            tested = side.tested(number, open_)
            noisy = {
                name: units + at * 7 % 5 - 2 for at, (name, (units, _)) in enumerate(sorted(tested.items()))
            }
            assert drawn.pop(0) == (number, len(tested), mechanism.selection.sigma)
            open_ = tuple(name for name, value in sorted(noisy.items()) if value >= tested[name][1])
            shown = dict(
                zip(releases.categories(number - 1), releases.units_counted[number - 1], strict=True)
            )
            assert {name: value for name, value in shown.items() if name} == {
                name: noisy[name] for name in open_
            }
    assert not drawn


def test_half_of_those_with_as_many_units_as_are_needed_open():
    """Within 5 deviations of a binomial; one unit less: fewer than half."""
    mechanism = Discover(tg.WEvent(epsilon="2", delta="2e-6", window=168, horizon=168), columns=800)
    assert mechanism.selection.threshold == mechanism.units_needed() == 45  # at most 45 is promised
    assert mechanism.selection.chance(44) < 0.5 <= mechanism.selection.chance(45)
    number = 800
    pairs = [(f"{category} {unit}", f"c{category}") for category in range(number) for unit in range(45)]
    collector = mechanism.collector()
    session = tg.open(mechanism)
    opened = session.push(collector.step(pairs, 168), step=168).opened
    expected = mechanism.selection.chance(45) * number
    assert abs((opened > 0).sum() - expected) < 5 * np.sqrt(number / 4)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [("1", "1e-6"), ("4", "1e-9"), ("1/4", "1e-6"), ("12", "1/100")]
)
@pytest.mark.parametrize(("categories", "epochs"), [(1, 1), (1, 2), (3, 2), (40, 2), (2, 7)])
def test_calibration_keeps_its_condition(epsilon, delta, categories, epochs):
    """The condition of the proof holds for what is chosen, and not for a threshold one lower."""
    sigma, threshold = calibrate(Fraction(epsilon), Fraction(delta), categories, epochs)
    given = float(Fraction(epsilon)), float(Fraction(delta)), categories, epochs
    assert loss(sigma, threshold, *given) <= float(Fraction(delta))
    assert loss(sigma, threshold - 1, *given) > float(Fraction(delta))
    assert sigma * 64 == int(sigma * 64)


@pytest.mark.parametrize("count", [1, 2, 5, 9])
@pytest.mark.parametrize("sigma", [1.0, 1.5, 4.0])
def test_sums_of_noise_are_bounded(count, sigma):
    """Against the exact convolution of the laws of `count` draws: never below, and hardly above."""
    reach = int(30 * sigma)
    values = np.arange(-reach, reach + 1)
    law = np.exp(-(values**2) / (2 * sigma**2))
    law /= law.sum()
    total = law
    for _ in range(count - 1):
        total = np.convolve(total, law)
    sums = np.arange(-reach * count, reach * count + 1)
    for epsilon in (0.1, 1.0, 3.0):
        losses = (count + 2 * sums) / (2 * sigma**2)
        exact = float((total * np.maximum(0, -np.expm1(epsilon - losses))).sum())
        found = gaussian_delta(count, sigma, epsilon)
        assert exact <= found <= exact * (1 + 3e-4 * count) + 1e-11
    assert tail(sigma, 3) >= law[values >= 3].sum() >= tail(sigma, 3) * (1 - 1e-3)


def test_tests_say_how_likely_a_category_is_to_open():
    """Rising from hardly ever to surely."""
    selection = Selection(8.5, 45)
    chances = [selection.chance(units) for units in (1, 20, 45, 70, 200)]
    assert chances == sorted(chances)
    assert chances[0] < 1e-6
    assert chances[-1] == pytest.approx(1)


@pytest.mark.parametrize(
    ("named", "word"),
    [
        ({"policy": tg.WEvent(epsilon="1", window=4)}, "delta"),
        ({"policy": tg.WEvent(rho="1", window=4)}, "delta"),
        ({"policy": tg.User(epsilon="1", delta="1e-6", horizon=9)}, "epoch"),
        ({"policy": tg.Event(epsilon="1", delta="1e-6")}, "epoch"),
        ({"policy": tg.WEvent(epsilon="1", delta="1e-6", window=4, max_change="1/2")}, "max_change"),
        ({"policy": tg.WEvent(epsilon="1", delta="1e-6", window=4, mobility="fixed")}, "mobility"),
        ({"policy": tg.WEvent(epsilon="1e-7", delta="1e-6", window=4)}, "epsilon"),
        ({"policy": POLICY, "grid": "1/2"}, "grid"),
        ({"policy": POLICY, "clamp": 5}, "grid"),
        ({"policy": POLICY, "share": 1}, "share"),
        ({"policy": POLICY, "stay": "3/2"}, "stay"),
        ({"policy": POLICY, "length": 0}, "length"),
        ({"policy": POLICY, "categories": 0}, "categories"),
    ],
)
def test_what_has_no_proof_is_refused(named, word):
    """With the name of the parameter."""
    with pytest.raises(InvalidParameter, match=word):
        Discover(**named)


def test_epochs_that_a_window_meets():
    """By trying all windows."""
    for window in (1, 2, 3, 5, 8):
        for epoch in (1, 2, 3, 7, 8, 9):
            mechanism = Discover(tg.WEvent(epsilon="8", delta="1e-3", window=window), epoch=epoch)
            most = max(
                len({(step - 1) // epoch for step in range(first, first + window)})
                for first in range(1, 3 * epoch + 1)
            )
            assert mechanism.epochs_met == most
