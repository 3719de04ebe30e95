"""Random words under other addresses: noise of a part of a run, or of steps that are counted from elsewhere."""

from __future__ import annotations

from tidegate.noise.entropy import Elements, Source, Words


class Readdressed:
    """A source whose streams have a prefix, and whose steps are counted from another one.

    Parameters
    ----------
    source
        Where the words come from.
    prefix
        What the names of all streams begin with there.
    offset
        By how many steps a step comes later there.
    """

    def __init__(self, source: Source, prefix: str = "", offset: int = 0) -> None:
        self.source, self.prefix, self.offset = source, prefix, offset
        self.name, self.marked = source.name, source.marked

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """The words of the addressed elements."""
        return self.source.words(self.prefix + stream, step + self.offset, draws, elements, first, count)

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """One word of one element."""
        return self.source.word(self.prefix + stream, step + self.offset, draw, index)
