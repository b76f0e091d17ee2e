"""Gives a flow back to MirrorMaker 2: writes its positions, and removes the flow's progress behind them.

Without its progress the flow continues only if nothing has been written to the target since. If MirrorMaker 2 has, the
flow fails with ``progress-lost``, and can be taken over again.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from mirror.client import Producer, TopicPartition
from mirror.errors import BrokerError, KafkaError
from mirror.relay.progress.committed import group_of, lazy_group_of
from mirror.relay.progress.progress_topic import ProgressTopic
from mirror.runtime.clock import SystemClock
from mirror.takeover.discovery import find_positions
from mirror.takeover.facts import Partitions
from mirror.takeover.handing_back import (
    HandBackReport,
    Return,
    ReturnDecision,
    StoredPosition,
    decide,
    keys_of,
    positions_of,
)
from mirror.takeover.places import worker_group
from mirror.takeover.sides import TIMEOUT_MS, Sides, TakeoverRequest
from mirror.takeover.stored_offsets import Reach
from mirror.timing import Clock

_NOT_FOUND: Final = 69
"""Kafka's error code for a group that does not exist."""


def hand_back(
    request: TakeoverRequest,
    source_options: Mapping[str, object],
    target_options: Mapping[str, object],
    *,
    clock: Clock | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> HandBackReport:
    """Hand a flow back, and return what became of each partition. It may be repeated. It waits for the clusters.

    The options are dotted keys, of which those of the clusters are used. ``pause`` waits for seconds. Raises
    ConfigError; FlowError if MirrorMaker 2's positions are not found, if it or the flow still writes; KafkaError.
    """
    with Sides(request, source_options, target_options, clock=clock or SystemClock(), pause=pause) as sides:
        sides.check_flow_rests()
        deployment = request.deployment
        reach = Reach.STABLE if request.dry_run else Reach.ALL_COMMITTED
        found = find_positions(sides.target_topics, deployment, sorted(sides.target.list_topics()), reach)
        warnings = sides.check_mirrormaker_rests(found.topic, worker_group(deployment, found.topic))
        recorded = ProgressTopic(sides.target_options, request.flow).read([*request.targets.values()], TIMEOUT_MS)
        progress = {tp: record.progress for tp, record in recorded.items()}
        partitions = Partitions(targets=request.targets, stored=found.positions, pairs={})
        decisions = [
            decide(facts, progress.get(facts.target), exactly_once=request.exactly_once)
            for facts in sides.facts.read(partitions)
        ]
        not_removed: list[str] = []
        if not request.dry_run:
            keys = keys_of(sides.target_topics.records(found.topic), found.connector, deployment.source)
            positions = positions_of(
                decisions,
                keys,
                connector=found.connector,
                cluster=deployment.source,
                partitions=len(sides.target_topics.ends(found.topic)),
            )
            _write(sides.target_options, found.topic, positions)
            not_removed = _remove_progress(sides, request.flow, decisions)
        return HandBackReport(
            flow=request.flow,
            source=deployment.source,
            target=deployment.target,
            dry_run=request.dry_run,
            offsets_topic=found.topic,
            connector=found.connector,
            decisions=decisions,
            not_removed=not_removed,
            warnings=[*warnings, *not_removed],
        )


def _write(options: Mapping[str, object], topic: str, positions: Sequence[StoredPosition]) -> None:
    """Write all positions. Raises KafkaError if one is not written; the next time all are written again."""
    with Producer({**options, "max.block.ms": TIMEOUT_MS}) as producer:
        for future in [producer.send(topic, one.partition, key=one.key, value=one.value) for one in positions]:
            future.result()


def _remove_progress(sides: Sides, flow: str, decisions: Iterable[ReturnDecision]) -> list[str]:
    """Remove the progress of what is handed back; return warnings about what could not be removed."""
    groups: dict[str, list[TopicPartition]] = defaultdict(list)
    for one in decisions:
        if one.outcome is Return.HANDED_BACK:
            groups[group_of(flow, one.target)].append(one.target)
            groups[lazy_group_of(flow, one.target)].append(one.target)
    warnings = []
    for group, tps in groups.items():
        try:
            failed = sides.target.delete_group_offsets(group, tps, partial=True, timeout_ms=TIMEOUT_MS).failed
        except KafkaError as error:
            failed = dict.fromkeys(tps, error)
        warnings += [
            f"{tp}: the flow's progress could not be removed, repeat the command before MirrorMaker 2 starts: {error}"
            for tp, error in failed.items()
            if not (isinstance(error, BrokerError) and error.code == _NOT_FOUND)
        ]
    return warnings
