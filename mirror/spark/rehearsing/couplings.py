"""Topics that stay behind although transactions couple them to topics that move.

A producer that writes to both in one transaction cannot do so on two clusters, and a consumer that reads both sees
parts of transactions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mirror.client import LATEST, Consumer, TopicPartition
from mirror.config.flow_rules import source_options
from mirror.config.patterns import matches
from mirror.config.reserved_topics import why_reserved
from mirror.errors import KafkaError, named
from mirror.mirrormaker.names import HEARTBEATS
from mirror.relay.progress.flow_topic import cluster_options
from mirror.relay.progress.log_reading import read_long_log
from mirror.runtime.clock import SystemClock
from mirror.wire.records import Batch

if TYPE_CHECKING:
    from mirror.client import Admin, ProducerState, TopicDescription
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.observation import Side

_PORTION: Final = 500
"""Partitions whose producers are asked for at once: a leader sends all that it remembers."""
_STALL_MS: Final = 20_000
"""How long is waited while nothing arrives of a log."""

Producers = Iterable[tuple[TopicPartition, Iterable[int]]]
"""The ids of the transactional producers that have written to each partition."""


@dataclass(slots=True)
class Coupling:
    """What couples one topic that stays behind to topics that move."""

    topics: set[str] = field(default_factory=set)
    """The topics that move."""
    producer_ids: set[int] = field(default_factory=set)


# Invariant: A topic that stays behind is coupled to one that moves if a producer id has written transactions to both; a
#   producer that is idempotent only has no transaction that spans them.
# Test: tests/rehearsal/test_couplings.py::test_topics_that_a_transaction_spans_are_coupled
def couplings(producers: Producers, inside: Iterable[str]) -> Iterator[tuple[str, Coupling]]:
    """Yield each coupled topic that is not ``inside``, sorted; ``producers`` are those of all topics."""
    moved = set(inside)
    topics_of: dict[int, set[str]] = defaultdict(set)
    for tp, ids in producers:
        for one in ids:
            topics_of[one].add(tp.topic)
    found: dict[str, Coupling] = defaultdict(Coupling)
    for producer_id, topics in topics_of.items():
        if coupled := topics & moved:
            for topic in topics - moved:
                found[topic].topics |= coupled
                found[topic].producer_ids.add(producer_id)
    yield from sorted(found.items())


def transactional(states: Iterable[ProducerState]) -> Iterator[int]:
    """Yield the ids of producers of transactions: a coordinator has written a marker there, or is going to."""
    return (one.producer_id for one in states if one.coordinator_epoch >= 0 or one.transaction_start is not None)


def outside(topics: Mapping[str, TopicDescription]) -> set[str]:
    """Return the topics of a cluster that users write to."""
    return {
        name
        for name, one in topics.items()
        if not (one.internal or why_reserved(name) is not None or name == HEARTBEATS)
    }


def remembered(
    source: Admin, tps: Sequence[TopicPartition], failed: dict[TopicPartition, KafkaError]
) -> Iterator[tuple[TopicPartition, Iterable[int]]]:
    """Yield the producers that leaders remember (KIP-664); ``failed`` takes the errors of the other partitions."""
    for begin in range(0, len(tps), _PORTION):
        found = source.describe_producers(tps[begin : begin + _PORTION], partial=True)
        failed.update(found.failed)
        yield from ((tp, transactional(states)) for tp, states in found.items())


def written_since(
    source: Admin, options: Mapping[str, object], tps: Sequence[TopicPartition], since_ms: int
) -> Iterator[tuple[TopicPartition, Iterable[int]]]:
    """Yield the producers in the headers of all batches from a time (ms since 1970) on. Raises KafkaError.

    ``options`` are those of a client of ``source``. All these batches are read, whatever their size.
    """
    starts = source.list_offsets(dict.fromkeys(tps, since_ms))
    ends = source.list_offsets(dict.fromkeys(tps, LATEST), isolation="read_uncommitted")
    with Consumer({**options, "auto.offset.reset": "none", "isolation.level": "read_uncommitted"}) as consumer:
        for tp in tps:
            start, end = starts[tp].offset, ends[tp].offset
            if 0 <= start < end:
                fetches = read_long_log(consumer, tp, start, end, SystemClock(), _STALL_MS)
                batches = (one for fetched in fetches for one in fetched.batches)
                yield tp, {one.producer_id for one in batches if isinstance(one, Batch) and one.is_transactional}


def described(source: Admin, found: Mapping[str, Coupling], remedy: str) -> Iterator[str]:
    """Yield a line for each coupled topic, with the names of its producers. Raises KafkaError."""
    ids = {number for one in found.values() for number in one.producer_ids}
    names = (
        {one.producer_id: one.transactional_id for one in source.list_transactions(ids, partial=True)} if ids else {}
    )
    for topic, one in found.items():
        who = named("producer", sorted(names.get(number, f"id {number}") for number in one.producer_ids))
        topics = named("topic", sorted(one.topics))
        # Whether in one transaction is not known: brokers keep its producer, and not which of its batches are one.
        yield f"transactions of {who} write to topic {topic} and to {topics}: {remedy}"


def partitions_of(topics: Mapping[str, TopicDescription], names: Collection[str]) -> list[TopicPartition]:
    """Return all partitions of these topics."""
    return [TopicPartition(name, one.partition) for name in sorted(names) for one in topics[name].partitions]


def coupled_topics(
    config: MirrorConfig,
    flow: FlowConfig,
    source: Side,
    *,
    together: Collection[str] = (),
    since_ms: int | None = None,
) -> Iterator[str]:
    """Yield a line for each topic that transactions couple to those of ``flow``, and that would be left behind.

    These are the topics that no flow copies to its target, those that a switch with ``flow`` does not move, and those
    of none of the flows ``together``, if there are any. By what leaders remember, or with ``since_ms`` (ms since 1970)
    by all batches from then on. Raises KafkaError.
    """
    flows = [one for one in config.flows.values() if (one.source, one.target) == (flow.source, flow.target)]
    copying = {name: by for name in source.topics if (by := [one.name for one in flows if one.includes(name)])}
    inside = {name for name, by in copying.items() if flow.name in by}
    uncopied = outside(source.topics) - copying.keys()

    def without(names: Collection[str]) -> set[str]:
        return {topic for topic, by in copying.items() if not set(by) & set(names)}

    switches = [one for one in config.switches.values() if flow.name in one.flows]
    apart = [
        (
            {topic for topic in without(one.flows) if not matches(one.waive, topic)},
            f"switch {one.name} moves {flow.name} without it; add the flow that copies it, or waive the topic",
        )
        for one in switches
    ]
    if together and not switches:
        apart.append((without(together), "it is another flow's: have both switch at once"))
    tps = partitions_of(source.topics, inside.union(uncopied, *(names for names, _ in apart)))
    failed: dict[TopicPartition, KafkaError] = {}
    if since_ms is None:
        producers = remembered(source.admin, tps, failed)
    else:
        producers = written_since(source.admin, cluster_options(source_options(config, flow)), tps, since_ms)
    found = dict(couplings(producers, inside))

    def about(names: Collection[str], remedy: str) -> Iterator[str]:
        return described(source.admin, {name: one for name, one in found.items() if name in names}, remedy)

    yield from about(uncopied, f"no flow copies it to {flow.target}")
    for names, remedy in apart:
        yield from about(names, remedy)
    if failed:
        yield unknown(failed)


def unknown(failed: Mapping[TopicPartition, KafkaError]) -> str:
    """Return the line about partitions whose producers could not be read."""
    some, why = named("partition", sorted(map(str, failed))), next(iter(failed.values()))
    return f"whether transactions couple {some} to other topics is not known: {why}"
