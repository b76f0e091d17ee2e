"""Which clients have arrived on the target of a switch that is open: first records and first members. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from mirror.errors import named
from mirror.switch.record import SwitchRecord


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """Where a topic was first seen to have grown behind the switch, and when (ms since 1970)."""

    partition: int
    offset: int
    """The first offset that is not of the flows, which are held since before the switch opened."""
    seen_ms: int


@dataclass(slots=True)
class Arrived:
    """What has arrived so far, and what has not."""

    topics: dict[str, FirstRecord] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    """When a member was first seen (ms since 1970)."""
    waiting_topics: list[str] = field(default_factory=list)
    waiting_groups: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing."""
        return not self.waiting_topics and not self.waiting_groups

    def summary(self) -> str:
        """Return one line."""
        topics, groups = len(self.topics), len(self.groups)
        line = (
            f"clients write to {topics} of {topics + len(self.waiting_topics)} topics of the target, and"
            f" {groups} of {groups + len(self.waiting_groups)} groups have members there"
        )
        missing = [(kind, names) for kind, names in self._waiting() if names]
        return line + (f"; not yet: {', '.join(named(kind, names) for kind, names in missing)}" if missing else "")

    def _waiting(self) -> tuple[tuple[str, list[str]], ...]:
        return ("topic", self.waiting_topics), ("group", self.waiting_groups)


class Arrivals:
    """Watches the clients of one switch. Use it in one thread."""

    def __init__(self, record: SwitchRecord) -> None:
        """``record`` is that of a switch that is open."""
        self._record: Final = record
        self.arrived: Final = Arrived(waiting_topics=sorted(record.target_ends), waiting_groups=sorted(record.groups))

    # Invariant: A topic counts as written to only by an offset at or behind the target's end of when the switch opened:
    #   what is before it was copied.
    # Test: tests/switch/test_arrivals.py::test_the_first_record_behind_the_ends_of_the_switch_is_that_of_a_client
    def see(self, ends: Mapping[str, tuple[int, ...]], members: Collection[str], now_ms: int) -> Iterator[str]:
        """Yield a line for each arrival, by the ends of the target's logs and by its groups with members."""
        arrived = self.arrived
        for topic in [*arrived.waiting_topics]:
            opened = self._record.target_ends[topic]
            for partition, end in enumerate(ends.get(topic, ())):
                first = opened[partition] if partition < len(opened) else 0
                if end > first:
                    arrived.topics[topic] = FirstRecord(partition, first, now_ms)
                    arrived.waiting_topics.remove(topic)
                    where = f"first record in partition {partition} at offset {first}"
                    yield f"topic {topic}: {where}, {self._since(now_ms)}"
                    break
        for group in sorted({*arrived.waiting_groups} & {*members}):
            arrived.groups[group] = now_ms
            arrived.waiting_groups.remove(group)
            yield f"group {group}: first member, {self._since(now_ms)}"

    def _since(self, now_ms: int) -> str:
        return f"seen {max(0, now_ms - self._record.open_ms) // 1000} s after the switch opened"
