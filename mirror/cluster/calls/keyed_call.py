"""Calls over many keys, each with a result or an error of its own. No I/O."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Final

from mirror.cluster.calls.routed_calls import ANY, Call, ClusterView, Failures
from mirror.cluster.coordinators import KeyType
from mirror.cluster.requests import Lane
from mirror.cluster.types import K, Outcomes, V
from mirror.errors import KafkaError, KafkaTimeout, UnsupportedVersion
from mirror.wire.error_codes import REQUEST_TIMED_OUT, ErrorAction, broker_error, verdict
from mirror.wire.integers import INT32_MAX
from mirror.wire.messages.base import Message

_MAX_ERRORS_SHOWN: Final = 20
"""Failures named in one error text; ``Outcomes.failed`` has all of them."""
_IN_DOUBT: Final = "it may have been done, as an attempt got no answer: check before you repeat it"
_FINAL: Final = frozenset({ErrorAction.FATAL, ErrorAction.FENCED, ErrorAction.ABORTABLE})


class KeyedCall(Call[Outcomes[K, V], K]):
    """A call whose result is :class:`Outcomes`: a refusal ends its key, not the call.

    Subclasses build the request (:meth:`body`), pass each key's part of a response to :meth:`set_result`, and return
    :meth:`unresolved` from :meth:`accept`. An error of the whole call (authentication) still fails all of it.
    """

    needs: ClassVar[str]
    """The ACL operation that the request requires."""
    final_codes: ClassVar[frozenset[int]] = frozenset()
    """Codes that end a key here, though other calls retry them."""
    missing_code: ClassVar[int] = 0
    """The code for a resource that does not exist: success for a deletion after an attempt without a response."""

    changes: bool = False
    """Whether it creates, changes or deletes something: a timeout after silence says that it may have been done."""

    def __init__(self, what: str, keys: Collection[K], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(what, keys, deadline_ms, timeout_ms)
        self._keys = dict.fromkeys(keys)
        self._done: dict[K, V] = {}
        self._failed: dict[K, KafkaError] = {}
        self._absent: set[K] = set()
        self._last_errors: dict[K, KafkaError] = {}
        self._unanswered: set[K] = set()
        self.maybe_done: set[K] = set()

    def describe(self, key: K) -> str:
        """Return the operation on ``key``, with which its error texts begin."""
        raise NotImplementedError

    def body(self, keys: Collection[K], view: ClusterView, timeout_ms: int) -> Message:
        """Return the request for ``keys``; ``timeout_ms`` fits an int32."""
        raise NotImplementedError

    def request(self, keys: Collection[K], view: ClusterView, timeout_ms: int) -> Message:
        """Return the request, and keep which keys had an attempt without a response: it may have been executed."""
        self.maybe_done |= self._unanswered.intersection(keys)
        self._unanswered.update(keys)
        return self.body(keys, view, min(timeout_ms, INT32_MAX))

    def not_sent(self, keys: Collection[K]) -> None:
        """Record that the last request for ``keys`` cannot have been executed."""
        self._unanswered.difference_update(keys)

    def set_result(self, key: K, code: int, value: V, message: str | None = None, *, needs: str | None = None) -> None:
        """Set the outcome of ``key`` by ``code``; ``value`` is its result on success."""
        if key not in self._keys:
            return
        self._unanswered.discard(key)
        if not code:  # nearly all
            self._done[key] = value
            return
        outcome = verdict(code)
        if outcome is ErrorAction.OK or (code == self.missing_code and key in self.maybe_done):
            self._done[key] = value
            return
        error = broker_error(code, self.describe(key), message, needs=needs or self.needs)
        if self.is_final(code):
            self._failed[key] = error
            return
        if code == REQUEST_TIMED_OUT:
            self.maybe_done.add(key)
        self._last_errors[key] = error

    @classmethod
    def is_final(cls, code: int) -> bool:
        """Whether a refusal ends its key, so that it is not sent again."""
        return verdict(code) in _FINAL or code in cls.final_codes

    def set_waiting(self, key: K, why: KafkaError) -> None:
        """Record why ``key`` cannot be requested yet."""
        self._last_errors[key] = self.last_error = why

    def set_failed(self, key: K, error: KafkaError) -> None:
        """Fail ``key``."""
        self._failed[key] = error

    def set_absent(self, key: K) -> None:
        """Resolve ``key`` without a result."""
        self._absent.add(key)

    def accept_absent_api(self, keys: Collection[K], error: UnsupportedVersion) -> bool:
        """Fail ``keys``: brokers of one cluster may offer different APIs, and callers can go without some."""
        for key in keys:
            self.set_failed(key, error)
        return True

    def is_resolved(self, key: K) -> bool:
        """Whether ``key`` has its outcome."""
        return key in self._done or key in self._failed or key in self._absent

    def unresolved(self, keys: Collection[K]) -> Failures:
        """Return those of ``keys`` to retry, with their errors."""
        left_out = "the broker's answer leaves it out"
        return {
            key: self._last_errors.get(key) or KafkaError(f"{self.describe(key)}: {left_out}")
            for key in keys
            if not self.is_resolved(key)
        }

    def result(self) -> Outcomes[K, V]:
        """Return the outcomes in the order of the keys."""
        done = {key: self._done[key] for key in self._keys if key in self._done}
        return Outcomes(done, {key: self._failed[key] for key in self._keys if key in self._failed})

    def expire(self) -> None:
        """Fail the unresolved keys by timeout; the last error of each is the cause."""
        for key in self._keys:
            if not self.is_resolved(key):
                why = self._last_errors.get(key, self.last_error)
                reason = f": {why}" if why else ""
                doubt = f"; {_IN_DOUBT}" if self.changes and key in self._unanswered | self.maybe_done else ""
                late = KafkaTimeout(f"{self.describe(key)} did not succeed within {self.timeout_ms} ms{reason}{doubt}")
                late.__cause__ = why
                self._failed[key] = late
        self.complete(self.result())

    def finish_if_resolved(self) -> None:
        """Complete a call whose last keys were resolved without a request."""
        if self.finished:
            self.complete(self.result())


class ControllerCall(KeyedCall[K, V]):
    """A call that changes the cluster, sent to the controller; any other broker forwards it (KIP-590)."""

    changes = True

    def route(self, view: ClusterView) -> Mapping[int | None, Collection[K]]:
        """Route to the controller if it is known."""
        return {view.metadata.controller if view.metadata.controller is not None else ANY: set(self.pending)}


class BrokersCall(KeyedCall[int, V]):
    """A call that every broker answers for itself; the keys are the ids of the brokers."""

    def route(self, view: ClusterView) -> Mapping[int | None, Collection[int]]:
        """Route each key to its broker; one that is not in the cluster (now) is waited for."""
        routes: dict[int | None, Collection[int]] = {}
        for node in self.pending:
            why = absent_broker(node, view)
            if why is None:
                routes[node] = (node,)
            else:
                self.set_waiting(node, why)
        return routes


class GroupsCall(KeyedCall[str, V]):
    """A call over groups, or transactional ids (``kind``), each answered by its coordinator.

    The keys of one coordinator share a request.
    """

    lane = Lane.COORDINATOR
    kind: ClassVar[KeyType] = KeyType.GROUP

    def route(self, view: ClusterView) -> Mapping[int | None, Collection[str]]:
        """Route by coordinator; groups whose coordinator is unknown wait, those whose lookup is refused fail."""
        routes: dict[int | None, list[str]] = {}
        for group in sorted(self.pending):
            try:
                node = coordinator(group, view, self.kind)
            except KafkaError as error:
                self.set_failed(group, error)
                self.pending.discard(group)
                continue
            if node is not None:
                routes.setdefault(node, []).append(group)
            else:
                why = view.coordinators.why_unknown(self.kind, group) or view.metadata.last_error
                if why is not None:
                    self.set_waiting(group, why)
        self.finish_if_resolved()
        return routes

    def reroute(self, keys: Collection[str], view: ClusterView) -> None:
        """Look up the coordinators again."""
        for group in keys:
            view.coordinators.forget(self.kind, group)


def coordinator(group: str, view: ClusterView, kind: KeyType = KeyType.GROUP) -> int | None:
    """Return the coordinator of a group, or of another ``kind`` of key; None while it is looked up.

    Raises KafkaError if the lookup was refused.
    """
    node = view.coordinators.node(kind, group)
    if node is not None and node not in view.metadata.brokers:
        view.metadata.request_brokers()  # one that joined later
        return None
    return node


def absent_broker(node: int, view: ClusterView) -> KafkaError | None:
    """Return None if ``node`` is in the cluster, otherwise the error, and request the brokers."""
    if node in view.metadata.brokers:
        return None
    view.metadata.request_brokers()
    known = ", ".join(str(broker) for broker in sorted(view.metadata.brokers)) or "none"
    return view.metadata.last_error or KafkaError(f"broker {node} is not in the cluster; its brokers now: {known}")


def first_failure(failed: Mapping[Any, KafkaError]) -> KafkaError:
    """Return the first error, with the texts of the others. Refusals come before timeouts."""
    errors = sorted(failed.values(), key=lambda error: isinstance(error, KafkaTimeout))
    if len(errors) == 1:
        return errors[0]
    more = f"; and {len(errors) - _MAX_ERRORS_SHOWN} more" if len(errors) > _MAX_ERRORS_SHOWN else ""
    combined = copy.copy(errors[0])
    combined.args = ("; ".join(str(error) for error in errors[:_MAX_ERRORS_SHOWN]) + more,)
    combined.__cause__ = errors[0].__cause__
    return combined
