"""Sends Fetch requests and processes their responses (``FetchRequestManager``). No I/O."""

from __future__ import annotations

import itertools
import logging
import uuid
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from mirror.backoff import Backoff
from mirror.cluster.connection.session import LONGEST_THROTTLE_MS
from mirror.cluster.metadata import Metadata
from mirror.cluster.request_state import RequestState, Waits
from mirror.cluster.requests import Lane, Poll, Request
from mirror.cluster.topic_state import Leader
from mirror.cluster.types import TopicPartition
from mirror.consumer.fetch_pacing import FetchPacing
from mirror.consumer.fetch_routes import FetchRoutes, PlannedFetch
from mirror.consumer.fetched import Fetched, FetchedPart, PartsOf
from mirror.consumer.positions import Position, Positions
from mirror.consumer.sessions import FINAL, FetchSession, SessionRequest
from mirror.consumer.settings import ConsumerSettings
from mirror.consumer.topic_check import TopicCheck
from mirror.errors import CorruptBatch, KafkaError, NotRetriable, OffsetOutOfRange
from mirror.timing import deadline
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

_LAST_BY_NAME: Final = 12
"""The last version of Fetch that identifies topics by name (KIP-516)."""
_MAX_SHARE: Final = 6
"""A response has at most this part of ``fetch.max.bytes``, but at least ``max.partition.fetch.bytes``: it arrives while
others are read, and the memory of a small response is soon free as a whole, to receive the next ones."""
_RESERVED_FOR_MS: Final = 5_000
"""How long a pending request reserves room: a broker that hangs must not reserve it for longer."""
_PREFERRED_FOR_MS: Final = 300_000
"""How long a preferred replica is used (the default of ``metadata.max.age.ms``); then the leader may name another."""

_Sent = dict[TopicPartition, PlannedFetch]
"""What a request asked for."""


class Fetching:
    """The fetches of a consumer: one Fetch in flight per broker, with prefetching bounded in bytes.

    In all: the buffered batches and what the requests in flight may return is at most ``fetch.max.bytes``. The
    exception is a batch larger than what its request allows: a broker returns the first batch of the first partition
    that has one whole, whatever its size (KIP-74), and nothing after it. Therefore the largest batch so far of each
    topic is kept, and every request to a broker with a backlog reserves room for one such batch for
    ``_RESERVED_FOR_MS``, in ``fetch.max.bytes`` and in the room that the application's last poll gave. If there is
    never enough room for it, the request is sent alone. The first batch of a new size cannot be foreseen: one for each
    broker may exceed the bound. The bound counts memory, including a batch at the end that ``max_bytes`` cut off, and
    what the application received beyond its own room.

    Per partition: no request is sent while batches of ``max.partition.fetch.bytes`` are buffered. So a partition holds
    less than twice that, or less than that and one larger batch.

    A broker that does not answer, or refuses a whole Fetch, has one backoff (KIP-580); a partition that is refused
    within a response has its own.
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
        self.routes = FetchRoutes(settings, metadata, positions, self._topics)
        self._sessions: dict[int, FetchSession] = defaultdict(FetchSession)
        self._nodes: dict[int, RequestState] = defaultdict(lambda: RequestState(backoff))
        self._in_flight_bytes: dict[int, int] = {}
        self._largest_batch: dict[str, int] = {}
        # By broker with a backlog: bytes that its response may have beyond its limit, and until when they are reserved.
        self._reserved: dict[int, tuple[int, int]] = {}
        # The last response with records of each partition: the order for brokers without sessions, which keep none.
        self._last_answer: dict[TopicPartition, int] = {}
        self._answers = itertools.count(1)
        self._beyond_watermark: dict[TopicPartition, int] = {}
        self._last_sent_ms: dict[int, int] = {}
        self._pacing = FetchPacing()
        self.short_of_room = False

    # --- what goes out

    def poll(self, now: int) -> Poll:
        """Return a Fetch for each broker without one in flight that serves a partition which is due."""
        wait = self.routes.update(now)
        due: list[int] = []
        for node, fetches in self.routes.by_node.items():
            if not fetches or node in self._in_flight_bytes:
                continue
            early_ms = self._nodes[node].wait_ms(now)
            if not self.routes.is_behind(node):  # else there are records already, or may be
                early_ms = max(early_ms, self._pacing.wait_ms(node, len(fetches), now))
            if early_ms:
                wait = min(wait, early_ms)
            else:
                due.append(node)
        requests = self._requests(due, now)
        # Room becomes free by itself only where some is reserved.
        if self.short_of_room and self._reserved:
            wait = min(wait, *(until - now for _, until in self._reserved.values()))
        return Poll(requests, wait)

    def _requests(self, due: list[int], now: int) -> list[Request]:
        """Return requests while there is room for their responses; every broker has its share."""
        # The share counts all brokers ever asked: a broker without records must not occupy the room of the others.
        share = max(1, self._settings.fetch_max_bytes // max(1, len(self._sessions.keys() | due)))
        self._reserved = {node: (size, until) for node, (size, until) in self._reserved.items() if until > now}
        most = max(self._settings.fetch_max_bytes // _MAX_SHARE, self._settings.max_partition_fetch_bytes)
        requests = []
        self.short_of_room = False
        # The broker whose last request is the oldest is first, and none overtakes it, or it might wait for ever.
        for node in sorted(due, key=lambda node: self._last_sent_ms.get(node, -1)):
            behind = self.routes.topics_behind(node)
            # The first batch is returned whole, however small the limit of the request is (KIP-74).
            least = max((self._largest_batch.get(topic, 0) for topic in behind), default=0)
            if not self._fits(least) and self._positions.poll_was_empty and not self._in_flight_bytes:
                self._positions.evict_paused()  # nothing else is in flight or buffered
            if not self._fits(least):
                self.short_of_room = True
                break
            self._last_sent_ms[node] = now
            self._pacing.on_sent(node, now)
            limit = self._in_flight_bytes[node] = min(self._room_for(node), share, most)
            if behind:
                self._reserved[node] = (max(0, least - limit), deadline(now, _RESERVED_FOR_MS))
            requests.append(self._request(node, limit))
        return requests

    def _room(self) -> int:
        overdrawn = min(0, self._positions.application_room or 0)
        in_flight = sum(self._in_flight_bytes.values()) + sum(size for size, _ in self._reserved.values())
        return self._settings.fetch_max_bytes + overdrawn - self._positions.buffered - in_flight

    # Invariant: All that is prefetched, over all brokers, stays within fetch.max.bytes, and brokers that hang leave
    #   room for the others.
    # Test: tests/consumer/test_prefetch_bound.py::test_prefetch_bound_holds_across_brokers
    # Test: tests/consumer/test_prefetch_bound.py::test_brokers_that_are_hung_leave_room_for_another_one
    def _room_for(self, node: int) -> int:
        """Return the room for a response of ``node``: half if others may be asked meanwhile, in case that it hangs."""
        room, others = self._room(), self._metadata.brokers.keys() - self._in_flight_bytes.keys() - {node}
        return max(1, room // 2) if others else room

    def _fits(self, least: int) -> bool:
        room, application_room = self._room(), self._positions.application_room or 0
        # A request whose response waits for records that are not written yet reserves nothing, and does not count.
        alone = self._positions.poll_was_empty and not self._positions.buffered and not self._reserved
        return room > 0 and (alone or least <= room + max(0, application_room))

    def _request(self, node: int, max_bytes: int) -> Request:
        sent: _Sent = dict(self.routes.by_node[node])
        session = self._sessions[node]
        if sent:
            session.identify_topics(by_name=any(fetch.topic_id is None for fetch in sent.values()))
        request = self._session_request(node, sent)
        return Request(
            api=Api.FETCH,
            body=self._body(request, self._settings.fetch_max_wait_ms, max_bytes),
            node=node,
            lane=Lane.FETCH,
            channel=self._channel,
            timeout_ms=self._settings.cluster.request_timeout_ms,
            on_response=lambda response, now: self._on_response(node, response, sent, now),
            on_failure=lambda error, now: self._on_failure(node, error, sent, now),
            max_version=_LAST_BY_NAME if session.by_name else None,
        )

    def _session_request(self, node: int, sent: _Sent) -> SessionRequest:
        session, wanted, changed = self._sessions[node], self.routes.wanted, self.routes.take_changed(node)
        if session.established:
            return session.next_changes({tp: wanted(sent[tp]) if tp in sent else None for tp in changed})
        order = sorted(sent.values(), key=lambda fetch: self._last_answer.get(fetch.tp, 0))
        return session.next_request({fetch.tp: wanted(fetch) for fetch in order})

    def _body(self, request: SessionRequest, max_wait_ms: int, max_bytes: int) -> FetchRequest:
        topics: dict[tuple[str, uuid.UUID | None], list[FetchPartition]] = {}
        for tp, wanted in request.send.items():
            topics.setdefault((tp.topic, wanted.topic_id), []).append(wanted.partition)
        forgotten: dict[tuple[str, uuid.UUID | None], list[int]] = {}
        for tp, topic_id in request.forget.items():
            forgotten.setdefault((tp.topic, topic_id), []).append(tp.partition)
        return FetchRequest(
            max_wait=max_wait_ms,
            min_bytes=self._settings.fetch_min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(self._settings.read_committed),
            topics=tuple(FetchTopic(name, topic_id, tuple(parts)) for (name, topic_id), parts in topics.items()),
            session_id=request.session_id,
            session_epoch=request.epoch,
            forgotten_topics_data=tuple(
                ForgottenTopic(name, topic_id, tuple(parts)) for (name, topic_id), parts in forgotten.items()
            ),
            rack_id=self._settings.client_rack,
        )

    def close_requests(self, timeout_ms: int, closed: Callable[[], None]) -> list[Request]:
        """Return a request that closes each open session; ``closed`` is called for each response or failure.

        They use the control lane: on the fetch lane they would wait behind a Fetch that polls long.
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
                on_response=lambda _response, _now: closed(),
                on_failure=lambda _error, _now: closed(),
            )
            for node, session in closing.items()
            if node in self._metadata.brokers
        ]

    # --- what comes back

    def _release_room(self, node: int) -> None:
        self._in_flight_bytes.pop(node, None)
        self._reserved.pop(node, None)

    def _on_failure(self, node: int, error: KafkaError, sent: _Sent, now: int) -> None:
        self._release_room(node)
        self._sessions[node].failed()
        for fetch in sent.values():
            if isinstance(error, NotRetriable) and self._positions.get(fetch.tp, fetch.generation) is not None:
                self._positions.report(fetch.tp, error)
        self._node_failed(node, error, sent, now)

    def _node_failed(self, node: int, error: KafkaError, sent: _Sent, now: int) -> None:
        self._metadata.request_update()
        self._nodes[node].failed(now)
        for fetch in sent.values():
            self._record_error(fetch, error)

    def _on_response(self, node: int, response: FetchResponse, sent: _Sent, now: int) -> None:
        self._release_room(node)
        if response.error_code:
            # A session that the broker dropped (70), or that is out of step (71), costs one full fetch and no backoff.
            self._sessions[node].failed(forgotten=response.error_code == FETCH_SESSION_ID_NOT_FOUND)
            if verdict(response.error_code) is not ErrorAction.NEW_SESSION:
                self._node_failed(node, broker_error(response.error_code, "fetching"), sent, now)
            return
        self._nodes[node].succeeded()
        self._sessions[node].answered(response.session_id)
        # All parts are needed before any is released: a page may hold the end of one and the beginning of the next.
        records = [answer.records for topic in response.responses for answer in topic.partitions if answer.records]
        parts = iter(self._parts_of(records))
        self._pacing.on_response(node, now, records=bool(records))
        refused: set[TopicPartition] = set()
        waits: Waits = {}
        for topic in response.responses:
            name = topic.topic or (self._metadata.topic_name(topic.topic_id) if topic.topic_id else None) or ""
            for answer in topic.partitions:
                part = next(parts, None) if answer.records else None
                fetch = sent.get(TopicPartition(name, answer.partition_index))
                if answer.error_code and fetch is not None:
                    refused.add(fetch.tp)
                by_name = topic.topic_id is None
                accepted = fetch is not None and self._accept(fetch, answer, part, waits, now, by_name=by_name)
                if part is not None and not accepted:
                    part.release()
        self._positions.answered(
            (fetch for tp, fetch in sent.items() if tp not in refused) if refused else sent.values(),
            now,
            min(response.throttle_time, LONGEST_THROTTLE_MS),
        )

    # Invariant: A Fetch response counts only if its position has not been set again since, even to the same offset:
    #   what was fetched before a seek is never returned after it.
    # Test: tests/consumer/test_fetching.py::test_even_a_seek_to_the_same_offset_drops_the_answer_that_is_under_way
    # Test: tests/consumer/test_fetching.py::test_a_seek_drops_what_was_fetched_before
    def _accept(
        self,
        sent: PlannedFetch,
        answer: FetchResponsePartition,
        part: FetchedPart | None,
        waits: Waits,
        now: int,
        *,
        by_name: bool,
    ) -> bool:
        """Buffer the records of one partition, or process its error; return whether its memory is still needed.

        ``by_name``: the response names the topic without its id (Fetch before version 13).
        """
        position = self._positions.get(sent.tp, sent.generation)
        if position is None or position.fetch != sent.offset:
            return False
        self._positions.mark_changed(sent.tp)
        if answer.error_code:
            self._refused(sent, position, answer, waits, now)
            return False
        if by_name and self._topics.is_unconfirmed(sent.tp, position, now):
            return False
        position.topic_id = position.topic_id or sent.topic_id
        position.validated_epoch = max(position.validated_epoch, sent.leader_epoch)
        if answer.preferred_read_replica >= 0:
            position.preferred = answer.preferred_read_replica
            position.preferred_until_ms = now + _PREFERRED_FOR_MS
        committed = self._settings.read_committed and answer.last_stable_offset >= 0
        position.end = self.routes.log_ends[sent.tp] = answer.last_stable_offset if committed else answer.high_watermark
        if not answer.records:
            position.adopt_leader_epoch(sent.leader_epoch)
            return False
        try:
            batches = Batches(
                answer.records, sent.offset, answer.high_watermark if answer.high_watermark >= 0 else NO_END
            )
        except CorruptBatch as error:
            if not self._is_ahead(sent, answer.records):
                self._positions.stop(sent.tp, CorruptBatch(f"{sent.tp}: {error}"))
            return False
        self._beyond_watermark.pop(sent.tp, None)
        last = batches[-1]
        fetched = Fetched(
            tp=sent.tp,
            offset=sent.offset,
            next_offset=last.next_offset,
            batches=batches,
            size=batches.size,
            held=len(answer.records) if part is None else part.held,
            high_watermark=answer.high_watermark,
            last_stable_offset=answer.last_stable_offset,
            log_start_offset=answer.log_start_offset,
            leader_epoch=sent.leader_epoch,
            topic_id=sent.topic_id,
            aborted=answer.aborted_transactions or (),
            received_ms=now,
            part=part,
        )
        self._last_answer[sent.tp] = next(self._answers)
        self._largest_batch[sent.tp.topic] = max(batches.largest, self._largest_batch.get(sent.tp.topic, 0))
        self._positions.put(fetched, last.leader_epoch if last.leader_epoch >= 0 else None)
        position.adopt_leader_epoch(sent.leader_epoch)  # batches of the formats before version 2 have none
        return True

    def _is_ahead(self, sent: PlannedFetch, records: memoryview) -> bool:
        """Return whether the records are only beyond the high watermark, for the first time at this offset.

        A broker takes the high watermark before it reads, and reads up to a later one (``Partition.readRecords``). The
        next response has a high watermark that covers them; if it has not, the response is malformed.
        """
        if self._beyond_watermark.get(sent.tp) == sent.offset:
            return False
        try:
            Batches(records, sent.offset)
        except CorruptBatch:
            return False
        self._beyond_watermark[sent.tp] = sent.offset
        return True

    def _refused(
        self, sent: PlannedFetch, position: Position, answer: FetchResponsePartition, waits: Waits, now: int
    ) -> None:
        operation = f"fetching {sent.tp} at offset {sent.offset}"
        if answer.error_code == OFFSET_OUT_OF_RANGE:
            self._out_of_range(sent, position, answer, operation, now)
            return
        error = broker_error(answer.error_code, operation, needs="Read")
        if verdict(answer.error_code) is ErrorAction.FATAL:
            self._positions.stop(sent.tp, error)
            return
        self._metadata.request_update((sent.tp.topic,))
        leader = answer.current_leader
        self._record_error(sent, error)
        position.state.failed(now, waits)
        if leader is not None and leader.leader_id >= 0:
            moved = self._metadata.use_leader(sent.tp, Leader(leader.leader_id, leader.leader_epoch))
            if moved:
                position.state.skip_backoff()

    def _out_of_range(
        self, sent: PlannedFetch, position: Position, answer: FetchResponsePartition, operation: str, now: int
    ) -> None:
        known = answer.log_start_offset >= 0
        error = broker_error(
            answer.error_code, operation, f"its log begins at {answer.log_start_offset}" if known else None
        )
        if isinstance(error, OffsetOutOfRange) and known:
            error.log_start = answer.log_start_offset
        if position.preferred is not None:
            # A follower may be behind what the leader returned already: fetch from the leader before resetting.
            self._record_error(sent, error)
            position.state.failed(now)
        elif self._settings.offset_reset is None:
            self._positions.stop(sent.tp, error)
        else:
            _log.warning("%s; auto.offset.reset decides where to resume", error)
            self._positions.reset(sent.tp, self._settings.offset_reset)

    def _record_error(self, sent: PlannedFetch, error: KafkaError) -> None:
        """Keep the error of a partition that returned no records."""
        position = self._positions.get(sent.tp, sent.generation)
        if position is not None:
            if position.preferred is not None:
                self._positions.mark_changed(sent.tp)
            position.preferred = None  # a follower may have failed: return to the leader
            position.error = error
