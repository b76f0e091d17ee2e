"""``mirror takeover`` as it is typed, with a configuration that ``mirror import`` has written. Brokers in memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.client import Admin, OffsetAndMetadata, TopicPartition
from mirror.relay.progress.committed import from_offset, group_of
from mirror.spark.run_control import RunControlClient
from tests.takeover.fake_mirrormaker import FakeMirrorMaker

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

TARGET = TopicPartition("paris.t", 0)
PROPERTIES = """
clusters = paris, berlin
paris.bootstrap.servers = {source}
berlin.bootstrap.servers = {target}
paris->berlin.enabled = true
paris->berlin.topics = t
"""


@pytest.fixture
def mm2(monkeypatch: pytest.MonkeyPatch) -> FakeMirrorMaker:
    """It has copied 9 of 12 records, and stored offset 5."""
    mm2 = FakeMirrorMaker(monkeypatch, brokers=2, source_brokers=2)  # replication.factor is 2 by default
    mm2.write(*(b"%d" % number for number in range(12)))
    mm2.copy(0, 9, synced=(0, 4))
    mm2.store(5)
    return mm2


@pytest.fixture
def config(mm2: FakeMirrorMaker, tmp_path: Path) -> Path:
    return _imported(mm2, tmp_path)


def _imported(mm2: FakeMirrorMaker, tmp_path: Path) -> Path:
    file, config = tmp_path / "mm2.properties", tmp_path / "mirror.toml"
    servers = {"source": mm2.pair.source.bootstrap, "target": mm2.pair.target.bootstrap}
    file.write_text(PROPERTIES.format(**servers), encoding="ascii")
    imported = CliRunner().invoke(app, ["import", str(file), "--write", str(config)])
    assert config.exists(), imported.output
    return config


def _run(config: Path, *arguments: str) -> Result:
    required = ["--config", str(config), "--flow", "paris-berlin", "--observe", "0"]
    return CliRunner().invoke(app, ["takeover", *required, *arguments])


def _progress(mm2: FakeMirrorMaker) -> int | None:
    found = mm2.pair.target.groups[group_of("paris-berlin", TARGET)].get(TARGET)
    return None if found is None else found.offset


def test_a_flow_that_was_imported_is_taken_over(mm2: FakeMirrorMaker, config: Path) -> None:
    dry = _run(config, "--dry-run")
    assert (dry.exit_code, _progress(mm2)) == (0, None)
    assert "t-0: the flow continues at 9 (stored offset 5, 3 offsets behind it were copied; by anchor)" in dry.stdout
    found = _run(config, "--json")
    assert (found.exit_code, _progress(mm2)) == (0, 9)
    document = json.loads(found.stdout)
    (partition,) = document["partitions"]
    assert {key: document[key] for key in ("flow", "source", "target", "dry_run", "complete")} == {
        "flow": "paris-berlin",
        "source": "paris",
        "target": "berlin",
        "dry_run": False,
        "complete": True,
    }
    assert (partition["outcome"], partition["stored"], partition["next_offset"]) == ("settled", 5, 9)
    assert partition["target_topic"] == "paris.t"


def test_a_partition_that_is_left_out_has_status_3(mm2: FakeMirrorMaker, config: Path) -> None:
    mm2.store(40)
    found = _run(config)
    assert (found.exit_code, _progress(mm2)) == (3, None)
    assert "t-0: left out: the source's log ends at offset 12, and MirrorMaker 2 has copied up to 40" in found.stdout
    assert "1 unsettled" in found.stdout
    assert "until the rest is taken over, exclude these topics from the flow" in found.stdout


@pytest.mark.parametrize(
    ("on_source", "on_target", "found", "change", "warning"),
    [
        (2, 3, {0: ("settled", 9), 1: ("settled", 9)}, False, True),
        (3, 2, {0: ("settled", 9), 1: ("settled", 9), 2: ("nothing-copied", None)}, True, False),
    ],
)
def test_another_number_of_partitions_keeps_no_partition_from_being_taken_over(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    on_source: int,
    on_target: int,
    found: dict[int, tuple[str, int | None]],
    change: bool,
    warning: bool,
) -> None:
    """MirrorMaker 2 copies partition N into partition N; mirror/design/decisions/050-partition-counts.md"""
    mm2 = FakeMirrorMaker(monkeypatch, brokers=2, source_brokers=2, partitions=2)
    for partition in range(2):
        mm2.write(*(b"%d" % number for number in range(12)), partition=partition)
        mm2.copy(0, 9, partition=partition)
        mm2.store(5, partition=partition)
    mm2.pair.source.grow(mm2.pair.source.topics["t"], on_source)
    mm2.pair.target.grow(mm2.pair.target.topics["paris.t"], on_target)
    config = _imported(mm2, tmp_path)
    taken = json.loads(_run(config, "--json").stdout)
    decisions = {one["partition"]: (one["outcome"], one["next_offset"]) for one in taken["partitions"]}
    assert (taken["complete"], decisions) == (True, found)
    (flow,) = json.loads(CliRunner().invoke(app, ["plan", "--config", str(config), "--json"]).stdout)["flows"]
    assert {one["partition"]: one["error"] for one in flow["partitions"]} == dict.fromkeys(found)
    assert ("on berlin: topic paris.t gets 3 partitions (now 2)" in flow["changes"]) is change
    more = "target topic paris.t: more partitions than the source topic (3, and not 2): nothing is copied into"
    assert any(line.startswith(more) for line in flow["warnings"]) is warning


def test_what_keeps_it_from_running_is_one_line_with_status_1(config: Path) -> None:
    found = _run(config, "--source-alias", "east")
    assert found.exit_code == 1
    (line,) = found.stderr.splitlines()
    assert "no positions for the source east were found on berlin" in line


def test_a_topic_that_cannot_be_created_is_named_at_once(mm2: FakeMirrorMaker, config: Path) -> None:
    config.write_text(config.read_text().replace("replication-factor = 2", "replication-factor = 3"))
    found = _run(config)
    assert (found.exit_code, _progress(mm2)) == (1, None)
    shown = " ".join(found.stderr.split())
    assert "takeover.internal cannot be prepared, so nothing is taken over: " in shown
    assert "Unable to replicate the partition 3 time(s)" in shown
    assert "topic mirror-progress.paris-berlin.takeover.internal is missing on berlin" in shown


def test_a_flow_that_runs_is_not_taken_over(mm2: FakeMirrorMaker, config: Path) -> None:
    assert _run(config).exit_code == 0  # makes the topic of the control record
    with Admin({"bootstrap.servers": mm2.pair.target.bootstrap}) as admin:
        control = RunControlClient(admin, "paris-berlin", "a run")
        control.claim()
        found = _run(config)
        assert found.exit_code == 1
        assert "flow paris-berlin is copied now, by run a run" in found.stderr
        control.want(ended=True)
        control.sync()
        assert _run(config).exit_code == 0


def test_the_progress_is_that_of_the_logs_that_were_compared(mm2: FakeMirrorMaker, config: Path) -> None:
    assert _run(config).exit_code == 0
    offset = mm2.pair.target.groups[group_of("paris-berlin", TARGET)][TARGET]
    progress = from_offset(OffsetAndMetadata(offset.offset, metadata=offset.metadata or ""))
    assert progress.topic_id == str(mm2.pair.source.topics["t"].topic_id)
    assert progress.source_cluster_id == "paris"
    assert progress.target is not None
    assert progress.target.topic_id == str(mm2.pair.target.topics["paris.t"].topic_id)
    assert (progress.target.end, progress.target.producer_id, progress.exact) == (9, -1, True)
