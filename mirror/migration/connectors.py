"""Connectors of MirrorMaker 2 in Kafka Connect: their JSON, a KafkaConnector of Strimzi, or their properties."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mirror.migration import known_keys
from mirror.migration.findings import Finding, Kind, about
from mirror.migration.parsing.entries import Setting, Settings, default
from mirror.migration.precedence import CHECKPOINT, CONNECTORS, HEARTBEAT, SOURCE, Pair
from mirror.migration.reader import Reader
from mirror.migration.replications import Replication, with_default

NOT_RUNNING: Final = {"paused", "stopped", "true"}
"""The values of ``state`` and ``pause`` of a connector of Strimzi that does not run."""
_KNOWN: Final = {SOURCE: known_keys.SOURCE, CHECKPOINT: known_keys.CHECKPOINT, HEARTBEAT: known_keys.HEARTBEAT}


@dataclass(frozen=True, slots=True)
class Connector:
    """A connector: its simple class name, and its configuration. ``worker`` is that of its worker, if it is known."""

    kind: str
    config: Settings
    worker: Settings | None = None

    @property
    def pair(self) -> Pair:
        """The clusters, by their aliases."""
        source, target = (
            with_default(self.config, f"{end}.cluster.alias").value.strip() for end in ("source", "target")
        )
        return Pair(source, target)


def of_settings(config: Settings, worker: Settings | None = None) -> list[Connector]:
    """Return the connector with a configuration, if it is one of MirrorMaker 2; an empty list if not."""
    kind = config.get("connector.class", default("connector.class", "")).value.strip().rpartition(".")[2]
    return [Connector(kind, config, worker)] if kind in CONNECTORS else []


def of_reader(reader: Reader) -> list[Connector]:
    """Return the connectors in JSON of Kafka Connect's REST interface, or in a KafkaConnector."""
    if reader.node.items:
        return [connector for item in reader.items() for connector in of_reader(item)]
    if reader["kind"].value() == "KafkaConnector":
        return _of_resource(reader)
    if "connector.class" in reader:
        return _of_mapping(reader)
    if reader["config"].node.entries:
        return _of_mapping(reader["config"])
    return [found for name in reader.node.entries for found in _of_mapping(reader[name]["info"]["config"])]


def _of_mapping(config: Reader) -> list[Connector]:
    """Return the connector of a configuration, all of which is read if it is one of MirrorMaker 2."""
    name = config["connector.class"].node.text or ""
    return of_settings(config.settings()) if name.strip().rpartition(".")[2] in CONNECTORS else []


def _of_resource(reader: Reader) -> list[Connector]:
    spec = reader["spec"]
    config: dict[str, Setting] = {}
    for key, name in (("connector.class", "class"), ("tasks.max", "tasksMax")):
        if (value := spec[name].value()) is not None:
            config[key] = spec[name].setting(value)
    for name in ("state", "pause"):
        if spec.node.get(name).text in NOT_RUNNING and "state" not in config:
            config["state"] = spec[name].setting(spec[name].value() or "")
    found = of_settings(config)
    return [replace(one, config=spec["config"].settings() | config) for one in found]


def unread(part: Reader) -> Finding:
    """Return what is said of a part of a file that is no setting of a connector."""
    setting = part.setting("")
    if "config" in part.path.split(".") and part.node.text is None:
        meaning = "a list or mapping is no value of a setting, or the connector is none of MirrorMaker 2"
        return about(Kind.NO_EQUIVALENT, setting, meaning)
    return about(Kind.NOT_NEEDED, setting, "it is no setting of a connector of MirrorMaker 2")


def replications(connectors: Sequence[Connector]) -> list[Replication]:
    """Return one replication for each source connector that is enabled."""
    first: dict[tuple[str, Pair], Connector] = {}
    for connector in connectors:
        first.setdefault((connector.kind, connector.pair), connector)
    found = []
    for (kind, pair), connector in first.items():
        enabled = with_default(connector.config, "enabled").value.strip().lower() != "false"
        if kind != SOURCE or not enabled:
            continue
        checkpoint = first.get((CHECKPOINT, pair))
        heartbeat = first.get((HEARTBEAT, Pair(pair.target, pair.source)))
        found.append(
            Replication(
                pair,
                connector.config,
                checkpoint.config if checkpoint else None,
                heartbeat.config if heartbeat else None,
                connector.worker,
            )
        )
    return found


def lint(connectors: Sequence[Connector]) -> Iterator[Finding]:
    """Yield what is to be said of connectors apart from their values."""
    seen: set[tuple[str, Pair]] = set()
    for connector in connectors:
        place = (connector.kind, connector.pair)
        if place in seen:
            setting = with_default(connector.config, "connector.class")
            yield about(Kind.DANGEROUS, setting, f"two connectors do the same for {connector.pair}", "remove one")
        seen.add(place)
        if "source.cluster.alias" not in connector.config:
            missing = default("source.cluster.alias", "")
            yield about(Kind.REFUSED, missing, "a connector needs the name of its source", "write it")
        for key, setting in connector.config.items():
            if _is_unknown(connector.kind, key, setting):
                others = [kind for kind in CONNECTORS if key in _KNOWN[kind]]
                action = f"write it for {others[0]}" if others else "remove it, unless a class of your own reads it"
                yield about(Kind.IGNORED, setting, f"{connector.kind} has no such setting", action)
            elif key.startswith("producer.") and not key.startswith("producer.override."):
                meaning = "it tunes the producer of offset syncs, not the one that writes the records"
                yield about(
                    Kind.OTHER_EFFECT, setting, meaning, key.replace("producer.", "write producer.override.", 1)
                )


def _is_unknown(kind: str, key: str, setting: Setting) -> bool:
    of_resource = not setting.key.endswith(key) or key == "state"
    return (
        setting.line > 0
        and key not in _KNOWN[kind]
        and not key.startswith(known_keys.CONNECTOR_PREFIXES)
        and not of_resource
    )
