"""Topics that a target would create without some of their configurations, as a policy or the broker refuses these."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.client import NewTopic
    from mirror.errors import KafkaError

_REFUSED: Final = frozenset({40, 44})
"""Kafka's error codes for a topic that may be created with other configurations (INVALID_CONFIG, POLICY_VIOLATION)."""


def without_refused(
    topic: NewTopic, error: KafkaError, validate: Callable[[NewTopic], KafkaError | None]
) -> tuple[NewTopic, list[str]] | None:
    """Return ``topic`` with the configurations that the target accepts, and a line about each other one.

    ``error`` refused it; ``validate`` asks whether the target would create a topic. None if it would not even without
    configurations.
    """
    may_be_configs = isinstance(error, BrokerError) and error.code in _REFUSED
    if not may_be_configs or not topic.configs or validate(replace(topic, configs={})) is not None:
        return None
    kept, lines = dict(topic.configs), []
    for key, value in topic.configs.items():
        if (refusal := validate(replace(topic, configs={key: value}))) is not None:
            del kept[key]
            lines.append(f"{topic.name} is created without {key} = {value}: {refusal}")
    return replace(topic, configs=kept), lines
