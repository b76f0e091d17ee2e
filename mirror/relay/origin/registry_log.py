"""Finds out whether a registry still has what was read of it: elections and DeleteRecords may lose records."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Final, NamedTuple

from mirror.client import EARLIEST, LATEST, Admin
from mirror.errors import KafkaError, NotRetriable
from mirror.relay.origin.records import REGISTRY_TOPIC
from mirror.relay.progress.flow_topic import FlowTopic


class ReadEnd(NamedTuple):
    """Up to where a registry was read."""

    offset: int = 0
    leader_epoch: int = -1
    """That its leader had then; -1 if nothing was read."""


class ReadEnds:
    """The furthest ends of registries that this process has read. Thread-safe."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._ends: Final[dict[Hashable, ReadEnd]] = {}

    def furthest(self, registry: Hashable, end: ReadEnd) -> ReadEnd:
        """Keep ``end``, if it is further than the end that is known of ``registry``; return the further one."""
        with self._lock:
            known = self._ends.get(registry, ReadEnd())
            self._ends[registry] = further = max(known, end, key=lambda one: (one.leader_epoch, one.offset))
            return further


read_ends: Final = ReadEnds()
"""Those of this process."""


def read_end(admin: Admin, topic: FlowTopic, timeout_ms: int) -> ReadEnd:
    """Return the end of the registry ``topic``. Raises KafkaError."""
    found = admin.list_offsets({topic.tp: LATEST}, timeout_ms=timeout_ms)[topic.tp]
    return ReadEnd(found.offset, found.leader_epoch)


# Invariant: A flow stops if its source's registry has lost records that it has read, by the leader epochs of what it
#   knew, or is not the one that it has read.
# Test: tests/relay/origin/test_registry_on_fakes.py::test_a_registry_that_has_lost_what_was_read_stops_the_flow
# Test: tests/copying/test_local_origin.py::test_another_registry_than_before_stops_a_flow
def check_kept(admin: Admin, topic: FlowTopic, known: ReadEnd, position: int, timeout_ms: int) -> ReadEnd:
    """Check that the registry ``topic`` has all records up to ``known``, and up to ``position``, to which it was read.

    Return the end to check with the next time. Compaction does not move the first offset of a log. Where leaders have
    no epochs, a log that was cut back and has grown again is not noticed. Raises NotRetriable if records are lost,
    KafkaError if that cannot be found out, also if a leader answers that was replaced.
    """
    first = admin.list_offsets({topic.tp: EARLIEST}, timeout_ms=timeout_ms)[topic.tp].offset
    if first > 0:
        raise _lost_error(0, first)
    log_end, leader_epoch = read_end(admin, topic, timeout_ms)
    if leader_epoch < known.leader_epoch:
        raise KafkaError(
            f"{REGISTRY_TOPIC} was read up to leader epoch {known.leader_epoch}, and its leader has {leader_epoch}:"
            " it was replaced, and does not know it yet"
        )
    read = ReadEnd(position, leader_epoch)
    for end in (known, read):
        cut = log_end if end.leader_epoch < 0 else _epoch_end(admin, topic, end.leader_epoch, timeout_ms)
        if cut < end.offset:
            raise _lost_error(max(0, cut), end.offset)
    return read


def _epoch_end(admin: Admin, topic: FlowTopic, leader_epoch: int, timeout_ms: int) -> int:
    """Return the end of what the log has of ``leader_epoch`` and earlier ones; -1 if its leader does not say it."""
    found = admin.epoch_ends_async({topic.tp: leader_epoch}, timeout_ms).result()
    for error in found.failed.values():
        raise error
    end = found[topic.tp]
    return -1 if end is None else end.end_offset


def _lost_error(first: int, end: int) -> NotRetriable:
    return NotRetriable(
        f"origin-unknown: {REGISTRY_TOPIC} of the source has lost records (offsets {first} to {end - 1}), by an unclean"
        " election or DeleteRecords: nothing shows any more what flows have written there and what was produced there;"
        ' see config/README.md, "One topic name on all clusters"'
    )
