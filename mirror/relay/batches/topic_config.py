"""The parts of a topic's configuration that affect a copy, on both sides and for all releases of brokers. Pure.

The defaults of topic configurations are defined only here. They replace keys that a broker does not have, or that this
client may not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mirror.wire.integers import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.cluster.types import ConfigEntry

FOREVER: Final = INT64_MAX
"""No limit (Java's ``Long.MAX_VALUE``)."""
MAX_MESSAGE_BYTES: Final = 1_048_588
"""Kafka's default of ``max.message.bytes``."""
_RETENTION_MS: Final = 604_800_000
_BEFORE: Final = "message.timestamp.before.max.ms"
_AFTER: Final = "message.timestamp.after.max.ms"
_DIFFERENCE: Final = "message.timestamp.difference.max.ms"
CLEANUP: Final = "cleanup.policy"
_RETENTION: Final = "retention.ms"
_SIZE: Final = "max.message.bytes"
_COMPRESSION: Final = "compression.type"
_TIME_TYPE: Final = "message.timestamp.type"
TOPIC_KEYS: Final = (CLEANUP, _RETENTION, _SIZE, _COMPRESSION, _TIME_TYPE, _BEFORE, _AFTER, _DIFFERENCE)
"""All keys that :class:`TopicConfig` needs."""
TIME_KEYS: Final = (_BEFORE, _AFTER)
"""The limits of timestamps on brokers 3.6 and newer: how far in the past, and how far in the future."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Times in ms, sizes in bytes; :data:`FOREVER`: no limit."""

    cleanup: frozenset[str]
    retention_ms: int
    max_message_bytes: int
    compression: str
    append_time: bool
    before_max_ms: int
    after_max_ms: int
    before_key: str = _BEFORE
    """The key that sets ``before_max_ms``; ``after_key`` sets ``after_max_ms``."""
    after_key: str = _AFTER

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> TopicConfig:
        """Parse a topic's configuration, which includes its brokers' defaults."""
        cleanup = frozenset(part.strip() for part in configs.get(CLEANUP, "delete").split(","))
        retention_ms = int(configs.get(_RETENTION, _RETENTION_MS))
        before_key, before_max_ms = _time_limit(configs, _BEFORE)
        after_key, after_max_ms = _time_limit(configs, _AFTER)
        return cls(
            cleanup=cleanup,
            retention_ms=FOREVER if retention_ms < 0 or "delete" not in cleanup else retention_ms,
            max_message_bytes=int(configs.get(_SIZE, MAX_MESSAGE_BYTES)),
            compression=configs.get(_COMPRESSION, "producer"),
            append_time=configs.get(_TIME_TYPE) == "LogAppendTime",
            before_max_ms=before_max_ms,
            after_max_ms=after_max_ms,
            before_key=before_key,
            after_key=after_key,
        )


def readable(entries: Mapping[str, ConfigEntry]) -> dict[str, str]:
    """Return key -> value of the ``entries`` whose value the broker shows."""
    return {key: entry.value for key, entry in entries.items() if entry.value is not None}


def _time_limit(configs: Mapping[str, str], key: str) -> tuple[str, int]:
    """Return the key that limits timestamps in the direction of ``key``, and the limit.

    Brokers 3.0 to 3.5 have one key for both directions, which 4.0 removed (KIP-937). Brokers 3.6 to 3.9 have all three,
    where a direction's own key applies unless it is at its default, no limit (``LogConfig``).
    """
    limit_ms = int(configs.get(key, FOREVER))
    if limit_ms == FOREVER and _DIFFERENCE in configs:
        return _DIFFERENCE, int(configs[_DIFFERENCE])
    return key, limit_ms
