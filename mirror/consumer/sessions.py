"""Incremental fetch sessions (KIP-227): the broker remembers the partitions, requests carry only changes. No I/O."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.wire.integers import INT32_MAX
from mirror.wire.messages.fetch import FetchPartition

_INITIAL: Final = 0
"""The epoch of a full fetch that requests a new session."""
FINAL: Final = -1
"""The epoch that ends a session."""
_NO_SESSION: Final = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """A partition as it is to be fetched: what the session on the broker has to contain."""

    topic_id: uuid.UUID | None
    partition: FetchPartition


class SessionRequest(NamedTuple):
    """The session part of a Fetch request.

    ``send`` has all partitions in a full fetch, otherwise the changed ones; ``forget`` those that leave the session.
    """

    session_id: int
    epoch: int
    send: dict[TopicPartition, Wanted]
    forget: dict[TopicPartition, uuid.UUID | None]


@dataclass(slots=True)
class FetchSession:
    """The session with one broker (``FetchSessionHandler``), with one request in flight at a time."""

    session_id: int = _NO_SESSION
    epoch: int = _INITIAL
    by_name: bool = False
    """Whether topics are identified by name, because some have no id (brokers upgraded from before 2.8)."""
    _on_broker: dict[TopicPartition, Wanted] = field(default_factory=dict)

    @property
    def established(self) -> bool:
        """Whether the broker keeps what the requests had so far, so that the next one may have the changes only."""
        return self.epoch != _INITIAL

    def next_request(self, wanted: Mapping[TopicPartition, Wanted]) -> SessionRequest:
        """Return the request after which the session contains exactly ``wanted``."""
        if self.established:
            return self.next_changes({tp: wanted.get(tp) for tp in (*self._on_broker, *wanted)})
        self._on_broker = dict(wanted)
        # An old session id with epoch 0 closes that session and opens the next.
        return SessionRequest(self.session_id, _INITIAL, dict(wanted), {})

    def next_changes(self, changes: Mapping[TopicPartition, Wanted | None]) -> SessionRequest:
        """Return the request after which an :attr:`established` session has these changes (None: it is to leave).

        A topic that was created again begins a new session: brokers add what is sent before they remove what is
        forgotten (``FetchSession.update``), so those that know topics by name only (before 3.1) would drop it.
        """
        send: dict[TopicPartition, Wanted] = {}
        forget: dict[TopicPartition, uuid.UUID | None] = {}
        recreated = False
        for tp, new in changes.items():
            remembered = self._on_broker.pop(tp, None)
            if new is not None:
                self._on_broker[tp] = new
                if new != remembered:
                    send[tp] = new
                    recreated |= remembered is not None and new.topic_id != remembered.topic_id
            elif remembered is not None:
                forget[tp] = remembered.topic_id
        if recreated:
            self.failed()
            return SessionRequest(self.session_id, _INITIAL, dict(self._on_broker), {})
        return SessionRequest(self.session_id, self.epoch, send, forget)

    def identify_topics(self, *, by_name: bool) -> None:
        """Identify topics by name or by id from now on; a broker keeps a session for one of both (KIP-516)."""
        if by_name != self.by_name:
            self.by_name = by_name
            self.failed()

    def answered(self, session_id: int) -> None:
        """Advance after a successful response; with session id 0 the broker keeps no session."""
        if session_id == _NO_SESSION:
            self.session_id, self.epoch = _NO_SESSION, _INITIAL
        else:
            self.session_id = session_id
            self.epoch = 1 if self.epoch == INT32_MAX else self.epoch + 1

    def failed(self, *, forgotten: bool = False) -> None:
        """Begin a new session after an error or a lost response.

        ``forgotten``: the broker no longer has the old session (FETCH_SESSION_ID_NOT_FOUND).
        """
        if forgotten:
            self.session_id = _NO_SESSION
        self.epoch = _INITIAL

    @property
    def open(self) -> bool:
        """Whether the broker keeps a session, which is to be closed at the end."""
        return self.session_id != _NO_SESSION
