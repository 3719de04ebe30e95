"""Tide's measurements share noise: what is charged, and what a radius may be used for."""

from __future__ import annotations

import numpy as np
import pytest

import tidegate as tg
from tidegate.core.log import MemoryLog
from tidegate.core.session import Session, charges_of
from tidegate.core.verify import verify
from tidegate.errors import InvalidParameter
from tidegate.mechanisms import Tide
from tidegate.mechanisms.tide import plan
from tidegate.noise.fixed import FixedEntropy
from tidegate.structures.kernels import tracking as t

W = 12
POLICY = tg.WEvent(epsilon="2", window=W)


def wandering(steps, seed=1):
    """A level that wanders so much that nearly every step is worth a measurement, and then hardly at all."""
    generator = np.random.default_rng(seed)
    moves = np.where(np.arange(steps) < steps // 2, 3.0, 0.2)
    return np.rint(5000 + (moves * generator.normal(size=steps)).cumsum()).astype(np.int64)[:, np.newaxis]


def charged_in(mechanism, truth, chunks):
    """Push a stream in pieces; fresh steps, scales, and what was charged: spans as they are in the end, and steps."""
    log = MemoryLog()
    session = Session(mechanism, log)
    pieces = [session.push_batch(piece) for piece in np.array_split(truth, chunks)]
    spans, own = {}, {}
    for row in log.rows():
        if row.last >= row.first:
            _, charges = charges_of(row)[0]
            own.update({row.first + at: int(paid) for at, paid in enumerate(charges.units) if paid})
            spans.update({(law, ordinal): rest for law, ordinal, *rest in charges.spans.tolist() if rest[2]})
    assert verify(log.rows()).ok
    state = session._queries[0].state
    return (
        *(np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("fresh", "scale")),
        list(spans.values()),
        own,
        state,
    )


@pytest.mark.parametrize("noise", ["auto", "cube", "semiorder"])
@pytest.mark.parametrize("chunks", [1, 97])
def test_every_window_pays_for_what_was_measured_in_it(noise, chunks):
    """Counted by hand: no window meets more than ε, each measurement is paid for, no radius has too many of them."""
    mechanism = Tide(POLICY, noise=noise)
    fresh, _, spans, own, _ = charged_in(mechanism, wandering(600), chunks)
    steps, units = np.flatnonzero(fresh) + 1, mechanism.units
    assert spans
    for end in range(1, 601):
        met = sum(paid for first, last, paid in spans if first <= end and last > end - W)
        met += sum(paid for step, paid in own.items() if end - W < step <= end)
        assert met <= units
    inside = [[step for step in steps if first <= step <= last] for first, last, _ in spans]
    assert sorted({*own, *(step for group in inside for step in group)}) == steps.tolist()
    shares = mechanism.choices.shares
    longest = {
        int(row[plan.CHARGE]): int(row[plan.LENGTH] + (row[plan.LONGER] > 0))
        for row in shares
        if 0 < row[plan.LENGTH] < plan.ENDLESS
    }
    breadth = shares[:, plan.BREADTH].max(initial=0)
    for group, (_, _, paid) in zip(inside, spans, strict=True):
        radius = [length for cost, length in longest.items() if cost <= paid]
        if noise == "semiorder" or len(group) > max(radius, default=0):
            # a part of a semiorder: no window has more of its measurements than it was made for
            assert noise != "cube"
            assert max(np.searchsorted(group, step + W) - at for at, step in enumerate(group)) <= breadth


@pytest.mark.parametrize("chunks", [1, 150])
def test_a_semiorder_begins_with_what_is_left(chunks):
    """Its noise is that of the eighths which are paid; with all of them at once a window would have lost too much."""
    mechanism = Tide(tg.WEvent(epsilon="2", window=24))  # five groups in a window, and no fraction of eighths
    _, scales, spans, _, state = charged_in(mechanism, wandering(600)[:300] * 100, chunks)
    units = mechanism.units
    eighth = units // plan.EIGHTHS
    parts = [span for span in spans if span[2] % eighth == 0]
    cubes = [span for span in spans if span[2] % eighth]
    assert len(parts) > 2
    assert sum(paid for _, _, paid in parts) == units
    full = mechanism.choices.scales[state.plan[plan.CHOICE], plan.SCALE]
    for step in range(parts[0][0], 301):
        paid = sum(paid for first, last, paid in parts if first <= step <= last)
        assert scales[step - 1] == pytest.approx(full * units / paid, rel=1e-5)
        others = sum(paid for _, last, paid in cubes if last > step - 24)
        assert paid + others <= units
    begin = parts[0][0]
    assert units + sum(paid for _, last, paid in cubes if last > begin - 24) > units


def test_a_semiorder_goes_on_with_less_noise():
    """More budget changes the scale and not the arrivals: what follows is as if it had always been there."""
    choices = Tide(POLICY, noise="semiorder").choices
    row = int(np.flatnonzero(choices.shares[:, plan.RAMP])[0])
    less, full = choices.laws[choices.shares[row, plan.RAMP]].law, choices.laws[row].law
    source = FixedEntropy(5)
    always, _ = full.draw(source, "ramp", 0, full.start(), 40)
    begun, state = less.draw(source, "ramp", 0, less.start(), 15)
    after, _ = full.draw(source, "ramp", 15, state, 25)
    assert np.array_equal(after, always[15:])
    assert np.abs(begun - plan.EIGHTHS * always[:15]).max() <= plan.EIGHTHS


def test_a_semiorder_is_no_wider_than_its_window():
    """Measurements that come too soon wait: with the check taken away a window would have one too many."""
    mechanism = Tide(POLICY, noise="semiorder")
    session = Session(mechanism)
    session.push_batch(wandering(300))
    row = int(np.flatnonzero(mechanism.choices.shares[:, plan.BREADTH] == 2)[0])
    steps = []
    for value in wandering(40)[:, 0].tolist():
        state = session._queries[0].state
        state.plan[plan.DUE] = 0  # a schedule gone mad: measure always
        state.plan[[plan.CHOICE, plan.ALARM]] = row, 0
        state.book.clock[[t.FITTED, t.NEXT_FIT]] = 2**60  # no new estimate
        release = session.push(value)
        if release.fresh:
            steps.append(release.step)
    late = [step for step in steps if step > 300 + W]
    assert len(late) >= 3
    assert all(third - first >= W for first, third in zip(late, late[2:], strict=False))


def test_laplace_noise_is_noise_of_its_own():
    """noise="laplace" has no secret state, and what shares noise is another configuration."""
    policy = tg.WEvent(epsilon="0.1", window=48)
    plain, shared = Tide(policy, periods=(48, 336), noise="laplace"), Tide(policy, periods=(48, 336))
    assert plain.units == 7741440
    assert not plain.shares_noise
    assert not plain.noise_in_state
    assert shared.shares_noise
    assert shared.describe() != plain.describe()


def test_where_sharing_gains_nothing_noise_is_as_before():
    """One step in a window, many columns: no shared noise, no secret, the old description."""
    for mechanism in (
        Tide(tg.Event(epsilon="1"), columns=2),
        Tide(tg.WEvent(epsilon="1", window=8), columns=200),
    ):
        assert not mechanism.shares_noise
        assert "noise" not in mechanism.describe()
        assert not any("secret" in clause for clause in mechanism.guarantee.assumptions)
    assert any("secret" in clause for clause in Tide(POLICY).guarantee.assumptions)
    with pytest.raises(InvalidParameter, match="'auto' or 'laplace'"):
        Tide(POLICY, noise="gumbel")


def test_a_user_shares_noise_in_groups():
    """Where budget never comes back a group of sixteen loses what one does, and the whole stream at most ε; α < 1e-11."""
    policy = tg.User(epsilon="1", horizon=400)
    truth = wandering(400) * 10
    errors: dict[str, float] = {"laplace": 0.0, "auto": 0.0}
    for noise in errors:
        for _ in range(30):  # the errors of single runs overlap
            mechanism, log = Tide(policy, noise=noise, delay=0), MemoryLog()
            releases = Session(mechanism, log).push_batch(truth)
            errors[noise] += np.abs(releases.values - truth).mean()
            assert verify(log.rows()).ok
            assert releases.units.sum() <= mechanism.units
    assert errors["auto"] < errors["laplace"]
