"""Commits of single partitions' offsets, of which those of a group share requests. No I/O."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from mirror.backoff import Backoff
from mirror.cluster.calls.group_offset_calls import offset_commit_request
from mirror.cluster.calls.keyed_call import coordinator
from mirror.cluster.calls.routed_calls import ClusterView
from mirror.cluster.coordinators import KeyType
from mirror.cluster.events import CompletableEvent
from mirror.cluster.request_state import KeyStates
from mirror.cluster.requests import IDLE, Lane, Poll, Request
from mirror.cluster.settings import ClusterSettings
from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.errors import KafkaError, NotRetriable
from mirror.wire.api import Api
from mirror.wire.error_codes import ErrorAction, broker_error, verdict
from mirror.wire.messages.groups import OffsetCommitRequest, OffsetCommitResponse

_FINAL: Final = frozenset({ErrorAction.FATAL, ErrorAction.FENCED, ErrorAction.ABORTABLE})


class CommitOffset(CompletableEvent[None]):
    """Commits the offset of one partition, for a group without members."""

    def __init__(
        self, group: str, tp: TopicPartition, offset: OffsetAndMetadata, deadline_ms: int, timeout_ms: int
    ) -> None:
        super().__init__(f"committing offsets of group {group!r}, {tp}", deadline_ms, timeout_ms)
        self.group: Final = group
        self.tp: Final = tp
        self.offset: Final = offset
        self.failed = False
        """Whether an attempt has failed."""
        self._waits: tuple[ClusterView, int] | None = None

    @property
    def advancing(self) -> bool:
        """Whether what it waits for has arrived since: the coordinator, or the end of the request before it.

        It does not once an attempt has failed: the deadline is checked before the next one.
        """
        waited = self._waits is not None and self._waits[0].answers != self._waits[1]
        return not self.failed and (self.stepped or waited)

    def wait_for_coordinator(self, view: ClusterView, why: KafkaError | None) -> None:
        """Record that the coordinator is unknown, because of ``why``."""
        self.stepped, self._waits = False, (view, view.answers)
        self.last_error = why or self.last_error

    def begin_attempt(self) -> None:
        """Record that it is in flight."""
        self.stepped, self._waits = False, None

    def apply(self, core: Any, now: int) -> None:
        """Add it to the commits of its group."""
        del now
        core.offset_commits.add(self)


_Commits = dict[TopicPartition, list[CommitOffset]]
"""The commits of each partition, oldest first: the last one is sent, and its outcome is that of all."""


class _Group:
    """The commits of one group."""

    def __init__(self) -> None:
        self.waiting: _Commits = {}
        self.in_flight: _Commits = {}

    def drop_done(self) -> None:
        """Drop the waiting commits that expired, or whose client was closed."""
        if any(commit.future.done() for commit in _each(self.waiting)):
            left = {tp: [one for one in commits if not one.future.done()] for tp, commits in self.waiting.items()}
            self.waiting = {tp: commits for tp, commits in left.items() if commits}

    def ready(self, now: int) -> list[TopicPartition]:
        """Return the waiting partitions, without those of which only retries after their deadlines would be sent."""
        return [
            tp for tp, commits in self.waiting.items() if not (commits[-1].failed and commits[-1].deadline_ms <= now)
        ]

    def take(self, tps: Collection[TopicPartition]) -> None:
        """Move the commits of ``tps`` from waiting to in flight."""
        self.in_flight = {tp: self.waiting.pop(tp) for tp in tps}
        for commit in _each(self.in_flight):
            commit.begin_attempt()

    def put_back(self, tps: Iterable[TopicPartition]) -> None:
        """Move the commits of ``tps`` from in flight to waiting, before the later ones of the same partitions."""
        for tp in tps:
            self.waiting[tp] = [*self.in_flight[tp], *self.waiting.get(tp, ())]


class OffsetCommits:
    """The pending :class:`CommitOffset` events of one cluster; at most one request of a group is in flight.

    What comes meanwhile shares the group's next request. Each partition succeeds, fails, is retried (KIP-580) and
    expires on its own: a broker answers each one with a code of its own.
    """

    def __init__(self, settings: ClusterSettings, view: ClusterView, rng: random.Random) -> None:
        self._request_timeout_ms = settings.request_timeout_ms
        self._states: KeyStates[tuple[str, TopicPartition]] = KeyStates(
            Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, rng)
        )
        self._view = view
        self._groups: dict[str, _Group] = {}

    def add(self, commit: CommitOffset) -> None:
        """Commit with the next request of its group."""
        group = self._groups.setdefault(commit.group, _Group())
        group.waiting.setdefault(commit.tp, []).append(commit)

    def poll(self, now: int) -> Poll:
        """Return a request for each group that has commits to send and none in flight."""
        if not self._groups:
            return IDLE
        self._states.rested(now)
        requests: list[Request] = []
        for name, group in list(self._groups.items()):
            if group.in_flight:
                continue
            group.drop_done()
            ready = [tp for tp in group.ready(now) if (name, tp) not in self._states.resting]
            if not group.waiting:
                del self._groups[name]
            elif ready and (node := self._coordinator(name, group)) is not None:
                group.take(ready)
                requests.append(self._request(name, group, node))
        return Poll(requests, self._states.wait_ms(now))

    def _coordinator(self, name: str, group: _Group) -> int | None:
        metadata, coordinators = self._view.metadata, self._view.coordinators
        error: KafkaError | None = metadata.fatal_error
        node = None
        if error is None:
            try:
                node = coordinator(name, self._view)
            except KafkaError as refused:
                error = refused
        if error is not None:
            for commit in _each(group.waiting):
                commit.fail(error)
        elif node is None:
            why = coordinators.why_unknown(KeyType.GROUP, name) or metadata.last_error
            for commit in _each(group.waiting):
                commit.wait_for_coordinator(self._view, why)
        return node

    def _request(self, name: str, group: _Group, node: int) -> Request:
        # The deadlines of the commits only answer their callers: the request is awaited as long as any may be.
        return Request(
            api=Api.OFFSET_COMMIT,
            body=self._body(name, group.in_flight),
            node=node,
            lane=Lane.COORDINATOR,
            timeout_ms=self._request_timeout_ms,
            on_response=self._on_response(name, group),
            on_failure=lambda error, now: self._end(name, group, dict.fromkeys(group.in_flight, error), now),
            unwanted=lambda: all(commit.future.done() for commit in _each(group.in_flight)),
        )

    @staticmethod
    def _body(name: str, commits: _Commits) -> OffsetCommitRequest:
        return offset_commit_request(name, {tp: of_tp[-1].offset for tp, of_tp in commits.items()})

    def _on_response(self, name: str, group: _Group) -> Callable[[OffsetCommitResponse, int], None]:
        def answer(response: OffsetCommitResponse, now: int) -> None:
            failed: dict[TopicPartition, KafkaError] = {
                tp: KafkaError(f"{commits[-1].what}: the broker's answer leaves it out")
                for tp, commits in group.in_flight.items()
            }
            for topic in response.topics:
                for entry in topic.partitions:
                    tp = TopicPartition(topic.name, entry.partition_index)
                    if verdict(entry.error_code) is ErrorAction.OK:
                        failed.pop(tp, None)
                    elif tp in failed:
                        failed[tp] = self._error(entry.error_code, group.in_flight[tp])
            self._end(name, group, failed, now)

        return answer

    @staticmethod
    def _error(code: int, commits: list[CommitOffset]) -> KafkaError:
        error = broker_error(code, commits[-1].what, needs="Read")
        if verdict(code) in _FINAL:
            for commit in commits:
                commit.fail(error)
        return error

    def _end(self, name: str, group: _Group, failed: Mapping[TopicPartition, KafkaError], now: int) -> None:
        """End the request in flight: those that ``failed`` are retried, unless no retry can help."""
        retried = []
        for tp, commits in group.in_flight.items():
            error = failed.get(tp)
            for commit in commits:
                if error is None:
                    commit.complete(None)
                elif isinstance(error, NotRetriable):
                    commit.fail(error)
                else:
                    commit.last_error, commit.failed = error, True
            if not all(commit.future.done() for commit in commits):
                retried.append(tp)
        self._states.succeeded([(name, tp) for tp in group.in_flight if tp not in failed])
        self._states.failed([(name, tp) for tp in retried], now)
        if len(failed) == len(group.in_flight):  # otherwise the coordinator is the right one
            self._view.coordinators.forget(KeyType.GROUP, name)
        group.put_back(retried)
        group.in_flight = {}
        for commit in _each(group.waiting):
            commit.stepped = commit.tp not in failed  # its turn has come: it expires after this attempt at the earliest


def _each(commits: _Commits) -> Iterator[CommitOffset]:
    for of_partition in commits.values():
        yield from of_partition
