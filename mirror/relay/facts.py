"""What a target topic accepts, as far as its configuration tells before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from mirror.cluster.topics import ConfigEntry

_MAX_MESSAGE_BYTES: Final = 1_048_588
"""``max.message.bytes``, where it may not be read: Kafka's own default."""
_NO_LIMIT_MS: Final = 2**63 - 1
_SLACK_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """``max_message_bytes`` are a batch's, compressed; ``compacted`` topics refuse records without a key.

    A record's time may differ from the broker's clock by ``before_max_ms`` and ``after_max_ms``, unless the broker sets
    it (``log_append_time``).
    """

    log_append_time: bool = False
    max_message_bytes: int = _MAX_MESSAGE_BYTES
    before_max_ms: int = _NO_LIMIT_MS
    after_max_ms: int = _NO_LIMIT_MS
    compacted: bool = False

    @classmethod
    def of(cls, configs: Mapping[str, ConfigEntry]) -> Self:
        """From a topic's configuration, the brokers' defaults included; a key that is not there does not limit."""

        def value(key: str, default: str) -> str:
            entry = configs.get(key)
            return default if entry is None or entry.value is None else entry.value

        return cls(
            log_append_time=value("message.timestamp.type", "CreateTime") == "LogAppendTime",
            max_message_bytes=int(value("max.message.bytes", str(_MAX_MESSAGE_BYTES))),
            before_max_ms=int(value("message.timestamp.before.max.ms", str(_NO_LIMIT_MS))),
            after_max_ms=int(value("message.timestamp.after.max.ms", str(_NO_LIMIT_MS))),
            compacted="compact" in value("cleanup.policy", "delete").split(","),
        )

    def latest_ms(self, wall_ms: int) -> int:
        """The latest time that a record may have now, in ms since 1970."""
        return _NO_LIMIT_MS if self.log_append_time else min(_NO_LIMIT_MS, wall_ms + self.after_max_ms)

    def earliest_ms(self, wall_ms: int) -> int:
        """The earliest time that a record may have now, in ms since 1970."""
        return -1 if self.log_append_time else max(-1, wall_ms - self.before_max_ms)

    def bounds_ms(self, wall_ms: int, *, exact: bool) -> tuple[int, int]:
        """The earliest and the latest time; where not ``exact``, such that the broker's clock may differ a little.

        It looks when the batch comes in: a record of just the earliest time would be too old by then.
        """
        earliest, latest = self.earliest_ms(wall_ms), self.latest_ms(wall_ms)
        if exact:
            return earliest, latest
        if earliest > -1:
            earliest += min(_SLACK_MS, self.before_max_ms // 2)
        if latest < _NO_LIMIT_MS:
            latest -= min(_SLACK_MS, self.after_max_ms // 2)
        return earliest, latest
