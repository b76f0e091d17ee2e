"""How long the target's brokers keep what a flow needs: its progress, and its transactional ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.client import ConfigResource
from mirror.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.client import Admin
    from mirror.config.models import FlowConfig

_OFFSETS_RETENTION: Final = "offsets.retention.minutes"
_ID_EXPIRATION: Final = "transactional.id.expiration.ms"
_KAFKA_DEFAULT_MINUTES: Final = 7 * 24 * 60
_RECOMMIT_FRACTION: Final = 7
"""Progress older than a seventh of the retention is committed again: six runs may fail before it expires."""
_SHORTEST_ID_EXPIRATION_MS: Final = 7_200_000
"""An attempt sends for up to an hour after its fence (DESIGN, Q13), and its next fence takes its time."""
_MINUTE_MS: Final = 60_000
_CLUSTER_CALL_TIMEOUT_MS: Final = 10_000


def recommit_after_ms(target: Admin) -> int:
    """Return the age in ms at which progress is committed again; by Kafka's default if the target's cannot be read.

    A group without members loses an offset ``offsets.retention.minutes`` after its commit.
    """
    return _retention_minutes(_read(target)[0]) * _MINUTE_MS // _RECOMMIT_FRACTION


def warnings(flow: FlowConfig, target: Admin) -> list[str]:
    """Return a line if the target's settings cannot be read, else one for each that is too short for ``flow``."""
    settings, error = _read(target)
    if error is not None:
        line = (
            f"the target's {_OFFSETS_RETENTION} cannot be read and is taken for 7 days, Kafka's default: {error} (if it"
            " is shorter, the progress of idle partitions expires)"
        )
        return [line]
    expiration_ms = int(settings.get(_ID_EXPIRATION) or _SHORTEST_ID_EXPIRATION_MS)
    uses_fences = flow.delivery == "exactly-once" and flow.exactly_once_by != "transactions"
    if not uses_fences or expiration_ms >= _SHORTEST_ID_EXPIRATION_MS:
        return []
    line = (
        f"the target's {_ID_EXPIRATION} is {expiration_ms} ms: its brokers may forget a fence that is still in use, and"
        f" an attempt that was fenced could then double records; set it to {_SHORTEST_ID_EXPIRATION_MS} ms or more, or"
        ' set exactly-once-by = "transactions"'
    )
    return [line]


def _retention_minutes(settings: Mapping[str, str | None]) -> int:
    return int(settings.get(_OFFSETS_RETENTION) or _KAFKA_DEFAULT_MINUTES)


def _read(target: Admin) -> tuple[dict[str, str | None], KafkaError | None]:
    """Return the settings of one of the brokers, or nothing and the error that kept them from being read."""
    try:
        resource = ConfigResource.broker(target.describe_cluster().brokers[0].node_id)
        entries = target.describe_configs([resource], timeout_ms=_CLUSTER_CALL_TIMEOUT_MS)[resource]
    except KafkaError as error:
        return {}, error
    return {key: entries[key].value for key in (_OFFSETS_RETENTION, _ID_EXPIRATION) if key in entries}, None
