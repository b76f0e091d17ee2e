"""A MirrorMaker 2 that starts again after a takeover is seen by runs of the flow. Real clients, brokers in memory."""

from __future__ import annotations

import threading

import pytest

from mirror.client import TopicPartition
from mirror.errors import KafkaError, MirrorMakerResumed
from mirror.mirrormaker.source_offsets import SourceOffsetKey, partition_of
from mirror.relay.model.ranges import Outcome as CopyOutcome
from mirror.relay.progress.flow_topic import takeover_topic_of
from mirror.takeover.continuation import TakeoverOutcome
from mirror.takeover.takeover_topic import TakeoverKey, TakeoverRecord, TakeoverTopic
from mirror.takeover.watch import INTERVAL_MS
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.control import Action, ServerCall
from tests.relay.fake_pair import FLOW
from tests.takeover.fake_mirrormaker import CONNECTOR, POSITIONS, FakeMirrorMaker, only

VALUES = [b"%d" % number for number in range(12)]
STATES = "mm2-status.paris.internal"
CONNECT = {"positions": "mirrormaker2-cluster-offsets", "connector": "paris->berlin.MirrorSourceConnector"}
CONNECT_STATES = "mirrormaker2-cluster-status"


def _stopped(monkeypatch: pytest.MonkeyPatch, **options: object) -> FakeMirrorMaker:
    """It has copied the first 9 of 12 records, and stored offset 5."""
    mm2 = FakeMirrorMaker(monkeypatch, **options)  # type: ignore[arg-type]
    mm2.pair.target.add_topic(STATES if mm2.positions == POSITIONS else CONNECT_STATES, 5)
    mm2.write(*VALUES)
    mm2.copy(0, 9, synced=(0, 4))
    mm2.store(5)
    return mm2


@pytest.fixture
def mm2(monkeypatch: pytest.MonkeyPatch) -> FakeMirrorMaker:
    return _stopped(monkeypatch)


def _seen(mm2: FakeMirrorMaker) -> str | None:
    """By a run that begins now."""
    with mm2.watch() as watch:
        return watch.read()


def test_one_that_rests_stops_nothing(mm2: FakeMirrorMaker) -> None:
    mm2.put(STATES, CONNECTOR, "RUNNING", task=0)
    mm2.run()
    assert mm2.pair.copy().outcome is CopyOutcome.COMPLETE
    with mm2.watch() as watch:
        watch.check()
        mm2.store(7, topic="other")
        mm2.put(STATES, CONNECTOR, "UNASSIGNED", task=0)
        mm2.put(STATES, "MirrorHeartbeatConnector", "RUNNING", task=0)
        mm2.pair.target.clock.advance(INTERVAL_MS)
        watch.check()
    assert mm2.warned == []


def test_a_flow_that_was_not_taken_over_watches_nothing(mm2: FakeMirrorMaker) -> None:
    mm2.store(11)
    del mm2.pair.target.topics[takeover_topic_of(FLOW)]
    assert _seen(mm2) is None


def test_a_position_that_it_stores_is_seen_while_a_flow_runs(mm2: FakeMirrorMaker) -> None:
    mm2.run()
    with mm2.watch() as watch:
        watch.check()
        mm2.copy(6, 12)
        mm2.store(11)
        assert watch.read() is None, "not before it is due"
        mm2.pair.target.clock.advance(INTERVAL_MS)
        with pytest.raises(MirrorMakerResumed, match=rf"it has stored offset 11 of t-0 in topic {POSITIONS}"):
            watch.check()
        assert watch.resumed == watch.read()


@pytest.mark.parametrize("form", [{}, CONNECT], ids=["dedicated", "Strimzi"])
def test_a_task_that_begins_to_run_is_seen_before_it_stores_anything(
    monkeypatch: pytest.MonkeyPatch, form: dict[str, str]
) -> None:
    mm2 = _stopped(monkeypatch, **form)
    states = CONNECT_STATES if form else STATES
    mm2.put(states, mm2.connector, "STOPPED")
    mm2.run()
    with mm2.watch() as watch:
        mm2.put(states, mm2.connector, "RUNNING")
        watch.check()
        mm2.put(states, mm2.connector, "RUNNING", task=1)
        mm2.pair.target.clock.advance(INTERVAL_MS)
        with pytest.raises(MirrorMakerResumed, match=r"its task 1 is RUNNING on worker w:1 \(generation 7\)"):
            watch.check()


def test_what_one_run_has_seen_holds_the_next_ones_until_it_is_taken_over_again(mm2: FakeMirrorMaker) -> None:
    """Compaction removes the record of a task that has been stopped since."""
    mm2.run()
    mm2.put(STATES, CONNECTOR, "RUNNING", task=0)
    seen = _seen(mm2)
    mm2.pair.target.add_topic(STATES, 5)
    mm2.pair.target.add_topic(POSITIONS, 25)
    mm2.store(5)
    assert seen is not None
    assert _seen(mm2) == seen
    mm2.run(dry_run=True)
    assert _seen(mm2) == seen
    assert only(mm2.run()).outcome is TakeoverOutcome.SETTLED
    assert _seen(mm2) is None


def test_a_takeover_that_leaves_something_out_does_not_release_the_flow(mm2: FakeMirrorMaker) -> None:
    mm2.run()
    mm2.store(11)
    seen = _seen(mm2)
    assert seen is not None
    mm2.store(99)
    assert only(mm2.run()).outcome is TakeoverOutcome.UNSETTLED
    assert _seen(mm2) == seen
    mm2.store(11)
    assert only(mm2.run()).outcome is TakeoverOutcome.SETTLED
    assert _seen(mm2) is None


def test_one_that_goes_on_with_other_topics_is_seen_by_its_positions_alone(mm2: FakeMirrorMaker) -> None:
    mm2.run(while_it_writes=True)
    mm2.put(STATES, CONNECTOR, "RUNNING", task=0)
    mm2.store(3, topic="other")
    assert _seen(mm2) is None
    mm2.store(11)
    assert "it has stored offset 11 of t-0" in str(_seen(mm2))


def test_one_that_makes_its_topics_again_is_seen(mm2: FakeMirrorMaker) -> None:
    """Their users have deleted them after the takeover."""
    for _ in range(20):
        mm2.store(5)
    mm2.run()
    topics = mm2.pair.target.topics
    del topics[POSITIONS], topics[STATES]
    with mm2.watch() as watch:
        watch.check()
        mm2.pair.target.add_topic(POSITIONS, 25)
        mm2.pair.target.clock.advance(INTERVAL_MS)
        mm2.store(2)
        assert "it has stored offset 2 of t-0" in str(watch.read())
    assert mm2.warned == []


def test_one_whose_topic_was_made_again_meanwhile_is_seen(mm2: FakeMirrorMaker) -> None:
    for _ in range(20):
        mm2.store(5)
    mm2.run()
    with mm2.watch() as watch:
        watch.check()
        mm2.pair.target.add_topic(POSITIONS, 25)
        mm2.pair.target.clock.advance(INTERVAL_MS)
        mm2.store(2)
        assert "it has stored offset 2 of t-0" in str(watch.read())


def test_a_log_that_an_election_has_cut_is_no_sign(mm2: FakeMirrorMaker) -> None:
    """The positions in front of the takeover are still there."""
    mm2.store(6)
    mm2.run()
    mm2.pair.target.log(POSITIONS, _partition_of("t")).truncate(1)
    with mm2.watch() as watch:
        watch.check()
        mm2.pair.target.clock.advance(INTERVAL_MS)
        mm2.store(7)
        assert "it has stored offset 7 of t-0" in str(watch.read())


def test_a_topic_that_a_broker_does_not_know_for_a_while_is_no_sign(mm2: FakeMirrorMaker) -> None:
    mm2.run()
    unknown = Action(errors={POSITIONS: errors.UNKNOWN_TOPIC_OR_PARTITION})
    with mm2.watch() as watch:
        mm2.pair.target.control.add(lambda call: unknown if call.api is Api.METADATA else None)
        watch.check()
        mm2.pair.target.control.clear()
        mm2.pair.target.clock.advance(INTERVAL_MS)
        watch.check()
    assert mm2.warned == []


def test_a_sign_is_seen_in_a_log_that_was_cut_between_two_runs(mm2: FakeMirrorMaker) -> None:
    mm2.store(6)
    mm2.run()
    mm2.pair.target.log(POSITIONS, _partition_of("t")).truncate(1)
    mm2.pair.target.clock.advance(INTERVAL_MS)
    assert _seen(mm2) is None
    mm2.store(7)
    assert "it has stored offset 7 of t-0" in str(_seen(mm2))


def _stored(mm2: FakeMirrorMaker) -> TakeoverRecord:
    (record,) = TakeoverTopic({"bootstrap.servers": mm2.pair.target.bootstrap}, FLOW).read(30_000)
    return record


def _partition_of(topic: str) -> int:
    return partition_of(SourceOffsetKey(CONNECTOR, "paris", TopicPartition(topic, 0)).to_bytes())


def test_nothing_is_read_behind_the_first_sign(mm2: FakeMirrorMaker) -> None:
    mm2.run()
    later = next(name for number in range(100) if _partition_of(name := f"other-{number}") > _partition_of("t"))
    mm2.store(11)
    mm2.store(3, topic=later)
    tp = TopicPartition(POSITIONS, _partition_of(later))
    mm2.pair.target.control.on(Api.FETCH, Action(errors={tp: errors.TOPIC_AUTHORIZATION_FAILED}), times=None)
    assert "it has stored offset 11 of t-0" in str(_seen(mm2))
    assert mm2.warned == []


def test_the_next_run_reads_only_what_was_not_read_before(mm2: FakeMirrorMaker) -> None:
    """A Connect cluster whose other connectors go on stores millions of positions after the takeover."""
    tp = TopicPartition(POSITIONS, _partition_of("other"))
    mm2.run()
    first = _stored(mm2).ends[tp]
    with mm2.watch() as watch:
        mm2.store(3, topic="other")
        watch.check()
        assert _stored(mm2).ends[tp] == first + 1
        mm2.store(4, topic="other")
        mm2.pair.target.clock.advance(INTERVAL_MS)
        watch.check()
        assert _stored(mm2).ends[tp] == first + 1, "a stream writes once an hour"
        mm2.pair.target.clock.advance(3_600_000)
        watch.check()
        assert _stored(mm2).ends[tp] == first + 2
    assert _seen(mm2) is None
    mm2.store(11)
    assert "it has stored offset 11 of t-0" in str(_seen(mm2))


def test_ends_that_cannot_be_stored_are_a_warning(mm2: FakeMirrorMaker) -> None:
    mm2.run()
    mm2.store(3, topic="other")
    tp = TopicPartition(takeover_topic_of(FLOW), 0)
    mm2.pair.target.control.on(Api.PRODUCE, Action(errors={tp: errors.TOPIC_AUTHORIZATION_FAILED}), times=None)
    assert _seen(mm2) is None
    (line,) = mm2.warned
    assert line.startswith("how far MirrorMaker 2's topics were read could not be stored for the next run: ")


def test_a_flow_that_was_handed_back_watches_nothing(mm2: FakeMirrorMaker) -> None:
    mm2.run()
    assert mm2.pair.copy().outcome is CopyOutcome.COMPLETE
    assert mm2.hand_back(dry_run=True).is_complete
    mm2.put(STATES, CONNECTOR, "RUNNING", task=0)
    assert _seen(mm2) is not None, "nothing was handed back yet"
    assert mm2.hand_back().is_complete
    assert _seen(mm2) is None


def test_states_that_may_not_be_read_do_not_stop_a_takeover(mm2: FakeMirrorMaker) -> None:
    """MirrorMaker 2 is fenced before: a takeover that fails then leaves neither of both to copy."""
    refused = Action(errors={STATES: errors.TOPIC_AUTHORIZATION_FAILED})

    def refuse(call: ServerCall) -> Action | None:
        is_named = call.api is Api.METADATA and STATES in str(call.body)  # a list of all topics leaves it out
        return refused if is_named else None

    mm2.pair.target.control.add(refuse)
    report = mm2.run()
    assert only(report).outcome is TakeoverOutcome.SETTLED
    assert any("is started again cannot be read" in line and STATES in line for line in report.warnings)
    assert _stored(mm2).status_topic == ""
    mm2.store(11)
    assert "it has stored offset 11 of t-0" in str(_seen(mm2))
    assert mm2.warned == []


def test_positions_that_a_hand_back_has_written_are_not_taken_for_mirrormakers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has left a partition out, which the flow goes on with."""
    mm2 = _stopped(monkeypatch, partitions=2)
    mm2.write(*VALUES, partition=1)
    mm2.copy(0, 9, partition=1, synced=(0,))
    mm2.store(8, partition=1)
    mm2.run()
    mm2.pair.copy_all()
    mm2.pair.target.log("paris.t", 1).truncate(3)
    before_ms = _stored(mm2).time_ms
    mm2.pair.target.clock.advance(INTERVAL_MS)
    report = mm2.hand_back()
    assert [one.outcome.value for one in report.decisions] == ["handed-back", "left-out"]
    assert _seen(mm2) is None
    assert _stored(mm2).time_ms >= before_ms + INTERVAL_MS, "they are not, either, if the log is cut"
    mm2.store(11, partition=1)
    assert _seen(mm2) is not None


def test_topics_that_cannot_be_read_are_a_warning_and_are_read_later(mm2: FakeMirrorMaker) -> None:
    mm2.run()
    with mm2.watch() as watch:
        mm2.store(11)
        refused = Action(errors={POSITIONS: errors.TOPIC_AUTHORIZATION_FAILED})
        mm2.pair.target.control.add(lambda call: refused if call.api is Api.METADATA else None)
        tried = set[int]()
        for _ in range(3):
            assert watch.read() is None
            tried.add(sum(POSITIONS in str(call.body) for call in mm2.pair.target.calls(Api.METADATA)))
            mm2.pair.target.clock.advance(INTERVAL_MS)
        assert len(tried) == 1, "a cluster that does not answer must not delay what shares the thread"
        (line,) = mm2.warned
        assert line.startswith("whether MirrorMaker 2 copies again what was taken over cannot be read: ")
        assert POSITIONS in line
        mm2.pair.target.control.clear()
        mm2.pair.target.clock.advance(60_000)
        assert watch.read() is not None


def test_what_cannot_be_read_hides_no_other_topic_or_connector(mm2: FakeMirrorMaker) -> None:
    another = TakeoverRecord(
        key=TakeoverKey("paris", "another", "refused"), cluster=None, status_topic="", ends={}, time_ms=0
    )
    TakeoverTopic({"bootstrap.servers": mm2.pair.target.bootstrap}, FLOW).write(another, 30_000)
    mm2.run()
    refused = Action(errors=dict.fromkeys([POSITIONS, "refused"], errors.TOPIC_AUTHORIZATION_FAILED))
    mm2.pair.target.control.add(lambda call: refused if call.api is Api.METADATA else None)
    with mm2.watch() as watch:
        assert watch.read() is None
        mm2.put(STATES, CONNECTOR, "RUNNING", task=0)
        mm2.pair.target.clock.advance(60_000)
        assert "its task 0 is RUNNING" in str(watch.read())
    assert ["'refused'" in line for line in mm2.warned] == [False, True]


def test_two_threads_do_not_read_at_once(mm2: FakeMirrorMaker) -> None:
    """The heartbeat of a scheduled run may still read when the run itself reads for the last time."""
    mm2.run()
    mm2.store(3, topic="other")
    reading, go_on, topics = threading.Event(), threading.Event(), list[str]()

    def copies(topic: str) -> bool:
        topics.append(topic)
        reading.set()
        assert go_on.wait(30)
        return False

    with mm2.watch(copies) as watch:
        threads = [threading.Thread(target=watch.read) for _ in range(2)]
        threads[0].start()
        assert reading.wait(30)
        threads[1].start()
        threads[1].join(0.2)
        assert threads[1].is_alive(), "it waits for the first one"
        go_on.set()
        for thread in threads:
            thread.join(30)
    assert topics == ["other"], "the second one is not due any more"
    mm2.pair.target.clock.advance(INTERVAL_MS)
    assert watch.read() is None, "it is closed, and reads no more"
    assert mm2.warned == []


def test_nothing_is_taken_over_without_the_record(mm2: FakeMirrorMaker) -> None:
    """The flow would copy beside a MirrorMaker 2 that starts again."""
    del mm2.pair.target.topics[takeover_topic_of(FLOW)]
    with pytest.raises(KafkaError, match=rf"{takeover_topic_of(FLOW)} \(one partition, cleanup.policy = compact\)"):
        mm2.run()
    assert mm2.pair.committed() is None


def test_a_record_that_a_hand_back_cannot_remove_is_a_warning(mm2: FakeMirrorMaker) -> None:
    """All else is done: the flow has no progress any more."""
    mm2.run()
    assert mm2.pair.copy().outcome is CopyOutcome.COMPLETE
    tp = TopicPartition(takeover_topic_of(FLOW), 0)
    mm2.pair.target.control.on(Api.PRODUCE, Action(errors={tp: errors.TOPIC_AUTHORIZATION_FAILED}), times=None)
    report = mm2.hand_back()
    assert report.is_complete
    assert ["still watch MirrorMaker 2" in line for line in report.warnings] == [True]
