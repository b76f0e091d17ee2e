"""The topic of a switch's record on one cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mirror.errors import FlowError
from mirror.relay.progress.fenced_writer import FencedWriter, switch_transactional_id
from mirror.relay.progress.flow_topic import FlowTopic, KeyValue, switch_topic_of
from mirror.runtime.clock import SystemClock
from mirror.switch.record import KEY, SwitchRecord, parse, to_bytes
from mirror.timing import Timer

CALL_MS: Final = 5_000
"""How long a call of an operator may take: as the lease says, it changes nothing later."""
_READ_MS: Final = 20_000


class KafkaRecordTopic:
    """Reads and writes the record in a cluster's topic, which has to exist."""

    def __init__(self, options: Mapping[str, object], switch: str) -> None:
        """``options`` are dotted keys, of which those of the cluster are used. Raises ConfigError."""
        self._topic: Final = FlowTopic(options, switch_topic_of(switch))
        self._writer: Final = FencedWriter(self._topic, switch_transactional_id(switch), CALL_MS)

    def close(self) -> None:
        """Release the producer."""
        self._writer.close()

    def begin(self) -> bool:
        """Fence other operators; see :class:`mirror.switch.record_store.RecordTopic`. Raises KafkaError."""
        return self._writer.begin()

    def read(self) -> SwitchRecord | None:
        """Return the record; None: there is none. Raises KafkaError, FlowError."""
        value: bytes | None = None
        for one in self._topic.records(Timer(SystemClock(), _READ_MS)):
            if one.key == KEY:
                value = one.value
        if value is None:
            return None
        if (record := parse(value)) is None:
            raise FlowError(
                f"topic {self._topic.tp.topic} has a record that this version does not understand: use the version that"
                " has written it"
            )
        return record

    def write(self, record: SwitchRecord) -> None:
        """Store the record. Raises KafkaError, Fenced."""
        self._writer.write([KeyValue(KEY, to_bytes(record))])
