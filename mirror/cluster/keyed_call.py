"""Calls over many keys that share no fate: each is taken to its own end, and what became of each is told."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Final

from mirror.cluster.calls import ANY, Call, ClusterView, Failures
from mirror.cluster.coordinators import KeyType
from mirror.cluster.requests import Lane
from mirror.cluster.types import K, Outcomes, V
from mirror.errors import KafkaError, KafkaTimeout
from mirror.wire.error_codes import ErrorAction, broker_error, verdict
from mirror.wire.messages.base import Message

GROUP_ID_NOT_FOUND: Final = 69
_REQUEST_TIMED_OUT: Final = 7
_NAMED: Final = 20
"""How many failures one error's text tells; ``Outcomes.failed`` has them all."""
_INT32_MAX: Final = 2**31 - 1


class KeyedCall(Call[Outcomes[K, V], K]):
    """A call whose result is :class:`Outcomes`: a refusal ends its key, not the call.

    Subclasses make the request's body (:meth:`body`), hand each key's part of an answer to :meth:`take`, and end
    :meth:`accept` by what is still :meth:`open`. An error that holds for the whole call (no trust, brokers too old)
    still fails it whole.
    """

    needs: ClassVar[str]
    """The ACL operation that the request takes."""
    final: ClassVar[frozenset[int]] = frozenset()
    """Codes that end a key here, though a retry may help elsewhere: who answers has the last word."""
    gone: ClassVar[int] = 0
    """The code for "it is not there": for a deletion tried before without an answer, that is success."""

    def __init__(self, what: str, keys: Collection[K], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(what, keys, deadline_ms, timeout_ms)
        self._keys = dict.fromkeys(keys)
        self._done: dict[K, V] = {}
        self._failed: dict[K, KafkaError] = {}
        self._absent: set[K] = set()
        self._why: dict[K, KafkaError] = {}
        self._unanswered: set[K] = set()
        self.uncertain: set[K] = set()

    def about(self, key: K) -> str:
        """What is done, to which key: the beginning of its errors."""
        raise NotImplementedError

    def body(self, keys: Collection[K], view: ClusterView, timeout_ms: int) -> Message:
        """The request for ``keys``; ``timeout_ms`` fits an int32."""
        raise NotImplementedError

    def request(self, keys: Collection[K], view: ClusterView, timeout_ms: int) -> Message:
        """Notes what was asked before without an answer: it may have been done."""
        self.uncertain |= self._unanswered.intersection(keys)
        self._unanswered.update(keys)
        return self.body(keys, view, min(timeout_ms, _INT32_MAX))

    def take(self, key: K, code: int, value: V, message: str | None = None, *, needs: str | None = None) -> None:
        """``key`` was answered with ``code``; ``value`` is its result where that is success."""
        if key not in self._keys:
            return
        self._unanswered.discard(key)
        outcome = verdict(code)
        if outcome is ErrorAction.OK or (code == self.gone and key in self.uncertain):
            self._done[key] = value
            return
        error = broker_error(code, self.about(key), message, needs=needs or self.needs)
        if outcome in {ErrorAction.FATAL, ErrorAction.FENCED, ErrorAction.ABORTABLE} or code in self.final:
            self._failed[key] = error
            return
        if code == _REQUEST_TIMED_OUT:
            self.uncertain.add(key)
        self._why[key] = error

    def waiting(self, key: K, why: KafkaError) -> None:
        """``key`` cannot be asked for yet."""
        self._why[key] = self.last_error = why

    def refuse(self, key: K, error: KafkaError) -> None:
        """``key`` failed for good."""
        self._failed[key] = error

    def absent(self, key: K) -> None:
        """``key`` was answered, and there is nothing to tell."""
        self._absent.add(key)

    def settled(self, key: K) -> bool:
        """Whether ``key`` has come to its end."""
        return key in self._done or key in self._failed or key in self._absent

    def open(self, keys: Collection[K]) -> Failures:
        """Those of ``keys`` to ask for again, with why."""
        left_out = "the broker's answer leaves it out"
        return {
            key: self._why.get(key) or KafkaError(f"{self.about(key)}: {left_out}")
            for key in keys
            if not self.settled(key)
        }

    def result(self) -> Outcomes[K, V]:
        """In the order of the keys, whatever order they were answered in."""
        done = {key: self._done[key] for key in self._keys if key in self._done}
        return Outcomes(done, {key: self._failed[key] for key in self._keys if key in self._failed})

    def expire(self) -> None:
        """Time is up: for the keys that are still open. The last failure seen of each is its error's cause."""
        for key in self._keys:
            if not self.settled(key):
                why = self._why.get(key, self.last_error)
                reason = f": {why}" if why else ""
                late = KafkaTimeout(f"{self.about(key)} did not succeed within {self.timeout_ms} ms{reason}")
                late.__cause__ = why
                self._failed[key] = late
        self.complete(self.result())

    def finish_if_settled(self) -> None:
        """End a call whose last keys were settled without a request."""
        if self.finished:
            self.complete(self.result())


class ControllerCall(KeyedCall[K, V]):
    """A call that changes the cluster; any broker passes it on to the controller (KIP-590), the one named is asked."""

    def route(self, view: ClusterView) -> Mapping[int | None, Collection[K]]:
        """To the controller where one is known."""
        return {view.metadata.controller if view.metadata.controller is not None else ANY: set(self.pending)}


class BrokersCall(KeyedCall[int, V]):
    """A call that every broker answers for itself; the keys are their ids."""

    def route(self, view: ClusterView) -> Mapping[int | None, Collection[int]]:
        """Each to itself; one that is not there (now) is waited for."""
        routes: dict[int | None, Collection[int]] = {}
        for node in self.pending:
            why = absent_broker(node, view)
            if why is None:
                routes[node] = (node,)
            else:
                self.waiting(node, why)
        return routes


class GroupsCall(KeyedCall[str, V]):
    """A call over groups, each answered by its coordinator; those of one coordinator go in one request.

    Or over transactional ids, where ``kind`` says so.
    """

    lane = Lane.COORDINATOR
    kind: ClassVar[KeyType] = KeyType.GROUP

    def route(self, view: ClusterView) -> Mapping[int | None, Collection[str]]:
        """By coordinator; groups whose coordinator is not known yet wait, those refused are at their end."""
        routes: dict[int | None, list[str]] = {}
        for group in sorted(self.pending):
            try:
                node = coordinator(group, view, self.kind)
            except KafkaError as error:
                self.refuse(group, error)
                self.pending.discard(group)
                continue
            if node is not None:
                routes.setdefault(node, []).append(group)
            else:
                why = view.coordinators.why_unknown(self.kind, group) or view.metadata.last_error
                if why is not None:
                    self.waiting(group, why)
        self.finish_if_settled()
        return routes

    def reroute(self, keys: Collection[str], view: ClusterView) -> None:
        """Look the coordinators up again."""
        for group in keys:
            view.coordinators.forget(self.kind, group)


def coordinator(group: str, view: ClusterView, kind: KeyType = KeyType.GROUP) -> int | None:
    """The coordinator of a group, or of another ``kind`` of key; None while it is looked up.

    Raises KafkaError where the look-up was refused.
    """
    node = view.coordinators.node(kind, group)
    if node is not None and node not in view.metadata.brokers:
        view.metadata.request_update()  # a broker that came later
        return None
    return node


def absent_broker(node: int, view: ClusterView) -> KafkaError | None:
    """None where ``node`` is in the cluster; else why it cannot be asked, and metadata is asked for again."""
    if node in view.metadata.brokers:
        return None
    view.metadata.request_update()
    known = ", ".join(str(one) for one in sorted(view.metadata.brokers)) or "none"
    return view.metadata.last_error or KafkaError(f"broker {node} is not in the cluster; its brokers now: {known}")


def first_failure(failed: Mapping[Any, KafkaError]) -> KafkaError:
    """The first error, of its own class, its text naming the others too. A refusal goes before a time-out."""
    errors = sorted(failed.values(), key=lambda error: isinstance(error, KafkaTimeout))
    if len(errors) == 1:
        return errors[0]
    more = f"; and {len(errors) - _NAMED} more" if len(errors) > _NAMED else ""
    made = copy.copy(errors[0])
    made.args = ("; ".join(str(error) for error in errors[:_NAMED]) + more,)
    made.__cause__ = errors[0].__cause__
    return made
