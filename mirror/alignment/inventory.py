"""A flow's inventory on its target: read again and again, and stored under one fence for all that is kept in step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mirror.alignment.inventory_records import Inventory, Key, record_of
from mirror.relay.progress.fenced_writer import FencedWriter, transactional_id
from mirror.relay.progress.flow_topic import FlowTopic, inventory_topic_of
from mirror.relay.progress.followed_topic import FollowedTopic
from mirror.relay.progress.latch import LatchCheck
from mirror.timing import Clock
from mirror.wire.decode import Record

TIMEOUT_MS: Final = 20_000
"""For each call."""


class FlowInventory:
    """Its calls wait for the target; use it in one thread."""

    def __init__(self, target_options: Mapping[str, object], flow: str, clock: Clock) -> None:
        """``target_options`` are dotted keys, of which those of the cluster are used. Raises ConfigError."""
        self.records: Final = Inventory()
        """As they were read or stored last."""
        self._topic: Final = FlowTopic(target_options, inventory_topic_of(flow))
        self._writer: Final = FencedWriter(
            self._topic, transactional_id(flow), TIMEOUT_MS, check=LatchCheck(target_options, flow)
        )
        self._clock: Final = clock
        self._followed: FollowedTopic | None = None
        self._written: Final[dict[bytes, int]] = {}
        """Where the records are that this process has written, by key."""

    @property
    def name(self) -> str:
        """The name of the topic."""
        return self._topic.tp.topic

    @property
    def options(self) -> Mapping[str, object]:
        """The dotted keys that every client of the target takes."""
        return self._topic.options

    def close(self) -> None:
        """Close the connections that the calls have opened."""
        self._writer.close()
        if self._followed is not None:
            self._followed.close()

    def begin(self) -> None:
        """Fence earlier owners, if this one has not yet: they store nothing afterwards.

        Raises KafkaError, and FlowHeld or LatchMoved if the flow may not change anything.
        """
        self._writer.begin()

    def read(self) -> bool:
        """Read what was stored since the last call; return whether there is such a topic. Raises KafkaError."""
        if self._followed is None:
            self._followed = FollowedTopic(self._topic)
        self._followed.follow(self._clock, TIMEOUT_MS, clear=self._clear, take=self._take)
        return self._followed.exists

    def store(self, records: Mapping[Key, Any]) -> None:
        """Store what the inventory does not have yet, all or none; None removes a record. Raises KafkaError, Fenced."""
        new = {key: value for key, value in records.items() if (value or None) != self.records.get(key)}
        if new:
            encoded = [record_of(key, value) for key, value in new.items()]
            offsets = self._writer.write(encoded)
            self._written.update(zip((one.key for one in encoded), offsets, strict=True))
            for key, value in new.items():
                self.records.put(key, value)

    def _clear(self) -> None:
        self.records.clear()
        self._written.clear()

    def _take(self, record: Record) -> None:
        """Take a record, unless this process has written a later one of its key: that may become visible later."""
        key = bytes(record.key or b"")
        if record.offset > self._written.get(key, -1):
            self._written.pop(key, None)
            self.records.take(key, record.value)
