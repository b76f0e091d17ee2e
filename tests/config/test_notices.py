"""Notices about valid keys that have no effect, or not the expected one."""

from __future__ import annotations

import pytest

from mirror.config.notices import WITHOUT_EFFECT, notices
from mirror.config.schema import CLIENT_KEYS

from .conftest import CLUSTERS, FLOW, Load


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            'consumer."group.id" = "x"',
            'flows.paris-berlin.consumer."group.id" has no effect: progress is committed on the',
        ),
        ('producer."linger.ms" = 5', 'flows.paris-berlin.producer."linger.ms" has no effect: batches are passed on as'),
        ('producer."max.block.ms" = 5', 'flows.paris-berlin.producer."max.block.ms" has no effect: a task never waits'),
        (
            'producer."max.block.metadata.ms" = 5',
            'flows.paris-berlin.producer."max.block.metadata.ms" has no effect: a task never waits',
        ),
        (
            'producer."request.timeout.ms" = 200000',
            "flows.paris-berlin.producer: delivery.timeout.ms is raised to 200100",
        ),
    ],
)
def test_a_key_without_effect_is_reported(read: Load, lines: str, expected: str) -> None:
    config = read(CLUSTERS + FLOW + lines)
    (line,) = notices(config, config.flows["paris-berlin"])
    assert line.startswith(expected)


COMMA = "no topic's name has a comma, as in 'orders,clicks-.*'; write a list, with each pattern in quotes"
GLOB = "is a regular expression, not a glob; write"


@pytest.mark.parametrize(
    ("key", "pattern", "expected"),
    [
        ("topics", "orders,clicks-.*", COMMA),
        ("topics-exclude", "orders,clicks-.*", COMMA),
        ("topics", "clicks-*", f"'clicks-*' {GLOB} 'clicks-.*' to match any text"),
        ("topics", "a.b*", rf"'a.b*' {GLOB} 'a\\.b.*' to match any text"),
        ("topics-exclude", ".*", "excludes every topic: the flow copies nothing"),
        ("topics-exclude", "[^,]+", "excludes every topic: the flow copies nothing"),
        ("topics", "a{1,3}", None),
        ("topics", "orders.*", None),
        ("topics", "(a|b)*", None),
        ("topics-exclude", "internal-.*", None),
    ],
)
def test_a_pattern_that_hardly_means_what_it_matches_is_reported(
    read: Load, key: str, pattern: str, expected: str | None
) -> None:
    flow = FLOW if key != "topics" else "".join(f"{line}\n" for line in FLOW.splitlines() if "topics =" not in line)
    config = read(f"{CLUSTERS}{flow}{key} = ['{pattern}']\n")
    lines = [line for line in notices(config, config.flows["paris-berlin"]) if line.startswith("flows.paris-berlin.")]
    where = f"flows.paris-berlin.{key}"
    assert lines == (
        [] if expected is None else [f"{where} {expected}" if "excludes" in expected else f"{where}: {expected}"]
    )


def test_a_warning_of_a_cluster_s_settings_is_reported_once(read: Load) -> None:
    config = read(CLUSTERS + '"retry.backoff.ms" = 2000\n' + FLOW)
    (line,) = notices(config, config.flows["paris-berlin"])
    assert line.startswith("clusters.berlin: retry.backoff.ms (2000) is above retry.backoff.max.ms (1000): every wait")


def test_a_key_with_an_effect_is_not_reported(read: Load) -> None:
    lines = 'consumer."client.rack" = "r"\nproducer."batch.size" = 100000\nproducer."transaction.timeout.ms" = 200000'
    config = read(CLUSTERS + FLOW + lines)
    assert notices(config, config.flows["paris-berlin"]) == []


@pytest.mark.parametrize(
    ("topics", "reason"),
    [
        ('["orders", "orders-internal"]', "orders-internal is left out, since topics-exclude has '.*[.-](internal"),
        (
            r'["crm\\.replica"]',
            "crm.replica is left out, since topics-exclude has '.*[.-](internal|replica)', by default",
        ),
        ('["berlin.orders"]', "berlin.orders is left out, since by its name it came from berlin"),
        ('["x.checkpoints.internal"]\ntopics-exclude = ["y"]', "x.checkpoints.internal is left out, since it has"),
    ],
)
def test_a_topic_that_is_named_and_not_copied_is_reported(read: Load, topics: str, reason: str) -> None:
    flow = FLOW.replace(next(line for line in FLOW.splitlines() if line.startswith("topics")), f"topics = {topics}")
    config = read(CLUSTERS + flow)
    (line,) = notices(config, config.flows["paris-berlin"])
    assert line.startswith(f"flows.paris-berlin.topics: {reason}")


def _meshed(edges: str, topics: str) -> str:
    clusters = "".join(f'[clusters.{name}]\n"bootstrap.servers" = "{name}-1:9092"\n' for name in "abc")
    flow = '[flows.{0}-{1}]\nsource = "{0}"\ntarget = "{1}"\ntopics = ["{2}"]\nnaming = "identity"\norigin = "local"\n'
    return clusters + "".join(flow.format(*edge, topics) for edge in edges.split())


@pytest.mark.parametrize("topics", ["orders", "ord.*"])
def test_a_mesh_that_lacks_flows_is_reported(read: Load, topics: str) -> None:
    config = read(_meshed("ab ba bc cb", topics))
    (line,) = notices(config, config.flows["a-b"])
    assert line.startswith("flows.a-b: what it copies from a to b does not go on to c, because flow b-c has origin")
    assert line.endswith("add a flow from a to c")
    assert notices(config, config.flows["b-c"]) == []
    whole = read(_meshed("ab ba bc cb ac ca", topics))
    assert not any(notices(whole, one) for one in whole.flows.values())


def test_local_flows_of_other_topics_or_in_one_direction_are_no_mesh(read: Load) -> None:
    for edges in ("ab ba bc", "ab bc cb"):
        config = read(_meshed(edges, "orders"))
        assert not any(notices(config, one) for one in config.flows.values())
    config = read(
        _meshed("ab ba bc cb", "orders").replace(
            'target = "c"\ntopics = ["orders"]', 'target = "c"\ntopics = ["clicks"]'
        )
    )
    assert notices(config, config.flows["a-b"]) == []


def test_only_keys_that_exist_are_said_to_have_no_effect() -> None:
    assert all(WITHOUT_EFFECT[client].keys() <= keys.keys() for client, keys in CLIENT_KEYS.items())
