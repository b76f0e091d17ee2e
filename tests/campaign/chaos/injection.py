"""The parts of a round that faults act upon, and the base of all faults that act upon them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import ClassVar, Final

from tests.campaign.chaos.clusters import Clusters
from tests.campaign.chaos.kafka_side import KafkaSide
from tests.campaign.chaos.load import Load
from tests.campaign.chaos.schedule import ScheduledFault, Side
from tests.campaign.chaos.stream import Stream

PREFIX: Final = "a."
"""Begins the name of each topic's copy."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The source topics of a round, by their purpose.

    ``lossy`` exists only in rounds with an unclean election, which removes acknowledged records from its copy.
    """

    plain: str
    transactional: str
    growing: str
    failing: str
    resumed: str
    lossy: str = ""

    PARTITIONS: ClassVar = {"plain": 4, "transactional": 2, "growing": 2, "failing": 1, "resumed": 1, "lossy": 1}
    """The number of partitions that each begins with."""

    @property
    def counts(self) -> dict[str, int]:
        """The topics' names, and how many partitions each begins with."""
        names = {getattr(self, purpose): count for purpose, count in self.PARTITIONS.items()}
        return {name: count for name, count in names.items() if name}

    def purpose(self, topic: str) -> str:
        return next(purpose for purpose in self.PARTITIONS if getattr(self, purpose) == topic)


@dataclass(frozen=True, slots=True)
class Effect:
    """How often a fault has hit, by measurement: ``count`` of ``unit``. 0 means that it had no effect."""

    count: int
    unit: str

    def __str__(self) -> str:
        return f"{self.count:,} {self.unit}"


@dataclass
class RoundContext:
    """What the faults of a round act upon.

    ``log`` collects what they do in detail; ``recreated`` is whether two topics were deleted and created again.
    """

    clusters: Clusters
    stream: Stream
    load: Load
    topics: Topics
    log: list[str] = field(default_factory=list)
    recreated: bool = False


class Injection:
    """One fault, from its beginning to its end. The subclasses measure ``count``, in ``unit``.

    All methods raise AssertionError, SandboxError or KafkaException where they cannot do it: then the campaign itself
    has failed.
    """

    unit: ClassVar = ""
    steps: ClassVar = 1
    """How often a fault changes while it lasts: :meth:`step` is called once less."""

    def __init__(self, context: RoundContext, fault: ScheduledFault) -> None:
        self.count = 0
        self.context: Final = context
        self.fault: Final = fault
        self.rng: Final = random.Random(fault.seed)

    @property
    def effect(self) -> Effect:
        return Effect(self.count, self.unit)

    @property
    def side(self) -> KafkaSide:
        clusters = self.context.clusters
        return clusters.source if self.fault.side is Side.SOURCE else clusters.target

    @property
    def topics(self) -> list[str]:
        """The names of the round's topics at the fault's side."""
        prefix = "" if self.fault.side is Side.SOURCE else PREFIX
        return [f"{prefix}{name}" for name in self.context.topics.counts]

    def log(self, line: str) -> None:
        self.context.log.append(line)

    def begin(self) -> None:
        """Inject the fault."""
        raise NotImplementedError

    def step(self, number: int) -> None:
        """Change the fault while it lasts."""

    def end(self) -> None:
        """Undo the fault; called for faults with a duration, and once at most."""
