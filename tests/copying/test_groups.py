"""Groups of real clusters move to the target; confluent-kafka commits, consumes and checks on both sides."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer as Confluent
from confluent_kafka import TopicPartition as ConfluentPartition
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.client import Admin, OffsetAndMetadata, Outcomes, TopicPartition
from mirror.groups.commit_decision import Reason
from mirror.groups.positions import GroupPosition
from mirror.groups.sync import GroupSync
from mirror.relay.offsets.extents import AppendedExtents
from tests.copying.group_site import commit, committed_at, consumer_of, group_sync
from tests.copying.pair import TwoClusters
from tests.copying.writers import Made, batch_of, write_batches
from tests.polling import eventually

pytestmark = pytest.mark.brokers

_HOSTILE: Final = "\N{GREEK SMALL LETTER ALPHA}\x00\x1b[31m\n'\"{}\u2028" * 50


NONE: Final = (-1001, "")


def _records(first: int, count: int) -> list[Made]:
    return [Made(b"k%d" % number, b"v%d" % number, (), 1_700_000_000_000) for number in range(first, first + count)]


def _written(pair: TwoClusters, topic: str, first: int, count: int) -> None:
    write_batches(pair.source.address, topic, [batch_of(_records(at, 10)) for at in range(first, first + count, 10)])


@pytest.fixture
def name(unique: Callable[[str], str]) -> str:
    return unique("g.billing")


def _copied(pair: TwoClusters) -> str:
    topic = pair.topics()
    write_batches(pair.target.address, topic, [batch_of(_records(1_000, 33))])
    _written(pair, topic, 0, 250)
    pair.complete(topic, start_over=True)
    return topic


@pytest.fixture
def topic(pair: TwoClusters) -> str:
    """250 records, at other offsets on the target, where 33 were before."""
    return _copied(pair)


@pytest.fixture(scope="module")
def shared_topic(pair: TwoClusters) -> str:
    """The same, for tests that only commit positions of groups of their own."""
    return _copied(pair)


def _at(pair: TwoClusters, topic: str, number: int) -> int:
    """Where the target has that record of the source."""
    (offset,) = (offset for offset, record in pair.target.seen(topic) if record.value == b"v%d" % number)
    return offset


def _only(sync: GroupSync, group: str) -> GroupPosition:
    (position,) = sync.round().groups[group].positions
    return position


def test_positions_are_those_of_the_same_records(pair: TwoClusters, shared_topic: str, name: str) -> None:
    with group_sync(pair, shared_topic) as sync:
        for offset in (0, 137, 249):
            commit(pair.source, name, shared_topic, offset, f"at {offset}")
            assert _only(sync, name).reason is None
            assert committed_at(pair.target, name, shared_topic) == (_at(pair, shared_topic, offset), f"at {offset}")
            commit(pair.source, name, shared_topic, 0)
        commit(pair.source, name, shared_topic, 250)
        assert _only(sync, name).reason is None
        assert committed_at(pair.target, name, shared_topic)[0] == _at(pair, shared_topic, 249) + 1


def test_a_group_beyond_the_copy_waits_at_its_end(pair: TwoClusters, topic: str, name: str) -> None:
    _written(pair, topic, 250, 50)
    commit(pair.source, name, topic, 280)
    with group_sync(pair, topic) as sync:
        assert _only(sync, name).reason is Reason.NOT_COPIED
        assert committed_at(pair.target, name, topic)[0] == _at(pair, topic, 249) + 1
        pair.complete(topic)
        assert _only(sync, name).reason is None
    assert committed_at(pair.target, name, topic)[0] == _at(pair, topic, 280)


def test_a_group_that_has_read_what_the_source_has_lost_continues_in_front_of_that(
    pair: TwoClusters, topic: str, name: str
) -> None:
    """To the brokers it is the same whether epoch 0 was cut back to 250, or never had more."""
    with Admin({"bootstrap.servers": pair.source.address}) as admin:
        admin.commit_group_offsets(name, {TopicPartition(topic, 0): OffsetAndMetadata(280, 0)})
    with group_sync(pair, topic) as sync:
        assert _only(sync, name).reason is Reason.TRUNCATED
        assert committed_at(pair.target, name, topic)[0] == _at(pair, topic, 249) + 1
        _written(pair, topic, 250, 50)
        pair.complete(topic)
        # Now the epoch reaches the offset.
        assert _only(sync, name).reason is None
    assert committed_at(pair.target, name, topic)[0] == _at(pair, topic, 280)


def test_the_group_without_a_name_is_brought_over_and_cannot_be_deleted(pair: TwoClusters, topic: str) -> None:
    source, target = (Admin({"bootstrap.servers": end.address}) for end in (pair.source, pair.target))
    tp = TopicPartition(topic, 0)
    with source, target:
        for offset in (100, 137):
            source.commit_group_offsets("", {tp: OffsetAndMetadata(offset)})
            with group_sync(pair, topic, delete=True) as sync:
                assert _only(sync, "").reason is None
            assert target.group_offsets("")[tp].offset == _at(pair, topic, offset)
        source.delete_groups([""])
        with group_sync(pair, topic, delete=True) as sync:
            held = _only(sync, "")
        # OffsetDelete takes no empty id.
        assert held.reason is Reason.REFUSED
        assert "INVALID_GROUP_ID" in held.detail
        assert target.group_offsets("")[tp].offset == _at(pair, topic, 137)


def test_a_group_behind_the_source_s_retention_keeps_its_records_on_the_target(
    pair: TwoClusters, topic: str, name: str
) -> None:
    commit(pair.source, name, topic, 20)
    pair.source.delete_records(topic, 100)
    with group_sync(pair, topic) as sync:
        assert _only(sync, name).reason is None
    assert committed_at(pair.target, name, topic)[0] == _at(pair, topic, 20)


def test_positions_in_front_of_the_copy_and_in_partitions_without_one_are_held(pair: TwoClusters, name: str) -> None:
    topic = pair.topics(2)
    _written(pair, topic, 0, 100)
    pair.source.fill(topic, [b"not copied"], partition=1)
    pair.source.delete_records(topic, 50)
    pair.complete([one for one in pair.ranges(topic) if one.partition == 0])
    commit(pair.source, name, topic, 20)
    commit(pair.source, name, topic, 0, partition=1)
    with group_sync(pair, topic) as sync:
        found = {one.source.partition: one.reason for one in sync.round().groups[name].positions}
    assert found == {0: Reason.UNKNOWN, 1: Reason.NOT_COPIED}
    assert committed_at(pair.target, name, topic) == committed_at(pair.target, name, topic, 1) == NONE


def test_positions_in_a_partition_without_index_are_exact(
    pair: TwoClusters, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are found in the logs."""
    topic = pair.topics()
    write_batches(pair.target.address, topic, [batch_of(_records(1_000, 33))])
    _written(pair, topic, 0, 100)
    with monkeypatch.context() as patch:
        patch.setattr(AppendedExtents, "take", lambda _: [])
        pair.complete(topic, start_over=True)
    with group_sync(pair, topic) as sync:
        for offset in (40, 99):
            commit(pair.source, name, topic, offset)
            assert _only(sync, name).reason is None
            assert committed_at(pair.target, name, topic)[0] == _at(pair, topic, offset)


@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=pytest.mark.cluster), "consumer"])
def test_a_group_with_members_on_the_target_is_left_alone(
    pair: TwoClusters, shared_topic: str, name: str, protocol: str
) -> None:
    commit(pair.source, name, shared_topic, 137)
    with group_sync(pair, shared_topic) as sync:
        with consumer_of(pair.target, name, group_protocol=protocol, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([shared_topic])
            eventually(lambda: consumer.poll(0.1) is not None, what="a record for the member")
            assert _only(sync, name).reason is Reason.ACTIVE
            # Also if it joins after the groups were listed.
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sync._of_target, "is_active", lambda _: False)
                assert _only(sync, name).reason is Reason.ACTIVE
            assert committed_at(pair.target, name, shared_topic) == NONE
        assert _only(sync, name).reason is None
    assert committed_at(pair.target, name, shared_topic)[0] == _at(pair, shared_topic, 137)


@pytest.mark.cluster
def test_commits_of_many_groups_share_calls_and_one_that_is_refused_holds_no_other(
    pair: TwoClusters, topic: str, name: str
) -> None:
    offsets, where = {f"{name}-{number}": number for number in range(40)}, TopicPartition(topic, 0)
    member = f"{name}-7"
    with Admin({"bootstrap.servers": pair.source.address}) as admin:
        wanted = {group: {where: OffsetAndMetadata(offset)} for group, offset in offsets.items()}
        made = admin.commit_offsets_of_groups_async(wanted, 30_000).result()
        assert made == {group: {where: None} for group in offsets}
    assert committed_at(pair.source, member, topic) == (7, "")
    with group_sync(pair, topic) as sync, consumer_of(pair.target, member, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        eventually(lambda: consumer.poll(0.1) is not None, what="a record for the member")
        with pytest.MonkeyPatch.context() as patch:  # it joins after the groups were listed
            patch.setattr(sync._of_target, "is_active", lambda _: False)
            states = sync.round().groups
    assert states[member].reasons == {Reason.ACTIVE}
    assert all(states[group].is_in_step for group in offsets if group != member)
    with Admin({"bootstrap.servers": pair.target.address}) as admin:
        found = admin.offsets_of_groups_async(list(offsets), 30_000).result()
    expected = {group: _at(pair, topic, offset) for group, offset in offsets.items() if group != member}
    assert {group: of_group[where].offset for group, of_group in found.items() if of_group} == expected


def test_a_consumer_with_assigned_partitions_takes_over_until_the_group_is_resumed(
    pair: TwoClusters, shared_topic: str, name: str
) -> None:
    commit(pair.source, name, shared_topic, 100)
    with group_sync(pair, shared_topic) as sync:
        assert _only(sync, name).reason is None
        with consumer_of(pair.target, name) as consumer:
            consumer.assign([ConfluentPartition(shared_topic, 0, committed_at(pair.target, name, shared_topic)[0])])
            eventually(lambda: (message := consumer.poll(0.1)) is not None and not message.error(), what="a record")
            consumer.commit(asynchronous=False)
        theirs = committed_at(pair.target, name, shared_topic)[0]
        assert theirs == _at(pair, shared_topic, 101)
        commit(pair.source, name, shared_topic, 137)
        assert _only(sync, name).reason is Reason.TAKEN_OVER
        assert committed_at(pair.target, name, shared_topic)[0] == theirs
    # Another process resumes it.
    with group_sync(pair, shared_topic) as other:
        assert other.resume(name) == 1
    with group_sync(pair, shared_topic) as sync:
        assert _only(sync, name).reason is None
    assert committed_at(pair.target, name, shared_topic)[0] == _at(pair, shared_topic, 137)


def test_a_reset_and_a_deletion_of_the_source_s_group_are_followed(
    pair: TwoClusters, shared_topic: str, name: str
) -> None:
    with group_sync(pair, shared_topic, delete=True) as sync:
        for offset in (200, 20):
            commit(pair.source, name, shared_topic, offset)
            assert _only(sync, name).reason is None
            assert committed_at(pair.target, name, shared_topic)[0] == _at(pair, shared_topic, offset)
        pair.source.admin.delete_consumer_groups([name])[name].result(30)
        assert name not in sync.round().groups
        assert committed_at(pair.target, name, shared_topic) == NONE


def test_metadata_comes_as_it_is(pair: TwoClusters, shared_topic: str, name: str) -> None:
    tp, given = (
        TopicPartition(shared_topic, 0),
        {f"{name}-{n}": text for n, text in enumerate(["x" * 4096, _HOSTILE, ""])},
    )
    with Admin({"bootstrap.servers": pair.source.address}) as admin:  # confluent-kafka's ends at a zero
        for group, metadata in given.items():
            admin.commit_group_offsets(group, {tp: OffsetAndMetadata(137, None, metadata)})
    with group_sync(pair, shared_topic) as sync:
        states = sync.round().groups
    assert all(states[group].is_in_step for group in given)
    at = _at(pair, shared_topic, 137)
    with Admin({"bootstrap.servers": pair.target.address}) as admin:
        found = {group: admin.group_offsets(group) for group in given}
    assert found == {group: {tp: OffsetAndMetadata(at, 0, metadata)} for group, metadata in given.items()}


def test_metadata_that_the_target_refuses_holds_its_group_only(pair: TwoClusters, shared_topic: str, name: str) -> None:
    commit(pair.source, name, shared_topic, 137)
    with group_sync(pair, shared_topic) as sync:
        with pytest.MonkeyPatch.context() as patch:
            read = sync._of_source.offsets

            def longer(groups: list[str]) -> Any:
                found = read(groups)
                of_group: Any = found[name]
                long = {tp: committed._replace(metadata="x" * 5_000) for tp, committed in of_group.items()}
                found[name] = Outcomes(long, of_group.failed)
                return found

            patch.setattr(sync._of_source, "offsets", longer)
            held = _only(sync, name)
        assert held.reason is Reason.REFUSED
        assert "OFFSET_METADATA_TOO_LARGE" in held.detail
        assert _only(sync, name).reason is None


@pytest.mark.parametrize("turns", [2, pytest.param(20, marks=pytest.mark.cluster)])
def test_a_consumer_continues_on_the_target_with_no_record_skipped(pair: TwoClusters, name: str, turns: int) -> None:
    """It is stopped at any record, having committed some of what it read."""
    topic = pair.topics()
    read: list[bytes] = []
    committed = at = 0
    with group_sync(pair, topic) as sync:
        for turn in range(turns):
            _written(pair, topic, 20 * turn, 20)
            with consumer_of(pair.source, name, auto_offset_reset="earliest") as consumer:
                position = max(0, committed_at(pair.source, name, topic)[0])
                consumer.assign([ConfluentPartition(topic, 0, position)])
                values = _values(consumer, 3 + turn % 7)
                committed = position + turn % (len(values) + 1)
                consumer.commit(offsets=[ConfluentPartition(topic, 0, committed)], asynchronous=False)
            pair.complete(topic)
            assert _only(sync, name).reason is None
            with consumer_of(pair.target, name) as consumer:
                at = committed_at(pair.target, name, topic)[0]
                consumer.assign([ConfluentPartition(topic, 0, at)])
                read = _values(consumer, 20 * (turn + 1) - committed)
            assert read == [b"v%d" % number for number in range(committed, 20 * (turn + 1))]


def _values(consumer: Confluent, count: int) -> list[bytes]:
    found: list[bytes] = []

    def enough() -> bool:
        messages: list[Any] = consumer.consume(count - len(found), timeout=0.2)
        for message in messages:
            assert message.error() is None, message.error()
            found.append(message.value())
        return len(found) >= count

    eventually(enough, what=f"{count} records")
    return found


# --- mirror groups


def _asked(pair: TwoClusters, folder: Path, topic: str, name: str, *arguments: str) -> tuple[int, Any]:
    """The exit status and the JSON of ``mirror groups``."""
    file = folder / "mirror.toml"
    file.write_text(
        f'[clusters.a]\n"bootstrap.servers" = "{pair.source.address}"\n'
        f'[clusters.b]\n"bootstrap.servers" = "{pair.target.address}"\n'
        f'[flows.{pair.flow}]\nsource = "a"\ntarget = "b"\ntopics = ["{topic}"]\nnaming = "identity"\n'
        f"[flows.{pair.flow}.groups]\n"
    )
    options = ["--config", str(file), "--flow", pair.flow, "--group", name, "--json"]
    found = CliRunner().invoke(app, ["groups", *options, *arguments])
    assert found.exit_code in {0, 3}, found.output
    return found.exit_code, json.loads(found.stdout)


def test_the_command_shows_both_sides_resumes_a_group_and_the_way_back(
    pair: TwoClusters, topic: str, name: str, tmp_path: Path
) -> None:
    commit(pair.source, name, topic, 137)
    status, found = _asked(pair, tmp_path, topic, name)
    (position,) = found["groups"][0]["positions"]
    assert (status, position["pending"], position["target_offset"]) == (3, True, None)
    assert (position["source_offset"], position["source_lag"]) == (137, 113)
    with group_sync(pair, topic) as sync:
        sync.round()
    status, found = _asked(pair, tmp_path, topic, name)
    (position,) = found["groups"][0]["positions"]
    at = _at(pair, topic, 137)
    assert (status, position["target_offset"], position["reason"]) == (0, at, None)
    assert position["target_lag"] == pair.target.ends(topic)[1] - at
    # A consumer of the target goes on, and the way back has its position.
    commit(pair.target, name, topic, _at(pair, topic, 200))
    status, found = _asked(pair, tmp_path, topic, name)
    assert (status, found["groups"][0]["positions"][0]["reason"]) == (3, "taken-over")
    status, found = _asked(pair, tmp_path, topic, name, "--reverse")
    (back,) = found["positions"]
    assert (status, back["source_offset"], back["place"], back["committed_source_offset"]) == (3, 200, "record", 137)
    assert _asked(pair, tmp_path, topic, name, "--resume", name)[0] == 3, "the target is further"
    commit(pair.source, name, topic, 220)
    with group_sync(pair, topic) as sync:
        sync.round()
    assert _asked(pair, tmp_path, topic, name)[0] == 0
    assert _asked(pair, tmp_path, topic, name, "--reverse")[0] == 0
