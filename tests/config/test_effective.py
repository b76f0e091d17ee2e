"""The effective configuration: every key with its value, defaults included."""

from __future__ import annotations

import json

import pytest

from mirror.cluster.settings import CLUSTER_KEYS
from mirror.config.effective import configured_keys, effective_config
from mirror.config.notices import WITHOUT_EFFECT
from mirror.config.schema import CLIENT_KEYS
from mirror.relay.model import client_defaults

from .conftest import CLUSTERS, FLOW, Load

SET_BY_THE_COPY = {"transactional.id", "compression.type", "auto.offset.reset", "transaction.timeout.ms"}


@pytest.mark.parametrize("client", ["consumer", "producer"])
def test_every_key_of_a_client_that_has_an_effect_is_shown(read: Load, client: str) -> None:
    shown = effective_config(read())["flows"]["paris-berlin"][client]
    own = {name for name in CLIENT_KEYS[client] if name not in CLUSTER_KEYS}
    without = {name for name in own if CLIENT_KEYS[client][name].default == ""}
    assert own - without - SET_BY_THE_COPY - WITHOUT_EFFECT[client].keys() <= shown.keys()
    assert shown.keys().isdisjoint(SET_BY_THE_COPY - {"transaction.timeout.ms"})


def test_defaults_are_those_of_the_copy(read: Load) -> None:
    flow = effective_config(read())["flows"]["paris-berlin"]
    assert flow["consumer"]["max.partition.fetch.bytes"] == client_defaults.PARTITION_FETCH_BYTES
    assert flow["producer"]["batch.size"] == client_defaults.DEFAULT_BATCH_BYTES
    assert flow["producer"]["transaction.timeout.ms"] == 120_000 + 30_000 + 1_000
    tables = effective_config(read(CLUSTERS + FLOW + 'compression = "zstd"\ndelivery = "at-least-once"'))
    producer = tables["flows"]["paris-berlin"]["producer"]
    assert producer["batch.size"] == client_defaults.RECOMPRESSED_BATCH_BYTES
    assert "transaction.timeout.ms" not in producer


def test_derived_defaults_follow_their_keys(read: Load) -> None:
    lines = 'commit-interval-ms = 500\nproducer."request.timeout.ms" = 200000\nproducer."buffer.memory" = 800000'
    producer = effective_config(read(CLUSTERS + FLOW + lines))["flows"]["paris-berlin"]["producer"]
    assert producer["delivery.timeout.ms"] == 200_100
    assert producer["transaction.timeout.ms"] == 200_100 + 200_000 + 500
    assert producer["batch.size"] == 100_000


def test_configured_keys_win_and_are_listed_as_configured(read: Load) -> None:
    toml = CLUSTERS + '"client.id" = "me"\n' + FLOW + 'producer."batch.size" = 7\nperiod-ms = 180000'
    toml += "\nmirrormaker.heartbeats = false"
    config = read(toml, {"MIRROR_FLOWS__PARIS_BERLIN__CONSUMER__CLIENT_RACK": "r"})
    tables = effective_config(config)
    flow = tables["flows"]["paris-berlin"]
    assert (tables["clusters"]["berlin"]["client.id"], tables["clusters"]["paris"]["client.id"]) == ("me", "mirror")
    assert (flow["producer"]["batch.size"], flow["consumer"]["client.rack"]) == (7, "r")
    assert configured_keys(config) >= {
        ("clusters", "berlin", "client.id"),
        ("flows", "paris-berlin", "producer", "batch.size"),
        ("flows", "paris-berlin", "consumer", "client.rack"),
        ("flows", "paris-berlin", "period-ms"),
        ("flows", "paris-berlin", "mirrormaker", "heartbeats"),
    }
    assert ("clusters", "paris", "client.id") not in configured_keys(config)
    assert ("flows", "paris-berlin", "naming") not in configured_keys(config)


def test_tls_keys_are_shown_only_with_tls_and_secrets_never(read: Load) -> None:
    tls = '"security.protocol" = "SSL"\n"ssl.keystore.key" = "hunter2"\n"ssl.keystore.certificate.chain" = "x"\n'
    tables = effective_config(read(CLUSTERS + tls + FLOW))
    assert tables["clusters"]["berlin"]["ssl.endpoint.identification.algorithm"] == "https"
    assert tables["clusters"]["berlin"]["ssl.keystore.key"] == "***"
    assert not [key for key in tables["clusters"]["paris"] if key.startswith("ssl.")]
    assert "hunter2" not in json.dumps(tables)
