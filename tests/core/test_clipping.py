"""Clipped statistics, thresholds and clipped records on the new core: what no comparison with earlier releases shows."""

from __future__ import annotations

import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tidegate as tg
from tidegate.core import arrays
from tidegate.core.errors import AccountRefused, Halted
from tidegate.core.log import MemoryLog
from tidegate.core.mechanism import Output
from tidegate.core.rows import Draws
from tidegate.core.session import Session, charges_of
from tidegate.core.verify import verify
from tidegate.errors import InvalidInput, InvalidParameter
from tidegate.mechanisms.clipped_records import ClippedRecords
from tidegate.mechanisms.clipping import threshold as configured
from tidegate.mechanisms.clipping.clipped_average import ClippedAverage
from tidegate.mechanisms.clipping.clipped_decay import ClippedDecay
from tidegate.mechanisms.clipping.clipped_histogram import ClippedHistogram
from tidegate.mechanisms.clipping.clipped_sum import ClippedSum
from tidegate.mechanisms.clipping.record_reader import RecordReader
from tidegate.mechanisms.clipping.threshold import Threshold
from tidegate.mechanisms.clipping.tops import ToPS
from tidegate.mechanisms.counters.binary_tree import BinaryTree
from tidegate.mechanisms.counters.sliding_window_tree import SlidingWindowTree
from tidegate.mechanisms.plain.sample import Sample
from tidegate.mechanisms.plain.uniform import Uniform
from tidegate.mechanisms.tide.tide import Tide
from tidegate.mechanisms.w_event.budget_absorption import BudgetAbsorption
from tidegate.mechanisms.w_event.budget_distribution import BudgetDistribution
from tidegate.noise.entropy import current, install
from tidegate.noise.fixed import FixedEntropy
from tidegate.policy import Event, Policy, WEvent
from tidegate.releases import Status
from tidegate.structures.value_bins import ValueBins

W, LAG, BOUND = 3, 41, 500
POLICY = WEvent(epsilon="3", window=W, max_change=BOUND)
CLIPPED: dict[str, Any] = {
    "sum": ClippedSum(POLICY, horizon=400, lag=LAG, above=5),
    "first sums": ClippedSum(POLICY, horizon=400, lag=LAG, above=5, first_sums=True),
    "average": ClippedAverage(POLICY, lag=LAG, above=5, window=7),
    "long average": ClippedAverage(POLICY, lag=LAG, above=5, window=400),
    "decay": ClippedDecay(POLICY, lag=LAG, above=5, factor="1/3"),
    "tops": ToPS(Event(epsilon="1", max_change=BOUND), horizon=400, lag=LAG, above=5, group=4),
    "tops, balance": ToPS(
        Event(epsilon="1", max_change=BOUND), horizon=LAG + 63, lag=LAG, group=9, threshold="balance"
    ),
    "histogram": ClippedHistogram(POLICY, lag=LAG, above=5, bins=4),
    "histogram of a window": ClippedHistogram(POLICY, lag=LAG, above=5, bins=4, window=6),
    "threshold": Threshold(POLICY, sample=LAG, above=5),
}
STATISTICS = [name for name in CLIPPED if name != "threshold"]
BINS = ValueBins(BOUND)
BUILT: dict[str, Any] = {
    "tree": lambda policy: BinaryTree(policy, horizon=400),
    "plain": lambda policy: Uniform(policy, noise="laplace"),
    "shared": lambda policy: Uniform(policy, noise="cube"),
    "sampled": Sample,
    "sliding": lambda policy: SlidingWindowTree(policy, window=6),
    "absorbing": BudgetAbsorption,
    "distributing": BudgetDistribution,
    "tide": Tide,
}
LEARN = 20


def recorded(name: str, policy: Policy = POLICY, **named: Any) -> ClippedRecords:
    """Records that one of the mechanisms releases."""
    return ClippedRecords(replace(policy), build=BUILT[name], bins=BINS, learn=LEARN, **named)


def observations(count: int) -> Any:
    """Small values with ties, and a few large ones."""
    steps = np.arange(count)
    return np.where(steps % 23 == 11, 480, 7 * steps % 31)[:, np.newaxis]


def receipts(count: int, each: int = 30) -> Any:
    """Steps of records; every fourth is empty."""
    return BINS.of_steps(
        [[] if step % 4 == 2 else [(11 * step + 7 * at) % 43 for at in range(each)] for step in range(count)]
    )


def input_of(mechanism: Any, count: int) -> Any:
    """Steps that a mechanism reads."""
    return receipts(count) if isinstance(mechanism, ClippedRecords) else observations(count)


def everything() -> dict[str, Any]:
    """All that have moved."""
    return CLIPPED | {f"records, {name}": recorded(name) for name in BUILT}


class Armed(FixedEntropy):
    """Entropy that refuses to be used."""

    armed = False

    def words(self, *address: Any) -> Any:
        """Words, unless there must be none."""
        assert not self.armed
        return super().words(*address)

    def word(self, *address: Any) -> int:
        """One."""
        assert not self.armed
        return super().word(*address)


def joined(parts: list[Any], name: str) -> Any:
    """A field of several releases."""
    return np.concatenate([getattr(each, name) for each in parts])


# steps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(CLIPPED))
def test_steps_that_are_passed_over_are_no_observations(name: str) -> None:
    """The same releases as without gaps, before, across and after the lag."""
    mechanism, rows = CLIPPED[name], observations(60 if name != "threshold" else LAG)
    gaps = np.cumsum(np.where(np.arange(len(rows)) % 9 == 4, 50, 1)).tolist()
    with install(FixedEntropy("gaps")):
        dense = Session(mechanism).push_batch(rows)
        log, parts = MemoryLog(), []
        for row, step in zip(rows, gaps, strict=True):
            parts.append(Session(mechanism, log).push_batch([row], step=step))
    for field in ("values", "status", "scale", "units"):
        assert np.array_equal(joined(parts, field), getattr(dense, field), equal_nan=True), field
    assert verify(log.rows()).ok
    fresh = joined(parts, "status") == int(Status.FRESH)
    assert np.array_equal(joined(parts, "source")[fresh], np.array(gaps)[fresh])


@pytest.mark.parametrize("name", list(BUILT))
def test_records_in_steps_that_are_passed_over(name: str) -> None:
    """The sample has so many steps that were pushed; no window is overspent, and the mechanism waits for its own."""
    mechanism, log = recorded(name), MemoryLog()
    steps = np.cumsum(np.where(np.arange(50) % 7 == 3, 2 * W, 1)).tolist()
    parts = [
        Session(mechanism, log).push_batch([row], step=step)
        for row, step in zip(receipts(50), steps, strict=True)
    ]
    assert verify(log.rows()).ok
    silent = joined(parts, "status") == int(Status.SILENT)
    last = steps[LEARN - 1]
    waiting = mechanism.waits - LEARN
    assert silent.tolist() == [step <= last + waiting for step in steps]


@pytest.mark.parametrize("name", list(everything()))
def test_no_steps_and_empty_steps(name: str) -> None:
    """A batch without steps releases and changes nothing; steps without values are steps."""
    mechanism = everything()[name]
    rows = 0 * input_of(mechanism, LAG)
    with install(FixedEntropy("empty")):
        expected = Session(mechanism).push_batch(rows)
        session, parts = Session(mechanism), []
        for at in range(0, LAG, 8):
            parts += [session.push_batch(rows[:0]), session.push_batch(rows[at : at + 8])]
    assert [len(each) for each in parts[::2]] == [0] * 6
    assert np.array_equal(joined(parts[1::2], "values"), expected.values, equal_nan=True)
    assert np.array_equal(joined(parts[1::2], "status"), expected.status)


@pytest.mark.parametrize("name", list(everything()))
def test_batches_single_pushes_and_reopened_logs(name: str) -> None:
    """The same releases, charges and clips."""
    mechanism = everything()[name]
    rows = input_of(mechanism, LAG if name == "threshold" else 64)
    with install(FixedEntropy("pushed")):
        batch = Session(mechanism).push_batch(rows)
        log = MemoryLog()
        single = [Session(mechanism, log).push_batch([row]) for row in rows]
    for field in ("values", "status", "source", "scale", "units", "clip"):
        if field != "clip" or name != "threshold":
            assert np.array_equal(joined(single, field), getattr(batch, field), equal_nan=True), field
    assert verify(log.rows()).ok


# values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STATISTICS)
def test_values_beyond_the_clip_are_values_at_the_clip(name: str) -> None:
    """After the lag the clip, one more, the bound and anything above it are the same; so are 0 and what is below."""
    mechanism = CLIPPED[name]
    found = []
    with install(FixedEntropy("clips")):
        clip = int(Session(mechanism).push_batch(observations(LAG)).clip[-1])
        assert 1 < clip < BOUND
        for beyond, below in ((clip, 0), (clip + 1, -1), (BOUND, -(2**50)), (2**53, -7), (clip - 1, 0)):
            rows = observations(LAG + 12)
            rows[LAG::2], rows[LAG + 1 :: 3] = beyond, below
            found.append(Session(mechanism).push_batch(rows).values)
    for other in found[1:4]:
        assert np.array_equal(found[0], other)
    assert not np.array_equal(found[0], found[4])


@pytest.mark.parametrize("name", STATISTICS)
def test_the_clip_is_released_with_the_last_step_of_the_sample(name: str) -> None:
    """NaN before it; where there is no lag, it is the bound from the first step on."""
    found = Session(CLIPPED[name]).push_batch(observations(LAG + 5))
    assert np.isnan(found.clip[: LAG - 1]).all()
    assert len(set(found.clip[LAG - 1 :].tolist())) == 1
    assert 1 <= found.clip[-1] <= BOUND


def test_without_a_lag() -> None:
    """The bound is the clip."""
    mechanism = ClippedSum(Event(epsilon="1/8", max_change=BOUND), horizon=1600)
    assert mechanism.waits == 0
    found = Session(mechanism).push_batch(observations(9))
    assert found.clip.tolist() == [BOUND] * 9
    assert found.status.tolist() == [int(Status.FRESH)] * 9


def test_ties_at_the_rank() -> None:
    """Two values, as many of each: the threshold is one of them, or next to it, never the bound."""
    mechanism = Threshold(Event(epsilon="8", max_change=10**6), sample=4000, above=2000, per_doubling=32)
    rows = np.repeat([[9], [10]], 2000, axis=0)
    for seed in range(5):
        with install(FixedEntropy(f"ties {seed}")):
            found = mechanism.read(Session(mechanism).push_batch(rows))
        assert found is not None
        assert found.value in (9, 10)


def test_first_sums_are_those_of_the_first_steps() -> None:
    """They are released with step m, once, and say of which steps they are."""
    mechanism, rows = CLIPPED["first sums"], observations(LAG + 3)
    with install(FixedEntropy("first")):
        dense = Session(mechanism).push_batch(rows)
        session = Session(mechanism, MemoryLog())
        steps = [*range(3, LAG + 2), LAG + 5, LAG + 6, LAG + 7, LAG + 8]
        parts = [session.push_batch([row], step=step) for row, step in zip(rows, steps, strict=False)]
    assert [each.revised is not None for each in parts].index(True) == LAG - 1
    assert sum(each.revised is not None for each in parts) == 1
    assert dense.clip[-1] == parts[-1].clip[-1]
    known = parts[LAG - 1].revised
    pushed = np.array(steps[:LAG]) - steps[0]
    assert known.first_step == steps[0]
    assert len(known) == pushed[-1] + 1
    assert np.array_equal(known.values[pushed], dense.revised.values)
    assert np.array_equal(known.scale[pushed], dense.revised.scale)
    assert set(np.delete(known.status, pushed).tolist()) == {int(Status.SILENT)}
    assert sum(each.revised is not None for each in session.releases()) == 1


# failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["sum", "average", "histogram", "threshold", "records, tree", "records, tide"]
)
def test_a_threshold_whose_draw_fails_stays_charged(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is released; after its windows have passed another sample is taken."""
    mechanism, log = everything()[name], MemoryLog()
    length = LEARN if name.startswith("records") else LAG
    rows = input_of(mechanism, 3 * LAG)
    kind, draw = (ClippedRecords, "clip_of") if name.startswith("records") else (configured.Threshold, "draw")
    with monkeypatch.context() as patch:
        genuine = getattr(kind, draw)

        def failing(*given: Any) -> Any:
            genuine(*given)
            raise RuntimeError("a secret")

        patch.setattr(kind, draw, failing)
        session = Session(mechanism, log)
        session.push_batch(rows[: length - 1])
        with pytest.raises(Halted) as caught:
            session.push(rows[length - 1])
    assert "secret" not in str(caught.value)
    *_, last = log.rows()
    ((_, charges),) = charges_of(last)
    units = charges.units
    assert units.tolist() == [mechanism.units // W]
    session = Session(mechanism, log)
    found = session.push_batch(rows[: length + W - 1])
    assert set(found.status[: W - 1].tolist()) == {int(Status.SILENT)}
    assert not found.units[: W - 1].any()
    assert found.units[W - 1 :].tolist() == [mechanism.units // W] * length
    assert verify(log.rows()).ok
    if name == "threshold":
        assert mechanism.read(found) is not None


@pytest.mark.parametrize("name", list(everything()))
def test_a_copied_file(tmp_path: Path, name: str) -> None:
    """Where the state may hold noise, a copy is silent for a window and learns again; else it continues."""
    mechanism, path, copied = everything()[name], tmp_path / "log.db", tmp_path / "copy.db"
    rows = input_of(mechanism, LAG + 12)
    with Session(mechanism, path) as session:
        session.push_batch(rows[: LAG - 6])
    shutil.copy(path, copied)
    with Session(mechanism, copied) as session:
        found = session.push_batch(rows[LAG - 6 : LAG])
        assert verify(session._log.rows()).ok
    quiet = (found.units == 0) & (found.status == int(Status.SILENT))
    if mechanism.noise_in_state:
        assert quiet[: W - 1].all()
        assert not quiet[W - 1 :].any()
        assert set(found.status.tolist()) <= {int(Status.SILENT), int(Status.APPROXIMATED)}
    else:
        assert not quiet.any()


def test_which_states_hold_noise() -> None:
    """Nodes that begin with their noise, and noise that steps share."""
    holding = {name for name, mechanism in everything().items() if mechanism.noise_in_state}
    assert {
        "average",
        "long average",
        "decay",
        "histogram of a window",
        "records, sliding",
        "records, shared",
    } <= holding
    assert not holding & {"sum", "first sums", "histogram", "threshold", "records, tree", "records, plain"}


# refusals ----------------------------------------------------------------------------------------------------------

SHORT = replace(POLICY, horizon=LAG + 4)


@pytest.mark.parametrize(
    ("mechanism", "length", "match"),
    [
        (ClippedSum(POLICY, horizon=LAG + 4, lag=LAG, above=5), LAG + 4, "built for 45 steps"),
        (ClippedAverage(SHORT, lag=LAG, above=5, window=7), LAG + 4, "horizon"),
        (Threshold(POLICY, sample=LAG, above=5), LAG, "released once, from 41 observations"),
        (
            ClippedRecords(
                POLICY, build=lambda policy: BinaryTree(policy, horizon=9), bins=BINS, learn=LEARN
            ),
            LEARN + 9,
            "built for 9 steps",
        ),
        (recorded("absorbing", SHORT), LAG + 4, "horizon"),
    ],
)
def test_a_horizon_is_refused_before_a_word_is_drawn(mechanism: Any, length: int, match: str) -> None:
    """From an empty log, in the middle and at the end; the session stays open, and nothing was charged."""
    source, rows = Armed("armed"), input_of(mechanism, length + 1)
    with install(source):
        session = Session(mechanism)
        for done in (0, 5, length - 1, length):
            session.push_batch(rows[session.step : done])
            head, source.armed = session.head, True
            with pytest.raises((InvalidInput, AccountRefused), match=match):
                session.push_batch(rows[done:])
            source.armed = False
            assert (session.head, session.step) == (head, done)


def test_what_is_not_private_is_refused() -> None:
    """A δ that would be composed, samples that never end, users, and bounds beside those of bins."""
    with pytest.raises(InvalidParameter, match="drop delta"):
        Threshold(replace(POLICY, delta="1e-6"), sample=30, above=3)
    with pytest.raises(InvalidParameter, match="sample"):
        Threshold(replace(POLICY, horizon=29), sample=30, above=3)
    with pytest.raises(InvalidParameter, match="policy"):
        Threshold(tg.User(epsilon="1", max_change=9, horizon=50), sample=30, above=3)
    given: dict[str, Any] = {"policy": POLICY, "build": Sample, "bins": BINS, "learn": LEARN}
    for refused in ({"clamp": 50}, {"rounding": "nearest"}):
        with pytest.raises(InvalidParameter):
            ClippedRecords(**{**given, **refused})


def test_an_observation_that_is_no_number_counts_as_nothing() -> None:
    """A threshold refuses nothing that depends on an observation."""
    mechanism = Threshold(Event(epsilon="8", max_change=BOUND), sample=60, above=10)
    given = [float("nan"), float("inf"), -float("inf"), 1e300, 0.4] + [20.0] * 55
    with install(FixedEntropy("odd")):
        found = mechanism.read(Session(mechanism).push_batch(given))
        same = mechanism.read(Session(mechanism).push_batch([0, BOUND, 0, BOUND, 0] + [20] * 55))
    assert found == same


# records -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda row: row.astype(float), "vector of"),
        (lambda row: row[:-1], "vector of"),
        (lambda row: -row, "less than none"),
        (lambda row: row + np.eye(1, len(row), 5, dtype=np.int64)[0], "sums of a step"),
        (lambda row: row + np.eye(1, len(row), len(row) - 1, dtype=np.int64)[0], "sums of a step"),
        (lambda row: row * 2**50, "records"),
    ],
)
def test_what_are_no_records_is_refused(change: Any, match: str) -> None:
    """By its form, before anything happens; the session stays open."""
    session, row = Session(recorded("tree")), receipts(1)[0]
    with pytest.raises(InvalidInput, match=match):
        session.push(change(row))
    with pytest.raises(InvalidInput, match=match):
        session.push_batch(np.stack([row.astype(change(row).dtype)[: len(change(row))], change(row)]))
    assert (session.step, len(session.push_batch([row]))) == (0, 1)


def test_bins_of_records_are_read_as_they_are() -> None:
    """Also on a finer grid: counts are counts, and sums are grid units; whoever pushed may change theirs."""
    bins = ValueBins(1000, columns=3)
    rows = bins.counted([0, 0, 1, 1], [0, 2, 1, 1], [0, 1000, 1, 999], steps=2)
    found = RecordReader(bins).rows(rows)
    assert np.array_equal(found, rows)
    assert not np.shares_memory(found, rows)
    policy = Event(epsilon="100", max_change=10)
    mechanism = ClippedRecords(
        policy, build=lambda policy: Uniform(policy, grid="0.01"), bins=ValueBins(1000), learn=2, grid="0.01"
    )
    session = Session(mechanism)
    session.push_batch(mechanism.bins.of_steps([[400] * 100] * 2))
    value = session.push(mechanism.bins.of_steps([[400] * 50])[0]).values.item()
    assert value == pytest.approx(200, abs=3)


def test_sums_are_cut_where_they_are_no_longer_exact() -> None:
    """As many records as a step may have, of the largest value; nothing wraps around, and nothing fails."""
    bins = ValueBins(2**44)
    most = RecordReader(bins, 1)._most
    mechanism = ClippedRecords(
        Event(epsilon="1", max_change=2**44),
        build=lambda policy: Uniform(policy, noise="laplace"),
        bins=bins,
        learn=1,
    )
    row = np.zeros(bins.width, dtype=np.int64)
    row[len(bins.ends) - 1], row[-1] = most, most * 2**44
    session = Session(mechanism)
    session.push(row)
    assert session.push(row).values.item() == pytest.approx(2**53, rel=0.2)
    with pytest.raises(InvalidInput, match="more than 16384 records"):
        session.push(row + np.eye(1, len(row), dtype=np.int64)[0])


class Means:
    """Deviations from the middle of the clip, and counts that weigh as much: what means are made of."""

    def measured(self, sums: Any, counts: Any, clip: int) -> Any:
        """Both, beside each other."""
        return np.concatenate([2 * sums - clip * counts, clip * counts], axis=1)

    def max_change(self, clip: int, adjacency: str) -> Fraction:
        """A record changes both by the clip at most."""
        return Fraction(2 * clip)

    def describe(self) -> str:
        """Its name."""
        return "means"


@pytest.mark.parametrize("name", ["tree", "plain", "absorbing"])
def test_readings_with_other_columns_than_records_have(name: str) -> None:
    """Records of two columns, of which four numbers are released, however they are pushed."""
    kinds: dict[str, Any] = {
        "tree": lambda policy: BinaryTree(policy, columns=4, horizon=400),
        "plain": lambda policy: Uniform(policy, columns=4, noise="laplace"),
        "absorbing": lambda policy: BudgetAbsorption(policy, columns=4),
    }
    bins, steps = ValueBins(BOUND, columns=2), np.arange(900) % 60
    rows = bins.counted(steps, np.arange(900) % 2, np.arange(900) % 37, steps=60)
    policy = WEvent(epsilon="6", window=W, max_change=2 * BOUND)
    named: dict[str, Any] = {"bins": bins, "learn": LEARN, "reading": Means()}
    with install(FixedEntropy("means")):
        mechanism, log = ClippedRecords(policy, build=kinds[name], **named), MemoryLog()
        expected = Session(mechanism).push_batch(rows)
        parts = [Session(mechanism, log).push_batch(rows[at : at + 7]) for at in range(0, 60, 7)]
    assert expected.values.shape == (60, 4)
    for field in ("values", "status", "scale"):
        assert np.array_equal(getattr(expected, field), joined(parts, field), equal_nan=True), field
    assert verify(log.rows()).ok


def test_the_end_of_a_stream_is_the_mechanism_s() -> None:
    """What it says when the stream ends, and nothing before it has begun."""

    class Ending(Uniform):
        """Says something in the end."""

        def finish(self, state: Any, last: int, noise: Draws) -> Output:
            """Nothing but that it was asked."""
            none = np.zeros((0, 1), dtype=np.int64)
            return self.advance(state, none, last + 1, noise)._replace(revised=(np.array([last]),))

    mechanism = ClippedRecords(
        POLICY, build=lambda policy: Ending(policy, noise="laplace"), bins=BINS, learn=LEARN
    )
    state, noise = mechanism.begin(1), Draws(current())
    mechanism.advance(state, receipts(LEARN), 1, noise)
    assert mechanism.finish(state, LEARN, noise) is None
    mechanism.advance(state, receipts(9), LEARN + 1, noise)
    found = mechanism.finish(state, LEARN + 9, noise)
    assert found is not None
    assert (len(found.values), [len(part) for part in found.more], found.revised[0].tolist()) == (
        0,
        [0],
        [29],
    )


def test_several_queries_read_what_each_declares() -> None:
    """Records, values and a sample in one session, in one commit per push."""
    queries = {"spend": recorded("tree"), "load": CLIPPED["sum"], "size": CLIPPED["threshold"]}
    session = Session(queries, shares=dict.fromkeys(queries, "1/3"))
    given = {"spend": receipts(LAG), "load": observations(LAG), "size": observations(LAG)}
    session.push({name: rows[0] for name, rows in given.items()})
    found = session.push_batch({name: rows[1:] for name, rows in given.items()})
    assert found["spend"].clip[-1] < BOUND
    assert found["load"].fresh.sum() == 1
    assert CLIPPED["threshold"].read(found["size"]) is not None
    with pytest.raises(InvalidInput, match="released once"):  # one of them has ended, in public
        session.push({name: rows[0] for name, rows in given.items()})
    assert session.step == LAG


def test_smoothed_values_of_records_reach_the_caller() -> None:
    """What the mechanism releases besides is attached as without a clip, in its own units."""
    found = Session(recorded("tide")).push_batch(receipts(64))
    assert found.deviation is not None
    assert found.deviation.shape == found.values.shape
    assert (found.units[:LEARN] * found.unit == Fraction(1)).all()


# sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(everything()))
def test_the_size_of_a_commit_does_not_depend_on_values(name: str) -> None:
    """The state, the charges and the releases of every commit, for values that share nothing but their steps."""
    mechanism, sizes = everything()[name], []
    count = LAG if name == "threshold" else LAG + 9
    for factor in (0, 1):
        rows = factor * input_of(mechanism, count)
        log, seen = MemoryLog(), []
        session = Session(mechanism, log)
        for at in range(0, count, 4):
            session.push_batch(rows[at : at + 4])
            shapes = [part.shape for part in arrays.flat(session._queries[0].state)]
            *_, row = log.rows()
            seen.append((shapes, len(row.charges), len(row.releases or b"")))
        sizes.append(seen)
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("name", list(CLIPPED))
def test_a_sample_has_a_row_per_step_and_is_forgotten(name: str) -> None:
    """Nothing of it is in the state after the threshold."""
    session = Session(CLIPPED[name])
    session.push_batch(observations(LAG - 1))
    state = session._queries[0].state
    assert len(state.sample) == LAG - 1
    session.push(observations(1)[0])
    assert len(state.sample) == 0


@pytest.mark.parametrize("name", ["tree", "plain"])
def test_records_do_not_add_to_the_size_of_a_sample(name: str) -> None:
    """It has a cell per bin, and they are empty after the threshold."""
    session = Session(recorded(name))
    session.push_batch(receipts(LEARN - 1))
    state = session._queries[0].state
    assert state.sample.any()
    assert state.sample.shape == (BINS.width if name == "tree" else len(BINS.ends),)
    session.push_batch(receipts(3))
    assert not state.sample.any()
