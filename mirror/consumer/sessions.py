"""Incremental fetch sessions: a broker remembers what is read, so that only changes are said (KIP-227)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.wire.messages.fetch import FetchPartition

_INITIAL: Final = 0
"""The epoch of a full fetch that asks for a new session."""
FINAL: Final = -1
"""The epoch that ends a session."""
_NO_SESSION: Final = 0
_EPOCHS: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Wanted:
    """One partition as it is to be read: what the broker has to remember of it."""

    topic_id: uuid.UUID | None
    partition: FetchPartition


class SessionRequest(NamedTuple):
    """What to say: the whole of ``send`` in a full fetch, else only what changed; ``forget`` leaves the session."""

    session_id: int
    epoch: int
    send: dict[TopicPartition, Wanted]
    forget: dict[TopicPartition, uuid.UUID | None]


@dataclass(slots=True)
class FetchSession:
    """The session with one broker (``FetchSessionHandler``). One request at a time."""

    session_id: int = _NO_SESSION
    epoch: int = _INITIAL
    _known: dict[TopicPartition, Wanted] = field(default_factory=dict)

    def next_request(self, wanted: Mapping[TopicPartition, Wanted]) -> SessionRequest:
        """The request that makes the broker read exactly ``wanted``."""
        if self.epoch == _INITIAL:
            self._known = dict(wanted)
            # An old id with epoch 0 closes that session while it opens the next.
            return SessionRequest(self.session_id, _INITIAL, dict(wanted), {})
        forget: dict[TopicPartition, uuid.UUID | None] = {}
        for tp, known in self._known.items():
            new = wanted.get(tp)
            # A topic made anew under its old name has another id: the old one must leave (KIP-516).
            if new is None or new.topic_id != known.topic_id:
                forget[tp] = known.topic_id
        send = {tp: new for tp, new in wanted.items() if self._known.get(tp) != new}
        self._known = dict(wanted)
        return SessionRequest(self.session_id, self.epoch, send, forget)

    def answered(self, session_id: int) -> None:
        """A good answer; with id 0 the broker keeps no session for us."""
        if session_id == _NO_SESSION:
            self.session_id, self.epoch = _NO_SESSION, _INITIAL
        else:
            self.session_id = session_id
            self.epoch = 1 if self.epoch == _EPOCHS else self.epoch + 1

    def failed(self, *, forgotten: bool = False) -> None:
        """No answer, or an error: begin a new session. ``forgotten``: the broker does not know the old one (70)."""
        if forgotten:
            self.session_id = _NO_SESSION
        self.epoch = _INITIAL

    @property
    def open(self) -> bool:
        """Whether the broker keeps a session that should be ended."""
        return self.session_id != _NO_SESSION
