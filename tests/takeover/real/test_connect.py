"""Taking over from MirrorMaker 2's source connector in Kafka Connect, whose worker goes on; and handing back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mirror.sandbox.cluster import Cluster
from tests.e2e.connect_worker import START_S
from tests.polling import eventually
from tests.takeover.real.connect import ConnectSite
from tests.takeover.real.rounds import Kill, Rounds

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.timeout(900)]


@pytest.fixture
def connect(
    request: pytest.FixtureRequest,
    source_cluster: Cluster,
    target_cluster: Cluster,
    tmp_path: Path,
    unique: Callable[[str], str],
) -> Iterator[ConnectSite]:
    found = ConnectSite(source_cluster, target_cluster, tmp_path, unique, exactly_once=request.param)
    try:
        yield found
    finally:
        found.close()


@pytest.mark.parametrize("connect", [False, True], ids=["plain", "exactly-once"], indirect=True)
def test_connector_is_taken_over_and_continues_after_it_is_handed_back(connect: ConnectSite) -> None:
    """First it is stopped, and the worker goes on; then the worker is killed."""
    rounds = Rounds(connect)
    assert rounds.take_over(kills=[]).doubled == 0
    rounds.hand_back()
    rounds.take_over(kills=[Kill(0.5)])
    rounds.hand_back()
    rounds.go_on()


@pytest.mark.parametrize("connect", [False], ids=["plain"], indirect=True)
def test_connector_that_is_idle_is_refused_by_its_state(connect: ConnectSite) -> None:
    """Nothing is written, so that its state in Connect's status topic alone shows that it runs."""
    connect.source.fill(connect.plain, [b"%d" % number for number in range(100)])
    with connect.mirrormaker():
        connect.await_copied(connect.logs, 100)
        eventually(lambda: connect.stored() >= 1, within_s=START_S, what="stored positions", every_s=0.2)
        refused = connect.invoke()
        assert refused.exit_code == 1
        assert f"copy {connect.flow} is RUNNING on worker 127.0.0.1:" in refused.output
        assert f"according to topic workers-{connect.flow}-status" in refused.output
    assert connect.takeover()["complete"]
