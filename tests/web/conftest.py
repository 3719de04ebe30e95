"""The database server of the runtime's tests."""

from __future__ import annotations

from tests.runtime.conftest import postgres as postgres
