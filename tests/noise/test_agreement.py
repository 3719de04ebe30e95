"""The compiled draws agree with the integer reference bit for bit, also next to every kind of boundary."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from itertools import accumulate, chain, repeat

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.noise import discrete_gaussian, gaussian, kernels, laplace, laplace_one, reference
from tidegate.noise.discrete_laplace import element_words
from tidegate.noise.entropy import Elements, Words
from tidegate.testing.entropy import FixedEntropy
from tiers import thinned

SCALES = [
    5e-324, 1e-300, 0.01, 0.3, 1.0, 1.5, 2.0, 10.7, 1000.0, 65536.123, 2.0**20 - 0.1, 2.0**20,
    float(np.nextafter(2.0**20, 3e6)), 2.0**21, 2.0**30 + 0.5, 2.0**40 * 1.3, 2.0**50, 2.0**56,
]  # fmt: skip
BITS = 1 << 64


class Planted:
    """Serves planted leading words, then hashed ones, to the elements of one step."""

    name = "planted"
    marked = True

    def __init__(self, *leading: npt.ArrayLike, extension: int | None = None) -> None:
        self._leading = np.atleast_2d(np.array(leading, dtype=np.uint64))
        self._rest = FixedEntropy("rest")
        self._extension = extension

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """Planted words where there are some."""
        found = [[self.word(stream, step, int(e), first + i) for e in elements] for i in range(count)]
        return np.array(found, dtype=np.uint64).reshape(count, len(elements))

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """A planted word if there is one."""
        if index < len(self._leading):
            return int(self._leading[index, draw])
        if self._extension is not None:
            return self._extension
        return self._rest.word(stream, step, draw, index)


def exact_exp(exponent: Fraction) -> Decimal:
    """exp(−exponent) to 80 digits by another library than ours."""
    return (-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()


def boundary(scale: float, value: int) -> int:
    """The largest integer below 2^63 · P(|X| ≥ value), or of the high part for a scale above 2^20."""
    with localcontext() as context:
        context.prec = 80
        exact = Fraction(scale)
        shift = reference.two_parts(exact)
        part = exact / (1 << shift)
        tail = exact_exp(value / part)
        if shift == 0:
            tail = 2 * tail / (1 + exact_exp(1 / part))
        return int(tail * (1 << 63))


def near_boundaries(scale: float) -> list[int]:
    """63-bit leading parts on and beside boundaries, and at the ends of the range."""
    part = Fraction(scale) / (1 << reference.two_parts(Fraction(scale)))
    values = {
        max(1, int(part * Fraction(depth))) for depth in ("1/10", "7/10", "2", "5", "13", "20", "30", "43")
    }
    near = {0, 1, 2, 3, (1 << 43) - 1, 1 << 43, (1 << 63) - 1}
    for value in values | {1, 2}:
        limit = boundary(scale, value)
        near |= {limit + offset for offset in (-(1 << 22), -2, -1, 0, 1, 2, 1 << 22)}
    return sorted(m for m in near if 0 <= m < 1 << 63)


@pytest.mark.parametrize("scale", SCALES)
def test_laplace_agrees_next_to_boundaries(scale: float) -> None:
    """Batch, single and per-element draws equal the reference on words next to boundaries."""
    leading = [2 * m + sign for m in near_boundaries(scale) for sign in (0, 1)]
    second = [(0xFFFFFF - 7 * (i % 6) << 40) | (i * 0x9E3779B9 & 0xFFFFFFFF) for i in range(len(leading))]
    planted = Planted(leading, second if scale > 2.0**20 else [w ^ BITS - 1 for w in second])
    n = len(leading)
    expected = [reference.laplace(Fraction(scale), element_words(planted, "", 0, n, e, [])) for e in range(n)]
    clamped = [max(-(2**63 - 1), min(2**63 - 1, value)) for value in expected]
    assert laplace(planted, "", 0, scale, (n,)).tolist() == clamped
    assert laplace(planted, "", 0, np.full(n, scale), (n,)).tolist() == clamped
    assert [laplace_one(planted, "", 0, e, scale) for e in range(n)] == clamped


SIGMAS = [5e-324, 1e-300, 0.1, 0.3, 1.0, 2.5, 10.7, 333.3, 1024.0, float(np.nextafter(1024.0, 2e3)), 1500.0,
          2.0**20, 2.0**30 + 0.5, 2.0**40 * 1.3, 2.0**56]  # fmt: skip


@cache
def exact_magnitudes(sigma: float) -> tuple[Fraction, int, list[Fraction]]:
    """(sigma/2^k, k, P(V ≥ v) for v = 0, 1, …) of the magnitude V, or its high part, to 45 digits by another library."""
    shift = reference.two_parts(Fraction(sigma), reference.GAUSSIAN_EXPONENT)
    part, sides = Fraction(sigma) / (1 << shift), 1 if shift else 2
    with localcontext() as context:
        context.prec = 45
        end = int(15 * part) + 3  # beyond it there is less than 10^-45
        weights = [Fraction(1)] + [sides * Fraction(exact_exp(v * v / part**2 / 2)) for v in range(1, end)]
    tails = list(accumulate(reversed(weights)))[::-1]
    return part, shift, [tail / tails[0] for tail in tails]


@pytest.mark.parametrize("sigma", thinned(SIGMAS, 2))
def test_tables_enclose_the_exact_boundaries(sigma: float) -> None:
    """Every boundary is within half of the error that draws allow for, and the bounds of the reference are right."""
    part, shift, tails = exact_magnitudes(sigma)
    table = discrete_gaussian.table_of(sigma)
    assert (table.shift, table.leading, table.exact) == (shift, 2 if shift else 1, Fraction(sigma))
    boundaries = table.boundaries.tolist()
    assert boundaries[0] == 2**63 - 1
    assert boundaries[-1] == 0
    assert boundaries == sorted(boundaries, reverse=True)
    for v in range(1, max(len(boundaries), len(tails))):
        exact = tails[v] * 2**63 if v < len(tails) else 0
        held = boundaries[v] if v < len(boundaries) else 0
        assert abs(held - exact) <= kernels.BOUNDARY_ERROR // 2
    for cell, least in enumerate(table.guide.tolist()):
        last = ((cell + 1) << kernels.GUIDE_SHIFT) - 1
        assert boundaries[least + 1] <= last
        assert least == 0 or boundaries[least] > last
    low, high = reference.magnitude_bounds(part, 1 if shift else 2, 96)
    assert len(low) == len(high)
    assert high[-1] <= 1
    for v, exact in enumerate(tails[1:]):
        if v < len(low):
            assert low[v] - 1 <= exact * 2**96 <= high[v] + 1  # 45 digits are not more
            assert high[v] - low[v] <= 4


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.5, 10.7, 100.0])
def test_intervals_of_the_table_and_gaps_make_up_the_exact_law(sigma: float) -> None:
    """Enumerated: the kernel decides outside of gaps around boundaries, and the reference splits every gap where it must.

    The numbers of a value, those that the kernel decides and those that the reference decides, are 2^63 · P(|X| = v) of
    them, and all are 2^63.
    """
    _, _, tails = exact_magnitudes(sigma)
    table = discrete_gaussian.table_of(sigma)
    held, gap = table.boundaries.tolist(), kernels.BOUNDARY_ERROR

    def drawn(leadings: list[int]) -> list[int]:
        words = np.array([[2 * leading for leading in leadings]], dtype=np.uint64)
        out = np.empty(len(leadings), dtype=np.int64)
        kernels.fill_gaussian(words, table.guide, table.boundaries, 0, 0.0, 0, out)
        return out.tolist()

    counted: dict[int, int] = {}
    above = 1 << 63  # numbers from here on are counted
    for v in range(1, len(held)):
        if held[v] <= 4 * gap:
            break
        if held[v - 1] - held[v] <= 4 * gap and v > 1:
            continue
        assert drawn([held[v] + gap, held[v] + gap - 1, held[v] - gap, held[v] - gap - 1]) == [
            v - 1, kernels.UNDECIDED, kernels.UNDECIDED, v,
        ]  # fmt: skip
        limit = int(tails[v] * 2**63)  # numbers from the next one on are v − 1, this one is shared
        assert held[v] - gap < limit < held[v] + gap
        for leading, value in (
            (limit + 1, v - 1),
            (limit - 1, v),
            (held[v] + gap - 1, v - 1),
            (held[v] - gap, v),
        ):
            assert reference.gaussian(Fraction(sigma), iter([2 * leading])) == value
        assert reference.gaussian(Fraction(sigma), chain([2 * limit], repeat(0))) == v
        assert reference.gaussian(Fraction(sigma), chain([2 * limit], repeat(BITS - 1))) == v - 1
        counted[v - 1] = above - limit
        above = limit
    assert sum(counted.values()) + above == 1 << 63
    for v, count in counted.items():
        assert abs(count - (tails[v] - tails[v + 1]) * 2**63) <= 1


@pytest.mark.parametrize(("sigma", "shift"), [(Fraction(7, 3), 2), (Fraction(11, 2), 3), (Fraction(40), 1)])
def test_two_parts_have_the_exact_weights(sigma: Fraction, shift: int) -> None:
    """Enumerated in rationals: every integer comes from one sign, high and low part, with exponent k²/(2·sigma²)."""
    part, seen = sigma / 2**shift, {}
    for sign in (0, 1):
        for v in range(20):
            for low in range(2**shift):
                high, further = v << shift, low + sign
                value = -(high + further) if sign else high + further
                seen[value] = Fraction(v * v) / (2 * part**2) + reference.kept_exponent(sigma, high, further)
                assert ((v << shift) | low) ^ -sign == value
    assert sorted(seen) == list(range(-20 * 2**shift, 20 * 2**shift))
    assert all(exponent == k * k / (2 * sigma**2) for k, exponent in seen.items())


def near_magnitudes(sigma: float) -> list[int]:
    """63-bit leading parts on and beside boundaries of all depths, and at the ends of the range."""
    part, _, tails = exact_magnitudes(sigma)
    near = {0, 1, 2, 1 << 25, 1 << 30, (1 << 63) - 1}
    for depth in ("0", "1/10", "7/10", "2", "4", "6", "8", "9"):
        v = min(max(1, int(part * Fraction(depth))), len(tails) - 1)
        limit = int(tails[v] * 2**63)
        near |= {limit + offset for offset in (-(1 << 26), -(1 << 24), -1, 0, 1, 1 << 24, 1 << 26)}
    return sorted(m for m in near if 0 <= m < 1 << 63)


@pytest.mark.parametrize("sigma", thinned(SIGMAS, 2, offset=1))
def test_gaussian_agrees_next_to_boundaries(sigma: float) -> None:
    """Batch, single and per-element draws equal the reference where the magnitude or the test is close."""
    exact, (_, shift, _) = Fraction(sigma), exact_magnitudes(sigma)
    leading, second = [], []
    for i, m in enumerate(near_magnitudes(sigma)):
        for sign in (0, 1):
            word, low = 2 * m + sign, (i * 0x9E3779B97F4A7C15) & ((1 << shift) - 1)
            lows = {0, low, (1 << shift) - 1} if shift else {0}
            for each in lows:
                high = abs(reference.gaussian(exact, chain([word, 0], repeat(1 << 62))))
                high = (high - (sign if shift else 0)) >> shift << shift
                with localcontext() as context:
                    context.prec = 80
                    chance = exact_exp(reference.kept_exponent(exact, high, each + sign))
                limit, unit = int(chance * (1 << (64 - shift))), max(1, 1 << 30 >> shift)
                for offset in (-3 * unit, -1, 0, 1, 3 * unit) if shift else (0,):
                    leading.append(word)
                    second.append((min(max(limit + offset, 0), (1 << (64 - shift)) - 1) << shift) | each)
    planted, n = Planted(leading, second), len(leading)
    expected = [reference.gaussian(exact, element_words(planted, "", 0, n, e, [])) for e in range(n)]
    assert gaussian(planted, "", 0, sigma, (n,)).tolist() == expected
    assert gaussian(planted, "", 0, np.full(n, sigma), (n,)).tolist() == expected


def test_a_rejected_gaussian_attempt_is_followed_by_the_next() -> None:
    """A failed test leads to the next words of the same element; undecided ones go to the reference from there."""
    deep, plain, kept, failed = 1 << 55, 1 << 62, 1 << 30, BITS - 1
    planted = Planted([deep, deep, plain], [failed, failed, kept], [plain, deep, 0], [kept, failed, 0],
                      [0, plain | 1, 0], [0, kept, 0])  # fmt: skip
    for sigma in (1500.0, 2.0**30, 2.0**50):
        after = reference.gaussian(Fraction(sigma), iter([plain, kept]))
        found = gaussian(planted, "", 0, sigma, (3,)).tolist()
        assert found == [after, -after - 1, after]
        assert gaussian(planted, "", 0, np.full(3, sigma), (3,)).tolist() == found


@pytest.mark.parametrize("scale", [0.3, 1.0, 10.7, 2.0**20])
@pytest.mark.parametrize("value", [1, 2, 9])
def test_extension_words_decide_on_the_boundary(scale: float, value: int) -> None:
    """On the one leading part that straddles a boundary the next word decides, and nowhere else."""
    limit = boundary(scale, value)

    def draw(leading: int, extension: int) -> int:
        return reference.laplace(Fraction(scale), chain([2 * leading], repeat(extension)))

    assert (draw(limit, 0), draw(limit, BITS - 1)) == (value, value - 1)
    assert reference.laplace(Fraction(scale), iter([2 * (limit - 1)])) == value
    assert reference.laplace(Fraction(scale), iter([2 * (limit + 1)])) == value - 1


def test_large_scales_reject_as_defined() -> None:
    """Minus zero and a failed test of the low part are followed by the next attempt's words."""
    scale = Fraction(2**30)
    top = BITS - 1  # u next to 1 with a negative sign
    assert reference.laplace(scale, iter([top, 0, top - 1, 5])) == 5
    kept_never = (0xFFFFFF << 40) | 1023  # the test is next to 1 and exp(−1023/2^30) is not
    assert reference.laplace(scale, iter([top, kept_never, top, 7])) == -7
    minus_zero = Planted([top, top], [0, 0], [top - 1, top], [5, 6])
    for scales in (2.0**30, np.full(2, 2.0**30)):
        assert laplace(minus_zero, "", 0, scales, (2,)).tolist() == [5, -6]
    assert laplace_one(minus_zero, "", 0, 1, 2.0**30) == -6
    assert laplace(Planted([top, 9], [kept_never, 9], [top, 9], [7, 9]), "", 0, 2.0**30, (2,))[0] == -7


@pytest.mark.parametrize("scale", SCALES)
def test_draws_agree_on_hashed_words(scale: float) -> None:
    """Both distributions equal the reference on ordinary words, in every form of call."""
    source = FixedEntropy(str(scale))
    shape, n = (20, 5), 100
    for draw, exactly in ((laplace, reference.laplace), (gaussian, reference.gaussian)):
        expected = [exactly(Fraction(scale), element_words(source, "s", 7, 5, e, [])) for e in range(n)]
        assert draw(source, "s", 7, scale, shape).ravel().tolist() == expected
        assert draw(source, "s", 7, np.full(5, scale), shape).ravel().tolist() == expected
        assert draw(source, "s", 9, scale, (5,)).tolist() == expected[10:15]
        assert draw(source, "s", 9, scale).tolist() == expected[10]
    assert laplace_one(source, "s", 9, 3, scale) == laplace(source, "s", 9, scale, (5,))[3]


def test_mixed_scales_agree() -> None:
    """An array of all scales at once gives what each scale gives alone."""
    source = FixedEntropy("mixed")
    scales = np.array(SCALES)
    for draw in (laplace, gaussian):
        matrix = draw(source, "s", 0, scales, (30, scales.size))
        alone = [
            draw(source, "s", 0, float(scale), (30, scales.size))[:, j] for j, scale in enumerate(scales)
        ]
        assert np.array_equal(matrix, np.stack(alone, axis=1))


@settings(max_examples=150)
@given(
    scale=st.floats(min_value=1e-3, max_value=2.0**56),
    words=st.lists(st.integers(0, BITS - 1), min_size=3, max_size=3),
)
def test_any_scale_and_words_agree(scale: float, words: list[int]) -> None:
    """Whatever the scale and the words, kernel and reference agree."""
    planted = Planted(*[[word] for word in words])
    for draw, exactly in ((laplace, reference.laplace), (gaussian, reference.gaussian)):
        expected = exactly(Fraction(scale), element_words(planted, "", 0, 1, 0, []))
        assert draw(planted, "", 0, scale).item() == expected
        assert draw(planted, "", 0, np.array([scale]), (1,)).item() == expected


def test_scalar_kernel_for_mechanisms_agrees() -> None:
    """The function for mechanisms' own loops gives the same values and says when it cannot."""
    source = FixedEntropy("scalar")
    for scale in (1.5, 2.0**33):
        words = source.words("s", 0, 50, range(50), 0, 2)
        expected = laplace(source, "s", 0, scale, (50,)).tolist()
        constants = kernels.constants(scale)
        drawn = [kernels.laplace_any(words[0, e], words[1, e], *constants) for e in range(50)]
        assert drawn == expected
    zero = np.uint64(0)
    assert kernels.laplace_any(zero, zero, *kernels.constants(1.5)) == kernels.UNDECIDED


def test_exp_bounds_enclose() -> None:
    """The integer bounds of exp enclose another library's value and are at most two units apart."""
    with localcontext() as context:
        context.prec = 120
        for exponent in (
            Fraction(1, 3),
            Fraction(1, 2**80),
            Fraction(0),
            Fraction(17, 5),
            Fraction(88),
            Fraction(10**9),
        ):
            for bits in (1, 8, 64, 95, 200):
                low, high = reference.exp_bounds(exponent, bits)
                assert low <= exact_exp(exponent) * (1 << bits) <= high
                assert high - low <= 2


def test_log_and_exp_are_within_their_proved_errors() -> None:
    """Log is within 2^-48 on [2^-30, 1], exp within a relative 2^-49, against 50 digits."""
    words = FixedEntropy("errors").words("s", 0, 1500, range(1500), 0, 1)[0].astype(np.float64) * 2.0**-64
    edges = np.array([2.0**-30, 0.5, np.sqrt(0.5), np.nextafter(np.sqrt(0.5), 0), np.nextafter(1.0, 0), 1.0])
    with localcontext() as context:
        context.prec = 50
        for number in np.concatenate([words, 2.0 ** (-21 * words), 1 - words * 1e-9, edges]).tolist():
            assert abs(Decimal(kernels.log(number)) - Decimal(number).ln()) < Decimal(2) ** -48
        for number in np.concatenate([words, 120 * words, 700 * words, [0.0, 700.0]]).tolist():
            exact = (-Decimal(number)).exp()
            assert abs(Decimal(kernels.exp_minus(number)) - exact) < exact * Decimal(2) ** -49


def test_minus_zero_of_a_large_scale_is_left_to_the_reference() -> None:
    """No magnitude, no low bits and a negative sign decide nothing; with the other sign it is 0."""
    part, factor, shift = kernels.constants(2.0**30)
    assert shift > 0
    plus, minus, nothing = np.uint64(2**64 - 2), np.uint64(2**64 - 1), np.uint64(0)
    assert kernels.laplace_large(plus, nothing, part, factor, shift) == 0
    assert kernels.laplace_large(minus, nothing, part, factor, shift) == kernels.UNDECIDED
    assert kernels.laplace_large(minus, np.uint64(1), part, factor, shift) == -1
