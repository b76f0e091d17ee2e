"""Takes a flow over from MirrorMaker 2: finds what it has copied, and writes where the flow continues.

::

    find ──► observe ──► fence ──► read the positions again ──► compare each partition ──► write
      └── refuse           └── only where it was exactly once        └── or leave it out

Nothing is written before the last step but the fence, so that a takeover that was cut short is done again from the
beginning, with the same result. A dry run leaves out the fence and the last step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from mirror.client import TopicPartition
from mirror.closing import Closing
from mirror.errors import BrokerError, KafkaError, MirrorError
from mirror.runtime.clock import SystemClock
from mirror.takeover.adopting import GroupAdoption
from mirror.takeover.continuation import Continuation, Facts, TakeoverOutcome, is_open, unreadable
from mirror.takeover.discovery import FoundPositions, FoundSyncs, find_positions, find_syncs
from mirror.takeover.facts import Partitions
from mirror.takeover.fencing import fence, known_ids
from mirror.takeover.logs import LogComparison
from mirror.takeover.places import Places, places_of
from mirror.takeover.seeding import Seed, Seeding, seed_of
from mirror.takeover.sides import STALL_MS, TIMEOUT_MS, TakeoverRequest, TakeoverSides
from mirror.takeover.stored_offsets import Reach
from mirror.takeover.takeover_report import Found, TakeoverReport
from mirror.takeover.takeover_topic import TakeoverKey, TakeoverRecord, TakeoverTopic
from mirror.timing import Clock

_ATTEMPTS: Final = 5
"""So many times, a second apart, the target's logs are read until no transaction is open there."""


class Takeover(Closing):
    """One takeover. Its calls wait for the clusters; use it in one thread."""

    def __init__(
        self,
        request: TakeoverRequest,
        source_options: Mapping[str, object],
        target_options: Mapping[str, object],
        *,
        positions_options: Mapping[str, object] | None = None,
        prepare: Callable[[], object] = lambda: None,
        clock: Clock | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """The options are dotted keys, of which those of the clusters are used. Raises ConfigError.

        ``positions_options`` are those of the cluster that has MirrorMaker 2's positions; None: the target has them.
        ``prepare`` makes the flow's own topics, before anything is written. ``pause`` waits for seconds.
        """
        self._request: Final = request
        self._prepare: Final = prepare
        self._clock: Final = clock or SystemClock()
        self._pause: Final = pause
        with ExitStack() as stack:
            self._sides: Final = stack.enter_context(
                TakeoverSides(
                    request,
                    source_options,
                    target_options,
                    positions_options=positions_options,
                    clock=self._clock,
                    pause=pause,
                )
            )
            sides = self._sides
            self._logs: Final = LogComparison(
                sides.source_options, sides.target_options, sides.target, self._clock, STALL_MS
            )
            stack.callback(self._logs.close)
            self._clients: Final = stack.pop_all()
        self._warnings: list[str] = []

    def close(self) -> None:
        self._clients.close()

    def run(self) -> TakeoverReport:
        """Take over, and return what became of each partition.

        Raises FlowError if MirrorMaker 2's positions are not found, if it or the flow still writes; KafkaError.
        """
        request = self._request
        sides = self._sides
        sides.check_flow_rests()
        on_source, on_target = sorted(sides.source.list_topics()), sorted(sides.target.list_topics())
        # A task that was killed may have left a transaction open, until it is fenced.
        with_positions = sorted(sides.positions.list_topics())
        positions = find_positions(sides.position_topics, request.deployment, with_positions, Reach.UNCOMMITTED)
        places = places_of(request.deployment, positions.topic, positions.connector, with_positions)
        self._warnings += sides.check_mirrormaker_rests(places)
        ids = self._known_ids(places.group, positions.connector)
        if ids and not request.dry_run:
            fence(sides.target_options, ids, TIMEOUT_MS)
        ends, status_error = sides.ends_of(places)
        if status_error is not None:
            self._warnings.append(
                "whether a task of MirrorMaker 2 is started again cannot be read; a position that it stores is seen:"
                f" {status_error}"
            )
            places = places._replace(status_topic="")
        # What its last transactions have stored is known only now.
        named = replace(request.deployment, offsets_topic=positions.topic, connector=positions.connector)
        reach = Reach.STABLE if request.dry_run else Reach.ALL_COMMITTED
        positions = find_positions(sides.position_topics, named, with_positions, reach)
        syncs = find_syncs(sides.source_topics, sides.target_topics, request.deployment, (on_source, on_target))
        decisions = self._decide(positions, syncs)
        if not request.dry_run:
            decisions = self._write(decisions, syncs, self._record_of(places, ends))
        groups = self._adopt_groups(decisions, on_target)
        return TakeoverReport(
            flow=request.flow,
            source=request.deployment.source,
            target=request.deployment.target,
            dry_run=request.dry_run,
            found=Found(
                offsets_topic=positions.topic,
                connector=positions.connector,
                worker_group=places.group,
                transactional_ids=ids,
                syncs_topic=syncs.topic,
            ),
            decisions=decisions,
            groups=groups,
            not_selected=sorted({tp.topic for tp in positions.positions} - {tp.topic for tp in request.targets}),
            warnings=[*self._warnings],
        )

    def _known_ids(self, group: str, connector: str) -> Sequence[str] | None:
        try:
            return known_ids(self._sides.target, group, connector)
        except BrokerError as error:
            self._warnings.append(
                f"whether MirrorMaker 2 copied exactly once cannot be read, it is not fenced: {error}"
            )
            return None

    # --- what it has copied

    def _decide(self, positions: FoundPositions, syncs: FoundSyncs) -> list[Continuation]:
        partitions = Partitions(
            targets=self._request.targets,
            stored=positions.positions,
            pairs=syncs.pairs,
            others_write=self._request.unmatched_from_start,
        )
        decisions: list[Continuation] = []
        for facts in self._read_facts(partitions):
            if isinstance(facts, Continuation):
                decisions.append(facts)
                continue
            try:
                decisions.append(self._logs.decide(facts))
            except MirrorError as error:
                # The other partitions do not depend on this one.
                decisions.append(unreadable(facts.source, facts.target, facts.stored, str(error)))
        return decisions

    def _read_facts(self, partitions: Partitions) -> list[Facts | Continuation]:
        """Return the facts once no transaction is open in the target, or after some seconds."""
        found: list[Facts | Continuation] = []
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._pause(1.0)
            found = self._sides.facts.read(partitions, stable=self._request.dry_run)
            if not any(isinstance(facts, Facts) and is_open(facts) for facts in found):
                break  # otherwise markers of those that were fenced may be on their way
        return found

    # --- where the flow continues

    def _record_of(self, places: Places, ends: Mapping[TopicPartition, int]) -> TakeoverRecord:
        """Return the record by which a MirrorMaker 2 is seen that starts again; ``ends`` are those of its topics."""
        deployment = self._request.deployment
        return TakeoverRecord(
            key=TakeoverKey(deployment.source, places.connector, places.offsets_topic),
            cluster=deployment.offsets_cluster,
            status_topic=places.status_topic,
            ends=ends,
            time_ms=self._clock.unix_ms(),
            others=self._request.while_it_writes,
        )

    def _write(
        self, decisions: Sequence[Continuation], syncs: FoundSyncs, record: TakeoverRecord
    ) -> list[Continuation]:
        """Write ``record`` and what is settled; return the decisions, some of which may be left out now.

        Raises FlowError if a run of the flow has begun while the logs were compared: it may have copied from the start;
        KafkaError if the record cannot be written: without it, the flow would copy beside a MirrorMaker 2.
        """
        request = self._request
        self._sides.check_flow_rests()
        settled = [one for one in decisions if one.outcome is TakeoverOutcome.SETTLED]
        ends = self._sides.facts.target_ends([one.target for one in settled])
        left_out = {one.target: _grown(one, ends.get(one.target)) for one in settled}
        settled = [one for one in settled if request.while_it_writes or left_out[one.target] is None]
        outcomes = {one.target: one for one in decisions}
        if not request.while_it_writes:
            outcomes.update({tp: one for tp, one in left_out.items() if one is not None})
        self._sides.check_may_write()
        self._prepare()
        topic = TakeoverTopic(self._sides.target_options, request.flow)
        before = next((one for one in topic.read(TIMEOUT_MS) if one.key == record.key), record)
        self._sides.check_may_write()
        # What MirrorMaker 2 has copied since an earlier takeover holds the flow until nothing is left out.
        topic.write(replace(record, resumed=before.resumed), TIMEOUT_MS)
        if settled:
            outcomes.update(self._seed(settled, syncs))
        if before.resumed and all(one.outcome is not TakeoverOutcome.UNSETTLED for one in outcomes.values()):
            topic.write(record, TIMEOUT_MS)
        return [outcomes[one.target] for one in decisions]

    def _seed(self, settled: Sequence[Continuation], syncs: FoundSyncs) -> dict[TopicPartition, Continuation]:
        """Write the seeds; return the decisions about partitions for which that has failed. Raises KafkaError."""
        request, now_ms = self._request, self._clock.unix_ms()
        cluster_id = self._sides.source.describe_cluster().cluster_id
        seeds = {
            one.target: seed_of(
                one, syncs.pairs.get(one.source, ()), cluster_id, now_ms, exactly_once=request.exactly_once
            )
            for one in settled
        }
        seeding = Seeding(
            request.flow,
            self._sides.target_options,
            self._sides.target,
            exactly_once=request.exactly_once,
            timeout_ms=TIMEOUT_MS,
        )
        self._sides.check_may_write()
        not_written = seeding.write_index(seeds)
        failed: dict[TopicPartition, Continuation] = {}
        committed: dict[TopicPartition, Seed] = {}
        for one in settled:
            if error := not_written.get(one.target):
                reason = f"its offset index could not be written: {error}"
                failed[one.target] = unreadable(one.source, one.target, one.stored, reason)
                continue
            self._sides.check_may_write()
            try:
                seeding.commit(one.target, seeds[one.target])
                committed[one.target] = seeds[one.target]
            except KafkaError as error:
                reason = f"its progress could not be committed: {error}"
                failed[one.target] = unreadable(one.source, one.target, one.stored, reason)
        self._sides.check_may_write()
        self._warnings += [f"a progress record was not written: {error}" for error in seeding.write_records(committed)]
        return failed

    # --- consumer groups

    def _adopt_groups(self, decisions: Sequence[Continuation], existing: Sequence[str]) -> list[str]:
        """Return the groups whose offsets on the target are MirrorMaker 2's, after writing that they are the flow's."""
        request, sides = self._request, self._sides
        tps = [one.target for one in decisions if one.outcome is TakeoverOutcome.SETTLED]
        if request.includes_group is None or not tps:
            return []
        adoption = GroupAdoption(request.flow, sides.target_options, sides.target, sides.target_topics)
        try:
            groups = adoption.find(request.deployment.source, existing, tps, request.includes_group)
        except KafkaError as error:
            self._warnings.append(f"which offsets of groups are MirrorMaker 2's cannot be read: {error}")
            return []
        if not request.dry_run:
            sides.check_may_write()
            errors = adoption.write(groups, TIMEOUT_MS)
            self._warnings += [f"offsets of a group were not taken over: {error}" for error in errors]
        return sorted(groups)


def _grown(decision: Continuation, end: int | None) -> Continuation | None:
    """Return that a partition is left out if its target's log has grown since it was compared."""
    log = decision.target_log
    if log is None or end == log.end:
        return None
    now = "cannot be read" if end is None else f"ends at {end}"
    reason = f"something has written to the target while it was compared: its log ended at {log.end}, and now {now}"
    return unreadable(decision.source, decision.target, decision.stored, reason)
