"""Finds a sequence in a stream of hashable items in linear time (Knuth, Morris and Pratt). Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Final


class SequenceMatcher:
    """Finds where ``pattern``, or a beginning of it, ends in a stream of items."""

    def __init__(self, pattern: Sequence[bytes]) -> None:
        """``pattern`` has at least one item, and is not copied."""
        self._pattern: Final = pattern
        self._length = 0
        # By length of a matched beginning: the length of the longest shorter beginning that ends at the same place.
        self._shorter: Final = array("q", [0, 0])
        for item in pattern[1:]:
            self._shorter.append(self._extended(self._shorter[-1], item))

    def _extended(self, length: int, item: bytes) -> int:
        while length and self._pattern[length] != item:
            length = self._shorter[length]
        return length + 1 if self._pattern[length] == item else 0

    def feed(self, item: bytes) -> bool:
        """Take the next item of the stream; return whether the whole pattern ends with it."""
        if self._length == len(self._pattern):
            self._length = self._shorter[self._length]
        self._length = self._extended(self._length, item)
        return self._length == len(self._pattern)

    def lengths(self) -> Iterator[int]:
        """Yield the length of each beginning of the pattern that ends with the last item, the longest first."""
        length = self._length
        while length:
            yield length
            length = self._shorter[length]
