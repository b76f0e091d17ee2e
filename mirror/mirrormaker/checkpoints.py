"""Writes checkpoints to a flow's target: for each group, which offset of the target its position is translated to.

::

    translated positions ──► what is due ──► <source>.checkpoints.internal ──► RemoteClusterUtils.translateOffsets
                                  ▲                        │
                                  └──── what was written ──┘
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import ExitStack
from typing import Final, NamedTuple

from mirror.client import Producer, RecordMetadata
from mirror.closing import Closing
from mirror.errors import InvalidArgument, KafkaError
from mirror.mirrormaker.names import DefaultPolicy
from mirror.mirrormaker.records import Checkpoint, CheckpointKey
from mirror.relay.progress.flow_topic import FlowTopic
from mirror.relay.progress.followed_topic import FollowedTopic
from mirror.timing import Clock
from mirror.wire.decode import Record

_STALL_MS: Final = 10_000
_MAX_BLOCK_MS: Final = 2_000
"""For metadata of the topic, which may be missing."""


class Translated(NamedTuple):
    """A group's position on both sides, as it is now."""

    checkpoint: Checkpoint
    may_go_back: bool = False
    """Whether a position on the target in front of the last one is right, though the group has not gone back.

    The target has lost records then, if it has each record once. If records are repeated, as at least once, their last
    copies may be those behind the position, and it stays.
    """


# Invariant: Checkpoints are the exact positions of groups, whatever the target's groups do; one goes back only if it is
#   exact, because at least once a record may be repeated behind it.
# Test: tests/spark/driver/
#   test_group_checkpoints.py::test_an_exact_position_replaces_a_later_one_unless_records_are_repeated
# Test: tests/spark/driver/
#   test_group_checkpoints.py::test_a_group_that_has_taken_over_on_the_target_keeps_its_checkpoints
def is_due(now: Translated, last: Checkpoint | None) -> bool:
    """Return whether the position is to be written after the ``last`` one that was; None if there was none.

    As MirrorMaker 2's, positions on the target only move forward unless the group itself moves back on the source, or
    :attr:`Translated.may_go_back`.
    """
    if last is None:
        return True
    wanted = now.checkpoint
    if wanted.target == last.target:
        return wanted.source < last.source or wanted.metadata != last.metadata
    return wanted.target > last.target or wanted.source < last.source or now.may_go_back


# Invariant: The last checkpoint of a group and partition in the log is its position: no round writes before the records
#   of the one before have ended.
# Test: tests/mirrormaker/test_checkpoints.py::test_the_last_checkpoints_are_the_positions_after_each_call_that_succeeds
class CheckpointWriter(Closing):
    """Writes the checkpoints of one flow. Its calls wait for the target; use it in one thread.

    What others have written to the topic meanwhile counts as its own: another run of the flow, or MirrorMaker 2 before.
    """

    def __init__(self, target_options: Mapping[str, object], *, source: str, clock: Clock) -> None:
        """``source`` is the name of the flow's source; the options are dotted keys, of which the cluster's are used.

        Raises ConfigError.
        """
        topic = FlowTopic(target_options, DefaultPolicy().checkpoints_topic(source))
        self._tp: Final = topic.tp
        self._clock: Final = clock
        self._wanted: dict[CheckpointKey, Translated] = {}
        self._written: dict[CheckpointKey, Checkpoint] = {}
        self._sent: dict[CheckpointKey, tuple[Checkpoint, Future[RecordMetadata]]] = {}
        with ExitStack() as stack:
            self._followed: Final = FollowedTopic(topic)
            stack.callback(self._followed.close)
            self._producer: Final = Producer({**topic.options, "max.block.ms": _MAX_BLOCK_MS})
            stack.callback(self._producer.close, timeout_ms=0)
            self._clients: Final = stack.pop_all()

    def close(self) -> None:
        """Close the connections, without waiting for what is on its way."""
        self._clients.close()

    def write(self, positions: Mapping[CheckpointKey, Translated], wait_ms: int) -> int:
        """Write those of ``positions`` that are due, and those that an earlier call could not; return how many.

        Waits up to ``wait_ms`` for their acknowledgements; a later call writes nothing before it has them. All in
        front of ``positions`` is committed on the target. Raises KafkaError: what was not written is due at the next
        call.
        """
        self._wanted.update(positions)
        self._settle(0)
        if self._sent or not self._due():
            return 0
        self._read()
        for key, checkpoint in self._due().items():
            self._send(key, checkpoint)
        count = len(self._sent)
        self._settle(wait_ms)
        return count

    def _due(self) -> dict[CheckpointKey, Checkpoint]:
        """Return what is due, and forget what is not: only a change of the position can make it due."""
        for key in [key for key, now in self._wanted.items() if not is_due(now, self._written.get(key))]:
            del self._wanted[key]
        return {key: now.checkpoint for key, now in self._wanted.items()}

    def _read(self) -> None:
        """Read what was written since the last call. Raises KafkaError if that is not all: the next call goes on.

        What the topic has lost, or lacks because it was made again, is wanted again.
        """
        self._followed.follow(self._clock, _STALL_MS, clear=self._want_written, take=self._take_written)

    def _want_written(self) -> None:
        before, self._written = self._written, {}
        self._wanted = {key: Translated(checkpoint) for key, checkpoint in before.items()} | self._wanted

    def _take_written(self, record: Record) -> None:
        key, checkpoint = CheckpointKey.parse(record.key), Checkpoint.parse(record.value)
        if key is not None and checkpoint is not None:
            self._written[key] = checkpoint

    def _send(self, key: CheckpointKey, checkpoint: Checkpoint) -> None:
        try:
            data = key.to_bytes(), checkpoint.to_bytes()
        except InvalidArgument:
            del self._wanted[key]  # no reader of such a record could exist
            return
        now_ms = self._clock.unix_ms()
        future = self._producer.send(*self._tp, key=data[0], value=data[1], timestamp_ms=now_ms)
        self._sent[key] = checkpoint, future

    def _settle(self, wait_ms: int) -> None:
        """Take the acknowledgements that come within ``wait_ms``. Raises the KafkaError of a failed record."""
        futures = [future for _, future in self._sent.values()]
        if wait(futures, timeout=wait_ms / 1000).not_done:
            return
        sent, self._sent = self._sent, {}
        failed = [future.exception() for _, future in sent.values() if future.exception() is not None]
        self._written.update(_acknowledged(sent.items()))
        for error in failed:
            if isinstance(error, KafkaError):
                raise error


def _acknowledged(
    sent: Iterable[tuple[CheckpointKey, tuple[Checkpoint, Future[RecordMetadata]]]],
) -> dict[CheckpointKey, Checkpoint]:
    return {key: checkpoint for key, (checkpoint, future) in sent if future.exception() is None}
