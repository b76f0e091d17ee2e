"""A producer's settings for batches, memory and transactions: every conflict reported at once (behaviour 13)."""

from __future__ import annotations

import pytest

from mirror.errors import ConfigError
from mirror.producer.settings import ProducerSettings
from mirror.timing import FOREVER_MS

_SERVERS = {"bootstrap.servers": "one:9092"}
_NAMED = {"transactional.id": "t-1"}


def _parse(**options: object) -> ProducerSettings:
    return ProducerSettings.parse({**_SERVERS, **options})


def _refused(**options: object) -> dict[str, str]:
    with pytest.raises(ConfigError) as refused:
        _parse(**options)
    return {problem.key: str(problem) for problem in refused.value.problems}


def test_defaults() -> None:
    settings = _parse()
    assert (settings.batch_size, settings.compression, settings.linger_ms) == (16_384, "none", 0)
    assert (settings.max_block_ms, settings.max_block_include_metadata, settings.max_block_metadata_ms) == (
        60_000,
        True,
        60_000,
    )
    assert (settings.transactional_id, settings.ack_timeout_ms) == (None, 5_000)
    assert settings.warnings == ()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_of_kafka(codec: str) -> None:
    assert _parse(**{"compression.type": codec}).compression == codec


def test_an_unknown_codec_is_reported_what_there_is() -> None:
    problems = _refused(**{"compression.type": "brotli"})
    assert "'none' or 'gzip' or 'snappy' or 'lz4' or 'zstd'" in problems["compression.type"]


def test_the_wait_for_replicas_ends_before_the_request_does() -> None:
    assert _parse(**{"ack.timeout.ms": 7_000}).ack_timeout_ms == 7_000
    assert _parse(**{"ack.timeout.ms": 7_000, "request.timeout.ms": 2_000}).ack_timeout_ms == 2_000
    assert set(_refused(**{"ack.timeout.ms": 0})) == {"ack.timeout.ms"}


@pytest.mark.parametrize("value", [False, "false"])
def test_a_producer_without_idempotence_is_refused(value: object) -> None:
    """In place of the other conflicts, which are only conflicts with idempotence."""
    problems = _refused(**{"enable.idempotence": value, "acks": "1", "retries": 0})
    what = "only the idempotent producer is there; remove the key"
    assert problems == {"enable.idempotence": f"enable.idempotence = False: {what}"}
    assert _parse(**{"enable.idempotence": True}) == _parse()


def test_a_batch_must_fit_the_memory() -> None:
    assert _parse(**{"batch.size": 100, "buffer.memory": 100}).batch_size == 100
    problems = _refused(**{"batch.size": 101, "buffer.memory": 100})
    assert problems == {"batch.size": "batch.size = 101: must be at most buffer.memory (100)"}


def test_a_setting_that_does_nothing_is_reported() -> None:
    (warning,) = _parse(**{"max.block.metadata.ms": 5_000}).warnings
    assert "max.block.metadata.ms has no effect" in warning
    split = _parse(**{"max.block.metadata.ms": 5_000, "max.block.ms.include.metadata": "false"})
    assert (split.max_block_include_metadata, split.max_block_metadata_ms, split.warnings) == (False, 5_000, ())


# --- transactions


def test_a_transaction_outlives_its_deliveries() -> None:
    settings = _parse(**_NAMED)
    assert (settings.transactional_id, settings.transaction_timeout_ms) == ("t-1", 150_000)
    assert settings.warnings == (), "defaults make no noise"
    assert _parse(**_NAMED, **{"delivery.timeout.ms": 20_000, "request.timeout.ms": 10_000}) == _parse(
        **_NAMED,
        **{"delivery.timeout.ms": 20_000, "request.timeout.ms": 10_000, "transaction.timeout.ms": 60_000},
    ), "the default where that is enough"


def test_it_follows_a_delivery_timeout_that_was_raised() -> None:
    settings = _parse(**_NAMED, **{"linger.ms": 200_000})
    assert settings.delivery_timeout_ms == 230_100
    assert settings.transaction_timeout_ms == 260_100


def test_longer_than_brokers_usually_allow_is_reported() -> None:
    assert _parse(**_NAMED, **{"delivery.timeout.ms": 870_000}).warnings == ()
    (warning,) = _parse(**_NAMED, **{"delivery.timeout.ms": 870_001}).warnings
    assert "900001" in warning
    assert "transaction.max.timeout.ms" in warning


def test_an_explicit_one_that_is_too_short_names_all_three() -> None:
    assert _parse(**_NAMED, **{"transaction.timeout.ms": 150_000}).transaction_timeout_ms == 150_000
    problems = _refused(**_NAMED, **{"transaction.timeout.ms": 149_999})
    assert problems == {
        "transaction.timeout.ms": "transaction.timeout.ms = 149999: must be at least "
        "delivery.timeout.ms (120000) + request.timeout.ms (30000) = 150000"
    }


@pytest.mark.parametrize("delivery_ms", [2**31 - 30_000, FOREVER_MS])
def test_deliveries_longer_than_any_transaction_are_refused(delivery_ms: int) -> None:
    problems = _refused(**_NAMED, **{"delivery.timeout.ms": delivery_ms})
    assert "transaction.timeout.ms, at most 2^31 - 1" in problems["delivery.timeout.ms"]
    assert _parse(**{"delivery.timeout.ms": delivery_ms}).delivery_timeout_ms == delivery_ms
    longest = _parse(**_NAMED, **{"delivery.timeout.ms": 2**31 - 30_001})
    assert longest.transaction_timeout_ms == 2**31 - 1


def test_a_timeout_without_a_name_and_a_name_that_is_none() -> None:
    assert "transactional.id" in _refused(**{"transaction.timeout.ms": 60_000})["transaction.timeout.ms"]
    assert "must not be empty" in _refused(**{"transactional.id": ""})["transactional.id"]
    assert set(_refused(**_NAMED, **{"transaction.timeout.ms": 2**31})) == {"transaction.timeout.ms"}
    assert set(_refused(**{"transactional.id": 5})) == {"transactional.id"}


def test_conflicts_named_together() -> None:
    problems = _refused(
        acks="1",
        retries=0,
        **_NAMED,
        **{
            "max.in.flight.requests.per.connection": 6,
            "linger.ms": 100_000,
            "delivery.timeout.ms": 120_000,
            "batch.size": 2_000,
            "buffer.memory": 1_000,
            "transaction.timeout.ms": 10,
        },
    )
    assert set(problems) == {
        "acks",
        "retries",
        "max.in.flight.requests.per.connection",
        "delivery.timeout.ms",
        "batch.size",
        "transaction.timeout.ms",
    }


def test_the_longest_times_overflow_nowhere() -> None:
    settings = _parse(**{"linger.ms": FOREVER_MS, "max.block.ms": FOREVER_MS})
    assert (settings.delivery_timeout_ms, settings.linger_ms) == (FOREVER_MS, FOREVER_MS)
