"""A flow's inventory topic, as rounds of one kind read and write it: again and again, and fencing earlier runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from mirror.relay.progress.fenced_writer import FencedWriter
from mirror.relay.progress.flow_topic import FlowTopic, KeyValue, inventory_topic_of
from mirror.relay.progress.followed_topic import FollowedTopic
from mirror.timing import Clock
from mirror.wire.decode import Record


class InventoryTopic:
    """Its calls wait for the target; use it in one thread."""

    def __init__(
        self, target_options: Mapping[str, object], flow: str, transactional_id: str, clock: Clock, timeout_ms: int
    ) -> None:
        """``target_options`` are dotted keys, of which those of the cluster are used. ``timeout_ms``: for each call.

        Rounds of different kinds have different transactional ids, so that they do not fence each other. Raises
        ConfigError.
        """
        self._topic: Final = FlowTopic(target_options, inventory_topic_of(flow))
        self._writer: Final = FencedWriter(self._topic, transactional_id, timeout_ms)
        self._clock: Final = clock
        self._timeout_ms: Final = timeout_ms
        self._followed: FollowedTopic | None = None

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

    def give_way(self) -> None:
        """Another run has fenced this one: the next :meth:`begin` fences that one."""
        self._writer.close()

    def begin(self) -> None:
        """Fence earlier runs, if this one has not yet: they store nothing afterwards. Raises KafkaError."""
        self._writer.begin()

    def follow(self, *, clear: Callable[[], object], take: Callable[[bytes | None, bytes | None], object]) -> None:
        """Pass the keys and values that are new to ``take``, after ``clear`` if they replace all of earlier calls.

        Raises KafkaError.
        """
        if self._followed is None:
            self._followed = FollowedTopic(self._topic)

        def take_record(record: Record) -> None:
            take(record.key, record.value)

        self._followed.follow(self._clock, self._timeout_ms, clear=clear, take=take_record)

    def write(self, records: Iterable[KeyValue]) -> None:
        """Store these records, all or none. Raises KafkaError, Fenced."""
        self._writer.write(records)
