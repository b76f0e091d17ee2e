"""What a configuration says that is right, but does not do what its author may think. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.cluster.settings import ClusterSettings
from mirror.config.flow_rules import target_options
from mirror.config.naming import dotted
from mirror.producer.settings import ProducerSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.config.models import FlowConfig, MirrorConfig

_NOT_WAITED: Final = "a task never waits for memory or metadata; delivery.timeout.ms is what bounds a batch's time"

WITHOUT_EFFECT: Final[Mapping[str, Mapping[str, str]]] = {
    "consumer": {
        "group.id": "progress is kept on the target, in groups of the flow's own (mirror.FLOW.NUMBER)",
        "connections.per.broker": "it counts connections for produce requests, which a consumer does not send",
    },
    "producer": {
        "linger.ms": "batches are passed on as they come, and nothing is waited for",
        "max.block.ms": _NOT_WAITED,
        "max.block.ms.include.metadata": _NOT_WAITED,
        "max.block.metadata.ms": _NOT_WAITED,
    },
}
"""Keys of a flow's clients that the clients know and a copy makes no use of, with the reason."""


def notices(config: MirrorConfig, flow: FlowConfig) -> list[str]:
    """The lines about ``flow`` and its clusters, each with the key it is about."""
    found = [
        f"{dotted(('flows', flow.name, client, key))} has no effect: {why}; remove the key"
        for client, table in (("consumer", flow.consumer), ("producer", flow.producer))
        for key, why in WITHOUT_EFFECT[client].items()
        if key in table
    ]
    found += _of_clients(config, flow)
    return list(dict.fromkeys(found))


def _of_clients(config: MirrorConfig, flow: FlowConfig) -> Iterator[str]:
    """What the clients' own settings warn of; executors log it, where few people look."""
    for name in (flow.source, flow.target):
        for line in ClusterSettings.parse(config.clusters[name].client_options()).warnings:
            yield f"{dotted(('clusters', name))}: {line}"
    own = {key: value for key, value in target_options(config, flow).items() if key != "transaction.timeout.ms"}
    for line in ProducerSettings.parse(own).warnings:
        if not line.startswith("max.block."):  # has no effect in any case
            yield f"{dotted(('flows', flow.name, 'producer'))}: {line}"
