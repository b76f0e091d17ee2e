"""API calls over keys: each key is routed to a broker, and retried with backoff until the deadline. No I/O."""

from __future__ import annotations

import random
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

from mirror.backoff import Backoff
from mirror.cluster.coordinators import Coordinators, KeyType
from mirror.cluster.events import CompletableEvent
from mirror.cluster.metadata import Metadata
from mirror.cluster.request_state import KeyStates
from mirror.cluster.requests import IDLE, Lane, Poll, Request
from mirror.cluster.settings import ClusterSettings
from mirror.cluster.types import TopicPartition
from mirror.errors import KafkaError, KafkaTimeout, NotRetriable, UnsupportedVersion
from mirror.timing import FOREVER_MS, remaining
from mirror.wire.api import Api
from mirror.wire.error_codes import ErrorAction, broker_error, verdict
from mirror.wire.frames import Buffer
from mirror.wire.messages.base import Message

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

ANY: Final = None
"""The route to the least busy broker."""

Failures = Mapping[Any, KafkaError]

_MAX_SHARED: Final = 50
"""Calls that share a request: each goes through the whole response."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What a call routes its keys by."""

    metadata: Metadata
    coordinators: Coordinators

    @property
    def answers(self) -> int:
        """A count that rises with every successful response of either."""
        return self.metadata.answers + self.coordinators.answers


class Call(CompletableEvent[T], Generic[T, K]):
    """One call of an application thread. Each key is answered by one broker; a failed key is retried alone.

    ``pending`` are the keys to be requested now; a failed key waits first, as long as its own failures in a row
    require.

    Subclasses define the route of each key (:meth:`route`), the request (:meth:`request`), and how its response is
    read (:meth:`accept`).
    """

    api: ClassVar[Api]
    lane: ClassVar[Lane] = Lane.CONTROL
    max_version: ClassVar[int | None] = None
    """The highest version to use, where a later one returns less."""
    recognizes: ClassVar[bool] = False
    """Whether :meth:`recognize` is defined; such a call shares no requests."""
    one_key: ClassVar[bool] = False
    """Whether each key takes a request of its own, as no version of the API has several; all are in flight at once."""
    unique_keys: ClassVar[bool] = True
    """Whether a request may have a key only once. (A group is named once, for the partitions of several calls.)"""

    def __init__(self, what: str, keys: Collection[K], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(what, deadline_ms, timeout_ms)
        self.pending: set[K] = set(keys)
        self.in_flight = 0
        self.states: KeyStates[K] | None = None
        self._view: ClusterView | None = None
        self._answers_seen = -1

    def begin(self, view: ClusterView, backoff: Backoff) -> None:
        """Begin the call, on the network thread."""
        self._view = view
        self.states = KeyStates(backoff)

    @property
    def advancing(self) -> bool:
        """Whether it advances: also after a response that it waited for (metadata, a coordinator), until that is used.

        It does not once a key has failed, until that key succeeds: the deadline is checked before its next attempt.
        """
        if self.failing:
            return False
        waiting = self._view is not None and bool(self.pending) and self._answers_seen >= 0
        return self.stepped or (waiting and self._view is not None and self._view.answers != self._answers_seen)

    @property
    def failing(self) -> bool:
        """Whether the last attempt of some key failed."""
        return self.states is not None and self.states.failing

    @property
    def resting(self) -> bool:
        """Whether some key failed and backs off."""
        return self.states is not None and bool(self.states.resting)

    @property
    def finished(self) -> bool:
        """Whether no key has to be requested any more."""
        return not (self.pending or self.in_flight or self.resting)

    def wait_for_route(self, view: ClusterView) -> None:
        """Record that there is no route yet: only a response of metadata or coordinators counts as a step now."""
        self.stepped = False
        self._answers_seen = view.answers

    def begin_attempt(self) -> None:
        """Record that a request is sent, which uses all responses before it."""
        self.stepped, self._answers_seen = False, -1

    def apply(self, core: Any, now: int) -> None:
        """Add the call to the :class:`Calls` of the loop."""
        del now
        core.calls.add(self)

    def route(self, view: ClusterView) -> Mapping[int | None, Collection[K]]:
        """Return node (or ANY) -> the pending keys that it answers; other keys wait for metadata or a coordinator.

        Raises KafkaError if no retry can help.
        """
        del view
        return {ANY: self.pending}

    def request(self, keys: Collection[K], view: ClusterView, timeout_ms: int) -> Message:
        """Return the body of the request for ``keys``."""
        raise NotImplementedError

    def recognize(self, response: Buffer) -> Message | None:
        """Return what the bytes of a response mean, if it need not be decoded."""
        del response
        return None

    def shares_with(self) -> Hashable:
        """Return a value that is equal for calls which may share requests; None: it shares none."""
        return None

    def shared_request(self, attempts: Sequence[CallAttempt], view: ClusterView, timeout_ms: int) -> Message:
        """Return the body of one request for all ``attempts``, of calls with which it shares requests.

        With :attr:`unique_keys`, no key is in two of them. Each call reads its own part of the response.
        """
        raise NotImplementedError

    def accept(self, keys: Collection[K], response: Any) -> Failures:
        """Process a response; return the keys to retry with their errors. Raises KafkaError if no retry can help."""
        raise NotImplementedError

    def accept_absent_api(self, keys: Collection[K], error: UnsupportedVersion) -> bool:
        """Resolve ``keys``, whose broker does not offer the API; return False to fail the call with ``error``."""
        del keys, error
        return False

    def not_sent(self, keys: Collection[K]) -> None:
        """Record that the last request for ``keys`` was never sent."""

    def result(self) -> T:
        """Return the result, once every key is answered."""
        raise NotImplementedError

    def reroute(self, keys: Collection[K], view: ClusterView) -> None:
        """Drop what ``keys`` were routed by, as they failed at that broker."""
        del keys
        view.metadata.request_brokers()


@dataclass(slots=True)
class CallAttempt:
    """What is requested for one call, of one broker."""

    call: Any
    """A :class:`Call`."""
    keys: dict[Any, None]
    """In order, with fast lookup: there may be thousands."""
    timeout_ms: int


class LeaderCall(Call[T, TopicPartition]):
    """A call whose keys are partitions, each answered by its leader."""

    def route(self, view: ClusterView) -> Mapping[int | None, Collection[TopicPartition]]:
        """Route by leader; partitions without one wait, and metadata of their topics is requested."""
        view.metadata.want({tp.topic for tp in self.pending})
        routes: dict[int | None, list[TopicPartition]] = {}
        for tp in self.pending:
            leader = view.metadata.leader(tp)
            if leader is not None:
                routes.setdefault(leader.node, []).append(tp)
            else:
                view.metadata.request_update((tp.topic,))
                self.last_error = view.metadata.why_unknown(tp) or self.last_error
        return routes

    def reroute(self, keys: Collection[TopicPartition], view: ClusterView) -> None:
        """Request the metadata of their topics again."""
        view.metadata.request_update({tp.topic for tp in keys})


class GroupCall(Call[T, str]):
    """A call with a group as its only key, answered by the coordinator of the group."""

    lane = Lane.COORDINATOR

    def __init__(self, what: str, group: str, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(what, (group,), deadline_ms, timeout_ms)
        self.group = group

    def route(self, view: ClusterView) -> Mapping[int | None, Collection[str]]:
        """Route to the coordinator, as soon as it is known."""
        node = view.coordinators.node(KeyType.GROUP, self.group)
        if node is None or node not in view.metadata.brokers:
            if node is not None:
                view.metadata.request_brokers()  # one that joined later
            why = view.coordinators.why_unknown(KeyType.GROUP, self.group)
            self.last_error = why or view.metadata.last_error or self.last_error
            return {}
        return {node: (self.group,)}

    def reroute(self, keys: Collection[str], view: ClusterView) -> None:
        """Look up the coordinator again."""
        for key in keys:
            view.coordinators.forget(KeyType.GROUP, key)


def check(code: int, operation: str, message: str | None = None, *, needs: str | None = None) -> KafkaError | None:
    """Return None for success, or the error if a retry may help. Raises the error if no retry can.

    The arguments are those of :func:`mirror.wire.error_codes.broker_error`.
    """
    outcome = verdict(code)
    if outcome is ErrorAction.OK:
        return None
    error = broker_error(code, operation, message, needs=needs)
    if outcome in {ErrorAction.FATAL, ErrorAction.FENCED, ErrorAction.ABORTABLE}:
        raise error
    return error


def left_out(
    keys: Collection[TopicPartition], found: Collection[TopicPartition], failures: Collection[TopicPartition]
) -> dict[TopicPartition, KafkaError]:
    """Return the partitions that a response does not have as failures, which are retried."""
    missing = (tp for tp in keys if tp not in found and tp not in failures)
    return {tp: KafkaError(f"{tp}: the broker's answer leaves it out") for tp in missing}


class Calls:
    """All pending calls of one cluster. A turn costs time only for those that have something to request, or back off.

    A copy of many partitions begins with a few calls for each of them. Those that are due in the same turn, at the same
    broker, share requests (:meth:`Call.shares_with`). Each of them keeps its own deadline, retries and result.
    """

    def __init__(self, settings: ClusterSettings, view: ClusterView, rng: random.Random) -> None:
        self._request_timeout_ms = settings.request_timeout_ms
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, rng)
        self._view = view
        self._due: dict[Call[Any, Any], None] = {}

    def add(self, call: Call[Any, Any]) -> None:
        """Begin ``call``, which ends by completing its future."""
        call.begin(self._view, self._backoff)
        self._due[call] = None
        self._finish(call)

    def poll(self, now: int) -> Poll:
        """Return the requests that can be sent now."""
        if not self._due:
            return IDLE
        requests: list[Request] = []
        shared: dict[Hashable, list[CallAttempt]] = {}
        wait = FOREVER_MS
        for call in list(self._due):
            if call.states is not None and not call.future.done():
                call.pending.update(call.states.rested(now))
                wait = min(wait, call.states.wait_ms(now))
                # A retry after the deadline could do what has failed for the caller: the reaper ends the call.
                overdue = call.failing and call.deadline_ms <= now
                for node, attempt in self._attempts(call, now) if call.pending and not overdue else ():
                    if (share := call.shares_with()) is None:
                        requests.append(self._request([attempt], node))
                    else:
                        shared.setdefault((share, node), []).append(attempt)
            if call.future.done() or not (call.pending or call.resting):
                del self._due[call]
        for (_, node), attempts in shared.items():  # type: ignore[misc]
            requests += [self._request(bundle, node) for bundle in _bundles(attempts)]
        return Poll(requests, wait)

    def _attempts(self, call: Call[Any, Any], now: int) -> list[tuple[int | None, CallAttempt]]:
        if self._view.metadata.fatal_error is not None:
            call.fail(self._view.metadata.fatal_error)
            return []
        try:
            routes = call.route(self._view)
        except KafkaError as error:
            call.fail(error)
            return []
        if not routes:
            call.wait_for_route(self._view)
            return []
        timeout_ms = min(remaining(call.deadline_ms, now), self._request_timeout_ms)
        parts = ((node, part) for node, keys in routes.items() for part in (zip(keys) if call.one_key else (keys,)))
        attempts = [(node, CallAttempt(call, dict.fromkeys(part), timeout_ms)) for node, part in parts]
        for _, attempt in attempts:
            call.pending.difference_update(attempt.keys)
            call.in_flight += 1
            call.begin_attempt()
        return attempts

    def _request(self, attempts: Sequence[CallAttempt], node: int | None) -> Request:
        first = attempts[0]
        timeout_ms = max(attempt.timeout_ms for attempt in attempts)  # each call has its own deadline besides
        if len(attempts) == 1:
            body = first.call.request(first.keys, self._view, timeout_ms)
        else:
            body = first.call.shared_request(attempts, self._view, timeout_ms)

        def on_response(response: Any, now: int) -> None:
            for attempt in attempts:
                self._on_response(attempt.call, attempt.keys, response, now)

        def on_failure(error: KafkaError, now: int) -> None:
            for attempt in attempts:
                self._on_failure(attempt.call, attempt.keys, error, now)

        def on_unsent() -> None:
            for attempt in attempts:
                attempt.call.not_sent(attempt.keys)

        return Request(
            api=first.call.api,
            body=body,
            node=node,
            lane=first.call.lane,
            timeout_ms=timeout_ms,
            on_response=on_response,
            on_failure=on_failure,
            max_version=first.call.max_version,
            recognize=first.call.recognize if first.call.recognizes else None,
            unwanted=lambda: all(attempt.call.future.done() for attempt in attempts),
            on_unsent=on_unsent,
        )

    def _on_response(self, call: Call[Any, Any], requested: dict[Any, None], response: Any, now: int) -> None:
        call.in_flight -= 1
        try:
            # Keys that were not requested are ignored.
            failures = {key: why for key, why in call.accept(requested, response).items() if key in requested}
        except KafkaError as error:
            call.fail(error)
            return
        if call.states is not None:
            call.states.succeeded([key for key in requested if key not in failures])
        if failures:
            call.reroute(tuple(failures), self._view)
            self._retry(call, tuple(failures), next(iter(failures.values())), now)
        else:
            call.stepped = True
            self._finish(call)

    def _on_failure(self, call: Call[Any, Any], requested: dict[Any, None], error: KafkaError, now: int) -> None:
        call.in_flight -= 1
        if isinstance(error, UnsupportedVersion) and call.accept_absent_api(requested, error):
            self._finish(call)
            return
        if isinstance(error, NotRetriable):
            call.fail(error)
            return
        call.reroute(tuple(requested), self._view)
        self._retry(call, tuple(requested), error, now)

    def _retry(self, call: Call[Any, Any], keys: tuple[Any, ...], error: KafkaError, now: int) -> None:
        if call.last_error is None or not isinstance(error, KafkaTimeout):
            # "No answer within the remaining 6 ms" says less than the error before.
            call.last_error = error
        call.stepped = False
        if call.states is not None:
            call.states.failed(keys, now)
            self._due[call] = None

    @staticmethod
    def _finish(call: Call[Any, Any]) -> None:
        if call.finished and not call.future.done():
            call.complete(call.result())


def _bundles(attempts: Iterable[CallAttempt]) -> list[list[CallAttempt]]:
    """Divide ``attempts`` into requests, of at most ``_MAX_SHARED`` calls each, so that no key is twice in one."""
    bundles: list[tuple[list[CallAttempt], set[Any]]] = []
    for attempt in attempts:
        for bundle, keys in bundles:
            if len(bundle) < _MAX_SHARED and keys.isdisjoint(attempt.keys):
                break
        else:
            bundle, keys = [], set()
            bundles.append((bundle, keys))
        bundle.append(attempt)
        if attempt.call.unique_keys:
            keys.update(attempt.keys)
    return [bundle for bundle, _ in bundles]
