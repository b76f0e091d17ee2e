"""Topics that stay behind although transactions couple them to topics of a switch. Pure.

A producer that writes to both in one transaction cannot do so on two clusters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirror.client import ProducerState, TopicPartition


@dataclass(slots=True)
class Coupling:
    """What couples one topic outside a switch to topics in it."""

    topics: set[str] = field(default_factory=set)
    """The topics of the switch."""
    producer_ids: set[int] = field(default_factory=set)


# Invariant: A topic outside a switch is coupled to one in it if leaders remember a producer id of transactions in both;
#   a producer that is idempotent only has no transaction that spans them.
# Test: tests/switch/test_couplings.py::test_topics_that_a_transaction_spans_are_coupled
def couplings(
    producers: Iterable[tuple[TopicPartition, Iterable[ProducerState]]], inside: Iterable[str]
) -> Iterator[tuple[str, Coupling]]:
    """Yield each coupled topic that is not ``inside``, sorted; ``producers`` are those of all topics."""
    moved = set(inside)
    topics_of: dict[int, set[str]] = defaultdict(set)
    for tp, of_partition in producers:
        for one in of_partition:
            # A coordinator has written a marker there, or is going to.
            if one.coordinator_epoch >= 0 or one.transaction_start is not None:
                topics_of[one.producer_id].add(tp.topic)
    found: dict[str, Coupling] = defaultdict(Coupling)
    for producer_id, topics in topics_of.items():
        if coupled := topics & moved:
            for topic in topics - moved:
                found[topic].topics |= coupled
                found[topic].producer_ids.add(producer_id)
    yield from sorted(found.items())
