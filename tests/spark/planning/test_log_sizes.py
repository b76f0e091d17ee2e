"""Sizes of records, from the brokers' log directories."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from mirror.client import LogDir, Outcomes, ReplicaLog, TopicPartition
from mirror.errors import AuthorizationFailed, KafkaError, KafkaTimeout
from mirror.observation import Side
from mirror.spark.planning.log_sizes import ASSUMED_RECORD_BYTES, RecordSizes, record_sizes
from mirror.spark.planning.range_planner import NO_LEADER, SourcePartition
from tests.spark.planning.test_packing import backlog

if TYPE_CHECKING:
    from mirror.client import Admin

T0 = TopicPartition("t", 0)


class Brokers:
    """Brokers with one log of ``t-0`` each."""

    def __init__(self, sizes: dict[int, ReplicaLog], failed: dict[int, KafkaError] | None = None) -> None:
        self.sizes = sizes
        self.failed = failed or {}

    def describe_log_dirs(self, *, partial: bool, timeout_ms: int) -> Outcomes[int, dict[str, LogDir]]:
        assert partial
        assert 0 < timeout_ms <= 10_000
        dirs = {
            node: {"/a": LogDir(None, None, None, {}), "/b": LogDir(None, None, None, {T0: log})}
            for node, log in self.sizes.items()
        }
        return Outcomes(dirs, self.failed)


def sizes(brokers: object, *, leader: int = 1, earliest: int = 50, end: int = 100) -> RecordSizes:
    one = SourcePartition(
        topic="t",
        target_topic="a.t",
        partition=0,
        topic_id="",
        leader=leader,
        earliest=earliest,
        end=end,
        first=earliest,
    )
    return record_sizes(Side("a", cast("Admin", brokers)), [one])


def log(size: int, *, future: bool = False) -> ReplicaLog:
    return ReplicaLog(size, 0, future)


def test_a_record_s_size_is_the_leader_s_log_over_its_records() -> None:
    assert sizes(Brokers({1: log(5000), 2: log(700)})) == RecordSizes({T0: 100.0})


@pytest.mark.parametrize(
    "found",
    [
        sizes(Brokers({1: log(0)})),
        sizes(Brokers({1: log(5000)}), end=50),
        sizes(Brokers({1: log(5000)}), leader=NO_LEADER),
        sizes(Brokers({2: log(5000)})),
        # It is being copied to another directory, and may be only half there.
        sizes(Brokers({1: log(5000, future=True)})),
    ],
)
def test_logs_without_information_give_no_size(found: RecordSizes) -> None:
    assert found == RecordSizes()


def test_a_broker_that_refuses_or_does_not_answer_is_not_fatal() -> None:
    refused = AuthorizationFailed("the permission Describe on the cluster is missing", 31)
    assert sizes(Brokers({1: log(5000)}, {2: refused})) == RecordSizes({T0: 100.0}, str(refused))

    class Silent:
        def describe_log_dirs(self, **_: object) -> None:
            raise KafkaTimeout("no answer within 10000 ms")

    assert sizes(Silent()) == RecordSizes({}, "no answer within 10000 ms")


def test_a_partition_without_a_size_has_the_others_average() -> None:
    ranges = [backlog(0, 10), backlog(1, 20)]
    tps = [TopicPartition("t", each.partition) for each in ranges]
    assert RecordSizes({tps[0]: 3.0}).bytes_of(ranges) == {tps[0]: 30, tps[1]: 60}
    assert RecordSizes().bytes_of(ranges) == {
        tps[0]: 10 * ASSUMED_RECORD_BYTES,
        tps[1]: 20 * ASSUMED_RECORD_BYTES,
    }
