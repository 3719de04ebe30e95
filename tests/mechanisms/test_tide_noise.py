"""Tide's measurements share noise: what is charged, what a radius may be used for, what a restored run drops."""

from __future__ import annotations

import numpy as np
import pytest

import tidegate as tg
from tidegate.errors import InvalidParameter, LedgerMismatch
from tidegate.ledger import MemoryLedger
from tidegate.mechanisms import Tide
from tidegate.mechanisms.tide import loop_run as loop
from tidegate.noise import install
from tidegate.noise.fixed import FixedEntropy
from tidegate.releases import Status

W = 12
POLICY = tg.WEvent(epsilon="2", w=W)


def wandering(steps, seed=1):
    """A level that wanders so much that nearly every step is worth a measurement, and then hardly at all."""
    generator = np.random.default_rng(seed)
    moves = np.where(np.arange(steps) < steps // 2, 3.0, 0.2)
    return np.rint(5000 + (moves * generator.normal(size=steps)).cumsum()).astype(np.int64)[:, np.newaxis]


def charged_in(run, truth, chunks):
    """Push a stream in pieces; its releases, and every charge that reached the ledger: spans and single steps."""
    spans, own, kept = [], {}, run.ledger.charge_batch

    def heard(first, units, *, groups=None, extended=None, scope=""):
        own.update({first + at: int(paid) for at, paid in enumerate(units) if paid})
        for first_step, last, paid, further in [] if extended is None else np.asarray(extended).tolist():
            spans[spans.index([first_step, last, paid])][1] = further
        spans.extend([] if groups is None else np.asarray(groups).tolist())
        kept(first, units, groups=groups, extended=extended, scope=scope)

    run.ledger.charge_batch = heard
    run.ledger.keeps_batches = False  # everything goes through this door
    pieces = [run.push_batch(piece) for piece in np.array_split(truth, chunks)]
    return np.concatenate([piece.fresh for piece in pieces]), spans, own


@pytest.mark.parametrize("noise", ["auto", "cube", "semiorder"])
@pytest.mark.parametrize("chunks", [1, 97])
def test_every_window_pays_for_what_was_measured_in_it(noise, chunks):
    """Counted by hand: no window meets more than ε, each measurement is paid for, no radius has too many of them."""
    mechanism = Tide(POLICY, noise=noise)
    run = mechanism.start()
    fresh, spans, own = charged_in(run, wandering(600), chunks)
    steps, units = np.flatnonzero(fresh) + 1, run.ledger.units
    assert spans
    for end in range(1, 601):
        met = sum(paid for first, last, paid in spans if first <= end and last > end - W)
        met += sum(paid for step, paid in own.items() if end - W < step <= end)
        assert met <= units
    inside = [[step for step in steps if first <= step <= last] for first, last, _ in spans]
    assert sorted({*own, *(step for group in inside for step in group)}) == steps.tolist()
    shares = run._rule.shares
    longest = {
        int(row[loop.CHARGE]): int(row[loop.LENGTH] + (row[loop.LONGER] > 0))
        for row in shares
        if 0 < row[loop.LENGTH] < loop.ENDLESS
    }
    breadth = shares[:, loop.BREADTH].max(initial=0)
    for group, (_, _, paid) in zip(inside, spans, strict=True):
        radius = [length for cost, length in longest.items() if cost <= paid]
        if noise == "semiorder" or len(group) > max(radius, default=0):
            # a part of a semiorder: no window has more of its measurements than it was made for
            assert noise != "cube"
            assert max(np.searchsorted(group, step + W) - at for at, step in enumerate(group)) <= breadth
    assert run.ledger.verify().ok


@pytest.mark.parametrize("chunks", [1, 150])
def test_a_semiorder_begins_with_what_is_left(chunks):
    """Its noise is that of the eighths which are paid; with all of them at once a window would have lost too much."""
    run = Tide(tg.WEvent(epsilon="2", w=24)).start()  # five groups in a window, and no fraction of eighths
    scales, pushed = [], run.push_batch

    def push_batch(piece):
        releases = pushed(piece)
        scales.extend(releases.scale)
        return releases

    run.push_batch = push_batch
    _, spans, _ = charged_in(run, wandering(600)[:300] * 100, chunks)
    eighth = run.ledger.units // loop.EIGHTHS
    parts = [span for span in spans if span[2] % eighth == 0]
    cubes = [span for span in spans if span[2] % eighth]
    assert len(parts) > 2
    assert sum(paid for _, _, paid in parts) == run.ledger.units
    full = run._rule.scales[run.plan[loop.CHOICE], loop.SCALE]
    for step in range(parts[0][0], 301):
        paid = sum(paid for first, last, paid in parts if first <= step <= last)
        assert scales[step - 1] == pytest.approx(full * run.ledger.units / paid, rel=1e-5)
        others = sum(paid for _, last, paid in cubes if last > step - 24)
        assert paid + others <= run.ledger.units
    begin = parts[0][0]
    at_once = run.ledger.units + sum(paid for _, last, paid in cubes if last > begin - 24)
    assert at_once > run.ledger.units


def test_a_semiorder_goes_on_with_less_noise():
    """More budget changes the scale and not the arrivals: what follows is as if it had always been there."""
    choices = Tide(POLICY, noise="semiorder").choices
    row = int(np.flatnonzero(choices.shares[:, loop.STAIRS])[0])
    less, full = choices.laws[choices.shares[row, loop.STAIRS]].law, choices.laws[row].law
    source = FixedEntropy(5)
    always, _ = full.draw(source, "stairs", 0, full.start(), 40)
    begun, state = less.draw(source, "stairs", 0, less.start(), 15)
    after, _ = full.draw(source, "stairs", 15, state, 25)
    assert np.array_equal(after, always[15:])
    assert np.abs(begun - loop.EIGHTHS * always[:15]).max() <= loop.EIGHTHS


def test_a_semiorder_is_no_wider_than_its_window():
    """Measurements that come too soon wait: with the check taken away a window would have one too many."""
    mechanism = Tide(POLICY, noise="semiorder")
    run = mechanism.start()
    run.push_batch(wandering(300))
    row = int(np.flatnonzero(mechanism.choices.shares[:, loop.BREADTH] == 2)[0])
    run.plan[[loop.CHOICE, loop.DUE]] = row, run.step + 1
    rest = wandering(40)
    steps = []
    for value in rest[:, 0].tolist():
        run.plan[loop.DUE] = 0  # a schedule gone mad: measure always
        run.plan[[loop.CHOICE, loop.ALARM]] = row, 0
        run._tracker.memory["clock"][[3, 7]] = 2**60  # no new estimate
        release = run.push(value)
        if release.fresh:
            steps.append(release.step)
    late = [step for step in steps if step > 300 + W]
    assert len(late) >= 3
    assert all(third - first >= W for first, third in zip(late, late[2:], strict=False))


def test_laplace_is_what_it_was():
    """noise="laplace" has the units and the digest of version 0.2; its snapshots go on with it whatever is asked now."""
    policy = tg.WEvent(epsilon="0.1", w=48)
    plain = Tide(policy, periods=(48, 336), noise="laplace")
    assert (plain.fingerprint, plain.units) == ("abd122885f5a13a01510798ed6a544b4", 7741440)
    assert not plain.shares_noise
    run = plain.start()
    run.push_batch(wandering(60))
    now = Tide(policy, periods=(48, 336))
    assert now.shares_noise
    assert now.fingerprint != plain.fingerprint
    restored = now.start(state=run.snapshot())
    assert restored.mechanism == plain
    restored.push_batch(wandering(60))
    assert not restored.plan[loop.NUMBER]


def test_where_sharing_gains_nothing_noise_is_as_before():
    """One step in a window, many columns: no shared noise, no secret, the old description."""
    for mechanism in (Tide(tg.Event(epsilon="1"), columns=2), Tide(tg.WEvent(epsilon="1", w=8), columns=200)):
        assert not mechanism.shares_noise
        assert "noise" not in mechanism.describe()
        assert not any("secret" in clause for clause in mechanism.guarantee.assumptions)
    assert Tide(tg.Event(epsilon="1"), columns=2).fingerprint == "7a369c809830fbc1d563867bcb013f89"
    assert any("secret" in clause for clause in Tide(POLICY).guarantee.assumptions)
    with pytest.raises(InvalidParameter, match="'auto' or 'laplace'"):
        Tide(POLICY, noise="gumbel")


@pytest.mark.parametrize("noise", ["cube", "semiorder"])
def test_a_snapshot_in_memory_drops_what_it_shares(noise):
    """Restored twice it would use one radius twice, so it uses it never, and waits as long as the group was open."""
    run = Tide(POLICY, noise=noise).start()
    run.push_batch(wandering(300)[:130])
    while not run.holds_noise:
        run.push(5000)
    state = run.snapshot()
    assert state != run.snapshot()[:-1]
    for _ in range(2):
        restored = Tide(POLICY, noise=noise).start(state=state)
        assert not restored.holds_noise
        assert not restored._pool.pool.size
        assert restored.push(10**6).status is Status.APPROXIMATED
        assert restored.push_batch(np.full((5 * W, 1), 5000)).fresh.any()
        assert restored.ledger.verify().ok
    going_on = Tide(POLICY, noise=noise).start(ledger=run.ledger, state=run.snapshot())
    assert going_on.holds_noise
    with pytest.raises(LedgerMismatch, match="another run"):
        run.push(1)


class Broken(FixedEntropy):
    """Gives nothing at all."""

    def word(self, *address):
        """Fail."""
        raise RuntimeError("the machine is on fire")

    words = word


def test_a_draw_that_fails_ends_the_run():
    """Whatever is raised while noise is drawn, the run is not used again: nobody draws until noise suits them."""
    with install(FixedEntropy(3)):
        run = Tide(POLICY, noise="cube").start()
        run.push_batch(wandering(300)[:20])
        run.source = Broken(1)
        with pytest.raises(RuntimeError):
            run.push_batch(wandering(300)[20:])
        run.source = FixedEntropy(4)
        with pytest.raises(LedgerMismatch, match="interrupted"):
            run.push(0)


def test_a_user_shares_noise_in_groups():
    """Where budget never comes back a group of sixteen loses what one does, and the whole stream at most ε; α < 1e-11."""
    policy = tg.User(epsilon="1", horizon=400)
    truth = wandering(400) * 10
    errors: dict[str, float] = {"laplace": 0.0, "auto": 0.0}
    for noise in errors:
        for _ in range(30):  # the errors of single runs overlap
            run = Tide(policy, noise=noise, delay=0).start()
            releases = run.push_batch(truth)
            errors[noise] += np.abs(releases.values - truth).mean()
            assert run.ledger.verify().ok
            assert releases.units.sum() <= run.ledger.units
    assert errors["auto"] < errors["laplace"]


def test_steps_before_the_first_measurement_are_not_invented():
    """On a crowded ledger nothing is known at first, also afterwards: zero with an endless interval, not 10^24."""
    mechanism = Tide(tg.WEvent(epsilon="0.1", w=120), noise="laplace")
    ledger = MemoryLedger(mechanism.policy, mechanism.units)
    ledger.charge(1, mechanism.units)
    releases = mechanism.start(ledger=ledger).push_batch(np.full((500, 1), 5000))
    silent = releases.source == 0
    assert silent[:119].all()
    assert not silent[119:].any()
    for found in (releases, releases.revised):
        before = found.source == 0
        assert before.any()
        assert not found.values[before].any()
        assert np.isinf(found.deviation[before]).all()
        assert (found.status[before] == Status.APPROXIMATED).all()
        assert np.abs(found.values).max() < 10**5


def test_a_run_goes_on_in_the_middle_of_the_stairs(tmp_path):
    """Restored every third step from a ledger on disk, a semiorder keeps its parts and gets the others."""
    mechanism, path = Tide(tg.WEvent(epsilon="2", w=24)), tmp_path / "ledger.db"
    run, levels = mechanism.start(path), set()
    for value in (wandering(400)[:90, 0] * 100).tolist():
        run.push(value)
        levels.add(int(run.plan[loop.LEVEL]))
        if run.step > 24 and run.step % 3 == 0:
            state, plan = run.snapshot(), run.plan.copy()
            run.ledger.close()
            run = mechanism.start(path, state)
            assert np.array_equal(run.plan, plan)
            assert run.holds_noise == bool(plan[loop.LEFT])
    assert loop.EIGHTHS in levels
    assert len(levels) > 3
    assert run.ledger.verify().ok
    run.ledger.close()
