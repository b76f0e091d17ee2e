"""Admin on the fake cluster: configurations, their sources, and values that are not shown."""

from __future__ import annotations

import pytest

from mirror.client import ConfigChange, ConfigOperation, ConfigResource, ConfigSource, NewTopic
from mirror.cluster.admin.configs import hide
from mirror.errors import BrokerError, KafkaTimeout
from mirror.observation import Side
from mirror.wire.api import Api
from mirror.wire.messages.admin import AlterableConfig
from tests.fakes import errors
from tests.fakes.admin import FakeAdmin
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action

T, U = ConfigResource.topic("t"), ConfigResource.topic("u")
SECRET = "hunter2-and-more"
JAAS = f'org.example.PlainLoginModule required username="me" password="{SECRET}";'


def _cluster() -> FakeCluster:
    cluster = FakeCluster(3)
    cluster.add_topic("t").configs["retention.ms"] = "1000"
    cluster.add_topic("u")
    return cluster


def _set(key: str, value: str) -> ConfigChange:
    return ConfigChange(key, value)


def test_sources_report_what_was_set_from_what_is_default() -> None:
    admin = FakeAdmin(_cluster())
    found = admin.describe_configs([T, U])
    assert (found[T]["retention.ms"].value, found[T]["retention.ms"].source) == ("1000", ConfigSource.TOPIC)
    assert (found[U]["retention.ms"].value, found[U]["retention.ms"].source) == ("604800000", ConfigSource.DEFAULT)
    assert Side("", admin).own_configs(["t", "u"]) == {"t": {"retention.ms": "1000"}, "u": {}}


def test_only_the_given_keys_are_described() -> None:
    found = FakeAdmin(_cluster()).describe_configs([T, U], keys=["retention.ms", "unknown.ms"])
    assert {resource: list(entries) for resource, entries in found.items()} == {
        T: ["retention.ms"],
        U: ["retention.ms"],
    }


def test_brokers_are_asked_themselves() -> None:
    cluster = _cluster()
    admin = FakeAdmin(cluster)
    two, all_of_them = ConfigResource.broker(2), ConfigResource.broker()
    admin.incremental_alter_configs({two: [_set("log.cleaner.threads", "4")]})
    admin.incremental_alter_configs({all_of_them: [_set("log.retention.ms", "7")]})
    found = admin.describe_configs([two, ConfigResource.broker(3), all_of_them])
    result = {
        (resource.name, key): (entry.value, entry.source)
        for resource, entries in found.items()
        for key, entry in entries.items()
        if key.startswith("log.")
    }
    assert result == {
        ("2", "log.cleaner.threads"): ("4", ConfigSource.BROKER),
        ("2", "log.retention.ms"): ("7", ConfigSource.ALL_BROKERS),
        ("3", "log.cleaner.threads"): ("1", ConfigSource.DEFAULT),
        ("3", "log.retention.ms"): ("7", ConfigSource.ALL_BROKERS),
        ("", "log.retention.ms"): ("7", ConfigSource.ALL_BROKERS),
    }
    asked = {
        (call.node, one.resource_name) for call in cluster.calls(Api.DESCRIBE_CONFIGS) for one in call.body.resources
    }
    assert {(2, "2"), (3, "3")} <= asked


def test_a_broker_that_is_not_there_fails_alone() -> None:
    admin = FakeAdmin(_cluster())
    nine = ConfigResource.broker(9)
    found = admin.describe_configs([T, nine], partial=True, timeout_ms=2_000)
    assert list(found) == [T]
    assert isinstance(found.failed[nine], KafkaTimeout)
    assert "broker 9 is not in the cluster; its brokers now: 1, 2, 3" in str(found.failed[nine])


def test_each_operation_changes_what_it_names_and_nothing_else() -> None:
    cluster = _cluster()
    admin = FakeAdmin(cluster)

    def own_after(*changes: ConfigChange) -> dict[str, str]:
        admin.incremental_alter_configs({T: changes})
        return Side("", admin).own_configs(["t"])["t"]

    appended = ConfigChange("cleanup.policy", "compact", ConfigOperation.APPEND)
    assert own_after(appended) == {"retention.ms": "1000", "cleanup.policy": "delete,compact"}
    assert own_after(appended) == {"retention.ms": "1000", "cleanup.policy": "delete,compact"}, "harmless again"
    less = ConfigChange("cleanup.policy", "delete", ConfigOperation.SUBTRACT)
    assert own_after(less, _set("retention.ms", "5")) == {"retention.ms": "5", "cleanup.policy": "compact"}
    assert own_after(ConfigChange("retention.ms", operation=ConfigOperation.DELETE)) == {"cleanup.policy": "compact"}


def test_validate_only_changes_nothing() -> None:
    cluster = _cluster()
    admin = FakeAdmin(cluster)
    admin.incremental_alter_configs({T: [_set("retention.ms", "5")]}, validate_only=True)
    assert cluster.topics["t"].configs == {"retention.ms": "1000"}


def test_a_resource_that_is_refused_stops_no_other() -> None:
    cluster = _cluster()
    admin = FakeAdmin(cluster)
    missing = ConfigResource.topic("nope")
    five = [_set("retention.ms", "5")]
    found = admin.incremental_alter_configs(
        {T: [*five, _set("no.such.key", "6")], missing: five, U: five}, partial=True
    )
    assert list(found) == [U]
    assert "changing no.such.key, retention.ms of topic t: INVALID_CONFIG" in str(found.failed[T])
    assert "Unknown config name: no.such.key" in str(found.failed[T])
    assert "UNKNOWN_TOPIC_OR_PARTITION" in str(found.failed[missing])
    assert cluster.topics["t"].configs == {"retention.ms": "1000"}, "all of one resource's changes, or none"
    assert cluster.topics["u"].configs == {"retention.ms": "5"}


def test_a_topic_that_the_broker_does_not_know_yet_is_waited_for() -> None:
    """Created a moment ago: the controller knows it, this broker not yet."""
    cluster = _cluster()
    cluster.after(700, lambda: cluster.add_topic("late"))
    assert FakeAdmin(cluster).describe_configs([ConfigResource.topic("late")], timeout_ms=5_000)


# --- secrets


def test_a_secret_that_is_set_shows_in_no_repr() -> None:
    change = _set("sasl.jaas.config", JAAS)
    assert SECRET not in f"{change!r} {change} {AlterableConfig('sasl.jaas.config', 0, JAAS)!r}"


def test_a_secret_comes_back_as_nothing() -> None:
    admin = FakeAdmin(_cluster())
    one = ConfigResource.broker(1)
    admin.incremental_alter_configs({one: [_set("sasl.jaas.config", JAAS)]})
    entry = admin.describe_configs([one])[one]["sasl.jaas.config"]
    assert (entry.value, entry.sensitive, entry.source) == (None, True, ConfigSource.BROKER)


@pytest.mark.parametrize("value", [SECRET, f"PlainLoginModule requird password='{SECRET}' {SECRET}", "hun"])
def test_a_refused_secret_is_in_no_error(value: str) -> None:
    admin = FakeAdmin(_cluster())
    one = ConfigResource.broker(1)
    with pytest.raises(BrokerError) as raised:
        admin.incremental_alter_configs({one: [_set("sasl.jaas.config", value)]})
    assert SECRET not in str(raised.value)
    assert value not in str(raised.value)
    assert "Invalid value *** for configuration sasl.jaas.config: Invalid control flag '***'" in str(raised.value)


def test_what_a_broker_repeats_of_short_values_is_hidden_as_a_whole_word_only() -> None:
    assert (
        hide("Invalid value 5 for configuration x5: 5 of 55", ["5"])
        == "Invalid value *** for configuration x5: *** of 55"
    )
    assert hide("nothing of it", ["5"]) == "nothing of it"
    assert hide(None, [SECRET]) is None


def test_a_secret_is_in_no_timeout_either() -> None:
    cluster = _cluster()
    cluster.control.on(Api.INCREMENTAL_ALTER_CONFIGS, Action(errors={"1": errors.REQUEST_TIMED_OUT}), times=None)
    with pytest.raises(KafkaTimeout, match=r"changing sasl\.jaas\.config of broker 1") as raised:
        FakeAdmin(cluster).incremental_alter_configs(
            {ConfigResource.broker(1): [_set("sasl.jaas.config", JAAS)]}, timeout_ms=1_000
        )
    assert SECRET not in f"{raised.value} {raised.value!r} {raised.value.__cause__!r}"


def test_a_new_topics_configuration_is_what_describe_reports() -> None:
    admin = FakeAdmin(_cluster())
    admin.create_topics([NewTopic("new", 1, configs={"retention.ms": "9"})])
    assert Side("", admin).own_configs(["new"]) == {"new": {"retention.ms": "9"}}
