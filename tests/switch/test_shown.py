"""``mirror cutover --status``, ``--html`` and ``--dry-run``: what is said of a switch, on two clusters in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mirror.cli.app import app
from mirror.cluster.acls import AclPermission, read_denial, write_denial
from mirror.config.load import load
from mirror.errors import KafkaTimeout
from mirror.relay.progress.flow_topic import FlowTopic
from mirror.switch.acl_fence import DENIALS, GROUP_DENIALS
from mirror.switch.acting import ClusterSite, Files
from mirror.switch.machine import Act
from mirror.switch.record import State, SwitchRecord
from mirror.timing import Timer
from mirror.wire.decode import Record
from tests.fakes.cluster import GroupOffset
from tests.relay.fake_pair import FakePair
from tests.switch.test_machine import FACTS, OPEN, TERMS
from tests.switch.test_reading_on_fakes import TP

DONE = replace(OPEN, denied_groups=("g",), switched_ms=112_000, operator="ann", left=True, clusters=("a", "b"))


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> FakePair:
    return FakePair(monkeypatch)


@pytest.fixture
def file(pair: FakePair, tmp_path: Path) -> Path:
    pair.write(b"1", b"2")
    pair.target.add_topic("t")
    pair.source.groups["g"][TP] = GroupOffset(1, -1, "")
    found = tmp_path / "mirror.toml"
    found.write_text(
        f'[clusters.paris]\n"bootstrap.servers" = "{pair.source.bootstrap}"\n'
        f'[clusters.berlin]\n"bootstrap.servers" = "{pair.target.bootstrap}"\n'
        '[flows.f]\nsource = "paris"\ntarget = "berlin"\ntopics = ["t"]\nnaming = "identity"\n[flows.f.groups]\n'
        '[switches.s]\nflows = ["f"]\ndeny-read = true\n'
    )
    return found


@pytest.fixture
def site(file: Path) -> Iterator[ClusterSite]:
    config = load(file)
    with ClusterSite(config, config.switch("s"), TERMS, Files(file, None, file.parent), print) as found:
        yield found


def shown(file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["cutover", "s", "--config", str(file), *arguments])


def stored(site: ClusterSite) -> SwitchRecord:
    record = DONE.entered(State.OPEN, 110_000).entered(State.REVERSED, 113_000).entered(State.DONE, 114_000)
    site.prepare()
    site.store(record)
    return record


def test_a_switch_that_has_not_begun_is_none(file: Path) -> None:
    result = shown(file, "--status")
    assert (result.exit_code, "switch s has not begun" in result.stderr) == (1, True)


def test_the_record_is_shown_until_the_switch_has_ended(site: ClusterSite, file: Path) -> None:
    stored(site)
    result = shown(file, "--status", "--watch")
    assert result.exit_code == 0, result.output
    assert "switch s: done, begun by mirror cutover" in result.stdout
    assert "producers were fenced for 12.0 s: OPEN 10.0 s, switched 2.0 s" in result.stdout
    found = json.loads(shown(file, "--status", "--json").stdout)
    assert (found["state"], found["pause"]["total_ms"], found["switch"]) == ("done", 12_000, "s")


@pytest.mark.parametrize("away", ["source", "target"])
def test_the_record_is_shown_by_one_cluster_alone(
    site: ClusterSite, file: Path, pair: FakePair, away: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.prepare()
    site.store(replace(DONE, state=State.MOVED))
    address, read = getattr(pair, away).bootstrap, FlowTopic.records

    def records(topic: FlowTopic, timer: Timer) -> Iterator[Record]:
        if topic.options["bootstrap.servers"] == address:
            raise KafkaTimeout("it does not answer")
        return read(topic, timer)

    monkeypatch.setattr(FlowTopic, "records", records)
    result = shown(file, "--status")
    assert (result.exit_code, "switch s: moved" in result.stdout) == (0, True), result.output
    assert "producers are fenced since 1970-01-01T00:01:40Z" in result.stdout


def test_the_page_has_the_evidence(site: ClusterSite, file: Path) -> None:
    stored(site)
    page = file.parent / "record.html"
    assert shown(file, "--status", "--html", str(page)).exit_code == 0
    text = page.read_text()
    for part in (str(write_denial("t")), str(read_denial("g")), "12.0 s", "ann", "fenced end", "at 3"):
        assert part.replace("'", "&#39;") in text, part
    assert "<script src" not in text
    assert shown(file, "--status", "--html", str(page / "x.html")).exit_code == 1


def test_a_dry_run_as_json_has_the_acls_the_pause_and_the_blockers(file: Path) -> None:
    result = shown(file, "--dry-run", "--json")
    found = json.loads(result.stdout)
    assert found["acls"] == [str(write_denial("t")), str(read_denial("g"))]
    assert found["pause"][0].startswith("producers are expected to wait for about")
    assert (result.exit_code, any("group g: no ACL of the source concerns it" in one for one in found["blockers"])) == (
        3,
        True,
    )


def test_consumers_are_fenced_and_unfenced_exactly(site: ClusterSite) -> None:
    others = [write_denial("u"), read_denial("h"), read_denial("g")._replace(permission=AclPermission.ALLOW)]
    site.source.create_acls(others)
    record = replace(DONE, state=State.READY, fence="acl", denied=("t",), denied_groups=("g",))
    assert site.act(Act.FENCE, record, FACTS).ok
    facts = site.reader.read(record)
    assert (facts.denied, facts.read_denied) == ({"t", "u"}, {"g", "h"})
    assert site.act(Act.UNFENCE, record, FACTS).ok
    assert {*site.source.describe_acls(DENIALS), *site.source.describe_acls(GROUP_DENIALS)} == {*others[:2]}
    before = site.reader.read(SwitchRecord(state=State.READY))
    assert (before.positions is not None, before.read_denied) == (True, {"h"})


def test_denials_of_an_earlier_switch_are_lifted_on_the_target_when_it_opens(site: ClusterSite) -> None:
    site.target.create_acls([write_denial("t"), read_denial("g"), read_denial("h")])
    record = replace(OPEN, groups={"g": "at 3"})
    assert site.reader.read(record).read_denied_on_target == {"g", "h"}
    assert site.act(Act.LIFT, record, FACTS).ok
    assert site.target.describe_acls(GROUP_DENIALS) == (read_denial("h"),)
    assert site.reader.read(record).denied_on_target == set()
