"""Reads the tail: the records that were produced on the old cluster and are on no other one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from mirror.client import Record, TopicPartition
from mirror.closing import Closing
from mirror.config.flow_rules import source_options
from mirror.consumer.fetched import without_aborted
from mirror.relay.batches.reencode_decision import skip_reason
from mirror.relay.origin.records import LogKey
from mirror.runtime.clock import SystemClock
from mirror.switch.failback.divergence import origin_of
from mirror.switch.failback.tail import Span
from mirror.verify.log_reader import LogReader
from mirror.wire.decode import records_of

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig

STALL_MS: Final = 60_000
"""How long nothing may arrive: an open transaction ends by its own time-out."""


class TailLog(Closing):
    """The old cluster's logs, as a flow copies them: committed records, of the flow's origin. For one thread."""

    def __init__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        topic_ids: Mapping[str, str],
        timeout_ms: int,
        stall_ms: int = STALL_MS,
    ) -> None:
        """``topic_ids`` are those of the old cluster. Raises KafkaError, FlowError."""
        self._ids: Final = topic_ids
        self._origin: Final = origin_of(config, flow, timeout_ms)
        self._reader: Final = LogReader(source_options(config, flow), SystemClock(), stall_ms)

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()
        if self._origin is not None:
            self._origin.close()

    def records(self, tp: TopicPartition, span: Span) -> Iterator[Record]:
        """Yield the records of ``span``, whose start is in the log. Raises KafkaError, KafkaTimeout, CorruptBatch."""
        finder = None if self._origin is None else self._origin.finder(LogKey.of(tp, self._ids.get(tp.topic, "")))
        for fetched in self._reader.read(tp, *span):
            if self._origin is not None and (refusal := self._origin.refusal(fetched)) is not None:
                raise refusal
            for batch, aborted in without_aborted(fetched.batches, fetched.aborted):
                if skip_reason(batch, aborted=aborted, is_foreign=finder) is None:
                    yield from (record for record in records_of(batch) if span.start <= record.offset < span.end)
