"""Flows in both directions between two clusters, under the same topic names: each record once on each side."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from mirror.config.models import ClusterConfig, FlowConfig, MirrorConfig
from mirror.errors import FlowError
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.origin.records import REGISTRY_TOPIC, LogKey, SourceRegistry, log_end_records, source_record
from mirror.relay.origin.registry import prepare_registries, registry_topic, write_records
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress.flow_topic import FlowTopic
from mirror.sandbox.cluster import Cluster
from mirror.spark.preflight.dry_run import Action, FlowForecast, forecast
from tests.campaign.kills.attempt import AttemptOrder
from tests.campaign.kills.attempt_process import AttemptProcess
from tests.copying.pair import End, TwoClusters
from tests.copying.site import name

pytestmark = pytest.mark.brokers

LOCAL: Final[dict[str, Any]] = {"only_local": True, "registers_producers": True}
WAYS: Final[dict[str, dict[str, Any]]] = {
    "sequences": {"exactly_once_by": "sequences"},
    "transactions": {"exactly_once_by": "transactions"},
    "at least once": {"exactly_once": False},
}


class BothWays:
    """A flow from each of two clusters to the other."""

    def __init__(self, a: Cluster, b: Cluster) -> None:
        self.a: Final = a
        self.b: Final = b
        self.there: Final = TwoClusters(a, b, name, name("a-b"))
        self.back: Final = TwoClusters(b, a, name, name("b-a"))
        for side in (self.there.source, self.there.target):
            if REGISTRY_TOPIC not in side.topics():
                side.create(REGISTRY_TOPIC, cleanup_policy="compact")
        self.prepare(self.there)
        self.prepare(self.back)

    @staticmethod
    def prepare(pair: TwoClusters) -> None:
        options = ({"bootstrap.servers": side.address} for side in (pair.source, pair.target))
        prepare_registries(pair.flow, *options, only_local=True)

    @staticmethod
    def registry_of(side: End) -> FlowTopic:
        return registry_topic({"bootstrap.servers": side.address})

    def topics(self) -> str:
        topic = self.there.topics()
        self.back.own_topics()
        return topic

    def copy(self, topic: str, **policy: Any) -> list[RangeResult]:
        results = [*self.there.copy(topic, **LOCAL, **policy), *self.back.copy(topic, **LOCAL, **policy)]
        for result in results:
            assert result.outcome is Outcome.COMPLETE, (result.outcome, result.error)
        return results


@pytest.fixture(scope="module")
def both(uneasy_cluster: Cluster, target_cluster: Cluster) -> BothWays:
    return BothWays(uneasy_cluster, target_cluster)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _plain(side: End, topic: str, values: list[bytes]) -> None:
    side.fill(topic, values, first_ms=_now_ms(), enable_idempotence=False)


def _idempotent(side: End, topic: str, values: list[bytes]) -> None:
    side.fill(topic, values, first_ms=_now_ms())


def _transactional(side: End, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": side.address, "transactional.id": name("local")})
    producer.init_transactions(10)
    for commits in (True, False):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value if commits else b"aborted", partition=0)
        (producer.commit_transaction if commits else producer.abort_transaction)(10)


@pytest.mark.parametrize("way", WAYS)
def test_each_record_is_on_each_side_once_and_none_comes_back(both: BothWays, way: str) -> None:
    topic = both.topics()
    producers: dict[bytes, Callable[[End, str, list[bytes]], None]]
    producers = {b"plain": _plain, b"idempotent": _idempotent, b"transactional": _transactional}
    written: dict[bytes, list[bytes]] = {}
    for number in range(3):
        for side, cluster in ((both.there.source, b"a"), (both.there.target, b"b")):
            for kind, write in producers.items():
                producer = b"%s %s " % (cluster, kind)
                values = [b"%s %d" % (producer, number * 100 + each) for each in range(100)]
                write(side, topic, values)
                written.setdefault(producer, []).extend(values)
        results = both.copy(topic, **WAYS[way])
        assert [result.records for result in results] == [300, 300]
    assert sum(result.skipped.get("not-local", 0) for result in both.copy(topic, **WAYS[way])) > 0
    for side in (both.there.source, both.there.target):
        found = [value or b"" for value in side.read(topic)]
        assert len(found) == 1_800
        for producer, values in written.items():
            own = [value for value in found if value.startswith(producer)]
            assert own == values, f"the order of {producer!r} is kept"


def test_killed_attempts_bring_nothing_back(both: BothWays) -> None:
    """One direction is copied by sequences, the other one in transactions; both are killed with batches in the log."""
    topic, written = both.topics(), list[bytes]()
    ways = ((both.there, WAYS["sequences"]), (both.back, WAYS["transactions"]))
    for number in range(2):
        for side, name_of in ((both.there.source, b"a"), (both.there.target, b"b")):
            for write in (_plain, _idempotent, _transactional):
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
    _plain(both.there.source, topic, [b"x"])
    both.copy(topic)
    (batch,) = both.there.target.batches(topic)
    keys = [record.key for record in both.there.target.records(REGISTRY_TOPIC)]
    assert b'{"producer":%d}' % batch.producer_id in keys


def test_another_registry_than_before_stops_a_flow(both: BothWays) -> None:
    topic, pair = both.topics(), TwoClusters(both.a, both.b, name, name("a-b"))
    _plain(pair.source, topic, [b"x"])
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
    both: BothWays, tmp_path: Path, origin_from: str, copied: int | None
) -> None:
    topic, pair = both.topics(), both.there
    _plain(pair.source, topic, [b"1", b"2"])
    (range_,) = pair.ranges(topic)
    keys = [stored.parse_object(record.key) for record in pair.source.records(REGISTRY_TOPIC)]
    beginning = next(str(key["beginning"]) for key in keys if "beginning" in key)
    log_ends = log_end_records(beginning, {LogKey(range_.topic_id, 0): 2})
    write_records(both.registry_of(pair.source), log_ends, 30_000)
    _plain(pair.source, topic, [b"3"])
    (planned,) = _forecast(pair, topic, origin_from, tmp_path).partitions
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


def _forecast(pair: TwoClusters, topic: str, origin_from: str, folder: Path) -> FlowForecast:
    clusters = {
        side: ClusterConfig(name=side, options={"bootstrap.servers": end.address})
        for side, end in (("a", pair.source), ("b", pair.target))
    }
    given = {"name": pair.flow, "source": "a", "target": "b", "topics": [topic], "naming": "identity"}
    flow = FlowConfig.model_validate({**given, "origin": "local", "origin_from": origin_from})
    config = MirrorConfig(clusters=clusters, flows={flow.name: flow})
    return forecast(config, flow, wall_ms=_now_ms(), ledger=folder / "ledger" / flow.name)
