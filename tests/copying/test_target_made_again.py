"""A target topic that is deleted and recreated between two runs, on real brokers."""

from __future__ import annotations

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.relay.model.way import Way
from mirror.sandbox.cluster import Cluster
from tests.copying.forgetful import Copying
from tests.copying.pair import End
from tests.polling import eventually

pytestmark = [pytest.mark.brokers, pytest.mark.timeout(240)]

CLUSTER = pytest.mark.cluster
EXACTLY, AT_LEAST = pytest.param(True, id="exactly once"), pytest.param(False, id="at least once")


@pytest.fixture
def copying(request: pytest.FixtureRequest, source_cluster: Cluster, target_cluster: Cluster) -> Copying:
    copying = Copying(
        End(source_cluster.bootstrap_servers), End(target_cluster.bootstrap_servers), exactly_once=request.param
    )
    copying.write()
    copying.copied()
    copying.write()
    copying.copied()
    return copying


def _recreate(copying: Copying) -> None:
    copying.target.delete(copying.target_topic)
    eventually(lambda: copying.target_topic not in copying.target.topics(), what="the deletion of the target topic")
    copying.target.create(copying.target_topic)
    eventually(lambda: copying.committed() < 0, what="the deletion of its progress")


@pytest.mark.parametrize("copying", [EXACTLY, pytest.param(False, id="at least once", marks=CLUSTER)], indirect=True)
def test_recreated_topic_is_named_never_resumed_on_the_target(copying: Copying) -> None:
    _recreate(copying)
    copying.write()
    result = copying.copy()
    assert (result.outcome, result.records) == (Outcome.FAILED, 0)
    assert str(result.error).startswith(f"target-recreated: target topic {copying.target_topic} was deleted")
    assert copying.found() == []
    result = copying.copy(start_over=True)
    assert (result.outcome, result.records) == (Outcome.COMPLETE, len(copying.values)), result.error
    copying.write()
    copying.copied()
    assert copying.found() == copying.values


@pytest.mark.cluster
@pytest.mark.parametrize("by", list(Way))
def test_recreated_topic_is_copied_from_the_start_if_the_flow_says_so(
    by: Way, source_cluster: Cluster, target_cluster: Cluster
) -> None:
    """Without start-over, which would also hide lost records."""
    copying = Copying(End(source_cluster.bootstrap_servers), End(target_cluster.bootstrap_servers), by=by)
    copying.write()
    copying.copied()
    end = copying.target.end(copying.target_topic)
    _recreate(copying)
    copying.write()
    assert str(copying.copy().error).startswith("target-recreated: ")
    result = copying.copy(on_target_recreated="start-over")
    assert (result.outcome, result.start, result.records) == (Outcome.COMPLETE, 0, len(copying.values)), result.error
    (loss,) = result.target_losses
    assert (loss["kind"], loss["target_end"], loss["start"], loss["end"]) == ("recreated", end, 0, 50)
    assert copying.found() == copying.values
    copying.write()
    result = copying.copy(on_target_recreated="start-over")
    assert (result.outcome, result.records, result.target_losses) == (Outcome.COMPLETE, 50, []), result.error
    assert copying.found() == copying.values


@pytest.mark.parametrize("copying", [pytest.param(True, id="exactly once", marks=CLUSTER), AT_LEAST], indirect=True)
def test_records_deleted_from_the_target_are_not_a_loss(copying: Copying) -> None:
    assert isinstance(copying.target, End)
    copying.target.delete_records(copying.target_topic, copying.target.end(copying.target_topic))
    copying.write()
    copying.copied()
    assert copying.found() == copying.values[-50:]
