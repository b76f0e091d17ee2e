"""A network whose connections are made, broken and throttled by hand, for the pools' decisions alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from mirror.cluster.connection.pools import SLOW_AFTER_MS, ConnectionPool, Slot
from mirror.cluster.requests import Lane, Request
from mirror.cluster.types import Broker
from mirror.errors import ConnectionFailed, KafkaError, KafkaTimeout
from mirror.wire.messages.metadata import MetadataResponse
from tests.cluster.probes import Probe


class HandNetwork:
    """``open`` maps a channel to its node, ``usable`` are the channels that are ready; new ones are, if ``quick``."""

    def __init__(self, *, quick: bool = True) -> None:
        self.quick = quick
        self.open: dict[int, int] = {}
        self.usable: set[int] = set()
        self.opened: list[int] = []
        self.forgotten: list[int] = []
        self.throttling: set[int] = set()
        self.troubles: dict[int, KafkaError] = {}
        self.changes = 0

    def ready(self, node: int, lane: Lane, now: int, channel: int = 0) -> bool:
        assert lane is Lane.PRODUCE
        del now
        if channel not in self.open:
            self.open[channel] = node
            self.opened.append(channel)
            if self.quick:
                self.usable.add(channel)
        return channel in self.usable

    def stands(self, node: int, lane: Lane, channel: int) -> bool:
        del lane
        return self.open.get(channel) == node

    def throttled(self, node: int, now: int) -> bool:
        del now
        return node in self.throttling

    def forget(self, channel: int) -> None:
        self.forgotten.append(channel)
        self.close_channel(channel)

    def close_channel(self, channel: int) -> None:
        self.open.pop(channel, None)
        self.usable.discard(channel)

    def set_brokers(self, brokers: Mapping[int, Broker]) -> None:
        raise NotImplementedError

    def send(self, request: Request, now: int) -> None:
        raise NotImplementedError

    def trouble(self, node: int) -> KafkaError | None:
        return self.troubles.get(node)

    def finalized_feature(self, name: str) -> int:
        raise NotImplementedError

    def poll(self, timeout_ms: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


@dataclass(slots=True, eq=False)
class Owed:
    """A request on its connection."""

    probe: Probe
    size: int
    sent_ms: int


@dataclass(slots=True, eq=False)
class Bench:
    """A pool, its network, and what each connection owes, in order, written down apart from the pool's own account."""

    size: int = 2
    quick: bool = True
    now: int = 1_000
    network: HandNetwork = field(init=False)
    pool: ConnectionPool = field(init=False)
    owed: dict[int, deque[Owed]] = field(default_factory=dict)
    answered_ms: dict[int, int] = field(default_factory=dict)
    channels: int = 0

    def __post_init__(self) -> None:
        self.network = HandNetwork(quick=self.quick)
        self.pool = ConnectionPool(self.network, Lane.PRODUCE, self.size, self._new_channel, SLOW_AFTER_MS)

    def _new_channel(self) -> int:
        self.channels += 1
        return self.channels

    def put(self, slot: Slot, size: int = 100) -> Owed:
        """Send a request on ``slot``."""
        owed = Owed(Probe(), size, self.now)
        carried = self.pool.carry(slot, owed.probe.request, size, self.now)
        assert (carried.node, carried.lane, carried.channel) == (slot.node, Lane.PRODUCE, slot.channel)
        self.owed.setdefault(slot.channel, deque()).append(owed)
        return owed

    def send(self, node: int = 1, size: int = 100, *, slow: bool = False, sole: bool = False) -> Slot:
        """Pick and put; there must be a connection."""
        slot = self.pool.pick(node, self.now, slow=slow, dedicated=sole)
        assert slot is not None
        self.put(slot, size)
        return slot

    def answer(self, channel: int, throttle_ms: int = 0) -> None:
        """The broker answers the oldest request of this connection."""
        owed = self.owed[channel].popleft()
        self.answered_ms[channel] = self.now + throttle_ms
        if owed.probe.failures:  # its caller has given it up: the answer is too late
            owed.probe.request.settled(self.now)
        else:
            owed.probe.request.on_response(MetadataResponse((), "c", 1, throttle_time=throttle_ms), self.now)

    def time_out(self, channel: int) -> None:
        """The oldest times out for its caller; the answer is still outstanding."""
        owed = self.owed[channel][0]
        if not owed.probe.failures:
            owed.probe.request.on_failure(KafkaTimeout("no answer"), self.now)

    def lose(self, channel: int) -> None:
        """The connection breaks: everything on it fails."""
        self.network.close_channel(channel)
        for owed in self.owed.pop(channel, ()):
            if owed.probe.failures:
                owed.probe.request.settled(self.now)
            else:
                owed.probe.request.on_failure(ConnectionFailed("gone"), self.now)

    def waiting_since(self, channel: int) -> int | None:
        """Since when the broker works on what this connection owes; None where that is nothing."""
        owed = self.owed.get(channel)
        return max(owed[0].sent_ms, self.answered_ms.get(channel, 0)) if owed else None
