"""What a rehearsal by the command says of what the flow does not cover. Real clients, brokers in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mirror.client import Admin, TopicPartition
from mirror.spark.run_control import RunControlClient
from mirror.wire.records import TRANSACTIONAL
from tests.fakes.cluster import GroupOffset
from tests.fakes.record_batches import build
from tests.groups.sync_site import GROUP, SOURCE, TARGET
from tests.rehearsal.command_site import Site
from tests.relay.fake_pair import FLOW, FakePair


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Site:
    return Site(FakePair(monkeypatch), tmp_path)


def test_records_that_only_the_target_has_are_not_ready_to_go_back(site: Site) -> None:
    site.commit(source=200, target=200)
    assert site.ask("--reverse")[0] == 0
    site.pair.log().append_values(b"theirs", b"too")
    status, found = site.ask("--reverse")
    (blocker,) = found["blockers"]
    assert (status, blocker["kind"], blocker["name"]) == (3, "partition", "paris.t-0")
    assert found["recovery_point"]["records"] == 3, "with the marker of the copy's transaction"


def test_what_the_flow_does_not_cover_is_not_ready_unless_it_is_waived(site: Site) -> None:
    site.round()
    for topic in ("u", "v"):
        site.pair.source.add_topic(topic)
    groups = site.pair.source.groups
    groups[GROUP][TopicPartition("u", 0)] = GroupOffset(40, -1, "")
    groups["connect-s3-sink"][SOURCE] = GroupOffset(100, -1, "")
    groups["console-consumer-7"][TopicPartition("v", 0)] = GroupOffset(1, -1, "")  # of no topic of the flow
    site.pair.target.groups[GROUP][TopicPartition("elsewhere", 0)] = GroupOffset(1, -1, "")
    status, found = site.ask()
    assert status == 3
    blockers = {(one["kind"], one["name"]): one for one in found["blockers"]}
    assert blockers.keys() == {("group", "connect-s3-sink"), ("topic", "u")}
    assert blockers["topic", "u"]["reason"] == f"group {GROUP} reads it, and no flow copies it"
    assert blockers["group", "connect-s3-sink"]["reason"] == (
        "the connector's group reads topic t, and no flow brings its positions to berlin"
    )
    status, found = site.ask("--waive", "u", "--waive", "connect-.*", "--waive", "nothing")
    assert (status, found["blockers"]) == (0, [])
    notes = [note for note in found["notes"] if "waive" in note]
    assert [note.split(":")[0] for note in notes] == ["waived", "waived", "--waive nothing matches nothing"]
    status, found = site.ask("--group", GROUP)
    assert [one["name"] for one in found["blockers"]] == ["u"], "others were not asked for"


def test_topic_and_group_that_another_flow_covers_are_no_obstacles(site: Site) -> None:
    site.round()
    site.pair.source.add_topic("u")
    site.pair.source.groups[GROUP][TopicPartition("u", 0)] = GroupOffset(40, -1, "")
    site.pair.source.groups["connect-s3-sink"][SOURCE] = GroupOffset(100, -1, "")
    other = '[flows.other]\nsource = "paris"\ntarget = "berlin"\ntopics = ["u", "t"]\nnaming = "identity"\n'
    site.file.write_text(site.file.read_text() + other + "[flows.other.groups]\nexclude = []\n")
    status, found = site.ask()
    assert (status, found["blockers"]) == (0, [])


def test_partition_that_only_the_target_has_is_not_ready(site: Site) -> None:
    site.round()
    site.pair.target.add_topic("paris.t", 3)
    site.pair.target.log("paris.t", 2).append_values(b"of others", b"of others")
    site.pair.copy()
    site.round()
    status, found = site.ask()
    assert status == 3
    held = {one["name"]: one["reason"] for one in found["blockers"] if one["kind"] == "partition"}
    assert {"paris.t-1": "with 0 offsets" in held["paris.t-1"], "paris.t-2": "with 2 offsets" in held["paris.t-2"]} == {
        "paris.t-1": True,
        "paris.t-2": True,
    }
    _, found = site.ask("--waive", "paris.t-.")
    assert not [one for one in found["blockers"] if one["kind"] == "partition"]


def test_records_of_others_in_front_of_a_position_are_not_ready(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = Site(FakePair(monkeypatch), tmp_path, before=13)
    site.round()
    status, found = site.ask()
    (blocker,) = found["blockers"]
    assert (status, blocker["kind"], blocker["name"]) == (3, "partition", "paris.t-0")
    assert blocker["reason"].startswith("13 records in front of the positions of groups")
    assert site.ask("--waive", "paris.t-0")[0] == 0


def test_records_of_others_between_copies_are_in_front_of_a_position_there(site: Site) -> None:
    site.pair.log().append_values(b"theirs", b"too")
    site.pair.write(*(b"%d" % number for number in range(250, 260)))
    site.pair.copy()
    site.commit(source=250)
    site.round()
    status, found = site.ask()
    (blocker,) = found["blockers"]
    assert (status, blocker["reason"].split(" in front")[0]) == (3, "2 records")
    site.commit(source=255)
    site.round()
    assert site.ask()[1]["blockers"] == [], "copies are in front of it"


def _blockers(found: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {(one["kind"], one["name"]): one["reason"] for one in found["blockers"]}


def test_last_records_of_the_old_cluster_are_not_left_behind(site: Site) -> None:
    """It has failed in front of their copy: the groups on the target have not read them."""
    site.commit(source=250, target=250)
    assert site.ask("--reverse")[0] == 0
    site.pair.write(*(b"tail %d" % number for number in range(5)))
    status, found = site.ask("--reverse")
    reason = _blockers(found)["partition", "t-0"]
    assert (status, reason.split(",")[0]) == (3, "up to 5 records of paris")
    assert "from offset 250 on" in reason
    status, found = site.ask("--reverse", "--waive", "t-0")
    assert (status, found["blockers"]) == (0, [])
    site.commit(source=253)
    status, move = site.move("--reverse", "--waive", "t-0")
    assert (status, move["reason"], move["skipped"]) == (3, "skips-records", 3)


def test_markers_behind_the_copy_are_no_last_records(site: Site) -> None:
    site.commit(source=250, target=250)
    log = site.pair.source.log("t")
    log.append(build((b"x",), producer_id=99, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL))
    log.end_transaction(99, commit=False)
    assert site.ask("--reverse")[0] == 0


def test_last_records_that_a_running_flow_copies_are_a_note(site: Site) -> None:
    site.commit(source=250, target=250)
    site.pair.write(b"new")
    with Admin({"bootstrap.servers": site.pair.target.bootstrap}) as target:
        RunControlClient(target, FLOW, "run").claim()
    status, found = site.ask("--reverse")
    assert (status, found["blockers"]) == (0, [])
    assert any("which runs, has still to copy" in note for note in found["notes"])


def test_what_the_way_back_does_not_cover_is_not_ready_unless_it_is_waived(site: Site) -> None:
    site.commit(source=250, target=250)
    for topic in ("new-on-berlin", "paris.gone"):
        site.pair.target.add_topic(topic)
        site.pair.target.groups[GROUP][TopicPartition(topic, 0)] = GroupOffset(0, -1, "")
    site.pair.target.groups["connect-sink"][TARGET] = GroupOffset(250, -1, "")
    site.configure(f"[flows.{FLOW}.groups]", topics="t|gone")
    status, found = site.ask("--reverse")
    blockers = _blockers(found)
    assert (status, set(blockers)) == (
        3,
        {("group", "connect-sink"), ("topic", "new-on-berlin"), ("topic", "paris.gone")},
    )
    assert blockers["group", "connect-sink"].endswith("and no flow brings its positions to paris")
    status, found = site.ask("--reverse", "--waive", "connect-.*", "--waive", "new-on-berlin", "--waive", "paris.gone")
    assert sum("waived" in note for note in found["notes"]) == 3
    assert not any("matches nothing" in note for note in found["notes"])


def test_a_renamed_group_is_covered_there_and_back_under_its_names(site: Site) -> None:
    site.commit(source=250, target=None)
    site.configure(f'[flows.{FLOW}.groups]\nnames = {{ "(b.*)" = "eu.$1" }}')
    site.pair.target.groups[f"eu.{GROUP}"][TARGET] = GroupOffset(250, -1, "")
    site.pair.target.groups[GROUP][TARGET] = GroupOffset(250, -1, "")
    for only in ((), ("--group", GROUP)):
        status, found = site.ask("--reverse", *only)
        blocked = set() if only else {("group", GROUP)}
        assert (status, set(_blockers(found))) == (3 if blocked else 0, blocked), found
        assert [one["group"] for one in found["groups"]] == [GROUP]


@pytest.mark.parametrize("side", ["target", "source"])
def test_partition_of_one_side_is_not_ready_to_go_back(site: Site, side: str) -> None:
    site.commit(source=250, target=250)
    cluster, topic = (site.pair.target, "paris.t") if side == "target" else (site.pair.source, "t")
    cluster.grow(cluster.topics[topic], 2)
    cluster.log(topic, 1).append_values(b"only", b"here")
    status, found = site.ask("--reverse")
    assert {one["name"] for one in found["blockers"]} == {f"{topic}-1"}
    reasons = [one["reason"] for one in found["blockers"] if one["name"] == f"{topic}-1"]
    assert (status, sum("has this partition, with 2 offsets" in reason for reason in reasons)) == (3, 1)


def test_records_that_stay_on_the_target_may_be_waived(site: Site) -> None:
    site.commit(source=200, target=200)
    site.pair.log().append_values(b"theirs", b"too")
    assert site.ask("--reverse")[0] == 3
    assert site.ask("--reverse", "--waive", "paris.t-0")[0] == 0
