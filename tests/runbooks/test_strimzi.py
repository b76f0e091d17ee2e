"""The runbook of MirrorMaker 2 on Strimzi: real connectors in a worker of Kafka Connect, and a stand-in for kubectl."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import NewCluster
from tests.copying.group_site import commit
from tests.copying.pair import End
from tests.e2e.connect_worker import START_S
from tests.polling import eventually
from tests.runbooks.page import STRIMZI, Reader, environment
from tests.runbooks.strimzi import strimzi

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]
VALUES = [b"%d" % number for number in range(300)]


def test_the_flow_leaves_strimzi_and_can_return_by_the_commands_of_the_page(
    tmp_path: Path, new_cluster: NewCluster
) -> None:
    paris, berlin = (End(new_cluster().bootstrap_servers) for _ in range(2))

    def copied(count: int) -> None:
        eventually(
            lambda: "paris.orders" in berlin.topics() and len(berlin.read("paris.orders")) >= count,
            within_s=START_S,
            what=f"{count} records on the target",
            every_s=0.5,
        )

    for topic in ("orders", "clicks"):
        paris.create(topic)
        paris.fill(topic, VALUES[:200])
    commit(paris, "billing", "orders", 137)
    folder = tmp_path / "reader"
    folder.mkdir()
    with strimzi(tmp_path, paris.address, berlin.address) as programs:
        copied(200)
        reader = Reader(STRIMZI, folder, {}, environment(programs))
        for beginning in ("kubectl get", "mirror lint", "mirror import", "mirror plan", "mirror takeover"):
            reader.type(beginning)
        for beginning in ("kubectl patch", "kubectl get", "mirror takeover"):
            reader.type(beginning)
        paris.fill("orders", VALUES[200:250])
        for beginning in ("mirror run", "mirror verify", "mirror takeover", "kubectl patch"):
            reader.type(beginning)
        paris.fill("orders", VALUES[250:])
        copied(300)
    assert reader.is_done
    assert berlin.read("paris.orders") == VALUES
    assert berlin.read("paris.clicks") == VALUES[:200]
