"""Takes the offsets that MirrorMaker 2 has committed for consumer groups on the target for the flow's own.

Otherwise they could not be distinguished from those of consumers that have taken the groups over, and would never be
replaced.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from mirror.client import Admin, OffsetAndMetadata, TopicPartition
from mirror.errors import KafkaError
from mirror.groups.intents import ResumeKey, encode_key, encode_resumed
from mirror.mirrormaker.names import DefaultPolicy
from mirror.mirrormaker.records import Checkpoint, CheckpointKey
from mirror.relay.progress.flow_topic import FlowTopic, KeyValue, group_topic_of
from mirror.takeover.stored_offsets import TopicReader
from mirror.wire.decode import Record

_AT_ONCE: Final = 200
"""So many groups share a request."""

Offsets = Mapping[str, Mapping[int, int]]
"""Offsets of the target, by topic and partition."""


def last_checkpoints(records: Iterable[Record]) -> dict[CheckpointKey, Checkpoint]:
    """Return the last checkpoint of each group and partition; ``records`` are in the order of their log. Pure."""
    parsed = ((CheckpointKey.parse(record.key), Checkpoint.parse(record.value)) for record in records)
    return {key: checkpoint for key, checkpoint in parsed if key is not None and checkpoint is not None}


def adopted(
    checkpoints: Mapping[CheckpointKey, Checkpoint], committed: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]
) -> dict[str, Offsets]:
    """Return the offsets of each group that are those of MirrorMaker 2's last checkpoints. Pure.

    A consumer that has committed just that offset loses nothing: a position only goes forward from there.
    """
    found: dict[str, dict[str, dict[int, int]]] = {}
    for (group, tp), checkpoint in sorted(checkpoints.items()):
        one = committed.get(group, {}).get(tp)
        if one is not None and one.offset == checkpoint.target:
            found.setdefault(group, defaultdict(dict))[tp.topic][tp.partition] = one.offset
    return {group: dict(topics) for group, topics in found.items()}


# Invariant: Checkpoints and the groups' offsets go forward from MirrorMaker 2's; only offsets that are still its own
#   checkpoints are replaced.
# Test: tests/takeover/test_groups_on_fakes.py::test_checkpoints_go_on_without_a_step_back_and_are_exact
# Test: tests/takeover/test_groups_on_fakes.py::test_offsets_that_mirrormaker_has_committed_are_replaced
class GroupAdoption:
    """Finds and writes what a flow takes for its own. Its calls wait for the target; use it in one thread."""

    def __init__(self, flow: str, target_options: Mapping[str, object], target: Admin, reader: TopicReader) -> None:
        """``reader`` is of the target. Raises ConfigError."""
        self._topic: Final = FlowTopic(target_options, group_topic_of(flow))
        self._target: Final = target
        self._reader: Final = reader

    def find(
        self, source: str, existing: Collection[str], tps: Collection[TopicPartition], includes: Callable[[str], bool]
    ) -> dict[str, Offsets]:
        """Return the offsets of the groups that the flow ``includes``, for these target partitions. Raises KafkaError.

        ``source`` is the source's alias, ``existing`` are the target's topics.
        """
        topic, wanted = DefaultPolicy().checkpoints_topic(source), frozenset(tps)
        if topic not in existing:
            return {}
        checkpoints = {
            key: checkpoint
            for key, checkpoint in last_checkpoints(self._reader.records(topic)).items()
            if key.tp in wanted and includes(key.group)
        }
        committed = dict(self._committed(sorted({key.group for key in checkpoints})))
        return adopted(checkpoints, committed)

    def _committed(self, groups: list[str]) -> Iterator[tuple[str, Mapping[TopicPartition, OffsetAndMetadata]]]:
        for first in range(0, len(groups), _AT_ONCE):
            found = self._target.offsets_of_groups_async(groups[first : first + _AT_ONCE]).result()
            for error in found.failed.values():
                raise error
            yield from found.items()

    def write(self, groups: Mapping[str, Offsets], timeout_ms: int) -> list[KafkaError]:
        """Have the flow's rounds take these offsets for their own; return the errors."""
        records = {
            group: KeyValue(encode_key(ResumeKey(group)), encode_resumed(offsets)) for group, offsets in groups.items()
        }
        return [*self._topic.write(records, timeout_ms).values()]
