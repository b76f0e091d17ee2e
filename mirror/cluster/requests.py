"""The interface between the cores and the network: requests, and the Network protocol."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from mirror.cluster.types import Broker
from mirror.errors import KafkaError
from mirror.timing import FOREVER_MS
from mirror.wire.api import Api
from mirror.wire.frames import Buffer
from mirror.wire.messages.base import Message


class Lane(enum.Enum):
    """Which of the connections to a broker a request uses.

    A broker processes one request of a connection at a time, also while a Produce waits for its replicas or a Fetch
    polls long: a request that waits must not delay others.
    """

    __hash__ = object.__hash__  # Enum.__hash__ is a Python function, and lanes are hashed several times for each batch

    CONTROL = "control"
    COORDINATOR = "coordinator"
    FETCH = "fetch"
    PRODUCE = "produce"


@dataclass(slots=True, eq=False)
class Request:
    """One request, completed exactly once by one of its callbacks, on the network thread.

    ``node`` None means any broker. ``timeout_ms`` bounds the caller's wait from the moment of sending. The
    connection itself is closed only after ``request.timeout.ms`` without the response, so that a short timeout does
    not affect other requests: after a ``KafkaTimeout`` the response is still outstanding, and ``on_settled`` is
    called when it no longer is.
    """

    api: Api
    body: Message
    node: int | None
    lane: Lane
    timeout_ms: int
    on_response: Callable[[Any, int], None]
    on_failure: Callable[[KafkaError, int], None]
    channel: int = 0
    """Distinguishes connections of one lane: each consumer fetches on its own, as the long poll of another one would
    delay it otherwise."""
    max_version: int | None = None
    """The highest version to use, where a later one would mean something else."""
    recognize: Callable[[Buffer], Message | None] | None = None
    """Called with the bytes of the response: if it returns a message, that is the response, and nothing is decoded."""
    on_settled: Callable[[int], None] | None = None
    """Called at most once, after a failure with ``KafkaTimeout``: the response arrived late, or cannot arrive any more.
    Until then the connection is busy with the request, whose bytes may still be being sent."""

    unwanted: Callable[[], bool] | None = None
    """Returns whether all its callers have left (closed, interrupted): then it fails instead of being sent."""

    on_unsent: Callable[[], None] | None = None
    """Called before ``on_failure`` if it was never sent, so that no broker can have done it."""

    def fail_unsent(self, error: KafkaError, now: int) -> None:
        """Fail it: it was not sent."""
        if self.on_unsent is not None:
            self.on_unsent()
        self.on_failure(error, now)

    def settled(self, now: int) -> None:
        """Record that, after a timeout, the response is no longer outstanding."""
        if self.on_settled is not None:
            self.on_settled(now)


class Poll(NamedTuple):
    """The result of a poll: requests to send now, and ms until the next poll is due at the latest."""

    requests: Sequence[Request]
    wait_ms: int


IDLE: Final = Poll((), FOREVER_MS)
"""Nothing to send, and no time to be polled at."""


class RequestManager(Protocol):
    """Decides which requests to send; never blocks, does no I/O."""

    def poll(self, now: int) -> Poll:
        """Return the requests due at ``now`` (ms)."""
        ...


class Network(Protocol):
    """Sends requests to brokers: over sockets in the runtime, without them in tests."""

    def set_brokers(self, brokers: Mapping[int, Broker]) -> None:
        """Set the addresses of the brokers, from the latest metadata."""
        ...

    def send(self, request: Request, now: int) -> None:
        """Send ``request``. Its callback is called by :meth:`poll`, never from here."""
        ...

    @property
    def changes(self) -> int:
        """A count that rises whenever a connection may have become ready, was lost, or is no longer throttled."""
        ...

    def ready(self, node: int, lane: Lane, now: int, channel: int = 0) -> bool:
        """Whether a request would be sent now; if not, open the connection (``KafkaClient.ready``)."""
        ...

    def stands(self, node: int, lane: Lane, channel: int) -> bool:
        """Whether this connection is open or being opened; opens none."""
        ...

    def throttled(self, node: int, now: int) -> bool:
        """Whether ``node`` throttles a connection of this client now (KIP-219)."""
        ...

    def finalized_feature(self, name: str) -> int:
        """Return the finalized level of the feature ``name`` (KIP-584), the latest that any broker returned; 0.

        Unknown.
        """
        ...

    def trouble(self, node: int) -> KafkaError | None:
        """Return the error of the last connection to ``node``; None once one is established."""
        ...

    def forget(self, channel: int) -> None:
        """Close the connections of a channel, whose client has left."""
        ...

    def poll(self, timeout_ms: int) -> None:
        """Do I/O for at most ``timeout_ms``, and call the callbacks of requests that ended."""
        ...

    def close(self) -> None:
        """Close every connection; requests in flight fail."""
        ...


@dataclass(slots=True, eq=False)
class InFlight:
    """A request in flight. ``request`` None is one of the session itself; ``abandoned``: its caller has timed out."""

    correlation_id: int
    api: Api
    version: int
    request: Request | None
    caller_deadline: int
    connection_deadline: int
    most_bytes: int
    """The largest size of its response."""
    abandoned: bool = False

    def lost(self, error: KafkaError, now: int) -> None:
        """Fail it: its response cannot arrive any more."""
        if self.request is not None and self.abandoned:
            self.request.settled(now)
        elif self.request is not None:
            self.request.on_failure(error, now)
