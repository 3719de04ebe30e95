"""Words that a secret key decides, so that noise can be computed again instead of being kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

if TYPE_CHECKING:
    from tidegate.noise.entropy import Elements, Words

KEY_WORDS = 4


class Keyed:
    """AES-256 in counter mode: step and index choose the stream, the draw its place.

    Whoever knows the key knows the noise: keep it as secret as the data, and use it for one purpose alone, since the name
    of a stream does not matter.

    Parameters
    ----------
    key
        Four random words.
    begin
        The draw that is called 0 here.

    Examples
    --------
    >>> source = Keyed(np.arange(4, dtype=np.uint64))
    >>> int(source.words("", 7, 99, range(5, 9), 0, 2)[1, 3]) == source.word("", 7, 8, 1)
    True
    """

    name = "keyed"
    marked = False

    def __init__(self, key: Words, begin: int = 0) -> None:
        self._key, self._begin = algorithms.AES(key.astype("<u8").tobytes()), begin

    def words(self, stream: str, step: int, draws: int, elements: Elements, first: int, count: int) -> Words:
        """The words of elements of one step, of shape (count, len(elements))."""
        chosen = np.asarray(elements, dtype=np.int64) + self._begin
        found = np.empty((count, len(chosen)), dtype=np.uint64)
        if len(chosen):
            low = int(chosen.min()) & ~1
            size = int(chosen.max()) + 1 - low
            for row in range(count):
                found[row] = self._run(step, first + row, low, size)[chosen - low]
        return found

    def word(self, stream: str, step: int, draw: int, index: int) -> int:
        """One word; the same as `words` gives for this address."""
        draw += self._begin
        return int(self._run(step, index, draw & ~1, 2)[draw & 1])

    def _run(self, step: int, index: int, low: int, size: int) -> Words:
        """Words of one step and index from an even draw on; a block of the cipher has two."""
        begin = (step << 96 | index << 64 | low // 2).to_bytes(16)
        encryptor = Cipher(self._key, modes.CTR(begin)).encryptor()
        return np.frombuffer(encryptor.update(bytes(8 * size)), dtype="<u8")
