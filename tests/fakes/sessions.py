"""Incremental fetch sessions on the brokers' side (KIP-227: ``FetchManager``)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace

from mirror.wire.messages.fetch import FetchPartition, FetchRequest
from tests.fakes import errors

_FINAL, _INITIAL = -1, 0

Key = tuple[str, uuid.UUID | None, int]
"""Topic name and id, as the request's version has them, and partition."""


@dataclass(slots=True)
class Session:
    """What one broker remembers that one client reads; ``epoch`` is the one expected next."""

    node: int
    session_id: int
    epoch: int = 1
    partitions: dict[Key, FetchPartition] = field(default_factory=dict)


@dataclass(slots=True)
class Resolved:
    """What a request is about: ``error`` where its session is not known or out of step."""

    partitions: dict[Key, FetchPartition]
    session_id: int = 0
    incremental: bool = False
    error: int = 0
    session: Session | None = None

    def had(self, key: Key) -> None:
        """Records of it are in the answer: next time the others' turn comes first (``IncrementalFetchContext``)."""
        if self.session is not None and key in self.session.partitions:
            self.session.partitions[key] = self.session.partitions.pop(key)


class Sessions:
    """All brokers' sessions. With ``offered`` False no broker keeps any, as when its cache is full."""

    def __init__(self) -> None:
        self.offered = True
        self.open: dict[tuple[int, int], Session] = {}
        self._last_id = 0

    def forget_all(self) -> None:
        """As after restarts."""
        self.open.clear()

    def resolve(self, node: int, request: FetchRequest) -> Resolved:
        """The partitions that ``request`` reads, its session brought up to date."""
        result = {(t.topic, t.topic_id, p.partition): p for t in request.topics for p in t.partitions}
        if request.session_epoch in {_FINAL, _INITIAL}:
            self.open.pop((node, request.session_id), None)
            if request.session_epoch == _FINAL or not self.offered or not result:
                return Resolved(result)
            self._last_id += 1
            self.open[node, self._last_id] = Session(node, self._last_id, 1, dict(result))
            return Resolved(result, self._last_id)
        session = self.open.get((node, request.session_id))
        if session is None:
            return Resolved({}, error=errors.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return Resolved({}, error=errors.INVALID_FETCH_SESSION_EPOCH)
        session.epoch += 1
        session.partitions.update(result)
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                session.partitions.pop((topic.topic, topic.topic_id, partition), None)
        copies = {key: replace(part) for key, part in session.partitions.items()}
        return Resolved(copies, session.session_id, incremental=True, session=session)
