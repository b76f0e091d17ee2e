"""The limits of a target topic that its configuration states, so that they are known before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from mirror.cluster.types import ConfigEntry
from mirror.relay.batches.topic_config import FOREVER, MAX_MESSAGE_BYTES, TIME_KEYS, TopicConfig, readable

_CLOCK_MARGIN_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLimits:
    """The limits of a target topic."""

    log_append_time: bool = False
    """Whether the broker sets the timestamps: then they are not limited."""
    max_message_bytes: int = MAX_MESSAGE_BYTES
    """The size of the largest batch in bytes, after compression."""
    before_max_ms: int = FOREVER
    """How far a record's timestamp may be before the broker's clock."""
    after_max_ms: int = FOREVER
    """How far a record's timestamp may be after the broker's clock."""
    compacted: bool = False
    """Whether records without a key are refused."""
    time_keys: tuple[str, str] = TIME_KEYS
    """The topic's keys that set ``before_max_ms`` and ``after_max_ms``."""

    @classmethod
    def of(cls, configs: Mapping[str, ConfigEntry]) -> Self:
        """Return the limits in a topic's configuration, which includes the brokers' defaults."""
        topic = TopicConfig.of(readable(configs))
        return cls(
            log_append_time=topic.append_time,
            max_message_bytes=topic.max_message_bytes,
            before_max_ms=topic.before_max_ms,
            after_max_ms=topic.after_max_ms,
            compacted="compact" in topic.cleanup,
            time_keys=(topic.before_key, topic.after_key),
        )

    def latest_ms(self, unix_ms: int) -> int:
        """Return the latest timestamp that a record may have at ``unix_ms``, in ms since 1970."""
        return FOREVER if self.log_append_time else min(FOREVER, unix_ms + self.after_max_ms)

    def earliest_ms(self, unix_ms: int) -> int:
        """Return the earliest timestamp that a record may have at ``unix_ms``, in ms since 1970."""
        return -1 if self.log_append_time else max(-1, unix_ms - self.before_max_ms)

    def bounds_ms(self, unix_ms: int, *, exact: bool) -> tuple[int, int]:
        """Return the earliest and the latest timestamp; unless ``exact``, narrowed by a margin for the broker's clock.

        The broker checks a batch when it arrives: a record with exactly the earliest timestamp would be too old then.
        """
        earliest, latest = self.earliest_ms(unix_ms), self.latest_ms(unix_ms)
        if exact:
            return earliest, latest
        if earliest > -1:
            earliest += min(_CLOCK_MARGIN_MS, self.before_max_ms // 2)
        if latest < FOREVER:
            latest -= min(_CLOCK_MARGIN_MS, self.after_max_ms // 2)
        return earliest, latest
