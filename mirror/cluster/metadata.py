"""The metadata of a cluster, and when to request it again. No I/O."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mirror.backoff import Backoff
from mirror.cluster.request_state import RequestState
from mirror.cluster.requests import Lane, Poll, Request
from mirror.cluster.settings import ClusterSettings
from mirror.cluster.types import Broker, TopicPartition
from mirror.errors import KafkaError, NotRetriable, ProtocolError
from mirror.timing import FOREVER_MS
from mirror.wire.api import Api
from mirror.wire.error_codes import UNKNOWN_TOPIC_OR_PARTITION, broker_error
from mirror.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataTopic

_MAX_HOST_LENGTH: Final = 255
"""Characters of a host name (RFC 1035)."""


_MAX_STALE_EPOCHS: Final = 10
"""Responses in a row with a lower leader epoch, after which that is accepted: no broker lags for so long."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a partition, and its epoch; -1 where brokers before Apache Kafka 2.4 do not report it reliably."""

    node: int
    epoch: int


@dataclass(slots=True)
class TopicState:
    """The state of one topic by the last response."""

    topic_id: uuid.UUID | None = None
    leaders: dict[int, Leader] = field(default_factory=dict)
    error: int = 0
    """The error code of the topic; 3: it does not exist."""
    partitions: int = 0
    stale_epochs: dict[int, int] = field(default_factory=dict)
    """By partition, responses in a row with a lower leader epoch than the known one."""
    record_epochs: dict[int, tuple[int, uuid.UUID | None]] = field(default_factory=dict)
    """By partition, the leader epoch of a record that was read, with the id of its topic."""

    def min_epoch(self, partition: int) -> int:
        """Return the lowest leader epoch of ``partition`` that a broker which does not lag can report."""
        known = self.leaders.get(partition)
        epoch, topic_id = self.record_epochs.get(partition, (-1, None))
        if None not in {topic_id, self.topic_id} and topic_id != self.topic_id:
            epoch = -1
        return max(epoch, -1 if known is None else known.epoch)


class Metadata:
    """The brokers, topics and leaders of a cluster, one instance for all its clients.

    ``answers`` counts successful updates: a call that waits for one advances while it rises. ``changes`` rises with
    everything that a core may wait for: responses, failures, leaders that a broker named. A leader is replaced by one
    with the same or a higher epoch only, so that responses of lagging brokers change nothing (KIP-320), unless all
    responses have a lower one.

    Requests are numbered: ``answered`` is the last one with a response, ``next_request`` the first that is not sent
    yet, whose response is the first that is certainly newer than the present.
    """

    def __init__(self, settings: ClusterSettings, rng: random.Random) -> None:
        self._settings = settings
        self._topics: dict[str, TopicState] = {}
        self._wanted: set[str] = set()
        self._wanted_before: set[str] = set()
        self._names: dict[uuid.UUID, str] = {}
        self._stale = True
        self._was_stale = False
        self._added_in_flight = False
        self._unchanged_updates = 0
        self._refusals = 0
        self._state = RequestState(Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, rng))
        self.answers = 0
        self.answered = 0
        self.next_request = 1
        self.changes = 0
        self._updated_ms: int | None = None
        self.brokers: Mapping[int, Broker] = {}
        self.cluster_id: str | None = None
        self.controller: int | None = None
        self.last_error: KafkaError | None = None

    @property
    def fatal_error(self) -> KafkaError | None:
        """The last error, if no retry can help: brokers that are too old, failed authentication.

        It may concern one broker only, such as one with an expired certificate: all others are tried first.
        """
        all_refused = self._refusals >= len(self.brokers or self._settings.bootstrap)
        return self.last_error if isinstance(self.last_error, NotRetriable) and all_refused else None

    def want(self, topics: Iterable[str]) -> None:
        """Request ``topics`` from now on; one that does not exist is requested as long as calls still want it."""
        for topic in topics:
            self._wanted.add(topic)
            if topic not in self._topics:
                self._topics[topic] = TopicState()
                self._stale = True
                self._added_in_flight = self._state.in_flight
                self._state.skip_backoff()

    def request_update(self) -> None:
        """Request an update, no sooner than the backoff allows: the metadata was found to be wrong."""
        self._stale = True

    def leader(self, tp: TopicPartition) -> Leader | None:
        """Return the leader of a partition; None if there is none or it is unknown (yet)."""
        state = self._topics.get(tp.topic)
        return None if state is None else state.leaders.get(tp.partition)

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions; 0 if it is unknown (yet), or the topic is refused."""
        state = self._topics.get(topic)
        return state.partitions if state is not None and not state.error else 0

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """Return the id of a topic (KIP-516)."""
        state = self._topics.get(topic)
        return None if state is None else state.topic_id

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """Return the name of the topic with this id."""
        return self._names.get(topic_id)

    def why_unknown(self, tp: TopicPartition) -> KafkaError | None:
        """Return the error because of which no leader of ``tp`` is known, if the brokers returned one."""
        state = self._topics.get(tp.topic)
        if state is None or self._updated_ms is None:
            return self.last_error
        if state.error:
            subject = (
                f"topic {tp.topic!r} does not exist" if state.error == UNKNOWN_TOPIC_OR_PARTITION else f"{tp.topic!r}"
            )
            return broker_error(state.error, subject, needs="Describe")
        if tp.partition >= state.partitions > 0:
            return broker_error(UNKNOWN_TOPIC_OR_PARTITION, f"topic {tp.topic!r} has {state.partitions} partitions")
        return self.last_error

    def leaderless(self, tp: TopicPartition) -> bool:
        """Whether the brokers know ``tp``, and reported that it has no leader."""
        state = self._topics.get(tp.topic)
        return state is not None and tp.partition < state.partitions and tp.partition not in state.leaders

    def use_leader(self, tp: TopicPartition, leader: Leader) -> bool:
        """Use a leader that a broker named in a response (KIP-951); return False if it is not newer."""
        state = self._topics.get(tp.topic)
        known = self.leader(tp)
        if state is None or leader.node not in self.brokers or (known is not None and known.epoch >= leader.epoch):
            return False
        state.leaders[tp.partition] = leader
        self.changes += 1
        return True

    def record_epoch_seen(self, tp: TopicPartition, epoch: int, topic_id: uuid.UUID | None) -> None:
        """Record that a record of this leader epoch was read, from the topic with this id (None: unknown).

        Leaders of older epochs are dropped, as in ``Metadata.updateLastSeenEpochIfNewer``: a broker that lags may still
        take itself for the leader.
        """
        state = self._topics.get(tp.topic)
        if state is None:
            return
        state.record_epochs[tp.partition] = epoch, topic_id
        known = state.leaders.get(tp.partition)
        if known is not None and 0 <= known.epoch < state.min_epoch(tp.partition):
            del state.leaders[tp.partition]
            self._stale = True

    def poll(self, now: int) -> Poll:
        """Return a Metadata request if one is due."""
        due_ms = 0 if self._stale else (self._updated_ms or 0) + self._settings.metadata_max_age_ms
        wait = max(due_ms - now, self._state.wait_ms(now))
        if wait > 0:
            return Poll([], wait)
        self._state.sent()
        self.next_request += 1
        self._was_stale, self._stale, self._added_in_flight = self._stale, False, False
        self._wanted_before, self._wanted = self._wanted, set()
        topics = tuple(MetadataRequestTopic(name) for name in self._topics)
        request = Request(
            api=Api.METADATA,
            body=MetadataRequest(topics),
            node=None,
            lane=Lane.CONTROL,
            timeout_ms=self._settings.request_timeout_ms,
            on_response=self._on_response,
            on_failure=self._on_failure,
        )
        return Poll([request], FOREVER_MS)

    def _on_failure(self, error: KafkaError, now: int) -> None:
        self._stale = True
        self._state.failed(now)
        self._refusals += isinstance(error, NotRetriable)
        self.last_error = error
        self.changes += 1

    def _on_response(self, response: MetadataResponse, now: int) -> None:
        self.last_error = None
        self._refusals = 0
        self.answers += 1
        self.answered = self.next_request - 1  # one request is in flight at a time
        self.changes += 1
        listed = [Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers]
        self.brokers = {broker.node_id: broker for broker in listed if _is_reachable(broker)}
        if len(self.brokers) < len({broker.node_id for broker in listed}):
            self.last_error = ProtocolError(f"{len(listed)} brokers were listed, some of them without a valid address")
        self.cluster_id = response.cluster_id or self.cluster_id
        self.controller = response.controller_id if response.controller_id in self.brokers else None
        before = {name: dict(state.leaders) for name, state in self._topics.items()}
        incomplete = [topic for topic in response.topics if not self._update_topic(topic)]
        self._updated_ms = now
        unchanged = before == {name: state.leaders for name, state in self._topics.items()}
        self._stale = self._stale or bool(incomplete)
        if incomplete:
            self._state.failed(now)
            return
        # The update was requested because something was wrong, and changed nothing: back off.
        self._unchanged_updates = self._unchanged_updates + 1 if self._was_stale and unchanged else 0
        # Many partitions may request an update one after the other: a pause lets one serve all.
        self._state.succeeded()
        # A topic that was added meanwhile is not in this response, and has caused no request yet.
        if not self._added_in_flight:
            self._state.pause(now, max(1, self._unchanged_updates))

    @staticmethod
    def _accept_lower_epoch(state: TopicState, partition: int) -> bool:
        """Whether to accept a lower epoch: a known one that is wrong would be kept for ever otherwise."""
        state.stale_epochs[partition] = state.stale_epochs.get(partition, 0) + 1
        return state.stale_epochs[partition] >= _MAX_STALE_EPOCHS

    def _update_topic(self, topic: MetadataTopic) -> bool:
        """Update one topic; return False if it has to be requested again."""
        name = topic.name or ""
        state = self._topics.get(name)
        if state is None:
            return True
        state.error = topic.error_code
        if topic.error_code:
            if topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                state.leaders.clear()
            if name in self._wanted or name in self._wanted_before:
                return False
            # No call has wanted it since the last update.
            del self._topics[name]
            return True
        if topic.topic_id is not None and topic.topic_id != state.topic_id:
            # Another topic with the same name (KIP-516): the epochs of the old one do not apply to it.
            state.leaders.clear()
            state.topic_id = topic.topic_id
            self._names[topic.topic_id] = name
        state.partitions = len(topic.partitions)
        complete = True
        for part in topic.partitions:
            if 0 <= part.leader_epoch < state.min_epoch(part.partition_index):
                if not self._accept_lower_epoch(state, part.partition_index):
                    complete = complete and part.partition_index in state.leaders
                    continue
                state.record_epochs.pop(part.partition_index, None)
            state.stale_epochs.pop(part.partition_index, None)
            if part.leader_id in self.brokers:
                state.leaders[part.partition_index] = Leader(part.leader_id, part.leader_epoch)
            else:
                state.leaders.pop(part.partition_index, None)
                complete = False
        return complete


def _is_reachable(broker: Broker) -> bool:
    """Whether the address is valid. Characters that are not printable would reach terminals in error texts."""
    host = broker.host
    return broker.node_id >= 0 and 0 < len(host) <= _MAX_HOST_LENGTH and host.isprintable() and 0 < broker.port < 2**16
