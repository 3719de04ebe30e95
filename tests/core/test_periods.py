"""Mechanisms that work in periods, on the core: what no comparison with earlier releases shows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidegate.core.errors import AccountRefused, Halted
from tidegate.core.log import MemoryLog
from tidegate.core.session import Session
from tidegate.core.sqlite_log import SQLiteLog
from tidegate.core.verify import verify
from tidegate.errors import InvalidParameter
from tidegate.mechanisms.optstream.feature_trees import parts, whole_period
from tidegate.mechanisms.optstream.fourier import Fourier
from tidegate.mechanisms.optstream.hierarchical_opt_stream import HierarchicalOptStream
from tidegate.mechanisms.optstream.opt_stream import OptStream
from tidegate.mechanisms.optstream.per_leaf_opt_stream import PerLeafOptStream
from tidegate.mechanisms.optstream.periods import Revised
from tidegate.noise.entropy import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.noise.laws import LEFT
from tidegate.policy import WEvent
from tidegate.releases import Status
from tidegate.structures.hierarchy import Hierarchy

W = 6
DAY = (parts(W, [2, 6]), whole_period(W))
POLICY = WEvent(epsilon="9", window=W)
FIXED = WEvent(epsilon="9", window=W, mobility="fixed")
TREE = Hierarchy.from_names(["a/1", "a/2", "b"])
PERIODIC: dict[str, Any] = {
    "public times": OptStream(POLICY, samples=3, features=DAY, causal="last period", noise="laplace"),
    "free times": OptStream(POLICY, columns=2, times=(2, 3, 6), causal="line"),
    "adaptive": OptStream(
        POLICY, columns=2, samples=3, adaptive=True, threshold=20, features=DAY, noise="cube"
    ),
    "adaptive, own noise": OptStream(POLICY, samples=4, adaptive=True, noise="laplace"),
    "hierarchy": HierarchicalOptStream(POLICY, hierarchy=TREE, samples=2, features=DAY, nonnegative=True),
    "hierarchy, adaptive": HierarchicalOptStream(POLICY, hierarchy=TREE, samples=3, adaptive=True),
    "per leaf": PerLeafOptStream(FIXED, hierarchy=TREE, samples=3, features=DAY, causal="last period"),
    "fourier": Fourier(POLICY, columns=2, coefficients=3),
    "window 1": OptStream(WEvent(epsilon="9", window=1)),
    "fourier, window 1": Fourier(WEvent(epsilon="9", window=1)),
}
STEPS = 4 * W + 2


@pytest.fixture(params=list(PERIODIC))
def mechanism(request: pytest.FixtureRequest) -> Any:
    """One of them."""
    return PERIODIC[request.param]


def stream(steps: int, columns: int, seed: int = 0) -> Any:
    """Whole numbers that jump; 0 stands for nothing at all."""
    t, c = np.arange(steps)[:, None], np.arange(columns)[None, :]
    return (7919 * t * t * seed + 104729 * t * (c + 1) * seed) % 997


def pushed(session: Session, values: Any, step: int | None = None) -> Any:
    """One step, as arrays with one row."""
    session.push(values, step=step)
    return list(session.releases(session.step))[-1]


def ended(session: Session) -> Revised | None:
    """What the end of the stream says."""
    query = session._queries[0]
    mechanism: Any = query.mechanism
    output = mechanism.finish(query.state, session.step, query.draws)
    if output is None:
        return None
    output.check_shape(0, mechanism.outputs)
    assert not len(output.spans)
    return Revised(*output.revised)


def final_steps(releases: list[Any]) -> list[int]:
    """The steps of which final values were released."""
    return [step for each in releases if each.revised is not None for step in each.revised.steps.tolist()]


# steps that are passed over ----------------------------------------------------------------------------------------


def test_a_period_with_a_gap_has_no_final_values(mechanism: Any) -> None:
    """Neither the period that lost steps, nor one that was entered in the middle; whole ones have them."""
    if (w := mechanism.window) == 1:
        pytest.skip("a period of one step has no gap")
    rows, log = stream(20 * w, mechanism.columns, 1), MemoryLog()
    kept = [*range(1, 2 * w + 1), 2 * w + 1, 2 * w + 3, *range(3 * w + 1, 4 * w + 1)]
    kept += [5 * w + 3, 5 * w + 4, 7 * w + 2, *range(8 * w + 1, 9 * w + 1), 9 * w + 2, 10 * w]
    releases = []
    for place, step in enumerate(kept):
        if place % 3 == 0:
            session = Session(mechanism, log)
        releases.append(pushed(session, rows[step - 1], step))
    whole = [*range(1, 2 * w + 1), *range(3 * w + 1, 4 * w + 1), *range(8 * w + 1, 9 * w + 1)]
    assert final_steps(releases) == whole
    assert ended(session) is None
    assert verify(log.rows()).ok
    assert all(np.isfinite(each.values).all() for each in releases)


def test_noisy_sums_are_released_once() -> None:
    """A gap that leads into the next period must not let sums continue with the noise of the period before."""
    mechanism = Fourier(POLICY, coefficients=3)
    session = Session(mechanism)
    first = session.push_batch(stream(W, 1, 1)).revised
    assert first is not None
    for step in (W + 2, W + 3):
        session.push([5], step=step)
    assert not session._queries[0].state.sums.any()
    assert ended(session) is None
    later = session.push_batch(stream(W, 1, 1))  # to the third step of the next period
    assert later.revised is None
    assert (later.source == W).all()  # and until then the old curve is shown, with its step


def test_adaptive_samples_stop_after_a_gap() -> None:
    """What was chosen before is not known to be all: nothing is measured or charged, and no raw step is kept."""
    mechanism = PERIODIC["adaptive, own noise"]
    session = Session(mechanism)
    session.push_batch(stream(2, 1, 1))
    session.push([900], step=4)
    rest = session.push_batch(stream(2, 1, 1))
    assert (rest.status == int(Status.APPROXIMATED)).all()
    assert not rest.units.any()
    memory, segment = session._queries[0].state.sampler.stored()
    assert not memory.any()
    assert not segment.any()
    again = pushed(session, [3])
    assert again.status[0] == int(Status.FRESH)


def test_a_radius_belongs_to_one_period() -> None:
    """A period that ended early leaves a radius with samples to come; the next one has its own."""
    mechanism = PERIODIC["adaptive"]
    assert mechanism.shared is not None
    session = Session(mechanism)
    session.push([5, 5], step=1)
    assert session._queries[0].state.law.numbers[LEFT] == mechanism.sample_count - 1
    session.push([5, 5], step=W + 1)
    assert session._queries[0].state.law.numbers[LEFT] == mechanism.sample_count - 1


def test_samples_at_public_times_continue_after_a_gap() -> None:
    """Their times and their charges depend on nothing that was missed."""
    session = Session(PERIODIC["free times"])
    session.push([1, 1], step=1)
    later = [pushed(session, [1, 1], step) for step in (3, 5, 6, W + 3, 2 * W)]
    assert [int(each.status[0]) == int(Status.FRESH) for each in later] == [True, False, True, True, True]


# the end of the stream ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 2, W - 1, W, W + 1, 2 * W + 3])
def test_the_end_says_what_is_known_of_an_open_period(mechanism: Any, length: int) -> None:
    """Its steps, and no others; twice the same, in one session or after another was opened."""
    log, rows = MemoryLog(), stream(length, mechanism.columns, 1)
    with install(FixedEntropy("end")):
        session = Session(mechanism, log)
        if length:
            session.push_batch(rows)
        found, again = ended(session), ended(Session(mechanism, log))
    rest = length % mechanism.window
    if not rest:
        assert found is None
        assert again is None
        return
    assert found is not None
    assert again is not None
    assert found.steps.tolist() == list(range(length - rest + 1, length + 1))
    assert all(np.array_equal(one, other) for one, other in zip(found, again, strict=True))
    assert (found.ends == length).all()
    assert np.isfinite(found.values).all()


def test_parts_add_up_at_once_and_in_the_end() -> None:
    """Every node is the sum of those below it."""
    for name in ("hierarchy", "hierarchy, adaptive", "per leaf"):
        session = Session(PERIODIC[name])
        released = session.push_batch(stream(2 * W + 2, 3, 1))
        end = ended(session)
        assert released.revised is not None
        assert end is not None
        for values in (released.values, released.revised.values, end.values):
            for node, parent in enumerate(TREE.parents):
                below = [child for child, above in enumerate(TREE.parents) if above == node]
                if below:
                    assert np.allclose(values[:, node], values[:, below].sum(axis=1), rtol=1e-9, atol=1e-9)
                assert parent < len(TREE.parents)


# refusals, halts and copies ----------------------------------------------------------------------------------------


def test_a_horizon_is_refused_before_a_word_is_drawn(mechanism: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that passes the end changes nothing, and the session stays open."""
    from dataclasses import replace

    ending = replace(mechanism, policy=replace(mechanism.policy, horizon=2 * mechanism.window + 1))
    last, rows = ending.policy.horizon, stream(60, mechanism.columns, 1)
    with install(FixedEntropy("horizon")):
        session = Session(ending)
        session.push_batch(rows[: last - 1])
        kept = session._queries[0].state_to_store().encoded()
        monkeypatch.setattr(type(ending), "advance", lambda *_: pytest.fail("noise was drawn"))
        with pytest.raises(AccountRefused):
            session.push_batch(rows[:2])
        monkeypatch.undo()
        assert kept == session._queries[0].state_to_store().encoded()
        assert len(session.push_batch(rows[:1])) == 1


def test_a_halt_drops_the_open_period(mechanism: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent for w − 1 steps, then it restarts; the next final values are of a period that begins after that."""
    w, log = mechanism.window, MemoryLog()
    rows = stream(8 * w, mechanism.columns, 1)
    session = Session(mechanism, log)
    session.push_batch(rows[: w + 1])
    with monkeypatch.context() as patch:
        patch.setattr(type(mechanism), "status_of", lambda *_: 1 / 0)
        with pytest.raises(Halted):
            session.push_batch(rows[:2])
    session = Session(mechanism, log)
    found = session.push_batch(rows)
    silent = found.status == int(Status.SILENT)
    assert silent.sum() == w - 1
    assert silent[: w - 1].all()
    begin = (
        -(-(session.step - len(rows) + w - 1) // w) * w + 1
    )  # the first period that is seen from its beginning
    assert final_steps([found])[0] == begin
    assert verify(log.rows()).ok


def test_who_has_noise_in_the_state() -> None:
    """All but samples at public times with noise of their own and no sums."""
    plain = OptStream(POLICY, samples=3, noise="laplace")
    assert not plain.noise_in_state
    assert not HierarchicalOptStream(POLICY, hierarchy=TREE, samples=2).noise_in_state
    without = [name for name, each in PERIODIC.items() if not each.noise_in_state]
    assert without == ["window 1"]


def test_a_copy_restarts(mechanism: Any, tmp_path: Path) -> None:
    """Sums that began with their noise, radii and thresholds are dropped in a copy of a file."""
    rows, w = stream(8 * W, mechanism.columns, 1), mechanism.window
    with Session(mechanism, SQLiteLog(tmp_path / "one.db")) as session:
        session.push_batch(rows[: w + 1])
    shutil.copy(tmp_path / "one.db", tmp_path / "two.db")
    with Session(mechanism, SQLiteLog(tmp_path / "two.db")) as session:
        assert ended(session) is None or not mechanism.noise_in_state
        found = session.push_batch(rows)
    assert (found.status == int(Status.SILENT)).sum() == (w - 1 if mechanism.noise_in_state else 0)


# what is public ----------------------------------------------------------------------------------------------------


def test_records_have_public_sizes(mechanism: Any) -> None:
    """Whatever the data are, and wherever in a period a commit is made."""
    sizes = []
    for seed in (0, 1):
        log = MemoryLog()
        session, found = Session(mechanism, log), []
        for size in (1, 2, 1, 5, 1, 7, 3):
            session.push_batch(stream(size, mechanism.columns, seed))
            loaded = log.load()
            assert loaded is not None
            found.append(len(loaded.secret))
        found += [len(row.charges) + len(row.releases or b"") for row in log.rows()]
        end = ended(session)
        found += [] if end is None else [part.nbytes for part in end]
        sizes.append(found)
    assert sizes[0] == sizes[1]
    assert len(set(sizes[0][:7])) == 1  # of the secret part, wherever a period stands


def test_charges_do_not_depend_on_data(mechanism: Any) -> None:
    """Two streams, the same units and spans but for groups of samples, whose times are public."""
    charges = []
    for seed in (0, 1):
        log = MemoryLog()
        session = Session(mechanism, log)
        for size in (1, 2, 1, 5, 1, 7, 3):
            session.push_batch(stream(size, mechanism.columns, seed))
        charges.append([row.charges for row in log.rows()])
    assert charges[0] == charges[1]


def test_samples_per_leaf_are_for_fixed_units() -> None:
    """A unit that moves could meet a sample at each step of a window."""
    with pytest.raises(InvalidParameter, match="mobility"):
        PerLeafOptStream(POLICY, hierarchy=TREE, samples=3)


def test_huge_values_and_huge_windows() -> None:
    """Sums are cut at a public bound and do not wrap."""
    mechanism = OptStream(
        WEvent(epsilon="1", window=2000), samples=2, features=(whole_period(2000),), noise="laplace"
    )
    session = Session(mechanism)
    session.push_batch(np.full((1999, 1), 2**53))
    sums = session._queries[0].state.sums
    assert 2**61 < int(sums[0, 0]) < 2**63 - 1


def test_samples_of_other_leaves_say_nothing_of_a_leaf() -> None:
    """Final values of leaves with their own samples are surest at the ends of a period, which all leaves measure."""
    releases = Session(PERIODIC["per leaf"]).push_batch(np.full((8 * W, 3), 400))
    radius = releases.revised.radius(0.9)[-W:, -1]
    assert radius[2] >= radius[0]
    assert PERIODIC["per leaf"].samples_apart
    assert not PERIODIC["hierarchy, adaptive"].samples_apart


def test_intervals_are_known_after_the_end_cuts_a_period_short(mechanism: Any) -> None:
    """Nobody has asked for them before; the steps of the last period have some, too."""
    session = Session(mechanism)
    releases = session.push_batch(stream(2 * W + W // 2, mechanism.columns, 1))
    ended = session.finish()
    assert releases.radius(0.9).shape == releases.values.shape
    if ended is not None and ended.revised is not None:
        assert ended.revised.radius(0.9).shape == ended.revised.values.shape
