"""Flows in both directions between two clusters, under the same topic names: each record once on each side."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from mirror.config.models import ClusterConfig, FlowConfig, MirrorConfig
from mirror.errors import FlowError
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.origin.records import REGISTRY_TOPIC, LogKey, SourceRegistry, log_end_records, source_record
from mirror.relay.origin.registry import write_records
from mirror.relay.progress import stored_json as stored
from mirror.sandbox.cluster import Cluster
from mirror.spark.clusters import open_sides
from mirror.spark.preflight.dry_run import Action, FlowForecast, forecast
from tests.campaign.kills.attempt import AttemptOrder
from tests.campaign.kills.attempt_process import AttemptProcess
from tests.copying.both_ways import LOCAL, WAYS, BothWays, now_ms, write_idempotent, write_plain, write_transactional
from tests.copying.pair import End, TwoClusters
from tests.copying.site import name

pytestmark = pytest.mark.brokers


@pytest.fixture(scope="module")
def both(uneasy_cluster: Cluster, target_cluster: Cluster) -> BothWays:
    return BothWays(uneasy_cluster, target_cluster)


@pytest.mark.parametrize(
    "way",
    ["sequences", *(pytest.param(way, marks=pytest.mark.cluster) for way in ("transactions", "at least once"))],
)
def test_each_record_is_on_each_side_once_and_none_comes_back(both: BothWays, way: str) -> None:
    topic = both.topics()
    producers: dict[bytes, Callable[[End, str, list[bytes]], None]]
    producers = {b"plain": write_plain, b"idempotent": write_idempotent, b"transactional": write_transactional}
    written: dict[bytes, list[bytes]] = {}
    left_out = Counter[str]()
    for number in range(3):
        for side, cluster in ((both.there.source, b"a"), (both.there.target, b"b")):
            for kind, write in producers.items():
                producer = b"%s %s " % (cluster, kind)
                values = [b"%s %d" % (producer, number * 100 + each) for each in range(100)]
                write(side, topic, values)
                written.setdefault(producer, []).extend(values)
        results = both.copy(topic, **WAYS[way])
        assert [result.records for result in results] == [300, 300]
        left_out += _left_out(results)
    left_out += _left_out(both.copy(topic, **WAYS[way]))
    assert left_out == {both.there.flow: 900, both.back.flow: 900}, "the reported counts are exact"
    for side in (both.there.source, both.there.target):
        found = [value or b"" for value in side.read(topic)]
        assert len(found) == 1_800
        for producer, values in written.items():
            own = [value for value in found if value.startswith(producer)]
            assert own == values, f"the order of {producer!r} is kept"


def _left_out(results: list[RangeResult]) -> Counter[str]:
    return Counter({result.flow: result.skipped.get("not-local", 0) for result in results})


def test_killed_attempts_bring_nothing_back(both: BothWays) -> None:
    """One direction is copied by sequences, the other one in transactions; both are killed with batches in the log."""
    topic, written = both.topics(), list[bytes]()
    ways = ((both.there, WAYS["sequences"]), (both.back, WAYS["transactions"]))
    for number in range(2):
        for side, name_of in ((both.there.source, b"a"), (both.there.target, b"b")):
            for write in (write_plain, write_idempotent, write_transactional):
                values = [b"%s %d %s %d" % (name_of, number, write.__name__.encode(), each) for each in range(50)]
                write(side, topic, values)
                written += values
        with ExitStack() as stack:
            attempts = [stack.enter_context(_held(pair, topic, **way)) for pair, way in ways]
            assert all(attempt.await_held() for attempt in attempts)
    for pair, way in ways * 2:  # the second time, what the other direction has copied is passed
        pair.complete(topic, **LOCAL, **way)
    for side in (both.there.source, both.there.target):
        assert sorted(value or b"" for value in side.read(topic)) == sorted(written)


def _held(pair: TwoClusters, topic: str, **way: Any) -> AttemptProcess:
    """Start an attempt, which waits once a batch is in the target's log."""
    order = AttemptOrder(
        source={"bootstrap.servers": pair.source.address},
        target={"bootstrap.servers": pair.target.address},
        ranges=pair.ranges(topic),
        policy=CopyPolicy(**LOCAL, **way),
        hold=("acked", 1),
    )
    return AttemptProcess(order)


def test_producer_ids_are_registered_before_the_first_batch(both: BothWays) -> None:
    topic = both.topics()
    write_plain(both.there.source, topic, [b"x"])
    both.copy(topic)
    (batch,) = both.there.target.batches(topic)
    keys = [record.key for record in both.there.target.records(REGISTRY_TOPIC)]
    assert b'{"producer":%d}' % batch.producer_id in keys


def test_another_registry_than_before_stops_a_flow(both: BothWays) -> None:
    topic, pair = both.topics(), TwoClusters(both.a, both.b, name, name("a-b"))
    write_plain(pair.source, topic, [b"x"])
    replaced = SourceRegistry(pair.cluster_id, str(uuid.uuid4()))
    write_records(both.registry_of(pair.target), [source_record(pair.flow, replaced)], 30_000)
    with pytest.raises(FlowError, match=f"origin-unknown: .* has another id .*{replaced.topic_id}"):
        both.prepare(pair)
    pair.own_topics()
    (result,) = pair.copy(topic, **LOCAL)
    assert result.outcome is Outcome.FAILED
    assert "origin-unknown" in str(result.error)
    assert pair.target.end(topic) == 0


@pytest.mark.parametrize(("origin_from", "copied"), [("earliest", 3), ("registry", 1), ("", None)])
def test_records_from_before_the_registry_are_copied_or_left_out_as_the_flow_says(
    both: BothWays, origin_from: str, copied: int | None
) -> None:
    topic, pair = both.topics(), both.there
    write_plain(pair.source, topic, [b"1", b"2"])
    (range_,) = pair.ranges(topic)
    keys = [stored.parse_object(record.key) for record in pair.source.records(REGISTRY_TOPIC)]
    beginning = next(str(key["beginning"]) for key in keys if "beginning" in key)
    log_ends = log_end_records(beginning, {LogKey(range_.topic_id, 0): 2})
    write_records(both.registry_of(pair.source), log_ends, 30_000)
    write_plain(pair.source, topic, [b"3"])
    (planned,) = _forecast(pair, topic, origin_from).partitions
    assert planned.action is (Action.FAIL if copied is None else Action.COPY)
    (result,) = pair.copy(topic, **LOCAL, origin_from=origin_from)
    if copied is None:
        assert result.outcome is Outcome.FAILED
        assert "offsets below 2" in str(result.error)
        assert "set origin-from" in str(result.error)
        assert planned.error == result.error, "mirror plan says it beforehand"
    else:
        assert (result.outcome, result.records) == (Outcome.COMPLETE, copied), result.error
        assert [record.value for record in pair.target.records(topic)] == [b"1", b"2", b"3"][-copied:]


def _forecast(pair: TwoClusters, topic: str, origin_from: str) -> FlowForecast:
    clusters = {
        side: ClusterConfig(name=side, options={"bootstrap.servers": end.address})
        for side, end in (("a", pair.source), ("b", pair.target))
    }
    given = {"name": pair.flow, "source": "a", "target": "b", "topics": [topic], "naming": "identity"}
    flow = FlowConfig.model_validate({**given, "origin": "local", "origin_from": origin_from})
    config = MirrorConfig(clusters=clusters, flows={flow.name: flow})
    with open_sides(config, flow) as sides:
        return forecast(config, flow, sides, wall_ms=now_ms())
