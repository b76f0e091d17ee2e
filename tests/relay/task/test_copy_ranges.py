"""The settings that a task parses for all its producers."""

from __future__ import annotations

from typing import Any

import pytest

from mirror.client import Producer
from mirror.errors import ConfigError
from mirror.producer.settings import ProducerSettings
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.task.copy_ranges import _producer_settings

OPTIONS: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "delivery.timeout.ms": 1_000_000}


def test_exactly_once_transaction_outlasts_delivery_request_and_commit_interval() -> None:
    settings = _producer_settings(OPTIONS, CopyPolicy(commit_interval_ms=7_000), "the-id")
    assert (settings.delivery_timeout_ms, settings.transactional_id) == (1_000_000, "the-id")
    assert settings.transaction_timeout_ms == 1_000_000 + settings.cluster.request_timeout_ms + 7_000
    assert settings.warnings == (), "the producer's own default, which it would warn of, is not used"


def test_configured_transaction_timeout_is_kept_and_checked() -> None:
    options = {**OPTIONS, "transaction.timeout.ms": 1_100_000}
    assert _producer_settings(options, CopyPolicy(), "the-id").transaction_timeout_ms == 1_100_000
    with pytest.raises(ConfigError, match=r"transaction\.timeout\.ms"):
        _producer_settings({**OPTIONS, "transaction.timeout.ms": 1_000}, CopyPolicy(), "the-id")


def test_at_least_once_settings_have_no_transactional_id() -> None:
    settings = _producer_settings(OPTIONS, CopyPolicy(exactly_once=False), "the-id")
    assert settings == ProducerSettings.parse(OPTIONS)


def test_a_producer_takes_parsed_settings_and_parses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ProducerSettings.parse(OPTIONS)
    monkeypatch.setattr(ProducerSettings, "parse", None)
    with Producer(settings) as producer:
        assert "bootstrap.servers='127.0.0.1:1'" in repr(producer)
