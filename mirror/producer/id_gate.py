"""Holds back batches until the producer id that they carry may be used. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

AdmitId = Callable[[], None]
"""Lets batches be sent under a producer id. May be called from any thread, once."""
OnProducerId = Callable[[int, AdmitId], None]
"""Called on the network thread, which it must not hold up, with each producer id before the first batch under it."""


class ProducerIdGate:
    """The producer ids of one producer that may be used; those of others are asked for, each once."""

    def __init__(self, ask: Callable[[int], None]) -> None:
        """``ask`` is called with a producer id that is not admitted yet."""
        self._ask: Final = ask
        self._asked: Final[set[int]] = set()
        self._admitted: Final[set[int]] = set()

    def admits(self, producer_id: int) -> bool:
        """Return whether batches may be sent under ``producer_id``; if not, they may be after :meth:`admit`."""
        if producer_id in self._admitted:
            return True
        if producer_id not in self._asked:
            self._asked.add(producer_id)
            self._ask(producer_id)
        return False

    def holds_back(self, producer_id: int) -> bool:
        """Whether batches wait for ``producer_id`` to be admitted."""
        return producer_id in self._asked and producer_id not in self._admitted

    def admit(self, producer_id: int) -> None:
        """Let batches be sent under ``producer_id``."""
        self._admitted.add(producer_id)
