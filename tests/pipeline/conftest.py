"""The services of the runtime's tests."""

from tests.runtime.conftest import broker, database, kafka, one_database, postgres

__all__ = ["broker", "database", "kafka", "one_database", "postgres"]
