"""The settings of connections to a cluster, shared by consumer, producer and admin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from mirror.cluster.auth.security import SECURITY_KEYS, Security, read_security
from mirror.cluster.keys import HIDDEN, NOT_SET, Key, read_keys
from mirror.errors import ConfigError, Problem
from mirror.timing import FOREVER_MS

__all__ = ["CLUSTER_KEYS", "Address", "ClusterSettings", "Key", "address_text"]

Address = tuple[str, int]

_MAX_PORT: Final = 65535
_MEANS: Final = "means nothing to its login module, which ignores it, as Java's does"
_MEAN: Final = "mean nothing to its login module, which ignores them, as Java's does"

CLUSTER_KEYS: Final[Mapping[str, Key]] = {
    key.name: key
    for key in (
        Key("bootstrap.servers", "list", (), "`host:port` of some brokers, separated by commas"),
        Key("client.id", "str", "mirror", "the name of this client in the brokers' logs, metrics and quotas"),
        Key("default.api.timeout.ms", "int", 60_000, "timeout of a whole call, with its retries", high=FOREVER_MS),
        Key("request.timeout.ms", "int", 30_000, "timeout of one request", low=1),
        Key("retry.backoff.ms", "int", 100, "wait after the first failure (KIP-580)", high=FOREVER_MS),
        Key("retry.backoff.max.ms", "int", 1_000, "longest wait after failures in a row (KIP-580)", high=FOREVER_MS),
        Key("reconnect.backoff.ms", "int", 50, "wait before the first reconnect", high=FOREVER_MS),
        Key("reconnect.backoff.max.ms", "int", 1_000, "longest wait before a reconnect (KIP-144)", high=FOREVER_MS),
        Key(
            "socket.connection.setup.timeout.ms",
            "int",
            10_000,
            "timeout of the first connection attempt (KIP-601)",
            low=1,
        ),
        Key(
            "socket.connection.setup.timeout.max.ms",
            "int",
            30_000,
            "highest timeout, as it doubles with each attempt (KIP-601)",
            low=1,
        ),
        Key("metadata.max.age.ms", "int", 300_000, "metadata are refreshed at the latest after this time", low=1),
        Key(
            "connections.max.idle.ms",
            "int",
            540_000,
            "idle connections are closed after this time; -1: never",
            -1,
            FOREVER_MS,
        ),
        Key(
            "connections.per.broker",
            "int",
            8,
            "most connections to a broker for produce requests, and as many for transactions",
            low=1,
            high=64,
        ),
        *SECURITY_KEYS.values(),
    )
}


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The parsed settings. Times in ms."""

    bootstrap: tuple[Address, ...]
    client_id: str
    default_api_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    connection_setup_timeout_ms: int
    connection_setup_timeout_max_ms: int
    metadata_max_age_ms: int
    connections_max_idle_ms: int
    connections_per_broker: int
    security: Security

    @staticmethod
    def keys() -> Mapping[str, Key]:
        """The keys that :meth:`parse` accepts."""
        return CLUSTER_KEYS

    @property
    def warnings(self) -> tuple[str, ...]:
        """Settings that work, but maybe not as intended (KIP-580, KIP-144; options of a login line)."""
        pairs = (
            ("retry.backoff", self.retry_backoff_ms, self.retry_backoff_max_ms),
            ("reconnect.backoff", self.reconnect_backoff_ms, self.reconnect_backoff_max_ms),
        )
        found = [
            f"{name}.ms ({first}) is above {name}.max.ms ({most}): every wait is {most} ms, without growth"
            for name, first, most in pairs
            if first > most
        ]
        if self.security.sasl and (ignored := self.security.sasl.ignored_options):
            found.append(f"sasl.jaas.config: {ignored} of its options {_MEANS if ignored == 1 else _MEAN}")
        return tuple(found)

    @classmethod
    def parse(cls, options: Mapping[str, object], where: str = "") -> Self:
        """Parse dotted keys. Raises ConfigError that lists every problem."""
        values, problems = _read(CLUSTER_KEYS, options, where)
        faulty = {problem.key for problem in problems}
        security, more = read_security(values, frozenset(options), where)
        if faulty.isdisjoint(SECURITY_KEYS):
            problems += more
        bootstrap, more = _addresses(values["bootstrap.servers"], where)
        if "bootstrap.servers" not in faulty:
            problems += more
        if problems:
            raise ConfigError(problems)
        return cls.of(values, bootstrap, security)

    @classmethod
    def of(cls, values: Mapping[str, Any], bootstrap: tuple[Address, ...], security: Security) -> Self:
        """Create the settings from checked values."""
        return cls(
            bootstrap=bootstrap,
            client_id=values["client.id"],
            default_api_timeout_ms=values["default.api.timeout.ms"],
            request_timeout_ms=values["request.timeout.ms"],
            retry_backoff_ms=values["retry.backoff.ms"],
            retry_backoff_max_ms=values["retry.backoff.max.ms"],
            reconnect_backoff_ms=values["reconnect.backoff.ms"],
            reconnect_backoff_max_ms=values["reconnect.backoff.max.ms"],
            connection_setup_timeout_ms=values["socket.connection.setup.timeout.ms"],
            connection_setup_timeout_max_ms=values["socket.connection.setup.timeout.max.ms"],
            metadata_max_age_ms=values["metadata.max.age.ms"],
            connections_max_idle_ms=FOREVER_MS if (idle_ms := values["connections.max.idle.ms"]) < 0 else idle_ms,
            connections_per_broker=values["connections.per.broker"],
            security=security,
        )


class Options(NamedTuple):
    """The parsed options of a consumer or producer.

    ``cluster`` is None if its part has problems; ``values`` has the client's own keys and those of the cluster, with
    the defaults of keys that could not be parsed.
    """

    cluster: ClusterSettings | None
    values: dict[str, Any]
    problems: list[Problem]


def read_options(options: Mapping[str, object], own: Mapping[str, Key], where: str) -> Options:
    """Parse the options of a client, which has ``own`` keys beside those of the cluster. Problems are returned."""
    values, problems = _read(own, {name: value for name, value in options.items() if name in own}, where)
    of_cluster = {name: value for name, value in options.items() if name not in own}
    values |= _read(CLUSTER_KEYS, of_cluster, where)[0]
    cluster = None
    try:
        cluster = ClusterSettings.parse(of_cluster, where)
    except ConfigError as error:
        problems += error.problems
    return Options(cluster, values, problems)


def _read(keys: Mapping[str, Key], options: Mapping[str, object], where: str) -> tuple[dict[str, Any], list[Problem]]:
    """Return the value of every key, the default for those that could not be parsed, and the problems."""
    try:
        return read_keys(keys, options, where), []
    except ConfigError as error:
        wrong = {problem.key for problem in error.problems}
        right = {name: value for name, value in options.items() if name not in wrong}
        return read_keys(keys, right, where), list(error.problems)


def address_text(address: Address) -> str:
    """Return ``address`` as ``bootstrap.servers`` has it."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _addresses(servers: tuple[str, ...], where: str) -> tuple[tuple[Address, ...], list[Problem]]:
    found: list[Address] = []
    problems: list[Problem] = []
    for server in servers:
        host, _, port = server.rpartition(":")
        literal = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if literal else host
        if "@" in server:
            allowed = "must be host:port; a user name and password have keys of their own"
            problems.append(Problem(where, "bootstrap.servers", HIDDEN, allowed))
        elif ":" in host and not literal:
            allowed = "must be host:port, an IPv6 address in brackets: [::1]:9092"
            problems.append(Problem(where, "bootstrap.servers", repr(server), allowed))
        elif host and port.isascii() and port.isdigit() and 0 < int(port) <= _MAX_PORT:
            found.append((host, int(port)))
        else:
            problems.append(Problem(where, "bootstrap.servers", repr(server), "must be host:port"))
    if not servers:
        problems.append(Problem(where, "bootstrap.servers", NOT_SET, "must name at least one host:port"))
    return tuple(found), problems
