"""Which batches go by sequence, why, and when a partition changes its way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.client import TopicPartition
from mirror.cluster.types import ConfigEntry, ConfigSource
from mirror.errors import FlowError
from mirror.relay.batches.exactly_once_way import HOLD_MS, WayChoice, WayRules
from mirror.relay.batches.output_batch import OutputBatch
from mirror.relay.batches.reencode import ReencodeReason
from mirror.relay.model.way import Way
from tests.fakes.record_batches import batch, build

HOUR, DAY = 3_600_000, 86_400_000
NOW = 1_800_000_000_000
AUTO = WayRules(mode="auto", expiration_ms=DAY)
FORCED = WayRules(mode="sequences", expiration_ms=DAY)
SOURCE = TopicPartition("orders", 3)


def output(
    age_ms: int = 0, *, tried: frozenset[ReencodeReason] = frozenset(), dropped: dict[str, int] | None = None
) -> OutputBatch:
    written = batch(build(base_offset=70, timestamp=NOW - age_ms))
    return OutputBatch(70, 71, 0, written, tried=tried, dropped=dropped or {})


def nothing(*, dropped: dict[str, int] | None = None) -> OutputBatch:
    return OutputBatch(70, 71, 0, dropped=dropped or {"control": 1})


WITHOUT_TIMESTAMP = OutputBatch(70, 71, 0, batch(build(base_offset=70, timestamp=-1)))


def entries(**configs: str) -> dict[str, ConfigEntry]:
    return {
        key.replace("_", "."): ConfigEntry(value, ConfigSource.TOPIC, sensitive=False, read_only=False)
        for key, value in configs.items()
    }


DELETE, COMPACT = entries(cleanup_policy="delete"), entries(cleanup_policy="compact,delete")


@pytest.mark.parametrize(
    ("age_ms", "way", "reason"),
    [
        (0, Way.SEQUENCES, "records are younger than 12 h"),
        (-HOUR, Way.SEQUENCES, "records are younger than 12 h"),
        (12 * HOUR - 1, Way.SEQUENCES, "records are younger than 12 h"),
        (12 * HOUR, Way.TRANSACTIONS, "records are older than 12 h"),
        (30 * DAY, Way.TRANSACTIONS, "records are older than 12 h"),
    ],
)
def test_records_of_less_than_half_of_the_expiration_go_by_sequence(age_ms: int, way: Way, reason: str) -> None:
    assert (AUTO.way_of(output(age_ms), NOW), AUTO.reason(output(age_ms), NOW)) == (way, reason)
    assert AUTO.fixed is None


def test_flow_that_skips_gaps_goes_in_transactions() -> None:
    """A gap may move the progress back, which lazy progress cannot say."""
    rules = replace(AUTO, skips_gaps=True)
    assert rules.fixed is Way.TRANSACTIONS
    assert rules.reason(None, NOW) == 'on-gap = "skip" may move the progress back'
    with pytest.raises(FlowError, match="on-gap"):
        replace(FORCED, skips_gaps=True).way_of(output(), NOW)


def test_the_age_is_that_of_the_newest_record_of_a_batch() -> None:
    written = batch(build((b"old", b"new"), base_offset=70, timestamp=NOW))
    written.base_timestamp = NOW - 30 * DAY
    assert AUTO.way_of(OutputBatch(70, 72, 0, written), NOW) is Way.SEQUENCES


def test_records_without_a_timestamp_go_in_transactions() -> None:
    assert AUTO.way_of(WITHOUT_TIMESTAMP, NOW) is Way.TRANSACTIONS
    assert AUTO.reason(WITHOUT_TIMESTAMP, NOW) == "records have no timestamp"


@pytest.mark.parametrize("old", [output(30 * DAY), WITHOUT_TIMESTAMP])
def test_old_records_go_by_sequence_where_the_brokers_set_the_timestamps(old: OutputBatch) -> None:
    rules = WayRules(mode="auto", expiration_ms=DAY, log_append_time=True)
    assert rules.way_of(old, NOW) is Way.SEQUENCES
    assert rules.reason(old, NOW) == "the target's brokers set the timestamps"


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        (WayRules(mode="auto", expiration_ms=DAY, compacted="target"), "the target topic is compacted"),
        (WayRules(mode="auto", expiration_ms=DAY, compacted="source"), "the source topic is compacted"),
        (
            WayRules(mode="auto", expiration_ms=DAY, unread="source"),
            "the configuration of the source topic could not be read",
        ),
        (WayRules(mode="auto"), "producer.id.expiration.ms of the target's brokers is not known"),
        (
            WayRules(mode="auto", log_append_time=True),
            "producer.id.expiration.ms of the target's brokers is not known",
        ),
        (
            WayRules(mode="auto", expiration_ms=150_000, delivery_ms=150_000, log_append_time=True),
            "the target's brokers forget producer ids after 150 s, and a delivery may take 150 s",
        ),
        (WayRules(expiration_ms=DAY), 'exactly-once-by = "transactions"'),
    ],
)
def test_every_batch_goes_in_transactions_for_a_reason(rules: WayRules, reason: str) -> None:
    assert rules.way_of(output(), NOW) is rules.fixed is Way.TRANSACTIONS
    assert rules.reason(output(), NOW) == rules.reason(None, 0) == reason


@pytest.mark.parametrize(
    "decided",
    [
        output(tried=frozenset({ReencodeReason.BAD_TIMESTAMP})),
        output(tried=frozenset({ReencodeReason.TOO_LARGE, ReencodeReason.GAPS})),
        output(tried=frozenset({ReencodeReason.NO_KEY})),
        nothing(dropped={"no key": 2}),
        nothing(dropped={"control": 1, "too large": 1}),
        nothing(dropped={"bad timestamp": 3}),
    ],
)
def test_decisions_of_the_clock_and_of_the_target_s_limits_go_in_transactions(decided: OutputBatch) -> None:
    assert AUTO.way_of(decided, NOW) is Way.TRANSACTIONS
    assert "the clock or the target's limits decide" in AUTO.reason(decided, NOW)


@pytest.mark.parametrize(
    "same_for_every_attempt",
    [
        output(tried=frozenset({ReencodeReason.SMALL, ReencodeReason.CONFIGURED, ReencodeReason.APPEND_TIME})),
        nothing(dropped={"dropped": 1}),
    ],
)
def test_other_changes_of_a_batch_go_by_sequence(same_for_every_attempt: OutputBatch) -> None:
    assert AUTO.way_of(same_for_every_attempt, NOW) is Way.SEQUENCES


def test_a_producer_id_outlives_the_delivery_of_its_batch() -> None:
    rules = WayRules(mode="auto", expiration_ms=200_000, delivery_ms=150_000)
    assert rules.way_of(output(49_999), NOW) is Way.SEQUENCES
    assert rules.way_of(output(50_000), NOW) is Way.TRANSACTIONS


def test_forced_sequences_refuse_an_old_record_by_name() -> None:
    assert FORCED.fixed is FORCED.way_of(output(HOUR), NOW) is Way.SEQUENCES
    assert FORCED.reason(output(HOUR), NOW) == 'exactly-once-by = "sequences"'
    with pytest.raises(FlowError) as refused:
        FORCED.way_of(output(30 * DAY), NOW)
    assert str(refused.value) == (
        f"the batch at offset 70, whose newest timestamp is {NOW - 30 * DAY} (2026-12-16 08:00:00 UTC), must not go by"
        " sequence: records are older than 12 h (producer.id.expiration.ms of the target's brokers is 24 h);"
        ' set exactly-once-by = "auto" to copy such records in transactions'
    )


@pytest.mark.parametrize(
    ("rules", "refused", "reason"),
    [
        (WayRules(mode="sequences"), output(), "is not known"),
        (WayRules(mode="sequences", expiration_ms=DAY, compacted="target"), output(), "the target topic is compacted"),
        (FORCED, nothing(dropped={"too large": 1}), "decide what is written (too large)"),
    ],
)
def test_forced_sequences_refuse_what_cannot_be_proved(rules: WayRules, refused: OutputBatch, reason: str) -> None:
    with pytest.raises(FlowError) as error:
        rules.way_of(refused, NOW)
    assert "the batch at offset 70" in str(error.value)
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (DELETE, DELETE, WayRules(mode="auto", expiration_ms=DAY, delivery_ms=5)),
        (COMPACT, DELETE, WayRules(mode="auto", expiration_ms=DAY, delivery_ms=5, compacted="source")),
        (DELETE, COMPACT, WayRules(mode="auto", expiration_ms=DAY, delivery_ms=5, compacted="target")),
        ({}, DELETE, WayRules(mode="auto", expiration_ms=DAY, delivery_ms=5, unread="source")),
        (DELETE, {}, WayRules(mode="auto", expiration_ms=DAY, delivery_ms=5, unread="target")),
        (
            DELETE,
            {**DELETE, **entries(message_timestamp_type="LogAppendTime")},
            WayRules(mode="auto", expiration_ms=DAY, delivery_ms=5, log_append_time=True),
        ),
    ],
)
def test_rules_of_the_topics_configurations(
    source: dict[str, ConfigEntry], target: dict[str, ConfigEntry], expected: WayRules
) -> None:
    assert WayRules.of("auto", source, target, DAY, 5) == expected


# --- the choice of a partition


def test_an_old_batch_changes_the_way_at_once_and_it_returns_after_a_minute() -> None:
    choice = WayChoice(AUTO, SOURCE)
    assert choice.choose(output(), NOW, 0) is Way.SEQUENCES
    assert choice.choose(output(DAY), NOW, 1_000) is Way.TRANSACTIONS
    assert choice.choose(output(), NOW, 2_000) is Way.TRANSACTIONS
    assert choice.reason == "records are older than 12 h"
    assert choice.choose(output(DAY), NOW, 30_000) is Way.TRANSACTIONS
    assert choice.choose(output(), NOW, 30_000 + HOLD_MS - 1) is Way.TRANSACTIONS
    assert choice.choose(output(), NOW, 30_000 + HOLD_MS) is choice.way is Way.SEQUENCES
    assert choice.reason == "records are younger than 12 h"


def test_an_output_without_a_batch_keeps_the_way() -> None:
    choice = WayChoice(AUTO, SOURCE)
    assert choice.choose(nothing(), NOW, 0) is Way.SEQUENCES
    choice.choose(output(DAY), NOW, 0)
    assert choice.choose(nothing(), NOW, 2 * HOLD_MS) is Way.TRANSACTIONS
    assert choice.choose(nothing(dropped={"bad timestamp": 1}), NOW, 2 * HOLD_MS) is Way.TRANSACTIONS
    assert choice.choose(output(), NOW, 3 * HOLD_MS - 1) is Way.TRANSACTIONS, "records were left out a minute ago"


def test_a_fixed_way_has_its_reason_before_the_first_batch() -> None:
    rules = WayRules(mode="auto", expiration_ms=DAY, compacted="source")
    choice = WayChoice(rules, SOURCE)
    assert (choice.way, choice.reason) == (Way.TRANSACTIONS, "the source topic is compacted")
    assert choice.choose(output(), NOW, 0) is Way.TRANSACTIONS
    assert WayChoice(WayRules(), SOURCE).choose(output(), NOW, 0) is Way.TRANSACTIONS


def test_the_error_of_forced_sequences_names_the_partition() -> None:
    choice = WayChoice(FORCED, SOURCE)
    assert choice.choose(output(), NOW, 0) is Way.SEQUENCES
    with pytest.raises(FlowError, match=r"^orders-3: the batch at offset 70, .* must not go by sequence"):
        choice.choose(output(DAY), NOW, 0)
