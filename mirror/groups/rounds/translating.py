"""Translates what the groups of a round have committed: each position of a partition once, however many have it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.errors import KafkaError
from mirror.groups.commit_decision import NEVER, Reason
from mirror.groups.group_partition import GroupPartition
from mirror.groups.positions import reason_of
from mirror.groups.routes import Route
from mirror.groups.translation.logs import PartitionLogs
from mirror.relay.offsets.epoch_ends import known as known_epochs
from mirror.relay.offsets.index import UNKNOWN, Translation


class _Translated(NamedTuple):
    """What a committed offset is a position of, as the fields of a row; or why that is not known."""

    continued_at: int | None
    translation: Translation | None = None
    copied_to: int = 0
    passed: int = 0
    error: KafkaError | None = None


class RowTranslation:
    """Translates rows of one round after the other. Its calls wait for the clusters; use it in one thread."""

    def __init__(self, patience_ms: int) -> None:
        """``patience_ms`` is that of :class:`mirror.groups.rules.GroupRules`."""
        self._patience_ms: Final = patience_ms
        self._ends: Final[dict[TopicPartition, tuple[int, int]]] = {}
        """Where the index of a source partition ended, and since when (ms)."""

    def translate(self, parts: Iterable[tuple[Route, GroupPartition]], now: int) -> dict[TopicPartition, PartitionLogs]:
        """Translate what each row has committed; return what was read of the logs, by target. Raises KafkaError.

        ``now`` is monotonic, in ms.
        """
        by_route = defaultdict[Route, defaultdict[TopicPartition, list[GroupPartition]]](lambda: defaultdict(list))
        for route, row in parts:
            by_route[route][row.source].append(row)
        found: dict[TopicPartition, PartitionLogs] = {}
        for route, partitions in by_route.items():
            logs = _opened(route, partitions)
            # Once for each partition, and before anything is read: it takes as long as there are runs.
            moving = {source: self._is_moving(source, one, now) for source, one in logs.items()}
            for source, rows in partitions.items():
                one, known = logs[source], dict[tuple[int, int | None], _Translated]()
                for row in rows:
                    found[row.target] = one
                    if row.decision.reason is None:
                        _translate(row, one, known, patient=moving[source])
        return found

    def _is_moving(self, source: TopicPartition, logs: PartitionLogs, now: int) -> bool:
        """Whether the index of a partition has grown lately, so that its copy will write what it lacks."""
        if not self._patience_ms or logs.offsets is None:
            return False
        end = logs.indexed_to
        if self._ends.get(source, (-1, 0))[0] != end:
            self._ends[source] = end, now
        return now - self._ends[source][1] < self._patience_ms


def _opened(route: Route, rows: Mapping[TopicPartition, list[GroupPartition]]) -> dict[TopicPartition, PartitionLogs]:
    partitions = {source: some[-1].target for source, some in rows.items()}
    epochs = defaultdict[TopicPartition, set[int]](set)
    source_epochs: dict[TopicPartition, set[int]] = {}
    for source, some in rows.items():
        epochs[partitions[source]] |= {row.intent.epoch for row in some if row.intent is not None} - {NEVER}
        source_epochs[source] = known_epochs(row.committed.leader_epoch for row in some if row.committed is not None)
    try:
        return route.logs.open(partitions, source_epochs, epochs)
    except KafkaError as error:
        if route.is_ahead:
            raise
        return {source: PartitionLogs(problem=f"the index of flow {route.name}: {error}") for source in partitions}


def _translate(
    row: GroupPartition,
    logs: PartitionLogs,
    known: dict[tuple[int, int | None], _Translated],
    *,
    patient: bool,
) -> None:
    committed = row.committed
    if logs.problem:  # a group whose topic is gone has not deleted its offset itself
        gone = Reason.NO_PARTITION if logs.is_missing else Reason.UNAVAILABLE
        row.hold(Reason.DELETED if committed is None else gone, logs.problem)
    elif committed is None and logs.offsets is not None and not logs.offsets.is_of_copied_topic:
        row.hold(Reason.DELETED, logs.offsets.reason)  # with the topic, which was made again
    elif committed is None:
        row.translation = UNKNOWN
    else:
        key = committed.offset, committed.leader_epoch
        found = known.get(key)
        if found is None:
            found = known[key] = _translated(committed, logs, patient=patient)
        row.continued_at, row.translation, row.copied_to, row.passed, error = found
        if error is not None:
            row.hold(reason_of(error), str(error))
        elif row.continued_at is None:
            row.hold(Reason.UNKNOWN, f"the source does not know leader epoch {committed.leader_epoch}")


def _translated(committed: OffsetAndMetadata, logs: PartitionLogs, *, patient: bool) -> _Translated:
    offset: int | None = None
    translation: Translation | None = None
    copied_to = 0
    try:
        offset = logs.continued_at(committed)
        if offset is None:
            return _Translated(None)
        translation, copied_to = logs.translate(offset, patient=patient)
        return _Translated(offset, translation, copied_to, logs.passed(offset, translation))
    except KafkaError as error:
        return _Translated(offset, translation, copied_to, error=error)
