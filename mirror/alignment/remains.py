"""Removes what a flow has stored about deleted target topics, so that later ones of these names begin clean."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from mirror.relay.progress import status_values
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress.flow_topic import (
    FlowTopic,
    KeyValue,
    group_topic_of,
    inventory_topic_of,
    offset_topic_of,
    status_topic_of,
    topic_of,
)
from mirror.relay.progress.status_values import StatusKind
from mirror.runtime.clock import SystemClock
from mirror.timing import Timer


# Invariant: Nothing is left of a deleted topic, however its deletion was interrupted, and one that is created meanwhile
#   keeps its records.
# Test: tests/alignment/deletions/
#   test_interrupted_on_fakes.py::test_nothing_is_left_of_a_deleted_topic_and_a_later_one_begins_at_its_start
# Test: tests/alignment/deletions/
#   test_interrupted_on_fakes.py::test_a_topic_that_is_created_again_while_the_last_records_are_removed_keeps_its_own
# Test: tests/alignment/deletions/
#   test_interrupted_on_fakes.py::
#   test_what_is_left_of_an_interrupted_deletion_is_removed_before_the_topic_is_created_again
# Test: tests/alignment/deletions/test_interrupted_on_fakes.py::test_a_deletion_that_was_interrupted_is_continued
def remove_records(
    target_options: Mapping[str, object],
    flow: str,
    names: Callable[[], Collection[str]],
    timeout_ms: int,
) -> int:
    """Remove the records of the flow's topics whose keys have one of these ``names`` of target topics; return how many.

    ``names`` is called again before anything is removed: it leaves out topics that are being created meanwhile, whose
    records have the same keys.

    These are the progress and its anchors, the offset index, the positions that were committed for groups, the
    configurations, and what tasks have reported. Offsets that groups have committed for deleted topics are removed by
    the brokers. ``timeout_ms`` is for each topic of the flow. Raises KafkaError: what was not removed then is by the
    next call.
    """
    removed = 0
    for topic_name in (topic_of, offset_topic_of, group_topic_of, inventory_topic_of, status_topic_of):
        topic = FlowTopic(target_options, topic_name(flow))
        found: dict[bytes, KeyValue] = {}
        topics = frozenset(names())
        for record in topic.records(Timer(SystemClock(), timeout_ms)):
            key = bytes(record.key or b"")
            if topics.isdisjoint(_named_topics(key)):
                continue
            if record.value is None:
                found.pop(key, None)
            else:
                found[key] = KeyValue(key, None)
        still = frozenset(names())
        found = {key: removal for key, removal in found.items() if not still.isdisjoint(_named_topics(key))}
        for error in topic.write(found, timeout_ms).values():
            raise error
        removed += len(found)
    return removed


def _named_topics(key: bytes) -> set[str]:
    """Return the topic in ``key``, which may be in an object inside, as for anchors."""
    report = status_values.parse_key(key)
    if report is not None and report.kind is StatusKind.PARTITION:
        return {report.topic}
    fields = stored.parse_object(key)
    objects = [fields, *(value for value in fields.values() if isinstance(value, dict))]
    return {stored.text(one.get("topic")) for one in objects} - {""}
