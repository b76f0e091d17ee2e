"""Which flows of both directions feed topics under the same names, and which of them translate positions."""

from __future__ import annotations

from typing import Any, Final

from mirror.config.models import ClusterConfig, FlowConfig, MirrorConfig
from mirror.spark.preflight.flow_groups import also_fed, feeding_flow, partners_of


def _flow(name: str, naming: str, **more: Any) -> FlowConfig:
    source, target = name[0], name[1]
    values = {"name": name, "source": source, "target": target, "topics": ["orders"], "naming": naming, **more}
    return FlowConfig.model_validate(values)


def _config(*flows: FlowConfig) -> MirrorConfig:
    clusters = {name: ClusterConfig.model_validate({"name": name}) for name in "ABC"}
    return MirrorConfig.model_construct(clusters=clusters, flows={flow.name: flow for flow in flows})


def test_only_a_flow_of_the_other_direction_with_the_same_names_feeds_the_source() -> None:
    for back, expected in (("identity", "BA"), ("prefix", None)):
        flows = {name: _flow(name, naming) for name, naming in (("AB", "identity"), ("BA", back), ("CA", "identity"))}
        find = feeding_flow(_config(*flows.values()), flows["AB"])
        found = find("orders", "orders")
        assert (found and found.name) == expected
        assert find("clicks", "clicks") is None


_LOCAL: Final[dict[str, Any]] = {"naming": "identity", "origin": "local", "groups": {}}


def test_the_flow_of_the_other_direction_that_is_alike_brings_positions_back() -> None:
    there = [_flow("AB prefix", "prefix", groups={}), _flow("AB local", **_LOCAL)]
    back = [_flow("BA prefix", "prefix", groups={}), _flow("BA local", **_LOCAL)]
    config = _config(*there, *back)
    for one, other in zip(there, back, strict=True):
        assert partners_of(config, one).opposite == other.name
        assert [copying.name for copying in partners_of(config, other).copying] == [one.name]
    assert partners_of(_config(*there, back[0]), there[1]).opposite == "BA prefix", "else the first one"


def test_flows_that_a_translation_leaves_out_are_found() -> None:
    flow = _flow("AB", **_LOCAL)
    others = [_flow("BA", **_LOCAL), _flow("CA", **_LOCAL), _flow("BA prefix", "prefix", groups={})]
    find = also_fed(_config(flow, *others), flow)
    assert find(frozenset({"AB", "BA"}), "orders", "orders") == ""
    assert find(frozenset({"AB"}), "clicks", "clicks") == ""
    assert find(frozenset({"AB"}), "orders", "orders") == (
        "flow BA copies orders to orders, too, which the index of flow AB does not have"
    )
    assert "flow AB copies" in find(frozenset({"BA"}), "orders", "orders")
