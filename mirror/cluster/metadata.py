"""What is known of a cluster, and when to ask again."""

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

_LONGEST_HOST: Final = 255
"""Characters that a host's name can have (RFC 1035)."""


_DOUBTS: Final = 10
"""Brokers that lag are not that many, nor for that long."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a partition, in which epoch."""

    node: int
    epoch: int


@dataclass(slots=True)
class TopicState:
    """One topic as last told. ``error`` is why it is not known (code 3: it does not exist).

    ``doubts`` counts, by partition, the answers in a row with a lower leader epoch than the known one. ``seen`` has
    leader epochs that are known of records, with the id of the topic that these are in.
    """

    topic_id: uuid.UUID | None = None
    leaders: dict[int, Leader] = field(default_factory=dict)
    error: int = 0
    partitions: int = 0
    doubts: dict[int, int] = field(default_factory=dict)
    seen: dict[int, tuple[int, uuid.UUID | None]] = field(default_factory=dict)

    def least_epoch(self, partition: int) -> int:
        """What a leader of ``partition`` has at least, if who tells of it does not lag."""
        known = self.leaders.get(partition)
        epoch, topic_id = self.seen.get(partition, (-1, None))
        if None not in {topic_id, self.topic_id} and topic_id != self.topic_id:
            epoch = -1
        return max(epoch, -1 if known is None else known.epoch)


class Metadata:
    """Request manager and store of brokers, topics and leaders, one for all the clients of a cluster.

    ``answers`` counts successful updates: a call that waits for one is advancing while it rises (seed 001). ``changes``
    rises with everything that a core may wait for: answers, failures, leaders that a broker named. A leader is replaced
    by one of the same or a higher epoch only: answers of lagging brokers change nothing (KIP-320), unless nothing else
    is heard any more.

    Requests are numbered: ``answered`` is the last one that was answered, ``next_request`` the first that is not sent
    yet. Its answer is the first that is certain to be as new as the present.
    """

    def __init__(self, settings: ClusterSettings, rng: random.Random) -> None:
        self._settings = settings
        self._topics: dict[str, TopicState] = {}
        self._touched: set[str] = set()
        self._touched_before: set[str] = set()
        self._names: dict[uuid.UUID, str] = {}
        self._stale = True
        self._was_stale = False
        self._in_vain = 0
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
    def hopeless(self) -> KafkaError | None:
        """The last failure, where asking again cannot help: brokers too old, or no trust between us.

        One broker may be alone in that, with a certificate that has expired: the others are asked first.
        """
        all_of_them = self._refusals >= len(self.brokers or self._settings.bootstrap)
        return self.last_error if isinstance(self.last_error, NotRetriable) and all_of_them else None

    def want(self, topics: Iterable[str]) -> None:
        """Keep ``topics`` known from now on; one that does not exist is asked for as long as it is wanted again."""
        for topic in topics:
            self._touched.add(topic)
            if topic not in self._topics:
                self._topics[topic] = TopicState()
                self._stale = True
                self._state.skip_backoff()

    def request_update(self) -> None:
        """What is known was found wrong: ask again, no sooner than the backoff allows."""
        self._stale = True

    def leader(self, tp: TopicPartition) -> Leader | None:
        """The partition's leader, or None where there is none or it is not known (yet)."""
        state = self._topics.get(tp.topic)
        return None if state is None else state.leaders.get(tp.partition)

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; 0 where that is not known (yet), or the topic is refused."""
        state = self._topics.get(topic)
        return state.partitions if state is not None and not state.error else 0

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """The topic's id (KIP-516)."""
        state = self._topics.get(topic)
        return None if state is None else state.topic_id

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of a topic told by its id."""
        return self._names.get(topic_id)

    def why_unknown(self, tp: TopicPartition) -> KafkaError | None:
        """Why there is no leader for ``tp``, as far as the brokers said."""
        state = self._topics.get(tp.topic)
        if state is None or self._updated_ms is None:
            return self.last_error
        if state.error:
            about = (
                f"topic {tp.topic!r} does not exist" if state.error == UNKNOWN_TOPIC_OR_PARTITION else f"{tp.topic!r}"
            )
            return broker_error(state.error, about, needs="Describe")
        if tp.partition >= state.partitions > 0:
            return broker_error(UNKNOWN_TOPIC_OR_PARTITION, f"topic {tp.topic!r} has {state.partitions} partitions")
        return self.last_error

    def leaderless(self, tp: TopicPartition) -> bool:
        """Whether the brokers know ``tp``, and said that it has no leader."""
        state = self._topics.get(tp.topic)
        return state is not None and tp.partition < state.partitions and tp.partition not in state.leaders

    def moved(self, tp: TopicPartition, leader: Leader) -> bool:
        """A broker named the new leader itself (KIP-951): use it without asking. False where it is not news."""
        state = self._topics.get(tp.topic)
        known = self.leader(tp)
        if state is None or leader.node not in self.brokers or (known is not None and known.epoch >= leader.epoch):
            return False
        state.leaders[tp.partition] = leader
        self.changes += 1
        return True

    def saw(self, tp: TopicPartition, epoch: int, topic_id: uuid.UUID | None) -> None:
        """A record of this leader epoch was read, of the topic with this id (None: not known): older leaders are gone.

        As ``Metadata.updateLastSeenEpochIfNewer``: a broker that lags may take itself for the leader that it was.
        """
        state = self._topics.get(tp.topic)
        if state is None:
            return
        state.seen[tp.partition] = epoch, topic_id
        known = state.leaders.get(tp.partition)
        if known is not None and known.epoch < state.least_epoch(tp.partition):
            del state.leaders[tp.partition]
            self._stale = True

    def poll(self, now: int) -> Poll:
        """A Metadata request where one is due."""
        due_ms = 0 if self._stale else (self._updated_ms or 0) + self._settings.metadata_max_age_ms
        wait = max(due_ms - now, self._state.wait_ms(now))
        if wait > 0:
            return Poll([], wait)
        self._state.sent()
        self.next_request += 1
        self._was_stale, self._stale = self._stale, False
        self._touched_before, self._touched = self._touched, set()
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
        self.answered = self.next_request - 1  # one at a time is under way
        self.changes += 1
        told = [Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers]
        self.brokers = {broker.node_id: broker for broker in told if _may_be(broker)}
        if len(self.brokers) < len({broker.node_id for broker in told}):
            self.last_error = ProtocolError(f"{len(told)} brokers were told of, some of them with no possible address")
        self.cluster_id = response.cluster_id or self.cluster_id
        self.controller = response.controller_id if response.controller_id in self.brokers else None
        before = {name: dict(state.leaders) for name, state in self._topics.items()}
        incomplete = [topic for topic in response.topics if not self._learn(topic)]
        self._updated_ms = now
        unchanged = before == {name: state.leaders for name, state in self._topics.items()}
        self._stale = self._stale or bool(incomplete)
        if incomplete:
            self._state.failed(now)
            return
        # Asked for because something was wrong, and it is as wrong as before: ask less and less often.
        self._in_vain = self._in_vain + 1 if self._was_stale and unchanged else 0
        # Many partitions may find out one after the other that they moved: one update for all.
        self._state.succeeded()
        self._state.pause(now, max(1, self._in_vain))

    @staticmethod
    def _believed(state: TopicState, partition: int) -> bool:
        """Whether the epoch that is known must have been wrong: one that is too high would stand for ever."""
        state.doubts[partition] = state.doubts.get(partition, 0) + 1
        return state.doubts[partition] >= _DOUBTS

    def _learn(self, told: MetadataTopic) -> bool:
        """Take in one topic; False where it must be asked for again."""
        name = told.name or ""
        state = self._topics.get(name)
        if state is None:
            return True
        state.error = told.error_code
        if told.error_code:
            if told.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                state.leaders.clear()
            if name in self._touched or name in self._touched_before:
                return False
            # Nobody has asked for it since the last update: who did is gone.
            del self._topics[name]
            return True
        if told.topic_id is not None and told.topic_id != state.topic_id:
            # Another topic of the same name (KIP-516): its epochs have nothing to do with the old one's.
            state.leaders.clear()
            state.topic_id = told.topic_id
            self._names[told.topic_id] = name
        state.partitions = len(told.partitions)
        complete = True
        for part in told.partitions:
            if part.leader_epoch < state.least_epoch(part.partition_index):
                if not self._believed(state, part.partition_index):
                    complete = complete and part.partition_index in state.leaders
                    continue
                state.seen.pop(part.partition_index, None)
            state.doubts.pop(part.partition_index, None)
            if part.leader_id in self.brokers:
                state.leaders[part.partition_index] = Leader(part.leader_id, part.leader_epoch)
            else:
                state.leaders.pop(part.partition_index, None)
                complete = False
        return complete


def _may_be(broker: Broker) -> bool:
    """Whether somebody can be reached there. What is not printable would reach terminals, in errors."""
    host = broker.host
    return broker.node_id >= 0 and 0 < len(host) <= _LONGEST_HOST and host.isprintable() and 0 < broker.port < 2**16
