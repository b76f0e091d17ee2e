"""Settings of clusters, consumers and producers: Kafka's names, every problem at once, the strongest defaults."""

from __future__ import annotations

import copy

import pytest

from mirror.cluster.settings import ClusterSettings
from mirror.consumer.settings import ConsumerSettings
from mirror.errors import ConfigError
from mirror.producer.settings import ProducerSettings

_SERVERS = {"bootstrap.servers": "one:9092, two:9093,[::1]:9094"}


def _refused(parse: type[ProducerSettings | ConsumerSettings | ClusterSettings], **options: object) -> dict[str, str]:
    with pytest.raises(ConfigError) as refused:
        parse.parse({**_SERVERS, **options}, "here")
    assert all(problem.where == "here" for problem in refused.value.problems)
    return {problem.key: str(problem) for problem in refused.value.problems}


def test_addresses() -> None:
    assert ClusterSettings.parse(_SERVERS).bootstrap == (("one", 9092), ("two", 9093), ("::1", 9094))


@pytest.mark.parametrize("servers", ["", "one", "one:", ":9092", "one:0", "one:65536", "one:port"])
def test_a_wrong_address_is_named(servers: str) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers = .*host:port"):
        ClusterSettings.parse({"bootstrap.servers": servers})


def test_every_problem_is_reported_at_once() -> None:
    problems = _refused(
        ProducerSettings,
        **{"request.timeout.ms": -1, "retry.backof.ms": 5, "linger.ms": "soon", "security.protocol": "PLAINTXT"},
    )
    assert set(problems) >= {"request.timeout.ms", "retry.backof.ms", "linger.ms", "security.protocol"}
    assert "did you mean 'retry.backoff.ms'?" in problems["retry.backof.ms"]
    assert "5" not in problems["retry.backof.ms"], "an unknown key's value might be a misspelt secret"
    assert "whole number from 1 to" in problems["request.timeout.ms"]


def test_defaults_are_idempotent_acks_all_retries_max_in_flight_2() -> None:
    keys = ProducerSettings.keys()
    assert (keys["enable.idempotence"].default, keys["acks"].default) == (True, "all")
    settings = ProducerSettings.parse(_SERVERS)
    assert (settings.retries, settings.max_in_flight) == (2**31 - 1, 2)
    assert (settings.delivery_timeout_ms, settings.linger_ms) == (120_000, 0)
    assert settings.cluster.request_timeout_ms == 30_000
    assert (settings.cluster.retry_backoff_ms, settings.cluster.retry_backoff_max_ms) == (100, 1_000)


def test_conflicts_named_together() -> None:
    problems = _refused(
        ProducerSettings,
        acks="1",
        retries=0,
        **{"max.in.flight.requests.per.connection": 6, "enable.idempotence": True},
    )
    assert set(problems) == {"acks", "retries", "max.in.flight.requests.per.connection"}
    assert "must be 'all'" in problems["acks"]
    assert "at least 1" in problems["retries"]
    assert "at most 5" in problems["max.in.flight.requests.per.connection"]


@pytest.mark.parametrize(("key", "value"), [("acks", "1"), ("acks", "0"), ("retries", 0)])
def test_a_conflict_with_the_default_idempotence_is_refused_too(key: str, value: object) -> None:
    """Java would silently switch idempotence off."""
    assert set(_refused(ProducerSettings, **{key: value})) == {key}


@pytest.mark.parametrize("acks", ["all", "-1"])
@pytest.mark.parametrize("in_flight", [1, 5, "3"])
def test_what_goes_together_is_taken(acks: str, in_flight: object) -> None:
    options = {**_SERVERS, "acks": acks, "max.in.flight.requests.per.connection": in_flight, "retries": 1}
    assert ProducerSettings.parse(options).max_in_flight == int(str(in_flight))


def test_explicit_timeout_below_linger_request_and_backoff_rejected() -> None:
    options = {"linger.ms": 40, "request.timeout.ms": 2_000, "retry.backoff.ms": 300}
    result = _refused(ProducerSettings, **options, **{"delivery.timeout.ms": 2_339})["delivery.timeout.ms"]
    for part in ("2339", "linger.ms (40)", "request.timeout.ms (2000)", "retry.backoff.ms (300)", "2340"):
        assert part in result
    smallest = {**_SERVERS, **options, "delivery.timeout.ms": 2_340}
    assert ProducerSettings.parse(smallest).delivery_timeout_ms == 2_340


def test_unset_timeout_raised() -> None:
    settings = ProducerSettings.parse({**_SERVERS, "linger.ms": 5_000, "request.timeout.ms": 200_000})
    assert settings.delivery_timeout_ms == 205_100


@pytest.mark.parametrize("key", ["delivery.timeout.ms", "linger.ms", "retry.backoff.ms", "max.block.ms"])
def test_the_largest_long_is_legal(key: str) -> None:
    options = {**_SERVERS, key: 2**63 - 1}
    if key != "delivery.timeout.ms":
        options["delivery.timeout.ms"] = 2**63 - 1
    if key in {"linger.ms", "retry.backoff.ms"}:
        # The sum is beyond the largest long: refused in words, not by an overflow.
        with pytest.raises(ConfigError, match=r"delivery\.timeout\.ms"):
            ProducerSettings.parse(options)
    else:
        assert ProducerSettings.parse(options).delivery_timeout_ms == 2**63 - 1
    assert set(_refused(ProducerSettings, **{key: 2**63})) == {key}


def test_the_consumers_defaults_and_choices() -> None:
    settings = ConsumerSettings.parse(_SERVERS)
    assert settings.read_committed
    assert ConsumerSettings.parse({**_SERVERS, "isolation.level": "read_uncommitted"}).read_committed is False
    assert (
        "read_committed' or 'read_uncommitted"
        in _refused(ConsumerSettings, **{"isolation.level": "x"})["isolation.level"]
    )


@pytest.mark.parametrize("kind", [ClusterSettings, ConsumerSettings, ProducerSettings])
def test_settings_are_values_and_serve_as_keys(
    kind: type[ProducerSettings | ConsumerSettings | ClusterSettings],
) -> None:
    """They decide which network thread to share."""
    settings = kind.parse(_SERVERS)
    assert copy.deepcopy(settings) == settings
    assert hash(settings) == hash(kind.parse(dict(_SERVERS)))
