"""One partition that is copied by many attempts under faults, and what readers of the target may see of it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.model.way import Way
from mirror.relay.partition.machine import partition_copy
from mirror.relay.progress import anchors, stored_record
from mirror.relay.progress.committed import (
    Progress,
    from_offset,
    group_of,
    latest_of,
    lazy_group_of,
)
from mirror.relay.progress.flow_topic import offset_topic_of, topic_of
from mirror.relay.task import copy_ranges
from mirror.relay.task.taking import read_progress
from mirror.wire.api import Api
from mirror.wire.decode import records_of
from mirror.wire.records import TRANSACTIONAL, is_commit_marker
from tests.fakes.cluster import FakeCluster, GroupOffset
from tests.fakes.control import Action, Control, ServerCall
from tests.fakes.log import PartitionLog
from tests.fakes.record_batches import build, values_of
from tests.producer.faults import Knobs, action
from tests.relay.offsets.site_checks import check_offsets
from tests.relay.simulation import Process, Simulation
from tests.relay.stand_ins import install

FLOW = "flow"
SOURCE, TARGET = TopicPartition("t", 0), TopicPartition("paris.t", 0)
NODES = 3
MOST_ALIVE = 4
DAY_MS = 86_400_000
TIMES = {
    "request.timeout.ms": 2_000,
    "delivery.timeout.ms": 6_000,
    "default.api.timeout.ms": 10_000,
    "socket.connection.setup.timeout.ms": 1_000,
}
WRITES = (
    Api.PRODUCE,
    Api.INIT_PRODUCER_ID,
    Api.ADD_PARTITIONS_TO_TXN,
    Api.ADD_OFFSETS_TO_TXN,
    Api.TXN_OFFSET_COMMIT,
    Api.END_TXN,
    Api.OFFSET_COMMIT,
)
_PASSES = 12
_LATEST_MS = 3_600_000


class Jitter(Control):
    """Requests to which no rule applies take some ms, each another time."""

    def __init__(self, rng: random.Random, most_ms: int) -> None:
        super().__init__()
        self._rng, self._most_ms = rng, most_ms

    def decide(self, call: ServerCall) -> Action:
        for rule in self._rules:
            if (found := rule(call)) is not None:
                return found
        return self.delays()

    def delays(self) -> Action:
        if not self._most_ms:
            return Action()
        return Action(stall_ms=self._rng.randint(0, self._most_ms), delay_ms=self._rng.randint(0, self._most_ms))


def planned_progress(copied: Range, read: Progress | None) -> Progress | None:
    """Of any attempt, not only in a stream, and however old."""
    del copied
    return None if read is None else replace(read, ended=False)


def progress_of(found: GroupOffset) -> Progress:
    epoch = None if found.leader_epoch < 0 else found.leader_epoch
    return from_offset(OffsetAndMetadata(found.offset, epoch, found.metadata or ""))


class CopySite:
    """Source topic "t" and target topic "paris.t" of one partition each. Every record's value is its number."""

    def __init__(self, *, level: int, by: str, marker_ms: int, jitter_ms: int, seed: int, **options: object) -> None:
        rng = random.Random(seed)
        self.source = FakeCluster(2, cluster_id="paris", seed=1)
        self.target = FakeCluster(NODES, cluster_id="berlin", seed=2)
        for cluster in (self.source, self.target):
            cluster.control = Jitter(rng, jitter_ms)
        self.target.features["transaction.version"] = level
        self.target.marker_ms = marker_ms
        self.target.admin.broker_configs[""] = {"producer.id.expiration.check.interval.ms": "1000"}
        self.source.add_topic(SOURCE.topic)
        self.target.add_topic(TARGET.topic)
        self.target.add_topic(topic_of(FLOW))
        self.target.add_topic(offset_topic_of(FLOW))
        self.simulation = Simulation(self.source, self.target, seed=seed, **{**TIMES, **options})
        self.policy = CopyPolicy(exactly_once=True, exactly_once_by=by, commit_interval_ms=300)
        self.stream: list[bytes] = []
        self.written = 0
        """How many records the source was given."""
        self.results: list[RangeResult] = []
        self.excused: set[str] = set()
        """Names of errors that what has happened justifies."""
        self.lost = False
        """Whether the target has lost acknowledged batches."""
        self.planned: Progress | None = None
        """The progress as of the last plan, for attempts by sequences; None: they read it."""
        self.unanchored = False
        """Whether no anchor was left in the target's log when it lost some."""
        self._commits_lost = False
        self._commits: dict[str, list[GroupOffset]] = {}
        """What was committed for the target partition, by group."""
        self._patch = pytest.MonkeyPatch()
        self.target.on_committed = self._keep_commit
        install(self.simulation, self._patch)
        self._patch.setattr(anchors, "INTERVAL_MS", 300)
        self._patch.setattr(partition_copy, "planned_progress", planned_progress)
        self._patch.setattr(
            copy_ranges, "read_progress", lambda *asked: self._planned_progress() or read_progress(*asked)
        )
        self._unreplicated = 0

    def close(self) -> None:
        self.simulation.close()
        self._patch.undo()

    @property
    def log(self) -> PartitionLog:
        return self.target.log(*TARGET)

    @property
    def source_log(self) -> PartitionLog:
        return self.source.log(*SOURCE)

    @property
    def alive(self) -> list[Process]:
        return [one for one in self.simulation.processes if not one.ended]

    @property
    def has_room(self) -> bool:
        """Whether another attempt may begin beside those that have not ended."""
        return len(self.alive) < MOST_ALIVE

    def is_of_target(self, produce: ServerCall) -> bool:
        """Whether a Produce request is for the target partition; anchors go to another topic."""
        names = {TARGET.topic, self.target.topics[TARGET.topic].topic_id}
        return any(one.name in names or one.topic_id in names for one in produce.body.topic_data)

    # --- what happens

    def source_grows(self, counts: list[int], age_ms: int) -> None:
        """Batches of so many records each; a negative number is one of aborted records, of which nothing is copied."""
        log, timestamp = self.source_log, self.source.clock.unix_ms() - age_ms
        for count in counts:
            if count < 0:
                log.append_values(*[b"aborted"] * -count, attributes=TRANSACTIONAL, producer_id=99)
                log.end_transaction(99, commit=False)
            else:
                values = [b"%d" % (self.written + number) for number in range(count)]
                log.append(build(values, base_offset=log.end_offset, timestamp=timestamp))
                self.stream += values
                self.written += count

    def flow_is_planned(self) -> None:
        """What attempts that begin later know of the progress; others may have changed it since."""
        claim, lazy = (self._committed(of(FLOW, TARGET)) for of in (group_of, lazy_group_of))
        self.planned = None
        if claim is not None:
            found = latest_of(claim, lazy)
            if found.way is Way.SEQUENCES and found.target is not None:
                self.planned = found

    def _planned_progress(self) -> dict[TopicPartition, Progress]:
        return {} if self.planned is None else {TARGET: self.planned}

    def _committed(self, group: str) -> Progress | None:
        found = self.target.groups[group].get(TARGET)
        return None if found is None else progress_of(found)

    def start(self) -> None:
        """Another attempt, beside those that have not ended."""
        if self.has_room:
            self.attempt()

    def attempt(self) -> Process:
        name = f"attempt-{len(self.simulation.processes)}"
        return self.simulation.start(name, [self.range()], self.policy)

    def range(self) -> Range:
        """What another attempt is to copy: all that the source has now."""
        committed = self.target.groups[group_of(FLOW, TARGET)].get(TARGET)
        return Range(
            flow=FLOW,
            topic=SOURCE.topic,
            target_topic=TARGET.topic,
            partition=0,
            start=0 if committed is None else committed.offset,
            end=self.source_log.end_offset,
            source_cluster_id="paris",
            topic_id=str(self.source.topics[SOURCE.topic].topic_id),
            first=0,
        )

    def attempt_is_cut_short(self, counts: list[int], age_ms: int, batches: int, rounds: int, killed: bool) -> None:
        """Another attempt at more records is killed, or suspended, when it has appended so many ``batches``."""
        self.source_grows(counts, age_ms)
        if not self.has_room:
            return
        process, before = self.attempt(), len(self.log.index)
        self.simulation.run(until=lambda: len(self.log.index) >= before + batches or process.ended, ms=8_000)
        self.simulation.run(rounds)
        self.check()
        if killed and not process.ended:
            process.kill()
        process.suspended = not killed

    def suspend(self, number: int) -> None:
        if alive := self.alive:
            alive[number % len(alive)].suspended = True

    def resume(self, number: int) -> None:
        if stopped := [one for one in self.alive if one.suspended]:
            stopped[number % len(stopped)].suspended = False

    def kill(self, number: int) -> None:
        if alive := self.alive:
            alive[number % len(alive)].kill()

    def leader_moves(self, node: int) -> None:
        """Without a loss: what is not replicated may not be there any more, and was not acknowledged."""
        if self.log.replicated_to is not None:
            self.log.truncate(max(self.log.high_watermark, self.log.end_offset - 1))
        self.log.move(node)

    def leader_loses(self, node: int, batches: int, new_replica: bool) -> None:
        """An unclean election: acknowledged batches may be lost, not those that retention has deleted before."""
        index = [one for one in self.log.index if one[0] >= self.log.start_offset]
        if not index or self.policy.start_over:
            return
        end, acknowledged = index[-min(batches, len(index))][0], self.log.high_watermark
        self.target.elect_uncleanly(*TARGET, node, end, new_replica=new_replica)
        if end < acknowledged:
            self.lost = True
            self.unanchored |= not self._has_standing_anchor

    @property
    def _has_standing_anchor(self) -> bool:
        kept: dict[bytes | None, bytes | None] = {}
        for one in self.target.log(topic_of(FLOW)).batches():
            kept |= {record.key: record.value for record in records_of(one)}
        decoded = (stored_record.decode(anchors.Anchor, value) for value in kept.values())
        found = [anchor for anchor in decoded if anchor is not None]
        # What retention has deleted behind an anchor cannot be compared.
        kept_behind = [one for one in found if one.target.end >= self.log.start_offset]
        return any(anchors.stands(one, *self.log.end_of_epoch(one.target.leader_epoch or 0)) for one in kept_behind)

    def replication_stands_still(self, ms: int) -> None:
        log = self.log
        log.replicated_to = log.high_watermark
        self._unreplicated += 1
        number = self._unreplicated

        def go_on() -> None:
            if number == self._unreplicated:
                log.replicated_to = None

        self.target.after(ms, go_on)

    def markers_take(self, ms: int) -> None:
        self.target.marker_ms = ms

    def marker_comes_again(self) -> None:
        """A coordinator that has no answer to its last marker writes it once more (allowed since KAFKA-19999)."""
        last = next((one for one in reversed(self.log.batches()) if one.is_control), None)
        if last is None or last.producer_id in self.log.open_transactions:
            return
        if not self.log.refuses_marker(last.producer_id, last.producer_epoch, bumped=True):
            commit, now_ms = is_commit_marker(last), self.target.clock.unix_ms()
            self.log.end_transaction(last.producer_id, commit=commit, epoch=last.producer_epoch, unix_ms=now_ms)

    def coordinators_move(self, node: int) -> None:
        for key in self.target.coordinators:
            self.target.coordinators[key] = node

    def connections_break(self, node: int, late_ms: int | None) -> None:
        self.target.works_off_ms = late_ms
        self.target.disconnect(node)

    def _keep_commit(self, group: str) -> None:
        if (found := self.target.groups[group].get(TARGET)) is not None:
            self._commits.setdefault(group, []).append(replace(found))

    def forget_commits(self) -> None:
        """Those before the last ones are not lost any more."""
        for kept in self._commits.values():
            del kept[:-1]

    def offsets_topic_loses_commits(self, claims: int, lazy: int) -> None:
        """Partitions of ``__consumer_offsets`` lose their last commits in an unclean election, not the first one."""
        for group, count in ((group_of(FLOW, TARGET), claims), (lazy_group_of(FLOW, TARGET), lazy)):
            kept = self._commits.get(group, [])
            if TARGET in self.target.groups[group] and (count := min(count, len(kept) - 1)) > 0:
                del kept[-count:]
                self.target.groups[group][TARGET] = replace(kept[-1])
                self._commits_lost = True
        if self._commits_lost and (self.source_log.start_offset or self.log.start_offset):
            self.excused |= {"gap", "position-unproved"}  # what the commits were about may be gone

    def broker_restarts(self, node: int, ms: int) -> None:
        self.target.kill(node)
        self.target.after(ms, lambda: self.target.start(node))

    def flow_is_configured(self, by: str) -> None:
        """Attempts that begin later copy by ``by``."""
        self.policy = replace(self.policy, exactly_once_by=by)

    def batches_are_refused(self, code: int, handled: bool, times: int) -> None:
        for _ in range(times):
            self.target.control.on(Api.PRODUCE, Action(errors={TARGET: code}, handled=handled))

    def requests_fare_badly(self, api: Api, knobs: Knobs, times: int) -> None:
        for _ in range(times):
            self.target.control.on(api, action(knobs))

    def request_comes_again(self, api: Api, number: int) -> None:
        """A late copy of a request of an older attempt, which it had sent twice; no copy is late by hours."""
        names = {one.name for one in self.simulation.processes[:-1]}
        owners, since_ms = self.simulation.owners, self.target.clock.now() - _LATEST_MS
        sent = [call for call in self.target.calls(api) if owners.get(("berlin", call.connection)) in names]
        calls = [call for call in sent if call.received_ms >= since_ms]
        if calls:
            call = calls[-1 - number % len(calls)]
            again = ServerCall(call.node, -1, api, call.version, 0, call.body, self.target.clock.now())
            again.action = Action()
            self.target.handle(again)

    def source_deletes(self, batches: int) -> None:
        """Retention: also what is not copied yet may be gone."""
        if self.policy.start_over:
            return
        index = [one for one in self.source_log.index if one[0] >= self.source_log.start_offset]
        if index:
            self.source_log.delete_before(index[min(batches, len(index)) - 1][1])
            self.excused |= {"gap", "position-unproved"}

    def target_deletes(self, batches: int) -> None:
        if self.policy.start_over:
            return
        index = [one for one in self.log.index if self.log.start_offset <= one[0] < self.log.high_watermark]
        if index:
            self.log.delete_before(index[min(batches, len(index)) - 1][1])
            self.excused |= {"position-unproved"}
            if not self.target.groups[group_of(FLOW, TARGET)]:
                self.excused.add("progress-lost")  # what is gone may have been records

    def retention_deletes_what_an_ended_attempt_copied(self, markers: int) -> None:
        """On both sides, and the markers of as many attempts that had nothing to send: no error is justified."""
        if self.excused or self.policy.start_over:
            return
        for one in self.alive:
            one.kill()
        self._heal()
        if self._attempt_to_the_end().outcome is not Outcome.COMPLETE:
            return
        for _ in range(markers):
            self.log.end_transaction(99, commit=True)
        self.log.delete_before(self.log.high_watermark)
        self.source_log.delete_before(self.source_log.end_offset)
        self.source_grows([1, 2], 0)
        result = self._attempt_to_the_end()
        assert result.outcome is Outcome.COMPLETE, result.error
        self._check_complete()

    def target_is_made_again(self, offsets_too: bool) -> None:
        """The topic is deleted and made again, empty; attempts that begin later start over."""
        if self.excused or self.source_log.start_offset:
            return  # the flow's start may be gone
        self.target.add_topic(TARGET.topic)
        self._commits.clear()
        if offsets_too:
            for offsets in self.target.groups.values():
                offsets.pop(TARGET, None)
        self.policy = replace(self.policy, start_over=True)

    def days_pass(self, days: int) -> None:
        """So long that the target's brokers forget producers. Late requests come before."""
        self.time_passes(20_000)
        self.target.clock.jump_to(self.target.clock.now() + days * DAY_MS)
        self.time_passes(1)

    def time_passes(self, ms: int, rounds: int = 100_000) -> None:
        self.simulation.run(rounds, ms=ms)
        self.check()

    # --- what must hold

    def visible(self, *, committed: bool) -> list[bytes]:
        """What a reader has been able to read, deleted or not.

        A transaction whose marker is lost is taken for committed: no client can end it.
        """
        log = self.log
        end = log.last_stable_offset if committed and not self.lost else log.high_watermark
        found: list[bytes] = []
        for one in log.batches():
            aborted = committed and any(
                each.producer_id == one.producer_id and each.first_offset <= one.base_offset <= each.last_offset
                for each in log.aborted
            )
            if one.base_offset < end and not one.is_control and not aborted:
                found += values_of(one.view)
        return found

    @property
    def used_transactions(self) -> bool:
        return any(one.is_transactional and not one.is_control for one in self.log.batches())

    def check(self) -> None:
        """The target's records are a prefix of the source's."""
        seen = [self.visible(committed=True)]
        if not self.used_transactions:
            seen.append(self.visible(committed=False))
        for values in seen:
            self.check_prefix(values)

    def check_prefix(self, values: list[bytes]) -> None:
        assert values == self.stream[: len(values)], f"{values} of {len(self.stream)}"

    # --- the end

    def finish(self) -> None:
        """Without further faults, another attempt copies everything, or has a named error that is justified."""
        self._heal()
        if self.lost or self.policy.start_over:
            self.source_grows([1], 0)  # another log is noticed when something is to be copied
        self._check_result(self._attempt_to_the_end())
        for one in self.alive:  # zombies change nothing any more
            one.suspended = False
        self.simulation.run(until=lambda: not self.alive)
        if self.results[-1].outcome is Outcome.COMPLETE:
            self._check_result(self.results[-1])
        self.check_index()

    def check_index(self) -> None:
        """The offset index translates what it should."""
        deleted = self.source_log.start_offset > 0 or self.log.start_offset > 0
        lost = self.lost or deleted or bool(self.excused) or self.policy.start_over
        check_offsets(FLOW, self.source_log, self.target, TARGET, lost=lost)

    def _attempt_to_the_end(self) -> RangeResult:
        for _ in range(_PASSES):
            process = self.attempt()
            self.simulation.run(until=lambda process=process: process.ended)  # type: ignore[misc]
            assert process.results is not None
            (result,) = process.results
            self.results.append(result)
            self.check()
            if result.outcome in {Outcome.COMPLETE, Outcome.FAILED}:
                break
        return self.results[-1]

    def _heal(self) -> None:
        for one in self.alive:
            one.suspended = True
        self.end_faults()
        self.time_passes(20_000)
        self.log.replicated_to = None

    def end_faults(self) -> None:
        for cluster in (self.source, self.target):
            cluster.control.clear()
            for node in cluster.brokers:
                cluster.start(node)
        self.target.works_off_ms = None
        self.target.marker_ms = 0

    def _check_result(self, result: RangeResult) -> None:
        if result.outcome is Outcome.COMPLETE:
            self._check_complete()
            return
        assert result.outcome is Outcome.FAILED, [(one.outcome, one.error) for one in self.results]
        # What retention has deleted on a side, besides, cannot be compared; anchors beyond the progress do not count.
        uncertain = bool(self.excused) or self._commits_lost
        unhealed = {"target-truncated"} if self.unanchored or (self.lost and uncertain) else set[str]()
        excused = self.excused | unhealed
        assert any(name in (result.error or "") for name in excused), f"{result.error} (excused: {excused})"

    def _check_complete(self) -> None:
        values = self.visible(committed=True)
        assert values == self.stream, f"{values} of {len(self.stream)}"


def describe(site: CopySite) -> dict[str, Any]:
    """For a failing test: what is in the target's log."""
    kinds = [
        (one.base_offset, "marker" if one.is_control else values_of(one.view), one.producer_id, one.producer_epoch)
        for one in site.log.batches()
    ]
    return {"log": kinds, "results": [(one.outcome, one.error) for one in site.results]}
