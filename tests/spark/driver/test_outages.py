"""One line when a cluster goes away, fewer and fewer while it is away, and one when it is back."""

from __future__ import annotations

import pytest

from mirror.errors import BrokerError, ConnectionFailed, KafkaError, KafkaTimeout
from mirror.spark.driver.rounds.outages import ClusterOutages, Outages

GROUPS, CONFIGS = "consumer groups", "topics and configurations"
ADDRESSES = {"a": "a1:9092,a2:9092", "b": "b1:9092"}


class Flow:
    """What a flow prints, with a clock."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.printed: list[str] = []
        self.shared = ClusterOutages(self.printed.append, self.printed.append, lambda: self.now_s)
        self.outages = Outages(self.shared, "f", ADDRESSES)

    def of(self, flow: str, **addresses: str) -> Outages:
        return Outages(self.shared, flow, addresses)

    def fail(self, subject: str, error: KafkaError) -> bool:
        return self.outages.failed(subject, error)


def away(address: str = "b1:9092") -> ConnectionFailed:
    return ConnectionFailed(f"bootstrap server at {address}: connection refused")


def test_all_that_waits_is_one_line_then_ever_fewer_and_one_at_the_end() -> None:
    flow = Flow()
    lines_by_hour = []
    for _ in range(3):
        before = len(flow.printed)
        for second in range(3_600):
            flow.now_s += 1
            if second % 20 == 0:
                assert flow.fail(GROUPS, away())
            if second % 60 == 5:
                assert flow.fail(CONFIGS, KafkaTimeout("listing topics did not succeed within 60000 ms"))
        lines_by_hour.append(len(flow.printed) - before)
    assert flow.printed[0].startswith("cluster b does not answer, since ")
    assert (
        "; what waits for it: flow f: consumer groups (bootstrap server at b1:9092: connection refused)"
        in flow.printed[0]
    )
    assert "what waits for it: flow f: consumer groups, topics and configurations (" in flow.printed[1]
    assert "does not answer, for 1 min, since " in flow.printed[1]
    assert lines_by_hour[0] <= 12
    assert lines_by_hour[1:] == [1, 1]
    count = len(flow.printed)
    assert flow.outages.recovered(GROUPS)
    assert len(flow.printed) == count, "something still waits"
    assert flow.outages.recovered(CONFIGS)
    late = f"flow f: {GROUPS} (2 h 59 min), {CONFIGS} (2 h 59 min)"
    assert flow.printed[count:] == [f"cluster b answers again, after 2 h 59 min; what was late: {late}"]
    assert not flow.outages.recovered(GROUPS)
    assert len(flow.printed) == count + 1


def test_a_timeout_without_an_address_is_of_the_cluster_that_a_later_error_names() -> None:
    flow = Flow()
    flow.fail(GROUPS, KafkaTimeout("listing topics did not succeed within 60000 ms"))
    flow.fail(CONFIGS, away())
    assert len(flow.printed) == 1
    flow.outages.recovered(GROUPS)
    flow.outages.recovered(CONFIGS)
    assert flow.printed[1].startswith("cluster b answers again")


def test_clusters_are_told_apart() -> None:
    flow = Flow()
    flow.fail(GROUPS, away("a2:9092"))
    flow.fail(CONFIGS, away("b1:9092"))
    assert [line.partition(" does not")[0] for line in flow.printed] == ["cluster a", "cluster b"]
    flow.outages.recovered(GROUPS)
    assert flow.printed[-1].startswith("cluster a answers again, after 0.0 s")


def test_an_error_that_names_an_advertised_address_is_of_that_cluster() -> None:
    flow = Flow()
    flow.outages.learn("a", ["1.internal:9092", "b1.internal:909"])
    flow.outages.learn("b", ["b1.internal:9092"])
    flow.fail(GROUPS, KafkaTimeout("reading offsets did not succeed: broker 1 at b1.internal:9092: connection refused"))
    flow.fail(CONFIGS, away("1.internal:9092"))
    assert [line.partition(" does not")[0] for line in flow.printed] == ["cluster b", "cluster a"]


@pytest.mark.parametrize("error", [BrokerError("refused", 44), KafkaError("strange")])
def test_what_a_broker_has_answered_is_no_outage(error: KafkaError) -> None:
    flow = Flow()
    flow.fail(GROUPS, away())
    assert not flow.fail(GROUPS, error)
    late = KafkaTimeout("creating topic 't' did not succeed within 60000 ms")
    late.__cause__ = error
    assert flow.fail(GROUPS, late) is not isinstance(error, BrokerError)
    assert flow.printed[1].startswith("cluster b answers again")


def test_a_cluster_that_several_flows_share_is_one_line_with_the_time_of_the_whole_outage() -> None:
    f = Flow()
    g, h = f.of("g", b="b1:9092", c="c1:9092"), f.of("h", c="c1:9092")
    f.fail(GROUPS, away())
    f.now_s += 50
    g.failed(GROUPS, KafkaTimeout("listing topics did not succeed within 60000 ms"))
    h.failed(GROUPS, away("c1:9092"))
    assert [line.partition(" does not")[0] for line in f.printed] == ["cluster b", "cluster c"]
    f.now_s += 20
    g.failed(CONFIGS, away())
    assert f"flow f: {GROUPS}; flow g: {GROUPS}, {CONFIGS} (" in f.printed[2]
    f.outages.recovered(GROUPS)
    f.now_s += 30
    assert len(f.printed) == 3
    g.recovered(GROUPS)
    g.recovered(CONFIGS)
    late = f"flow f: {GROUPS} (1 min 10 s); flow g: {GROUPS} (50.0 s), {CONFIGS} (30.0 s)"
    assert f.printed[3:] == [f"cluster b answers again, after 1 min 40 s; what was late: {late}"]


def test_a_timeout_is_not_of_a_cluster_that_the_flow_does_not_have() -> None:
    f = Flow()
    f.fail(GROUPS, away())
    h = f.of("h", c="c1:9092")
    h.failed(GROUPS, KafkaTimeout("listing topics did not succeed within 60000 ms"))
    assert f.printed[1].startswith("a cluster does not answer")
    h.failed(CONFIGS, away("c1:9092"))
    h.recovered(GROUPS)
    h.recovered(CONFIGS)
    assert f.printed[2].startswith("cluster c answers again")


def test_what_waits_of_a_run_that_has_ended_is_forgotten() -> None:
    f = Flow()
    g = f.of("g", b="b1:9092")
    f.fail(GROUPS, away())
    g.failed(GROUPS, away())
    f.outages.leave()
    g.recovered(GROUPS)
    assert f.printed[1].startswith("cluster b answers again")
    assert "flow f" not in f.printed[1]


def test_what_a_run_that_has_ended_meets_later_does_not_wait() -> None:
    """A thread of it that waits for a cluster outlives it: no later run of the flow would take the wait back."""
    f = Flow()
    g = f.of("g", b="b1:9092")
    f.fail(GROUPS, away())
    f.outages.leave()
    assert f.fail(CONFIGS, away()), "there is nothing to print either"
    for _ in range(2):
        f.now_s += 7_200
        g.failed(GROUPS, away())
        f.now_s += 10
        g.recovered(GROUPS)
    began, ended = f.printed[1::2], f.printed[2::2]
    assert [line.partition(",")[0] for line in began] == ["cluster b does not answer"] * 2
    assert ended == [f"cluster b answers again, after 10.0 s; what was late: flow g: {GROUPS} (10.0 s)"] * 2


def test_a_cluster_that_one_flow_names_is_not_that_of_another_flow() -> None:
    f = Flow()
    h = f.of("h", c="c1:9092", d="d1:9092")
    f.fail(GROUPS, KafkaTimeout("listing topics did not succeed within 60000 ms"))
    f.now_s += 20
    h.failed(GROUPS, KafkaTimeout("listing topics did not succeed within 60000 ms"))
    f.now_s += 20
    f.fail(CONFIGS, away())
    f.now_s += 20
    f.fail(CONFIGS, away())
    assert "cluster b does not answer, for 1 min, since " in f.printed[1]
    assert f"what waits for it: flow f: {GROUPS}, {CONFIGS} (" in f.printed[1]
    h.recovered(GROUPS)
    f.outages.recovered(GROUPS)
    f.outages.recovered(CONFIGS)
    assert f.printed[2:] == [
        f"a cluster answers again, after 40.0 s; what was late: flow h: {GROUPS} (40.0 s)",
        f"cluster b answers again, after 1 min; what was late: flow f: {GROUPS} (1 min), {CONFIGS} (20.0 s)",
    ]


def test_the_flows_that_wait_are_named_up_to_a_few() -> None:
    f = Flow()
    for number in range(200):
        f.of(f"f{number}", b="b1:9092").failed(GROUPS, away())
    f.now_s += 60
    f.fail(GROUPS, away())
    assert "more flows (" in f.printed[1]
    assert len(f.printed[1]) < 1_000
