"""Copies the ranges of one task: the clients, the threads around them, and the results."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import Final

from mirror.backoff import Backoff
from mirror.client import Admin, BufferMemory, ConfigKind, ConfigResource, Consumer, Producer, TopicPartition
from mirror.cluster.settings import ClusterSettings
from mirror.consumer.settings import ConsumerSettings
from mirror.errors import MirrorError
from mirror.producer.settings import ProducerSettings
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.model.client_defaults import AROUND, PARTITION_FETCH_BYTES, batch_bytes, transaction_timeout_ms
from mirror.relay.model.observer import NullObserver, TaskObserver
from mirror.relay.model.policy import CopyPolicy, CopyTimeouts
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.progress.lookups import ClusterLookups
from mirror.relay.progress.progress_topic import ProgressRecord, ProgressTopic
from mirror.relay.task.task import Clients, HandOver, Task
from mirror.runtime.clock import SystemClock, process_rng
from mirror.runtime.memory.malloc_tuning import bound_heap

_log = logging.getLogger(__name__)

_SWITCH_S: Final = 0.0005
_FACTS_MS: Final = 10_000
_SMALLEST_PART: Final = 16 * 1024
_RELEASED: Final = 3
"""This part of ``fetch.max.bytes`` is for answers that are done with: the next ones come into their memory."""
_NOTES_MS: Final = 10_000
"""How long a task waits for its notes to be written: the progress itself is committed."""


def copy_ranges(
    ranges: Sequence[Range],
    *,
    source_options: Mapping[str, object],
    target_options: Mapping[str, object],
    policy: CopyPolicy,
    watcher: TaskObserver | None = None,
) -> list[RangeResult]:
    """Copy all ``ranges`` of one flow; a result for each, in order. Never raises for what a cluster or partition does.

    ``source_options`` are a consumer's, ``target_options`` a producer's dotted keys. Memory: ``buffer.memory`` for what
    is on its way, ``fetch.max.bytes`` for what is fetched ahead and all around it, 50 KB for each partition, half a MB
    for the task; beyond that what is encoded anew, and the first batch from each source broker that is larger than any
    before.
    ``watcher`` is told how it goes, from the thread that copies.
    """
    clock = SystemClock()
    started = clock.now()
    try:
        copy = partial(_copy, ranges, source_options, target_options, policy, clock, watcher or NullObserver())
        results = _leased(copy) if policy.lease_ms and policy.exactly_once else copy()
    except MirrorError as error:
        results = [RangeResult.begun(one, one.start, Outcome.FAILED, str(error)) for one in ranges]
    for result in results:
        result.seconds = result.seconds or max(0.001, (clock.now() - started) / 1000)
    return results


def _leased(copy: Callable[[HandOver], list[RangeResult]]) -> list[RangeResult]:
    """The results when the epoch is over; the copies go on in a thread of their own, for a while.

    Nobody else would copy until the next epoch has begun. The thread is no reason for the process to stay.
    """
    handed: Future[list[RangeResult]] = Future()

    def run() -> None:
        try:
            results = copy(handed.set_result)
        except BaseException as error:  # noqa: BLE001 - whoever waits is told
            if handed.done():
                _log.exception("the epoch is over, and what went on behind it has failed")
            else:
                handed.set_exception(error)
        else:
            if not handed.done():
                handed.set_result(results)

    threading.Thread(target=run, name="mirror-epoch", daemon=True).start()
    return handed.result()


def _copy(
    ranges: Sequence[Range],
    source_options: Mapping[str, object],
    target_options: Mapping[str, object],
    policy: CopyPolicy,
    clock: SystemClock,
    watcher: TaskObserver,
    hand_over: HandOver | None = None,
) -> list[RangeResult]:
    # Each partition has an id of its own later on; keys about transactions need one to be checked.
    some_id = {"transactional.id": "mirror"} if policy.exactly_once else {}
    writing = ProducerSettings.parse({**target_options, **some_id})
    backlogs = max(1, sum(one.end > one.start for one in ranges))
    asked = ConsumerSettings.parse({"max.partition.fetch.bytes": PARTITION_FETCH_BYTES, **source_options})
    source_options = _reading_options(
        source_options, asked, backlogs, writing.buffer_memory, policy.max_bytes_per_second
    )
    reading = ConsumerSettings.parse(source_options)
    bound_heap(asked.fetch_max_bytes // _RELEASED)
    times = CopyTimeouts(
        delivery_ms=writing.delivery_timeout_ms,
        request_ms=writing.cluster.request_timeout_ms,
        stall_ms=reading.cluster.default_api_timeout_ms,
        commit_ms=policy.commit_interval_ms,
        commit_min_ms=policy.commit_min_interval_ms,
    )
    targets = [TopicPartition(one.target_topic, one.partition) for one in ranges]
    flow = ranges[0].flow
    # The encoder computes beside the network threads: with the default of 5 ms these would wait so long for the
    # interpreter behind every call on a socket (bench_deep).
    sys.setswitchinterval(_SWITCH_S)
    with ExitStack() as stack:
        source_admin = stack.enter_context(Admin(cluster_options(source_options)))
        admin = stack.enter_context(Admin(cluster_options(target_options)))
        consumer = stack.enter_context(Consumer(source_options))
        notes = ProgressTopic(target_options, flow)
        inquiries = ClusterLookups(
            flow, source_admin, admin, notes, targets, start_over=policy.start_over, timeout_ms=times.stall_ms
        )
        target_options = _writing_options(target_options, times, policy)
        clients = Clients(
            consumer=consumer,
            admin=admin,
            inquiries=inquiries,
            target_options=target_options,
            memory=BufferMemory(writing.buffer_memory),
            # A transactional producer for each partition, or one for all of them.
            producer=None if policy.exactly_once else stack.enter_context(Producer(target_options)),
        )
        backoff = Backoff(
            writing.cluster.reconnect_backoff_ms, max(1_000, writing.cluster.reconnect_backoff_max_ms), process_rng()
        )
        task = Task(
            clients,
            policy,
            times,
            clock,
            backoff,
            buffer_memory=writing.buffer_memory,
            part=reading.max_partition_fetch_bytes,
            watcher=watcher,
        )
        stack.callback(task.close)
        most = batch_bytes(writing.batch_size, writing.buffer_memory)
        together = writing.batch_size if "batch.size" in target_options else most
        results = task.run(ranges, _facts(admin, targets), together, hand_over)
        if task.may_be_the_last:
            _write_notes(inquiries, task.kept())
    return results


def cluster_options(options: Mapping[str, object]) -> dict[str, object]:
    """Those of ``options`` that say how to reach a cluster."""
    known = ClusterSettings.keys()
    return {key: value for key, value in options.items() if key in known}


def _reading_options(
    options: Mapping[str, object],
    reading: ConsumerSettings,
    partitions: int,
    buffer_memory: int,
    bytes_per_second: int,
) -> dict[str, object]:
    """A gap is reported, never skipped; and no partition takes so much at a time that the others have no room."""
    part = min(reading.max_partition_fetch_bytes, max(_SMALLEST_PART, buffer_memory // (2 * partitions)))
    most = reading.fetch_max_bytes
    ahead = max(1, most - most // AROUND - most // _RELEASED)
    if bytes_per_second:
        # What is fetched ahead comes all at once: no more than a second's worth.
        ahead = min(ahead, max(_SMALLEST_PART, bytes_per_second))
    return {
        **options,
        "auto.offset.reset": "none",
        "isolation.level": "read_committed",
        "max.partition.fetch.bytes": min(part, ahead),
        "fetch.max.bytes": ahead,
    }


def _writing_options(options: Mapping[str, object], times: CopyTimeouts, policy: CopyPolicy) -> dict[str, object]:
    """A transaction must not end before its batches' own time does, or an expiry would look like fencing."""
    if not policy.exactly_once:
        return dict(options)
    timeout_ms = transaction_timeout_ms(times.delivery_ms, times.request_ms, times.commit_ms)
    return {"transaction.timeout.ms": timeout_ms, **options}


def _facts(admin: Admin, targets: Sequence[TopicPartition]) -> dict[str, TargetLimits]:
    """What each target topic accepts; where that may not be read, the brokers will tell. Raises KafkaError."""
    resources = {topic: ConfigResource(ConfigKind.TOPIC, topic) for topic in {tp.topic for tp in targets}}
    told = admin.describe_configs(resources.values(), partial=True, timeout_ms=_FACTS_MS)
    return {topic: TargetLimits.of(told.get(resource, {})) for topic, resource in resources.items()}


def _write_notes(inquiries: ClusterLookups, kept: dict[TopicPartition, ProgressRecord]) -> None:
    for tp, error in inquiries.keep(kept, _NOTES_MS).items():
        _log.warning("the progress of %s is committed, but was not noted in the progress topic: %s", tp, error)
