"""The settings of a producer: the strongest defaults (KIP-185), with every conflict reported at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from mirror.cluster.keys import Key
from mirror.cluster.settings import CLUSTER_KEYS, ClusterSettings, read_options
from mirror.errors import ConfigError, Problem
from mirror.timing import FOREVER_MS
from mirror.wire.encode import CODECS
from mirror.wire.integers import INT32_MAX

MAX_IN_FLIGHT: Final = 5
"""Batches per producer id and partition whose sequences a broker remembers (ProducerStateEntry)."""

BROKERS_TRANSACTION_MAX_MS: Final = 900_000
"""The default of the brokers' ``transaction.max.timeout.ms``; they refuse more (error 50)."""

PRODUCER_KEYS: Final[Mapping[str, Key]] = {
    key.name: key
    for key in (
        Key(
            "acks",
            "str",
            "all",
            "which replicas must have a batch before it is acknowledged",
            choices=("all", "-1", "0", "1"),
        ),
        Key("enable.idempotence", "bool", True, "no duplicates from retries (KIP-98)"),
        Key("retries", "int", INT32_MAX, "attempts after the first; delivery.timeout.ms is the real bound (KIP-91)"),
        Key(
            "max.in.flight.requests.per.connection",
            "int",
            2,
            "batches sent and unanswered, per producer and partition (KIP-185: 2)",
            low=1,
        ),
        Key(
            "delivery.timeout.ms",
            "int",
            120_000,
            "from a batch's creation to its success or failure (KIP-91)",
            high=FOREVER_MS,
        ),
        Key("linger.ms", "int", 0, "ms to wait for more records before a batch is sent", high=FOREVER_MS),
        Key(
            "max.request.size", "int", 1024 * 1024, "bytes of batches in a request; a larger batch is sent alone", low=1
        ),
        Key("batch.size", "int", 16 * 1024, "bytes of records that make a full batch, before compression"),
        Key("compression.type", "str", "none", "codec of batches built from single records", choices=tuple(CODECS)),
        Key("buffer.memory", "int", 32 * 1024 * 1024, "bytes of unacknowledged batches", low=1, high=FOREVER_MS),
        Key("max.block.ms", "int", 60_000, "ms that send may wait for metadata and memory", high=FOREVER_MS),
        Key("max.block.ms.include.metadata", "bool", True, "whether max.block.ms counts both waits (KIP-912)"),
        Key(
            "max.block.metadata.ms",
            "int",
            60_000,
            "ms that send may wait for metadata where max.block.ms does not include that (KIP-912)",
            high=FOREVER_MS,
        ),
        Key(
            "ack.timeout.ms",
            "int",
            5_000,
            "how long a leader may wait for its replicas before it answers that they are late (error 7); "
            "request.timeout.ms where that is less",
            low=1,
        ),
        Key("transactional.id", "str", None, "the name by which a newer producer fences this one; none: idempotent"),
        Key(
            "transaction.timeout.ms",
            "int",
            60_000,
            "after which the coordinator aborts; unset, at least delivery.timeout.ms + request.timeout.ms",
            low=1,
        ),
    )
}

_ACKS: Final = {"all": -1, "-1": -1, "0": 0, "1": 1}


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The parsed settings. Sizes in bytes, times in ms."""

    cluster: ClusterSettings
    retries: int
    max_in_flight: int
    delivery_timeout_ms: int
    linger_ms: int
    max_request_size: int
    batch_size: int
    compression: str
    buffer_memory: int
    max_block_ms: int
    max_block_include_metadata: bool
    max_block_metadata_ms: int
    ack_timeout_ms: int
    transactional_id: str | None
    transaction_timeout_ms: int
    warnings: tuple[str, ...] = ()

    @staticmethod
    def keys() -> Mapping[str, Key]:
        """The keys that :meth:`parse` accepts, including those of the cluster."""
        return {**CLUSTER_KEYS, **PRODUCER_KEYS}

    @classmethod
    def parse(cls, options: Mapping[str, object], where: str = "") -> Self:
        """Parse dotted keys. Raises ConfigError that lists every problem and conflict."""
        cluster, values, problems = read_options(options, PRODUCER_KEYS, where)
        # If it is not set, it follows the keys that are (KafkaProducer.configureDeliveryTimeout).
        shortest = min(FOREVER_MS, _shortest_delivery(values))
        delivery_timeout_ms = max(values["delivery.timeout.ms"], shortest)
        problems += _conflicts(
            values, options, delivery_timeout_ms, where, frozenset(problem.key for problem in problems)
        )
        if problems or cluster is None:
            raise ConfigError(problems)
        warnings = [_raised(delivery_timeout_ms)] if shortest > values["delivery.timeout.ms"] else []
        transaction_ms = values["transaction.timeout.ms"]
        if values["transactional.id"] is not None and "transaction.timeout.ms" not in options:
            transaction_ms = max(transaction_ms, delivery_timeout_ms + cluster.request_timeout_ms)
            if transaction_ms > BROKERS_TRANSACTION_MAX_MS:
                warnings.append(_long_transaction(transaction_ms))
        if values["max.block.ms.include.metadata"] and "max.block.metadata.ms" in options:
            warnings.append("max.block.metadata.ms has no effect while max.block.ms.include.metadata is true (KIP-912)")
        return cls(
            cluster=cluster,
            retries=values["retries"],
            max_in_flight=values["max.in.flight.requests.per.connection"],
            delivery_timeout_ms=delivery_timeout_ms,
            linger_ms=values["linger.ms"],
            max_request_size=values["max.request.size"],
            batch_size=values["batch.size"],
            compression=values["compression.type"],
            buffer_memory=values["buffer.memory"],
            max_block_ms=values["max.block.ms"],
            max_block_include_metadata=values["max.block.ms.include.metadata"],
            max_block_metadata_ms=values["max.block.metadata.ms"],
            ack_timeout_ms=min(values["ack.timeout.ms"], cluster.request_timeout_ms),
            transactional_id=values["transactional.id"],
            transaction_timeout_ms=transaction_ms,
            warnings=tuple(warnings),
        )


def _conflicts(
    values: Mapping[str, Any],
    options: Mapping[str, object],
    delivery_timeout_ms: int,
    where: str,
    faulty: frozenset[str],
) -> list[Problem]:
    """Return the conflicts between values, without those that could not be parsed."""
    delivery = {"delivery.timeout.ms", "linger.ms", "request.timeout.ms", "retry.backoff.ms"}
    found = (
        ({"enable.idempotence"}, _idempotence_conflicts(values, where)),
        (delivery, _delivery_conflict(values, options, where)),
        ({"batch.size", "buffer.memory"}, _memory_conflict(values, where)),
        (
            {*delivery, "transactional.id", "transaction.timeout.ms"},
            _transaction_conflicts(values, options, delivery_timeout_ms, where),
        ),
    )
    return [problem for keys, problems in found if faulty.isdisjoint(keys) for problem in problems]


def _idempotence_conflicts(values: Mapping[str, Any], where: str) -> list[Problem]:
    problems = []
    if not values["enable.idempotence"]:
        return [Problem(where, "enable.idempotence", "False", "only the idempotent producer is there; remove the key")]
    if _ACKS[values["acks"]] != -1:
        problems.append(Problem(where, "acks", repr(values["acks"]), "must be 'all' with enable.idempotence (KIP-185)"))
    if values["retries"] == 0:
        problems.append(Problem(where, "retries", "0", "must be at least 1 with enable.idempotence (KIP-185)"))
    if (in_flight := values["max.in.flight.requests.per.connection"]) > MAX_IN_FLIGHT:
        allowed = f"must be at most {MAX_IN_FLIGHT} with enable.idempotence (KIP-98)"
        problems.append(Problem(where, "max.in.flight.requests.per.connection", str(in_flight), allowed))
    return problems


def _shortest_delivery(values: Mapping[str, Any]) -> int:
    return int(values["linger.ms"]) + int(values["request.timeout.ms"]) + int(values["retry.backoff.ms"])


def _delivery_conflict(values: Mapping[str, Any], options: Mapping[str, object], where: str) -> list[Problem]:
    timeout, shortest = values["delivery.timeout.ms"], _shortest_delivery(values)
    if "delivery.timeout.ms" not in options or timeout >= shortest:
        return []
    allowed = (
        f"must be at least linger.ms ({values['linger.ms']}) + request.timeout.ms ({values['request.timeout.ms']})"
        f" + retry.backoff.ms ({values['retry.backoff.ms']}) = {shortest} (KIP-91)"
    )
    return [Problem(where, "delivery.timeout.ms", str(timeout), allowed)]


def _memory_conflict(values: Mapping[str, Any], where: str) -> list[Problem]:
    size, memory = values["batch.size"], values["buffer.memory"]
    if size <= memory:
        return []
    return [Problem(where, "batch.size", str(size), f"must be at most buffer.memory ({memory})")]


def _transaction_conflicts(
    values: Mapping[str, Any], options: Mapping[str, object], delivery_timeout_ms: int, where: str
) -> list[Problem]:
    timeout, given = values["transaction.timeout.ms"], "transaction.timeout.ms" in options
    name, request_ms = values["transactional.id"], values["request.timeout.ms"]
    if name is None:
        allowed = "is of no use without transactional.id: set that, or remove this key"
        return [Problem(where, "transaction.timeout.ms", str(timeout), allowed)] if given else []
    problems = []
    if not name:
        problems.append(Problem(where, "transactional.id", "''", "must not be empty; leave it out to be idempotent"))
    shortest = delivery_timeout_ms + request_ms
    # Otherwise the coordinator would abort first, and an expiry would look like a fence by another producer.
    sum_text = f"delivery.timeout.ms ({delivery_timeout_ms}) + request.timeout.ms ({request_ms}) = {shortest}"
    if given and timeout < shortest:
        problems.append(Problem(where, "transaction.timeout.ms", str(timeout), f"must be at least {sum_text}"))
    elif shortest > INT32_MAX:
        allowed = f"must fit transaction.timeout.ms, at most 2^31 - 1, together with request.timeout.ms: {sum_text}"
        problems.append(Problem(where, "delivery.timeout.ms", str(delivery_timeout_ms), allowed))
    return problems


def _long_transaction(timeout: int) -> str:
    return (
        f"transaction.timeout.ms is raised to {timeout}, the sum of delivery.timeout.ms and request.timeout.ms: "
        f"brokers take at most their transaction.max.timeout.ms, by default {BROKERS_TRANSACTION_MAX_MS}"
    )


def _raised(timeout: int) -> str:
    return (
        f"delivery.timeout.ms is raised to {timeout}, the sum of linger.ms, request.timeout.ms and retry.backoff.ms: "
        "its default is too small for them (KIP-91)"
    )
