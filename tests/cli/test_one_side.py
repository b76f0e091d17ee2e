"""With one cluster away, each command that reads says what the other one knows, and as of when."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.client import Admin, OffsetAndMetadata, TopicPartition
from mirror.groups.commit_decision import Intent
from mirror.groups.intents import GroupTopicKey, encoded
from mirror.relay.progress.flow_topic import KeyValue, group_topic_of, offset_topic_of
from mirror.spark.one_side import KnownPosition
from tests.fakes.record_batches import build, record
from tests.spark.flow_harness import FlowHarness, configuration, use_fakes

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

COMMANDS = ("status", "groups", "plan", "rehearse")
COPIED_MS = 1_700_000_000_000


class Site(FlowHarness):
    """40 of 100 records are copied, and the group of a consumer stands at 10 on both sides."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.config.write_text(configuration() + "[flows.f.groups]\n")
        self.a.add_topic("orders", [100])
        self.b.add_topic("a.orders", [40])
        self.commit(40)
        for server, topic in (("a:1", "orders"), ("b:1", "a.orders")):
            with Admin({"bootstrap.servers": server}) as admin:
                admin.commit_group_offsets("readers", {TopicPartition(topic, 0): OffsetAndMetadata(10)})
        key = GroupTopicKey("readers", "a.orders")
        (intent,) = encoded({key: {0: Intent(source=10, target=10)}}, {}, {key: {0: COPIED_MS}}).values()
        self._store(group_topic_of("f"), intent)
        self._store(offset_topic_of("f"), KeyValue(b"any", b"segment"))

    def _store(self, topic: str, one: KeyValue) -> None:
        assert one.value is not None
        payload = record(one.value, 0, key=one.key)
        self.b.add_topic(topic, [0]).kafka.log(topic).append(build((one.value,), payload=payload, timestamp=COPIED_MS))

    def known(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.type(name, "--json").stdout)
        if name == "status":
            (found,) = found["flows"]
        elif name != "groups":
            found = found["known"]["f"]
        return found

    def type(self, name: str, *arguments: str) -> Result:
        return CliRunner().invoke(app, [name, "--config", str(self.config), *arguments])


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    use_fakes(monkeypatch)
    return Site(tmp_path)


def test_the_target_knows_progress_and_positions_and_as_of_when(site: Site) -> None:
    site.a.stop()
    for name in COMMANDS:
        known = site.known(name)
        assert list(known["away"]) == ["a"]
        assert known["latch"]["role"] == "active"
        (partition,) = known["partitions"]
        assert (partition["progress"], partition["end"], partition["lag"]) == (40, None, None)
        assert min(partition["committed_ms"], known["index_ms"]) > 0
        if name != "status":
            (position,) = known["positions"]
            expected = KnownPosition(
                group="readers", topic="a.orders", partition=0, offset=10, copied_from=10, copied_ms=COPIED_MS
            )
            assert position == asdict(expected)
        shown = site.type(name)
        assert shown.exit_code == 1
        assert "progress committed " in shown.stdout
        assert "; offset index written " in shown.stdout
        assert "cluster a" in shown.stderr


def test_the_source_knows_ends_and_positions(site: Site) -> None:
    site.b.stop()
    for name in COMMANDS:
        known = site.known(name)
        assert list(known["away"]) == ["b"]
        (partition,) = known["partitions"]
        assert (partition["progress"], partition["end"]) == (None, 100)
        if name != "status":
            assert [(one["topic"], one["offset"]) for one in known["positions"]] == [("orders", 10)]
        assert site.type(name).exit_code == 1
