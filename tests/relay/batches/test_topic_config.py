"""The limits of a target topic, as brokers of all releases report them."""

from __future__ import annotations

import pytest

from mirror.cluster.types import ConfigEntry, ConfigSource
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.batches.topic_config import FOREVER, TopicConfig

BEFORE = "message.timestamp.before.max.ms"
AFTER = "message.timestamp.after.max.ms"
DIFFERENCE = "message.timestamp.difference.max.ms"
HOUR, DAY = 3_600_000, 86_400_000


def entries(configs: dict[str, str | None]) -> dict[str, ConfigEntry]:
    return {
        key: ConfigEntry(value, ConfigSource.TOPIC, sensitive=value is None, read_only=False)
        for key, value in configs.items()
    }


@pytest.mark.parametrize(
    ("keys", "before", "after"),
    [
        pytest.param({DIFFERENCE: HOUR}, (DIFFERENCE, HOUR), (DIFFERENCE, HOUR), id="3.0"),
        pytest.param({DIFFERENCE: FOREVER}, (DIFFERENCE, FOREVER), (DIFFERENCE, FOREVER), id="3.0 by default"),
        pytest.param(
            {DIFFERENCE: FOREVER, BEFORE: FOREVER, AFTER: FOREVER},
            (DIFFERENCE, FOREVER),
            (DIFFERENCE, FOREVER),
            id="3.9 by default",
        ),
        pytest.param(
            {DIFFERENCE: HOUR, BEFORE: FOREVER, AFTER: FOREVER},
            (DIFFERENCE, HOUR),
            (DIFFERENCE, HOUR),
            id="3.9, old key",
        ),
        pytest.param(
            {DIFFERENCE: HOUR, BEFORE: FOREVER, AFTER: DAY},
            (DIFFERENCE, HOUR),
            (AFTER, DAY),
            id="3.9, old key and one new",
        ),
        pytest.param({DIFFERENCE: FOREVER, BEFORE: HOUR, AFTER: DAY}, (BEFORE, HOUR), (AFTER, DAY), id="3.9, new keys"),
        pytest.param({DIFFERENCE: HOUR, BEFORE: DAY, AFTER: DAY}, (BEFORE, DAY), (AFTER, DAY), id="3.9, all keys"),
        pytest.param({BEFORE: FOREVER, AFTER: HOUR}, (BEFORE, FOREVER), (AFTER, HOUR), id="4.x by default"),
        pytest.param({BEFORE: DAY, AFTER: HOUR}, (BEFORE, DAY), (AFTER, HOUR), id="4.x"),
        pytest.param({}, (BEFORE, FOREVER), (AFTER, FOREVER), id="not readable"),
    ],
)
def test_timestamp_limits_follow_the_rules_of_the_broker_release(
    keys: dict[str, int], before: tuple[str, int], after: tuple[str, int]
) -> None:
    """The rules are those of ``LogConfig.getMessageTimestampBeforeMaxMs`` and its neighbour in 3.6 to 3.9."""
    configs = {key: str(value) for key, value in keys.items()}
    topic = TopicConfig.of(configs)
    assert ((topic.before_key, topic.before_max_ms), (topic.after_key, topic.after_max_ms)) == (before, after)
    limits = TargetLimits.of(entries(dict(configs)))
    assert (limits.before_max_ms, limits.after_max_ms) == (before[1], after[1])
    assert limits.time_keys == (before[0], after[0])


def test_copy_and_preflight_read_the_same_limits() -> None:
    configs = {
        "cleanup.policy": "delete, compact",
        "max.message.bytes": "5000",
        "message.timestamp.type": "LogAppendTime",
    }
    topic, limits = TopicConfig.of(configs), TargetLimits.of(entries({**configs, "retention.ms": None}))
    assert (limits.compacted, "compact" in topic.cleanup) == (True, True)
    assert limits.max_message_bytes == topic.max_message_bytes == 5000
    assert limits.log_append_time
    assert topic.append_time


def test_unreadable_configuration_has_the_defaults() -> None:
    assert TargetLimits.of({}) == TargetLimits()
    assert TargetLimits().max_message_bytes == TopicConfig.of({}).max_message_bytes
