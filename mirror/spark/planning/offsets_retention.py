"""How long the target's brokers remember progress: groups without members lose an offset some time after its commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.client import ConfigResource
from mirror.errors import KafkaError

if TYPE_CHECKING:
    from mirror.client import Admin

KEY: Final = "offsets.retention.minutes"
KAFKAS_DEFAULT_MINUTES: Final = 7 * 24 * 60
_SHARE: Final = 7
"""Progress is committed anew when it is older than this part of the retention: six runs may fail before it is lost."""
_MINUTE_MS: Final = 60_000
_WITHIN_MS: Final = 10_000


def recommit_after_ms(target: Admin) -> int:
    """The age in ms from which on progress is committed anew; by Kafka's default where the target's is not told."""
    return _retention_minutes(target)[0] * _MINUTE_MS // _SHARE


def warnings(target: Admin) -> list[str]:
    """One line where the target does not tell its retention, else none."""
    error = _retention_minutes(target)[1]
    if error is None:
        return []
    line = (
        f"the target's {KEY} cannot be read and is taken for 7 days, Kafka's default: {error} (where it is shorter, the"
        " progress of idle partitions is forgotten)"
    )
    return [line]


def _retention_minutes(target: Admin) -> tuple[int, KafkaError | None]:
    """As one of the brokers has it, or Kafka's default and why that was taken."""
    try:
        resource = ConfigResource.broker(target.describe_cluster().brokers[0].node_id)
        entry = target.describe_configs([resource], timeout_ms=_WITHIN_MS)[resource].get(KEY)
    except KafkaError as error:
        return KAFKAS_DEFAULT_MINUTES, error
    told = entry.value if entry is not None else None
    return int(told or KAFKAS_DEFAULT_MINUTES), None
