"""The send window for throttled, slow, fast and partly stuck targets, in simulated time.

Whatever the target: no healthy batch gets so old that it would expire (throttled_backlog_expires_nothing), a sick
partition costs the others next to nothing, and a fast target is used to the full.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import pytest

from mirror.relay.byte_limits import InFlightBatch, SendWindow

MEMORY = 32 * 1024 * 1024
KB = 1024


@dataclass(slots=True)
class Link:
    """A connection to a broker: batches one after the other at ``rate`` bytes/s, each with a latency of ``delay_ms``.

    With a ``quota`` (bytes/s) it answers at once and then listens no more until its bucket, which holds ten seconds'
    worth, is even again (KIP-219).
    """

    rate: float
    delay_ms: float
    quota: float = 0
    tokens: float = field(init=False)
    free_at: float = 0
    filled_at: float = 0

    def __post_init__(self) -> None:
        self.tokens = 10 * self.quota

    def take(self, size: int, now: float) -> tuple[float, int]:
        """Return when a batch sent now is acknowledged, and the throttle time of the response."""
        arrived = max(now, self.free_at) + size * 1000 / self.rate
        throttle_ms = 0.0
        if self.quota:
            self.tokens = min(10 * self.quota, self.tokens + (arrived - self.filled_at) * self.quota / 1000) - size
            self.filled_at = arrived
            throttle_ms = max(0.0, -self.tokens * 1000 / self.quota)
        self.free_at = arrived + throttle_ms
        return arrived + self.delay_ms, int(throttle_ms)


@dataclass(slots=True)
class Sender:
    """A partition with an endless backlog."""

    name: int
    sick: bool = False
    out: list[InFlightBatch] = field(default_factory=list)
    answered: bool = False
    sent: int = 0


class Simulation:
    """``partitions`` over ``link``; as ``Outbox`` does, one batch alone until an answer."""

    def __init__(self, link: Link, partitions: int, size: int, delivery_ms: int, sick: int = 0) -> None:
        self.link = link
        self.size = size
        self.window = SendWindow(MEMORY, delivery_ms // 8, 0)
        self.senders = [Sender(number, sick=number < sick) for number in range(partitions)]
        self.answers: list[tuple[float, int, Sender, InFlightBatch, int]] = []
        self.oldest_ms = 0
        self.bytes: list[tuple[int, int]] = []
        self.ages: list[tuple[int, int]] = []
        self.turns = 0

    def run(self, until_ms: int) -> None:
        now, serial = 0, 0
        ready: list[Sender] = list(self.senders)
        while now < until_ms:
            self.turns += 1
            for sender in ready:
                while self._may_send(sender, now):
                    serial = self._send(sender, now, serial)
            for _ in range(self.window.waiting_count):
                if (who := self.window.next_sender(now)) is None:
                    break
                assert isinstance(who, int)
                sender = self.senders[who]
                while self._may_send(sender, now):
                    serial = self._send(sender, now, serial)
            coming = self.answers[0][0] if self.answers else until_ms
            now = max(now + 1, min(int(-(-coming // 1)), self.window.due_ms(now), until_ms))
            ready = self._answer(now)

    def _may_send(self, sender: Sender, now: int) -> bool:
        if sender.out and (sender.out[0].overtaken or not sender.answered):
            return False
        return self.window.may_send(sender.name, now, idle=not sender.out)

    def _send(self, sender: Sender, now: int, serial: int) -> int:
        ticket = self.window.on_sent(self.size, now)
        sender.out.append(ticket)
        if not sender.sick:
            when, throttle_ms = self.link.take(self.size, now)
            heapq.heappush(self.answers, (when, serial, sender, ticket, throttle_ms))
        return serial + 1

    def _answer(self, now: int) -> list[Sender]:
        ready: dict[int, Sender] = {}
        while self.answers and self.answers[0][0] <= now:
            _, _, sender, ticket, throttle_ms = heapq.heappop(self.answers)
            sender.out.remove(ticket)
            sender.answered = True
            sender.sent += self.size
            self.oldest_ms = max(self.oldest_ms, now - ticket.sent_ms)
            self.window.on_acknowledged(ticket, throttle_ms, now)
            self.bytes.append((now, self.size))
            self.ages.append((now, now - ticket.sent_ms))
            ready[sender.name] = sender
        if self.answers:  # what is not answered yet has an age, too
            self.oldest_ms = max(self.oldest_ms, now - min(ticket.sent_ms for _, _, _, ticket, _ in self.answers[:1]))
        return list(ready.values())

    def rate(self, since_ms: int, until_ms: int) -> float:
        """Acknowledged bytes per second."""
        return sum(size for when, size in self.bytes if since_ms <= when < until_ms) * 1000 / (until_ms - since_ms)


@pytest.mark.parametrize("partitions", [1, 20])
@pytest.mark.parametrize("delivery_ms", [5_000, 30_000, 120_000])
@pytest.mark.parametrize("quota", [50 * KB, 200 * KB, 1000 * KB])
def test_throttled_target_with_a_huge_backlog_expires_nothing(quota: int, delivery_ms: int, partitions: int) -> None:
    """throttled_backlog_expires_nothing: with the smallest valid timeout, and the quota is fully used."""
    simulation = Simulation(Link(100_000 * KB, 2, quota=quota), partitions, 16 * KB, delivery_ms)
    simulation.run(120_000)
    assert simulation.oldest_ms < delivery_ms
    assert simulation.rate(60_000, 120_000) >= 0.9 * quota
    assert max(age for when, age in simulation.ages if when > 60_000) < 500, "handed over when the broker listens"


@pytest.mark.parametrize("partitions", [1, 20])
@pytest.mark.parametrize("delivery_ms", [5_000, 30_000])
@pytest.mark.parametrize("rate", [100 * KB, 1000 * KB])
def test_slow_link_expires_nothing(rate: int, delivery_ms: int, partitions: int) -> None:
    simulation = Simulation(Link(rate, 50), partitions, 16 * KB, delivery_ms)
    simulation.run(60_000)
    assert simulation.oldest_ms < delivery_ms / 2
    assert simulation.rate(20_000, 60_000) >= 0.9 * rate


@pytest.mark.parametrize("link", [Link(100_000 * KB, 2, quota=200 * KB), Link(200 * KB, 50)])
def test_partitions_take_turns_at_a_full_window(link: Link) -> None:
    """Otherwise the busiest partition would take the whole window for as long as it has a backlog."""
    simulation = Simulation(link, 20, 16 * KB, 30_000)
    simulation.run(120_000)
    shares = [sender.sent for sender in simulation.senders]
    assert max(shares) <= 2 * min(shares)


@pytest.mark.parametrize("sick", [1, 2])
@pytest.mark.parametrize("delay_ms", [2, 50])
def test_stuck_partition_hardly_slows_healthy_ones(delay_ms: int, sick: int) -> None:
    healthy = Simulation(Link(20_000 * KB, delay_ms), 20, 64 * KB, 30_000)
    healthy.run(10_000)
    beside = Simulation(Link(20_000 * KB, delay_ms), 20 + sick, 64 * KB, 30_000, sick=sick)
    beside.run(10_000)
    assert beside.rate(1_000, 10_000) >= 0.9 * healthy.rate(1_000, 10_000)
    assert all(sender.sent == 0 for sender in beside.senders[:sick])


def test_stuck_partition_does_not_occupy_the_only_turn_of_a_throttled_target() -> None:
    quota = 1000 * KB
    simulation = Simulation(Link(100_000 * KB, 2, quota=quota), 20, 64 * KB, 30_000, sick=2)
    simulation.run(60_000)
    assert simulation.rate(30_000, 60_000) >= 0.9 * quota


@pytest.mark.parametrize("delay_ms", [1, 10, 100, 300])
def test_fast_target_is_soon_fully_used(delay_ms: int) -> None:
    rate = 50_000 * KB
    simulation = Simulation(Link(rate, delay_ms), 20, 64 * KB, 120_000)
    simulation.run(6_000)
    most = min(rate, MEMORY * 1000 / delay_ms)
    assert simulation.rate(3_000, 6_000) >= 0.9 * most


def test_senders_are_called_no_more_often_than_something_happens() -> None:
    simulation = Simulation(Link(100_000 * KB, 2, quota=50 * KB), 20, 16 * KB, 30_000, sick=20)
    simulation.run(60_000)
    assert simulation.turns < 150
