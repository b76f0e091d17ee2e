"""Records which target topics a flow creates, with their ids and those of their source topics.

::

    intents stored ──► topics created ──► the ids that the brokers have given them, stored

A run that is killed before the last step has created topics that are never deleted: only the id shows that a topic is
the flow's own, and others may have created one of that name meanwhile.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final

from mirror.alignment.inventory_records import CreatedTopic, Inventory, Key, SourceTopic, Subject, record_of
from mirror.alignment.remains import remove_records
from mirror.errors import KafkaError
from mirror.relay.progress.flow_topic import FlowTopic, KeyValue, inventory_topic_of
from mirror.runtime.clock import SystemClock
from mirror.timing import Timer

_TIMEOUT_MS: Final = 20_000


class CreationRecorder:
    """Records one flow's creations. Its calls wait for the target; a failure keeps no topic from being created."""

    def __init__(self, target_options: Mapping[str, object], flow: str, *, deletes: bool) -> None:
        """``target_options`` are dotted keys, of which those of the cluster are used. Raises ConfigError.

        ``deletes``: the flow deletes topics, so that something may be left of one that is created again.
        """
        self._flow: Final = flow
        self._deletes: Final = deletes
        self._topic: Final = FlowTopic(target_options, inventory_topic_of(flow))
        self._sources: dict[str, SourceTopic] = {}
        self.problems: Final[list[str]] = []
        """Lines about what could not be recorded."""

    def intend(self, sources: Mapping[str, SourceTopic]) -> None:
        """Store that these target topics, which do not exist, are about to be created. Never raises.

        What is left of a topic that the flow has deleted before is removed first.
        """
        try:
            if self._deletes:
                self._remove_remains(sources)
            self._write({topic: record_of(Key(Subject.INTENT, topic), source) for topic, source in sources.items()})
        except KafkaError as error:
            self._fail(error)
        else:
            self._sources = dict(sources)

    def confirm(self, ids: Mapping[str, uuid.UUID]) -> None:
        """Store the ids with which topics were created, of those that were intended. Never raises."""
        created = {
            topic: CreatedTopic(topic_id=str(topic_id), source=self._sources[topic])
            for topic, topic_id in ids.items()
            if topic in self._sources
        }
        try:
            self._write({topic: record_of(Key(Subject.CREATED, topic), one) for topic, one in created.items()})
            self._write({topic: record_of(Key(Subject.INTENT, topic), None) for topic in created})
        except KafkaError as error:
            self._fail(error)

    def _remove_remains(self, topics: Mapping[str, object]) -> None:
        known = Inventory()
        for record in self._topic.records(Timer(SystemClock(), _TIMEOUT_MS)):
            known.take(record.key, record.value)
        deleted = {topic for topic in topics for one in [known.created.get(topic)] if one and one.deleting}
        if deleted:
            remove_records(self._topic.options, self._flow, lambda: deleted, _TIMEOUT_MS)

    def _write(self, records: Mapping[str, KeyValue]) -> None:
        for error in self._topic.write(records, _TIMEOUT_MS).values():
            raise error

    def _fail(self, error: KafkaError) -> None:
        self.problems.append(
            f"which topics were created cannot be recorded, so that they are never deleted by this flow: {error}"
        )
