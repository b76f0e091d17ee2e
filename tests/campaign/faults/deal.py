"""What is done in a round, to whom, when and for how long: all of it follows from the round's seed. Pure.

The kinds are dealt from a shuffled pack, a hand for each seed: the seeds of a whole pack, which begin at a multiple of
:data:`HANDS`, have every kind once.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

BROKERS: Final = 3
SMALL_DISK: Final = 3
"""The target broker that has a file system of its own."""
WINDOW_S: Final = 32.0
"""Harms begin within this time."""
_APART_S: Final = 1.0
_AT_ONCE: Final = 0.6


class Kind(enum.StrEnum):
    """What may befall a copy."""

    KILL = "broker killed"
    STOP = "broker stopped"
    RESTART = "broker restarted"
    CUT = "connections cut"
    DELAY = "connections delayed"
    RESET = "connections reset"
    SILENCE = "connections half-open"
    SWALLOW = "bytes swallowed"
    FULL_DISK = "disk full"
    EXPIRED = "certificate expired"
    EXECUTOR = "executor killed"
    DRIVER = "driver killed"
    CLOCK = "clock stepped"
    LEADERS = "leaders moved"
    PARTITIONS = "partitions added"
    REMADE = "topics made again"


class On(enum.StrEnum):
    """The side that is harmed."""

    SOURCE = "source"
    TARGET = "target"
    STREAM = "stream"


OF_CONNECTIONS: Final = frozenset({Kind.CUT, Kind.DELAY, Kind.RESET, Kind.SILENCE, Kind.SWALLOW})
OF_BROKERS: Final = frozenset({Kind.KILL, Kind.STOP, Kind.RESTART, Kind.FULL_DISK, Kind.EXPIRED})
_LASTS: Final = {
    Kind.KILL: (2.0, 12.0),
    # The cluster takes who is silent for dead after 6 s: some are back before.
    Kind.STOP: (2.0, 16.0),
    Kind.FULL_DISK: (6.0, 12.0),
    Kind.EXPIRED: (10.0, 20.0),
    Kind.CLOCK: (9.0, 15.0),
    **dict.fromkeys(OF_CONNECTIONS, (4.0, 15.0)),
}
"""Seconds; what is not here happens, and is over."""
HAND: Final = 4
HANDS: Final = len(Kind) // HAND


@dataclass(frozen=True, slots=True)
class Harm:
    """One of a round: ``at_s`` after its beginning, for ``for_s`` (0: it only happens); ``seed`` decides the rest.

    ``broker`` is 0 where no single one is meant.
    """

    kind: Kind
    on: On
    broker: int
    at_s: float
    for_s: float
    seed: int

    @property
    def ends_s(self) -> float:
        return self.at_s + self.for_s

    def __str__(self) -> str:
        whom = f"{self.on} broker {self.broker}" if self.broker else str(self.on)
        lasts = f" for {self.for_s:.1f} s" if self.for_s else ""
        return f"{self.kind} ({whom}) at {self.at_s:.1f} s{lasts}"


@dataclass(frozen=True, slots=True)
class Deal:
    """A round: its harms by their beginning; ``tls``: the target is reached by TLS, and not through the proxy."""

    seed: int
    tls: bool
    harms: tuple[Harm, ...]


def kinds_of(seed: int) -> tuple[Kind, ...]:
    """The hand that ``seed`` has of its pack."""
    pack = list(Kind)
    random.Random(f"pack {seed // HANDS}").shuffle(pack)
    begin = seed % HANDS * HAND
    return tuple(pack[begin : begin + HAND])


def deal(seed: int, kinds: Sequence[Kind] | None = None, left_out: Collection[Kind] = ()) -> Deal:
    """The round of ``seed``; with other ``kinds`` where they are given, and never those ``left_out``."""
    rng = random.Random(f"round {seed}")
    chosen = [kind for kind in kinds or kinds_of(seed) if kind not in left_out]
    tls = Kind.EXPIRED in chosen
    rng.shuffle(chosen)
    times = _times(rng, len(chosen))
    # Who has no choice goes first.
    order = sorted(range(len(chosen)), key=lambda n: chosen[n] is not Kind.FULL_DISK)
    taken = set[tuple[On, int]]()
    harms = [_harm(rng, chosen[n], times[n], taken, tls=tls) for n in order]
    return Deal(seed, tls, tuple(sorted(harms, key=lambda harm: harm.at_s)))


def _times(rng: random.Random, count: int) -> list[float]:
    """Spread over the window, and two of them often at once."""
    times = [round((n + rng.random()) * WINDOW_S / max(count, 1), 1) for n in range(count)]
    if count > 1 and rng.random() < _AT_ONCE:
        first = rng.randrange(count - 1)
        times[first + 1] = round(times[first] + rng.random() * _APART_S, 1)
    return times


def _harm(rng: random.Random, kind: Kind, at_s: float, taken: set[tuple[On, int]], *, tls: bool) -> Harm:
    on, broker = On.STREAM, 0
    if kind in OF_CONNECTIONS:
        on = On.SOURCE if tls else rng.choice((On.SOURCE, On.TARGET))
    elif kind in {Kind.PARTITIONS, Kind.REMADE}:
        on = On.SOURCE
    elif kind is Kind.LEADERS:
        on = rng.choice((On.SOURCE, On.TARGET))
    elif kind in OF_BROKERS:
        # No broker has two of these in one round: what is dead cannot be stopped.
        on, broker = rng.choice(sorted(_places(kind) - taken))
        taken.add((on, broker))
    low, high = _LASTS.get(kind, (0.0, 0.0))
    return Harm(kind, on, broker, at_s, round(rng.uniform(low, high), 1), rng.randrange(10**9))


def _places(kind: Kind) -> set[tuple[On, int]]:
    if kind is Kind.FULL_DISK:
        return {(On.TARGET, SMALL_DISK)}
    sides = (On.TARGET,) if kind is Kind.EXPIRED else (On.SOURCE, On.TARGET)
    return {(side, broker) for side in sides for broker in range(1, BROKERS + 1)}
