"""Reads what both clusters' configurations say about the topics of a task: at first, and again while it copies."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from mirror.client import Admin, ConfigResource, Outcomes
from mirror.cluster.types import ConfigEntry
from mirror.errors import KafkaError, KafkaTimeout
from mirror.relay.batches.exactly_once_way import EXPIRATION, EXPIRATION_BEFORE_3_4, WayRules
from mirror.relay.batches.target_limits import TargetLimits
from mirror.relay.batches.topic_config import TOPIC_KEYS
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range
from mirror.relay.model.way import Way
from mirror.relay.task.background_read import BackgroundRead
from mirror.timing import FOREVER_MS, deadline

_ANSWER_TIMEOUT_MS: Final = 3_000
"""How long a broker has to answer. One that hangs must not delay the partitions of the others for longer."""
_ATTEMPTS: Final = 3
_MS_PER_TOPIC: Final = 20
"""Rules are read less often for more topics: brokers have 40 values of each, and those of 10,000 take 0.5 s of CPU."""
_MIN_REFRESH_MS: Final = 10_000
"""How soon after the last time rules are read again because an attempt has failed."""

Configs = Mapping[str, ConfigEntry]
_Found = Outcomes[ConfigResource, dict[str, ConfigEntry]]


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What applies to each target topic, by its name."""

    limits: Mapping[str, TargetLimits]
    ways: Mapping[str, WayRules]
    unread: frozenset[str] = frozenset()
    """The target topics whose configuration could not be read: their limits are defaults."""

    def news(self, read: TopicRules) -> TopicRules:
        """Return what has changed by what was ``read`` later. What could not be read then has not."""
        limits = {
            topic: each
            for topic, each in read.limits.items()
            if topic not in read.unread and each != self.limits.get(topic)
        }
        ways = {topic: each for topic, each in read.ways.items() if _is_news(self.ways.get(topic), each)}
        return TopicRules(limits, ways)


def read_topic_rules(
    source: Admin, target: Admin, ranges: Sequence[Range], policy: CopyPolicy, delivery_ms: int
) -> TopicRules:
    """Return the rules for the target topics of ``ranges``; what cannot be read is taken for unknown.

    Limits that are unknown have their defaults: the brokers then refuse what is too large. ``delivery_ms`` is how long
    a batch that is sent may still be appended. Raises KafkaTimeout if the flow demands sequences and a cluster does not
    answer: unknown rules would refuse its records for good.
    """
    topics = {copied.target_topic: copied.topic for copied in ranges}
    if not policy.exactly_once or policy.exactly_once_by == Way.TRANSACTIONS:
        configs = _topic_configs(target, topics, required=False)
        return TopicRules(_limits(configs), dict.fromkeys(topics, WayRules()), _unread(configs))
    required = policy.exactly_once_by == Way.SEQUENCES
    with ThreadPoolExecutor(3, "mirror-configs") as executor:
        target_configs = executor.submit(_topic_configs, target, topics, required=required)
        source_configs = executor.submit(_source_configs, source, set(topics.values()), required=required)
        expiration = executor.submit(_expiration_ms, target, required=required)
        configs, expiration_ms = target_configs.result(), expiration.result()
        ways = {
            name: WayRules.of(
                policy.exactly_once_by,
                source_configs.result()[topic],
                configs[name],
                expiration_ms,
                delivery_ms,
                skips_gaps=policy.on_gap == "skip",
            )
            for name, topic in topics.items()
        }
        return TopicRules(_limits(configs), ways, _unread(configs))


def _limits(configs: Mapping[str, Configs]) -> dict[str, TargetLimits]:
    return {topic: TargetLimits.of(entries) for topic, entries in configs.items()}


def _unread(configs: Mapping[str, Configs]) -> frozenset[str]:
    return frozenset(topic for topic, entries in configs.items() if not entries)


def _is_news(known: WayRules | None, read: WayRules) -> bool:
    if known is None or known == read:
        return known != read
    forgets = read.unread and not known.unread
    return not (forgets or (read.expiration_ms is None and known.expiration_ms is not None))


def _topic_configs(admin: Admin, topics: Collection[str], *, required: bool) -> dict[str, Configs]:
    """Return the configuration of each topic; empty for one whose configuration this client may not read.

    If no broker answers, all are empty; with ``required`` that raises KafkaTimeout.
    """
    resources = {topic: ConfigResource.topic(topic) for topic in topics}
    # A task may have thousands of topics, and brokers have four times as many keys of each.
    found = _ask(
        lambda: admin.describe_configs(resources.values(), keys=TOPIC_KEYS, partial=True, timeout_ms=_ANSWER_TIMEOUT_MS)
    )
    if found is None and required:
        raise _no_answer("the configurations of the topics")
    configs: Mapping[ConfigResource, Configs] = found or {}
    return {topic: configs.get(resource, {}) for topic, resource in resources.items()}


def _source_configs(admin: Admin, topics: Collection[str], *, required: bool) -> dict[str, Configs]:
    """Return what :func:`_topic_configs` does; all empty if the source refuses the client, which the copies report."""
    try:
        return _topic_configs(admin, topics, required=required)
    except KafkaTimeout:
        raise
    except KafkaError:
        return {topic: {} for topic in topics}


def _expiration_ms(admin: Admin, *, required: bool) -> int | None:
    """Return the smallest ``producer.id.expiration.ms`` of the brokers; None if it is unknown.

    Brokers that do not answer in time are left out if others answer: their partitions are not available now, and the
    brokers of a cluster seldom differ. Brokers before 3.4 have ``transactional.id.expiration.ms`` in its place. A
    refusal makes it unknown. With ``required``, KafkaTimeout is raised if no broker answers.
    """

    def ask() -> _Found:
        brokers = admin.describe_cluster(timeout_ms=_ANSWER_TIMEOUT_MS).brokers
        resources = [ConfigResource.broker(broker.node_id) for broker in brokers]
        keys = (EXPIRATION, EXPIRATION_BEFORE_3_4)
        return admin.describe_configs(resources, keys=keys, partial=True, timeout_ms=_ANSWER_TIMEOUT_MS)

    try:
        found = _ask(ask)
    except KafkaError:
        return None
    if found is None and required:
        raise _no_answer(EXPIRATION)
    return None if found is None else smallest_expiration_ms(found)


def _ask(ask: Callable[[], _Found]) -> _Found | None:
    """Return the first outcomes with a result or a refusal; None if every attempt timed out.

    Any broker can answer for a topic, and the client prefers those that have let no request time out.
    """
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(KafkaTimeout):
            found = ask()
            if found or any(not isinstance(error, KafkaTimeout) for error in found.failed.values()):
                return found
    return None


def _no_answer(what: str) -> KafkaTimeout:
    seconds = _ATTEMPTS * _ANSWER_TIMEOUT_MS // 1_000
    return KafkaTimeout(
        f"no broker answered within {seconds} s when it was asked for {what}; the next attempt asks again"
    )


def smallest_expiration_ms(found: _Found) -> int | None:
    """Return how long all brokers remember a producer id, by their configurations; None if it is unknown."""
    refused = any(not isinstance(error, TimeoutError) for error in found.failed.values())
    values = [_expiration_of(entries) for entries in found.values()]
    if refused or not values:
        return None
    known = [int(value) for value in values if value is not None]
    return min(known) if len(known) == len(values) else None


def _expiration_of(entries: Configs) -> str | None:
    entry = entries.get(EXPIRATION) or entries.get(EXPIRATION_BEFORE_3_4)
    return None if entry is None else entry.value


class RulesRefresh:
    """Reads the rules of a task's topics again. Used on the task's thread."""

    def __init__(
        self,
        read: Callable[[Sequence[Range]], TopicRules],
        submit: Callable[..., Future[Any]],
        wake: Callable[[], None],
        refresh_ms: int,
        now: int,
    ) -> None:
        """``submit`` runs a call in a thread that may wait; a ``refresh_ms`` of 0 has nothing read."""
        self._read: Final = read
        self._refresh_ms: Final = refresh_ms
        self._read_at = now
        self._failed: Final = set[str]()
        """The target topics of which an attempt has failed since they were read."""
        self._due_at = now + refresh_ms if refresh_ms else FOREVER_MS
        failed = "the rules of the topics could not be read again; those that are known apply"
        self._reading: Final = BackgroundRead[TopicRules](submit, wake, failed)

    def on_failed(self, target_topic: str) -> None:
        """An attempt has failed: the target may have refused what the topic's configuration forbids by now."""
        self._failed.add(target_topic)

    def update(self, ranges: Callable[[], Iterable[Range]], now: int) -> TopicRules | None:
        """Return rules that were read, once; begin to read those of ``ranges()`` if that is due."""
        if self._reading.in_progress:
            return self._reading.take()
        all_due = now >= self._due_at
        failed_due = self._failed and self._refresh_ms and now >= self._read_at + _MIN_REFRESH_MS
        if not (all_due or failed_due) or not (topics := {one.target_topic: one for one in ranges()}):
            return None
        self._read_at = now
        if all_due:
            self._due_at = deadline(now, max(self._refresh_ms, _MS_PER_TOPIC * len(topics)))
        wanted = [one for topic, one in topics.items() if all_due or topic in self._failed]
        self._failed.clear()
        if wanted:
            self._reading.begin(self._read, wanted)
        return None
