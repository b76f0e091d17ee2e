"""What is new reaches one task of a job, and what is gone leaves its own: entries first, their version afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.client import Admin, TopicPartition
from mirror.errors import KafkaTimeout
from mirror.relay.model.assignments import RELEASED, Entry
from mirror.relay.model.ranges import OPEN_END, Range, RangeResult
from mirror.relay.model.reports import SETTLED, PartitionReport, TaskState
from mirror.relay.progress.assignment_entries import entries_of
from mirror.relay.progress.control_record import control_partition
from mirror.spark.discovery.assigner import Assigner
from mirror.spark.run_control import RunControlClient
from mirror.spark.supervision.control_record_thread import ClaimedRun
from mirror.wire.api import Api
from tests.spark.claimed_run import claimed_run
from tests.spark.fakes import Cluster

if TYPE_CHECKING:
    from mirror.relay.progress.control_record import RunControl

RUN, JOB, SETTLE_MS = "run-1", 1, 60_000


def range_of(topic: str, partition: int = 0) -> Range:
    return Range(
        flow="f",
        topic=topic,
        target_topic=f"a.{topic}",
        partition=partition,
        start=0,
        end=OPEN_END,
        source_cluster_id="id-a",
        topic_id="",
    )


class Clock:
    """Each announcement comes a second after the one before."""

    def __init__(self) -> None:
        self.ms = 0

    def now(self) -> int:
        self.ms += 1_000
        return self.ms

    def unix_ms(self) -> int:
        return self.now()


class Job:
    """A job of two tasks with one partition each."""

    def __init__(self) -> None:
        self.cluster = Cluster("b:1").make()
        for topic in ("x", "y", "z", "new", "other", "old"):
            self.cluster.add_topic(f"a.{topic}", [0])
        self.target = Admin({"bootstrap.servers": "b:1"})
        self.run = claimed_run(RUN, self.target)
        self.control = self.run.client
        self.warned: list[str] = []
        self.reported: list[str] = []
        self.clock = Clock()
        rows = [[range_of("x")], [range_of("y"), range_of("z")]]
        self.assigner = Assigner(
            "f",
            JOB,
            rows,
            self.run,
            self.target,
            self.clock,
            settle_within_ms=SETTLE_MS,
            warn=self.warned.append,
            report=self.reported.append,
        )

    def record(self) -> RunControl:
        record = self.control.read()
        assert record is not None
        return record

    def entries(self) -> dict[str, Entry]:
        """By target topic: what a task that reads the announced version finds."""
        offsets = self.target.group_offsets(control_partition("f")[0])
        return {target.topic: entry for target, entry in entries_of(offsets, "f", RUN, JOB).items()}

    def settle(self, topic: str, version: int, *, run: str = RUN) -> None:
        range_ = range_of(topic)
        result = RangeResult.initial(range_, 7)
        report = PartitionReport(
            target=TopicPartition(f"a.{topic}", 0),
            run=run,
            job=JOB,
            task=0,
            attempt=0,
            taken=0,
            state=SETTLED,
            sequence=9,
            version=version,
            result=result,
        )
        self.assigner.on_status([], [report])

    def report(self, *tasks: int, attempt: int = 0) -> None:
        """Tasks report of themselves, each 3 s after the one before."""
        for task in tasks:
            self.clock.ms += 3_000
            state = TaskState(
                run=RUN,
                job=JOB,
                task=task,
                attempt=attempt,
                host="h",
                pid=1,
                since_ms=0,
                seen_ms=self.clock.ms,
                version=0,
                partitions=1,
            )
            self.assigner.on_status([state], [])


@pytest.fixture
def job() -> Job:
    return Job()


def targets(*topics: str) -> list[TopicPartition]:
    return [TopicPartition(f"a.{topic}", 0) for topic in topics]


def test_what_is_new_goes_to_the_least_loaded_task_under_a_version_that_is_announced(job: Job) -> None:
    assert job.assigner.lacking(targets("x", "new")) == set(targets("new"))
    assert job.assigner.take([range_of("new"), range_of("x")]) == {}
    (entry,) = job.entries().values()
    assert (entry.owner, entry.range.topic) == (0, "new")
    assert entry.version <= job.record().version
    assert job.assigner.lacking(targets("x", "new")) == set()
    before = job.record().version
    job.assigner.take([range_of("new")])
    assert job.record().version == before, "it has a task"


def test_an_entry_is_committed_before_its_version_is_announced(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def announce(_: ClaimedRun, version: int) -> None:
        assert job.entries()["a.new"].version <= version
        announced.append(version)

    announced = list[int]()
    monkeypatch.setattr(ClaimedRun, "announce_assignments", announce)
    job.assigner.take([range_of("new")])
    assert len(announced) == 1


def test_what_the_target_refuses_is_committed_later_under_a_version_that_no_task_has_read(job: Job) -> None:
    job.cluster.set_moods({"uncommittable": '["a.new"]'})
    assert set(job.assigner.take([range_of("new"), range_of("other")])) == set(targets("new"))
    announced = job.record().version
    assert set(job.entries()) == {"a.other"}
    job.cluster.set_moods({})
    assert job.assigner.take([]) == {}
    assert set(job.entries()) == {"a.other", "a.new"}
    assert job.record().version > announced


def test_a_released_partition_is_taken_again_once_its_task_has_settled_it(job: Job) -> None:
    job.assigner.release(targets("x"))
    released = job.entries()["a.x"]
    assert (released.owner, released.previous) == (RELEASED, 0)
    assert [one.topic for one in job.assigner.ranges()] == ["y", "z"]
    assert job.assigner.lacking(targets("x")) == set()
    job.settle("x", released.version, run="another")
    assert job.assigner.lacking(targets("x")) == set(), "its own task has not settled it"
    job.settle("x", released.version)
    assert job.assigner.lacking(targets("x")) == set(targets("x"))
    job.assigner.take([range_of("x")])
    assert (job.entries()["a.x"].owner, job.entries()["a.x"].version > released.version) == (0, True)
    assert job.warned == []


def test_a_task_that_does_not_answer_loses_its_partition_with_a_warning(job: Job) -> None:
    job.assigner.release(targets("x"))
    job.clock.ms += SETTLE_MS
    assert job.assigner.settling(targets("x", "y")) == set(targets("x"))
    job.assigner.update()
    assert job.assigner.lacking(targets("x")) == set(targets("x"))
    job.assigner.take([range_of("x")])
    assert job.entries()["a.x"].owner == 0
    (line,) = job.warned
    assert "a.x-0" in line


def test_the_partitions_of_a_lost_task_are_given_to_the_others_and_back_once_it_reports_again(job: Job) -> None:
    job.report(0, 1)
    job.assigner.update()
    assert (job.entries(), job.warned) == ({}, [])
    job.report(*[0] * 6)
    job.assigner.update()
    assert {topic: entry.owner for topic, entry in job.entries().items()} == {"a.y": 0, "a.z": 0}
    assert all(entry.version <= job.record().version for entry in job.entries().values())
    (line,) = job.warned
    assert line.startswith("2 partitions are copied by other tasks until theirs report again: 1;")
    assert line.endswith("report, a flow that copies at least once may copy records twice")
    job.assigner.take([range_of("new")])
    assert job.entries()["a.new"].owner == 0
    job.report(1)
    job.assigner.update()
    moving = job.entries()
    assert {topic: entry.owner for topic, entry in moving.items()} == {"a.y": RELEASED, "a.z": RELEASED, "a.new": 0}
    assert job.assigner.lacking(targets("y", "z")) == set(), "task 0 has not settled them"
    job.settle("y", moving["a.y"].version)
    job.assigner.update()
    assert (job.entries()["a.y"].owner, job.entries()["a.z"].owner) == (1, RELEASED)
    job.settle("z", moving["a.z"].version)
    job.assigner.update()
    assert (job.entries()["a.z"].owner, len(job.warned)) == (1, 1)
    assert job.reported == ["each task copies its own partitions again"]
    job.assigner.update()
    job.report(*[0] * 25)
    job.assigner.update()
    assert (len(job.warned), len(job.reported)) == (2, 1), "it is lost once more"


def test_all_entries_are_renewed_once_a_task_has_begun_again(job: Job) -> None:
    """With a deleted topic, brokers delete the entries of its partitions, of which an attempt knows nothing else."""
    group = control_partition("f")[0]
    job.assigner.take([range_of("new")])
    job.report(0, 1)
    with job.cluster.change() as state:
        state["groups"][group].pop("a.new-0")
    before = job.record().version
    job.assigner.renew(3_600_000)
    assert "a.new" not in job.entries()
    job.report(1, attempt=1)
    for _ in range(2):
        job.assigner.update()
        assert job.warned == [
            "Spark has begun tasks again: 1; their processes had died, or they failed: see Spark's log"
        ]
    job.assigner.renew(3_600_000)
    assert "a.new" in job.entries()
    assert job.record().version > before, "the attempt may have read what was left"
    with job.cluster.change() as state:
        state["groups"][group].pop("a.new-0")
    job.report(1, 1, attempt=1)
    job.report(1)
    job.assigner.renew(3_600_000)
    assert "a.new" not in job.entries(), "no attempt is new"


def test_the_entry_of_what_was_released_and_settled_is_deleted_unless_it_is_in_a_row(job: Job) -> None:
    job.assigner.take([range_of("new"), range_of("other")])
    job.assigner.release(targets("x", "new", "other"))
    versions = {topic: job.entries()[f"a.{topic}"].version for topic in ("x", "new", "other")}
    for topic in ("x", "new"):
        job.settle(topic, versions[topic])
    job.assigner.delete_outdated()
    assert set(job.entries()) == {"a.x", "a.other"}
    assert job.assigner.lacking(targets("x", "new", "other")) == set(targets("x", "new"))
    job.assigner.renew(0)
    assert set(job.entries()) == {"a.x", "a.other"}
    assert set(job.assigner._table._released) == set(targets("x", "other"))
    job.assigner.take([range_of("new")])
    assert job.entries()["a.new"].version > versions["new"]


def test_a_target_without_offset_delete_is_asked_for_it_once_and_settled_entries_are_not_renewed(job: Job) -> None:
    kafka = job.cluster.kafka
    del kafka.versions[Api.OFFSET_DELETE]
    for node in kafka.brokers:
        kafka.disconnect(node)
    for topic in ("new", "other"):
        job.assigner.take([range_of(topic)])
        job.assigner.release(targets(topic))
        job.settle(topic, job.entries()[f"a.{topic}"].version)
        job.assigner.delete_outdated()
    assert job.assigner._table._released == {}
    (line,) = job.reported
    assert "does not offer OffsetDelete" in line
    job.assigner.take([range_of("new")])
    assert job.entries()["a.new"].owner in {0, 1}


def test_nothing_is_kept_of_a_settled_partition_whose_entry_went_with_its_topic(job: Job) -> None:
    job.assigner.take([range_of("new")])
    job.assigner.release(targets("new"))
    job.settle("new", job.entries()["a.new"].version)
    with job.cluster.change() as state:
        state["groups"][control_partition("f")[0]].pop("a.new-0")
    job.assigner.delete_outdated()
    assert job.assigner._table._released == {}


def test_a_release_that_the_target_refuses_is_not_overdue_before_tasks_can_read_it(job: Job) -> None:
    job.cluster.set_moods({"uncommittable": '["a.x"]'})
    job.assigner.release(targets("x", "y"))
    job.clock.ms += SETTLE_MS
    job.assigner.update()
    assert job.assigner.settling(targets("x", "y")) == set(targets("x"))
    job.cluster.set_moods({})
    job.assigner.update()
    job.clock.ms += SETTLE_MS
    job.assigner.update()
    assert job.assigner.settling(targets("x", "y")) == set()


def test_nothing_is_kept_of_a_released_topic_that_does_not_exist_any_more(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offset cannot be committed: so no version is announced for it, and nothing is tried again."""
    job.cluster.set_moods({"gone": '["a.x"]'})
    before = job.record().version
    job.assigner.release(targets("x"))
    assert (job.record().version, job.assigner.settling(targets("x"))) == (before, set())
    with monkeypatch.context() as patched:
        patched.setattr(Admin, "commit_group_offsets_async", lambda *_: pytest.fail("committed again"))
        job.assigner.update()
    assert job.assigner.take([range_of("new")]) == {}
    job.cluster.set_moods({})
    assert job.assigner.take([range_of("x")]) == {}
    assert job.entries()["a.x"].owner in {0, 1}, "a topic that has come back is new"


def test_a_run_that_was_replaced_deletes_nothing(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    group = control_partition("f")[0]
    monkeypatch.setattr(Admin, "delete_group_offsets", lambda *_, **__: pytest.fail("deleted"))
    successor = RunControlClient(job.target, "f", "run-2")
    successor.claim()
    entry = Entry("run-2", 1, 3, 0, range_of("new"))
    job.target.commit_group_offsets(group, {entry.target: entry.to_offset()})
    job.assigner.delete_outdated()


def test_reports_and_the_main_loop_do_not_wait_for_the_target(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def announce(*_: object) -> None:
        assert not job.assigner._lock.locked()
        assert [one.topic for one in job.assigner.ranges()] == ["x", "y", "z", "new"]
        job.report(0)

    monkeypatch.setattr(ClaimedRun, "announce_assignments", announce)
    job.assigner.take([range_of("new")])


def test_what_could_not_be_announced_is_announced_later(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KafkaTimeout("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(ClaimedRun, "announce_assignments", fail)
        with pytest.raises(KafkaTimeout):
            job.assigner.take([range_of("new")])
    job.assigner.update()
    assert job.record().version >= job.entries()["a.new"].version
    before = job.record().version
    job.assigner.update()
    assert job.record().version == before


def test_entries_are_renewed_before_the_target_forgets_them_and_those_of_earlier_jobs_deleted(job: Job) -> None:
    group = control_partition("f")[0]
    old = Entry("run-0", 1, 3, 0, range_of("old"))
    job.target.commit_group_offsets(group, {old.target: old.to_offset()})
    job.assigner.take([range_of("new")])
    job.assigner.delete_outdated()
    offsets = job.target.group_offsets(group)
    assert old.target not in offsets
    assert "a.new" in job.entries()
    with job.cluster.change() as state:
        state["groups"][group].pop("a.new-0")
    before = job.record().version
    job.assigner.renew(3_600_000)
    assert "a.new" not in job.entries()
    job.clock.ms += 3_600_000
    job.assigner.renew(3_600_000)
    assert "a.new" in job.entries()
    assert job.record().version >= before
