"""A run that prepares its target while its flow is held, and of which ``mirror hold`` need not know yet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirror.errors import FlowHeld
from mirror.spark.driver.flow_preparation import FlowPreparation
from mirror.spark.preflight.flow_checks import Findings
from tests.relay.fake_pair import FakePair
from tests.spark.preflight.test_missing_apis import config_of
from tests.spark.preflight.test_missing_apis import flow as flow_of


@pytest.mark.parametrize("change", ["its own topics", "a topic", "partitions"])
def test_a_preparation_changes_nothing_of_a_flow_that_is_held_meanwhile(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    pair = FakePair(monkeypatch)
    flow = flow_of(topics=["new.*"], on_topic_deleted="delete")
    config = config_of(flow, pair)
    topic = pair.source.add_topic("new")
    lines = cast("Any", SimpleNamespace(tell=lambda _: None, warn_once=lambda _: None, warn=lambda _: None))
    checked: list[str] = []

    def check() -> None:
        checked.append("latch")
        raise FlowHeld("flow f is held")

    if change != "its own topics":
        FlowPreparation(config, flow, lines, Findings(), bool).prepare()
    if change == "partitions":
        pair.source.grow(topic, 2)
    else:
        pair.source.add_topic("new-2")
    before = partitions_of(pair)
    with pytest.raises(FlowHeld):
        FlowPreparation(config, flow, lines, Findings(), check).prepare()
    assert checked == ["latch"]
    assert partitions_of(pair) == before
    FlowPreparation(config, flow, lines, Findings(), bool).prepare()
    assert partitions_of(pair) != before


def partitions_of(pair: FakePair) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in pair.target.topics.items()}
