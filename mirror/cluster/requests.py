"""What the cores hand to the network, and what they ask of it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from mirror.cluster.types import Broker
from mirror.errors import KafkaError
from mirror.timing import FOREVER_MS
from mirror.wire.api import Api
from mirror.wire.messages.base import Message


class Lane(enum.Enum):
    """Which of a broker's connections a request takes.

    A broker works on one request per connection at a time, also while a Produce waits for its replicas or a Fetch
    polls long: what waits must not stand before what does not (design: "Connections").
    """

    __hash__ = object.__hash__  # Enum's is a Python function, and this is asked several times for each batch

    CONTROL = "control"
    COORDINATOR = "coordinator"
    FETCH = "fetch"
    PRODUCE = "produce"


@dataclass(slots=True, eq=False)
class Request:
    """One request, completed exactly once by one of its callbacks, on the network thread.

    ``node`` None means any broker. ``timeout_ms`` bounds the caller's wait from the moment of sending; the connection
    itself is given up only after ``request.timeout.ms`` without the answer, so that a caller in a hurry costs its
    neighbours nothing: it still owes the answer then, and ``on_settled`` follows the ``KafkaTimeout`` once it does not.
    """

    api: Api
    body: Message
    node: int | None
    lane: Lane
    timeout_ms: int
    on_response: Callable[[Any, int], None]
    on_failure: Callable[[KafkaError, int], None]
    channel: int = 0
    """Further tells connections of one lane apart: each consumer fetches on its own, or another one's long poll would
    stand before it."""
    max_version: int | None = None
    """The newest version to speak, where the newest that both sides know would mean something else."""
    on_settled: Callable[[int], None] | None = None
    """Called at most once, after a failure that is a ``KafkaTimeout``: the answer came late, or will not come any more.
    Until then the connection is busy with the request, and its bytes may still be on their way."""

    def settled(self, now: int) -> None:
        """Its connection owes nothing for it any more, after its caller was told that time is up."""
        if self.on_settled is not None:
            self.on_settled(now)


class Poll(NamedTuple):
    """What a request manager answers: requests to send now, and ms until it must be asked again at the latest."""

    requests: Sequence[Request]
    wait_ms: int


IDLE: Final = Poll((), FOREVER_MS)
"""Nothing to send, and nothing to wait for but what the loop sees."""


class RequestManager(Protocol):
    """Decides what to send; never blocks, does no I/O."""

    def poll(self, now: int) -> Poll:
        """Requests due at ``now`` (ms)."""
        ...


class Network(Protocol):
    """Carries requests to brokers. The runtime's has sockets, the tests' has not."""

    def set_brokers(self, brokers: Mapping[int, Broker]) -> None:
        """The brokers' addresses, as the newest metadata tells them."""
        ...

    def send(self, request: Request, now: int) -> None:
        """Take ``request``; its callback comes from :meth:`poll`, never from here."""
        ...

    @property
    def changes(self) -> int:
        """Rises whenever a connection may have become ready, or was lost, or is no longer throttled."""
        ...

    def ready(self, node: int, lane: Lane, now: int, channel: int = 0) -> bool:
        """Whether a request would go out at once; where not, begin to make it so (``KafkaClient.ready``)."""
        ...

    def stands(self, node: int, lane: Lane, channel: int) -> bool:
        """Whether there is such a connection, or one is on its way; begins none."""
        ...

    def throttled(self, node: int, now: int) -> bool:
        """Whether ``node`` has some connection of ours wait just now (KIP-219)."""
        ...

    def finalized_feature(self, name: str) -> int:
        """The level of the cluster's feature ``name`` (KIP-584), as the newest that any broker told; 0: unknown."""
        ...

    def trouble(self, node: int) -> KafkaError | None:
        """Why the last connection to ``node`` failed; None since one stands."""
        ...

    def forget(self, channel: int) -> None:
        """Its client is gone: close the connections that it had for itself."""
        ...

    def poll(self, timeout_ms: int) -> None:
        """Do I/O for at most ``timeout_ms``, and call the callbacks of what completed, failed or timed out."""
        ...

    def close(self) -> None:
        """Close every connection; requests not answered fail."""
        ...


@dataclass(slots=True, eq=False)
class InFlight:
    """``request`` None is a request of the session itself; ``abandoned``: its caller has been told already."""

    correlation_id: int
    api: Api
    version: int
    request: Request | None
    caller_deadline: int
    connection_deadline: int
    abandoned: bool = False

    def lost(self, error: KafkaError, now: int) -> None:
        """Nobody will answer it any more."""
        if self.request is not None and self.abandoned:
            self.request.settled(now)
        elif self.request is not None:
            self.request.on_failure(error, now)
