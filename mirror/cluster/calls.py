"""API calls: keys, each routed to a broker, retried with backoff until the deadline."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Hashable, Mapping
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
from mirror.errors import KafkaError, KafkaTimeout, NotRetriable
from mirror.timing import FOREVER_MS, remaining
from mirror.wire.api import Api
from mirror.wire.error_codes import ErrorAction, broker_error, verdict
from mirror.wire.messages.base import Message

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

ANY: Final = None
"""Route: whichever broker is least busy."""

Failures = Mapping[Any, KafkaError]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What a call may look at to find its way."""

    metadata: Metadata
    coordinators: Coordinators

    @property
    def answers(self) -> int:
        """Rises with every successful look-up of either."""
        return self.metadata.answers + self.coordinators.answers


class Call(CompletableEvent[T], Generic[T, K]):
    """One call of an application thread. Each key is answered by one broker; a failed key is retried alone.

    ``pending`` are the keys to be asked for now; those that failed rest first, each for as long as its own failures in
    a row demand.

    Subclasses say where a key goes (:meth:`route`), what to ask (:meth:`request`) and how to read the answer
    (:meth:`accept`).
    """

    api: ClassVar[Api]
    lane: ClassVar[Lane] = Lane.CONTROL
    max_version: ClassVar[int | None] = None
    """The newest version to speak, where a newer one tells less."""

    def __init__(self, what: str, keys: Collection[K], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(what, deadline_ms, timeout_ms)
        self.pending: set[K] = set(keys)
        self.in_flight = 0
        self.states: KeyStates[K] | None = None
        self._view: ClusterView | None = None
        self._answers_seen = -1

    def begin(self, view: ClusterView, backoff: Backoff) -> None:
        """The network thread takes the call up."""
        self._view = view
        self.states = KeyStates(backoff)

    @property
    def advancing(self) -> bool:
        """Also while what it waits for (metadata, a coordinator) has just been answered and not yet been used.

        Not while a key rests: its attempt failed, and the next is not due before the deadline is looked at.
        """
        if self.resting:
            return False
        waiting = self._view is not None and bool(self.pending) and self._answers_seen >= 0
        return self.stepped or (waiting and self._view is not None and self._view.answers != self._answers_seen)

    @property
    def resting(self) -> bool:
        """Whether some key failed and may not be asked for again yet."""
        return self.states is not None and bool(self.states.resting)

    @property
    def finished(self) -> bool:
        """Whether no key has to be asked for any more."""
        return not (self.pending or self.in_flight or self.resting)

    def wait_for_the_way(self, view: ClusterView) -> None:
        """There is no route yet; from here on only an answer of metadata or coordinators counts as a step."""
        self.stepped = False
        self._answers_seen = view.answers

    def attempted(self) -> None:
        """A request goes out: what was answered before it has been used."""
        self.stepped, self._answers_seen = False, -1

    def apply(self, core: Any, now: int) -> None:
        """Give the call to the loop's :class:`Calls`."""
        del now
        core.calls.add(self)

    def route(self, view: ClusterView) -> Mapping[int | None, Collection[K]]:
        """Node (or ANY) -> the pending keys it answers for; keys left out wait for metadata or a coordinator.

        Raises KafkaError where there is no hope.
        """
        del view
        return {ANY: self.pending}

    def request(self, keys: Collection[K], view: ClusterView, timeout_ms: int) -> Message:
        """The request body for ``keys``."""
        raise NotImplementedError

    def accept(self, keys: Collection[K], response: Any) -> Failures:
        """Take in an answer; the keys to retry, with why. Raises KafkaError where a retry cannot help."""
        raise NotImplementedError

    def result(self) -> T:
        """The answer, once every key has its own."""
        raise NotImplementedError

    def reroute(self, keys: Collection[K], view: ClusterView) -> None:
        """``keys`` failed at the broker they were routed to: forget what led there."""
        del keys
        view.metadata.request_update()


class LeaderCall(Call[T, TopicPartition]):
    """A call whose keys are partitions, each answered by its leader."""

    def route(self, view: ClusterView) -> Mapping[int | None, Collection[TopicPartition]]:
        """By leader; partitions without one wait, and their topics are asked for."""
        view.metadata.want({tp.topic for tp in self.pending})
        routes: dict[int | None, list[TopicPartition]] = {}
        for tp in self.pending:
            leader = view.metadata.leader(tp)
            if leader is not None:
                routes.setdefault(leader.node, []).append(tp)
            else:
                view.metadata.request_update()
                self.last_error = view.metadata.why_unknown(tp) or self.last_error
        return routes


class GroupCall(Call[T, str]):
    """A call that a group's coordinator answers; its only key is the group."""

    lane = Lane.COORDINATOR

    def __init__(self, what: str, group: str, deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(what, (group,), deadline_ms, timeout_ms)
        self.group = group

    def route(self, view: ClusterView) -> Mapping[int | None, Collection[str]]:
        """To the coordinator, once it is known."""
        node = view.coordinators.node(KeyType.GROUP, self.group)
        if node is None or node not in view.metadata.brokers:
            if node is not None:
                view.metadata.request_update()  # a broker that came later
            why = view.coordinators.why_unknown(KeyType.GROUP, self.group)
            self.last_error = why or view.metadata.last_error or self.last_error
            return {}
        return {node: (self.group,)}

    def reroute(self, keys: Collection[str], view: ClusterView) -> None:
        """Look the coordinator up again."""
        for key in keys:
            view.coordinators.forget(KeyType.GROUP, key)


def check(code: int, about: str, message: str | None = None, *, needs: str | None = None) -> KafkaError | None:
    """None for success, the error where a retry may help. Raises the error where it cannot.

    The arguments are those of :func:`mirror.wire.error_codes.broker_error`.
    """
    outcome = verdict(code)
    if outcome is ErrorAction.OK:
        return None
    error = broker_error(code, about, message, needs=needs)
    if outcome in {ErrorAction.FATAL, ErrorAction.FENCED, ErrorAction.ABORTABLE}:
        raise error
    return error


def left_out(
    keys: Collection[TopicPartition], found: Collection[TopicPartition], failures: Collection[TopicPartition]
) -> dict[TopicPartition, KafkaError]:
    """The partitions that an answer does not mention, as failures: they are asked for again."""
    missing = (tp for tp in keys if tp not in found and tp not in failures)
    return {tp: KafkaError(f"{tp}: the broker's answer leaves it out") for tp in missing}


class Calls:
    """Request manager of all the calls under way on one cluster."""

    def __init__(self, settings: ClusterSettings, view: ClusterView, rng: random.Random) -> None:
        self._request_timeout_ms = settings.request_timeout_ms
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, rng)
        self._view = view
        self._active: list[Call[Any, Any]] = []

    def add(self, call: Call[Any, Any]) -> None:
        """Begin ``call``; it ends by its future."""
        call.begin(self._view, self._backoff)
        self._active.append(call)
        self._finish(call)

    def poll(self, now: int) -> Poll:
        """The requests that calls can send now."""
        if not self._active:
            return IDLE
        self._active = [call for call in self._active if not call.future.done()]
        requests: list[Request] = []
        wait = FOREVER_MS
        for call in self._active:
            if call.states is None:
                continue
            call.pending.update(call.states.rested(now))
            wait = min(wait, call.states.wait_ms(now))
            if call.pending:
                requests += self._attempt(call, now)
        return Poll(requests, wait)

    def _attempt(self, call: Call[Any, Any], now: int) -> list[Request]:
        if self._view.metadata.hopeless is not None:
            call.fail(self._view.metadata.hopeless)
            return []
        try:
            routes = call.route(self._view)
        except KafkaError as error:
            call.fail(error)
            return []
        if not routes:
            call.wait_for_the_way(self._view)
            return []
        timeout_ms = min(remaining(call.deadline_ms, now), self._request_timeout_ms)
        return [self._request(call, node, tuple(keys), timeout_ms) for node, keys in list(routes.items())]

    def _request(self, call: Call[Any, Any], node: int | None, keys: tuple[Any, ...], timeout_ms: int) -> Request:
        call.pending.difference_update(keys)
        call.in_flight += 1
        call.attempted()
        return Request(
            api=call.api,
            body=call.request(keys, self._view, timeout_ms),
            node=node,
            lane=call.lane,
            timeout_ms=timeout_ms,
            on_response=self._on_response(call, keys),
            on_failure=self._on_failure(call, keys),
            max_version=call.max_version,
        )

    def _on_response(self, call: Call[Any, Any], keys: tuple[Any, ...]) -> Callable[[Any, int], None]:
        asked = dict.fromkeys(keys)  # in order, and found at once: there may be thousands

        def answer(response: Any, now: int) -> None:
            call.in_flight -= 1
            try:
                # What was not asked is nobody's business, whatever a broker says of it.
                failures = {key: why for key, why in call.accept(asked, response).items() if key in asked}
            except KafkaError as error:
                call.fail(error)
                return
            if call.states is not None:
                call.states.succeeded([key for key in asked if key not in failures])
            if failures:
                call.reroute(tuple(failures), self._view)
                self._retry(call, tuple(failures), next(iter(failures.values())), now)
            else:
                call.stepped = True
                self._finish(call)

        return answer

    def _on_failure(self, call: Call[Any, Any], keys: tuple[Any, ...]) -> Callable[[KafkaError, int], None]:
        def failed(error: KafkaError, now: int) -> None:
            call.in_flight -= 1
            if isinstance(error, NotRetriable):
                call.fail(error)
                return
            call.reroute(keys, self._view)
            self._retry(call, keys, error, now)

        return failed

    def _retry(self, call: Call[Any, Any], keys: tuple[Any, ...], error: KafkaError, now: int) -> None:
        if call.last_error is None or not isinstance(error, KafkaTimeout):
            # "No answer in the 6 ms that were left" says less than what went wrong before.
            call.last_error = error
        call.stepped = False
        if call.states is not None:
            call.states.failed(keys, now)

    @staticmethod
    def _finish(call: Call[Any, Any]) -> None:
        if call.finished and not call.future.done():
            call.complete(call.result())
