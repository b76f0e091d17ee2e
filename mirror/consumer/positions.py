"""The position of each assigned partition (``SubscriptionState``). No I/O."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from mirror.backoff import Backoff
from mirror.cluster.request_state import RequestState
from mirror.cluster.topic_state import Leader
from mirror.cluster.types import TopicPartition
from mirror.consumer.fetch_buffer import FetchBuffer
from mirror.consumer.fetched import Fetched
from mirror.errors import KafkaError


@dataclass(slots=True)
class Position:
    """The position of one assigned partition (``SubscriptionState``). Times in ms, sizes in bytes."""

    state: RequestState
    fetch: int | None = None
    """The next offset to fetch; None until one is known."""
    consumed: int | None = None
    """The next offset that a poll returns; None until one is known."""
    epoch: int | None = None
    """The leader epoch of the last record before ``fetch``."""
    epoch_from_leader: bool = False
    """The epoch of no record is known: ``epoch`` is that of a leader whose log reached the position."""
    validated_epoch: int = -1
    """The leader epoch in which the position was last found to be in the log (KIP-320)."""
    validated_node: int | None = None
    """The leader in whose log it was found, which counts where brokers do not report the leader's epoch."""
    consumed_epoch: int | None = None
    """The leader epoch of the last record that a poll returned."""
    reset: int | None = None
    """The time (ms, EARLIEST or LATEST) whose offset is to be looked up."""
    lookup_pending: bool = False
    paused: bool = False
    awaited: bool = False
    """A caller waits for ``consumed``, also while the partition is paused."""
    error: KafkaError | None = None
    """The last error, until a fetch succeeds."""
    stopped: bool = False
    """Nothing more is fetched until a seek."""
    buffered: int = 0
    """Bytes of its batches in the fetch buffer."""
    generation: int = 0
    """Changes with every seek, reset and eviction, so that late responses can be recognised."""
    seek_generation: int = 0
    """The generation of the last seek or reset."""
    topic_id: uuid.UUID | None = None
    """The topic whose offsets these are, from a seek or from the first response (KIP-516). Another topic under the same
    name has other offsets."""
    recheck_request: int = 0
    """The number of a metadata request: a response to it or to a later one can say whether that topic still exists."""
    id_mismatches: int = 0
    """Metadata responses in a row that had another topic id."""
    topic_unconfirmed: bool = False
    """Records that were fetched by the topic's name are not accepted before such a response."""
    preferred: int | None = None
    """The replica that the leader asked to fetch from (KIP-392), until ``preferred_until_ms``."""
    preferred_until_ms: int = 0
    last_response_ms: int | None = None
    """When its broker last answered without an error, also where it had no records."""
    throttled_until_ms: int = 0
    """Until when its broker throttles this client, by its last response: it returns no records before (KIP-219)."""
    end: int | None = None
    """The end of the log for this reader, by the last response."""

    def needs_validation(self, leader: Leader) -> bool:
        """Whether the leader changed since the position was last found in its log."""
        if self.epoch is None:
            return False
        return leader.node != self.validated_node if leader.epoch < 0 else leader.epoch > self.validated_epoch

    def found_at(self, leader: Leader) -> None:
        """Record that the position is in the log of ``leader``."""
        self.validated_epoch, self.validated_node = leader.epoch, leader.node

    def adopt_leader_epoch(self, leader_epoch: int) -> None:
        """Keep the epoch of a leader whose log reaches the position: a later leader with a truncated log does not."""
        if self.epoch is None and leader_epoch >= 0:
            self.epoch, self.epoch_from_leader = leader_epoch, True

    def is_of_other_topic(self, topic_id: uuid.UUID | None) -> bool:
        """Whether ``topic_id`` (None: unknown) is the id of another topic than the position's."""
        return None not in {topic_id, self.topic_id} and topic_id != self.topic_id


class LastResponse(NamedTuple):
    """The last response of a partition's leader."""

    at_ms: int
    """When it arrived (ms, monotonic)."""
    end: int | None
    """The last stable offset, or the high watermark under ``read_uncommitted``; None where it is unknown."""
    throttled_until_ms: int = 0
    """Until when the broker throttles this client (ms, monotonic); 0 if its last response did not."""


class PlannedPosition(Protocol):
    """The position of a partition, and its generation when a Fetch was sent."""

    @property
    def position(self) -> Position:
        """The position; a seek replaces it."""
        ...

    @property
    def generation(self) -> int:
        """The generation."""
        ...


class Taken(NamedTuple):
    """One entry that a poll returned, and the position before it, in case that the application never received it."""

    fetched: Fetched
    seek_generation: int
    consumed: int | None
    consumed_epoch: int | None


class Positions:
    """The positions of all assigned partitions, and their fetched batches. Sizes in bytes."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._generations = itertools.count(1)
        self._by_tp: dict[TopicPartition, Position] = {}
        self.ready = FetchBuffer()
        self.application_room: int | None = None
        """The room that the last poll gave, less what it returned; negative after a larger entry; None: no limit."""
        self.partition_limit: int | None = None
        """The most to fetch of each partition at a time; None: ``max.partition.fetch.bytes``."""
        self.poll_was_empty = True
        """The last poll found no records."""
        self.changed_for_fetching: set[TopicPartition] = set()
        """The partitions that changed since it was last decided what to fetch."""
        self.changed_for_lookups: set[TopicPartition] = set()
        """The partitions that changed since it was last decided which offsets to look up, or to validate."""

    @property
    def buffered(self) -> int:
        """Bytes of memory that the fetch buffer holds."""
        return self.ready.held

    @property
    def has_changes(self) -> bool:
        """Whether some change has not been applied yet: a partition that was unassigned leaves its fetch session."""
        return bool(self.changed_for_fetching or self.changed_for_lookups)

    def __iter__(self) -> Iterator[tuple[TopicPartition, Position]]:
        return iter(self._by_tp.items())

    def __len__(self) -> int:
        return len(self._by_tp)

    def get(self, tp: TopicPartition, generation: int | None = None) -> Position | None:
        """The position; None if ``tp`` is not assigned, or was sought, reset or evicted since ``generation``."""
        position = self._by_tp.get(tp)
        if position is None or (generation is not None and position.generation != generation):
            return None
        return position

    def of_topics(self, topics: Collection[str] | None) -> list[TopicPartition]:
        """Return the assigned partitions of ``topics``; None: of all topics."""
        if topics is None:
            return list(self._by_tp)
        return [tp for tp in self._by_tp if tp.topic in topics] if topics else []

    def mark_changed(self, tp: TopicPartition) -> None:
        """Have it decided again what to look up and to fetch of ``tp``.

        All code that changes a :class:`Position` calls this: thousands of idle partitions are not searched for it.
        """
        self.changed_for_fetching.add(tp)
        self.changed_for_lookups.add(tp)

    # --- what the application decides

    def assign(self, tps: Iterable[TopicPartition], *, paused: bool = False) -> None:
        """Assign exactly ``tps``. Partitions that stay keep their positions; new ones start ``paused``."""
        wanted = dict.fromkeys(tps)
        self.remove({tp for tp in self._by_tp if tp not in wanted})
        self.add(wanted, paused=paused)

    def add(self, tps: Iterable[TopicPartition], *, paused: bool = False) -> None:
        """Assign ``tps``, too. Partitions that are assigned keep their positions; new ones start ``paused``."""
        for tp in tps:
            if tp not in self._by_tp:
                self._by_tp[tp] = self._new()
                self._by_tp[tp].paused = paused
                self.mark_changed(tp)

    def remove(self, tps: Collection[TopicPartition]) -> None:
        """Assign ``tps`` no longer."""
        self._drop_buffered(tps)
        for tp in tps:
            del self._by_tp[tp]
            self.mark_changed(tp)

    def _new(self) -> Position:
        generation = next(self._generations)
        return Position(RequestState(self._backoff), generation=generation, seek_generation=generation)

    def seek(self, tp: TopicPartition, offset: int, epoch: int | None) -> None:
        """Continue at ``offset``: drop the buffered batches, and the response that is pending."""
        position = self._restart(tp)
        position.fetch = position.consumed = offset
        position.epoch = position.consumed_epoch = epoch

    def expect(self, tp: TopicPartition, topic_id: uuid.UUID, recheck_request: int) -> None:
        """Bind the position that was just sought to the topic with this id; see :class:`Position`."""
        position = self._by_tp[tp]
        position.topic_id, position.recheck_request = topic_id, recheck_request

    def reset(self, tp: TopicPartition, time: int) -> None:
        """Continue at the offset of ``time`` (ms, EARLIEST or LATEST), which is looked up first."""
        self._restart(tp).reset = time

    def _restart(self, tp: TopicPartition) -> Position:
        self._drop_buffered({tp})
        new = self._new()
        new.paused = self._by_tp[tp].paused
        self._by_tp[tp] = new
        self.mark_changed(tp)
        return new

    def pause(self, tps: Collection[TopicPartition], *, paused: bool) -> None:
        """Pause ``tps`` (neither fetch nor return their records), or resume them."""
        for tp in tps:
            self._by_tp[tp].paused = paused
            self.mark_changed(tp)

    # Invariant: A paused partition does not starve the others: what is prefetched for it gives way, also an error
    #   behind it, and is fetched again.
    # Test: tests/consumer/test_review.py::test_a_paused_partition_does_not_starve_the_others
    # Test: tests/consumer/test_review.py::test_an_error_behind_evicted_batches_is_reported_when_they_are_fetched_again
    def evict_paused(self) -> None:
        """Drop the buffered batches of paused partitions, which are fetched again later: others need the room now."""
        held = {tp for tp, position in self._by_tp.items() if position.paused and position.buffered}
        self._drop_buffered(held)
        for tp in held:
            position = self._by_tp[tp]
            position.fetch, position.epoch = position.consumed, position.consumed_epoch
            position.epoch_from_leader = False
            position.stopped, position.error = False, None  # errors behind the batches were dropped, too: they recur
            position.generation = next(self._generations)
            self.mark_changed(tp)

    # --- what was fetched

    def put(self, fetched: Fetched, epoch: int | None) -> None:
        """Buffer fetched batches and advance the position behind them."""
        position = self._by_tp[fetched.tp]
        position.fetch = fetched.next_offset
        position.epoch, position.epoch_from_leader = epoch, False
        position.buffered += fetched.size
        self.ready.add(fetched)
        self.mark_changed(fetched.tp)

    @staticmethod
    def answered(fetches: Iterable[PlannedPosition], now: int, throttle_ms: int = 0) -> None:
        """Record that the broker of ``fetches`` answered without an error for them, and throttles for ``throttle_ms``.

        Those that its response does not name have no new records (KIP-227).
        """
        for fetch in fetches:
            position = fetch.position
            if position.generation != fetch.generation or position.stopped:
                continue
            position.last_response_ms, position.error = now, None
            position.throttled_until_ms = now + throttle_ms if throttle_ms > 0 else 0
            if position.state.failures:
                position.state.succeeded()

    def report(self, tp: TopicPartition, error: KafkaError) -> None:
        """Report ``error`` to the application once. The partition is still fetched."""
        position = self._by_tp[tp]
        if str(position.error) != str(error):
            offset = position.fetch if position.fetch is not None else -1
            self.ready.add(Fetched(tp=tp, offset=offset, next_offset=offset, error=error))
        position.error = error

    def stop(self, tp: TopicPartition, error: KafkaError) -> None:
        """Stop fetching ``tp`` until a seek. The next poll returns the error."""
        position = self._by_tp[tp]
        position.stopped, position.error = True, error
        self.mark_changed(tp)
        offset = position.fetch if position.fetch is not None else -1
        self.ready.add(Fetched(tp=tp, offset=offset, next_offset=offset, error=error))

    def take(self, max_bytes: int | None = None) -> list[Taken]:
        """Remove what a poll returns from the buffer (see :meth:`FetchBuffer.take`) and advance the positions."""
        taken: list[Taken] = []
        self.application_room = max_bytes
        for fetched in self.ready.take(self._paused, max_bytes):
            if self.application_room is not None:
                self.application_room -= fetched.held
            position = self._by_tp[fetched.tp]
            taken.append(Taken(fetched, position.seek_generation, position.consumed, position.consumed_epoch))
            position.buffered -= fetched.size
            if fetched.error is None:
                position.consumed = fetched.next_offset
                last_epoch = fetched.batches[-1].leader_epoch if fetched.batches else -1
                position.consumed_epoch = last_epoch if last_epoch >= 0 else None
        self.poll_was_empty = not taken
        return taken

    def put_back_taken(self, taken: Sequence[Taken]) -> None:
        """Return the entries of the last poll to the buffer, as the application never received them.

        Entries of partitions that were sought since are dropped.
        """
        back = [entry for entry in taken if self._is_current(entry)]
        self.ready.put_back(entry.fetched for entry in back)
        for entry in reversed(back):
            position = self._by_tp[entry.fetched.tp]
            position.buffered += entry.fetched.size
            self.mark_changed(entry.fetched.tp)
            position.consumed, position.consumed_epoch = entry.consumed, entry.consumed_epoch

    def _is_current(self, entry: Taken) -> bool:
        position = self._by_tp.get(entry.fetched.tp)
        return position is not None and position.seek_generation == entry.seek_generation

    def _paused(self, tp: TopicPartition) -> bool:
        return self._by_tp[tp].paused

    def _drop_buffered(self, tps: Collection[TopicPartition]) -> None:
        for tp in tps:
            for fetched in self.ready.drop(tp):
                fetched.release()
            self._by_tp[tp].buffered = 0
