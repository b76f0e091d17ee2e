"""What a target topic accepts, as far as its configuration tells before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from mirror.cluster.types import ConfigEntry
from mirror.relay.batches.topic_config import FOREVER, MAX_MESSAGE_BYTES, TIME_KEYS, TopicConfig, readable

_SLACK_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLimits:
    """``max_message_bytes`` are a batch's, compressed; ``compacted`` topics refuse records without a key.

    A record's time may differ from the broker's clock by ``before_max_ms`` and ``after_max_ms``, unless the broker sets
    it (``log_append_time``). ``time_keys`` are the topic's keys for these two limits.
    """

    log_append_time: bool = False
    max_message_bytes: int = MAX_MESSAGE_BYTES
    before_max_ms: int = FOREVER
    after_max_ms: int = FOREVER
    compacted: bool = False
    time_keys: tuple[str, str] = TIME_KEYS

    @classmethod
    def of(cls, configs: Mapping[str, ConfigEntry]) -> Self:
        """From a topic's configuration, the brokers' defaults included."""
        topic = TopicConfig.of(readable(configs))
        return cls(
            log_append_time=topic.append_time,
            max_message_bytes=topic.max_message_bytes,
            before_max_ms=topic.before_max_ms,
            after_max_ms=topic.after_max_ms,
            compacted="compact" in topic.cleanup,
            time_keys=(topic.before_key, topic.after_key),
        )

    def latest_ms(self, wall_ms: int) -> int:
        """The latest time that a record may have now, in ms since 1970."""
        return FOREVER if self.log_append_time else min(FOREVER, wall_ms + self.after_max_ms)

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
        if latest < FOREVER:
            latest -= min(_SLACK_MS, self.after_max_ms // 2)
        return earliest, latest
