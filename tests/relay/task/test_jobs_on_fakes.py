"""A job whose tasks live: partitions are given to them, taken from them, and each record is copied once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from mirror.client import TopicPartition
from mirror.relay.model.ranges import Outcome
from mirror.relay.model.reports import PartitionReport, TaskState
from mirror.relay.partition.across_attempts import retry
from mirror.relay.partition.machine import ending
from mirror.relay.partition.writers.fence import transactional_id
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.control_record import control_partition
from mirror.relay.task import lifecycle, reporting
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.control import Action, ServerCall
from tests.fakes.record_batches import build
from tests.polling import eventually
from tests.relay.fake_pair import FLOW
from tests.relay.job_site import JobSite

DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def _reports_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROUND_MS", "URGENT_ROUND_MS"):
        monkeypatch.setattr(reporting, name, 50)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobSite]:
    site = JobSite(monkeypatch, [[0, 1], [2]])
    yield site
    site.end()


@pytest.mark.parametrize("by", ["sequences", "transactions"])
def test_a_job_copies_its_rows_until_it_is_to_stop(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    site = JobSite(monkeypatch, [[0, 1], [2]], by=by)
    try:
        site.begin_all()
        for _ in range(3):
            for partition in range(3):
                site.write(partition)
            site.copied()
        results = site.stop()
        assert [[one.partition for one in results[each]] for each in ((0, 0), (1, 0))] == [[0, 1], [2]]
        assert {(one.outcome, one.records) for each in results.values() for one in each} == {(Outcome.COMPLETE, 3)}
        site.check()
        assert site.fences == 3
    finally:
        site.end()


def test_what_this_host_s_file_does_not_select_is_reported_and_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    site = JobSite(monkeypatch, [[0, 2], []])
    try:
        site.begin(0)
        site.begin(1, selection=lambda _: None)
        site.write(1)
        site.commit(site.table.take([site.range_of(1)], {1}))
        eventually(lambda: bool(site.reported(1)), what="the report")
        (report,) = site.reported(1)
        assert (report.task, report.state, report.result.outcome) == (1, "failed", Outcome.FAILED)
        assert "does not select topic t for paris.t" in str(report.result.error)
        site.release(1)
        site.settled(1)
        site.take({0})
        site.copied(1)
    finally:
        site.end()


def test_another_topic_for_a_target_topic_that_a_task_has_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that may write assignments must not have the flow copy what its configuration does not select."""
    site = JobSite(monkeypatch, [[0, 2]])
    try:
        site.pair.source.add_topic("secret", 3)
        site.pair.source.log("secret", 1).append(build([b"salary"], timestamp=site.clock.unix_ms()))
        site.begin(0, selection={"t": "paris.t"}.get)
        site.write(0)
        site.copied(0)
        secret = replace(site.range_of(1), topic="secret", source_end=1)
        site.commit(site.table.take([secret], {0}))
        eventually(lambda: bool(site.reported(1)), what="the report")
        assert {one.state for one in site.reported(1)} == {"failed"}
        assert "does not select topic secret for paris.t" in str(site.reported(1)[0].result.error)
        site.stop()
        assert site.pair.values(1) == []
    finally:
        site.end()


def test_a_partition_that_moves_is_copied_once_and_in_order(site: JobSite) -> None:
    site.begin_all()
    for _ in range(3):
        site.write(0)
        site.copied(0)
        report = site.move(0, 1)
        assert (report.task, report.result.records) == (0, 1)
        site.write(0)
        site.copied(0)
        assert site.move(0, 0).task == 1
    site.write(0)
    site.copied(0)
    results = site.stop()
    assert [one.partition for one in results[0, 0]] == [1, 0]
    site.check()


@pytest.mark.parametrize("by", ["sequences", "transactions", ""])
def test_the_progress_of_an_idle_partition_is_renewed_while_its_task_lives(
    monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Brokers forget what a group without members has not committed for offsets.retention.minutes."""
    monkeypatch.setattr("mirror.relay.task.upkeep._RENEW_CHECK_MS", 20)
    site = JobSite(monkeypatch, [[0, 1]], exactly_once=bool(by), by=by)
    try:
        site.begin(0, renew_ms=DAY_MS)
        for _ in range(3):
            site.write(0)
            site.committed()  # nothing was ever written to the other partition
            site.clock.ahead_ms += 2 * DAY_MS
            renewed(site, site.clock.unix_ms())
        results = site.stop()[0, 0]
        assert [(one.outcome, one.records, one.retries) for one in results] == [
            (Outcome.COMPLETE, 3, 0),
            (Outcome.COMPLETE, 0, 0),
        ]
        site.check()
    finally:
        site.end()


def renewed(site: JobSite, since_ms: int) -> None:
    """Wait until the claims were written since then, or the progress where that is the claim."""

    def written_ms(progress: Progress) -> int:
        return min(progress.time_ms, progress.claimed_ms or progress.time_ms)

    eventually(
        lambda: all(written_ms(site.progress(each)) >= since_ms for each in site.written),
        what="the claims",
    )


def test_a_task_begins_once_the_clusters_answer(site: JobSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would not begin another one: for it, a task that returns is done."""
    monkeypatch.setattr("mirror.relay.task.topic_rules._ANSWER_TIMEOUT_MS", 300)
    _begins_again_soon(monkeypatch)
    asked: list[ServerCall] = []

    def silent(call: ServerCall) -> Action | None:
        if call.api is not Api.DESCRIBE_CONFIGS or len(asked) >= 6:  # more than one attempt asks
            return None
        asked.append(call)
        return Action(hold="before")

    site.pair.target.control.add(silent)
    site.begin(0)
    site.write(0)
    site.copied(0)
    assert len(asked) == 6


def _begins_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirror.relay.task.topic_rules._ANSWER_TIMEOUT_MS", 200)
    for name in ("_BACKOFF_MS", "_BACKOFF_MAX_MS"):
        monkeypatch.setattr(f"mirror.relay.task.beginning.{name}", 100)


@pytest.mark.parametrize("stop", [{"stop": True}, {"run": "run-2", "generation": 2}])
def test_a_task_that_cannot_begin_stops_with_its_flow(
    site: JobSite, monkeypatch: pytest.MonkeyPatch, stop: dict[str, Any]
) -> None:
    _begins_again_soon(monkeypatch)
    asked = _never_answers(site)
    task = site.begin(0)
    eventually(lambda: len(asked) >= 4, what="two attempts")
    site.announce(**stop)
    results = task.result(20)
    assert {(one.outcome, one.records) for one in results} == {(Outcome.UNFINISHED, 0)}
    assert len(results) == len(site.rows[0])


def test_a_task_with_ends_that_cannot_begin_is_unfinished(site: JobSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another job follows: one that copies what there is must not wait for ever."""
    _begins_again_soon(monkeypatch)
    _never_answers(site)
    site.rows[0] = [replace(one, end=1) for one in site.rows[0]]
    results = site.begin(0).result(20)
    assert {(one.outcome, one.records) for one in results} == {(Outcome.UNFINISHED, 0)}


def _never_answers(site: JobSite) -> list[ServerCall]:
    asked: list[ServerCall] = []

    def silent(call: ServerCall) -> Action | None:
        if call.api is not Api.DESCRIBE_CONFIGS:
            return None
        asked.append(call)
        return Action(hold="before")

    for cluster in (site.pair.source, site.pair.target):
        cluster.control.add(silent)
    return asked


@pytest.mark.parametrize("attempt", [0, 1])
def test_a_task_that_begins_late_leaves_alone_what_others_have_by_now(site: JobSite, attempt: int) -> None:
    """Its release was overdue. A fence of it would end the copy of the other task."""
    site.begin(1)
    site.write(0)
    site.release(0)
    site.take({1}, overdue=True)
    site.copied(0)
    fences = site.fences
    site.begin(0, attempt)
    site.write(1)
    site.copied(1)
    site.write(0)
    site.copied(0)
    results = site.stop()
    assert [one.partition for one in results[0, attempt]] == [1]
    assert [(one.partition, one.outcome, one.records, one.retries) for one in results[1, 0]][-1] == (
        0,
        Outcome.COMPLETE,
        2,
        0,
    )
    assert site.fences == fences + 1, "that of partition 1"
    site.check()


def test_a_partition_that_moves_home_begins_with_what_is_committed_by_then(site: JobSite) -> None:
    """Its task has read the progress of its row when it began, which may be days ago."""
    site.begin(1)
    site.commit(site.table.displace({1}))
    site.write(0)
    site.committed(0)
    site.begin(0, 1)
    eventually(lambda: any(isinstance(one, TaskState) and one.task == 0 for one in site.reports), what="its report")
    for _ in range(5):
        site.write(0)
    site.committed(0)
    site.commit(site.table.move_home({0, 1}, 1))
    site.settled(0)
    fetches, fences = len(site.pair.source.calls(Api.FETCH)), site.fences
    site.commit(site.table.take_home({0, 1}))

    def fetched() -> set[int]:
        calls = site.pair.source.calls(Api.FETCH)[fetches:]
        partitions = [one for call in calls for topic in call.body.topics for one in topic.partitions]
        return {one.fetch_offset for one in partitions if one.partition == 0}

    eventually(fetched, what="a fetch")
    assert fetched() == {6}
    assert site.fences == fences, "it has nothing to send"
    site.stop()
    site.check()


@pytest.mark.parametrize("by", ["sequences", "transactions"])
def test_an_attempt_that_takes_over_from_one_that_still_lives_fences_it(
    monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Spark has lost sight of the first one. Both copy for a while, and the target has each record once."""
    for module in (retry, lifecycle):
        monkeypatch.setattr(module, "FAILURE_BACKOFF_MS", 60_000)
    site = JobSite(monkeypatch, [[0, 1]], by=by)
    try:
        site.begin(0)
        for partition in (0, 1):
            site.write(partition)
        site.copied()
        site.begin(0, attempt=1)

        def fenced() -> bool:
            """Whether the first one has lost both partitions: each once the second one has a record of it to send."""
            for partition in (0, 1):
                site.write(partition)
            site.copied()
            return all(
                any((one.attempt, one.state) == (0, Outcome.FENCED) for one in site.reported(each)) for each in (0, 1)
            )

        eventually(fenced, what="the fences")
        for partition in (0, 1):
            site.write(partition)
        site.copied()
        results = site.stop()
        assert {one.outcome for one in results[0, 1]} == {Outcome.COMPLETE}
        assert {one.outcome for one in results[0, 0]} == {Outcome.FENCED}
        site.check()
    finally:
        site.end()


@pytest.fixture
def in_transactions(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobSite]:
    site = JobSite(monkeypatch, [[0]], by="transactions")
    yield site
    site.end()


def test_a_fenced_copy_waits_until_the_control_record_names_its_run(
    in_transactions: JobSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run may have the partition. No next epoch would revive a copy that has ended."""
    site = in_transactions
    for module in (retry, lifecycle):
        monkeypatch.setattr(module, "FAILURE_BACKOFF_MS", 100)
    monkeypatch.setattr(ending, "CONFIRM_MS", 20)
    site.begin(0)
    site.write(0)
    site.committed(0)
    unread = list[ServerCall]()

    def refused(call: ServerCall) -> Action | None:
        group = control_partition(FLOW)[0]
        if call.api is not Api.OFFSET_FETCH or group not in {one.group_id for one in call.body.groups}:
            return None
        unread.append(call)
        return Action(errors={group: errors.GROUP_AUTHORIZATION_FAILED})

    site.pair.target.control.add(refused)
    site.pair.target.transactions.init(transactional_id(FLOW, site.target(0)), 60_000, -1, -1)
    site.write(0)
    eventually(lambda: site.reported(0) and site.reported(0)[-1].state == Outcome.FENCED, what="the fence")
    fences, reads = site.fences, len(unread)
    eventually(lambda: len(unread) > reads + 20, what="reads of the control record")
    assert site.fences == fences, "it does not know whether another run has taken over"
    site.pair.target.control.clear()
    site.copied(0)
    (result,) = site.stop()[0, 0]
    assert (result.outcome, result.records) == (Outcome.COMPLETE, 2)
    site.check()


@pytest.mark.parametrize("attempt", [0, 1])
def test_the_progress_of_all_partitions_is_read_together(monkeypatch: pytest.MonkeyPatch, attempt: int) -> None:
    """A task that Spark repeats opens thousands: each of them would ask two groups."""
    site = JobSite(monkeypatch, [list(range(24))])
    try:
        first = site.begin(0)
        for partition in range(24):
            site.write(partition)
        site.committed()
        site.stop()
        first.result(30)
        site.announce(stop=False)
        before, site.reports[:] = len(site.pair.target.calls(Api.OFFSET_FETCH)), []
        fences = site.fences  # on a busy machine a request takes longer than its timeout, and is repeated
        site.begin(0, attempt)

        def opened() -> set[TopicPartition]:
            found = [report for report in site.reports if isinstance(report, PartitionReport)]
            return {report.target for report in found if report.result.end == 1}

        eventually(lambda: len(opened()) == 24, what="all partitions")
        progress = [
            call
            for call in site.pair.target.calls(Api.OFFSET_FETCH)[before:]
            if call.body.groups[0].group_id != control_partition(FLOW)[0]
        ]
        assert len(progress) <= 2, "one for the claims, one for the lazy progress"
        assert site.fences == fences, "none has anything to send"
        site.write(7)
        site.copied(7)
        assert site.fences == fences + 1
        site.check()
    finally:
        site.end()


@pytest.mark.parametrize("exactly_once", [True, False])
def test_an_earlier_attempt_that_still_lives_ends_once_a_later_one_is_known(
    monkeypatch: pytest.MonkeyPatch, exactly_once: bool
) -> None:
    """Otherwise they fence each other for ever, and at least once each of them copies everything."""
    site = JobSite(monkeypatch, [[0]], exactly_once=exactly_once)
    try:
        earlier = site.begin(0)
        site.write(0)
        site.committed(0)
        later = site.begin(0, attempt=1)
        site.announce(attempts=((0, 1),))
        earlier.result(20)
        site.write(0)
        site.copied(0)
        assert not later.done()
        site.check()
    finally:
        site.end()


@pytest.mark.parametrize("start_over", [False, True])
def test_what_was_copied_into_a_topic_that_is_made_again_is_known_when_its_copies_begin_again(
    site: JobSite, *, start_over: bool
) -> None:
    """The target forgets the progress with the topic, and a stream that is young has written no record of it yet."""
    site.begin_all(on_target_recreated="start-over" if start_over else "fail")
    for partition in range(3):
        site.write(partition)
    site.committed()
    target = site.pair.target
    target.add_topic("paris.t", 3)
    for offsets in target.groups.values():
        for tp in [tp for tp in offsets if tp.topic == "paris.t"]:
            del offsets[tp]
    for partition, task in ((0, 0), (1, 0), (2, 1)):
        site.move(partition, task)
    if start_over:
        site.committed()
        site.check()
        return

    def errors_of(partition: int) -> list[str]:
        return [one.result.error or "" for one in site.reported(partition) if one.state == Outcome.FAILED.value]

    eventually(lambda: all(map(errors_of, range(3))), what="the failure of each partition")
    for error in (error for partition in range(3) for error in errors_of(partition)):
        assert "target-recreated" in error
        assert 'on-target-recreated = "start-over"' in error
