"""The registries of two clusters in memory: begun, and refused where they would not keep what they are for."""

from __future__ import annotations

import pytest

from mirror.errors import FlowError
from mirror.relay.origin.records import REGISTRY_TOPIC, LogKey
from mirror.relay.origin.registry import prepare_registries, read_registry, registry_topic
from tests.fakes.cluster import FakeCluster
from tests.relay.fake_pair import FLOW, FakePair


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> FakePair:
    return FakePair(monkeypatch)


def _options(cluster: FakeCluster) -> dict[str, object]:
    return {"bootstrap.servers": cluster.bootstrap}


def _add_registry(cluster: FakeCluster, policy: str) -> None:
    cluster.add_topic(REGISTRY_TOPIC).configs["cleanup.policy"] = policy


def _prepare(pair: FakePair) -> None:
    prepare_registries(FLOW, _options(pair.source), _options(pair.target), only_local=True)


def test_a_registry_begins_with_the_ends_of_all_logs_and_the_one_of_the_source_is_kept(pair: FakePair) -> None:
    for cluster in (pair.source, pair.target):
        _add_registry(cluster, "compact")
    pair.write(b"1", b"2")
    _prepare(pair)
    pair.write(b"3")
    _prepare(pair)
    source, target = (read_registry(registry_topic(_options(side)), 10_000) for side in (pair.source, pair.target))
    assert source.log_ends == {LogKey(str(pair.source.topics["t"].topic_id), 0): 2}
    assert source.has_begun
    assert target.has_begun
    assert target.sources[FLOW].topic_id == str(pair.source.topics[REGISTRY_TOPIC].topic_id)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("policy", [None, "delete", "compact,delete"])
def test_a_registry_that_is_missing_or_deletes_its_records_is_refused(
    pair: FakePair, side: str, policy: str | None
) -> None:
    other = pair.target if side == "source" else pair.source
    _add_registry(other, "compact")
    if policy is not None:
        _add_registry(pair.source if side == "source" else pair.target, policy)
    expected = "does not exist" if policy is None else f"has cleanup.policy = {policy}: "
    with pytest.raises(FlowError, match=f"{REGISTRY_TOPIC} of the {side} {expected}"):
        _prepare(pair)
