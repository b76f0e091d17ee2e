"""Checks of the settings of brokers and topics, and of quotas, that will show in a copy. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mirror import causes
from mirror.causes import Cause
from mirror.client import ClientQuota
from mirror.doctor.findings import Finding, Severity, of_cause
from mirror.errors import MAX_NAMES_SHOWN, named
from mirror.spark.planning import broker_retention

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig

Settings = Mapping[str, str | None]
_LOG_OVERHEAD: Final = 12
"""Kafka's default of ``max.message.bytes`` is 1 MiB and the offset and size of a batch (``Records.LOG_OVERHEAD``)."""
_INTERNAL: Final = ("transaction.state.log.replication.factor", "offsets.topic.replication.factor")
_NO_LIMIT: Final = 2**62
_OF_A_THREAD: Final = "% of the time of one of a broker's threads"
TOPIC_KEYS: Final = (
    "max.message.bytes",
    causes.SEGMENT_BYTES.key,
    causes.APPEND_TIME.key,
    causes.OLDEST_TIMESTAMP.key,
)
"""What is read of topics."""


_TOPIC_NUMBERS: Final = tuple(key for key in TOPIC_KEYS if key != causes.APPEND_TIME.key)
BROKER_NUMBERS: Final = (
    *broker_retention.KEYS,
    causes.IDLE.key,
    causes.TRANSACTION_MIN_ISR.key,
    causes.MIN_ISR.key,
    causes.SOCKET_REQUEST.key,
    "default.replication.factor",
)
"""The settings of brokers that are compared as numbers."""
_CONNECTION_OVERRIDES: Final = causes.CONNECTION_OVERRIDES.key
BROKER_KEYS: Final = tuple(
    dict.fromkeys((*BROKER_NUMBERS, *_INTERNAL, causes.AUTO_CREATE.key, "message.max.bytes", _CONNECTION_OVERRIDES))
)
"""What is read of each broker."""
_MOST_KEYS: Final = 10
"""So many settings that differ are shown."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The configurations of topics that a flow copies, by key and topic, and of those of their copies that exist."""

    source: Mapping[str, Settings] = field(default_factory=dict)
    target: Mapping[str, Settings] = field(default_factory=dict)


def check_numbers(cluster: str, settings: Settings) -> Iterator[Finding]:
    """Yield a line for each setting of the brokers that should be a number and is none: it is unknown."""
    for key in broker_retention.without_number(settings, BROKER_NUMBERS):
        yield _no_number(f"cluster {cluster}", f"{key} of the brokers", settings[key])


def _no_number(where: str, which: str, value: str | None) -> Finding:
    return of_cause(Severity.NOTE, where, f"{which} is '{value}', which is no number", causes.NO_NUMBER)


def check_differing(cluster: str, settings: Mapping[int, Settings]) -> Iterator[Finding]:
    """Yield a line for each setting that is not the same on all brokers, by whose ids ``settings`` are."""
    differing = [key for key in BROKER_KEYS if len({one.get(key) for one in settings.values()}) > 1]
    for key in differing[:_MOST_KEYS]:
        nodes: dict[str, list[str]] = {}
        for node, one in sorted(settings.items()):
            nodes.setdefault(one.get(key) or "absent", []).append(str(node))
        shown = [f"{value} on {named('broker', ids)}" for value, ids in list(nodes.items())[:MAX_NAMES_SHOWN]]
        more = [f"{len(nodes) - MAX_NAMES_SHOWN} more values elsewhere"] if len(nodes) > MAX_NAMES_SHOWN else []
        what = f"{key} is {'; '.join([*shown, *more])}"
        yield of_cause(Severity.WARNING, f"cluster {cluster}", what, causes.SETTINGS_DIFFER)
    if len(differing) > _MOST_KEYS:
        what = f"{len(differing) - _MOST_KEYS} more settings of the brokers differ"
        yield of_cause(Severity.WARNING, f"cluster {cluster}", what, causes.SETTINGS_DIFFER)


def check_idle(cluster: str, settings: Settings, idle_ms: int) -> Iterator[Finding]:
    """Yield a line if the brokers close connections before this client, which does after ``idle_ms``."""
    theirs = _number(settings, causes.IDLE.key, idle_ms)
    if 0 <= theirs < idle_ms:
        what = f"connections.max.idle.ms of the brokers is {theirs}, and that of this client {idle_ms}"
        yield of_cause(Severity.NOTE, f"cluster {cluster}", what, causes.IDLE)


def check_quotas(
    flow: FlowConfig, quotas: Mapping[str, Sequence[ClientQuota]], names: Mapping[str, Mapping[str, str]]
) -> Iterator[Finding]:
    """Yield the quotas of the flow's clients. ``quotas``: by cluster; ``names``: their user and client id, by cluster.

    Of a user that only the cluster knows, such as a certificate's, the quota is not found.
    """
    for cluster, key, unit, cause in (
        (flow.source, "consumer_byte_rate", " bytes per second and broker", causes.QUOTA),
        (flow.target, "producer_byte_rate", " bytes per second and broker", causes.QUOTA),
        *((one, causes.REQUEST_QUOTA.key, _OF_A_THREAD, causes.REQUEST_QUOTA) for one in (flow.source, flow.target)),
    ):
        limits = {
            rank: one.values[key]
            for one in quotas.get(cluster, ())
            if key in one.values and (rank := _rank(one.entity, names.get(cluster, {})))
        }
        if limits:
            what = f"{key} of its client on {cluster} is {limits[max(limits)]:,.0f}{unit}"
            yield of_cause(Severity.NOTE, _at(flow), what, cause)


def _rank(entity: Mapping[str, str | None], names: Mapping[str, str]) -> tuple[int, ...]:
    """Return how exactly a quota is for a client: the highest applies (KIP-55); empty if it is for others."""
    if any(name is not None and name != names.get(kind) for kind, name in entity.items()):
        return ()
    return tuple(0 if kind not in entity else 1 if entity[kind] is None else 2 for kind in ("user", "client-id"))


def check_target(flow: FlowConfig, settings: Settings, brokers: int) -> Iterator[Finding]:
    """Yield what the settings of the brokers of the flow's target, of which there are ``brokers``, will cause."""

    def found(severity: Severity, what: str, cause: Cause) -> Finding:
        return of_cause(severity, _at(flow), f"{what} of {flow.target}", cause)

    replicas = min(_number(settings, causes.TRANSACTION_REPLICAS.key, 3), brokers)
    in_sync = _number(settings, causes.TRANSACTION_MIN_ISR.key, 1)
    if flow.exactly_once and in_sync >= replicas and in_sync > 1:
        severity = Severity.ERROR if in_sync > replicas else Severity.WARNING
        what = f"transaction.state.log.min.isr is {in_sync}, with {replicas} replicas"
        yield found(severity, what, causes.TRANSACTION_MIN_ISR)
    for key in _INTERNAL if brokers > 1 else ():
        if _number(settings, key, brokers) == 1:
            yield found(Severity.WARNING, f"{key} is 1, with {brokers} brokers", causes.SINGLE_REPLICA)
    least = _number(settings, causes.MIN_ISR.key, 1)
    made_with = max(0, flow.replication_factor)
    made_with = made_with or _number(settings, "default.replication.factor", least)
    if least > min(made_with, brokers):
        what = f"min.insync.replicas is {least}, and new topics have {min(made_with, brokers)} replicas"
        yield found(Severity.ERROR, what, causes.MIN_ISR)
    if few := _few_connections(settings.get(_CONNECTION_OVERRIDES) or ""):
        what = f"fewer than {causes.LEAST_CONNECTIONS} connections are allowed to {named('host', few)} by the brokers"
        yield found(Severity.WARNING, what, causes.CONNECTION_OVERRIDES)
    if settings.get(causes.AUTO_CREATE.key) == "true":
        yield found(Severity.NOTE, f"{causes.AUTO_CREATE.key} is true", causes.AUTO_CREATE)


def _few_connections(overrides: str) -> list[str]:
    """Return the hosts to which ``host:connections,...`` allows fewer than a flow's workers open."""
    hosts = (one.strip().rpartition(":") for one in overrides.split(","))
    return [host for host, _, most in hosts if most.isdecimal() and int(most) < causes.LEAST_CONNECTIONS]


def check_batches(flow: FlowConfig, settings: Settings, topics: Topics, request_bytes: int) -> Iterator[Finding]:
    """Yield what the target cannot take of the batches of the source.

    ``request_bytes``: ``max.request.size`` of the flow's producer; a larger batch is sent alone.
    """
    sizes = {name: _number(one, "max.message.bytes", 0) for name, one in topics.source.items()}
    yield from _of_sizes(flow, settings, sizes, request_bytes)
    yield from _of_numbers(flow, topics)
    smaller, segments, appended, oldest = list[str](), list[str](), list[str](), list[str]()
    for name, size in sizes.items():
        copy = flow.target_topic(name)
        if (target := topics.target.get(copy)) is None:
            continue
        limit = _number(target, "max.message.bytes", size)
        if limit < size:
            smaller.append(copy)
        if 0 < _number(target, causes.SEGMENT_BYTES.key, 0) < limit - _LOG_OVERHEAD:
            segments.append(copy)
        if target.get(causes.APPEND_TIME.key) == "LogAppendTime":
            appended.append(copy)
        if _number(target, causes.OLDEST_TIMESTAMP.key, _NO_LIMIT) < _NO_LIMIT and flow.on_bad_timestamp == "fail":
            oldest.append(copy)
    yield from _of_topics(flow, smaller, "max.message.bytes is below that of the source topic", causes.MESSAGE_BYTES)
    yield from _of_topics(flow, segments, "segment.bytes is below max.message.bytes", causes.SEGMENT_BYTES)
    yield from _of_topics(flow, appended, "message.timestamp.type is LogAppendTime", causes.APPEND_TIME)
    what = "message.timestamp.before.max.ms limits the age of records"
    yield from _of_topics(flow, oldest, what, causes.OLDEST_TIMESTAMP)


def _of_sizes(flow: FlowConfig, settings: Settings, sizes: Mapping[str, int], request_bytes: int) -> Iterator[Finding]:
    largest = max((request_bytes, *sizes.values()))
    at_once = _number(settings, causes.SOCKET_REQUEST.key, largest)
    what = f"{causes.SOCKET_REQUEST.key} of {flow.target} is {at_once}, and "
    if at_once < request_bytes:
        what += f"requests have up to {request_bytes} bytes"
        yield of_cause(Severity.ERROR, _at(flow), what, causes.SOCKET_REQUEST)
    elif larger := [name for name, size in sizes.items() if size > at_once]:
        # A limit is not a size: max.message.bytes is often set to the highest number.
        what += f"{named('topic', larger)} of {flow.source} may have batches of up to {largest} bytes"
        yield of_cause(Severity.WARNING, _at(flow), what, causes.SOCKET_REQUEST)


def _of_numbers(flow: FlowConfig, topics: Topics) -> Iterator[Finding]:
    for cluster, of_topics in ((flow.source, topics.source), (flow.target, topics.target)):
        for name, config in of_topics.items():
            for key in broker_retention.without_number(config, _TOPIC_NUMBERS):
                yield _no_number(_at(flow), f"{key} of topic {name} of {cluster}", config[key])


def _of_topics(flow: FlowConfig, names: Sequence[str], what: str, cause: Cause) -> Iterator[Finding]:
    if names:
        yield of_cause(Severity.WARNING, _at(flow), f"{named('topic', names)} of {flow.target}: {what}", cause)


def _number(settings: Settings, key: str, otherwise: int) -> int:
    value = broker_retention.number(settings, key)
    return otherwise if value is None else value


def _at(flow: FlowConfig) -> str:
    return f"flow {flow.name}"
