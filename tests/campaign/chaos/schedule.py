"""The faults of a round, with their targets, times and durations. The round's seed decides all of it. Pure.

The kinds are taken from a shuffled pack, :data:`PER_ROUND` for each seed. The seeds of a whole pack begin at a multiple
of :data:`ROUNDS_PER_PACK` and contain every kind once.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

BROKERS: Final = 3
SMALL_DISK: Final = 3
"""The broker of each cluster that has a file system of its own."""
WINDOW_S: Final = 32.0
"""All faults begin within this time."""
_SIMULTANEOUS_S: Final = 1.0
_SIMULTANEOUS_PROBABILITY: Final = 0.6


class FaultKind(enum.StrEnum):
    """What the campaign does to clusters, connections and processes."""

    BROKER_KILLED = "broker killed"
    BROKER_STOPPED = "broker stopped"
    BROKER_RESTARTED = "broker restarted"
    BROKER_CLOCK = "broker clock wrong"
    BROKERS_PARTITIONED = "brokers partitioned"
    CONTROLLER_UNREACHABLE = "controller unreachable"
    CERTIFICATE_EXPIRED = "certificate expired"
    SOURCE_DISK_FULL = "source disk full"
    TARGET_DISK_FULL = "target disk full"
    UNCLEAN_ELECTION = "unclean election"
    LEADERS_MOVED = "leaders moved"
    CONNECTIONS_CUT = "connections cut"
    CONNECTIONS_DELAYED = "connections delayed"
    CONNECTIONS_RESET = "connections reset"
    CONNECTIONS_HALF_OPEN = "connections half-open"
    BYTES_SWALLOWED = "bytes swallowed"
    EXECUTOR_KILLED = "executor killed"
    EXECUTOR_STOPPED = "executor stopped"
    WORKER_KILLED = "Python worker killed"
    WORKER_STOPPED = "Python worker stopped"
    DRIVER_KILLED = "driver killed"
    CLOCK_STEPPED = "clock stepped"
    PARTITIONS_ADDED = "partitions added"
    TOPICS_RECREATED = "topics recreated"


class Side(enum.StrEnum):
    """Where a fault takes place."""

    SOURCE = "source"
    TARGET = "target"
    STREAM = "stream"


OF_CONNECTIONS: Final = frozenset(
    {
        FaultKind.CONNECTIONS_CUT,
        FaultKind.CONNECTIONS_DELAYED,
        FaultKind.CONNECTIONS_RESET,
        FaultKind.CONNECTIONS_HALF_OPEN,
        FaultKind.BYTES_SWALLOWED,
    }
)
OF_ONE_BROKER: Final = frozenset(
    {
        FaultKind.BROKER_KILLED,
        FaultKind.BROKER_STOPPED,
        FaultKind.BROKER_RESTARTED,
        FaultKind.BROKER_CLOCK,
        FaultKind.BROKERS_PARTITIONED,
        FaultKind.CONTROLLER_UNREACHABLE,
        FaultKind.CERTIFICATE_EXPIRED,
        FaultKind.SOURCE_DISK_FULL,
        FaultKind.TARGET_DISK_FULL,
    }
)
NEEDS_TARGET_BROKERS: Final = frozenset({FaultKind.CERTIFICATE_EXPIRED, FaultKind.TARGET_DISK_FULL})
"""Kinds that cannot share a round with an unclean election, which needs all brokers of the target."""
_DURATIONS_S: Final = {
    FaultKind.BROKER_KILLED: (2.0, 12.0),
    # A broker's session lasts 6 s: some brokers resume before it expires.
    FaultKind.BROKER_STOPPED: (2.0, 16.0),
    FaultKind.BROKER_CLOCK: (12.0, 18.0),
    # Replicas leave the ISR after 6 to 9 s.
    FaultKind.BROKERS_PARTITIONED: (10.0, 20.0),
    FaultKind.CONTROLLER_UNREACHABLE: (8.0, 18.0),
    FaultKind.SOURCE_DISK_FULL: (6.0, 12.0),
    FaultKind.TARGET_DISK_FULL: (6.0, 12.0),
    FaultKind.CERTIFICATE_EXPIRED: (10.0, 20.0),
    # The stopped follower leaves the ISR after 6 s; then the leader alone must acknowledge for a while.
    FaultKind.UNCLEAN_ELECTION: (12.0, 16.0),
    # delivery.timeout.ms is 20 s.
    FaultKind.EXECUTOR_STOPPED: (4.0, 26.0),
    FaultKind.WORKER_STOPPED: (4.0, 26.0),
    FaultKind.CLOCK_STEPPED: (9.0, 15.0),
    **dict.fromkeys(OF_CONNECTIONS, (4.0, 15.0)),
}
"""Seconds. Kinds that are not here have no duration."""
PER_ROUND: Final = 4
ROUNDS_PER_PACK: Final = len(FaultKind) // PER_ROUND


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    """A fault that begins ``at_s`` seconds after the round's first one may, and lasts ``for_s`` (0: no duration).

    ``broker`` is 0 where the fault is not of one broker. ``seed`` decides everything else about it.
    """

    kind: FaultKind
    side: Side
    broker: int
    at_s: float
    for_s: float
    seed: int

    @property
    def ends_s(self) -> float:
        return self.at_s + self.for_s

    def __str__(self) -> str:
        place = f"{self.side} broker {self.broker}" if self.broker else str(self.side)
        duration = f" for {self.for_s:.1f} s" if self.for_s else ""
        return f"{self.kind} ({place}) at {self.at_s:.1f} s{duration}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A round's faults, ordered by their beginning. ``tls``: the stream reaches the target by TLS, without a proxy."""

    seed: int
    attempt: int
    tls: bool
    faults: tuple[ScheduledFault, ...]

    def has(self, kind: FaultKind) -> bool:
        return any(fault.kind is kind for fault in self.faults)


def kinds_of(seed: int) -> tuple[FaultKind, ...]:
    """Return the kinds of faults that the pack has for ``seed``."""
    pack_of_seed, place = divmod(seed, ROUNDS_PER_PACK)
    pack = next(pack for pack in _packs(pack_of_seed) if all(map(compatible, pack)))
    return pack[place]


def compatible(kinds: Collection[FaultKind]) -> bool:
    """Whether one round can have all of ``kinds``."""
    return FaultKind.UNCLEAN_ELECTION not in kinds or not NEEDS_TARGET_BROKERS.intersection(kinds)


def _packs(number: int) -> Iterator[list[tuple[FaultKind, ...]]]:
    """Yield shuffled packs, each divided into rounds."""
    rng, kinds = random.Random(f"pack {number}"), list(FaultKind)
    while True:
        rng.shuffle(kinds)
        yield [tuple(kinds[first : first + PER_ROUND]) for first in range(0, len(kinds), PER_ROUND)]


def schedule(
    seed: int, kinds: Sequence[FaultKind] | None = None, unavailable: Collection[FaultKind] = (), attempt: int = 0
) -> Schedule:
    """Return the round of ``seed``, with ``kinds`` instead of the pack's where given, without those ``unavailable``.

    Another ``attempt`` differs in everything but the kinds.
    """
    rng = random.Random(f"round {seed} {attempt}")
    chosen = [kind for kind in kinds or kinds_of(seed) if kind not in unavailable]
    assert compatible(chosen), f"no round can have all of these: {', '.join(sorted(chosen))}"
    tls = FaultKind.CERTIFICATE_EXPIRED in chosen
    rng.shuffle(chosen)
    times = _times(rng, len(chosen))
    # The kinds with the fewest possible places choose first.
    order = sorted(range(len(chosen)), key=lambda n: len(_places(chosen[n])) or BROKERS)
    taken = set[tuple[Side, int]]()
    if FaultKind.UNCLEAN_ELECTION in chosen:
        taken |= {(Side.TARGET, broker) for broker in range(1, BROKERS + 1)}
    faults = [_fault(rng, chosen[n], times[n], taken, tls=tls) for n in order]
    return Schedule(seed, attempt, tls, tuple(sorted(faults, key=lambda fault: fault.at_s)))


def _times(rng: random.Random, count: int) -> list[float]:
    """Spread ``count`` times over the window; often two of them are nearly simultaneous."""
    times = [round((n + rng.random()) * WINDOW_S / max(count, 1), 1) for n in range(count)]
    if count > 1 and rng.random() < _SIMULTANEOUS_PROBABILITY:
        first = rng.randrange(count - 1)
        times[first + 1] = round(times[first] + rng.random() * _SIMULTANEOUS_S, 1)
    return times


def _fault(
    rng: random.Random, kind: FaultKind, at_s: float, taken: set[tuple[Side, int]], *, tls: bool
) -> ScheduledFault:
    side, broker = Side.STREAM, 0
    if kind in OF_CONNECTIONS:
        side = Side.SOURCE if tls else rng.choice((Side.SOURCE, Side.TARGET))
    elif kind in {FaultKind.PARTITIONS_ADDED, FaultKind.TOPICS_RECREATED}:
        side = Side.SOURCE
    elif kind is FaultKind.UNCLEAN_ELECTION:
        side = Side.TARGET
    elif kind is FaultKind.LEADERS_MOVED:
        side = rng.choice((Side.SOURCE, Side.TARGET))
    elif kind in OF_ONE_BROKER:
        # A broker has only one of these in a round: a dead broker cannot be stopped.
        side, broker = rng.choice(sorted(_places(kind) - taken))
        taken.add((side, broker))
    shortest, longest = _DURATIONS_S.get(kind, (0.0, 0.0))
    return ScheduledFault(kind, side, broker, at_s, round(rng.uniform(shortest, longest), 1), rng.randrange(10**9))


def _places(kind: FaultKind) -> set[tuple[Side, int]]:
    """Return the brokers that a fault of one broker can be of; none for other kinds."""
    if kind not in OF_ONE_BROKER:
        return set()
    if kind is FaultKind.TARGET_DISK_FULL:
        return {(Side.TARGET, SMALL_DISK)}
    if kind is FaultKind.SOURCE_DISK_FULL:
        return {(Side.SOURCE, SMALL_DISK)}
    sides = (Side.TARGET,) if kind is FaultKind.CERTIFICATE_EXPIRED else (Side.SOURCE, Side.TARGET)
    return {(side, broker) for side in sides for broker in range(1, BROKERS + 1)}
