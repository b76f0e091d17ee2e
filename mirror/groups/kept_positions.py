"""Where the groups are on the target of which a flow keeps the positions: all that is known without its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from mirror.client import Admin
from mirror.groups.intents import StoredIntents
from mirror.relay.progress.flow_topic import FlowTopic, group_topic_of
from mirror.runtime.clock import SystemClock
from mirror.timing import Timer

READ_MS: Final = 20_000


class KeptPosition(NamedTuple):
    """Where a group is in one partition of the target. The field names are JSON keys."""

    topic: str
    partition: int
    target_offset: int | None
    """Its committed offset; None: it has none."""
    source_offset: int
    """The source's offset that the flow has translated last."""
    stored_ms: int
    """When the flow has stored that first (ms since 1970); 0: that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptGroup:
    """One group."""

    flow: str
    group: str
    positions: tuple[KeptPosition, ...]

    @property
    def missing(self) -> int:
        """The partitions where it has no position on the target."""
        return sum(one.target_offset is None for one in self.positions)


def read_kept(
    target: Admin, target_options: Mapping[str, object], flow: str, named: Callable[[str], str | None] = str
) -> list[KeptGroup]:
    """Return the groups of a flow, each as ``named`` by its name on the target; of None, they are left out.

    Raises KafkaError, also of a group whose offsets cannot be read.
    """
    intents = StoredIntents()
    topic = FlowTopic(target_options, group_topic_of(flow))
    for record in topic.records(Timer(SystemClock(), READ_MS)):
        intents.take(record.key, record.value, record.offset)
    kept = intents.partitions(lambda group: named(group) is not None)
    committed = target.offsets_of_groups_async([*kept], READ_MS).result() if kept else {}
    found = []
    for group, tps in sorted(kept.items()):
        positions = []
        for tp in sorted(tps):
            intent = intents.get(group, tp)
            assert intent is not None  # noqa: S101 - it is kept
            at, stored_ms = committed[group].get(tp), intents.stored_ms(group, tp, intent.target) or 0
            positions.append(KeptPosition(*tp, None if at is None else at.offset, intent.source, stored_ms))
        found.append(KeptGroup(flow=flow, group=named(group) or group, positions=tuple(positions)))
    return found
