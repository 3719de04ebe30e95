"""What is shown of policies, mechanisms, sessions and releases, at a prompt and in notebooks."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest

import tidegate as tg
from tidegate.mechanisms import Mechanism, Sample, Uniform, catalogue
from tidegate.releases import Releases

EXAMPLES = [example for kind in catalogue().values() for example in kind.examples()]
POLICY = tg.WEvent(epsilon="1", window=4)


@pytest.mark.parametrize("mechanism", EXAMPLES, ids=lambda each: type(each).__name__)
def test_a_mechanism_is_shown_as_one_would_write_it(mechanism: Mechanism) -> None:
    """What is shown makes the same configuration again, where all of it is shown, and names no default."""
    shown = repr(mechanism)
    assert shown.startswith(f"{type(mechanism).__name__}(")
    assert "Fraction" not in shown
    assert "adjacency='add-remove'" not in shown
    assert len(shown) < 700
    if "<" not in shown and "Swellfish" not in shown and "=Sp" not in shown:
        names = {**catalogue(), "WEvent": tg.WEvent, "Event": tg.Event, "User": tg.User}
        try:
            again = eval(shown, names)
        except NameError:  # parts of mechanisms, such as filters, have names of their own rooms
            return
        assert again == mechanism


def test_a_configuration_of_a_user_is_shown_like_ours() -> None:
    """A subclass that is a dataclass of its own is spelled the same way."""
    assert repr(Uniform(POLICY, columns=3)) == "Uniform(WEvent(epsilon='1', window=4), columns=3)"
    assert repr(tg.Event(rho="1/3", max_change=5)) == "Event(rho='1/3', max_change='5')"


def test_a_guarantee_and_a_session_say_something() -> None:
    """The sentence, and where a session stands."""
    mechanism = Uniform(POLICY, columns=2, noise="laplace")
    assert repr(mechanism.guarantee).startswith(
        "<Guarantee: Uniform is 1-differentially private for everything"
    )
    session = tg.open(mechanism)
    session.push_batch([[1, 2], [3, 4]])
    assert repr(session) == "<Session of Uniform at step 2>"


def test_a_wide_release_is_shown_in_a_line() -> None:
    """A thousand columns are not printed one by one."""
    session = tg.open(Uniform(POLICY, columns=1000))
    assert "1000 in all" in repr(session.push(np.zeros(1000, dtype=int)))
    assert len(repr(session.push(np.zeros(1000, dtype=int)))) < 300


def svg(releases: Releases) -> ElementTree.Element:
    """The drawing, which must be XML and load nothing."""
    page = releases._repr_html_()
    assert "http" not in page
    assert "<script" not in page
    found = re.search(r"<svg.*</svg>", page, re.DOTALL)
    assert found
    return ElementTree.fromstring(found[0])


def test_releases_are_drawn_in_notebooks() -> None:
    """A line for each column, a band where errors are known, names in a legend, and a size that does not grow."""
    session = tg.open(Uniform(POLICY))
    assert len(svg(session.push_batch(np.full((12, 1), 40))).findall("polygon")) == 1
    long = session.push_batch(np.full((50_000, 1), 40))
    assert len(long._repr_html_()) < 20_000
    wide = tg.open(Sample(POLICY, columns=9)).push_batch(np.full((30, 9), 7))
    assert len(svg(wide).findall("polyline")) == 6
    assert "and 3 more" in wide._repr_html_()


def test_names_in_a_chart_are_escaped() -> None:
    """A name of a column is text, whatever stands in it."""
    session = tg.open(Uniform(POLICY, columns=2), names=["<b>bold</b>", "plain"])
    releases = session.push_batch(pl.DataFrame({"<b>bold</b>": [1, 3], "plain": [2, 4]}))
    assert "<b>bold" not in releases._repr_html_()
    assert "&lt;b&gt;bold" in releases._repr_html_()


def test_nothing_is_drawn_of_nothing() -> None:
    """No steps, and values that are missing, have a caption only."""
    session = tg.open(Uniform(POLICY))
    empty = session.push_batch(np.zeros((0, 1), dtype=int))
    assert "<svg" not in empty._repr_html_()
    gone = Releases(
        1, np.full((3, 1), np.nan), np.full(3, np.int8(6)), None, np.zeros(3), np.zeros(3, dtype=int), 1
    )
    assert "<svg" not in gone._repr_html_()
