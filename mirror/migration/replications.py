"""One direction of copying, as MirrorMaker 2 would do it: the settings of its connectors and of their worker."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from mirror.migration import known_keys, precedence
from mirror.migration.parsing.entries import Setting, Settings, default
from mirror.migration.precedence import CHECKPOINT, HEARTBEAT, SOURCE, MirrorMakerFile, Pair, is_true

_KAFKAS_IDENTITY_POLICY: Final = "IdentityReplicationPolicy"
_IDENTITY_POLICIES: Final = {
    "com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy",
    "ch.mawileo.kafka.mm2.PrefixlessReplicationPolicy",
}
"""Public classes of others that do as Kafka's: Amazon's sample, and one of the time before Kafka had its own."""


def is_identity_policy(policy: Setting) -> bool:
    """Return whether a class leaves the names of topics as they are: Kafka's, Strimzi's, or one that is known to."""
    name = policy.value.strip()
    return name.endswith(_KAFKAS_IDENTITY_POLICY) or name in _IDENTITY_POLICIES


@dataclass(frozen=True, slots=True)
class Replication:
    """An enabled pair of clusters."""

    pair: Pair
    source: Settings
    """Of the source connector."""
    checkpoint: Settings | None
    """Of the checkpoint connector; None if there is none."""
    heartbeat: Settings | None
    """Of the heartbeat connector of the opposite direction, which writes to the source; None if there is none."""
    worker: Settings | None
    """Of the worker; None if the file does not say."""
    lone_heartbeat: Settings | None = None
    """Of the heartbeat connector of this direction, if no replication goes back; None otherwise."""

    def of_source(self, key: str) -> Setting:
        """Return a setting of the source connector, or its default."""
        return with_default(self.source, key)

    def of_checkpoint(self, key: str) -> Setting:
        """Return a setting of the checkpoint connector, or its default."""
        return with_default(self.checkpoint or {}, key)

    @property
    def checkpoints(self) -> bool:
        """Whether checkpoints of groups are written."""
        if self.checkpoint is None or not is_true(with_default(self.checkpoint, "enabled"), otherwise=True):
            return False
        keys = ("emit.checkpoints.enabled", "emit.offset-syncs.enabled")
        return all(is_true(with_default(self.checkpoint, key), otherwise=True) for key in keys)

    @property
    def heartbeats(self) -> bool:
        """Whether heartbeats are written to the source, and copied from there."""
        if self.heartbeat is None or not is_true(
            with_default(self.heartbeat, "emit.heartbeats.enabled"), otherwise=True
        ):
            return False
        return is_true(self.of_source("heartbeats.replication.enabled"), otherwise=True)

    @property
    def data_producer(self) -> dict[str, Setting]:
        """The settings of the producer that writes the copied records."""
        return precedence.data_producer(self.worker or {}, self.source)

    def cluster(self, end: str) -> dict[str, Setting]:
        """Return the settings by which the cluster at one ``end``, source or target, is connected to."""
        found = precedence.without_prefix(self.source, f"{end}.cluster.")
        return {key: setting for key, setting in found.items() if key in known_keys.CLIENT}


def with_default(settings: Settings, key: str) -> Setting:
    """Return a connector's setting, or MirrorMaker 2's default of it."""
    return settings.get(key) or default(key, known_keys.DEFAULTS.get(key, ""))


def of_file(file: MirrorMakerFile) -> list[Replication]:
    """Return the enabled pairs of a dedicated MirrorMaker 2, in the order of its clusters."""
    running = file.pairs()
    found = []
    for pair in running:
        # MirrorMaker 2 of Kafka 4 does not pass them on: another release did, or the writer means their present names.
        former = {key: setting for key, setting in file.properties.items() if key in known_keys.FORMER}
        source = former | file.connector(pair, SOURCE)
        if not is_true(source["enabled"], otherwise=False):
            continue
        back = Pair(pair.target, pair.source)
        heartbeat = file.connector(back, HEARTBEAT) if back in running else None
        forth = file.connector(pair, HEARTBEAT)
        found.append(
            Replication(pair, source, former | file.connector(pair, CHECKPOINT), heartbeat, file.worker(pair), forth)
        )
    pairs = {replication.pair for replication in found}
    return [
        replace(one, lone_heartbeat=None) if Pair(one.pair.target, one.pair.source) in pairs else one for one in found
    ]
