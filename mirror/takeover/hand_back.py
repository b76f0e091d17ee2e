"""Gives a flow back to MirrorMaker 2: fences its copies, writes MirrorMaker 2's positions, and removes its progress.

Its progress record stays, and says no longer where the copy ended, so that nothing is restored from it: the flow fails
with ``progress-lost`` until it is taken over again.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from mirror.client import Producer, TopicPartition
from mirror.errors import BrokerError, KafkaError
from mirror.relay.progress.committed import group_of, lazy_group_of
from mirror.relay.progress.progress_topic import ProgressRecord, ProgressTopic
from mirror.runtime.clock import SystemClock
from mirror.takeover.continuation import Continuation, Facts
from mirror.takeover.discovery import find_positions
from mirror.takeover.facts import Partitions
from mirror.takeover.fencing import fence_flow
from mirror.takeover.hand_back_decision import (
    HandBackReport,
    Return,
    StoredPosition,
    decide,
    keys_of,
    positions_of,
)
from mirror.takeover.lost_commits import LostCommits
from mirror.takeover.places import Places, places_of
from mirror.takeover.sides import STALL_MS, TIMEOUT_MS, TakeoverRequest, TakeoverSides
from mirror.takeover.stored_offsets import Reach
from mirror.takeover.takeover_topic import TakeoverKey, TakeoverTopic
from mirror.timing import Clock
from mirror.wire.error_codes import GROUP_ID_NOT_FOUND


def hand_back(
    request: TakeoverRequest,
    source_options: Mapping[str, object],
    target_options: Mapping[str, object],
    *,
    positions_options: Mapping[str, object] | None = None,
    clock: Clock | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> HandBackReport:
    """Hand a flow back, and return what became of each partition. It may be repeated. It waits for the clusters.

    The options are dotted keys, of which those of the clusters are used; ``positions_options`` are those of the cluster
    that has MirrorMaker 2's positions, if that is not the target. ``pause`` waits for seconds. Raises ConfigError;
    FlowError if MirrorMaker 2's positions are not found, if it or the flow still writes; KafkaError.
    """
    clock = clock or SystemClock()
    with TakeoverSides(
        request, source_options, target_options, positions_options=positions_options, clock=clock, pause=pause
    ) as sides:
        sides.check_flow_rests()
        deployment = request.deployment
        reach = Reach.STABLE if request.dry_run else Reach.ALL_COMMITTED
        existing_topics = sorted(sides.positions.list_topics())
        found = find_positions(sides.position_topics, deployment, existing_topics, reach)
        places = places_of(deployment, found.topic, found.connector, existing_topics)
        warnings = sides.check_mirrormaker_rests(places)
        not_fenced: Mapping[TopicPartition, KafkaError] = {}
        if request.exactly_once and not request.dry_run:
            existing = sides.existing_targets()
            not_fenced = fence_flow(sides.target, sides.target_options, request.flow, existing, TIMEOUT_MS)
            sides.check_flow_rests()
        progress_topic = ProgressTopic(sides.target_options, request.flow)
        recorded = progress_topic.read([*request.targets.values()], TIMEOUT_MS)
        progress = {tp: record.progress for tp, record in recorded.items()}
        partitions = Partitions(targets=request.targets, stored=found.positions, pairs={})
        markers = int(request.exactly_once and not request.dry_run)
        with LostCommits(sides.target_options, clock, STALL_MS, markers=markers) as lost_commits:
            checked = [lost_commits.check(facts) for facts in sides.facts.read(partitions)]
        known = [facts for facts, _ in checked]
        decisions = [
            decide(
                facts,
                progress.get(facts.target),
                exactly_once=request.exactly_once,
                not_fenced=not_fenced.get(facts.target),
                has_lost_commits=lost,
            )
            for facts, lost in checked
        ]
        not_removed: list[str] = []
        if not request.dry_run:
            keys = keys_of(sides.position_topics.records(found.topic), found.connector, deployment.source)
            positions = positions_of(
                decisions,
                keys,
                connector=found.connector,
                cluster=deployment.source,
                partitions=len(sides.position_topics.ends(found.topic)),
            )
            _write(sides.positions_options, found.topic, positions)
            returned = [one.target for one in decisions if one.outcome is Return.HANDED_BACK]
            not_removed = _void_records(progress_topic, known, returned)
            not_removed += _remove_progress(sides, request.flow, returned)
        report = HandBackReport(
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
        if not request.dry_run:
            try:
                _end_watch(sides, request, places, clock.unix_ms(), complete=report.is_complete)
            except KafkaError as error:
                line = f"runs of the flow still watch MirrorMaker 2, repeat the command before it starts: {error}"
                return replace(report, warnings=[*report.warnings, line])
        return report


def _end_watch(sides: TakeoverSides, request: TakeoverRequest, places: Places, now_ms: int, *, complete: bool) -> None:
    """Have the flow no longer watch MirrorMaker 2, unless it keeps some partitions. Raises KafkaError."""
    topic = TakeoverTopic(sides.target_options, request.flow)
    key = TakeoverKey(request.deployment.source, places.connector, places.offsets_topic)
    for record in topic.read(TIMEOUT_MS):
        if record.key == key and complete:
            topic.remove(key, TIMEOUT_MS)
        elif record.key == key:
            # The positions that were just written are not MirrorMaker 2's.
            ends, _ = sides.ends_of(places)
            topic.write(replace(record, ends=ends, time_ms=now_ms), TIMEOUT_MS)


def _write(options: Mapping[str, object], topic: str, positions: Sequence[StoredPosition]) -> None:
    """Write all positions. Raises KafkaError if one is not written; the next time all are written again."""
    with Producer({**options, "max.block.ms": TIMEOUT_MS}) as producer:
        for future in [producer.send(topic, one.partition, key=one.key, value=one.value) for one in positions]:
            future.result()


def _void_records(
    topic: ProgressTopic, known: Iterable[Facts | Continuation], returned: Collection[TopicPartition]
) -> list[str]:
    """Have nothing restored from the progress records of these target partitions; return warnings.

    Without a record, a flow whose target topics others write, too, would begin again.
    """
    records = {
        facts.target: ProgressRecord(facts.progress, 0)
        for facts in known
        if isinstance(facts, Facts) and facts.progress is not None and facts.target in returned
    }
    return [
        f"{tp}: the flow's progress record could not be replaced, repeat the command before MirrorMaker 2 starts:"
        f" {error}"
        for tp, error in topic.write(records, TIMEOUT_MS).items()
    ]


# Invariant: The flow does not copy behind MirrorMaker 2 after it was handed back: its progress is gone, and its
#   progress record restores nothing.
# Test: tests/takeover/test_hand_back_on_fakes.py::test_the_flow_that_is_started_by_mistake_copies_nothing
def _remove_progress(sides: TakeoverSides, flow: str, returned: Iterable[TopicPartition]) -> list[str]:
    """Remove the progress of these target partitions; return warnings about what could not be removed."""
    groups: dict[str, list[TopicPartition]] = defaultdict(list)
    for one in returned:
        groups[group_of(flow, one)].append(one)
        groups[lazy_group_of(flow, one)].append(one)
    warnings = []
    for group, tps in groups.items():
        try:
            failed = sides.target.delete_group_offsets(group, tps, partial=True, timeout_ms=TIMEOUT_MS).failed
        except KafkaError as error:
            failed = dict.fromkeys(tps, error)
        warnings += [
            f"{tp}: the flow's progress could not be removed, repeat the command before MirrorMaker 2 starts: {error}"
            for tp, error in failed.items()
            if not (isinstance(error, BrokerError) and error.code == GROUP_ID_NOT_FOUND)
        ]
    return warnings
