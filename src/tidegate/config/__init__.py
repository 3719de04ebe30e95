"""One file says it all: ``tidegate.toml``."""

from tidegate.config.config import Config
from tidegate.config.errors import ConfigError
from tidegate.config.queries import Queries, parse_queries, read_queries
from tidegate.config.reader import parse_config, read_config
from tidegate.config.writer import input_columns, write_config

__all__ = [
    "Config",
    "ConfigError",
    "Queries",
    "input_columns",
    "parse_config",
    "parse_queries",
    "read_config",
    "read_queries",
    "write_config",
]
