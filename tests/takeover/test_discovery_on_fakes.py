"""Where MirrorMaker 2's positions are found, and when a takeover is refused. Real clients, brokers in memory."""

from __future__ import annotations

import pytest

from mirror.client import Admin
from mirror.errors import FlowError, KafkaError
from mirror.relay.model.ranges import Outcome as CopyOutcome
from mirror.spark.run_control import RunControlClient
from mirror.takeover.places import Deployment, places_of
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.control import Action
from tests.relay.fake_pair import FLOW
from tests.takeover.fake_mirrormaker import CONNECTOR, POSITIONS, FakeMirrorMaker, only

VALUES = [b"%d" % number for number in range(12)]


@pytest.fixture
def mm2(monkeypatch: pytest.MonkeyPatch) -> FakeMirrorMaker:
    """It has copied the first 9 of 12 records, and stored offset 5."""
    mm2 = FakeMirrorMaker(monkeypatch)
    mm2.write(*VALUES)
    mm2.copy(0, 9, synced=(0, 4))
    mm2.store(5)
    return mm2


def _offsets(mm2: FakeMirrorMaker) -> list[str]:
    return [f"{group} {tp}: {one}" for group, offsets in mm2.pair.target.groups.items() for tp, one in offsets.items()]


def test_it_is_refused_while_something_writes(mm2: FakeMirrorMaker) -> None:
    before = _offsets(mm2)
    with pytest.raises(FlowError, match=r"run still: something has stored positions meanwhile: mm2-offsets"):
        mm2.run(pause=lambda _: mm2.store(6))
    with pytest.raises(FlowError, match=r"something has written to the target meanwhile: paris\.t-0"):
        mm2.run(pause=lambda _: mm2.copy(9, 10))
    assert _offsets(mm2) == before
    report = mm2.run(pause=lambda _: mm2.copy(10, 11), while_it_writes=True)
    assert ["written to the target" in line for line in report.warnings] == [True]
    assert mm2.pair.copy().outcome is CopyOutcome.COMPLETE
    assert mm2.pair.values() == VALUES


def test_a_topic_of_positions_that_is_deleted_meanwhile_is_named(mm2: FakeMirrorMaker) -> None:
    with pytest.raises(KafkaError, match=f"topic '{POSITIONS}': a broker does not know it"):
        mm2.run(pause=lambda _: mm2.pair.target.topics.pop(POSITIONS))


def test_a_flow_that_begins_meanwhile_is_not_taken_over(mm2: FakeMirrorMaker) -> None:
    with Admin({"bootstrap.servers": mm2.pair.target.bootstrap}) as admin:
        control = RunControlClient(admin, FLOW, "a run")

        def begin(_: float) -> None:
            control.claim()

        with pytest.raises(FlowError, match=r"copied now, by run a run .*mirror stop"):
            mm2.run(pause=begin)
        assert mm2.pair.committed() is None
        control.want(ended=True)
        control.sync()
    assert only(mm2.run()).next_offset == 9


def test_positions_are_found_by_their_usual_names_or_by_options(monkeypatch: pytest.MonkeyPatch) -> None:
    mm2 = FakeMirrorMaker(monkeypatch, positions="mirrormaker2-cluster-offsets", connector="paris->berlin.Source")
    mm2.write(*VALUES)
    mm2.copy(0, 9)
    mm2.store(8)
    found = mm2.run(dry_run=True).found
    assert (found.offsets_topic, found.connector) == ("mirrormaker2-cluster-offsets", "paris->berlin.Source")
    assert found.worker_group == "mirrormaker2-cluster"
    with pytest.raises(FlowError, match=r"no positions for the source paris .*none of other exists.*--offsets-topic"):
        mm2.run(deployment={"offsets_topic": "other"})
    with pytest.raises(FlowError, match="no positions of connector x for the source paris"):
        mm2.run(deployment={"connector": "x"})


def test_positions_of_a_connectors_own_topic_count_before_older_ones_of_the_worker(mm2: FakeMirrorMaker) -> None:
    """``offsets.storage.topic``: Kafka Connect takes a position that is not there for none."""
    mm2.positions = "own"
    mm2.pair.target.add_topic("own", 25)
    mm2.store(7)
    own = {"offsets_topic": "own", "worker_group": "paris-mm2"}
    report = mm2.run(deployment=own)
    assert (report.found.offsets_topic, report.found.worker_group) == ("own", "paris-mm2")
    assert (only(report).stored, only(report).next_offset) == (7, 9)
    assert mm2.pair.copy().outcome is CopyOutcome.COMPLETE
    assert mm2.pair.values() == VALUES
    assert mm2.hand_back(deployment=own).decisions[0].next_offset == 12
    assert only(mm2.run(dry_run=True, deployment=own)).stored == 11
    assert only(mm2.run(dry_run=True)).stored == 5, "the worker's topic is left alone"


@pytest.mark.parametrize("dry_run", [False, True])
def test_group_of_the_workers_has_to_be_named_beside_a_topic_of_the_users(mm2: FakeMirrorMaker, dry_run: bool) -> None:
    """By a wrong group, running workers would not be seen, and tasks that copy exactly once not be fenced."""
    mm2.positions = "own"
    mm2.pair.target.add_topic("own", 25)
    mm2.store(7)
    before = _offsets(mm2)
    for run in (mm2.run, mm2.hand_back):
        with pytest.raises(FlowError, match=r"from topic own, .*--worker-group\. It is paris-mm2 in a dedicated"):
            run(deployment={"offsets_topic": "own"}, dry_run=dry_run)
    assert _offsets(mm2) == before
    mm2.connector = "paris->berlin.Source"
    mm2.store(8)
    report = mm2.run(deployment={"offsets_topic": "own", "connector": mm2.connector}, dry_run=dry_run)
    assert report.found.worker_group == "own"


def test_workers_of_a_dedicated_cluster_are_watched_beside_a_connectors_own_topic() -> None:
    """A member of their group is MirrorMaker 2 that runs; that of Kafka Connect may run other connectors."""
    for group, expected in {None: False, "paris-mm2": True, "connect-cluster": False}.items():
        deployment = Deployment(source="paris", target="berlin", offsets_topic="own", worker_group=group)
        assert places_of(deployment, "own", "a connector", []).dedicated is expected, group


def test_positions_of_two_connectors_are_not_chosen_from(mm2: FakeMirrorMaker) -> None:
    mm2.connector = "another"
    mm2.store(3)
    with pytest.raises(FlowError, match=f"{CONNECTOR} in {POSITIONS}, another in {POSITIONS}; name one"):
        mm2.run()
    assert only(mm2.run(deployment={"connector": CONNECTOR})).stored == 5


def test_positions_may_be_on_another_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of Kafka Connect's workers, here beside the source."""
    mm2 = FakeMirrorMaker(monkeypatch, positions="connect-offsets", on_source=True)
    mm2.write(*VALUES)
    mm2.copy(0, 9)
    mm2.store(8)
    with pytest.raises(FlowError, match=r"were found on berlin .*--offsets-cluster"):
        mm2.run()
    report = mm2.run(deployment={"offsets_cluster": "paris"})
    assert (only(report).stored, only(report).next_offset) == (8, 9)
    assert mm2.pair.copy().outcome is CopyOutcome.COMPLETE
    assert mm2.pair.values() == VALUES
    handed_back = mm2.hand_back(deployment={"offsets_cluster": "paris"})
    assert handed_back.decisions[0].next_offset == 12
    again = mm2.run(deployment={"offsets_cluster": "paris"})
    assert only(again).stored == 11


def test_a_position_under_other_bytes_gives_way_to_that_of_kafka_connect(mm2: FakeMirrorMaker) -> None:
    """MirrorMaker 2 reads no other. They are in partitions of their own, in any order."""
    mm2.store_under(b'["MirrorSourceConnector", {"cluster": "paris", "partition": 0, "topic": "t"}]', 11)
    mm2.store_under(b'["MirrorSourceConnector",{"topic":"t","cluster":"paris","partition":0}]', 11)
    assert only(mm2.run()).stored == 5


def test_workers_that_cannot_be_asked_for_are_named(mm2: FakeMirrorMaker) -> None:
    refused = Action(errors={"paris-mm2": errors.GROUP_AUTHORIZATION_FAILED})
    mm2.pair.target.control.add(lambda call: refused if call.api is Api.DESCRIBE_GROUPS else None)
    report = mm2.run()
    assert only(report).next_offset == 9
    assert report.warnings[0].startswith(
        "whether MirrorMaker 2's workers run cannot be read from their group paris-mm2"
    )


def test_a_tombstone_forgets_a_position(mm2: FakeMirrorMaker) -> None:
    mm2.store(1, topic="other")
    mm2.store(None)
    report = mm2.run()
    assert (only(report).stored, only(report).next_offset) == (None, 9)
    assert report.not_selected == ["other"]


def test_a_tombstone_of_kafka_connect_counts_before_a_position_under_other_bytes(mm2: FakeMirrorMaker) -> None:
    """MirrorMaker 2 would begin again: behind the other position, records that nothing has copied would be skipped."""
    mm2.store(1, topic="other")
    mm2.store_under(b'["MirrorSourceConnector", {"cluster": "paris", "partition": 0, "topic": "t"}]', 11)
    mm2.store(None)
    assert only(mm2.run()).stored is None


@pytest.mark.parametrize(
    ("key", "converter"),
    [
        (
            b'{"schema":null,"payload":["Source",{"cluster":"paris","partition":0,"topic":"t"}]}',
            "JSON with schemas (JsonConverter with schemas.enable)",
        ),
        (b"[Source, {cluster=paris, partition=0, topic=t}]", "text of StringConverter"),
        (b"\x00\x00\x00\x00\x07\x0cSource\x0aparis", "no JSON"),
    ],
)
def test_positions_by_other_converters_are_not_taken_for_none(
    monkeypatch: pytest.MonkeyPatch, key: bytes, converter: str
) -> None:
    mm2 = FakeMirrorMaker(monkeypatch)
    mm2.write(*VALUES)
    mm2.copy(0, 9)
    mm2.store_under(key, 8)
    for run in (mm2.run, mm2.hand_back):
        with pytest.raises(FlowError) as raised:
            run()
        (line,) = str(raised.value).splitlines()
        assert line.startswith(f"topic {POSITIONS} on berlin has 1 keys that are no plain JSON, such as ")
        assert f": {converter}; " in line
    mm2.store(8)  # MirrorMaker 2 reads this one
    assert only(mm2.run()).stored == 8


@pytest.mark.parametrize("value", [b'{"schema":null,"payload":{"offset":8}}', b"{offset=8}"])
def test_a_value_by_another_converter_is_not_taken_for_a_tombstone(mm2: FakeMirrorMaker, value: bytes) -> None:
    mm2.store_under(b'["MirrorSourceConnector",{"cluster":"paris","partition":0,"topic":"t"}]', value)
    with pytest.raises(FlowError, match=r"has a position of t-0 whose value is no plain JSON, \{.*internal\.key"):
        mm2.run()


def test_keys_of_other_connectors_may_have_any_format(mm2: FakeMirrorMaker) -> None:
    mm2.store_under(b"\x00\x01 of another connector", 3)
    mm2.store(None)
    assert only(mm2.run()).stored is None
