"""Which flow of the other direction feeds a topic under the name that another flow reads it by."""

from __future__ import annotations

from mirror.config.models import FlowConfig, MirrorConfig
from mirror.spark.driver.group_rounds import feeding_flow


def _flow(name: str, naming: str) -> FlowConfig:
    source, target = name[0], name[1]
    values = {"name": name, "source": source, "target": target, "topics": ["orders"], "naming": naming}
    return FlowConfig.model_validate(values)


def test_only_a_flow_of_the_other_direction_with_the_same_names_feeds_the_source() -> None:
    for back, expected in (("identity", "BA"), ("prefix", None)):
        flows = {name: _flow(name, naming) for name, naming in (("AB", "identity"), ("BA", back), ("CA", "identity"))}
        find = feeding_flow(MirrorConfig.model_construct(clusters={}, flows=flows), flows["AB"])
        assert find("orders", "orders") == expected
        assert find("clicks", "clicks") is None
