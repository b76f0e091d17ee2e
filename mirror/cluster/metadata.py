"""The metadata of a cluster, and when to request it again. No I/O."""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from mirror.backoff import Backoff
from mirror.cluster.request_state import KeyStates, RequestState
from mirror.cluster.requests import Lane, Poll, Request
from mirror.cluster.settings import ClusterSettings
from mirror.cluster.topic_state import Leader, TopicState
from mirror.cluster.types import Broker, TopicPartition
from mirror.errors import KafkaError, NotRetriable, ProtocolError
from mirror.timing import FOREVER_MS
from mirror.wire.api import Api
from mirror.wire.error_codes import UNKNOWN_TOPIC_OR_PARTITION, broker_error
from mirror.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

_MAX_HOST_LENGTH: Final = 255
"""Characters of a host name (RFC 1035)."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """What a request is for."""

    number: int
    topics: frozenset[str]
    suspects: frozenset[str]
    """Those of the topics whose metadata was found to be wrong."""
    suspicious: bool
    """Something was wrong: all of the metadata, that of the suspects, or the brokers."""
    full: bool
    """It is for all topics."""


# Invariant: What stays wrong in successful responses, as a missing topic or partition, is requested less and less
#   often, alone, and delays no other topic.
# Test: tests/consumer/test_review.py::test_a_partition_that_does_not_exist_is_asked_for_less_and_less_often
# Test: tests/cluster/
#   test_partial_metadata.py::test_a_missing_topic_is_requested_alone_less_and_less_often_and_delays_no_other
# Test: tests/cluster/test_partial_metadata.py::test_a_new_topic_is_requested_alone_and_the_others_stay_known
class Metadata:
    """The brokers, topics and leaders of a cluster, one instance for all its clients.

    ``answers`` counts successful updates: a call that waits for one advances while it rises. ``changes`` rises with
    everything that a core may wait for: responses, failures, leaders that a broker named. A leader is replaced by one
    with the same or a higher epoch only, so that responses of lagging brokers change nothing (KIP-320), unless all
    responses have a lower one.

    **What is requested.** All topics at first, after ``metadata.max.age.ms``, and when that is requested, as after the
    loss of a broker. Only the topics concerned, whose part of a response replaces their states and no others, when some
    are new (at once), incomplete (each with its own backoff), or were found to be wrong. A client of 10,000 topics
    would otherwise request and decode all of them for each new one. One request is in flight at a time.

    Requests are numbered, and ``next_request`` is the first that is not sent yet. What a response to it, or to a later
    request, says about a topic that it covers (:meth:`covers`) is certainly newer than the present.
    """

    def __init__(self, settings: ClusterSettings, rng: random.Random) -> None:
        backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, rng)
        self._settings = settings
        self._backoff = backoff
        self._topics: dict[str, TopicState] = {}
        self._names: dict[uuid.UUID, str] = {}
        self._stale = True
        self._stale_brokers = False
        self._suspects: set[str] = set()
        self._due: set[str] = set()
        """The topics to request without a pause: they are new, their backoff is over, or their last request failed."""
        self._incomplete: KeyStates[str] = KeyStates(backoff)
        self._paused_until_ms = 0
        """Until then only what is due is requested."""
        self._unchanged_updates = 0
        self._refusals = 0
        self._state = RequestState(backoff)
        self._changed: dict[str, int] = {}
        """``changes`` as of the last change of each topic, in this order."""
        self._dropped = 0
        """``changes`` as of when a topic was last dropped."""
        self.answers = 0
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

    # --- what is wanted

    def want(self, topics: Iterable[str]) -> None:
        """Request ``topics`` from now on; one that does not exist is requested as long as calls still want it."""
        for topic in topics:
            state = self._topics.get(topic)
            if state is not None:
                state.wanted = True
                continue
            self._topics[topic] = TopicState()
            self._due.add(topic)
            self._state.skip_backoff()

    def request_update(self, topics: Iterable[str] | None = None) -> None:
        """Request an update, no sooner than the backoff allows: the metadata was found to be wrong.

        That of ``topics``, of those that are wanted; None: of all topics. What is incomplete is requested again anyway.
        """
        if topics is None:
            self._stale = True
            return
        for topic in topics:
            if topic in self._topics and topic not in self._due and topic not in self._incomplete.resting:
                self._suspects.add(topic)

    def request_brokers(self) -> None:
        """Request an update of brokers and controller, no sooner than the backoff allows."""
        self._stale_brokers = True

    def covers(self, topic: str, request: int) -> bool:
        """Whether what is known of ``topic`` is from a response to the request of this number, or a later one."""
        state = self._topics.get(topic)
        return state is not None and state.answered >= request

    def request_covering(self, topic: str, request: int) -> None:
        """Request ``topic``, unless the request of this number, or a later one for it, is in flight."""
        state = self._topics.get(topic)
        if state is not None and state.requested < request:
            self.request_update((topic,))

    # --- what is known

    def changed_since(self, changes: int) -> Collection[str] | None:
        """Return the topics with changes (of leaders, id, error) since ``changes`` was this; None: any may have some.

        It costs time for these topics only.
        """
        if changes < self._dropped:
            return None
        return set(itertools.takewhile(lambda topic: self._changed[topic] > changes, reversed(self._changed)))

    def _note_change(self, topic: str) -> None:
        """Record that ``topic`` has changed, with ``changes`` as it is: the caller has raised that."""
        self._changed.pop(topic, None)
        self._changed[topic] = self.changes

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
        self._note_change(tp.topic)
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
            self.changes += 1
            self._note_change(tp.topic)
            self.request_update((tp.topic,))

    # --- requests and responses

    def poll(self, now: int) -> Poll:
        """Return a Metadata request if one is due."""
        if self._state.in_flight:
            return Poll([], FOREVER_MS)
        self._due.update(self._incomplete.rested(now))
        wait = max(
            self._state.wait_ms(now), 0 if self._due else min(self._pause_ms(now), self._incomplete.wait_ms(now))
        )
        if wait > 0:
            return Poll([], wait)
        sent = self._take(now)
        self._state.sent()
        self.next_request += 1
        for topic in sent.topics:
            state = self._topics[topic]
            state.requested, state.wanted_before, state.wanted = sent.number, state.wanted, False
        request = Request(
            api=Api.METADATA,
            body=MetadataRequest(tuple(MetadataRequestTopic(name) for name in sorted(sent.topics))),
            node=None,
            lane=Lane.CONTROL,
            timeout_ms=self._settings.request_timeout_ms,
            on_response=partial(self._on_response, sent),
            on_failure=partial(self._on_failure, sent),
        )
        return Poll([request], FOREVER_MS)

    def _pause_ms(self, now: int) -> int:
        """Return ms until something that may have to wait is requested: what was found to be wrong, or is old."""
        due_ms = 0 if self._stale or self._suspects or self._stale_brokers else self._expires_ms
        return max(0, max(due_ms, self._paused_until_ms) - now)

    @property
    def _expires_ms(self) -> int:
        return (self._updated_ms or 0) + self._settings.metadata_max_age_ms

    def _take(self, now: int) -> _Sent:
        """Take what is to be requested now."""
        topics, self._due = self._due, set()
        suspects = set[str]()
        suspicious = full = False
        if self._pause_ms(now) == 0:
            suspicious = self._stale or self._stale_brokers or bool(self._suspects)
            full = self._stale or now >= self._expires_ms
            suspects, self._suspects = self._suspects, suspects
            self._stale = self._stale_brokers = False
            topics |= suspects
        if full or len(topics) == len(self._topics):
            return _Sent(self.next_request, frozenset(self._topics), frozenset(suspects), suspicious, full=True)
        return _Sent(self.next_request, frozenset(topics), frozenset(suspects), suspicious, full=False)

    # Invariant: A failure is final only once as many attempts have met it as there are brokers: one expired certificate
    #   ends no call.
    # Test: tests/cluster/test_metadata.py::test_one_broker_that_cannot_be_trusted_makes_nothing_hopeless
    def _on_failure(self, sent: _Sent, error: KafkaError, now: int) -> None:
        for topic in sent.topics:
            self._topics[topic].wanted |= self._topics[topic].wanted_before
        self._due |= sent.topics
        self._stale_brokers = True  # there may be no topic
        self._state.failed(now)
        self._refusals += isinstance(error, NotRetriable)
        self.last_error = error
        self.changes += 1

    def _on_response(self, sent: _Sent, response: MetadataResponse, now: int) -> None:
        self.last_error = None
        self._refusals = 0
        self.answers += 1
        self.changes += 1
        changed_brokers = self._update_brokers(sent, response)
        for name in sent.topics:
            self._topics[name].answered = sent.number
        incomplete, changed = self._update_topics(sent, response)
        self._incomplete.succeeded(sent.topics - incomplete)
        self._incomplete.failed(sorted(incomplete), now)
        # What changed has changed since it was found to be wrong; the rest of that is requested again.
        self._suspects -= incomplete | changed
        if sent.full:
            self._updated_ms = now
        self._state.succeeded()
        self._pause(sent, now, changed=changed_brokers or bool(changed & (sent.topics if sent.full else sent.suspects)))

    def _pause(self, sent: _Sent, now: int, *, changed: bool) -> None:
        """Delay the next update: many partitions may request one after the other, and a pause lets one serve all.

        If an update that was requested because something was wrong has ``changed`` nothing, the pauses become longer.
        """
        if sent.suspicious:
            self._unchanged_updates = 0 if changed else self._unchanged_updates + 1
            self._paused_until_ms = now + self._backoff.after(max(1, self._unchanged_updates))
        else:
            self._paused_until_ms = max(self._paused_until_ms, now + self._backoff.after(1))

    def _update_brokers(self, sent: _Sent, response: MetadataResponse) -> bool:
        """Update the brokers and the controller; return whether any have changed."""
        before = self.brokers, self.controller
        listed = [Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers]
        self.brokers = {broker.node_id: broker for broker in listed if _is_reachable(broker)}
        if len(self.brokers) < len({broker.node_id for broker in listed}):
            self.last_error = ProtocolError(f"{len(listed)} brokers were listed, some of them without a valid address")
        self.cluster_id = response.cluster_id or self.cluster_id
        self.controller = response.controller_id if response.controller_id in self.brokers else None
        if not sent.full and before[0].keys() - self.brokers.keys():
            self._stale = True  # a broker that has left may be the leader of topics that are not in this response
        return before != (self.brokers, self.controller)

    def _update_topics(self, sent: _Sent, response: MetadataResponse) -> tuple[set[str], set[str]]:
        """Update the topics that were requested; return those to be requested again, and those that have changed."""
        incomplete, changed = set[str](), set[str]()
        for topic in response.topics:
            name = topic.name or ""
            state = self._topics.get(name)
            if state is None or name not in sent.topics:
                continue
            before = state.observed()
            complete = state.update(topic, self.brokers)
            if state.observed() != before:
                changed.add(name)
                self._note_change(name)
            if state.topic_id is not None:
                self._names[state.topic_id] = name
            if state.error and not (state.wanted or state.wanted_before):
                self._drop(name)  # no call has wanted it since the request for it before this one
            elif not complete:
                incomplete.add(name)
        return incomplete, changed

    def _drop(self, topic: str) -> None:
        """Request ``topic`` no longer."""
        del self._topics[topic]
        self._changed.pop(topic, None)
        self._suspects.discard(topic)
        self._dropped = self.changes


def _is_reachable(broker: Broker) -> bool:
    """Whether the address is valid. Characters that are not printable would reach terminals in error texts."""
    host = broker.host
    return broker.node_id >= 0 and 0 < len(host) <= _MAX_HOST_LENGTH and host.isprintable() and 0 < broker.port < 2**16
