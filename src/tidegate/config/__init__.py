"""One file says it all: ``tidegate.toml``."""

from tidegate.config.config import Config
from tidegate.config.errors import ConfigError
from tidegate.config.reader import parse_config, read_config
from tidegate.config.writer import input_columns, write_config

__all__ = ["Config", "ConfigError", "input_columns", "parse_config", "read_config", "write_config"]
