"""``mirror positions`` as it is typed: statuses, tables, JSON, and what programs read."""

from __future__ import annotations

import json
import shutil
import threading
from typing import TYPE_CHECKING, Any, Final, Self

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.cli.commands import positions as module
from mirror.client import Admin, OffsetAndMetadata, Outcomes, TopicPartition
from mirror.errors import FlowError
from mirror.positions import translating
from mirror.relay.offsets.index import UNKNOWN, Place, Translation
from tests.positions.golden import TWO
from tests.spark.flow_harness import FlowHarness, use_fakes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from typer.testing import Result

LATE: Final = 50
"""Offsets from here on are not copied yet."""
LOST: Final = 3
"""What is behind this offset, the target has deleted."""
COMMANDS: Final = {
    "translate": ["--group", "billing"],
    "checkpoint": [str(TWO), "new"],
    "iceberg": ["summary.json"],
    "streams": ["app"],
}


class Offsets:
    """Offsets of a partition: each is 100 more on the target."""

    reason = "there was nothing to read"

    def translate(self, offset: int) -> Translation:
        if offset == 1:
            return UNKNOWN
        return Translation(Place.NOT_COPIED, 100 + LATE) if offset > LATE else Translation(Place.RECORD, 100 + offset)

    def passed(self, offset: int, _: Translation) -> int:
        return 2 if offset == LOST else 0


class Translator:
    """Opens them."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def open(self, partitions: Mapping[TopicPartition, TopicPartition]) -> Outcomes[TopicPartition, Any]:
        return Outcomes({tp: Offsets() for tp in partitions}, {})


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FlowHarness:
    monkeypatch.setattr(translating, "OffsetTranslator", Translator)
    use_fakes(monkeypatch)
    monkeypatch.chdir(tmp_path)
    site = FlowHarness(tmp_path, topics="orders|clicks|app-.*-changelog|control")
    for name in ("orders", "clicks", "control", "other", "app-counts-changelog", "app-by-key-repartition"):
        site.a.add_topic(name, [LATE, LATE])
    (tmp_path / "summary.json").write_text('{"kafka.connect.offsets.control.connect-x": "{\\"0\\":42}"}')
    return site


def _run(site: FlowHarness, command: str, *arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(app, ["positions", command, "--config", str(site.config), *arguments], input=text)


def _commit(group: str, **offsets: int) -> None:
    tps = {TopicPartition(topic, 0): OffsetAndMetadata(offset) for topic, offset in offsets.items()}
    Admin({"bootstrap.servers": "a:1"}).commit_group_offsets(group, tps)


def test_what_a_group_has_committed_is_printed_for_each_program(site: FlowHarness) -> None:
    _commit("billing", orders=7, other=5)
    for form, out in {
        "csv": "billing,a.orders,0,107\n",
        "spark": '{"a.orders":{"0":107}}\n',
        "flink": 'new TopicPartition("a.orders", 0), 107L',
    }.items():
        found = _run(site, "translate", "--group", "billing", "--as", form)
        assert (found.exit_code, out in found.stdout) == (0, True), found.output
        assert "left out, as the flow does not copy them: topic other" in found.stderr
        assert ("take them from its savepoint" in found.stderr) is (form == "flink")


def test_a_group_has_its_name_on_the_target_in_what_is_reset_there(site: FlowHarness) -> None:
    _commit("billing", orders=7)
    site.config.write_text(site.config.read_text() + '[flows.f.groups]\nnames = { "(b.*)" = "eu.$1" }\n')
    found = _run(site, "translate", "--group", "billing", "--as", "csv")
    assert (found.exit_code, found.stdout) == (0, "eu.billing,a.orders,0,107\n"), found.output


def test_a_list_is_shown_as_a_table_and_as_json(site: FlowHarness) -> None:
    found = _run(site, "translate", "-", text="orders,0,7\norders,1,1\n")
    assert found.exit_code == 3
    for part in ("flow f", "a.orders-0", "107", "the same record", "unknown: there was nothing to read"):
        assert part in found.stdout
    found = _run(site, "translate", "-", "--json", text="g,orders,0,7\n")
    assert json.loads(found.stdout) == {
        "flow": "f",
        "positions": [
            {
                "group": "g",
                "topic": "orders",
                "partition": 0,
                "offset": 7,
                "target_topic": "a.orders",
                "target_offset": 107,
                "place": "record",
                "passed": 0,
                "reason": "",
            }
        ],
    }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("orders,0,51", "orders-0 at offset 51: not copied yet (the copy ends at offset 150 of a.orders-0)"),
        ("orders,0,1", "orders-0 at offset 1: unknown: there was nothing to read"),
        ("orders,0,3", "orders-0 at offset 3: the target has deleted 2 records from there on"),
        ("orders,7,3", "orders-7 at offset 3: unknown: the source has no partition orders-7"),
        ("other,0,3", "other-0 at offset 3: unknown: flow f does not copy topic other"),
    ],
)
def test_a_program_gets_all_positions_or_none(site: FlowHarness, line: str, words: str) -> None:
    found = _run(site, "translate", "-", "--as", "csv", text=f"orders,1,7\n{line}\n")
    assert (found.exit_code, found.stdout) == (3, "")
    assert words in " ".join(found.stderr.split())


def test_a_group_without_offsets_is_an_error(site: FlowHarness) -> None:
    found = _run(site, "translate", "--group", "billing")
    assert (found.exit_code, found.stdout) == (1, "")
    assert "group billing has committed nothing on cluster a" in found.stderr


def test_a_checkpoint_is_written_beside_the_old_one(site: FlowHarness) -> None:
    found = _run(site, "checkpoint", str(TWO), "new", "--dry-run")
    assert (found.exit_code, (site.folder / "new").exists()) == (0, False)
    found = _run(site, "checkpoint", str(TWO), "new")
    assert found.exit_code == 0, found.output
    assert "start it with this checkpoint, the servers of cluster b, and topics a.clicks, a.orders" in found.stderr
    assert '{"a.orders":{"0":107,"1":107}}' in (site.folder / "new" / "offsets" / "1").read_text()


def test_a_planned_batch_is_named(site: FlowHarness) -> None:
    shutil.copytree(TWO, site.folder / "old")
    (site.folder / "old/commits/1").unlink()
    found = _run(site, "checkpoint", "old", "new", "--json")
    assert found.exit_code == 0, found.output
    assert "batch 1 was planned and not committed: it is run again, with the same records" in found.stderr
    assert {**json.loads(found.stdout), "positions": []} == {
        "flow": "f",
        "batch": 1,
        "committed": False,
        "positions": [],
    }


def test_a_checkpoint_that_is_not_copied_is_not_written(site: FlowHarness) -> None:
    shutil.copytree(TWO, site.folder / "old")
    path = site.folder / "old/offsets/1"
    path.write_text(path.read_text().replace('"clicks":{"0":14}', '"clicks":{"0":51}'))
    found = _run(site, "checkpoint", "old", "new")
    assert (found.exit_code, (site.folder / "new").exists()) == (3, False)
    assert "not copied yet" in found.stdout
    assert "nothing is written" in found.stderr


def test_without_the_source_positions_are_those_of_the_index(
    site: FlowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translating, "open_on_target", lambda *_: Offsets())
    site.a.stop()
    found = _run(site, "checkpoint", str(TWO), "new")
    assert found.exit_code == 0, found.output
    assert "cluster a does not answer: positions are those of its log as it was copied" in found.stderr
    (site.folder / "list.csv").write_text(f"orders,0,{LOST}\n")
    found = _run(site, "translate", "list.csv", "--as", "csv")
    assert (found.exit_code, "the target has deleted 2 records" in found.stderr) == (3, True), found.output


def test_the_property_of_a_sink(site: FlowHarness) -> None:
    found = _run(site, "iceberg", "summary.json")
    assert found.exit_code == 3, "its groups are left out by default"
    for group in ("connect-x", "connect-x-coord"):
        assert f"group {group}: flow f does not bring its positions to cluster b under that name" in found.stderr
    site.config.write_text(site.config.read_text() + "[flows.f.groups]\nexclude = []\n")
    found = _run(site, "iceberg", "summary.json")
    assert found.exit_code == 0, found.output
    assert 'the property kafka.connect.offsets.a.control.connect-x = {"0":142}' in found.stderr
    (site.folder / "summary.json").write_text('{"kafka.connect.offsets.other.connect-x": "{\\"0\\":42}"}')
    found = _run(site, "iceberg", "summary.json")
    assert found.exit_code == 3
    assert "give the sink another iceberg.control.topic on the target" in found.stderr


def test_the_internal_topics_of_an_application(site: FlowHarness) -> None:
    _commit("app", orders=7)
    found = _run(site, "streams", "app", "--json")
    assert found.exit_code == 3
    assert {one["topic"]: (one["kind"], one["ready"]) for one in json.loads(found.stdout)["internal_topics"]} == {
        "app-by-key-repartition": ("repartition", False),
        "app-counts-changelog": ("changelog", False),
    }
    found = _run(site, "streams", "app")
    for part in ("app-counts-changelog", "copied as a.app-counts-changelog", "its records that are not processed"):
        assert part in " ".join(found.stdout.split())


def test_an_application_whose_group_is_renamed_is_named(site: FlowHarness) -> None:
    site.config.write_text(f'{site.config.read_text()}[flows.f.groups]\nnames = {{ "app" = "eu.app" }}\n')
    _commit("app", orders=7)
    found = _run(site, "streams", "app")
    assert found.exit_code == 3
    assert "application app: its positions are those of group eu.app on cluster b" in found.stderr


@pytest.mark.parametrize(
    "arguments",
    [("translate",), ("translate", "f", "--group", "g"), ("translate", "f", "--as", "x"), ("checkpoint", "a")],
)
def test_wrong_usage_has_status_2(site: FlowHarness, arguments: tuple[str, ...]) -> None:
    assert _run(site, *arguments).exit_code == 2


def test_a_file_that_is_not_there_is_named(site: FlowHarness) -> None:
    for command in ("translate", "iceberg"):
        found = _run(site, command, "nothing")
        assert (found.exit_code, "nothing: No such file" in found.stderr) == (1, True)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_target_that_does_not_answer_has_status_1(site: FlowHarness, command: str) -> None:
    site.b.stop()
    found = _run(site, command, *COMMANDS[command])
    assert (found.exit_code, found.stdout) == (1, "")
    assert "cluster b" in found.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_ends_in_time(site: FlowHarness, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def hang(*_: object) -> None:
        ended.wait(30)
        raise FlowError("the thread that is left behind must not go on to the clusters")

    monkeypatch.setattr(module, "contact", hang)
    found = _run(site, command, "--timeout", "0.1", *COMMANDS[command])
    ended.set()
    assert (found.exit_code, found.stdout) == (1, "")
    assert "has not ended within --timeout 0.1" in found.stderr
