"""Which topics of the target are described for the copies that start."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any

from mirror.cluster.types import TopicPartition
from mirror.relay.futures import failed
from mirror.relay.progress.lookup.lookup_results import TargetTopics
from mirror.relay.progress.lookup.start_positions import StartPositions
from tests.relay.task_harness import Lookups

OLD, LATE, NEW, NEWER = (TopicPartition(name, 0) for name in ("old", "late", "new", "newer"))


class Describing(Lookups):
    """Keeps which topics are described (None: all that the task writes to)."""

    def __init__(self) -> None:
        super().__init__()
        self.described: list[Collection[str] | None] = []
        self.fails = False

    def target_topics(self, topics: Collection[str] | None, timeout_ms: int) -> Future[TargetTopics]:
        self.described.append(topics)
        return failed(TimeoutError()) if self.fails else super().target_topics(topics, timeout_ms)

    def read_progress_records(self) -> None:
        """Never ends."""


def test_copies_that_are_added_share_a_description_of_their_own_topics() -> None:
    """A task may have 10,000 others."""
    lookups, now = Describing(), [0]

    def submit(call: Callable[..., Any], *_: Any) -> Future[Any]:
        del call
        return Future()

    positions = StartPositions(lookups, submit, lambda: now[0])  # type: ignore[arg-type]
    for tp in (OLD, TopicPartition("old", 1)):
        positions.resolve_start(tp, None, None, 1_000)
    assert lookups.described == [None]
    positions.add_targets([NEW, NEWER])
    for tp in (NEW, NEWER, LATE):
        positions.resolve_start(tp, None, None, 1_000)
    assert lookups.described == [None, {"new", "newer"}, None]
    positions.resolve_start(NEW, None, None, 1_000)
    assert lookups.described[3:] == [["new"]], "its attempt has failed"
    now[0], lookups.fails = 600, True
    positions.add_targets([TopicPartition("new", 1), TopicPartition("new", 2)])
    for number in (1, 2):
        positions.resolve_start(TopicPartition("new", number), None, None, 1_000)
    assert lookups.described[4:] == [{"new"}, {"new"}], "a failed one is of no use"
