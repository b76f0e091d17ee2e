"""Two topics' configurations side by side: what is said, with what to set, and what is not worth a word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.relay.batches.topic_config import FOREVER, TopicConfig
from mirror.spark.preflight.topic_compare import aside_warnings, flow_topic_warnings, warnings
from tests.spark.planning.test_range_planner import flow

DEFAULTS = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "max.message.bytes": "1048588",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(FOREVER),
    "message.timestamp.after.max.ms": "3600000",
}
"""A topic of Kafka 4."""
PLAIN = TopicConfig.of(DEFAULTS)
HOUR = 3_600_000


def warnings_of(source: TopicConfig = PLAIN, target: TopicConfig = PLAIN, **of_flow: object) -> list[str]:
    return warnings(flow("f", "a", "b", **of_flow), {"a.orders": (source, target)})


def test_aside_topic_that_does_not_keep_or_take_all_records_is_said() -> None:
    kept = {**DEFAULTS, "retention.ms": "-1", "max.message.bytes": "100000000"}
    assert list(aside_warnings("beside", kept, "records")) == []
    (line,) = aside_warnings("beside", {**kept, "retention.ms": "3600000"}, "records")
    assert line.startswith("topic beside has retention.ms = 3600000 (1 hours): records are deleted then")
    (line,) = aside_warnings("beside", {**kept, "cleanup.policy": "compact"}, "records")
    assert line == "topic beside has cleanup.policy = compact: records have to be kept; set delete"
    (line,) = aside_warnings("beside", {**kept, "max.message.bytes": "5"}, "records")
    assert "has max.message.bytes = 5: a larger record fails its partition" in line


def test_a_plain_pair_gives_no_lines() -> None:
    assert warnings_of() == []


@pytest.mark.parametrize(
    "alike",
    [
        {"cleanup": frozenset({"compact"}), "retention_ms": FOREVER},
        {"retention_ms": HOUR},
        {"max_message_bytes": 9_000_000},
        {"compression": "lz4"},
        {"append_time": True},
        {"after_max_ms": FOREVER},
        {"before_max_ms": 700 * HOUR},
    ],
)
def test_a_pair_with_equal_configurations_gives_no_lines(alike: dict[str, object]) -> None:
    both = replace(PLAIN, **alike)  # type: ignore[arg-type]
    assert warnings_of(both, both) == []


@pytest.mark.parametrize(
    ("source", "target", "parts"),
    [
        ({"after_max_ms": FOREVER}, {}, ["timestamp.after.max.ms = 3600000 (1 hours)", "has no limit", "clamp"]),
        ({}, {"before_max_ms": HOUR}, ["timestamp.before.max.ms = 3600000", "604800000 (7 days)", "on-bad-timestamp"]),
        ({}, {"retention_ms": HOUR}, ["retention.ms = 3600000", "604800000", "raise retention.ms"]),
        ({"retention_ms": FOREVER}, {}, ["retention.ms = 604800000", "no limit"]),
        ({}, {"cleanup": frozenset({"compact"})}, ["cleanup.policy has compact", "on-no-key", "remove compact"]),
        ({}, {"max_message_bytes": 1000}, ["max.message.bytes = 1000", "has 1048588", "on-too-large", "raise it"]),
        ({}, {"compression": "gzip"}, ["compression.type = gzip", "set it to producer", 'compression = "gzip"']),
        ({}, {"compression": "uncompressed"}, ["compression.type = uncompressed", 'compression = "none"']),
        ({}, {"append_time": True}, ["LogAppendTime, where the source has CreateTime", "set CreateTime"]),
        ({"append_time": True}, {}, ["CreateTime, where the source has LogAppendTime", "re-encoded"]),
        (
            {"max_message_bytes": 20_000_000},
            {"max_message_bytes": 20_000_000},
            ["batches of up to 20000000 bytes", "buffer.memory is 33554432", "buffer.memory to 40000000"],
        ),
    ],
)
def test_a_difference_that_affects_records_is_one_line(
    source: dict[str, object], target: dict[str, object], parts: list[str]
) -> None:
    (line,) = warnings_of(replace(PLAIN, **source), replace(PLAIN, **target))  # type: ignore[arg-type]
    assert line.startswith("target topic a.orders: ")
    assert [part for part in parts if part not in line] == []
    assert "\n" not in line


@pytest.mark.parametrize(
    ("source", "target", "of_flow"),
    [
        ({"after_max_ms": FOREVER}, {}, {"on_bad_timestamp": "clamp"}),
        ({}, {"before_max_ms": HOUR}, {"on_bad_timestamp": "skip"}),
        ({}, {"compression": "lz4"}, {"compression": "lz4"}),
        ({}, {"compression": "uncompressed"}, {"compression": "none"}),
        (
            {"max_message_bytes": 20_000_000},
            {"max_message_bytes": 20_000_000},
            {"producer": {"buffer.memory": 40_000_000}},
        ),
        # Older than the target keeps them, but their age begins with the copy.
        ({}, {"append_time": True, "retention_ms": HOUR}, {}),
    ],
)
def test_a_difference_that_the_flow_handles_gives_no_lines(
    source: dict[str, object], target: dict[str, object], of_flow: dict[str, object]
) -> None:
    lines = warnings_of(replace(PLAIN, **source), replace(PLAIN, **target), **of_flow)  # type: ignore[arg-type]
    assert [line for line in lines if "LogAppendTime" not in line] == []


def test_log_append_time_of_the_source_is_never_in_the_future() -> None:
    source = replace(PLAIN, append_time=True, after_max_ms=FOREVER)
    assert [line for line in warnings_of(source) if "after.max.ms" in line] == []


def test_topics_with_the_same_warning_share_a_line() -> None:
    pair = (PLAIN, replace(PLAIN, max_message_bytes=1000))
    (line,) = warnings(flow(), {f"t{number}": pair for number in range(5)})
    assert line.startswith("target topics t0, t1, t2 and 2 more: max.message.bytes")


def test_a_time_limit_is_named_by_the_key_that_sets_it() -> None:
    source = replace(PLAIN, after_max_ms=FOREVER)
    old = {key: value for key, value in DEFAULTS.items() if not key.startswith("message.timestamp.")}
    lines = warnings_of(source, TopicConfig.of({**old, "message.timestamp.difference.max.ms": str(HOUR)}))
    assert len(lines) == 2, "both directions"
    assert all(": message.timestamp.difference.max.ms = 3600000 (1 hours)" in line for line in lines)


@pytest.mark.parametrize(
    ("configs", "retention_ms"),
    [
        ({"retention.ms": "-1"}, FOREVER),
        ({"cleanup.policy": "compact", "retention.ms": "5"}, FOREVER),
        ({"cleanup.policy": "compact, delete", "retention.ms": "5"}, 5),
    ],
)
def test_retention_follows_from_cleanup_policy(configs: dict[str, str], retention_ms: int) -> None:
    assert TopicConfig.of(configs).retention_ms == retention_ms


def test_the_flow_s_own_topics_need_compaction_alone() -> None:
    assert list(flow_topic_warnings("t", {"cleanup.policy": "compact"}, "its records")) == []
    (line,) = flow_topic_warnings("t", {"cleanup.policy": "compact,delete"}, "its records")
    assert "its records are deleted" in line
