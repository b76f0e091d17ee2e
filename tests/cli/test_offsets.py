"""``mirror offsets`` as it is typed: statuses, the table, JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Self

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.cli.commands import offsets as command
from mirror.client import TopicPartition
from mirror.errors import KafkaTimeout
from mirror.relay.offsets.index import UNKNOWN, Place, Translation
from tests.spark.flow_harness import FlowHarness, use_fakes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from typer.testing import Result

KNOWN = {3: Translation(Place.RECORD, 13), 4: Translation(Place.NEXT, 20), 9: Translation(Place.END, 30)}
OTHERS = {1: UNKNOWN, 50: Translation(Place.NOT_COPIED, 30)}


class Offsets:
    """Offsets of a partition as they are translated in these tests."""

    reason = "there was nothing to read"
    is_of_copied_topic = True

    def translate(self, offset: int) -> Translation:
        return {**KNOWN, **OTHERS}[offset]

    def translate_back(self, offset: int) -> Translation:
        return Translation(Place.RECORD, offset - 10)

    def passed(self, offset: int, found: Translation) -> int:
        """Of the record behind offset 4, the target has deleted what is in front of it."""
        return 2 if (offset, found) == (4, KNOWN[4]) else 0

    passed_back = passed


class Translator:
    """Opens them."""

    opened: tuple[Any, ...] = ()

    def __init__(self, flow: str, source: Mapping[str, object], target: Mapping[str, object], policy: object) -> None:
        del policy
        self._flow, self._servers = flow, (source["bootstrap.servers"], target["bootstrap.servers"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def open(self, partitions: dict[TopicPartition, TopicPartition]) -> dict[TopicPartition, Offsets]:
        Translator.opened = self._flow, self._servers, partitions
        return {tp: Offsets() for tp in partitions}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FlowHarness:
    monkeypatch.setattr(command, "OffsetTranslator", Translator)
    use_fakes(monkeypatch)
    site = FlowHarness(tmp_path)
    for name in ("orders", "-orders"):
        site.a.add_topic(name, [0, 0, 0])
    return site


def _run(site: FlowHarness, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["offsets", "--config", str(site.config), "--flow", "f", *arguments])


def test_offsets_that_are_all_known_have_status_0(site: FlowHarness) -> None:
    found = _run(site, "orders", "2", *map(str, KNOWN))
    assert (found.exit_code, found.stderr) == (0, "")
    for part in ("flow f: orders-2 to a.orders-2", "the same record", "no record there", "the end of what is copied"):
        assert part in found.stdout
    flow, servers, partitions = Translator.opened
    assert (flow, servers) == ("f", ("a:1", "b:1"))
    assert partitions == {TopicPartition("orders", 2): TopicPartition("a.orders", 2)}


@pytest.mark.parametrize(("offset", "words"), [(1, "unknown"), (50, "not copied yet")])
def test_an_offset_that_is_not_known_has_status_3(site: FlowHarness, offset: int, words: str) -> None:
    found = _run(site, "orders", "2", "3", f"{offset}")
    assert found.exit_code == 3
    assert words in found.stdout
    assert ("there was nothing to read" in found.stderr) is (offset == 1)


def test_offsets_as_json(site: FlowHarness) -> None:
    found = _run(site, "orders", "2", "3", "1", "--json")
    assert (found.exit_code, found.stderr) == (3, "")
    assert json.loads(found.stdout) == {
        "flow": "f",
        "topic": "orders",
        "target_topic": "a.orders",
        "partition": 2,
        "offsets": [
            {"source": 3, "target": 13, "place": "record", "passed": 0},
            {"source": 1, "target": None, "place": "unknown", "passed": 0},
        ],
        "reason": "there was nothing to read",
    }


def test_offsets_of_the_target(site: FlowHarness) -> None:
    found = _run(site, "orders", "2", "13", "--reverse", "--json")
    assert found.exit_code == 0
    assert json.loads(found.stdout)["offsets"] == [{"target": 13, "source": 3, "place": "record", "passed": 0}]


def test_the_reason_of_a_partition_that_is_not_copied_is_named(
    site: FlowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Offsets, "is_of_copied_topic", False)
    found = _run(site, "orders", "2", "50")
    assert (found.exit_code, "there was nothing to read" in found.stderr) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nope", "0", "5"), "cluster a has no topic nope, or its user lacks Describe on it"),
        (("orders", "3", "5"), "topic orders of cluster a has no partition 3: it has 3"),
    ],
)
def test_a_partition_that_does_not_exist_is_refused_at_once(
    site: FlowHarness, arguments: tuple[str, ...], words: str
) -> None:
    found = _run(site, *arguments)
    assert (found.exit_code, found.stdout) == (1, "")
    assert words in " ".join(found.stderr.split())


def test_clusters_that_do_not_answer_have_status_1(site: FlowHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise KafkaTimeout("no broker answers")

    monkeypatch.setattr(Translator, "open", silent)
    found = _run(site, "orders", "0", "1")
    assert (found.exit_code, found.stdout) == (1, "")
    assert "no broker answers" in found.stderr


def test_a_topic_that_begins_with_a_dash_goes_behind_two_dashes(site: FlowHarness) -> None:
    wrong = _run(site, "-orders", "2", "3")
    assert wrong.exit_code == 2
    said = " ".join(wrong.stderr.replace("│", " ").split())
    assert "put -- before the arguments: root offsets [OPTIONS] -- ARGUMENTS" in said
    found = _run(site, "--json", "--", "-orders", "2", "3")
    assert json.loads(found.stdout)["target_topic"] == "a.-orders"


@pytest.mark.parametrize("arguments", [("orders", "0"), ("orders", "-1", "3"), ("orders", "0", "x")])
def test_wrong_usage_has_status_2(site: FlowHarness, arguments: tuple[str, ...]) -> None:
    assert _run(site, *arguments).exit_code == 2


def test_without_the_source_it_says_what_the_index_has(site: FlowHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "open_on_target", lambda *_: Offsets())
    site.a.stop()
    found = _run(site, "orders", "2", "3", "--json")
    assert (found.exit_code, json.loads(found.stdout)["offsets"][0]["target"]) == (1, 13)
    assert "cluster a" in found.stderr
    site.a.start()
    site.b.stop()
    found = _run(site, "orders", "2", "3", "--json")
    assert (found.exit_code, found.stdout) == (1, ""), "the index is on the target"
