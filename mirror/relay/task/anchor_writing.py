"""Gathers the anchors that copies make, and has them written in the background, some at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from mirror.client import TopicPartition
from mirror.relay.progress.anchor_keeper import AnchorKeeper
from mirror.relay.progress.anchors import Anchor, AnchorKey, key_of

_INTERVAL_MS: Final = 5_000
"""Anchors of many partitions are written together, so that they share requests, and compress well."""
_AFTER_FAILURE_MS: Final = 60_000
"""The time between writes while they fail: each may occupy a thread for some seconds, for which lookups wait."""


class AnchorWriting:
    """Used on the task's thread."""

    def __init__(self, keeper: AnchorKeeper, submit: Callable[..., Future[Any]]) -> None:
        """``submit`` runs a call in a thread that may block."""
        self._keeper: Final = keeper
        self._submit: Final = submit
        self._pending: dict[AnchorKey, Anchor] = {}
        self._sources: Final[dict[TopicPartition, TopicPartition]] = {}
        self._in_flight: dict[AnchorKey, Anchor] = {}
        self._writing: Future[Any] | None = None
        self._next_ms = 0

    def add(self, source: TopicPartition, target: TopicPartition, anchor: Anchor) -> None:
        """Have ``anchor`` written with the others."""
        self._sources[target] = source
        self._pending[key_of(target, anchor)] = anchor

    def write_due(self, now: int) -> None:
        """Begin to write what has been gathered, at most every few seconds, unless a write is in progress."""
        if not self._pending or now < self._next_ms or (self._writing is not None and not self._writing.done()):
            return
        failed = self._writing is not None and not self._writing.result()
        self._next_ms = now + (_AFTER_FAILURE_MS if failed else _INTERVAL_MS)
        anchors, self._pending = self._pending, {}
        self._in_flight = anchors
        self._writing = self._submit(self._keeper.write, anchors, dict(self._sources))

    def take_rest(self) -> dict[AnchorKey, Anchor]:
        """Return what may not be written yet, for the caller to write it; called when the task has ended."""
        in_flight = {} if self._writing is None or self._writing.done() else self._in_flight
        anchors, self._pending = {**in_flight, **self._pending}, {}
        return anchors
