"""How long the target keeps progress: a group without members loses an offset some time after its commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.client import ConfigResource
from mirror.errors import KafkaError

if TYPE_CHECKING:
    from mirror.client import Admin

_KEY: Final = "offsets.retention.minutes"
_KAFKA_DEFAULT_MINUTES: Final = 7 * 24 * 60
_RECOMMIT_FRACTION: Final = 7
"""Progress older than a seventh of the retention is committed again: six runs may fail before it expires."""
_MINUTE_MS: Final = 60_000
_CLUSTER_CALL_TIMEOUT_MS: Final = 10_000


def recommit_after_ms(target: Admin) -> int:
    """Return the age in ms at which progress is committed again; by Kafka's default if the target's cannot be read."""
    return _retention_minutes(target)[0] * _MINUTE_MS // _RECOMMIT_FRACTION


def warnings(target: Admin) -> list[str]:
    """Return one line if the target's retention cannot be read, else none."""
    error = _retention_minutes(target)[1]
    if error is None:
        return []
    line = (
        f"the target's {_KEY} cannot be read and is taken for 7 days, Kafka's default: {error} (if it is shorter, the"
        " progress of idle partitions expires)"
    )
    return [line]


def _retention_minutes(target: Admin) -> tuple[int, KafkaError | None]:
    """Return the setting of one of the brokers, or Kafka's default and the error that kept it from being read."""
    try:
        resource = ConfigResource.broker(target.describe_cluster().brokers[0].node_id)
        entry = target.describe_configs([resource], timeout_ms=_CLUSTER_CALL_TIMEOUT_MS)[resource].get(_KEY)
    except KafkaError as error:
        return _KAFKA_DEFAULT_MINUTES, error
    value = entry.value if entry is not None else None
    return int(value or _KAFKA_DEFAULT_MINUTES), None
