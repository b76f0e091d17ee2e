"""A core that does simple work by way of the loop, and writes down when: many of them share one."""

from __future__ import annotations

from dataclasses import dataclass

from mirror.cluster.coordinators import KeyType
from mirror.cluster.events import Event
from mirror.cluster.loop import ClusterLoop, LeaveEvent
from mirror.cluster.requests import Lane, Poll, Request
from mirror.cluster.types import TopicPartition
from mirror.errors import KafkaError, KafkaTimeout
from mirror.timing import FOREVER_MS
from mirror.wire.api import Api
from mirror.wire.messages.metadata import MetadataRequest

RETRY_MS = 50


@dataclass(slots=True, eq=False)
class Job:
    """Ask the leader of ``tp``, or the coordinator of ``group``, something of ``size`` bytes, not before ``due_ms``.

    ``then`` is what its answer makes the worker do next.
    """

    name: str
    tp: TopicPartition
    due_ms: int = 0
    group: str = ""
    size: int = 100
    timeout_ms: int = 30_000
    then: Job | None = None


class Worker:
    """``done`` are (job, ms); ``polls`` counts how often it was asked; ``sent`` is shared: jobs in order of sending."""

    def __init__(self, loop: ClusterLoop, sent: list[str], *, every_turn: bool = False) -> None:
        self.every_turn = every_turn
        self.polls = 0
        self.done: list[tuple[str, int]] = []
        self.sent = sent
        self.left = False
        self._loop = loop
        self._jobs: list[Job] = []

    def add(self, job: Job) -> None:
        self._jobs.append(job)

    def poll(self, now: int) -> Poll:
        self.polls += 1
        assert not self.left
        requests = []
        wait = FOREVER_MS
        for job in list(self._jobs):
            if job.due_ms > now:
                wait = min(wait, job.due_ms - now)
                continue
            node = self._node(job)
            pool = self._loop.coordinator_pool if job.group else self._loop.produce_pool
            slot = None if node is None else pool.pick(node, now)
            if slot is not None:
                self._jobs.remove(job)
                self.sent.append(job.name)
                requests.append(pool.carry(slot, self._request(job), job.size, now))
        return Poll(requests, wait)

    def _node(self, job: Job) -> int | None:
        metadata = self._loop.metadata
        metadata.want((job.tp.topic,))
        if job.group:
            node = self._loop.coordinators.node(KeyType.GROUP, job.group)
            if node is not None and node not in metadata.brokers:
                metadata.request_update()
            return node if node in metadata.brokers else None
        leader = metadata.leader(job.tp)
        if leader is None:
            metadata.request_update()
        return None if leader is None else leader.node

    def _request(self, job: Job) -> Request:
        return Request(
            api=Api.METADATA,
            body=MetadataRequest(()),
            node=None,
            lane=Lane.CONTROL,
            timeout_ms=job.timeout_ms,
            on_response=lambda _, at: self._answered(job, at),
            on_failure=lambda error, at: self._again(job, error, at),
        )

    def _answered(self, job: Job, now: int) -> None:
        self.done.append((job.name, now))
        if job.then is not None:
            self._jobs.append(job.then)

    def _again(self, job: Job, error: KafkaError, now: int) -> None:
        job.due_ms = now + RETRY_MS
        self._jobs.append(job)
        if not isinstance(error, KafkaTimeout):
            self._loop.metadata.request_update()
        if job.group:
            self._loop.coordinators.forget(KeyType.GROUP, job.group)

    def leave(self, event: LeaveEvent, now: int) -> None:
        del now
        self._jobs.clear()
        event.complete(None)

    def on_removed(self) -> None:
        self.left = True

    def fail(self, error: BaseException) -> None:
        raise NotImplementedError


class JobEvent(Event):
    """Something to do for a worker."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def apply(self, core: Worker, now: int) -> None:
        self._job.due_ms += now
        core.add(self._job)
