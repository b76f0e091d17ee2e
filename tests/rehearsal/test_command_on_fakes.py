"""``mirror rehearse`` over whole copies. Real clients, brokers in memory."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mirror.cli.app import app
from mirror.client import Admin, TopicPartition
from mirror.config.load import load
from mirror.groups.reverse import ReverseGroups
from mirror.groups.sync import GroupSync
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.progress.flow_topic import status_topic_of
from mirror.spark.ledger import status_table
from mirror.spark.ledger.status_table import Reported, StatusTable, read_status
from mirror.spark.preflight.flow_groups import open_sync
from mirror.spark.run_control import RunControlClient
from mirror.wire.api import Api
from mirror.wire.records import TRANSACTIONAL
from tests.fakes.api_admin import FakeGroup, FakeMember
from tests.fakes.cluster import GroupOffset
from tests.fakes.record_batches import MADE_MS, build
from tests.groups.sync_site import GROUP, SOURCE, TARGET
from tests.polling import eventually
from tests.relay.fake_pair import FLOW, FakePair
from tests.relay.progress.test_status_values import REPORT

NEVER_MS = 4_000_000_000_000
"""After all progress of a test (ms since 1970)."""
WRITES = (
    Api.PRODUCE,
    Api.OFFSET_COMMIT,
    Api.TXN_OFFSET_COMMIT,
    Api.OFFSET_DELETE,
    Api.INIT_PRODUCER_ID,
    Api.CREATE_TOPICS,
    Api.CREATE_PARTITIONS,
    Api.INCREMENTAL_ALTER_CONFIGS,
    Api.CREATE_ACLS,
)


def background_threads() -> list[str]:
    """A copy does not wait for all of them at its end: anchors that are being written are written again."""
    return [one.name for one in threading.enumerate() if one.name.startswith("mirror-inquiry")]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Site:
    return Site(FakePair(monkeypatch), tmp_path)


class Site:
    """A copied topic of 250 records, a configuration, and a group at record 137."""

    def __init__(self, pair: FakePair, folder: Path, *, before: int = 0) -> None:
        """``before``: so many records of others are on the target in front of the copy."""
        self.pair, self.folder = pair, folder
        pair.write(*(b"%d" % number for number in range(250)))
        if before:
            pair.log().append_values(*(b"theirs" for _ in range(before)))
        pair.copy(start_over=bool(before))
        eventually(lambda: not background_threads(), what="the end of what the copy still writes")
        pair.target.add_topic(f"mirror-groups.{FLOW}.internal")
        self.file = folder / "mirror.toml"
        self.configure(f"[flows.{FLOW}.groups]")
        self.commit(source=137)

    def configure(self, *lines: str, topics: str = "t") -> None:
        self.file.write_text(
            f'[clusters.paris]\n"bootstrap.servers" = "{self.pair.source.bootstrap}"\n'
            f'[clusters.berlin]\n"bootstrap.servers" = "{self.pair.target.bootstrap}"\n'
            f'[flows.{FLOW}]\nsource = "paris"\ntarget = "berlin"\ntopics = ["{topics}"]\nconfigs = "off"\n'
            + "".join(f"{line}\n" for line in lines)
        )

    def invoke(self, *arguments: str, flow: str = FLOW) -> Result:
        options = ["--config", str(self.file), "--flow", flow]
        return CliRunner().invoke(app, ["rehearse", *options, *arguments], env={"COLUMNS": "200"})

    @property
    def target(self) -> dict[str, object]:
        """The options of the target's clients."""
        return {"bootstrap.servers": self.pair.target.bootstrap}

    def reported(self) -> StatusTable:
        return read_status(self.target, FLOW, 5_000)

    def ask(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """The exit status, and the JSON of the flow."""
        found = self.invoke("--json", *arguments)
        assert found.exit_code in {0, 3}, found.output
        return found.exit_code, json.loads(found.stdout)["flows"][0]

    def move(self, *arguments: str, group: str = GROUP) -> tuple[int, dict[str, Any]]:
        status, found = self.ask(*arguments)
        ((move,),) = [one["partitions"] for one in found["groups"] if one["group"] == group]
        return status, move

    def round(self) -> None:
        config = load(self.file)
        (flow,) = config.select()
        with open_sync(config, flow) as sync:
            sync.round()

    def commit(self, source: int | None = None, target: int | None = None, group: str = GROUP) -> None:
        if source is not None:
            self.pair.source.groups[group][SOURCE] = GroupOffset(source, -1, "")
        if target is not None:
            self.pair.target.groups[group][TARGET] = GroupOffset(target, -1, "")


def test_a_group_in_step_is_ready(site: Site) -> None:
    site.round()
    status, move = site.move()
    assert (status, move["ready"], move["read_again"], move["skipped"]) == (0, True, 0, 0)
    assert (move["from"]["offset"], move["to"]["begins_at"]) == (137, 137)
    assert site.invoke().stdout.startswith("READY: 1 group, 0 records not arrived\n")


def test_a_topic_whose_copy_would_have_too_long_a_name_is_an_obstacle_and_no_error(site: Site) -> None:
    site.round()
    site.configure(f"[flows.{FLOW}.groups]", topics="t+")
    site.pair.source.add_topic("t" * 249)
    site.pair.source.log("t" * 249).append_values(b"x")
    status, found = site.ask()
    assert status == 3
    (blocker,) = (one for one in found["blockers"] if one["name"] == f"{'t' * 249}-0")
    assert "its target topic's name would have 255 characters" in blocker["reason"]


def test_groups_of_other_programs_are_listed_and_decide_nothing(site: Site) -> None:
    site.round()
    for name in ("connect", "sr"):
        site.pair.source.admin.groups[name] = FakeGroup(protocol_type=name)
    status, found = site.ask()
    assert status == 0
    assert {one["group"]: one["ready"] for one in found["groups"]} == {GROUP: True, "connect": True, "sr": True}
    assert "no-consumer-group: a group of protocol type 'sr'" in " ".join(site.invoke().stdout.split())
    options = ["groups", "--config", str(site.file), "--flow", FLOW]
    listed = CliRunner().invoke(app, options, env={"COLUMNS": "200"})
    assert listed.exit_code == 0, listed.output
    assert "3 of 3 groups in step" in listed.stdout
    assert "no-consumer-group: a group of protocol type 'connect', which has no positions" in listed.stdout


def test_nothing_is_changed_on_any_cluster_but_what_the_flow_s_runs_know_of_it(site: Site) -> None:
    before = {cluster: [len(cluster.calls(api)) for api in WRITES] for cluster in (site.pair.source, site.pair.target)}
    site.ask("--reverse")
    site.ask("--group", GROUP)
    for cluster, calls in before.items():
        assert [len(cluster.calls(api)) for api in WRITES] == calls
    target = site.pair.target
    ends = {name: target.log(name).end_offset for name in target.topics}
    site.ask()
    assert [len(site.pair.source.calls(api)) for api in WRITES] == before[site.pair.source]
    status = status_topic_of(FLOW)
    assert {name: target.log(name).end_offset for name in target.topics} == {**ends, status: ends[status] + 1}
    rehearsal = site.reported().evidence.rehearsal
    assert rehearsal is not None
    assert (rehearsal.ready, rehearsal.groups) == (False, 1)


def test_what_a_late_position_reads_again_is_said_and_limited(site: Site) -> None:
    site.round()
    site.commit(source=200)
    status, move = site.move()
    assert (status, move["read_again"], move["read_again_is_exact"], move["skipped"]) == (0, 63, True, 0)
    assert site.ask("--max-records", "63")[0] == 0
    status, move = site.move("--max-records", "62")
    assert (status, move["reason"]) == (3, "reads-too-much-again")


def test_what_has_not_arrived_is_the_recovery_point_and_limited(site: Site) -> None:
    site.round()
    for values, time_ms in (([b"250"], MADE_MS + 5_000), ([b"251"] * 9, MADE_MS + 1_000_000)):
        site.pair.source.log("t").append(build(values, timestamp=time_ms))
    status, found = site.ask()
    (backlog,) = found["backlogs"]
    point = found["recovery_point"]
    assert (status, point["records"], backlog["records"], backlog["topic"]) == (0, 10, 10, "t")
    assert backlog["oldest_ms"] == MADE_MS + 5_000
    assert point["seconds"] == (found["time_ms"] - MADE_MS - 5_000) / 1000
    assert point["bytes"] > 0
    assert found["recovery_time"]["seconds"] is None
    assert site.ask("--max-records", "10")[0] == 0
    status, found = site.ask("--max-records", "9")
    assert (status, [one["name"] for one in found["blockers"]]) == (3, ["--max-records"])
    status, found = site.ask("--max-seconds", "1")
    assert (status, [one["name"] for one in found["blockers"]]) == (3, ["--max-seconds"])


def test_a_group_beyond_the_copy_is_ready_and_waits_for_nothing_it_has_read(site: Site) -> None:
    site.pair.write(*(b"%d" % number for number in range(250, 260)))
    site.commit(source=256)
    site.round()
    status, move = site.move()
    assert (status, move["note"], move["not_arrived"], move["read_again"], move["skipped"]) == (
        0,
        "not-copied-yet",
        4,
        0,
        0,
    )


def test_a_group_that_would_skip_is_shown_first(site: Site) -> None:
    site.round()
    site.commit(source=10, target=30, group="z")
    site.commit(source=10, group="another")
    status, found = site.ask()
    assert status == 3
    assert [(one["group"], one["skipped"]) for one in found["groups"]] == [("z", 20), ("another", 0), (GROUP, 0)]
    text = site.invoke().stdout
    assert text.startswith("NOT READY: 20 records would be skipped, 2 of 3 groups, 0 records not arrived")
    assert "skips-records" in text


def test_a_group_that_is_not_brought_over_has_no_position(site: Site) -> None:
    status, move = site.move()
    assert (status, move["reason"], move["read_again"], move["skipped_with_latest"]) == (3, "no-position", 137, 113)
    assert move["action"].startswith("run the flow")


def test_a_flow_without_a_groups_section_says_how_to_get_one(site: Site) -> None:
    site.configure()
    status, found = site.ask()
    (move,) = found["groups"][0]["partitions"]
    assert (status, move["reason"]) == (3, "no-position")
    assert move["action"] == f"add the section [flows.{FLOW}.groups], so that the flow brings positions over"
    assert any("brings no positions of consumer groups" in note for note in found["notes"])


def test_a_group_that_is_active_on_the_target_is_not_ready(site: Site) -> None:
    site.round()
    site.commit(source=150)
    site.pair.target.admin.groups[GROUP] = FakeGroup(state="Stable", members=[FakeMember("m", [TARGET])])
    status, move = site.move()
    assert (status, move["reason"], move["read_again"]) == (3, "active-on-target", 13)
    assert move["action"].endswith("otherwise stop its consumers there until it is to move")
    site.commit(source=150, target=200)
    status, move = site.move()
    assert (status, move["reason"], move["action"].split(":")[0]) == (3, "has-moved", "nothing")
    assert site.invoke().stdout.startswith("NOT READY: 1 of 1 group, 0 records not arrived\n")


def test_a_topic_that_is_missing_on_the_target_is_not_ready(site: Site) -> None:
    site.pair.source.add_topic("u")
    site.pair.source.log("u").append_values(b"1", b"2")
    site.pair.source.groups[GROUP][TopicPartition("u", 0)] = GroupOffset(1, -1, "")
    site.configure(f"[flows.{FLOW}.groups]", topics="t|u")
    site.round()
    status, found = site.ask()
    kinds = {(one["kind"], one["name"]) for one in found["blockers"]}
    assert (status, kinds) == (3, {("topic", "berlin"), ("partition", "u-0")})
    assert all(one["action"] for one in found["blockers"])
    assert found["recovery_point"]["records"] == 2
    (group,) = found["groups"]
    assert {(one["from"]["topic"], one["ready"]) for one in group["partitions"]} == {("t", True), ("u", False)}
    (missing,) = [one for one in group["partitions"] if one["from"]["topic"] == "u"]
    assert (missing["reason"], missing["detail"].split("; ")[-1]) == ("no-position", "there is no partition paris.u-0")
    assert missing["action"].startswith("run the flow")
    assert "what to do" in site.invoke().stdout


def test_only_named_groups_are_rehearsed_and_absent_ones_are_not_ready(site: Site) -> None:
    site.commit(source=10, group="another")
    _, found = site.ask("--group", "another")
    assert [one["group"] for one in found["groups"]] == ["another"]
    status, found = site.ask("--group", "absent")
    assert (status, [(one["kind"], one["name"]) for one in found["blockers"]]) == (3, [("group", "absent")])


def test_the_way_back_is_rehearsed(site: Site) -> None:
    site.commit(source=137, target=200)
    status, move = site.move("--reverse")
    assert (status, move["ready"], move["read_again"], move["skipped"]) == (0, True, 63, 0)
    assert (move["from"], move["to"]["offset"]) == ({"topic": "paris.t", "offset": 200}, 137)
    assert site.ask("--reverse", "--max-records", "62")[0] == 3
    site.commit(source=220)
    status, move = site.move("--reverse")
    assert (status, move["reason"], move["skipped"]) == (3, "skips-records", 20)


@pytest.mark.parametrize(
    ("arguments", "groups", "side"), [([], (GroupSync, "round"), 0), (["--reverse"], (ReverseGroups, "read"), 1)]
)
def test_what_changes_while_the_groups_are_read_is_seen(
    site: Site, monkeypatch: pytest.MonkeyPatch, arguments: list[str], groups: tuple[type, str], side: int
) -> None:
    """That may take minutes, in which a topic that no flow copies gets a consumer."""
    site.commit(source=137, target=137)
    read = getattr(*groups)
    old = (site.pair.source, site.pair.target)[side]

    def slowly(*given: Any, **how: Any) -> Any:
        found = read(*given, **how)
        old.add_topic("uncovered")
        old.groups[GROUP][TopicPartition("uncovered", 0)] = GroupOffset(1, 0, "")
        return found

    monkeypatch.setattr(*groups, slowly)
    status, found = site.ask(*arguments)
    assert status == 3
    assert any("uncovered" in one["name"] for one in found["blockers"]), found["blockers"]


def test_the_offsets_of_both_sides_differ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    site = Site(FakePair(monkeypatch), tmp_path, before=13)
    site.commit(source=137, target=113)
    _, move = site.move()
    assert (move["read_again"], move["skipped"]) == (37, 0)
    site.commit(target=213)
    _, move = site.move("--reverse")
    assert (move["read_again"], move["skipped"]) == (63, 0)


def test_records_that_only_the_target_has_are_not_ready_to_go_back(site: Site) -> None:
    site.commit(source=200, target=200)
    assert site.ask("--reverse")[0] == 0
    site.pair.log().append_values(b"theirs", b"too")
    status, found = site.ask("--reverse")
    (blocker,) = found["blockers"]
    assert (status, blocker["kind"], blocker["name"]) == (3, "partition", "paris.t-0")
    assert found["recovery_point"]["records"] == 3, "with the marker of the copy's transaction"


def test_the_way_back_is_compared_as_the_flow_that_copies_back_compares_it(site: Site) -> None:
    _, found = site.ask("--reverse")
    assert any("no flow copies these topics back" in note for note in found["notes"])
    site.pair.target.add_topic("t", 1)
    site.pair.target.topics["t"].configs["retention.ms"] = "5000"
    back = '[flows.back]\nsource = "berlin"\ntarget = "paris"\ntopics = ["t"]\nnaming = "identity"\norigin = "local"\n'
    text = site.file.read_text().replace('configs = "off"', 'configs = "off"\nnaming = "identity"\norigin = "local"')
    site.file.write_text(text + back)
    status, found = site.ask("--reverse")
    configured = [one for one in found["blockers"] if one["kind"] == "configuration"]
    assert status == 3
    assert [(one["name"], "retention.ms" in one["reason"]) for one in configured] == [("t", True)], found["blockers"]
    assert "mirror apply --flow back --adopt t, if" in configured[0]["action"], "no flow has copied into t yet"
    assert not any("no flow copies these topics back" in note for note in found["notes"])


def test_last_rehearsal_of_a_flow_is_left_for_its_runs(site: Site) -> None:
    site.ask("--reverse")
    site.ask("--group", GROUP)
    assert site.reported().evidence.rehearsal is None, "these are not of all of the flow, ahead"
    _, found = site.ask()
    left = site.reported().evidence.rehearsal
    assert left is not None
    assert (left.time_ms, left.ready, left.groups) == (found["time_ms"], found["ready"], len(found["groups"]))


def test_a_partition_that_has_failed_is_not_ready_until_it_is_copied_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if all of it seems to have arrived."""
    site.round()
    line = "record 249 is too large for the target"
    result = RangeResult(flow=FLOW, topic="t", target_topic=TARGET.topic, partition=0, start=0, end=250)
    table = StatusTable(partitions={TARGET: Reported(replace(REPORT, target=TARGET, result=result), NEVER_MS)})
    monkeypatch.setattr(status_table, "read_status", lambda *_: table)

    def blockers() -> list[tuple[str, str]]:
        return [(one["name"], one["reason"]) for one in site.ask()[1]["blockers"] if one["kind"] == "partition"]

    assert blockers() == []
    result.outcome, result.error = Outcome.FAILED, line
    assert blockers() == [("t-0", f"failed: {line}")]
    table.partitions[TARGET] = table.partitions[TARGET]._replace(time_ms=1)
    assert blockers() == [], "it has made progress since"


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


def test_the_page_is_written(site: Site) -> None:
    page = site.folder / "rehearsal.html"
    assert site.invoke("--html", str(page)).exit_code == 3
    assert "no-position" in page.read_text()
    failed = site.invoke("--html", str(page / "rehearsal.html"))
    assert failed.exit_code == 1
    assert "choose another file with --html" in failed.stderr


def test_a_flow_that_is_not_there_is_status_1(site: Site) -> None:
    found = site.invoke(flow="g")
    assert (found.exit_code, found.stdout) == (1, "")
    assert "no such flow" in found.stderr


@pytest.mark.parametrize("arguments", [["--max-records", "-1"], ["--max-seconds", "soon"], ["--waive", "("]])
def test_wrong_usage_is_status_2(site: Site, arguments: list[str]) -> None:
    assert site.invoke(*arguments).exit_code == 2


@pytest.mark.parametrize("arguments", [[], ["--reverse"]])
def test_a_target_that_does_not_answer_is_status_1_with_one_error(site: Site, arguments: list[str]) -> None:
    quick = '"default.api.timeout.ms" = 1000\n"request.timeout.ms" = 500\n[flows.'
    site.file.write_text(site.file.read_text().replace("[flows.", quick, 1))
    site.pair.target.kill(1)
    found = site.invoke("--json", *arguments)
    assert found.exit_code == 1
    (line,) = [line for line in found.stderr.splitlines() if "warning" not in line]
    assert line.startswith("mirror: flow flow: cluster berlin does not answer")
    document = json.loads(found.stdout)
    assert (document["flows"], list(document["errors"])) == ([], [FLOW])


# --- what the way back does not cover


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
