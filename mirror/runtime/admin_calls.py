"""What all calls of an administrating client share: its network thread, its deadlines and its end."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from mirror.cluster.admin.cluster import DescribeCluster
from mirror.cluster.calls.keyed_call import KeyedCall
from mirror.cluster.calls.routed_calls import Call
from mirror.cluster.events import CompletableEvent
from mirror.cluster.settings import ClusterSettings
from mirror.cluster.types import K, Outcomes, TopicPartition, V
from mirror.errors import ClientClosed, KafkaError
from mirror.meters import NetworkSnapshot
from mirror.runtime import arguments
from mirror.runtime.admin_results import as_asked, pass_on
from mirror.runtime.pending_requests import PendingRequests
from mirror.runtime.thread import acquire, release

T = TypeVar("T")


class AdminCalls:
    """A client of one cluster that submits calls, and waits for them or returns futures."""

    def __init__(self, options: Mapping[str, object]) -> None:
        """``options`` has Kafka's dotted configuration keys. Raises ConfigError."""
        self.network_thread = acquire(ClusterSettings.parse(options))
        """What runs its calls; not for applications."""
        self._asked = PendingRequests("Admin")
        self._closed = False

    def network(self) -> NetworkSnapshot:
        """Return the statistics of the cluster's network thread, which all clients of this process share."""
        return self.network_thread.snapshot()

    def known_leader(self, tp: TopicPartition) -> tuple[int, int] | None:
        """Return the leader's node id and leader epoch of ``tp`` from the last metadata, or None. Sends no request."""
        leader = self.network_thread.loop.metadata.leader(tp)
        return None if leader is None else (leader.node, leader.epoch)

    def why_no_leader(self, tp: TopicPartition) -> KafkaError | None:
        """Return the error because of which the last metadata has no leader of ``tp``, or None. Sends no request."""
        metadata = self.network_thread.loop.metadata
        return metadata.why_unknown(tp) if metadata.leader(tp) is None else None

    def _timer(self, timeout_ms: int | None) -> tuple[int, int]:
        return self.network_thread.timer(arguments.timeout(timeout_ms))

    def _check_open(self) -> None:
        if self._closed:
            msg = "this Admin is closed"
            raise ClientClosed(msg)

    def _call(self, call: Call[T, Any]) -> T:
        with self._asked.waiting(call):
            self._check_open()
            return self.network_thread.call(None, call)

    def _later(self, make: Callable[[], CompletableEvent[T]]) -> Future[T]:
        """Submit a call and return its future. Errors before it is submitted are set on the future, too."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # a cancelled future would not stop the call
        try:
            self._check_open()
            call = make()
        except KafkaError as error:
            future.set_exception(error)
            return future
        call.future.add_done_callback(functools.partial(pass_on, future))
        self._asked.add(call)
        try:
            self._check_open()
            self.network_thread.submit(None, call)
        except KafkaError as error:
            call.fail(error)
        return future

    def _each(self, call: KeyedCall[K, V], *, partial: bool) -> Outcomes[K, V]:
        return as_asked(self._call(call), partial=partial)

    def _living(self, timer: tuple[int, int]) -> tuple[int, ...]:
        return tuple(broker.node_id for broker in self._call(DescribeCluster(*timer)).brokers)

    def close(self) -> None:
        """Release the network thread. Pending calls in other threads raise ClientClosed. It may be called again."""
        if not self._closed:
            self._closed = True
            self._asked.end(self.network_thread)
            release(self.network_thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
