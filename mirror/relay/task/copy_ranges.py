"""Copies the ranges of one task: creates the clients and the task, and returns the results."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from mirror.backoff import Backoff
from mirror.client import Admin, BufferMemory, Consumer, Producer, TopicPartition
from mirror.cluster.settings import ClusterSettings
from mirror.consumer.settings import ConsumerSettings
from mirror.errors import KafkaTimeout, MirrorError
from mirror.producer.settings import ProducerSettings
from mirror.relay.model.client_defaults import (
    OVERHEAD_FRACTION,
    PARTITION_FETCH_BYTES,
    batch_bytes,
    transaction_timeout_ms,
)
from mirror.relay.model.observer import NullObserver, TaskObserver
from mirror.relay.model.policy import SEGMENTS_MS, CopyPolicy, CopyTimeouts
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.model.reports import FAILED, TaskState
from mirror.relay.model.way import Way
from mirror.relay.offsets.offset_topic import OffsetKeeper, OffsetTopic
from mirror.relay.offsets.translator import complete_index
from mirror.relay.origin.registration import IdRegistration, open_registration
from mirror.relay.origin.registry import open_origin, registry_topic
from mirror.relay.partition.search.position_search import LogPositionSearch
from mirror.relay.partition.writers.fence import transactional_id
from mirror.relay.progress.anchor_keeper import AnchorKeeper
from mirror.relay.progress.anchors import Anchor, AnchorKey
from mirror.relay.progress.lookup.lookups import ClusterLookups
from mirror.relay.progress.lookup.loss_recovery import TargetHealing
from mirror.relay.progress.progress_topic import ProgressRecord, ProgressTopic
from mirror.relay.task.assignment_reading import load_entries
from mirror.relay.task.beginning import copy_once_clusters_answer, is_bounded
from mirror.relay.task.reporting import MAX_ERROR_LENGTH, SendReport
from mirror.relay.task.taking import Selection, load_taken, read_progress
from mirror.relay.task.task import Task
from mirror.relay.task.topic_rules import TopicRules, read_topic_rules
from mirror.relay.task.workers import max_decompressed_bytes
from mirror.relay.task.writers import Clients
from mirror.runtime.clock import SystemClock, process_rng
from mirror.runtime.memory.malloc_tuning import bound_heap, collect_ended_tasks

_log = logging.getLogger(__name__)

_SWITCH_INTERVAL_S: Final = 0.0005
_MIN_AHEAD_BYTES: Final = 16 * 1024
_RESPONSES_FRACTION: Final = 3
"""This part of ``fetch.max.bytes`` is memory of processed responses, which the next responses reuse."""
_MIN_BACKOFF_MAX_MS: Final = 1_000
_PROGRESS_TOPIC_TIMEOUT_MS: Final = 10_000
"""How long a task waits for the progress topic at its end: the progress itself is committed."""


# Invariant: The memory of a copy is bounded by its configuration, not by its backlog.
# Test: tests/copying/test_bounds.py::test_memory_stays_within_its_bound_for_every_backlog
def copy_ranges(
    ranges: Sequence[Range],
    *,
    source_options: Mapping[str, object],
    target_options: Mapping[str, object],
    policy: CopyPolicy,
    watcher: TaskObserver | None = None,
    selection: Selection | None = None,
    send: SendReport | None = None,
    flow: str = "",
) -> list[RangeResult]:
    """Copy ``ranges`` of one flow, and what is assigned to the task meanwhile, until all of them have ended.

    Return the results of what the task has at its end: of ``ranges`` in their order, then of what it was given. Those
    of partitions that it has released were reported, with ``send``. It may begin without ranges; ``flow`` is then the
    flow's name. Never raises for a cluster or partition if all ranges have ends.

    ``source_options`` are a consumer's, ``target_options`` a producer's dotted keys. ``watcher`` is called from the
    thread that copies. ``selection`` is that of the configuration; without it all is copied that is assigned.

    Memory: ``buffer.memory`` for what is in flight, ``fetch.max.bytes`` for what is fetched ahead with its overhead,
    50 KB for each partition, half a MB for the task. In addition, what is re-encoded, and the first batch from each
    source broker that is larger than any before.
    """
    clock = SystemClock()
    started = clock.now()
    try:
        copy = partial(
            _copy,
            ranges,
            source_options,
            target_options,
            policy,
            clock,
            watcher or NullObserver(),
            selection,
            send=send,
            flow=flow,
        )
        named = flow or ranges[0].flow
        report = partial(_report_failure, send or _ignore, policy, clock)
        results = copy_once_clusters_answer(copy, ranges, policy, cluster_options(target_options), named, clock, report)
    except MirrorError as error:
        if not is_bounded(ranges):
            raise
        # A cluster that does not answer now may answer the next attempt; nothing has been copied.
        outcome = Outcome.UNFINISHED if isinstance(error, KafkaTimeout) else Outcome.FAILED
        results = [RangeResult.initial(ended, ended.start, outcome, str(error)) for ended in ranges]
    for result in results:
        result.seconds = result.seconds or max(0.001, (clock.now() - started) / 1000)
    return results


def _copy(
    ranges: Sequence[Range],
    source_options: Mapping[str, object],
    target_options: Mapping[str, object],
    policy: CopyPolicy,
    clock: SystemClock,
    observer: TaskObserver,
    selection: Selection | None = None,
    *,
    send: SendReport | None = None,
    flow: str = "",
) -> list[RangeResult]:
    flow = flow or ranges[0].flow
    targets = [TopicPartition(copied.target_topic, copied.partition) for copied in ranges]
    first = targets[0] if targets else TopicPartition("", 0)  # each partition has its own transactional id
    producer_settings = _producer_settings(target_options, policy, transactional_id(flow, first))
    buffer_memory = producer_settings.buffer_memory
    configured = ConsumerSettings.parse({"max.partition.fetch.bytes": PARTITION_FETCH_BYTES, **source_options})
    source_options = _source_options(source_options, configured, policy.max_bytes_per_second)
    consumer_settings = ConsumerSettings.parse(source_options)
    bound_heap(configured.fetch_max_bytes // _RESPONSES_FRACTION)
    collect_ended_tasks()
    timeouts = CopyTimeouts(
        delivery_timeout_ms=producer_settings.delivery_timeout_ms,
        request_timeout_ms=producer_settings.cluster.request_timeout_ms,
        stall_ms=consumer_settings.cluster.default_api_timeout_ms,
        commit_interval_ms=policy.commit_interval_ms,
        commit_min_interval_ms=policy.commit_min_interval_ms,
        index_interval_ms=policy.index_interval_ms,
    )
    # The encoder computes beside the network threads. With Python's default of 5 ms, these would wait that long for the
    # interpreter after each call on a socket (bench_deep).
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    with ExitStack() as stack:
        source_admin = stack.enter_context(Admin(cluster_options(source_options)))
        admin = stack.enter_context(Admin(cluster_options(target_options)))
        consumer = stack.enter_context(Consumer(source_options))
        origin = open_origin(flow, source_options, target_options, policy, timeouts.stall_ms)
        if origin is not None:
            stack.enter_context(origin)
        registration: IdRegistration | None = None
        if policy.registers_producers:
            registration = open_registration(registry_topic(target_options), flow, admin, timeouts.stall_ms)
            stack.callback(registration.close)
        progress_topic = ProgressTopic(target_options, flow)
        lookups = ClusterLookups(
            flow,
            source_admin,
            admin,
            progress_topic,
            targets,
            start_over=policy.start_over,
            restart_recreated=policy.on_target_recreated == "start-over",
            shared=policy.only_local,
            healing=_healing(flow, admin, progress_topic, targets, policy),
            timeout_ms=timeouts.stall_ms,
        )
        delivery_ms = timeouts.delivery_timeout_ms + timeouts.request_timeout_ms
        read_rules = partial(read_topic_rules, source_admin, admin, policy=policy, delivery_ms=delivery_ms)
        rules = read_rules(ranges) if ranges else TopicRules({}, {})
        progress = read_progress(admin, policy, ranges)
        shares_producer = not policy.exactly_once or policy.exactly_once_by != Way.TRANSACTIONS
        clients = Clients(
            consumer=consumer,
            admin=admin,
            lookups=lookups,
            producer_settings=producer_settings,
            memory=BufferMemory(buffer_memory),
            producer=stack.enter_context(_shared_producer(target_options, registration)) if shares_producer else None,
            origin=origin,
            registration=registration,
            positions=stack.enter_context(
                LogPositionSearch(
                    source_options,
                    target_options,
                    policy,
                    origin,
                    max_decompressed_bytes=max_decompressed_bytes(buffer_memory),
                )
            ),
            anchors=AnchorKeeper(source_admin, progress_topic),
            offsets=OffsetKeeper(
                source_admin,
                admin,
                stack.enter_context(OffsetTopic(target_options, flow, writes_often=True)),
                process_rng(),
                partial(complete_index, flow, source_options, target_options, policy),
                often=SEGMENTS_MS // policy.segments_ms,
            ),
            load_entries=partial(load_entries, admin, flow, policy.run, policy.job),
            load_taken=partial(load_taken, admin, policy, read_rules, selection),
            read_rules=read_rules,
            send_report=send or _ignore,
        )
        cluster = producer_settings.cluster
        backoff_max_ms = max(_MIN_BACKOFF_MAX_MS, cluster.reconnect_backoff_max_ms)
        batch_size = producer_settings.batch_size
        if "batch.size" not in target_options:
            batch_size = batch_bytes(batch_size, buffer_memory)
        task = Task(
            clients,
            policy,
            timeouts,
            clock,
            Backoff(cluster.reconnect_backoff_ms, backoff_max_ms, process_rng()),
            ranges,
            rules,
            progress,
            flow=flow,
            batch_size=batch_size,
            buffer_memory=buffer_memory,
            max_partition_bytes=consumer_settings.max_partition_fetch_bytes,
            observer=observer,
        )
        stack.callback(task.close)
        results = task.run()
        _write_progress(lookups, task.progress_records(), task.unwritten_anchors())
        task.write_offsets()
    return results


def _report_failure(send: SendReport, policy: CopyPolicy, clock: SystemClock, error: str) -> None:
    """Report that a task cannot begin, and is raised to Spark."""
    now_ms = clock.unix_ms()
    send(
        TaskState(
            run=policy.run,
            job=policy.job,
            task=policy.task,
            attempt=policy.attempt,
            host=socket.gethostname(),
            pid=os.getpid(),
            since_ms=now_ms,
            seen_ms=now_ms,
            version=0,
            partitions=0,
            stopping=f"{FAILED}{error[:MAX_ERROR_LENGTH]}",
        )
    )


def _ignore(report: object) -> None:
    """Send no report."""


def cluster_options(options: Mapping[str, object]) -> dict[str, object]:
    """Return those of ``options`` that every client of the cluster takes."""
    cluster_keys = ClusterSettings.keys()
    return {key: value for key, value in options.items() if key in cluster_keys}


def _producer_settings(
    options: Mapping[str, object], policy: CopyPolicy, first_transactional_id: str
) -> ProducerSettings:
    """Parse the settings of all the task's producers; exactly once, they differ in their transactional id alone."""
    if not policy.exactly_once:
        return ProducerSettings.parse(options)
    options = {**options, "transactional.id": first_transactional_id}
    settings = ProducerSettings.parse(options)
    if "transaction.timeout.ms" in options:
        return settings
    # A transaction must not end before the delivery timeout of its batches: an expiry would look like a fence.
    delivery_timeout_ms, request_timeout_ms = settings.delivery_timeout_ms, settings.cluster.request_timeout_ms
    timeout_ms = transaction_timeout_ms(delivery_timeout_ms, request_timeout_ms, policy.commit_interval_ms)
    return ProducerSettings.parse({**options, "transaction.timeout.ms": timeout_ms})


def _shared_producer(options: Mapping[str, object], registration: IdRegistration | None) -> Producer:
    """Create the producer without transactions that all copies share."""
    transactional = {"transactional.id", "transaction.timeout.ms"}
    settings = ProducerSettings.parse({key: value for key, value in options.items() if key not in transactional})
    return Producer(settings, on_producer_id=None if registration is None else registration.on_producer_id)


def _source_options(
    options: Mapping[str, object], settings: ConsumerSettings, bytes_per_second: int
) -> dict[str, object]:
    """Have gaps reported, never skipped, and limit what is fetched ahead; the task limits each partition."""
    total = settings.fetch_max_bytes
    ahead = max(1, total - total // OVERHEAD_FRACTION - total // _RESPONSES_FRACTION)
    if bytes_per_second:
        # What is fetched ahead arrives in one burst: limit it to what one second allows.
        ahead = min(ahead, max(_MIN_AHEAD_BYTES, bytes_per_second))
    return {
        **options,
        "auto.offset.reset": "none",
        "isolation.level": "read_committed",
        "max.partition.fetch.bytes": min(settings.max_partition_fetch_bytes, ahead),
        "fetch.max.bytes": ahead,
    }


def _healing(
    flow: str, target: Admin, progress_topic: ProgressTopic, targets: Sequence[TopicPartition], policy: CopyPolicy
) -> TargetHealing | None:
    if policy.on_target_loss != "heal":
        return None
    return TargetHealing(flow, target, progress_topic, targets, exactly_once=policy.exactly_once)


def _write_progress(
    lookups: ClusterLookups, records: dict[TopicPartition, ProgressRecord], anchors: dict[AnchorKey, Anchor]
) -> None:
    for tp, error in lookups.write_progress_records(records, _PROGRESS_TOPIC_TIMEOUT_MS, anchors).items():
        _log.warning("the progress of %s is committed, but could not be written to the progress topic: %s", tp, error)
