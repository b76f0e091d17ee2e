"""Which partitions to fetch from whom, and what came (``FetchRequestManager``)."""

from __future__ import annotations

import itertools
import logging
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mirror.backoff import Backoff
from mirror.cluster.metadata import Leader, Metadata
from mirror.cluster.request_state import RequestState, Waits
from mirror.cluster.requests import Lane, Poll, Request
from mirror.cluster.types import TopicPartition
from mirror.consumer.fetched import Fetched, FetchedPart, PartsOf
from mirror.consumer.positions import Position, Positions
from mirror.consumer.sessions import FINAL, FetchSession, SessionRequest, Wanted
from mirror.consumer.settings import ConsumerSettings
from mirror.consumer.topic_check import TopicCheck
from mirror.errors import CorruptBatch, KafkaError, NotRetriable, OffsetOutOfRange
from mirror.timing import FOREVER_MS, deadline
from mirror.wire.api import Api
from mirror.wire.error_codes import FETCH_SESSION_ID_NOT_FOUND, OFFSET_OUT_OF_RANGE, ErrorAction, broker_error, verdict
from mirror.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchTopic,
    ForgottenTopic,
)
from mirror.wire.records import NO_END, Batches

_log = logging.getLogger(__name__)

_ANSWERS: Final = 6
"""One answer brings no more than this part of ``fetch.max.bytes``, or what may come of one partition: it comes while
others are read, and what an answer takes is soon free as a whole, to receive the next ones into."""
_KEPT_FOR_MS: Final = 5_000
"""For so long a request keeps the others' room: a broker that is hung must not."""
_PREFERRED_FOR_MS: Final = 300_000
"""A preferred replica is asked again after ``metadata.max.age.ms``'s default, in case another has come nearer."""


@dataclass(frozen=True, slots=True)
class _SentFetch:
    """One partition in a request: where it stood when it was asked for, to tell late answers."""

    tp: TopicPartition
    offset: int
    generation: int
    leader_epoch: int
    topic_id: uuid.UUID | None


class Fetching:
    """Request manager: one Fetch in flight per broker, prefetch bounded in bytes per partition and in all.

    In all: what was fetched and not yet taken and what the requests under way may bring is at most
    ``fetch.max.bytes``, but for a batch that is larger than what its request asks for: a broker gives the first batch
    of the first partition that has one whole, whatever its size (KIP-74), and nothing after it. So a topic is expected
    to have more of the largest that it had, and each request for a backlog keeps room for one: in ``fetch.max.bytes``
    and in what the application said that it has room for itself, for some seconds. Where that is never enough, it goes
    alone. The first batch of a size comes unexpected: one for each broker may be too much. Counted is memory, with the
    batch at the end of a part that the limit cut off, and with what the application was given beyond its own room.
    Per partition: where batches of ``max.partition.fetch.bytes`` wait, nothing is asked for. So it is less than twice
    that, or less than that and one larger batch.

    A broker that does not answer, or refuses a whole Fetch, backs off as one (KIP-580); a partition that is refused in
    an answer has a backoff of its own.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        metadata: Metadata,
        positions: Positions,
        channel: int,
        backoff: Backoff,
        parts_of: PartsOf,
    ) -> None:
        self._settings = settings
        self._parts_of = parts_of
        self._channel = channel
        self._metadata = metadata
        self._positions = positions
        self._topics = TopicCheck(metadata, positions, settings.fetch_max_wait_ms)
        self._sessions: dict[int, FetchSession] = defaultdict(FetchSession)
        self._nodes: dict[int, RequestState] = defaultdict(lambda: RequestState(backoff))
        self._granted: dict[int, int] = {}
        self._largest: dict[str, int] = {}
        # Of brokers that have a backlog: what their answers may bring beyond their grants, and until when that is kept.
        self._kept: dict[int, tuple[int, int]] = {}
        self._ends: dict[TopicPartition, int] = {}
        # Which answer brought records last; brokers that keep a session look after whose turn it is themselves.
        self._brought: dict[TopicPartition, int] = {}
        self._answers = itertools.count(1)
        self._ahead: dict[TopicPartition, int] = {}
        self._asked_ms: dict[int, int] = {}
        self._held_up = False

    # --- what goes out

    def poll(self, now: int) -> Poll:
        """A Fetch for each broker that is free and serves something due."""
        by_node: dict[int, list[_SentFetch]] = {}
        wait = FOREVER_MS
        for tp, position in self._positions:
            if not self._wants(position):
                continue
            if not position.state.can_send(now):
                wait = min(wait, position.state.wait_ms(now))
                continue
            leader = self._metadata.leader(tp)
            if leader is None:
                self._metadata.want((tp.topic,))
                self._metadata.request_update()
            elif self._topics.has(tp, position) and not position.must_validate(leader) and position.fetch is not None:
                node = self._replica(position, leader, now)
                if not self._nodes[node].can_send(now):
                    wait = min(wait, self._nodes[node].wait_ms(now))
                elif node not in self._granted:
                    topic_id = self._metadata.topic_id(tp.topic)
                    asked = _SentFetch(tp, position.fetch, position.generation, leader.epoch, topic_id)
                    by_node.setdefault(node, []).append(asked)
        requests = self._requests(by_node, now)
        # Nobody waits for room where nobody keeps it.
        if self._held_up and self._kept:
            wait = min(wait, *(until - now for _, until in self._kept.values()))
        return Poll(requests, wait)

    def _requests(self, by_node: dict[int, list[_SentFetch]], now: int) -> list[Request]:
        """As long as there is room for what they may bring; each broker has its share, so that none goes hungry."""
        # Of all that were ever asked: one that is asked alone, and has nothing to give, would take the others' room.
        share = max(1, self._settings.fetch_max_bytes // max(1, len(self._sessions.keys() | by_node.keys())))
        self._kept = {node: (size, until) for node, (size, until) in self._kept.items() if until > now}
        most = max(self._settings.fetch_max_bytes // _ANSWERS, self._settings.max_partition_fetch_bytes)
        requests = []
        self._held_up = False
        # Who was asked longest ago goes first, and nobody before it, or it might wait for ever.
        for node in sorted(by_node, key=lambda node: self._asked_ms.get(node, -1)):
            asked = sorted(by_node[node], key=lambda one: self._brought.get(one.tp, 0))
            behind = [one.tp.topic for one in asked if one.offset < self._ends.get(one.tp, one.offset + 1)]
            # What an answer may bring, however little is asked for.
            least = max((self._largest.get(topic, 0) for topic in behind), default=0)
            if not self._fits(least) and self._positions.hungry and not self._granted:
                self._positions.evict_paused()  # nothing else is under way, or to be had
            if not self._fits(least):
                self._held_up = True
                break
            self._asked_ms[node] = now
            grant = self._granted[node] = min(self._room(), share, most)
            if behind:
                self._kept[node] = (max(0, least - grant), deadline(now, _KEPT_FOR_MS))
            requests.append(self._request(node, asked, grant))
        return requests

    def _room(self) -> int:
        lent = min(0, self._positions.spare or 0)
        under_way = sum(self._granted.values()) + sum(size for size, _ in self._kept.values())
        return self._settings.fetch_max_bytes + lent - self._positions.buffered - under_way

    def _fits(self, least: int) -> bool:
        room, spare = self._room(), self._positions.spare or 0
        # But for those whose answers wait for what is not written yet: these are not waited for.
        alone = self._positions.hungry and not self._positions.buffered and not self._kept
        return room > 0 and (alone or least <= room + max(0, spare))

    def _wants(self, position: Position) -> bool:
        full = position.buffered >= self._settings.max_partition_fetch_bytes
        return position.fetch is not None and not (position.paused or position.stopped or full)

    def _replica(self, position: Position, leader: Leader, now: int) -> int:
        """The replica that the leader would have us read from (KIP-392), else the leader."""
        if position.preferred is not None:
            if position.preferred_until_ms > now and position.preferred in self._metadata.brokers:
                return position.preferred
            position.preferred = None
        return leader.node

    def _request(self, node: int, asked: list[_SentFetch], room: int) -> Request:
        wanted = {one.tp: Wanted(one.topic_id, self._partition(one)) for one in asked}
        request = self._sessions[node].next_request(wanted)
        return Request(
            api=Api.FETCH,
            body=self._body(request, self._settings.fetch_max_wait_ms, room),
            node=node,
            lane=Lane.FETCH,
            channel=self._channel,
            timeout_ms=self._settings.cluster.request_timeout_ms,
            on_response=lambda response, now: self._on_response(node, response, asked, now),
            on_failure=lambda error, now: self._on_failure(node, error, asked, now),
        )

    def _partition(self, asked: _SentFetch) -> FetchPartition:
        return FetchPartition(
            asked.tp.partition, asked.offset, self._settings.max_partition_fetch_bytes, asked.leader_epoch
        )

    def _body(self, request: SessionRequest, max_wait_ms: int, room: int) -> FetchRequest:
        topics: dict[tuple[str, uuid.UUID | None], list[FetchPartition]] = {}
        for tp, wanted in request.send.items():
            topics.setdefault((tp.topic, wanted.topic_id), []).append(wanted.partition)
        forgotten: dict[tuple[str, uuid.UUID | None], list[int]] = {}
        for tp, topic_id in request.forget.items():
            forgotten.setdefault((tp.topic, topic_id), []).append(tp.partition)
        return FetchRequest(
            max_wait=max_wait_ms,
            min_bytes=self._settings.fetch_min_bytes,
            max_bytes=room,
            isolation_level=int(self._settings.read_committed),
            topics=tuple(FetchTopic(name, topic_id, tuple(parts)) for (name, topic_id), parts in topics.items()),
            session_id=request.session_id,
            session_epoch=request.epoch,
            forgotten_topics_data=tuple(
                ForgottenTopic(name, topic_id, tuple(parts)) for (name, topic_id), parts in forgotten.items()
            ),
            rack_id=self._settings.client_rack,
        )

    def close_requests(self, timeout_ms: int, answered: Callable[[], None]) -> list[Request]:
        """One request per open session that ends it; ``answered`` is called for each, however it went.

        On the control lane: on the fetch lane it would stand behind a Fetch that polls long.
        """
        closing = {node: session for node, session in self._sessions.items() if session.open}
        self._sessions.clear()
        return [
            Request(
                api=Api.FETCH,
                body=self._body(SessionRequest(session.session_id, FINAL, {}, {}), 0, 0),
                node=node,
                lane=Lane.CONTROL,
                timeout_ms=min(timeout_ms, self._settings.cluster.request_timeout_ms),
                on_response=lambda _response, _now: answered(),
                on_failure=lambda _error, _now: answered(),
            )
            for node, session in closing.items()
            if node in self._metadata.brokers
        ]

    # --- what comes back

    def _answered(self, node: int) -> None:
        self._granted.pop(node, None)
        self._kept.pop(node, None)

    def _on_failure(self, node: int, error: KafkaError, asked: list[_SentFetch], now: int) -> None:
        self._answered(node)
        self._sessions[node].failed()
        for one in asked:
            if isinstance(error, NotRetriable) and self._positions.get(one.tp, one.generation) is not None:
                self._positions.report(one.tp, error)
        self._node_failed(node, error, asked, now)

    def _node_failed(self, node: int, error: KafkaError, asked: list[_SentFetch], now: int) -> None:
        self._metadata.request_update()
        self._nodes[node].failed(now)
        for one in asked:
            self._note(one, error)

    def _on_response(self, node: int, response: FetchResponse, asked: list[_SentFetch], now: int) -> None:
        self._answered(node)
        if response.error_code:
            # A session that the broker forgot (70) or that went out of step (71) costs one full fetch, no backoff.
            self._sessions[node].failed(forgotten=response.error_code == FETCH_SESSION_ID_NOT_FOUND)
            if verdict(response.error_code) is not ErrorAction.NEW_SESSION:
                self._node_failed(node, broker_error(response.error_code, "fetching"), asked, now)
            return
        self._nodes[node].succeeded()
        self._sessions[node].answered(response.session_id)
        pending = {one.tp: one for one in asked}
        # All of them before any is given back: a page may hold the end of one and the beginning of the next.
        records = [told.records for topic in response.responses for told in topic.partitions if told.records]
        parts = iter(self._parts_of(records))
        refused: set[TopicPartition] = set()
        waits: Waits = {}
        for topic in response.responses:
            name = topic.topic or (self._metadata.topic_name(topic.topic_id) if topic.topic_id else None) or ""
            for told in topic.partitions:
                part = next(parts, None) if told.records else None
                sent = pending.get(TopicPartition(name, told.partition_index))
                if told.error_code and sent is not None:
                    refused.add(sent.tp)
                by_name = topic.topic_id is None
                wanted = sent is not None and self._take_in(sent, told, part, waits, now, by_name=by_name)
                if part is not None and not wanted:
                    part.release()
        for one in asked:
            # Those that the answer does not name have nothing new (KIP-227).
            position = None if one.tp in refused else self._positions.get(one.tp, one.generation)
            if position is not None and not position.stopped:
                position.state.succeeded()
                position.heard_ms, position.error = now, None

    def _take_in(
        self,
        asked: _SentFetch,
        told: FetchResponsePartition,
        part: FetchedPart | None,
        waits: Waits,
        now: int,
        *,
        by_name: bool,
    ) -> bool:
        """Whether any of its records are wanted.

        ``by_name``: before version 13, where an answer does not say which topic it is from.
        """
        position = self._positions.get(asked.tp, asked.generation)
        if position is None or position.fetch != asked.offset:
            return False
        if told.error_code:
            self._refused(asked, position, told, waits, now)
            return False
        if by_name and self._topics.is_unproven(position, now):
            return False
        position.topic_id = position.topic_id or asked.topic_id
        position.validated = max(position.validated, asked.leader_epoch)
        if told.preferred_read_replica >= 0:
            position.preferred = told.preferred_read_replica
            position.preferred_until_ms = now + _PREFERRED_FOR_MS
        committed = self._settings.read_committed and told.last_stable_offset >= 0
        position.end = self._ends[asked.tp] = told.last_stable_offset if committed else told.high_watermark
        if not told.records:
            position.learn_epoch(asked.leader_epoch)
            return False
        try:
            batches = Batches(told.records, asked.offset, told.high_watermark if told.high_watermark >= 0 else NO_END)
        except CorruptBatch as error:
            if not self._is_ahead(asked, told.records):
                self._positions.stop(asked.tp, CorruptBatch(f"{asked.tp}: {error}"))
            return False
        self._ahead.pop(asked.tp, None)
        last = batches[-1]
        fetched = Fetched(
            tp=asked.tp,
            offset=asked.offset,
            next_offset=last.next_offset,
            batches=batches,
            size=batches.size,
            held=len(told.records) if part is None else part.held,
            high_watermark=told.high_watermark,
            last_stable_offset=told.last_stable_offset,
            log_start_offset=told.log_start_offset,
            leader_epoch=asked.leader_epoch,
            topic_id=asked.topic_id,
            aborted=told.aborted_transactions or (),
            part=part,
        )
        self._brought[asked.tp] = next(self._answers)
        self._largest[asked.tp.topic] = max(batches.largest, self._largest.get(asked.tp.topic, 0))
        self._positions.put(fetched, last.leader_epoch if last.leader_epoch >= 0 else None)
        position.learn_epoch(asked.leader_epoch)  # batches of the formats before version 2 have none
        return True

    def _is_ahead(self, asked: _SentFetch, records: memoryview) -> bool:
        """Whether the records are only newer than the high watermark, for the first time at this offset.

        A broker looks at that before it reads, up to what it is by then (``Partition.readRecords``). Asked once more,
        it knows of them; where it does not, they are a lie.
        """
        if self._ahead.get(asked.tp) == asked.offset:
            return False
        try:
            Batches(records, asked.offset)
        except CorruptBatch:
            return False
        self._ahead[asked.tp] = asked.offset
        return True

    def _refused(
        self, asked: _SentFetch, position: Position, told: FetchResponsePartition, waits: Waits, now: int
    ) -> None:
        about = f"fetching {asked.tp} at offset {asked.offset}"
        if told.error_code == OFFSET_OUT_OF_RANGE:
            self._out_of_range(asked, position, told, about, now)
            return
        error = broker_error(told.error_code, about, needs="Read")
        if verdict(told.error_code) is ErrorAction.FATAL:
            self._positions.stop(asked.tp, error)
            return
        self._metadata.request_update()
        leader = told.current_leader
        self._note(asked, error)
        position.state.failed(now, waits)
        if leader is not None and leader.leader_id >= 0:
            moved = self._metadata.moved(asked.tp, Leader(leader.leader_id, leader.leader_epoch))
            if moved:
                position.state.skip_backoff()

    def _out_of_range(
        self, asked: _SentFetch, position: Position, told: FetchResponsePartition, about: str, now: int
    ) -> None:
        known = told.log_start_offset >= 0
        error = broker_error(told.error_code, about, f"its log begins at {told.log_start_offset}" if known else None)
        if isinstance(error, OffsetOutOfRange) and known:
            error.log_start = told.log_start_offset
        if position.preferred is not None:
            # A follower may lag behind what the leader already gave us: ask the leader before believing it.
            self._note(asked, error)
            position.state.failed(now)
        elif self._settings.offset_reset is None:
            self._positions.stop(asked.tp, error)
        else:
            _log.warning("%s; auto.offset.reset decides where to go on", error)
            self._positions.reset(asked.tp, self._settings.offset_reset)

    def _note(self, asked: _SentFetch, error: KafkaError) -> None:
        """Keep why a partition brought nothing."""
        position = self._positions.get(asked.tp, asked.generation)
        if position is not None:
            position.preferred = None  # where it was a follower that failed: back to the leader
            position.error = error
