"""Tables on disk: found again, never trusted when damaged, and no more than a matter of time."""

import numpy as np
import pytest

from tidegate.noise.shared import tables
from tidegate.noise.shared.orders import Order

TABLE = np.arange(12, dtype=np.uint64).reshape(3, 4)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Tables below a folder of this test."""
    monkeypatch.setattr(tables, "folder", lambda: tmp_path / "tables")
    return tmp_path / "tables"


def never():
    """A computation that must not be asked for."""
    raise AssertionError("the table on disk was not used")


def test_a_table_is_computed_once(folder):
    """The second process finds what the first has computed, bit for bit."""
    assert np.array_equal(tables.kept("some", lambda: TABLE), TABLE)
    found = tables.kept("some", never)
    assert np.array_equal(found, TABLE)
    assert found.dtype == TABLE.dtype
    assert [path.name for path in folder.iterdir()] == ["some"]


@pytest.mark.parametrize("damage", [b"", b"x" * 10, None])
def test_a_damaged_table_is_computed_again(folder, damage):
    """Cut short, overwritten, or with one bit changed: its digest gives it away."""
    tables.kept("some", lambda: TABLE)
    content = bytearray((folder / "some").read_bytes())
    content[-1] ^= 1
    (folder / "some").write_bytes(bytes(content) if damage is None else damage)
    assert np.array_equal(tables.kept("some", lambda: TABLE + 1), TABLE + 1)
    assert np.array_equal(tables.kept("some", never), TABLE + 1)


def test_a_table_of_somebody_else_is_not_used(folder, monkeypatch):
    """Who can write a table can take the privacy out of the noise: files of other users do not count."""
    tables.kept("some", lambda: TABLE)
    monkeypatch.setattr(tables.os, "getuid", lambda: 12345)
    assert np.array_equal(tables.kept("some", lambda: TABLE + 1), TABLE + 1)


def test_without_a_disk_tables_are_computed(folder):
    """A cache folder that cannot be made costs time only."""
    folder.write_text("a file in its place")
    assert np.array_equal(tables.kept("some", lambda: TABLE), TABLE)


def test_boundaries_on_disk_are_those_of_the_order(folder, monkeypatch):
    """The kept table of a real order is the computed one."""
    monkeypatch.setattr("tidegate.noise.shared.orders.MANY_STATES", 1)
    first = Order(5).boundaries
    assert (folder / "boundaries-5-1").exists()
    assert np.array_equal(Order(5).boundaries, first)
    assert np.array_equal(Order(5)._boundaries(), first)
