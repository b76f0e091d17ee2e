"""The settings of a consumer, under Kafka's own keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from mirror.cluster.keys import Key
from mirror.cluster.settings import CLUSTER_KEYS, ClusterSettings, read_options
from mirror.cluster.types import EARLIEST, LATEST
from mirror.errors import ConfigError, Problem

CONSUMER_KEYS: Final[Mapping[str, Key]] = {
    key.name: key
    for key in (
        Key(
            "fetch.max.bytes",
            "int",
            50 * 1024 * 1024,
            "bytes of one Fetch response, and of everything prefetched",
            low=1,
        ),
        Key("fetch.min.bytes", "int", 1, "bytes the broker waits for"),
        Key("fetch.max.wait.ms", "int", 500, "ms that the broker waits for fetch.min.bytes"),
        Key("max.partition.fetch.bytes", "int", 1024 * 1024, "bytes of one partition in one Fetch response", low=1),
        Key("client.rack", "str", "", "fetch from a replica of this rack where the broker allows it (KIP-392)"),
        Key("group.id", "str", "", "the group whose committed offsets are read and written, without membership"),
        Key(
            "auto.offset.reset",
            "str",
            "latest",
            "where to begin without a committed offset, or when the position is out of range",
            choices=("earliest", "latest", "none"),
        ),
        Key(
            "isolation.level",
            "str",
            "read_committed",
            "whether records of open and aborted transactions are seen",
            choices=("read_committed", "read_uncommitted"),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The parsed settings. Sizes in bytes, times in ms. ``offset_reset`` is EARLIEST, LATEST or None."""

    cluster: ClusterSettings
    fetch_max_bytes: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    client_rack: str
    group_id: str
    offset_reset: int | None
    read_committed: bool

    @staticmethod
    def keys() -> Mapping[str, Key]:
        """The keys that :meth:`parse` accepts, including those of the cluster."""
        return {**CLUSTER_KEYS, **CONSUMER_KEYS}

    @classmethod
    def parse(cls, options: Mapping[str, object], where: str = "") -> Self:
        """Parse dotted keys. Raises ConfigError that lists every problem."""
        cluster, values, problems = read_options(options, CONSUMER_KEYS, where)
        faulty = {problem.key for problem in problems}
        wait_ms, request_ms = values["fetch.max.wait.ms"], values["request.timeout.ms"]
        if wait_ms >= request_ms:
            # Otherwise each Fetch without records would be taken for a broker that does not respond.
            if "fetch.max.wait.ms" in options and faulty.isdisjoint({"fetch.max.wait.ms", "request.timeout.ms"}):
                allowed = f"must be below request.timeout.ms ({request_ms})"
                problems.append(Problem(where, "fetch.max.wait.ms", str(wait_ms), allowed))
            wait_ms = request_ms // 2
        if problems or cluster is None:
            raise ConfigError(problems)
        return cls(
            cluster=cluster,
            fetch_max_bytes=values["fetch.max.bytes"],
            fetch_min_bytes=values["fetch.min.bytes"],
            fetch_max_wait_ms=wait_ms,
            max_partition_fetch_bytes=values["max.partition.fetch.bytes"],
            client_rack=values["client.rack"],
            group_id=values["group.id"],
            offset_reset={"earliest": EARLIEST, "latest": LATEST, "none": None}[values["auto.offset.reset"]],
            read_committed=values["isolation.level"] == "read_committed",
        )
