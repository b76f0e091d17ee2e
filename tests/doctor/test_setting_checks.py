"""Settings that will show in a copy are found, and nothing once the advice was followed."""

from __future__ import annotations

from typing import Any, Final

import pytest

from mirror import causes
from mirror.causes import Cause
from mirror.client import ClientQuota
from mirror.config.models import FlowConfig
from mirror.doctor.findings import Finding, Severity
from mirror.doctor.setting_checks import (
    BROKER_KEYS,
    Settings,
    Topics,
    check_batches,
    check_differing,
    check_idle,
    check_numbers,
    check_quotas,
    check_target,
)

_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE
_MIB: Final = 1_048_576


def flow(**settings: Any) -> FlowConfig:
    return FlowConfig(name="f", source="a", target="b", topics=("t",), **settings)


@pytest.mark.parametrize(
    ("key", "bad", "good", "severity", "cause"),
    [
        ("transaction.state.log.min.isr", "3", "2", _W, causes.TRANSACTION_MIN_ISR),
        ("transaction.state.log.min.isr", "4", "2", _E, causes.TRANSACTION_MIN_ISR),
        ("offsets.topic.replication.factor", "1", "3", _W, causes.SINGLE_REPLICA),
        ("transaction.state.log.replication.factor", "1", "3", _W, causes.SINGLE_REPLICA),
        ("min.insync.replicas", "2", "1", _E, causes.MIN_ISR),
        ("auto.create.topics.enable", "true", "false", _N, causes.AUTO_CREATE),
    ],
)
def test_a_setting_of_the_target_is_found_until_it_is_mended(
    key: str, bad: str, good: str, severity: Severity, cause: Cause
) -> None:
    (one,) = check_target(flow(), {"default.replication.factor": "1", key: bad}, 3)
    assert (one.severity, one.why, one.remedy) == (severity, cause.effect, cause.remedy)
    assert one.what.endswith(" of b")
    assert list(check_target(flow(), {"default.replication.factor": "1", key: good}, 3)) == []


def test_one_broker_cannot_have_more_replicas() -> None:
    one_each = {"transaction.state.log.replication.factor": "1", "offsets.topic.replication.factor": "1"}
    assert list(check_target(flow(), one_each, 1)) == []


def test_connections_that_brokers_close_first_are_a_note() -> None:
    assert [one.severity for one in check_idle("b", {"connections.max.idle.ms": "60000"}, 540_000)] == [_N]
    for theirs in ("600000", "-1", None):
        assert list(check_idle("b", {"connections.max.idle.ms": theirs}, 540_000)) == []


def batches(target: Settings, brokers: Settings | None = None, **settings: Any) -> list[Finding]:
    topics = Topics({"t": {"max.message.bytes": f"{_MIB}"}}, {"a.t": target})
    return list(check_batches(flow(**settings), brokers or {}, topics, _MIB))


@pytest.mark.parametrize(
    ("bad", "good", "cause"),
    [
        ({"max.message.bytes": "1000"}, {"max.message.bytes": f"{_MIB}"}, causes.MESSAGE_BYTES),
        ({"segment.bytes": "1000"}, {"segment.bytes": f"{_MIB}"}, causes.SEGMENT_BYTES),
        ({"message.timestamp.type": "LogAppendTime"}, {"message.timestamp.type": "CreateTime"}, causes.APPEND_TIME),
        (
            {"message.timestamp.before.max.ms": "86400000"},
            {"message.timestamp.before.max.ms": f"{2**63 - 1}"},
            causes.OLDEST_TIMESTAMP,
        ),
    ],
)
def test_a_setting_of_a_target_topic_is_found_until_it_is_mended(bad: Settings, good: Settings, cause: Cause) -> None:
    (one,) = batches(bad)
    assert (one.severity, one.why) == (_W, cause.effect)
    assert one.what.startswith("topic a.t of b: ")
    assert batches(good) == []


def test_what_a_policy_allows_is_not_found() -> None:
    assert batches({"message.timestamp.before.max.ms": "86400000"}, on_bad_timestamp="clamp") == []


def test_requests_that_brokers_do_not_take_are_an_error() -> None:
    (one,) = batches({}, {"socket.request.max.bytes": "1000"})
    assert (one.severity, one.why) == (_E, causes.SOCKET_REQUEST.effect)
    assert batches({}, {"socket.request.max.bytes": f"{_MIB}"}) == []


def test_a_limit_of_a_source_topic_above_what_brokers_take_is_a_warning() -> None:
    topics = Topics({"t": {"max.message.bytes": f"{2**31 - 1}"}})
    (one,) = check_batches(flow(), {"socket.request.max.bytes": f"{100 * _MIB}"}, topics, _MIB)
    assert (one.severity, one.why) == (_W, causes.SOCKET_REQUEST.effect)
    assert one.what.endswith(f"and topic t of a may have batches of up to {2**31 - 1} bytes")


@pytest.mark.parametrize("value", ["", "many"])
def test_a_number_that_is_none_is_unknown_and_a_note(value: str) -> None:
    keys = ("min.insync.replicas", "socket.request.max.bytes", "offsets.retention.minutes")
    settings = dict.fromkeys(keys, value)
    assert list(check_target(flow(), settings, 3)) == list(check_idle("b", settings, 540_000)) == []
    assert {(one.severity, one.where) for one in check_numbers("b", settings)} == {(_N, "cluster b")}
    assert {one.what.split()[0] for one in check_numbers("b", settings)} == set(keys)
    (note,) = batches({"max.message.bytes": value}, settings)
    assert (note.severity, note.what) == (
        _N,
        f"max.message.bytes of topic a.t of b is '{value}', which is no number",
    )


def test_the_quota_that_is_for_this_client_most_exactly_applies() -> None:
    names = {"a": {"user": "alice", "client-id": "mirror"}}

    def shown(*quotas: ClientQuota) -> list[str]:
        return [one.what for one in check_quotas(flow(), {"a": quotas}, names)]

    rate = "consumer_byte_rate"
    of_others = ClientQuota({"user": "bob"}, {rate: 1.0})
    default = ClientQuota({"user": None}, {rate: 2_000.0})
    own = ClientQuota({"user": "alice", "client-id": None}, {rate: 3_000.0, "request_percentage": 5.0})
    assert shown(of_others) == shown(ClientQuota({"user": "alice"}, {"producer_byte_rate": 1.0})) == []
    assert shown(of_others, default) == ["consumer_byte_rate of its client on a is 2,000 bytes per second and broker"]
    assert shown(own, of_others, default) == [
        "consumer_byte_rate of its client on a is 3,000 bytes per second and broker",
        "request_percentage of its client on a is 5% of the time of one of a broker's threads",
    ]


def test_settings_that_differ_are_found_with_their_brokers() -> None:
    same: Settings = {"min.insync.replicas": "2", "auto.create.topics.enable": "false"}
    assert list(check_differing("b", dict.fromkeys(range(5), same))) == []
    settings: dict[int, Settings] = dict.fromkeys(range(5), same) | {7: {"min.insync.replicas": "1"}}
    found = list(check_differing("b", settings))
    assert {(one.severity, one.where, one.why) for one in found} == {(_W, "cluster b", causes.SETTINGS_DIFFER.effect)}
    assert [one.what for one in found] == [
        "min.insync.replicas is 2 on brokers 0, 1, 2 and 2 more; 1 on broker 7",
        "auto.create.topics.enable is false on brokers 0, 1, 2 and 2 more; absent on broker 7",
    ]


def test_of_many_settings_and_values_that_differ_some_are_shown() -> None:
    found = list(check_differing("b", {node: dict.fromkeys(BROKER_KEYS, f"{node}") for node in range(5)}))
    assert found[0].what.endswith(" is 0 on broker 0; 1 on broker 1; 2 on broker 2; 2 more values elsewhere")
    assert found[-1].what == f"{len(BROKER_KEYS) - 10} more settings of the brokers differ"
    assert len(found) == 11


def test_a_host_that_may_open_few_connections_is_a_warning() -> None:
    overrides = "10.0.0.7:10, worker-1:31,::1:100,worker-2:many"
    (one,) = check_target(flow(), {"max.connections.per.ip.overrides": overrides}, 3)
    assert one.severity is _W
    assert one.what == "fewer than 32 connections are allowed to hosts 10.0.0.7, worker-1 by the brokers of b"
    assert list(check_target(flow(), {"max.connections.per.ip.overrides": ""}, 3)) == []
