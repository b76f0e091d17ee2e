"""Requests that change configurations of topics: what the target refuses keeps nothing else from being changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from mirror.alignment.config_decision import Known
from mirror.alignment.reconciler import Change
from mirror.client import Admin, ConfigChange, ConfigOperation, ConfigResource
from mirror.errors import AuthorizationFailed, BrokerError, KafkaError

_TOPICS_AT_ONCE: Final = 500
"""Topics per request. Controllers refuse a request that would cause more than 10,000 records (KAFKA-17870)."""


class TopicKey(NamedTuple):
    """A key of a target topic."""

    topic: str
    key: str


@dataclass(slots=True, kw_only=True)
class KeyChange(Change[Known]):
    """One key of a topic. Held without a reason, it does not differ."""

    wanted: str | None
    """None: the target's default."""
    there: str | None

    def send(self, key: str) -> ConfigChange:
        """Return the change as a request has it."""
        return ConfigChange(key, self.wanted, ConfigOperation.DELETE if self.wanted is None else ConfigOperation.SET)


def make(
    target: Admin, changes: Mapping[TopicKey, KeyChange], keys: list[TopicKey], timeout_ms: int
) -> dict[TopicKey, KafkaError]:
    """Make those of the changes that have these ``keys``; return the errors. Raises KafkaError."""
    return alter(target, {key: changes[key] for key in keys}, timeout_ms)


def alter(
    target: Admin, changes: Mapping[TopicKey, KeyChange], timeout_ms: int, *, validate_only: bool = False
) -> dict[TopicKey, KafkaError]:
    """Make the changes of each topic at once; where that is refused, each key alone. Return the errors.

    With ``validate_only`` the brokers check them, with their policy, and change nothing. Raises KafkaError.
    """
    by_topic: dict[str, dict[str, ConfigChange]] = {}
    for key, one in changes.items():
        by_topic.setdefault(key.topic, {})[key.key] = one.send(key.key)
    failed: dict[TopicKey, KafkaError] = {}
    alone: list[dict[str, dict[str, ConfigChange]]] = []
    for topic, error in _send(target, by_topic, timeout_ms, validate_only=validate_only).items():
        if len(by_topic[topic]) == 1 or not _concerns_a_key(error):
            failed.update({TopicKey(topic, key): error for key in by_topic[topic]})
            continue
        for number, (name, change) in enumerate(by_topic[topic].items()):
            alone += [{}] if number == len(alone) else []
            alone[number][topic] = {name: change}
    for one_each in alone:
        for topic, error in _send(target, one_each, timeout_ms, validate_only=validate_only).items():
            (name,) = one_each[topic]
            failed[TopicKey(topic, name)] = error
    return failed


def _send(
    target: Admin, changes: Mapping[str, Mapping[str, ConfigChange]], timeout_ms: int, *, validate_only: bool
) -> dict[str, KafkaError]:
    errors: dict[str, KafkaError] = {}
    for names in in_portions(sorted(changes)):
        wanted = {ConfigResource.topic(name): list(changes[name].values()) for name in names}
        found = target.incremental_alter_configs(
            wanted, validate_only=validate_only, partial=True, timeout_ms=timeout_ms
        )
        errors |= {resource.name: error for resource, error in found.failed.items()}
    return errors


def in_portions(names: list[str]) -> Iterator[list[str]]:
    """Yield the names in order, in lists that a request may have."""
    for start in range(0, len(names), _TOPICS_AT_ONCE):
        yield names[start : start + _TOPICS_AT_ONCE]


def _concerns_a_key(error: KafkaError) -> bool:
    """Return whether other keys of the same topic may be accepted."""
    return isinstance(error, BrokerError) and not isinstance(error, AuthorizationFailed)
