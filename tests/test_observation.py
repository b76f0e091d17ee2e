"""A cluster as one command observes it: each fact is read once, and only if it is needed. Brokers in memory."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import mirror
from mirror.client import ConfigEntry, ResourceType
from mirror.errors import AuthorizationFailed, FlowError, KafkaError
from mirror.observation import Side, Sides
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.admin import FakeAdmin
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster(2, cluster_id="paris")
    made.add_topic("orders", 2)
    made.add_topic("clicks")
    return made


def observed(cluster: FakeCluster, timeout_ms: int | None = None) -> Side:
    return Side("a", FakeAdmin(cluster), timeout_ms)


def test_nothing_is_read_before_a_view_needs_it_and_each_fact_once(cluster: FakeCluster) -> None:
    side = observed(cluster)
    assert cluster.received == []
    for _ in range(3):
        assert side.topics.keys() == {"orders", "clicks"}
        assert side.describe(["orders"]).keys() == {"orders"}, "the listing has it"
        assert side.configs(["orders"]).keys() == {"orders"}
        assert side.own_configs(["orders"]) == {"orders": {}}
    assert len([one for one in cluster.calls(Api.METADATA) if one.body.topics is None]) == 1
    assert [one.body.topics for one in cluster.calls(Api.METADATA) if one.body.topics] == []
    assert len(cluster.calls(Api.DESCRIBE_CONFIGS)) == 1


def test_only_names_that_were_not_read_before_are_asked_for(cluster: FakeCluster) -> None:
    side = observed(cluster)
    assert side.describe(["orders", "none"]).keys() == {"orders"}
    assert side.describe(["orders", "none", "clicks"]).keys() == {"orders", "clicks"}
    named = [
        sorted(topic.name or "" for topic in one.body.topics) for one in cluster.calls(Api.METADATA) if one.body.topics
    ]
    assert named[-1] == ["clicks"]
    assert {"none", "orders"} <= {name for names in named[:-1] for name in names}


def test_a_cluster_that_shows_no_broker_is_an_error_that_says_so(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a controller that has fenced all brokers: `mirror drift` ended with an IndexError."""
    described = FakeAdmin(cluster).describe_cluster()
    monkeypatch.setattr(FakeAdmin, "describe_cluster", lambda *_, **__: replace(described, brokers=()))
    with pytest.raises(KafkaError, match="cluster a shows no broker"):
        _ = observed(cluster).broker_settings


def test_a_topic_that_the_listing_does_not_have_says_why(cluster: FakeCluster) -> None:
    hidden = Action(errors={"orders": errors.TOPIC_AUTHORIZATION_FAILED})
    cluster.control.add(lambda call: hidden if call.api is Api.METADATA else None)
    side = observed(cluster)
    assert "orders" not in side.topics
    found = side.describe(["orders", "clicks", "none"])
    assert found.keys() == {"clicks"}
    assert isinstance(found.failed["orders"], AuthorizationFailed)


def test_another_observation_reads_anew(cluster: FakeCluster) -> None:
    sides = Sides(observed(cluster), observed(cluster))
    assert "new" not in sides.target.topics
    cluster.add_topic("new")
    assert "new" not in sides.target.topics
    assert "new" in sides.again().target.topics


def test_a_cluster_that_does_not_answer_is_waited_for_once_and_named(cluster: FakeCluster) -> None:
    for node in cluster.brokers:
        cluster.kill(node)
    side = observed(cluster, timeout_ms=1_000)
    began = cluster.clock.now()
    with pytest.raises(FlowError, match="cluster a does not answer: "):
        side.cluster  # noqa: B018 - a fact that is read
    waited = cluster.clock.now() - began
    with pytest.raises(FlowError, match="cluster a does not answer"):
        side.cluster  # noqa: B018 - a fact that is read
    assert cluster.clock.now() - began == waited


def test_what_is_refused_is_refused_to_each_view_without_another_request(cluster: FakeCluster) -> None:
    refused = Action(errors={"acls": errors.CLUSTER_AUTHORIZATION_FAILED})
    cluster.control.on(Api.DESCRIBE_ACLS, refused, times=None)
    side = observed(cluster)
    for _ in range(2):
        with pytest.raises(AuthorizationFailed):
            side.acls(ResourceType.TOPIC)
    assert len(cluster.calls(Api.DESCRIBE_ACLS)) == 1


def test_what_is_set_on_topics_is_kept_without_the_defaults(cluster: FakeCluster) -> None:
    """They are the same 32 values for each of thousands of topics."""
    cluster.topics["orders"].configs["retention.ms"] = "5"
    side = observed(cluster)
    for _ in range(2):
        assert side.own_configs(["orders", "clicks"]) == {"orders": {"retention.ms": "5"}, "clicks": {}}
    assert len(cluster.calls(Api.DESCRIBE_CONFIGS)) == 1
    assert not any(isinstance(one, ConfigEntry) for one in values_in(vars(side)))
    assert side.configs(["orders"])["orders"]["retention.ms"].value == "5", "they are read if a view needs them"


def values_in(one: object) -> Iterator[object]:
    yield one
    for each in one.values() if isinstance(one, Mapping) else ():
        yield from values_in(each)


def test_a_view_bounds_its_own_calls(cluster: FakeCluster) -> None:
    """What a status or a rehearsal asks for must not keep it for as long as what a copy depends on."""
    for node in cluster.brokers:
        cluster.kill(node)
    side = observed(cluster, timeout_ms=20_000)
    reads: list[Callable[[], object]] = [
        lambda: side.describe(["t"], 1_000),
        lambda: side.configs(["t"], 1_000),
        lambda: side.groups(1_000),
    ]
    for read in reads:
        began = cluster.clock.now()
        with contextlib.suppress(KafkaError):
            read()
        assert 0 < cluster.clock.now() - began <= 1_000
    began = cluster.clock.now()
    with pytest.raises(KafkaError):
        side.again().groups()
    assert cluster.clock.now() - began > 10_000, "the rounds about ACLs have their own bound"


_MAY_KEEP = re.compile(r"mirror\.observation|open_sides|clusters", re.IGNORECASE)
"""What a module contains whose classes :func:`keeps` may find."""
KEEPING = {"TopicPreparation"}
"""The classes that keep an observation: what they are made for ends with one preparation."""


def test_only_what_ends_with_one_command_or_round_keeps_an_observation() -> None:
    """A run that keeps one would meet its first error again for as long as it lives, and topics as they were then.

    It keeps :meth:`Sides.again`, or :meth:`Clusters.of`, which return new ones.
    """
    found = set[str]()
    for path in Path(mirror.__file__).parent.rglob("*.py"):
        text = path.read_text("utf-8")
        if not _MAY_KEEP.search(text):
            continue  # to parse all modules takes seconds
        nodes = [*ast.walk(ast.parse(text))]
        imported = (each for each in nodes if isinstance(each, ast.ImportFrom) and each.module == "mirror.observation")
        names = {each.asname or each.name for one in imported for each in one.names if each.name in {"Side", "Sides"}}
        found |= {each.name for each in nodes if isinstance(each, ast.ClassDef) and keeps(each, names)}
    assert found == KEEPING


def keeps(one: ast.ClassDef, names: set[str]) -> bool:
    """Whether a class has an observation (type ``names``) in a field, or stores one that it is given or opens."""

    def is_observation(annotation: ast.expr | None) -> bool:
        return isinstance(annotation, ast.Name | ast.BinOp) and not names.isdisjoint(ast.unparse(annotation).split())

    fields = (each.annotation for each in one.body if isinstance(each, ast.AnnAssign))
    if any(is_observation(each) for each in fields):
        return True
    for method in (each for each in one.body if isinstance(each, ast.FunctionDef)):
        given = {each.arg for each in (*method.args.args, *method.args.kwonlyargs) if is_observation(each.annotation)}
        for each in ast.walk(method):
            if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None:
                targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                to_self = any(ast.unparse(target).startswith("self.") for target in targets)
                stored = ast.unparse(each.value)
                is_given = re.fullmatch(r"(\w+)(\.source|\.target)?", stored)
                is_opened = re.search(r"(open_sides\(.*|clusters.*\.of\(\w+)\)$", stored, re.IGNORECASE)
                if to_self and ((is_given and is_given[1] in given) or is_opened):
                    return True
    return False
