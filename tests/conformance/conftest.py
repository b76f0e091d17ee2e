"""Real brokers that these tests pause and kill, and a proxy before them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mirror.client import Consumer
from mirror.sandbox import cluster as sandbox
from mirror.sandbox.cluster import Cluster
from mirror.sandbox.node import settings
from tests import jvm
from tests.conformance.raw_brokers import FakeWire, RealWire, Wire
from tests.conformance.topics import Topics
from tests.fakes.cluster import FakeCluster
from tests.faults.proxy import Proxy
from tests.stalls import Stalls

NewConsumer = Callable[..., Consumer]
_OFTEN = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "producer.id.expiration.check.interval.ms": "200",
}
QUICK_DEATH = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave version 1 of real brokers to ``make cluster``, but for the widest comparison of them with the fake."""
    for item in items:
        in_suite = item.path.name == "test_fake_transactions.py" or item.path.parent != Path(__file__).parent
        if "real_v1" in item.nodeid.rpartition("[")[2] and not in_suite:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture
def all_stalls() -> Iterator[Stalls]:
    """What this process was kept from running, in any of its threads: for what a client and a proxy do in turns."""
    with Stalls(all_threads=True) as watched:
        yield watched


@pytest.fixture(scope="session")
def broker() -> Iterator[Cluster]:
    """One broker, paused and resumed by the tests; a test that pauses it resumes it."""
    with Cluster(heap=jvm.BROKER) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def trio() -> Iterator[Cluster]:
    """Three brokers in racks r1 to r3; a test that kills one restarts it."""

    def with_rack(node: Any, **more: Any) -> dict[str, str]:
        return {**settings(node, **more), "broker.rack": f"r{node.node_id}"}

    properties = {
        **QUICK_DEATH,
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "auto.leader.rebalance.enable": "false",
        "min.insync.replicas": "1",
    }
    cluster = Cluster(3, properties=properties, heap=jvm.BROKER)
    try:
        with pytest.MonkeyPatch.context() as patch:
            # The sandbox gives all brokers the same properties, and a rack is each one's own.
            patch.setattr(sandbox, "settings", with_rack)
            cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _leveled(level: int) -> Iterator[Cluster]:
    with Cluster(properties=_OFTEN, features={"transaction.version": level}, heap=jvm.BROKER) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def version_1() -> Iterator[Cluster]:
    """One broker at ``transaction.version`` 1 that checks often which transactions and producer ids have expired.

    Do it no harm.
    """
    yield from _leveled(1)


@pytest.fixture(scope="session")
def version_2() -> Iterator[Cluster]:
    """The same at ``transaction.version`` 2, which is what the release chooses by itself."""
    yield from _leveled(2)


# The suite has version 1 in test_fake_transactions.py, in test_producer_backoff.py for what version 2 lacks, and
# as an old release has it in tests/releases/test_formats.py.
@pytest.fixture(params=[pytest.param("version_1", marks=pytest.mark.cluster), "version_2"])
def leveled(request: pytest.FixtureRequest) -> Cluster:
    """One broker, by its level of ``transaction.version``."""
    cluster: Cluster = request.getfixturevalue(request.param)
    return cluster


@pytest.fixture
def leveled_proxy(leveled: Cluster) -> Iterator[Proxy]:
    """Before that one."""
    with Proxy(leveled.bootstrap_servers) as proxy:
        yield proxy


@pytest.fixture
def proxy(broker: Cluster) -> Iterator[Proxy]:
    """Before the one broker."""
    with Proxy(broker.bootstrap_servers) as proxy:
        yield proxy


@pytest.fixture
def proxies(trio: Cluster) -> Iterator[Proxy]:
    """Before the three brokers."""
    with Proxy(trio.bootstrap_servers) as proxy:
        yield proxy


@pytest.fixture
def topics(broker: Cluster, unique: Callable[[str], str]) -> Topics:
    """Makes and fills topics at the one broker, past the proxy."""
    return Topics(broker.bootstrap_servers, unique)


@pytest.fixture
def trio_topics(trio: Cluster, unique: Callable[[str], str]) -> Topics:
    """The same at the three brokers."""
    return Topics(trio.bootstrap_servers, unique)


@pytest.fixture
def new_consumer() -> Iterator[NewConsumer]:
    """``new_consumer("host:port", **{dotted keys})``; closed at the end without waiting."""
    consumers: list[Consumer] = []

    def make(bootstrap_servers: str, **options: object) -> Consumer:
        consumer = Consumer({"bootstrap.servers": bootstrap_servers, "auto.offset.reset": "earliest", **options})
        consumers.append(consumer)
        return consumer

    yield make
    for consumer in consumers:
        consumer.close(timeout_ms=0)


@pytest.fixture(
    params=["fake_v1", "fake_v2", *(pytest.param(name, marks=pytest.mark.brokers) for name in ("real_v1", "real_v2"))]
)
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    """A connection to the one broker of each kind, which checks often which producer ids have expired."""
    kind, level = request.param.split("_v")
    if kind == "fake":
        cluster = FakeCluster()
        cluster.features["transaction.version"] = int(level)
        cluster.admin.broker_configs[""] = dict(_OFTEN)
        yield FakeWire(cluster)
        return
    with closing(RealWire(request.getfixturevalue(f"version_{level}").bootstrap_servers, int(level))) as real:
        yield real
