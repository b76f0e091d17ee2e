"""Calls about configurations of topics and brokers: describe, change (KIP-339)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from mirror.cluster.calls.keyed_call import KeyedCall, absent_broker
from mirror.cluster.calls.routed_calls import ANY, ClusterView, Failures
from mirror.cluster.types import ConfigChange, ConfigEntry, ConfigKind, ConfigSource, V
from mirror.cluster.types import ConfigResource as Resource
from mirror.wire.api import Api
from mirror.wire.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mirror.wire.messages.admin import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribedConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_WORD: Final = 4
"""Letters from which on a value, or a word of it, is hidden wherever it stands; shorter ones only as whole words."""


class ConfigsCall(KeyedCall[Resource, V]):
    """A call over topics, which any broker answers, and brokers, which answer for themselves."""

    def __init__(self, what: str, resources: Collection[Resource], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__(what, resources, deadline_ms, timeout_ms)
        self._resources = {(int(resource.kind), resource.name): resource for resource in resources}

    def named(self, kind: int, name: str) -> Resource | None:
        """Return the resource of this call that a response names."""
        return self._resources.get((kind, name))

    def route(self, view: ClusterView) -> Mapping[int | None, Collection[Resource]]:
        """Route topics to any broker, and brokers to themselves."""
        routes: dict[int | None, list[Resource]] = {}
        for resource in sorted(self.pending):
            if resource.kind is not ConfigKind.BROKER or not resource.name:
                routes.setdefault(ANY, []).append(resource)
                continue
            node = int(resource.name)
            why = absent_broker(node, view)
            if why is None:
                routes.setdefault(node, []).append(resource)
            else:
                self.set_waiting(resource, why)
        return routes


class DescribeConfigs(ConfigsCall[dict[str, ConfigEntry]]):
    """Describe configurations of topics and brokers, by key, including defaults."""

    api = Api.DESCRIBE_CONFIGS
    needs = "DescribeConfigs"

    def __init__(
        self,
        resources: Collection[Resource],
        deadline_ms: int,
        timeout_ms: int,
        config_keys: Collection[str] | None = None,
    ) -> None:
        """``config_keys``: None describes all."""
        super().__init__("describing configurations", resources, deadline_ms, timeout_ms)
        self._config_keys = None if config_keys is None else tuple(sorted(config_keys))

    def describe(self, key: Resource) -> str:
        """Return the operation on ``key``, for error texts."""
        return f"describing the configuration of {key}"

    def body(self, keys: Collection[Resource], view: ClusterView, timeout_ms: int) -> DescribeConfigsRequest:
        """Request the resources of one broker."""
        del view, timeout_ms
        return DescribeConfigsRequest(tuple(ConfigResource(key.kind, key.name, self._config_keys) for key in keys))

    def accept(self, keys: Collection[Resource], response: DescribeConfigsResponse) -> Failures:
        """Set the result of each resource."""
        for entry in response.results:
            key = self.named(entry.resource_type, entry.resource_name)
            if key is not None:
                entries = {config.name: _entry(config) for config in entry.configs}
                self.set_result(key, entry.error_code, entries, entry.error_message)
        return self.unresolved(keys)


def _entry(entry: DescribedConfig) -> ConfigEntry:
    value = None if entry.is_sensitive else entry.value
    return ConfigEntry(value, ConfigSource(entry.config_source), entry.is_sensitive, entry.read_only)


class IncrementalAlterConfigs(ConfigsCall[None]):
    """Changes by resource; what is not named stays as it is. Each resource changes as a whole, or not at all.

    Every operation may be repeated without harm, so that an attempt without an answer is simply made again.
    """

    api = Api.INCREMENTAL_ALTER_CONFIGS
    needs = "AlterConfigs"
    final_codes = frozenset({UNKNOWN_TOPIC_OR_PARTITION})

    def __init__(
        self,
        changes: Mapping[Resource, Sequence[ConfigChange]],
        *,
        validate_only: bool,
        deadline_ms: int,
        timeout_ms: int,
    ) -> None:
        super().__init__("changing configurations", changes.keys(), deadline_ms, timeout_ms)
        self._changes = dict(changes)
        self._validate_only = validate_only
        self.changes = not validate_only

    def describe(self, key: Resource) -> str:
        """Return the operation with the changed keys, never their values, for error texts."""
        return f"changing {', '.join(sorted({change.key for change in self._changes[key]}))} of {key}"

    def body(self, keys: Collection[Resource], view: ClusterView, timeout_ms: int) -> IncrementalAlterConfigsRequest:
        """Request the resources of one broker."""
        del view, timeout_ms
        resources = tuple(
            AlterConfigsResource(
                key.kind,
                key.name,
                tuple(AlterableConfig(change.key, change.operation, change.value) for change in self._changes[key]),
            )
            for key in keys
        )
        return IncrementalAlterConfigsRequest(resources, self._validate_only)

    def accept(self, keys: Collection[Resource], response: IncrementalAlterConfigsResponse) -> Failures:
        """Set the result of each resource. Error texts of brokers may quote a value, which could be a password."""
        for entry in response.responses:
            key = self.named(entry.resource_type, entry.resource_name)
            if key is not None:
                values = [change.value for change in self._changes[key] if change.value]
                self.set_result(key, entry.error_code, None, hide(entry.error_message, values))
        return self.unresolved(keys)


def hide(message: str | None, values: Collection[str]) -> str | None:
    """``message`` with ``***`` for each of ``values``, and for the words of those that are more than one word.

    A login configuration is such a value: its password may be repeated alone.
    """
    if not message:
        return message
    hidden = set(values)
    for value in values:
        words = re.split(r"[\s\"'=;]+", value)
        hidden.update(word for word in words if len(words) > 1 and len(word) >= _WORD)
    for value in sorted(hidden, key=len, reverse=True):
        found = re.escape(value)
        message = re.sub(found if len(value) >= _WORD else rf"(?<!\w){found}(?!\w)", "***", message)
    return message
