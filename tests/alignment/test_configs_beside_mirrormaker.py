"""What MirrorMaker 2 and a flow make of the same configurations, as the table in config/README.md says.

Its last two rows are about brokers that differ, and about running copies: tests/alignment/test_rounds_on_fakes.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.client import Admin, ConfigChange, ConfigOperation, ConfigResource, NewTopic
from mirror.observation import Side
from tests.benchmarks.mirrormaker import mirrormaker, properties
from tests.conftest import NewCluster
from tests.polling import eventually
from tests.topic_creation import await_topics, create_topics

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(236)]

_README = Path(__file__).parents[2] / "config" / "README.md"
_WITHIN_S = 150.0
NEW, OLD = "orders", "clicks"
"""Topics that the flow creates on the target, and that is there before."""


class Row(NamedTuple):
    """One row of the table, and a key that shows it."""

    source: str
    target: str
    topic: str
    key: str
    first: str | None
    """On the source, when the flow and MirrorMaker 2 begin."""
    then: str | None
    """On the source, later."""
    others: str | None
    """On the target, when that is compared; set by others if it is not ``first``."""


ROWS = (
    Row("sets a value", "has none, or the former one", NEW, "retention.ms", None, "900000000", None),
    Row("resets a value", "has the former one, set by the flow", NEW, "segment.ms", "8000000", None, "8000000"),
    Row("resets a value", "has the former one, which the flow has not set", OLD, "flush.ms", "5000", None, "5000"),
    Row("has none", "has one that others have set", NEW, "flush.messages", None, None, "500"),
    Row("has a value", "has another one that others have set", NEW, "max.message.bytes", "200000", "200000", "300000"),
    Row(
        "has a value",
        "differed before the flow had an inventory of the topic",
        OLD,
        "retention.bytes",
        "600000000",
        "600000000",
        "500000000",
    ),
    Row("has a default of its brokers, set dynamically", "anything", NEW, "index.interval.bytes", None, None, None),
    Row("the key is not in `configs-include`", "anything", NEW, "delete.retention.ms", "90000", "90000", None),
)
OVERRIDDEN = "file.delete.delay.ms"


def _documented() -> dict[tuple[str, str], tuple[str, str]]:
    """What the table says that MirrorMaker 2 and the flow do, by its first two columns."""
    lines = (line.strip("|").split("|") for line in _README.read_text(encoding="utf-8").splitlines())
    cells = [[cell.strip() for cell in line] for line in lines]
    return {(line[0], line[1]): (line[2], line[3]) for line in cells if len(line) == 4}


def _done(before: str | None, after: str | None) -> str:
    """The first word of the table about what has become of a value."""
    if before == after:
        return "leaves"
    return "resets" if after is None else "sets" if before is None else "overwrites"


def _alter(admin: Admin, resource: ConfigResource, configs: Mapping[str, str | None]) -> None:
    admin.incremental_alter_configs(
        {
            resource: [
                ConfigChange(key, value, ConfigOperation.SET if value else ConfigOperation.DELETE)
                for key, value in configs.items()
            ]
        }
    )


def _set_on(admin: Admin, topic: str, key: str) -> str | None:
    return Side("", admin).own_configs([topic])[topic].get(key)


def _apply(file: Path, *arguments: str) -> dict[tuple[str, str], str]:
    """Bring the flow's topics in step; return why what differs still is left."""
    result = CliRunner().invoke(app, ["apply", "--config", str(file), "--json", *arguments])
    assert result.exit_code in {0, 3}, result.output
    (flow,) = json.loads(result.stdout)["flows"]
    differences: list[dict[str, Any]] = flow["configs"]["differences"]
    return {(each["topic"], each["key"]): each["reason"] for each in differences if each["reason"]}


def test_every_row_of_the_table(new_cluster: NewCluster, tmp_path: Path) -> None:
    clusters = [new_cluster().bootstrap_servers for _ in range(2)]
    with Admin({"bootstrap.servers": clusters[0]}) as source, Admin({"bootstrap.servers": clusters[1]}) as target:
        for topic in (NEW, OLD):
            first = {row.key: row.first for row in ROWS if row.topic == topic and row.first}
            create_topics(source, [NewTopic(topic, 1, 1, first)])
        here = {row.key: row.others for row in ROWS if row.topic == OLD and row.others}
        create_topics(target, [NewTopic(f"{alias}.{OLD}", 1, 1, here) for alias in "ao"])
        file = tmp_path / "mirror.toml"
        file.write_text(
            f'[clusters.o]\n"bootstrap.servers" = "{clusters[0]}"\n'
            f'[clusters.b]\n"bootstrap.servers" = "{clusters[1]}"\n'
            f'[flows.f]\nsource = "o"\ntarget = "b"\ntopics = ["{NEW}", "{OLD}"]\n'
            'configs-include = ["[^d].*"]\n'
            f'[flows.f.configs-overrides]\n"{OVERRIDDEN}" = 70000\n'
        )
        _apply(file, "--flow", "f", "--adopt", f"o.{OLD}")
        settings = {"a->b.sync.topic.configs.enabled": "true", "a->b.sync.topic.configs.interval.seconds": "1"}
        given = properties(clusters[0], clusters[1], f"{NEW},{OLD}", exactly_once=False, tasks=1)
        with mirrormaker(tmp_path, {**given, **settings}):
            eventually(lambda: f"a.{NEW}" in target.list_topics(), within_s=_WITHIN_S, what="its topic", every_s=0.2)
            await_topics(target, [f"a.{NEW}", f"o.{NEW}"])
            _compare(source, target, file)


def _compare(source: Admin, target: Admin, file: Path) -> None:
    _alter(source, ConfigResource.broker(), {"log.index.interval.bytes": "8192"})
    for row in ROWS:
        if row.topic == NEW and row.others != row.first and row.others is not None:
            for alias in "ao":
                _alter(target, ConfigResource.topic(f"{alias}.{NEW}"), {row.key: row.others})
        if row.then != row.first:
            _alter(source, ConfigResource.topic(row.topic), {row.key: row.then})
    documented = _documented()

    def of_mirrormaker() -> dict[Row, str]:
        return {row: _done(row.others, _set_on(target, f"a.{row.topic}", row.key)) for row in ROWS}

    expected = {row: documented[row.source, row.target][0].split()[0] for row in ROWS}
    eventually(lambda: of_mirrormaker() == expected, within_s=_WITHIN_S, what=f"{expected}", every_s=0.5)
    reasons = _apply(file)

    def of_flow() -> dict[Row, str]:
        return {row: _done(row.others, _set_on(target, f"o.{row.topic}", row.key)) for row in ROWS}

    said = {row: documented[row.source, row.target][1] for row in ROWS}
    expected = {row: text.split()[0].rstrip(":") for row, text in said.items()}
    eventually(lambda: of_flow() == expected, what=f"{expected}", every_s=0.5)
    assert _set_on(target, f"o.{NEW}", OVERRIDDEN) == "70000"
    assert _set_on(target, f"a.{NEW}", OVERRIDDEN) is None
    named = {row: reasons.get((f"o.{row.topic}", row.key)) for row in ROWS}
    assert {row: f"`{reason}`" in said[row] for row, reason in named.items() if reason} == {
        row: True for row, text in said.items() if "`" in text
    }
