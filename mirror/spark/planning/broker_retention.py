"""Settings of brokers that a flow depends on: how long they keep its progress, and what would keep it from working."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.causes import (
    CONNECTIONS,
    ID_EXPIRATION,
    LEAST_CONNECTIONS,
    LEAST_ID_EXPIRATION_MS,
    LEAST_METADATA_BYTES,
    NO_NUMBER,
    OFFSET_METADATA,
    OFFSETS_REPLICAS,
    TRANSACTION_REPLICAS,
    TRANSACTION_TIME,
    Cause,
    Fault,
)
from mirror.errors import FlowError, KafkaError
from mirror.producer.settings import PRODUCER_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.config.models import FlowConfig
    from mirror.observation import Side

_OFFSETS_RETENTION: Final = "offsets.retention.minutes"
_TRANSACTION_TIMEOUT: Final = "transaction.timeout.ms"
_DELIVERY_TIMEOUT: Final = "delivery.timeout.ms"
_KAFKA_DEFAULT_MINUTES: Final = 7 * 24 * 60
_RECOMMIT_FRACTION: Final = 7
"""Progress older than a seventh of the retention is committed again: six runs may fail before it expires."""
_INTERNAL_TOPICS: Final = {"__consumer_offsets": OFFSETS_REPLICAS, "__transaction_state": TRANSACTION_REPLICAS}
KEYS: Final = (
    _OFFSETS_RETENTION,
    *(
        one.key
        for one in (
            OFFSETS_REPLICAS,
            TRANSACTION_REPLICAS,
            OFFSET_METADATA,
            CONNECTIONS,
            TRANSACTION_TIME,
            ID_EXPIRATION,
        )
    ),
)
"""What is read of brokers: each is a number."""
_MINUTE_MS: Final = 60_000


def recommit_after_ms(target: Side) -> int:
    """Return the age in ms at which progress is committed again; by Kafka's default if the target's cannot be read.

    A group without members loses an offset ``offsets.retention.minutes`` after its commit.
    """
    return _retention_minutes(_read(target)[0]) * _MINUTE_MS // _RECOMMIT_FRACTION


def warnings(flow: FlowConfig, target: Side) -> list[str]:
    """Return a line if the target's settings cannot be read, else one for each that ``flow`` cannot work with."""
    settings, error = _read(target)
    if error is not None:
        line = (
            f"the target's {_OFFSETS_RETENTION} cannot be read and is taken for 7 days, Kafka's default: {error} (if it"
            " is shorter, the progress of idle partitions expires)"
        )
        return [line]
    unknown = [
        Fault(f"the target's {key} is '{settings[key]}', which is no number", NO_NUMBER)
        for key in without_number(settings, KEYS)
    ]
    return [fault.line for fault in (*unknown, *faults(flow, target, settings))]


def faults(flow: FlowConfig, target: Side, settings: Mapping[str, str | None]) -> list[Fault]:
    """Return what of a target's ``settings`` keeps ``flow`` from working. Raises KafkaError."""
    too_small = [Fault(f"the target's {one.key} is {settings[one.key]}", one) for one in _too_small(settings, flow)]
    return [*_without_coordinator(settings, target), *too_small]


def number(settings: Mapping[str, str | None], key: str) -> int | None:
    """Return a setting as a number; None if it is absent, or no number: brokers that are not Apache's may answer ""."""
    try:
        return int(settings.get(key) or "")
    except ValueError:
        return None


def without_number(settings: Mapping[str, str | None], keys: Iterable[str]) -> list[str]:
    """Return those of ``keys``, which have numbers as values, whose value is another text."""
    return [key for key in keys if settings.get(key) is not None and number(settings, key) is None]


def _without_coordinator(settings: Mapping[str, str | None], target: Side) -> list[Fault]:
    """Return each setting because of which the target cannot create an internal topic. Raises KafkaError."""
    brokers = len(target.cluster.brokers)
    wanted = {
        topic: setting
        for topic, setting in _INTERNAL_TOPICS.items()
        if (number(settings, setting.key) or 0) > brokers  # the default of 3 is listed, too
    }
    present = target.describe(sorted(wanted)) if wanted else {}
    has = "1 broker runs" if brokers == 1 else f"{brokers} brokers run"
    return [
        Fault(f"the target's {one.key} is {settings[one.key]}, and {has}", one)
        for topic, one in wanted.items()
        if topic not in present
    ]


def _too_small(settings: Mapping[str, str | None], flow: FlowConfig) -> list[Cause]:
    least = {OFFSET_METADATA: LEAST_METADATA_BYTES, CONNECTIONS: LEAST_CONNECTIONS}
    if flow.exactly_once:
        least[TRANSACTION_TIME] = _least_transaction_ms(flow)
        if flow.exactly_once_by != "transactions":
            least[ID_EXPIRATION] = LEAST_ID_EXPIRATION_MS
    return [setting for setting, needed in least.items() if (number(settings, setting.key) or needed) < needed]


def _least_transaction_ms(flow: FlowConfig) -> int:
    """Return what transactions of ``flow`` take at least, whatever ``request.timeout.ms`` its cluster's table has."""
    wanted = flow.producer.get(_TRANSACTION_TIMEOUT)
    delivery = flow.producer.get(_DELIVERY_TIMEOUT, PRODUCER_KEYS[_DELIVERY_TIMEOUT].default)
    return wanted if isinstance(wanted, int) else int(str(delivery)) + flow.commit_interval_ms


def _retention_minutes(settings: Mapping[str, str | None]) -> int:
    return number(settings, _OFFSETS_RETENTION) or _KAFKA_DEFAULT_MINUTES


def _read(target: Side) -> tuple[dict[str, str | None], KafkaError | FlowError | None]:
    """Return the settings of one of the brokers, or nothing and the error that kept them from being read."""
    try:
        entries = target.broker_settings
    except (KafkaError, FlowError) as error:  # a FlowError if the cluster does not answer
        return {}, error
    return {key: entries[key].value for key in KEYS if key in entries}, None
