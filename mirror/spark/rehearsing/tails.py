"""Reads what the source of a flow has that has not arrived on its target."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mirror.client import TopicPartition
from mirror.config.flow_rules import source_options
from mirror.errors import KafkaError
from mirror.groups.translation.both_directions import BothDirectionsPartition
from mirror.spark.rehearsing.ages import MOST_PARTITIONS, first_records
from mirror.spark.rehearsing.rehearse import not_arrived_from

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.groups.translation.logs import PartitionLogs
    from mirror.spark.status.flow_view import FlowView


class Tail(NamedTuple):
    """Offsets of a source partition that have not arrived on the target."""

    start: int
    """Of the first record, if that was read."""
    end: int


def read_tails(
    config: MirrorConfig, flow: FlowConfig, seen: FlowView, logs: Mapping[TopicPartition, PartitionLogs]
) -> dict[TopicPartition, Tail]:
    """Return which records of the source have not arrived on the target, by its partitions.

    Behind the progress there may be only markers, or what the flow of the other direction has written.
    """
    spans = dict[TopicPartition, Tail]()
    for tp, offsets in seen.offsets.items():
        start = not_arrived_from(seen, tp)
        if (
            start is not None
            and offsets.end is not None
            and start < offsets.end
            and not _is_of_flow(logs.get(tp), start)
        ):
            spans[tp] = Tail(start, offsets.end)
    read = dict(sorted(spans.items(), key=lambda one: one[1].start - one[1].end)[:MOST_PARTITIONS])
    firsts = first_records(source_options(config, flow), read)
    tails = dict[TopicPartition, Tail]()
    for tp, span in spans.items():
        first = firsts.get(tp)
        if first is not None:
            tails[tp] = span._replace(start=first.offset)
        elif tp not in firsts:
            tails[tp] = span
    return tails


def _is_of_flow(logs: PartitionLogs | None, start: int) -> bool:
    """Whether the flow of the other direction has written all that the source has from an offset on."""
    if not isinstance(logs, BothDirectionsPartition) or logs.offsets is None or logs.target_end is None:
        return False
    try:
        return logs.offsets.has_only_copies(start, logs.target_end)
    except KafkaError:
        return False
