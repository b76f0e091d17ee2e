"""Which partitions to fetch from whom, and what came (``FetchRequestManager``)."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from mirror.backoff import Backoff
from mirror.cluster.metadata import Leader, Metadata
from mirror.cluster.requests import Lane, Poll, Request
from mirror.cluster.topics import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.consumer.settings import ConsumerSettings
from mirror.errors import CorruptBatch, KafkaError
from mirror.timing import FOREVER_MS
from mirror.wire.api import Api
from mirror.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchTopic,
)
from mirror.wire.records import split_batches
from mirror.wire.verdicts import OFFSET_OUT_OF_RANGE, Verdict, broker_error, verdict


@dataclass(slots=True)
class Position:
    """One assigned partition. ``fetch`` is the next offset to fetch, ``consumed`` the next that a poll returns."""

    fetch: int | None = None
    consumed: int | None = None
    paused: bool = False
    stopped: bool = False
    buffered: int = 0
    failures: int = 0
    not_before_ms: int = 0
    generation: int = 0
    last_error: KafkaError | None = None


@dataclass(slots=True)
class _Asked:
    """One partition in a request: where it stood when it was asked for, to tell late answers."""

    tp: TopicPartition
    offset: int
    generation: int
    leader_epoch: int


@dataclass(slots=True)
class Fetching:
    """Request manager: one Fetch in flight per broker, prefetch bounded in bytes per partition and in all."""

    settings: ConsumerSettings
    metadata: Metadata
    rng: random.Random
    positions: dict[TopicPartition, Position] = field(default_factory=dict)
    ready: list[Fetched] = field(default_factory=list)
    _busy: set[int] = field(default_factory=set)
    _buffered: int = 0
    _backoff: Backoff = field(init=False)

    def __post_init__(self) -> None:
        cluster = self.settings.cluster
        self._backoff = Backoff(cluster.retry_backoff_ms, cluster.retry_backoff_max_ms, self.rng)

    # --- what the application decides

    def assign(self, tps: Iterable[TopicPartition]) -> None:
        """Fetch exactly these; positions of those kept stay."""
        wanted = dict.fromkeys(tps)
        for tp in [tp for tp in self.positions if tp not in wanted]:
            self._drop_buffered(tp)
            del self.positions[tp]
        for tp in wanted:
            self.positions.setdefault(tp, Position())
        self.metadata.want({tp.topic for tp in wanted})

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Go on at ``offset``; what was fetched before is dropped, what is under way will be."""
        position = self.positions[tp]
        self._drop_buffered(tp)
        position.fetch = position.consumed = offset
        position.generation += 1
        position.stopped = False
        position.not_before_ms = 0

    def _drop_buffered(self, tp: TopicPartition) -> None:
        self._buffered -= sum(fetched.size for fetched in self.ready if fetched.tp == tp)
        self.positions[tp].buffered = 0
        self.ready = [fetched for fetched in self.ready if fetched.tp != tp]

    def take(self) -> list[Fetched]:
        """All that is ready and not paused; it is the application's from here on."""
        taken = [fetched for fetched in self.ready if not self.positions[fetched.tp].paused]
        if len(taken) < len(self.ready):
            self.ready = [fetched for fetched in self.ready if self.positions[fetched.tp].paused]
        else:
            self.ready = []
        for fetched in taken:
            position = self.positions[fetched.tp]
            position.buffered -= fetched.size
            position.consumed = fetched.next_offset
            self._buffered -= fetched.size
        return taken

    # --- what goes out

    def poll(self, now: int) -> Poll:
        """A Fetch for each broker that is free and leads something due."""
        room = self.settings.fetch_max_bytes - self._buffered
        if room <= 0:
            return Poll([], FOREVER_MS)
        by_node: dict[int, list[_Asked]] = {}
        wait = FOREVER_MS
        for tp, position in self.positions.items():
            if not self._wants(position):
                continue
            if position.not_before_ms > now:
                wait = min(wait, position.not_before_ms - now)
                continue
            leader = self.metadata.leader(tp)
            if leader is None:
                self.metadata.request_update()
            elif leader.node not in self._busy and position.fetch is not None:
                asked = _Asked(tp, position.fetch, position.generation, leader.epoch)
                by_node.setdefault(leader.node, []).append(asked)
        return Poll([self._request(node, asked, room) for node, asked in by_node.items()], wait)

    def _wants(self, position: Position) -> bool:
        full = position.buffered >= self.settings.max_partition_fetch_bytes
        return position.fetch is not None and not (position.paused or position.stopped or full)

    def _request(self, node: int, asked: list[_Asked], room: int) -> Request:
        self._busy.add(node)
        topics: dict[str, list[FetchPartition]] = {}
        for one in asked:
            part = FetchPartition(
                one.tp.partition, one.offset, self.settings.max_partition_fetch_bytes, one.leader_epoch
            )
            topics.setdefault(one.tp.topic, []).append(part)
        body = FetchRequest(
            max_wait=self.settings.fetch_max_wait_ms,
            min_bytes=self.settings.fetch_min_bytes,
            max_bytes=room,
            isolation_level=int(self.settings.read_committed),
            topics=tuple(FetchTopic(t, self.metadata.topic_id(t), tuple(parts)) for t, parts in topics.items()),
            rack_id=self.settings.client_rack,
        )

        def on_response(response: FetchResponse, now: int) -> None:
            self._busy.discard(node)
            self._on_response(response, asked, now)

        def on_failure(error: KafkaError, now: int) -> None:
            self._busy.discard(node)
            self.metadata.request_update()
            for one in asked:
                self._back_off(one.tp, error, now)

        return Request(
            api=Api.FETCH,
            body=body,
            node=node,
            lane=Lane.FETCH,
            timeout_ms=self.settings.cluster.request_timeout_ms,
            on_response=on_response,
            on_failure=on_failure,
        )

    # --- what comes back

    def _on_response(self, response: FetchResponse, asked: list[_Asked], now: int) -> None:
        if response.error_code:
            self.metadata.request_update()
            error = broker_error(response.error_code, "fetching")
            for one in asked:
                self._back_off(one.tp, error, now)
            return
        pending = {one.tp: one for one in asked}
        for topic in response.responses:
            name = topic.topic or self._name(topic.topic_id)
            for told in topic.partitions:
                sent = pending.get(TopicPartition(name, told.partition_index))
                if sent is not None:
                    self._take_in(sent, told, now)

    def _name(self, topic_id: uuid.UUID | None) -> str:
        return (self.metadata.topic_name(topic_id) if topic_id is not None else None) or ""

    def _take_in(self, asked: _Asked, told: FetchResponsePartition, now: int) -> None:
        position = self.positions.get(asked.tp)
        if position is None or position.generation != asked.generation or position.fetch != asked.offset:
            return
        if told.error_code:
            self._refused(asked, position, told, now)
            return
        position.failures, position.last_error = 0, None
        try:
            batches = [b for b in split_batches(told.records) if b.next_offset > asked.offset] if told.records else []
        except CorruptBatch as error:
            self._stop(asked, position, CorruptBatch(f"{asked.tp}: {error}"))
            return
        if not batches:
            return
        position.fetch = batches[-1].next_offset
        size = sum(batch.size for batch in batches)
        position.buffered += size
        self._buffered += size
        self.ready.append(
            Fetched(
                tp=asked.tp,
                offset=asked.offset,
                next_offset=position.fetch,
                batches=batches,
                size=size,
                high_watermark=told.high_watermark,
                last_stable_offset=told.last_stable_offset,
                log_start_offset=told.log_start_offset,
                leader_epoch=asked.leader_epoch,
                aborted=told.aborted_transactions or (),
            )
        )

    def _refused(self, asked: _Asked, position: Position, told: FetchResponsePartition, now: int) -> None:
        outcome = verdict(told.error_code)
        if outcome is Verdict.FATAL:
            about = f"fetching {asked.tp} at offset {asked.offset}"
            detail = None
            if told.error_code == OFFSET_OUT_OF_RANGE:
                detail = f"its log begins at {told.log_start_offset}" if told.log_start_offset >= 0 else None
            self._stop(asked, position, broker_error(told.error_code, about, detail))
            return
        leader = told.current_leader
        if leader is not None and leader.leader_id >= 0:
            self.metadata.moved(asked.tp, Leader(leader.leader_id, leader.leader_epoch))
        self.metadata.request_update()
        self._back_off(asked.tp, broker_error(told.error_code, f"fetching {asked.tp}"), now)

    def _stop(self, asked: _Asked, position: Position, error: KafkaError) -> None:
        position.stopped = True
        self.ready.append(Fetched(tp=asked.tp, offset=asked.offset, next_offset=asked.offset, error=error))

    def _back_off(self, tp: TopicPartition, error: KafkaError, now: int) -> None:
        position = self.positions.get(tp)
        if position is not None:
            position.failures += 1
            position.last_error = error
            position.not_before_ms = now + self._backoff.after(position.failures)
