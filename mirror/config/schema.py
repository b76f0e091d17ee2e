"""The schema of a configuration: which keys exist at which path, and how a variable's text becomes a value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from mirror.cluster.keys import Key
from mirror.cluster.settings import ClusterSettings
from mirror.config import key_names
from mirror.config.models import FlowConfig
from mirror.consumer.settings import ConsumerSettings
from mirror.producer.settings import ProducerSettings

if TYPE_CHECKING:
    from mirror.config.key_names import KeyPath

_JSON_KEYS: Final = frozenset(
    {"configs-include", "configs-exclude", "configs-overrides", "headers"}
    | {"topics", "topics-exclude", "include", "exclude", "names", "mask"}
)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")

CLUSTER_KEYS: Final[Mapping[str, Key]] = {
    name: key for name, key in ClusterSettings.keys().items() if key.kind != "callable"
}
"""The keys of a cluster's table: all but those whose value is a Python callable."""


def is_cluster_key(key: str) -> bool:
    """Return whether only a cluster's table may have ``key``: its brokers' addresses and security settings."""
    return key == "bootstrap.servers" or key.startswith(("security.", "sasl.", "ssl."))


CLIENT_KEYS: Final[Mapping[str, Mapping[str, Key]]] = {
    "producer": {name: key for name, key in ProducerSettings.keys().items() if not is_cluster_key(name)},
    "consumer": {name: key for name, key in ConsumerSettings.keys().items() if not is_cluster_key(name)},
}
"""The keys of a flow's client tables."""


def is_secret(path: KeyPath) -> bool:
    """Return whether the value at ``path`` must never be shown, by its name or by its key's kind."""
    if key_names.is_secret(path):
        return True
    key = CLUSTER_KEYS.get(path[-1]) if path[:1] == ("clusters",) else None
    return key is not None and key.secret


def tables(data: Mapping[str, object], section: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the tables of ``clusters`` or ``flows`` with their names; skip values that are no tables."""
    entries = data.get(section)
    if isinstance(entries, Mapping):
        for name, table in entries.items():
            if isinstance(table, Mapping):
                yield name, table


def overridable(data: Mapping[str, object]) -> Iterator[KeyPath]:
    """Yield every path that an override may set, for the clusters and flows in the file."""
    for name, _ in tables(data, "clusters"):
        yield from (("clusters", name, key) for key in CLUSTER_KEYS)
    sections = FlowConfig.sections()
    tables_inside = CLIENT_KEYS.keys() | sections.keys()
    for name, _ in tables(data, "flows"):
        yield from (("flows", name, key) for key in FlowConfig.allowed() if key not in tables_inside)
        for client, keys in CLIENT_KEYS.items():
            yield from (("flows", name, client, key) for key in keys)
        for section, model in sections.items():
            yield from (("flows", name, section, key) for key in model.allowed())


def from_text(path: KeyPath, text: str) -> object:
    """Return a variable's ``text`` as a value of the type of the key at ``path``; invalid text stays, for the checks.

    Lists and tables are JSON, since a comma may be part of a regular expression. Kafka's own lists may have commas.
    """
    match _kind(path):
        case "int" | "point" if _INTEGER.fullmatch(text.strip()):
            return int(text)
        case "bool" if text.strip().lower() in {"true", "false"}:
            return text.strip().lower() == "true"
        case "list" | "json" if text.lstrip().startswith(("[", "{")):
            return _json(text)
        case _:
            return text


def _kind(path: KeyPath) -> str:
    section, _, key, *rest = path
    if section == "clusters":
        return CLUSTER_KEYS[key].kind
    if rest and key in CLIENT_KEYS:
        return CLIENT_KEYS[key][rest[0]].kind
    model = FlowConfig.sections()[key] if rest else FlowConfig
    key = rest[0] if rest else key
    annotation = next(field.annotation for field in model.model_fields.values() if field.alias == key)
    if annotation in {int, bool}:
        return "int" if annotation is int else "bool"
    if annotation == str | int:
        return "point"
    return "json" if key in _JSON_KEYS else "str"


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
