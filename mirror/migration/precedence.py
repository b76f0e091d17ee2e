"""The effective settings of a MirrorMaker 2 file: for each pair of clusters those of its connectors and its worker.

This is what ``MirrorMakerConfig`` of Apache Kafka 4.3 makes of the properties; each value keeps its origin. References
such as ``${file:/path:key}`` stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from mirror.migration import known_keys
from mirror.migration.parsing.entries import Setting, Settings, default

_CLIENTS: Final = ("producer", "consumer", "admin")
_PACKAGE: Final = "org.apache.kafka.connect.mirror."
WORKER_PREFIXES: Final = (
    "offset.storage",
    "config.storage",
    "status.storage",
    "key.converter",
    "value.converter",
    "header.converter",
    "task",
    "worker",
    "replication.policy",
)
"""The beginnings of keys at top level that MirrorMaker 2 passes on to its workers."""
_BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"

SOURCE: Final = "MirrorSourceConnector"
CHECKPOINT: Final = "MirrorCheckpointConnector"
HEARTBEAT: Final = "MirrorHeartbeatConnector"
CONNECTORS: Final = (SOURCE, CHECKPOINT, HEARTBEAT)


class Pair(NamedTuple):
    """A source and a target cluster, by their aliases."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


def is_true(setting: Setting | None, *, otherwise: bool) -> bool:
    """Return a boolean setting as Kafka reads it: in any case, with blanks around it ignored.

    A value that is neither true nor false, which Kafka refuses, is ``otherwise``, and so is None.
    """
    text = "" if setting is None else setting.value.strip().lower()
    return text == "true" if text in {"true", "false"} else otherwise


def java_boolean(setting: Setting | None) -> bool:
    """Return a boolean setting as ``Boolean.parseBoolean`` reads it: false if there is a blank behind it."""
    return setting is not None and setting.value.lower() == "true"


def items(setting: Setting) -> list[str]:
    """Return the items of a list as Kafka splits it: at commas, with blanks around them removed."""
    text = setting.value.strip()
    return [item.strip() for item in text.split(",")] if text else []


def with_prefix(settings: Settings, prefix: str) -> dict[str, Setting]:
    """Return the settings whose key begins with ``prefix``."""
    return {key: setting for key, setting in settings.items() if key.startswith(prefix)}


def without_prefix(settings: Settings, prefix: str) -> dict[str, Setting]:
    """Return the settings whose key begins with ``prefix``, by the rest of the key."""
    start = len(prefix)
    return {key[start:]: found for key, found in with_prefix(settings, prefix).items() if len(key) > start}


# Invariant: A file means here what it means to MirrorMaker 2's own classes, for each client, connector and worker.
# Test: tests/migration/test_mirrormaker_config.py::test_the_settings_of_generated_files_are_those_of_mirrormaker
@dataclass(frozen=True, slots=True)
class MirrorMakerFile:
    """The properties of a dedicated MirrorMaker 2, by key; of a repeated key, the last."""

    properties: Settings

    def clusters(self) -> list[str]:
        """Return the aliases in their order, each once."""
        clusters = self.properties.get("clusters")
        return [] if clusters is None else list(dict.fromkeys(alias for alias in items(clusters) if alias))

    def possible_pairs(self) -> Iterator[Pair]:
        """Yield every ordered pair of clusters."""
        clusters = self.clusters()
        yield from (Pair(source, target) for source in clusters for target in clusters if source != target)

    def pairs(self) -> list[Pair]:
        """Return the pairs for which MirrorMaker 2 runs anything: those enabled, and those with heartbeats."""
        globally = self.properties.get("emit.heartbeats.enabled")
        found = []
        for pair in self.possible_pairs():
            heartbeats = self.properties.get(f"{pair}.emit.heartbeats.enabled", globally)
            enabled = java_boolean(self.properties.get(f"{pair}.enabled"))
            if enabled or heartbeats is None or java_boolean(heartbeats):
                found.append(pair)
        return found

    def cluster(self, alias: str) -> dict[str, Setting]:
        """Return the settings of a cluster: its own, then the clients' keys of the whole file where it has none."""
        found = without_prefix(self.properties, f"{alias}.")
        for key in known_keys.CLIENT & found.keys():
            for client in _CLIENTS:
                found.setdefault(f"{client}.{key}", found[key])
        for key in known_keys.CLIENT & self.properties.keys():
            for name in (*(f"{client}.{key}" for client in _CLIENTS), key):
                found.setdefault(name, self.properties[key])
        return found

    def connector(self, pair: Pair, connector: str) -> dict[str, Setting]:
        """Return the settings of one of the :data:`CONNECTORS` of a pair."""
        found = {key: setting for key, setting in self.properties.items() if key in known_keys.CONNECTORS}
        found |= with_prefix(self.properties, "config.providers")
        found |= with_prefix(self.properties, "replication.policy")
        for end, alias in zip(("source", "target"), pair, strict=True):
            for key, setting in self.cluster(alias).items():
                found[f"{end}.{key}" if key.startswith(_CLIENTS) else f"{end}.cluster.{key}"] = setting
        found.setdefault("name", default("name", connector))
        found.setdefault("connector.class", default("connector.class", _PACKAGE + connector))
        found.setdefault("source.cluster.alias", default("source.cluster.alias", pair.source))
        found.setdefault("target.cluster.alias", default("target.cluster.alias", pair.target))
        found |= without_prefix(self.properties, f"{pair}.")
        found.setdefault("enabled", default("A->B.enabled", "false"))
        return found

    def worker(self, pair: Pair) -> dict[str, Setting]:
        """Return the settings of the Connect worker of a pair, whose producer writes the copied records."""
        found = self.cluster(pair.target)
        for prefix in (*WORKER_PREFIXES, "config.providers"):
            found |= with_prefix(self.properties, prefix)
        found.setdefault("client.id", default("client.id", str(pair)))
        found.setdefault("group.id", default("group.id", f"{pair.source}-mm2"))
        for key, topic in (("offset", "offsets"), ("status", "status"), ("config", "configs")):
            name = f"{key}.storage.topic"
            found.setdefault(name, default(name, f"mm2-{topic}.{pair.source}.internal"))
        for kind in ("key", "value", "header"):
            found.setdefault(f"{kind}.converter", default(f"{kind}.converter", _BYTES))
        return found


def client(cluster: Settings, name: str) -> dict[str, Setting]:
    """Return what a ``producer``, ``consumer`` or ``admin`` beside the connectors gets of a cluster's settings."""
    connecting = {key: setting for key, setting in cluster.items() if key in known_keys.CLIENT}
    own = without_prefix(cluster, f"{name}.")
    return connecting | {key: setting for key, setting in own.items() if key in known_keys.CLIENT}


def _layered(layers: Iterable[Settings]) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for layer in layers:
        found |= layer
    return found


def _client(connector: Settings, end: str, client: str) -> dict[str, Setting]:
    """Return what a client of the cluster at one ``end`` of a connector gets (``MirrorConnectorConfig``)."""
    cluster = without_prefix(connector, f"{end}.cluster.")
    return _layered(
        (
            {key: setting for key, setting in cluster.items() if key in known_keys.CLIENT},
            without_prefix(connector, f"{client}."),
            without_prefix(connector, f"{end}.{client}."),
        )
    )


def source_consumer(connector: Settings) -> dict[str, Setting]:
    """Return the settings of the consumer that reads the source."""
    found = _client(connector, "source", "consumer")
    found["enable.auto.commit"] = default("enable.auto.commit", "false")
    found.setdefault("auto.offset.reset", default("auto.offset.reset", "earliest"))
    return found


def admin(connector: Settings, end: str) -> dict[str, Setting]:
    """Return the settings of the admin client of the cluster at one ``end``: source or target."""
    return _client(connector, end, "admin")


def data_producer(worker: Settings, connector: Settings) -> dict[str, Setting]:
    """Return the settings of the producer that writes the copied records, without those that Connect sets itself."""
    return _layered(
        (
            without_prefix(worker, "producer."),
            without_prefix(connector, "producer.override."),
        )
    )
