"""Executors and drivers on hosts that share neither disk nor user: what is shipped must be enough, and hosts get lost.

`make cluster` runs these; tests.e2e.hosts says what they need of the machine. After each loss what the target has is
what the source has, record by record, read by another client.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest

from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.e2e.broker_side import Side
from tests.e2e.copied_topic import WITHIN_S, CopiedTopic
from tests.e2e.feed import Feed
from tests.e2e.hosts import Host
from tests.e2e.site import Run, Site, flow
from tests.e2e.spark_hosts import DRIVERS, LOG, SparkHosts, pack, spark_hosts
from tests.e2e.test_on_a_cluster import SHORT, cores
from tests.polling import eventually
from tests.relay.batches.test_readme_transform import example

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

LISTENER = "HOSTS"
"""Of the brokers, which otherwise listen on this process's loopback interface only."""
USER, PASSWORD = "mirror", "a-hosts-own-copy"
SECRETS = "/run/secrets"
SECRET = "clusters__b__sasl_password"
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": USER}
"""How the hosts log in to the target: the rest is in their secrets."""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkHosts]:
    """The cluster; all tests of this module share it, and find two workers."""
    pack()
    with spark_hosts(tmp_path_factory.mktemp("hosts"), {f"{SECRETS}/{SECRET}": PASSWORD}) as made:
        yield made


@pytest.fixture(scope="module")
def brokers(hosts: SparkHosts) -> Iterator[tuple[Cluster, Cluster]]:
    """The source and the target, which listen on the hosts' network, too; there the target wants a password."""
    address, own = hosts.network.address, f"listener.name.{LISTENER.lower()}"
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    properties = {f"{own}.sasl.enabled.mechanisms": "PLAIN", f"{own}.plain.sasl.jaas.config": login}
    source = Cluster(listeners={LISTENER: "PLAINTEXT"}, address=address, heap=jvm.BROKER)
    target = Cluster(
        listeners={LISTENER: SASL["security.protocol"]}, properties=properties, address=address, heap=jvm.BROKER
    )
    with source, target:
        yield source, target


@pytest.fixture
def drivers(hosts: SparkHosts) -> Iterator[tuple[Host, Host]]:
    """Two hosts to submit from, which a test may lose."""
    first, second = map(hosts.add_driver, DRIVERS)
    yield first, second
    first.kill()
    second.kill()


@dataclass
class FlowOnHosts(CopiedTopic):
    """Such a flow, submitted from hosts."""

    site: Site
    hosts: SparkHosts

    def start(
        self, driver: Host, job: str, *arguments: str, secrets: str = SECRETS, settings: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Submit jobs/``job`` on ``driver``, the only host with the configuration; Spark ships that."""
        driver.write("mirror.toml", self.site.config.read_text(encoding="utf-8"))
        driver.write(f"{secrets}/{SECRET}", PASSWORD)
        words = ["--secrets-dir", secrets, *arguments]
        return self.site.launch(self.hosts.submit(driver, job, *words, settings={**cores(2), **(settings or {})}))

    def ask(self, host: Host, command: str, *arguments: str) -> Run:
        """Run another command of the mirror on ``host``."""
        words = ["environment/bin/python", "-P", "-m", "mirror.cli", command, "--config", "mirror.toml"]
        return self.site.finish(self.site.launch(host.command(*words, "--secrets-dir", SECRETS, *arguments)))


@pytest.fixture
def one(site: Site, hosts: SparkHosts, brokers: tuple[Cluster, Cluster], unique: Callable[[str], str]) -> FlowOnHosts:
    """A flow of a new topic of four partitions, with a configuration for streams."""
    source, target = (Side(each.bootstrap_servers) for each in brokers)
    made = FlowOnHosts(source, target, unique("orders"), 4, site, hosts)
    source.create(made.topic, made.partitions)
    addresses = {name: each.bootstrap(LISTENER) for name, each in zip("ab", brokers, strict=True)}
    site.write(addresses, {"f": flow("a", "b", [made.topic], SHORT)}, b=SASL)
    return made


def test_a_run_has_all_that_it_needs_from_what_is_shipped_and_from_each_hosts_own_secrets(
    one: FlowOnHosts, drivers: tuple[Host, Host]
) -> None:
    driver, (module, text, transform) = drivers[0], example()
    for partition in range(one.partitions):
        one.source.fill(one.topic, (b"card 4711 of %d" % number for number in range(1_000)), partition)
    config = one.site.config.read_text(encoding="utf-8")
    one.site.config.write_text(config.replace(SHORT, f'transform = "{transform}"'), encoding="utf-8")
    driver.write(f"{module}.py", text)
    shipped = {"spark.submit.pyFiles": f"{module}.py"}

    elsewhere = "/run/secrets-of-the-driver"
    run = one.site.finish(one.start(driver, "replicate", "--json", secrets=elsewhere, settings=shipped))
    assert run.status == 3, (driver.home / LOG).read_text(encoding="utf-8")
    (reported,) = json.loads(run.out)["flows"]
    assert {each["records"] for each in reported["partitions"]} == {0}
    assert all(elsewhere in each["error"] for each in reported["partitions"]), "no secret is shipped"

    run = one.site.finish(one.start(driver, "replicate", "--json", settings=shipped))
    assert run.status == 0, (driver.home / LOG).read_text(encoding="utf-8")
    (reported,) = json.loads(run.out)["flows"]
    assert reported["outcome"] == "complete"
    for partition in range(one.partitions):
        expected = [b"card **** of %d" % number for number in range(1_000)]
        assert one.target.read(f"a.{one.topic}", partition) == expected


def test_a_stream_outlives_the_loss_of_a_workers_host_and_of_its_drivers_host(
    one: FlowOnHosts, hosts: SparkHosts, drivers: tuple[Host, Host]
) -> None:
    here, elsewhere = drivers
    with Feed(one.source, one.topic, one.partitions, 200) as feed:
        first = one.start(here, "stream")
        one.await_progress([100] * one.partitions, first, "the first records")
        assert sorted(hosts.executors()) == ["worker1", "worker2"]
        hosts.lose("worker1")
        one.await_progress(at_loss := feed.ends(), first, "what the lost worker had")
        one.agree(at_loss)
        hosts.add_workers("worker3")
        eventually(lambda: "worker3" in hosts.executors(), within_s=WITHIN_S, what="an executor on the new host")
        one.await_progress(feed.ends(), first, "what comes with the new worker")

        here.kill()
        assert one.site.finish(first).status != 0
        again = one.start(elsewhere, "stream")
        one.await_progress(at_loss := feed.ends(), again, "what the lost driver had")
        one.agree(at_loss)
        shown = one.ask(elsewhere, "status", "--json")
        assert shown.status == 0, shown.err
        (status,) = json.loads(shown.out)["flows"]
        assert (status["run"]["host"], status["run"]["gone"]) == (elsewhere.name, False)
        assert sum(each["progress"] for each in status["partitions"]) >= sum(at_loss)
        one.await_progress(feed.end(), again, "the rest")
    stopped = one.ask(elsewhere, "stop")
    assert (stopped.status, stopped.errors) == (0, [])
    assert one.site.finish(again).status == 0, (elsewhere.home / LOG).read_text(encoding="utf-8")
    verdict = one.equal()
    assert verdict.equal, verdict.difference
    assert verdict.records == sum(feed.ends())
