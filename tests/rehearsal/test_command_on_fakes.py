"""``mirror rehearse`` over whole copies. Real clients, brokers in memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.client import TopicPartition
from mirror.errors import FlowError
from mirror.groups.reverse import ReverseGroups
from mirror.groups.sync import GroupSync
from mirror.observation import Side
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.progress.flow_topic import status_topic_of
from mirror.spark.ledger import status_table
from mirror.spark.ledger.status_table import Reported, StatusTable
from mirror.wire.api import Api
from tests.fakes.api_admin import FakeGroup, FakeMember
from tests.fakes.cluster import GroupOffset
from tests.fakes.log import ProducerState
from tests.fakes.record_batches import MADE_MS, build
from tests.groups.sync_site import GROUP, TARGET
from tests.rehearsal.command_site import Site
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


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Site:
    return Site(FakePair(monkeypatch), tmp_path)


def test_a_group_in_step_is_ready(site: Site) -> None:
    site.round()
    status, move = site.move()
    assert (status, move["ready"], move["read_again"], move["skipped"]) == (0, True, 0, 0)
    assert (move["from"]["offset"], move["to"]["begins_at"]) == (137, 137)
    assert site.invoke().stdout.startswith("READY: 1 group, 0 records not arrived\n")


def test_topics_that_transactions_couple_are_named(site: Site) -> None:
    site.pair.source.add_topic("u")
    for name in ("t", "u"):
        site.pair.source.log(name).producers[9] = ProducerState(0, last_ms=site.pair.source.clock.unix_ms())
    _, found = site.ask("--waive", "u")
    line = "transactions of producer id 9 write to topic u and to topic t: no flow copies it to berlin"
    assert line in found["notes"]


@pytest.mark.parametrize(("flows", "waived", "named"), [("", "none", 1), (', "other"', "none", 0), ("", "u", 0)])
def test_a_topic_that_a_switch_leaves_behind_is_named_if_transactions_couple_it(
    site: Site, flows: str, waived: str, named: int
) -> None:
    site.pair.source.add_topic("u")
    site.configure(
        'naming = "identity"',
        f"[flows.{FLOW}.groups]",
        '[flows.other]\nsource = "paris"\ntarget = "berlin"\ntopics = ["u"]\nnaming = "identity"',
        f'[switches.move]\nflows = ["{FLOW}"{flows}]\nwaive = ["{waived}"]',
    )
    for name in ("t", "u"):
        site.pair.source.log(name).producers[9] = ProducerState(0, last_ms=site.pair.source.clock.unix_ms())
    _, found = site.ask("--waive", ".*")
    lines = [one for one in found["notes"] if "transactions of producer" in one]
    remedy = f"switch move moves {FLOW} without it; add the flow that copies it, or waive the topic"
    line = f"transactions of producer id 9 write to topic u and to topic t: {remedy}"
    assert lines == [line] * named


@pytest.mark.parametrize(("flow", "named"), [(FLOW, 1), (None, 0)])
def test_a_topic_of_a_flow_that_is_not_rehearsed_with_it_is_named_if_transactions_couple_it(
    site: Site, flow: str | None, named: int
) -> None:
    site.pair.source.add_topic("u")
    site.configure(
        'naming = "identity"',
        '[flows.other]\nsource = "paris"\ntarget = "berlin"\ntopics = ["u"]\nnaming = "identity"',
    )
    for name in ("t", "u"):
        site.pair.source.log(name).producers[9] = ProducerState(0, last_ms=site.pair.source.clock.unix_ms())
    found = json.loads(site.invoke("--json", flow=flow).stdout)["flows"]
    (notes,) = [one["notes"] for one in found if one["flow"] == FLOW]
    line = (
        "transactions of producer id 9 write to topic u and to topic t: it is another flow's: have both switch at once"
    )
    assert [one for one in notes if "transactions of producer" in one] == [line] * named


def test_without_the_source_the_last_rehearsal_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    read = vars(Side)["cluster"].fget

    def cluster(side: Side) -> Any:
        if side.name == "berlin":
            return read(side)
        error = side._errors["cluster"] = FlowError("cluster paris does not answer")
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Side, "cluster", property(cluster))
        assert "berlin knows of no earlier rehearsal" in site.invoke().stderr
    site.round()
    assert site.invoke().exit_code == 0
    monkeypatch.setattr(Side, "cluster", property(cluster))
    found = site.invoke()
    assert (found.exit_code, "cluster paris does not answer" in found.stderr) == (1, True), found.output
    assert "UTC it was ready; mirror groups shows what berlin knows" in found.stderr


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


def test_a_group_that_a_running_flow_brings_on_meanwhile_is_ready(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.round()
    target, asked = site.pair.target, len(site.pair.target.calls(Api.OFFSET_FETCH))
    translate = GroupSync._translate

    def goes_on(sync: GroupSync, *arguments: Any) -> Any:
        if len(target.calls(Api.OFFSET_FETCH)) == asked:  # consumers and the flow go on before the target is read
            site.commit(source=200, target=200)
        return translate(sync, *arguments)

    monkeypatch.setattr(GroupSync, "_translate", goes_on)
    status, move = site.move()
    assert (status, move["ready"], move["skipped"]) == (0, True, 0)
    assert (move["from"]["offset"], move["to"]["begins_at"]) == (200, 200)


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
