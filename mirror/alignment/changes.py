"""Changes configurations of topics on the target; what it refuses keeps nothing else from being changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from mirror.client import Admin, ConfigChange, ConfigResource
from mirror.errors import AuthorizationFailed, BrokerError, KafkaError

TIMEOUT_MS: Final = 20_000
"""For each call."""
_TOPICS_AT_ONCE: Final = 500
"""Topics per request. Controllers refuse a request that would cause more than 10,000 records (KAFKA-17870)."""

TopicKey = tuple[str, str]
"""A target topic, and a key of it."""
Changes = Mapping[str, Mapping[str, ConfigChange]]
"""By target topic and key."""


class Outcome(NamedTuple):
    """What a cluster has done, or would do."""

    done: frozenset[TopicKey]
    failed: dict[TopicKey, KafkaError]


def alter(target: Admin, changes: Changes, *, validate_only: bool = False) -> Outcome:
    """Make the changes of each topic at once; where that is refused, each key alone. Raises KafkaError.

    With ``validate_only`` the brokers check them, with their policy, and change nothing.
    """
    done: set[TopicKey] = set()
    failed: dict[TopicKey, KafkaError] = {}
    alone: list[dict[str, dict[str, ConfigChange]]] = []
    for topic, error in _send(target, changes, validate_only=validate_only).items():
        keys = [(topic, key) for key in changes[topic]]
        if error is None:
            done.update(keys)
        elif len(keys) == 1 or not _concerns_a_key(error):
            failed.update(dict.fromkeys(keys, error))
        else:
            for number, (key, change) in enumerate(changes[topic].items()):
                alone += [{}] if number == len(alone) else []
                alone[number][topic] = {key: change}
    for one_each in alone:
        for topic, error in _send(target, one_each, validate_only=validate_only).items():
            (key,) = one_each[topic]
            if error is None:
                done.add((topic, key))
            else:
                failed[topic, key] = error
    return Outcome(frozenset(done), failed)


def _send(target: Admin, changes: Changes, *, validate_only: bool) -> dict[str, KafkaError | None]:
    outcomes: dict[str, KafkaError | None] = {}
    for names in in_portions(sorted(changes)):
        wanted = {ConfigResource.topic(name): list(changes[name].values()) for name in names}
        found = target.incremental_alter_configs(
            wanted, validate_only=validate_only, partial=True, timeout_ms=TIMEOUT_MS
        )
        outcomes |= {name: found.failed.get(ConfigResource.topic(name)) for name in names}
    return outcomes


def in_portions(names: list[str]) -> Iterator[list[str]]:
    """Yield the names in order, in lists that a request may have."""
    for start in range(0, len(names), _TOPICS_AT_ONCE):
        yield names[start : start + _TOPICS_AT_ONCE]


def _concerns_a_key(error: KafkaError) -> bool:
    """Return whether other keys of the same topic may be accepted."""
    return isinstance(error, BrokerError) and not isinstance(error, AuthorizationFailed)
