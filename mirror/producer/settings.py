"""Settings of a producer: the strongest defaults (KIP-185), checked for contradictions, all named at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from mirror.cluster.keys import INT_MAX, Key
from mirror.cluster.settings import CLUSTER_KEYS, ClusterSettings, split_options
from mirror.errors import ConfigError, Problem
from mirror.timing import FOREVER_MS

MAX_IN_FLIGHT: Final = 5
"""Batches per producer id and partition whose sequences a broker remembers (ProducerStateEntry)."""

PRODUCER_KEYS: Final[Mapping[str, Key]] = {
    key.name: key
    for key in (
        Key("acks", "str", "all", "who must have a batch before it counts", choices=("all", "-1", "0", "1")),
        Key("enable.idempotence", "bool", True, "no duplicates from retries (KIP-98)"),
        Key("retries", "int", INT_MAX, "attempts after the first; delivery.timeout.ms is the real bound (KIP-91)"),
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
        Key("linger.ms", "int", 0, "how long to wait for more before sending", high=FOREVER_MS),
        Key("max.request.size", "int", 1024 * 1024, "bytes of batches in a request; a larger batch goes alone", low=1),
        Key("buffer.memory", "int", 32 * 1024 * 1024, "bytes of unacknowledged batches", low=1, high=FOREVER_MS),
        Key("max.block.ms", "int", 60_000, "how long send may wait for metadata and memory", high=FOREVER_MS),
    )
}

_ACKS: Final = {"all": -1, "-1": -1, "0": 0, "1": 1}


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How to produce. Sizes in bytes, times in ms."""

    cluster: ClusterSettings
    retries: int
    max_in_flight: int
    delivery_timeout_ms: int
    linger_ms: int
    max_request_size: int
    buffer_memory: int
    max_block_ms: int
    warnings: tuple[str, ...] = ()

    @staticmethod
    def keys() -> Mapping[str, Key]:
        """The keys that :meth:`parse` takes, the cluster's included."""
        return {**CLUSTER_KEYS, **PRODUCER_KEYS}

    @classmethod
    def parse(cls, options: Mapping[str, object], where: str = "") -> Self:
        """From dotted keys. Raises ConfigError with every problem, each conflict named."""
        cluster, values = split_options(options, PRODUCER_KEYS, where)
        problems = [*_idempotence_conflicts(values, where), *_delivery_conflict(cluster, values, options, where)]
        if problems:
            raise ConfigError(problems)
        # Unset, it follows what the user did set (KafkaProducer.configureDeliveryTimeout).
        shortest, timeout = _shortest_delivery(cluster, values), int(values["delivery.timeout.ms"])
        raised = timeout < shortest
        timeout = max(timeout, shortest)
        return cls(
            cluster=cluster,
            retries=values["retries"],
            max_in_flight=values["max.in.flight.requests.per.connection"],
            delivery_timeout_ms=timeout,
            linger_ms=values["linger.ms"],
            max_request_size=values["max.request.size"],
            buffer_memory=values["buffer.memory"],
            max_block_ms=values["max.block.ms"],
            warnings=(_raised(timeout),) if raised else (),
        )


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


def _shortest_delivery(cluster: ClusterSettings, values: Mapping[str, Any]) -> int:
    return int(values["linger.ms"]) + cluster.request_timeout_ms + cluster.retry_backoff_ms


def _delivery_conflict(
    cluster: ClusterSettings, values: Mapping[str, Any], options: Mapping[str, object], where: str
) -> list[Problem]:
    timeout, shortest = values["delivery.timeout.ms"], _shortest_delivery(cluster, values)
    if "delivery.timeout.ms" not in options or timeout >= shortest:
        return []
    allowed = (
        f"must be at least linger.ms ({values['linger.ms']}) + request.timeout.ms ({cluster.request_timeout_ms})"
        f" + retry.backoff.ms ({cluster.retry_backoff_ms}) = {shortest} (KIP-91)"
    )
    return [Problem(where, "delivery.timeout.ms", str(timeout), allowed)]


def _raised(timeout: int) -> str:
    return (
        f"delivery.timeout.ms is raised to {timeout}, the sum of linger.ms, request.timeout.ms and retry.backoff.ms: "
        "its default is too small for them (KIP-91)"
    )
