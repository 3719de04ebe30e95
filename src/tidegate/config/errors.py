"""What a configuration file is refused for."""

from __future__ import annotations

from tidegate.errors import TidegateError


class ConfigError(TidegateError, ValueError):
    """A configuration file is wrong; the message names the file, the line and the remedy."""

    def __init__(self, file: str, line: int | None, sentence: str) -> None:
        super().__init__(f"{file}, line {line}: {sentence}" if line else f"{file}: {sentence}")
        self.line = line
        self.sentence = sentence
