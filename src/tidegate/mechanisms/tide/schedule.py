"""When Tide measures: choices of so many measurements in a window, and the one with the least predicted error."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tidegate.exact import float_up, sqrt_up
from tidegate.mechanisms.sharing import WORTH_IT, Sharing, drawable
from tidegate.mechanisms.tide.forecast import predicted_error, predicted_silence, predicted_smoothed
from tidegate.mechanisms.tide.plan import (
    CHARGE,
    CHOICE,
    DUE,
    EIGHTHS,
    ENDLESS,
    KNOWN_AS,
    LAST_FIT,
    LENGTH,
    MEASUREMENTS,
    REMAINDER,
    SPAN,
    STAGE,
    VARIANCE,
    next_gap,
)
from tidegate.noise import check_scale, variance_gaussian, variance_laplace
from tidegate.structures.kernels import tracking as t
from tidegate.structures.kernels.replaying import phases_of
from tidegate.structures.kernels.state_space import SQUARED_LOAD
from tidegate.structures.state_space_tracker import Tracker

if TYPE_CHECKING:
    from tidegate.noise.shared.choice import Choice

DIVISOR = 5040  # units of the smallest share, so that most shares are exact
LONGEST_GAP = 512
WINDOWS_AHEAD = 2  # that a choice is judged by
HORIZON = 1024  # steps, at most
ENOUGH, GAPS = 144, 12  # steps, and gaps of the present choice, that are enough
OPENING_SHARE = Fraction(1, 8)  # of a sliding window's budget, for the very first measurement
FINITE_OPENING = Fraction(1, 32)  # the same where the budget never comes back
SECOND_SHARE = 2  # times as much for a second one at once, where it shows nothing and no period is to come
USELESS = 4.0  # a choice whose noise variance is so many times the squared size of the values says nothing
SHORTEST_OPENED = 16  # windows below need no opening
CAUTION = 4  # gaps are at most this part of what was seen so far
BOLDNESS = 2  # the same where a whole period showed nothing
SLACK, SPANS = 8, 64  # gaps that hide a period stretch by an eighth at most, and so many lengths are tried
PARTS_SOON, SOON = 6, 16  # parts of a public period that so many measurements in a row have to see,
PARTS_LATER, LATER = 12, 512  # and so many of them
PHASES = 8  # and they see so many phases of the first period, whose beginning says little about the rest
FAMILIAR = (
    48  # steps, without periods, after which a stream that shows nothing need not be watched at every step
)
EARLIER = 2  # so many times fewer, and stronger, measurements than before need not wait
CLEARLY = 0.97  # a choice is given up for one that is predicted to be so much better
LEAST_VARIANCE = 1e-6  # of noise, in squared grid units: the filter divides by it
# windows after which a semiorder is thought of, which is not easily left again; one if it is dense
SETTLED = 2
BEGINNING = 5.0  # times the variance, in the mean over the window in which a semiorder gets its budget
STAY = 8  # windows that a change to or from a semiorder is judged by, or as many steps as were seen so far
STAY_DENSE = 32  # the same for one that measures every step, which is never far from right
COARSE = 4.0  # grid units: the variance of noise with a smaller scale is not that of real numbers
MOST_GROUPS = 512  # in a window; their account is copied with every batch
FINITE_GROUP = 16  # measurements of a group where the budget never comes back: longer ones gain little
MOST_COLUMNS = 64  # that share noise, or have copies of it


@dataclass(frozen=True)
class Choices:
    """Public tables: for each number k of measurements in a window, and each law of noise, its charge and its noise.

    Attributes
    ----------
    units
        Into how many units the budget of a window is divided.
    shares
        k, the steps over which k gaps stretch, the units of one measurement or of one group, how many measurements a
        group has (0: each has noise of its own), how many of a semiorder a window may contain, of how many groups in
        turn how many have one measurement more, and where the ramp of a semiorder is.
    scales
        The scale of Laplace noise with the same variance (with ρ the standard deviation), the variance, and the noise as
        the filter takes it; grid units.
    laws
        The law of each row whose measurements share noise.
    rows
        How many choices there are; the tables have them three times: as they are, for a first window whose budget pays
        for the opening measurement, and for one that pays for a second one as well. Then follows the ramp of each
        semiorder, with one to seven eighths of its budget, and those two measurements.
    plain
        How many of the choices have Laplace noise: the first ones, one for each k.
    dense
        The choice for a time in which the model does not fit.
    gaussian
        Whether the budget is ρ, and all noise Gaussian.
    """

    units: int
    shares: npt.NDArray[np.int64]
    scales: npt.NDArray[np.float64]
    laws: tuple[Sharing | None, ...]
    rows: int
    plain: int
    dense: int
    gaussian: bool = False

    @property
    def shared(self) -> bool:
        """Whether there is any choice whose measurements share noise."""
        return self.rows > self.plain

    @cached_property
    def groups(self) -> int:
        """The most groups that a window can meet."""
        costs = self.shares[self.shares[:, LENGTH] > 0, CHARGE]
        return self.units // int(costs.min()) if costs.size else 0

    def describe(self) -> list[Any]:
        """The laws beside Laplace's, exactly."""
        return [law.describe() for law in self.laws[self.plain : self.rows] if law is not None]


def numbers_of_measurements(window: int) -> list[int]:
    """k from all steps down to one, in steps of about √2.

    Examples
    --------
    >>> numbers_of_measurements(24)
    [24, 16, 12, 8, 6, 4, 3, 2, 1]
    """
    found = [window]
    gap = Fraction(3, 2)
    while gap <= min(window, LONGEST_GAP):
        found.append(max(1, round(window / gap)))
        gap = gap * Fraction(4, 3) if gap.numerator % 3 == 0 else gap * Fraction(3, 2)
    if window <= LONGEST_GAP:
        found.append(1)
    return sorted(set(found), reverse=True)


@cache
def span_of(number: int, window: int, periods: tuple[float, ...]) -> int:
    """Over how many steps so many gaps stretch, so that no part of a period is left out for long.

    One step more than the window shows every phase once, of periods that nobody declared as well. But where gaps are
    nearly parts or multiples of a period, few of its phases are seen for a long time, and its shape passes for a level
    that wanders. Then the first number of steps that shows a public period soon; an eighth more than the window at most.

    Examples
    --------
    >>> span_of(2, 48, ()), span_of(2, 48, (24,)), span_of(24, 48, (24,)), span_of(48, 48, (24,))
    (49, 51, 49, 48)
    """
    if number == window or not (periods or window >= SHORTEST_OPENED):
        return window
    spans = range(window + 1, window + 2 + window // SLACK, max(1, window // (SLACK * SPANS)))
    least, best = np.inf, spans[0]
    for span in spans:
        hidden = max((_hidden(span / number, period) for period in periods), default=0.0)
        if hidden < least:
            least, best = hidden, span
        if hidden <= 1.0:
            break
    return best


def _hidden(gap: float, period: float) -> float:
    """What measurements with such gaps leave out of a period, soon and later; at most 1 where they show enough of it."""
    soon = PARTS_SOON * _hole(gap, period, SOON) if gap * PARTS_SOON > period else 0.0
    if soon > 1.0 or gap * LATER < 2 * period:
        return soon
    return max(soon, PARTS_LATER * _hole(gap, period, LATER))


def _hole(gap: float, period: float, count: int) -> float:
    """The largest part of a period in which none of so many measurements is."""
    phases = np.sort(np.floor(np.arange(count) * gap) % period)
    return float(np.diff(phases, append=phases[0] + period).max() / period)


def choices(
    window: int,
    sliding: bool,
    periods: Sequence[float],
    sensitivity: int,
    epsilon: Fraction,
    columns: int = 1,
    copies: int = 1,
    kinds: tuple[str, ...] = (),
    gaussian: bool = False,
) -> Choices:
    """The tables for a policy and a stream's public periods.

    Parameters
    ----------
    window, sliding
        Steps that share a budget, and whether it comes back.
    periods
        Public periods of the stream, in steps.
    sensitivity, epsilon
        Δ in grid units, and ε of a window; ρ where noise is Gaussian.
    columns, copies
        Columns that a unit may be in, and columns that have noise of their own because it stays in one.
    kinds
        Laws that measurements may share, besides noise of their own: "cube", "semiorder".
    gaussian
        Whether the budget is ρ.
    """
    units = DIVISOR * 32 * window if window < 2**30 else 32 * window
    opening = (OPENING_SHARE if sliding else FINITE_OPENING) if window >= SHORTEST_OPENED else Fraction(0)
    numbers = numbers_of_measurements(window)
    own = _gaussian_noise if gaussian else _laplace_noise
    offered = _shared_choices(numbers, columns, copies, kinds, sliding) if kinds else []
    least, most = epsilon * (1 - 4 * opening), epsilon
    shared = [
        (number, choice)
        for number, choice in offered
        if all(
            drawable(Sharing(choice, sensitivity, each, copies))
            for each in (least if choice.law == "cube" else epsilon / EIGHTHS, most)
        )
    ]
    shares: list[tuple[int, ...]] = []
    scales: list[tuple[float, ...]] = []
    laws: list[Sharing | None] = []
    second = SECOND_SHARE * opening
    choices_of: list[tuple[int, Choice | None]] = [*((number, None) for number in numbers), *shared]
    for left in (Fraction(1), 1 - opening, 1 - opening - second):
        for number, choice in choices_of:
            span = span_of(number, window, tuple(periods))
            whole, parts = int(left * units), number
            if choice is not None:
                parts = choice.share if choice.law == "cube" else 1
            charge = whole // parts
            law = None
            if choice is not None:
                law = Sharing(choice, sensitivity, epsilon * charge * parts / units, copies)
            laws.append(law)
            shares.append((number, span, charge, *_shape(choice)))
            scales.append(own(sensitivity, epsilon * charge / units) if law is None else _shared_noise(law))
    for at, (_, choice) in enumerate(choices_of):
        if choice is not None and choice.law == "semiorder":
            ramp = len(shares)
            for eighths in range(1, EIGHTHS):
                charge = units * eighths // EIGHTHS
                law = Sharing(choice, sensitivity, epsilon * charge / units, copies)
                laws.append(law)
                shares.append((*shares[at][:2], charge, *shares[at][3:]))
                scales.append(_shared_noise(law))
            shares[at] = (*shares[at][:-1], ramp)
    for share in (opening, second):
        charge = int(share * units) or units // window
        laws.append(None)
        shares.append((window, window, charge, *_shape(None)))
        scales.append(own(sensitivity, epsilon * charge / units))
    dense = [0, *(at for at, (number, _) in enumerate(choices_of) if number == window)]
    lasting = [at for at in dense if shares[at][LENGTH] < ENDLESS]
    return Choices(
        units,
        np.array(shares, dtype=np.int64),
        np.array(scales),
        tuple(laws),
        len(choices_of),
        len(numbers),
        min(lasting, key=lambda at: scales[at][VARIANCE]),
        gaussian,
    )


def _shape(choice: Choice | None) -> tuple[int, int, int, int, int]:
    """How many measurements groups have, how many of a semiorder a window may contain; see `Choices.shares`."""
    if choice is None:
        return 0, 0, 1, 0, 0
    if choice.law == "cube":
        least = min(choice.lengths)
        return least, 0, len(choice.lengths), sum(length > least for length in choice.lengths), 0
    return ENDLESS, choice.width * choice.share, 1, 0, 0


def _laplace_noise(sensitivity: int, epsilon: Fraction) -> tuple[float, float, float]:
    """A row of `Choices.scales` for a measurement with so much of ε."""
    scale = float_up(sensitivity / epsilon)
    check_scale(scale)  # refuses, while nothing is charged, what noise could not be drawn for
    variance = max(variance_laplace(scale), LEAST_VARIANCE)
    return scale, variance, variance


def _gaussian_noise(sensitivity: int, rho: Fraction) -> tuple[float, float, float]:
    """A row of `Choices.scales` for a measurement with so much of ρ."""
    sigma = sqrt_up(sensitivity**2 / (2 * rho))
    check_scale(sigma)
    variance = max(variance_gaussian(sigma), LEAST_VARIANCE)
    return sigma, variance, variance


def _shared_noise(law: Sharing) -> tuple[float, float, float]:
    """A row of `Choices.scales` for a measurement that shares its noise."""
    if law.scale < COARSE:
        variance = law.law.variance()
    else:
        variance = law.choice.variance * law.sensitivity**2 / float(law.epsilon) ** 2
    variance = max(variance, LEAST_VARIANCE)
    return law.laplace_scale, variance, -variance


def _shared_choices(
    numbers: list[int], columns: int, copies: int, kinds: tuple[str, ...], sliding: bool
) -> list[tuple[int, Choice]]:
    """For each k the best cube and the best semiorder, where they gain against Laplace noise."""
    from tidegate.noise.shared.choice import LONGEST_GROUP, choices, cube_choice

    if columns * copies > MOST_COLUMNS:
        return []
    found: list[tuple[int, Choice]] = []
    for number in numbers:
        offered = list(choices(number, columns))[1:]
        if not sliding:
            length = min(number, FINITE_GROUP, LONGEST_GROUP // columns)
            offered = [cube_choice((length,), -(-number // length), columns)]
        offered = [choice for choice in offered if choice.share <= MOST_GROUPS]
        worth = [choice for choice in offered if choice.variance <= WORTH_IT * 2.0 * number**2]
        for kind in kinds:
            own = [choice for choice in worth if choice.law == kind]
            if own:
                found.append((number, min(own, key=lambda choice: choice.variance)))
    return found


def choose(tables: Choices, tracker: Tracker, age: int, present: int, horizon: int, smoothed: bool) -> int:
    """The choice with the least error that the fitted model predicts for the coming steps, after `age` steps."""
    memory, structure = tracker.memory, tracker.structure
    kinds, counts = np.unique(memory["kind"][: tracker.columns], return_counts=True)
    weights = counts / tracker.columns
    scratch = np.zeros((structure.states, structure.states))
    shares, plain = tables.shares[: tables.rows], tables.plain
    gaps = shares[:, SPAN] / shares[:, MEASUREMENTS]
    variance = tables.scales[: tables.rows, VARIANCE]
    heard_as = -variance if tables.gaussian else tables.scales[: tables.rows, KNOWN_AS]
    endless = shares[:, LENGTH] == ENDLESS
    window = int(shares[0, MEASUREMENTS])
    size = tracker.size
    shortest = min(structure.periods, default=0.0)
    if not size.visible:
        # strong measurements see most, but until a period has passed nobody knows what the rest of it is like:
        # many weak ones find soon whatever is worse to miss than plain noise is to release
        watched = age < min(shortest or FAMILIAR, 2 * window)
        blind = max(1.0, min(shortest, window) / PHASES if watched else age / BOLDNESS)
        number = shares[np.flatnonzero(gaps[:plain] <= blind)[-1], MEASUREMENTS]
        same = np.flatnonzero((shares[:, MEASUREMENTS] == number) & ~endless)
        return int(same[np.argmin(variance[same])])
    useful = np.append(np.flatnonzero(variance[:plain] <= USELESS * size.square), plain - 1)[0]
    skipped = gaps[useful] if age > shortest else min(gaps[useful], shortest / PHASES)
    longest = max(1.0, age / CAUTION, skipped)
    now = int(memory["clock"][t.LAST])
    beyond = tracker.keep if smoothed else int(gaps[-1]) + 1
    ahead = max(horizon + beyond, window if endless.any() else 0)
    coming = phases_of(np.arange(now + 1, now + 1 + ahead), structure.once)
    models: list[tuple[Any, Any, Any, Any]] = [
        (memory["covariance"][c], memory["parameters"][c], coming, structure.weight)
        for c in [*kinds, tracker.classes - 1]
    ]
    loads = np.sqrt(memory["parameters"][kinds, SQUARED_LOAD])

    def of_model(model: tuple[Any, Any, Any, Any], choice: int, noise: float, limit: float) -> float:
        rule = (tables.shares, choice, noise, horizon)
        if smoothed:
            return predicted_smoothed(*model, now, structure.once, *rule, tracker.keep, scratch)
        return predicted_error(*model, *rule, limit, scratch)

    def of_common(error: Callable[[tuple[Any, Any, Any, Any]], float]) -> float:
        return error(models[-1]) if tracker.shares else 0.0

    def predicted(choice: int, limit: float, more: float = 1.0) -> float:
        less = -more * variance[choice] / memory["health"][t.LOADS]
        common, error = of_common(lambda model: of_model(model, choice, less, np.inf)), 0.0
        for model, weight, load in zip(models, weights, loads, strict=False):
            own = of_model(model, choice, more * heard_as[choice], (limit - error) / weight)
            error += weight * math.hypot(own, load * common)
        return error

    def silence() -> float:
        work, spread = np.zeros(structure.states), np.zeros(structure.states)

        def of_silence(model: tuple[Any, Any, Any, Any]) -> float:
            return predicted_silence(*model, window - 1, work, spread)

        own, common = np.array([of_silence(model) for model in models[: len(kinds)]]), of_common(of_silence)
        return float(weights @ np.hypot(own, loads * common))

    # a semiorder begins with a window in which it has not yet all of its budget, and one in which nothing is measured
    # comes after it: it has to be worth that
    dense = shares[:, MEASUREMENTS] == window
    settled = np.where(dense, 1, SETTLED) * window
    between = silence() if endless[present] else 0.0
    allowed = [
        choice
        for choice in range(tables.rows)
        if (gaps[choice] <= longest or gaps[choice] == gaps[0])
        and (not endless[choice] or age >= settled[choice] or choice == present)
    ]
    best, least = allowed[0], np.inf
    if present in allowed:
        best, least = present, CLEARLY * predicted(present, np.inf)
    for choice in allowed:
        if choice != present:
            changing = window - 1 if endless[choice] or endless[present] else 0
            stays = max(age, (STAY_DENSE if dense[choice] else STAY) * window)
            cost = changing * between
            error = predicted(choice, (least * (stays + changing) - cost) / stays)
            if endless[choice] and not endless[present] and np.isfinite(error):
                cost = changing * predicted(choice, np.inf, BEGINNING)
            error = (error * stays + cost) / (stays + changing)
            if error < least:
                best, least = choice, error
    return best


def replan(
    tables: Choices, tracker: Tracker, plan: npt.NDArray[np.int64], window: int, smoothed: bool, origin: int
) -> None:
    """Choose again after new estimates, and move the next measurement; the stream began after `origin`."""
    step = int(tracker.memory["clock"][t.LAST])
    opening = len(tables.shares) - 2
    if tables.rows > 1:
        before = int(plan[CHOICE])
        number, span = tables.shares[before, MEASUREMENTS], tables.shares[before, SPAN]
        enough = max(ENOUGH, int(GAPS * span // number))
        horizon = min(WINDOWS_AHEAD * window, HORIZON, enough)
        chosen = choose(tables, tracker, step - origin, before, horizon, smoothed)
        if chosen != before:
            number = int(tables.shares[chosen, MEASUREMENTS])
            # much stronger measurements begin at once if the window has budget to spare, else as soon as it has;
            # to others one goes over with a long first gap: choices that change to and fro must not waste budget
            stronger = EARLIER * number <= tables.shares[before, MEASUREMENTS]
            plan[CHOICE], plan[REMAINDER] = chosen, number - 1
            sliding = ENDLESS in tables.shares[[before, chosen], LENGTH]  # then nothing is left anyway
            at_once = stronger or sliding
            plan[DUE] = step + (1 if at_once else next_gap(tables.shares, chosen, plan))
    opened = tracker.count == 1 and tables.shares[opening, CHARGE] > tables.shares[0, CHARGE]
    if opened and not tracker.structure.periods and not tracker.size.visible:
        plan[STAGE], plan[DUE] = 1, step + 1
    plan[LAST_FIT] = tracker.count
