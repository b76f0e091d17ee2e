"""The keys of a flow about the configurations of its target topics."""

from __future__ import annotations

import pytest

from mirror.config.notices import notices
from mirror.errors import ConfigError
from tests.config.conftest import CLUSTERS, FLOW, Load

TABLE = "[flows.paris-berlin.configs-overrides]\n"


def test_by_default_configurations_are_kept_in_step_but_for_what_harms_the_target(read: Load) -> None:
    flow = read(CLUSTERS + FLOW).flows["paris-berlin"]
    assert (flow.configs, flow.sync_interval_ms, flow.configs_overrides) == ("sync", 60_000, {})
    excluded = [
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "message.timestamp.type",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
        "message.timestamp.difference.max.ms",
        "message.format.version",
        "remote.storage.enable",
        "local.retention.ms",
    ]
    assert [key for key in excluded if not flow.excludes_config(key)] == []
    kept = ["retention.ms", "cleanup.policy", "max.message.bytes", "compression.type", "segment.bytes"]
    assert [key for key in kept if flow.excludes_config(key)] == []


def test_overrides_are_written_as_brokers_show_them(read: Load) -> None:
    table = TABLE + '"retention.ms" = 5000\n"preallocate" = true\n"unclean.leader.election.enable" = " FALSE "\n'
    flow = read(CLUSTERS + FLOW + table).flows["paris-berlin"]
    assert flow.configs_overrides == {
        "retention.ms": "5000",
        "preallocate": "true",
        "unclean.leader.election.enable": "false",
    }


def test_the_keys_may_come_from_the_environment(read: Load) -> None:
    prefix = "MIRROR_FLOWS__PARIS_BERLIN__"
    environ = {
        f"{prefix}CONFIGS_OVERRIDES": '{"retention.ms": 5}',
        f"{prefix}CONFIGS_EXCLUDE": '["segment.*"]',
        f"{prefix}SYNC_INTERVAL_MS": "5000",
    }
    flow = read(CLUSTERS + FLOW, environ=environ).flows["paris-berlin"]
    assert (flow.configs_overrides, flow.sync_interval_ms) == ({"retention.ms": "5"}, 5000)
    assert flow.excludes_config("segment.ms")
    assert not flow.excludes_config("min.insync.replicas")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('"retention.ms" = 1.5', "must be a text, a number, true or false"),
        ('"retention.ms" = ""', "must be a text, a number, true or false"),
        ('"retention ms" = 1', "is not the name of a topic configuration"),
    ],
)
def test_an_override_that_no_topic_can_have_is_refused(line: str, said: str, read: Load) -> None:
    with pytest.raises(ConfigError, match=said):
        read(CLUSTERS + FLOW + TABLE + line)


def test_keys_without_effect_are_named(read: Load) -> None:
    config = read(CLUSTERS + FLOW + 'configs = "off"\nconfigs-exclude = ["x"]\n')
    assert notices(config, config.flows["paris-berlin"]) == [
        'flows.paris-berlin.configs-exclude has no effect with configs = "off"; remove the key'
    ]
