"""The effective configuration: every key with its value, including the clients' defaults. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mirror.cluster.settings import CLUSTER_KEYS
from mirror.config.flow_rules import source_options, target_options
from mirror.config.notices import WITHOUT_EFFECT
from mirror.consumer.settings import CONSUMER_KEYS, ConsumerSettings
from mirror.producer.settings import PRODUCER_KEYS, ProducerSettings
from mirror.relay.model.client_defaults import (
    PARTITION_FETCH_BYTES,
    RECOMPRESSED_BATCH_BYTES,
    batch_bytes,
    transaction_timeout_ms,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.cluster.keys import Key
    from mirror.config.models import FlowConfig, MirrorConfig

Tables = dict[str, dict[str, dict[str, Any]]]

UNSETTABLE: Final = frozenset({"transactional.id", "compression.type", "auto.offset.reset"})
"""Keys that a flow may not set, since the copy sets them itself."""


def effective_config(config: MirrorConfig) -> Tables:
    """Return all tables as :meth:`MirrorConfig.described` does, with the clients' defaults and without secrets.

    A key that is empty by default (a file of certificates, a password) is included only if it was configured.
    """
    tables: Tables = {
        section: {name: dict(table) for name, table in entries.items()}
        for section, entries in config.described().items()
    }
    tables["clusters"] = {name: _cluster_defaults(table) | table for name, table in tables["clusters"].items()}
    for name, table in tables["flows"].items():
        flow = config.flows[name]
        table["consumer"] = _consumer_defaults(config, flow) | table["consumer"]
        table["producer"] = _producer_defaults(config, flow) | table["producer"]
    return tables


def configured_keys(config: MirrorConfig) -> frozenset[tuple[str, ...]]:
    """Return the paths of the keys that the configuration sets; the others are defaults."""
    paths: set[tuple[str, ...]] = set()
    for name, cluster in config.clusters.items():
        paths |= {("clusters", name, key) for key in cluster.options}
    for name, flow in config.flows.items():
        fields = type(flow).model_fields
        paths |= {("flows", name, str(fields[field].alias)) for field in flow.model_fields_set}
        paths |= {("flows", name, "consumer", key) for key in flow.consumer}
        paths |= {("flows", name, "producer", key) for key in flow.producer}
        for section in type(flow).sections():
            table = getattr(flow, section.replace("-", "_"))
            inner = type(table).model_fields
            paths |= {("flows", name, section, str(inner[key].alias)) for key in table.model_fields_set}
    for name, switch in config.switches.items():
        aliases = type(switch).model_fields
        paths |= {("switches", name, str(aliases[key].alias)) for key in switch.model_fields_set}
    return frozenset(paths)


def _cluster_defaults(table: Mapping[str, Any]) -> dict[str, Any]:
    encrypted = str(table.get("security.protocol", "")).endswith("SSL")
    keys = (key for key in CLUSTER_KEYS.values() if encrypted or not key.name.startswith("ssl."))
    return _defaults(keys)


def _consumer_defaults(config: MirrorConfig, flow: FlowConfig) -> dict[str, Any]:
    settings = ConsumerSettings.parse(source_options(config, flow))
    return _defaults(CONSUMER_KEYS.values(), without=UNSETTABLE | WITHOUT_EFFECT["consumer"].keys()) | {
        "max.partition.fetch.bytes": PARTITION_FETCH_BYTES,
        "fetch.max.wait.ms": settings.fetch_max_wait_ms,
    }


def _producer_defaults(config: MirrorConfig, flow: FlowConfig) -> dict[str, Any]:
    options = {key: value for key, value in target_options(config, flow).items() if key != "transaction.timeout.ms"}
    settings = ProducerSettings.parse(options)
    delivery_timeout_ms, request_ms = settings.delivery_timeout_ms, settings.cluster.request_timeout_ms
    merged_bytes = batch_bytes(settings.batch_size, settings.buffer_memory)
    found = _defaults(PRODUCER_KEYS.values(), without=UNSETTABLE | WITHOUT_EFFECT["producer"].keys()) | {
        "delivery.timeout.ms": delivery_timeout_ms,
        "ack.timeout.ms": settings.ack_timeout_ms,
        "batch.size": merged_bytes if flow.compression == "source" else min(merged_bytes, RECOMPRESSED_BATCH_BYTES),
        "transaction.timeout.ms": transaction_timeout_ms(delivery_timeout_ms, request_ms, flow.commit_interval_ms),
    }
    if not flow.exactly_once:
        del found["transaction.timeout.ms"]
    return found


def _defaults(keys: Iterable[Key], *, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    return {key.name: key.default for key in keys if key.name not in without and key.default not in {"", None, ()}}
