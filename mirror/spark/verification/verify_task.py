"""Compares the partitions of one task. Runs in Spark's workers."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mirror.cluster.settings import ClusterSettings
from mirror.config.flow_rules import source_options
from mirror.errors import MirrorError
from mirror.relay.batches.transforms import transform_of
from mirror.relay.origin.records import LogKey
from mirror.relay.origin.registry import open_origin, read_registry, registry_topic
from mirror.relay.progress.flow_topic import cluster_options
from mirror.runtime.clock import SystemClock
from mirror.runtime.memory.malloc_tuning import bound_heap
from mirror.spark.aside_topic import AsideTopic
from mirror.spark.tasks.options import FlowOptions
from mirror.spark.verification.aside_contents import contents_of
from mirror.verify.comparison import Comparison
from mirror.verify.cursors import SourceCursor
from mirror.verify.left_out import LeftOut, ReadLog
from mirror.verify.log_reader import LogPart, LogReader
from mirror.verify.partition_results import PartitionResult, VerifyRange
from mirror.verify.proof import against_digest
from mirror.verify.values import NOT_COPIED_YET, AsideContents, Named, Rules, TimeLimits, Uncompared, Verdict
from mirror.wire.records import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.relay.origin.registry import LocalOrigin

_MIN_STALL_MS: Final = 60_000
_RELEASED_BYTES: Final = 32 * 1024 * 1024
_SWITCH_INTERVAL_S: Final = 0.0005


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyTask:
    """What one task compares. It has no secrets: each process loads the configuration itself."""

    config: Path
    secrets_dir: Path | None
    flow: str
    ranges: list[VerifyRange]
    foreign_allowed: bool = False
    excerpts: bool = False
    hashes: bool = False


def prepare_process() -> None:
    """Set up this process for two logs that are read beside their comparison, as :func:`copy_ranges` does for a copy.

    The memory of responses is reused. Network threads wait less long for the interpreter than Python's default of 5 ms.
    """
    bound_heap(_RELEASED_BYTES)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


def verify_task(task: VerifyTask) -> list[PartitionResult]:
    """Compare the partitions of ``task``. An error of a partition is in its result."""
    prepare_process()
    try:
        config, flow = FlowOptions(task.config, task.flow, Path(), task.secrets_dir).load()
        return list(verify_ranges(config, flow, task))
    except MirrorError as error:
        return [PartitionResult.of(range_, error=_one_line(error)) for range_ in task.ranges]


def verify_ranges(config: MirrorConfig, flow: FlowConfig, task: VerifyTask) -> Iterator[PartitionResult]:
    """Compare the partitions of ``task``, one after the other. Raises MirrorError if none can be compared."""
    of_source = source_options(config, flow)
    of_target: dict[str, object] = {**config.clusters[flow.target].client_options()}
    timeout_ms = ClusterSettings.parse(cluster_options(of_target)).default_api_timeout_ms
    clock = SystemClock()
    stall_ms = max(_MIN_STALL_MS, timeout_ms)
    with contextlib.ExitStack() as clients:
        source = clients.enter_context(LogReader(of_source, clock, stall_ms))
        target = clients.enter_context(LogReader(of_target, clock, stall_ms))
        sides = cluster_options(of_source), cluster_options(of_target)
        origin = open_origin(flow.name, *sides, flow.copy_policy(), timeout_ms)
        if origin is not None:
            clients.enter_context(origin)
        rules = _rules(flow, task)
        aside = contents_of(AsideTopic(config, flow).records()) if flow.aside else {}
        if origin is not None:
            own = read_registry(registry_topic(sides[1]), timeout_ms, flow.name).ids_of_flow
            rules = replace(rules, is_own=lambda batch: isinstance(batch, Batch) and batch.producer_id in own)
        source.expect(LogPart(one.source_tp, one.bounds.source_start, one.source_limit) for one in task.ranges)
        target.expect(LogPart(one.target_tp, one.bounds.target_start, one.bounds.target_end) for one in task.ranges)
        for range_ in task.ranges:
            of_range = _rules_of(range_, rules, flow, origin, clock.unix_ms())
            of_range = replace(of_range, aside=aside.get((range_.topic, range_.partition), AsideContents()))
            yield _verify(source, target, range_, of_range, _rules_back(config, flow, range_))


def _verify(
    source: LogReader, target: LogReader, range_: VerifyRange, rules: Rules, back: Rules | None
) -> PartitionResult:
    """Compare one partition; ``back`` is what the flow of the other direction does to records."""
    bounds, comparison = range_.bounds, None
    from_source, from_target = range_.source_tp, range_.target_tp
    starts = range_.log_starts
    try:
        with (
            contextlib.closing(source.read(from_source, bounds.source_start, range_.source_limit)) as of_source,
            contextlib.closing(target.read(from_target, bounds.target_start, bounds.target_end)) as of_target,
            contextlib.closing(source.read(from_source, starts[0], bounds.source_end)) as source_again,
            contextlib.closing(target.read(from_target, starts[1], bounds.target_end)) as target_again,
        ):
            comparison = Comparison(of_source, of_target, bounds, rules, (source_again, target_again))
            verdict = comparison.run()
    except Exception as error:  # noqa: BLE001 - what a transform gives may raise anything; others are compared still
        line = _one_line(error)
        return PartitionResult.of(range_, _so_far(comparison, line), line)
    try:
        outside = tuple(_outside(partial(source.read, from_source), range_, rules))
        if verdict.named[Named.NOT_LOCAL]:
            with contextlib.closing(source.read(from_source, bounds.source_start, bounds.source_end)) as of_source:
                search = LeftOut(of_source, partial(target.read, from_target), bounds, rules, back)
                verdict.absent = search.run(starts[1])
    except Exception as error:  # noqa: BLE001 - as above
        return PartitionResult.of(range_, verdict, f"whether the target is complete: {_one_line(error)}")
    range_ = replace(range_, outside=outside)
    return against_digest(PartitionResult.of(range_, verdict), range_.expected_digest)


def _outside(read: ReadLog, range_: VerifyRange, rules: Rules) -> Iterator[Uncompared]:
    """Yield what the source has outside the range: of what is not copied yet, from its first record on."""
    for one in range_.outside:
        if one.reason != NOT_COPIED_YET:
            yield one
            continue
        bounds = replace(range_.bounds, source_start=one.start, source_end=one.end)
        with contextlib.closing(read(one.start, one.end)) as fetches:
            first = SourceCursor(fetches, bounds, replace(rules, is_left_out=None, hashes=False), one.end).peek()
        if first is not None:  # otherwise there are only markers, or what compaction or an abort has left
            yield replace(one, start=first.offset)


def _so_far(comparison: Comparison | None, reason: str) -> Verdict | None:
    return None if comparison is None else comparison.stopped(reason)


def _rules(flow: FlowConfig, task: VerifyTask) -> Rules:
    """Return what the flow does to the records of every topic."""
    policy = flow.copy_policy()
    return Rules(
        headers=policy.headers,
        transform=transform_of(policy),
        foreign_allowed=task.foreign_allowed or policy.only_local,
        repeats_allowed=not policy.exactly_once,
        excerpts=task.excerpts,
        hashes=task.hashes,
    )


def _rules_back(config: MirrorConfig, flow: FlowConfig, range_: VerifyRange) -> Rules | None:
    """Return what the flow does to records that copies the target's topic to the source's; None if none is known."""
    topics = range_.target_topic, range_.topic
    for other in config.flows.values():
        back = (other.source, other.target) == (flow.target, flow.source) and other.includes(topics[0])
        if back and other.target_topic(topics[0]) == topics[1]:
            policy = other.copy_policy()
            return Rules(headers=policy.headers, transform=transform_of(policy))
    return None


def _rules_of(range_: VerifyRange, rules: Rules, flow: FlowConfig, origin: LocalOrigin | None, now_ms: int) -> Rules:
    """Return the rules of one partition."""
    finder = None
    if origin is not None:
        finder = origin.finder(LogKey.of(range_.source_tp, range_.source_topic_id))
    limits = TimeLimits(
        before_ms=range_.facts.before_ms,
        after_ms=range_.facts.after_ms,
        first_copy_ms=range_.first_copy_ms,
        now_ms=now_ms,
        policy=flow.on_bad_timestamp,
    )
    return replace(
        rules,
        is_left_out=finder,
        source_compacted=range_.facts.source_compacted,
        target_compacted=range_.facts.target_compacted,
        times=limits if flow.on_bad_timestamp in {"skip", "clamp"} else None,
        skips_above_bytes=range_.facts.max_message_bytes if flow.on_too_large == "skip" else None,
        skips_keyless=range_.facts.target_compacted and flow.on_no_key == "skip",
    )


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, MirrorError) else f"{type(error).__name__}: {text}"
