"""Flows that may feed each other are refused, unless every topic's path ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.config.cycles import cluster_identities, feedback_groups, unregistered_writers
from mirror.config.models import FlowConfig
from mirror.config.own_tables import MirrorMakerConfig

from .conftest import CLUSTERS, FLOW, Load, Problems


def flow(
    edge: str,
    *topics: str,
    naming: str = "prefix",
    exclude: tuple[str, ...] = (),
    heartbeats: bool = False,
    names: dict[str, str] | None = None,
) -> FlowConfig:
    source, target = edge[0], edge[1]
    return FlowConfig.model_validate(
        {"name": f"{edge}-{naming}-{'-'.join(topics)}", "source": source, "target": target, "names": names or {}}
        | {"topics": topics, "naming": naming, "topics_exclude": exclude, "mirrormaker": {"heartbeats": heartbeats}}
    )


BACK = {r"A\.(.*)": "$1"}
"""Names that remove what another flow has put in front."""
AB = {"b": "a"}


def refused(*flows: FlowConfig) -> bool:
    identity = {name: name for one in flows for name in (one.source, one.target)}
    return any(True for _ in feedback_groups(flows, identity))


@pytest.mark.parametrize(
    ("flows", "expected"),
    [
        ([flow("AB", ".*"), flow("AC", ".*"), flow("BC", ".*")], False),  # no cycle
        ([flow("AB", ".*"), flow("BA", ".*")], False),  # A.orders came from A
        ([flow("AB", ".*"), flow("BA", ".*", naming="identity")], True),
        ([flow("AB", ".*", naming="identity"), flow("BC", ".*"), flow("CA", ".*")], False),  # closed at C
        ([flow("AB", ".*", naming="identity"), flow("BC", ".*", naming="identity"), flow("CA", ".*")], True),
        ([flow("AB", ".*"), flow("BC", ".*", naming="identity"), flow("CA", ".*", naming="identity")], True),
        ([flow("AB", ".*", naming="identity"), flow("BA", ".*", naming="identity")], True),
        ([flow("AB", ".*"), flow("BC", ".*"), flow("CA", ".*")], False),
        ([flow("AB", ".*"), flow("BC", ".*"), flow("CD", ".*"), flow("DB", ".*")], False),
        ([flow("AB", "orders"), flow("BA", "orders")], False),  # A.orders is not orders
        ([flow("AB", "orders"), flow("BA", ".*")], False),  # orders -> A.orders -> B.A.orders: the end
        ([flow("AB", "orders", naming="identity"), flow("BA", "orders", naming="identity")], True),
        ([flow("AB", "orders", naming="identity"), flow("BA", "clicks", naming="identity")], False),
        ([flow("AB", "orders", naming="identity"), flow("BA", ".*", naming="identity")], True),
        ([flow("AB", "orders", naming="identity"), flow("BA", ".*")], False),  # orders -> orders -> B.orders: the end
        ([flow("AB", "orders", r"B\.orders", naming="identity"), flow("BA", "orders")], True),  # ends, but comes back
        ([flow("AB", r"B[.]orders", naming="identity"), flow("BA", r"B\.orders", naming="identity")], True),
        ([flow("AB", "a.b", naming="identity"), flow("BA", "c.d", naming="identity")], True),  # a dot is a pattern
        ([flow("AB", "orders", exclude=("or.*",), naming="identity"), flow("BA", ".*", naming="identity")], False),
        ([flow("AB", "x"), flow("BA", ".*"), *(flow(one, ".*", naming="identity") for one in ("BC", "CB"))], True),
        ([flow("AB", ".*"), flow("BA", ".*", names=BACK)], True),  # what is renamed has no prefix that would show it
        ([flow("AB", "orders"), flow("BA", r"A\.orders", names=BACK)], False),  # it is left out: it came from A
        ([flow("AB", "a", naming="identity"), flow("BA", "b", names={"b": "a"})], False),  # b -> a -> a: the end
        ([flow("AB", "a", "b", names={"a": "b"}, naming="identity"), flow("BA", "b", names={"b": "a"})], True),
        ([flow("AB", "a", names={"a": "b"}), flow("BA", ".*", names={"b": "c"})], False),  # a -> b -> c: the end
        ([flow("AB", "a", names={"a": "b"}), flow("BA", ".*", names={"b": "a"})], True),
        ([flow("AA", ".*", exclude=(r"x\..*",), names={"(.*)": "x.$1"})], False),  # refuses its own copies by name
        ([flow("AA", "a", names={"a": "b"}), flow("AA", "b", names={"b": "a"})], True),
        ([flow("AA", "a.*", names={"(.*)": "x.$1"}), flow("AA", r"x\..*", names={r"x\.(.*)": "$1"})], True),
        ([flow("AA", "a", names={"a": "b"}), flow("AB", "b", naming="identity")], False),
        ([flow("AA", "a", names={"a": "b"}), *(flow(one, "b", names={"b": "a"}) for one in ("AB", "BA"))], False),
        ([flow("AA", "a", names={"a": "b"}), flow("AB", "b", naming="identity"), flow("BA", "b", names=AB)], True),
    ],
)
def test_flows_that_may_feed_each_other_are_refused(flows: list[FlowConfig], expected: bool) -> None:
    assert refused(*flows) is expected


def test_the_reason_spells_out_the_circle_of_patterns() -> None:
    flows = [flow("AB", ".*", naming="identity"), flow("BC", "x.*"), flow("BA", ".*"), flow("CA", ".*")]
    ((group, reason),) = feedback_groups(flows, {name: name for name in "ABC"})
    assert list(group) == flows
    assert "a topic could go A -> B (flow AB-identity-.*) -> A (flow BA-prefix-.*), and on, in a circle" in reason
    advice = '; use naming = "prefix" in AB-identity-.*, or origin = "local" in all of them; or write the topics'
    assert advice in reason


def test_clusters_under_two_names_are_refused_although_topics_have_prefixes() -> None:
    flows, identity = [flow("AB", ".*"), flow("BP", ".*")], {"A": "A", "P": "A", "B": "B"}
    ((_, reason),) = feedback_groups(flows, identity)
    assert "a topic could go A -> B (flow AB-prefix-.*) -> P (flow BP-prefix-.*), and on" in reason
    assert "; A and P are one cluster" in reason


def local(one: FlowConfig) -> FlowConfig:
    return one.model_copy(update={"origin": "local"})


@pytest.mark.parametrize("naming", ["identity", "prefix"])
def test_flows_that_copy_local_records_only_may_feed_each_other(naming: str) -> None:
    ring = [flow(edge, ".*", naming=naming) for edge in ("AB", "BA", "BC", "CA")]
    assert not refused(*map(local, ring))
    for number, one in enumerate(ring):
        others = [local(other) for other in ring if other is not one]
        by_name = naming == "prefix"  # then a topic does not go back by its name, whatever copies it
        assert refused(*others, one) is not by_name, f"flow {number} copies everything"


def test_flows_of_local_records_may_stand_beside_flows_with_prefixes() -> None:
    prefixed = [flow("AB", ".*"), flow("BA", ".*")]
    shared = [flow("AB", "shared", naming="identity"), flow("BA", "shared", naming="identity")]
    assert not refused(*prefixed, *map(local, shared))
    assert refused(*prefixed, local(shared[0]), shared[1])


def test_who_writes_where_local_records_are_copied_from_registers_its_producers() -> None:
    reader, plain, registering = local(flow("BA", ".*")), flow("CB", ".*"), flow("DB", ".*")
    registering = registering.model_copy(update={"register_producers": True})
    flows, identity = [reader, plain, registering, flow("BD", ".*")], {name: name for name in "ABCD"}
    assert list(unregistered_writers(flows, identity)) == [(plain, reader)]


def test_the_reason_names_the_topic_and_its_path() -> None:
    flows = [flow("AB", "orders", naming="identity"), flow("BA", "orders", naming="identity")]
    ((group, reason),) = feedback_groups(flows, {"A": "A", "B": "B"})
    assert list(group) == flows
    assert 'topic "orders" goes through AB-identity-orders, BA-identity-orders again and again' in reason


def test_heartbeats_go_in_no_circle_by_their_names() -> None:
    edges = [("AB", "orders"), ("BA", "orders"), ("BC", ".*"), ("CA", "orders")]
    assert not refused(*(flow(*one, heartbeats=True) for one in edges))
    assert not refused(
        *(flow(*one, heartbeats=True, naming="identity") for one in [("AB", "x"), ("BC", "y"), ("CA", "z")])
    )


@pytest.mark.parametrize("patterned", [False, True])
def test_heartbeats_between_clusters_of_two_names_each_are_refused(patterned: bool) -> None:
    """No name says that P is A and Q is B, so that each copy looks new."""
    flows = [flow("AQ", ".*" if patterned else "orders", heartbeats=True), flow("BP", "clicks", heartbeats=True)]
    identity = {"A": "A", "P": "A", "B": "B", "Q": "B"}
    ((_, reason),) = feedback_groups(flows, identity)
    assert 'topic "heartbeats" goes through AQ-prefix-' in reason
    plain = [one.model_copy(update={"mirrormaker": MirrorMakerConfig()}) for one in flows]
    assert not list(feedback_groups(plain, identity))


EDGES = st.sampled_from(["AB", "BA", "BC", "CB", "CA", "AC"])
TOPICS = st.lists(st.sampled_from(["t", "u", r"A\.t", r"B\.A\.t", ".*", "t.*"]), min_size=1, max_size=2, unique=True)
FLOWS = st.lists(
    st.builds(
        lambda edge, topics, naming, heartbeats: flow(edge, *topics, naming=naming, heartbeats=heartbeats),
        EDGES,
        TOPICS,
        st.sampled_from(["prefix", "identity"]),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda one: one.name,
)


@given(FLOWS)
def test_topics_of_accepted_flows_end_somewhere(flows: list[FlowConfig]) -> None:
    """The reference: follow some topics through the flows. Accepted flows come to rest.

    A topic passes each patterned flow at most once before it meets a flow of plain names, and each flow once after.
    """
    if refused(*flows):
        return
    there = {(cluster, topic) for cluster in "ABC" for topic in ("t", "u", "A.t", "B.A.t", "x", "heartbeats")}
    for _ in range(4 * len(flows)):
        there = {
            (f.target, f.target_topic(topic))
            for f in flows
            for cluster, topic in there
            if f.source == cluster and f.includes(topic)
        }
    assert not {(f.name, topic) for f in flows for cluster, topic in there if f.source == cluster and f.includes(topic)}


MESH = [f"c{number}" for number in range(12)]


def mesh(
    name: str, *topics: str, naming: str = "prefix", origin: str = "any", heartbeats: bool = False
) -> list[FlowConfig]:
    """Return a flow from each of 12 clusters to each other one."""
    shared: dict[str, Any] = {"topics": topics, "naming": naming, "origin": origin, "register_producers": True}
    shared["mirrormaker"] = {"heartbeats": heartbeats}
    return [
        FlowConfig.model_validate({"name": f"{name}-{one}-{other}", "source": one, "target": other} | shared)
        for one in MESH
        for other in MESH
        if one != other
    ]


@pytest.mark.parametrize("topic", ["t", ".*"])
@pytest.mark.parametrize("heartbeats", [False, True])
def test_a_mesh_takes_no_factorial_time(topic: str, heartbeats: bool) -> None:
    prefixed = mesh("prefixed", topic, heartbeats=heartbeats)
    down = [one for one in mesh("same", "t", naming="identity") if MESH.index(one.source) < MESH.index(one.target)]
    shared = mesh("shared", "s", naming="identity", origin="local")
    patterned = mesh("patterned", "s.*", naming="identity", origin="local")
    assert not refused(*prefixed)
    assert not refused(*prefixed, *down)
    assert not refused(*shared, *patterned)
    if topic == "t":
        assert not refused(*prefixed, *down, *shared)
    assert refused(*prefixed, *mesh("same", "t", naming="identity"))
    assert refused(*prefixed, *shared[1:], shared[0].model_copy(update={"origin": "any"}))


def test_local_patterns_may_stand_beside_a_flow_of_plain_names() -> None:
    shared = [local(flow("AB", "shared-.*", naming="identity")), local(flow("BA", "shared-.*", naming="identity"))]
    assert not refused(*shared, flow("AB", "logs"))
    assert refused(*shared, flow("AB", "shared-x", naming="identity"))


def test_clusters_that_share_a_broker_are_one() -> None:
    assert cluster_identities({"a": ["x"], "b": ["y"], "c": ["x", "y"], "d": ["z"]}) in (
        {"a": "a", "b": "a", "c": "a", "d": "d"},
        {"a": "b", "b": "b", "c": "b", "d": "d"},
    )
    assert cluster_identities({"a": [], "b": []}) == {"a": "a", "b": "b"}


def test_a_flow_whose_ends_are_one_cluster(problems: Problems) -> None:
    expected = "mirror.toml: flows.paris-berlin = {}: both ends are one cluster; choose another target"
    names = ", or give the copies other names (names)"
    assert problems(CLUSTERS + FLOW.replace('"berlin"', '"paris"')) == [expected.format("paris -> paris") + names]
    shared = CLUSTERS.replace('"berlin-1:9092"', '["berlin-1:9092", "PARIS-1:9092"]')
    assert problems(shared + FLOW) == [expected.format("paris -> berlin")]


def test_a_pair_of_flows_in_a_file(problems: Problems, read: Load) -> None:
    back = '[flows.back]\nsource = "berlin"\ntarget = "paris"\ntopics = [{}]\n'
    assert set(read(CLUSTERS + FLOW + back.format('"orders"')).flows) == {"paris-berlin", "back"}
    ahead = FLOW.replace('"orders"', '"orders.*"')
    assert set(read(CLUSTERS + ahead + back.format('".*"')).flows) == {"paris-berlin", "back"}
    (problem,) = problems(CLUSTERS + ahead + back.format('".*"') + 'naming = "identity"\n')
    assert problem.startswith(
        "mirror.toml: flows = paris-berlin: paris -> berlin, back: berlin -> paris: these flows may"
    )
