"""Topics that a flow never copies: by their names they came from its target, or flows keep them for themselves."""

from __future__ import annotations

import pytest

from mirror.config.models import FlowConfig, MirrorConfig
from mirror.errors import FlowError
from mirror.spark.planning.range_planner import left_out_lines, select_topics, topics_left_out


def flow(naming: str = "prefix", target: str = "B", **changes: object) -> FlowConfig:
    values = {"name": "f", "source": "A", "target": target, "topics": [".*"], "topics_exclude": [], "naming": naming}
    return FlowConfig.model_validate({**values, **changes})


@pytest.mark.parametrize(
    ("topic", "target", "copied"),
    [
        ("orders", "B", True),
        ("B.orders", "B", False),
        ("C.B.orders", "B", False),
        ("C.D.B.orders", "B", False),
        ("C.orders", "B", True),
        ("Border.orders", "B", True),
        ("B-orders", "B", True),
        ("eu.B.orders", "eu.B", False),
        ("C.eu.B.orders", "eu.B", False),
        ("B.heartbeats", "B", False),
        ("C.heartbeats", "B", True),
        ("heartbeats", "B", True),
    ],
)
def test_a_topic_that_came_from_a_cluster_does_not_go_back_to_it(topic: str, target: str, copied: bool) -> None:
    found = flow(target=target)
    assert (found.includes(topic), found.left_out(topic)) == (
        copied,
        None if copied else f"by its name it came from {target}",
    )


def test_no_topic_is_copied_into_the_one_for_records_that_go_aside() -> None:
    one = flow("identity", aside="beside")
    assert one.left_out("beside") == "beside on B is kept for records that go aside"
    assert one.includes("orders")
    within = flow(target="A", names={"orders": "copy"}, aside="beside")
    assert within.left_out("beside") == "beside on A is kept for records that go aside"


def test_no_flow_of_a_file_copies_from_or_into_an_aside_topic_of_another_one() -> None:
    flows = {
        "first": flow("identity", aside="beside"),
        "onward": flow("identity", source="B", target="C"),
        "other": flow("identity", source="D"),
        "elsewhere": flow("identity", source="D", target="C"),
    }
    config = MirrorConfig(
        clusters={}, flows={name: one.model_copy(update={"name": name}) for name, one in flows.items()}
    )
    reasons = {name: one.left_out("beside") for name, one in config.flows.items()}
    reserved = "beside on B is kept for records that go aside"
    assert reasons == {"first": reserved, "onward": reserved, "other": reserved, "elsewhere": None}
    assert topics_left_out(config.flows["onward"], ["beside", "orders"]) == {"beside": reserved}


def test_with_identity_names_say_nothing() -> None:
    assert flow("identity").includes("B.orders")


@pytest.mark.parametrize("naming", ["prefix", "identity"])
@pytest.mark.parametrize(
    "topic",
    [
        "mirror-progress.f.internal",
        "mirror-offsets.a-b.internal",
        "C.mirror-groups.a-b.internal",
        "mirror-progress.a-b.takeover.internal",
        "mirror-progress.a-b.status.internal",
        "mirror-producers.internal",
        "C.checkpoints.internal",
        "D.C.checkpoints.internal",
    ],
)
def test_what_flows_keep_for_themselves_is_never_copied(topic: str, naming: str) -> None:
    assert not flow(naming).includes(topic)


@pytest.mark.parametrize(
    "topic", ["mirror-progress.internal", "my.internal", "checkpoints.internally", "mirror-orders.x"]
)
def test_other_internal_topics_may_be_copied(topic: str) -> None:
    assert flow().includes(topic)


def test_what_is_left_out_is_listed_with_the_reason_if_a_pattern_matches_it() -> None:
    names = ["B.orders", "orders", "other", "C.checkpoints.internal", "B.clicks"]
    found = flow(topics=[".*orders", ".*internal"])
    assert topics_left_out(found, names) == {
        "B.orders": "by its name it came from B",
        "C.checkpoints.internal": "it has checkpoints",
    }
    assert select_topics(found, names) == ["orders"]


def test_what_an_exclusion_leaves_out_is_listed_with_the_pattern() -> None:
    """But not the topics of brokers and flows, and checkpoints, which are no data of users."""
    names = ["orders", "orders-internal", "crm.replica", "__mine", "__consumer_offsets", "__transaction_state"]
    names += ["mirror-progress.f.internal", "C.checkpoints.internal", "B.orders", "B.x-internal"]
    values = {"name": "f", "source": "A", "target": "B", "topics": [".*"]}
    by_default = topics_left_out(FlowConfig.model_validate(values), names)
    rest = "topics-exclude has '.*[.-](internal|replica)', by default"
    assert by_default == {
        "B.orders": "by its name it came from B",
        "B.x-internal": "by its name it came from B",
        "__mine": "topics-exclude has '__.*', by default",
        "crm.replica": rest,
        "orders-internal": rest,
    }
    assert left_out_lines(by_default) == [
        "left out: 2 topics, since by its name it came from B: B.orders, B.x-internal",
        "left out: 1 topic, since topics-exclude has '__.*', by default: __mine",
        f"left out: 2 topics, since {rest}: crm.replica, orders-internal",
    ]
    own = FlowConfig.model_validate({**values, "topics_exclude": ["crm.*", "__.*"]})
    assert topics_left_out(own, ["crm.replica", "orders-internal"]) == {"crm.replica": "topics-exclude has 'crm.*'"}
    assert topics_left_out(own, ["other"]) == {}


def test_a_flow_with_nothing_but_such_topics_says_so() -> None:
    with pytest.raises(FlowError, match=r"never copied \(B\.orders: by its name it came from B\): correct topics"):
        select_topics(flow(), ["B.orders"])
